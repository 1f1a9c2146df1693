//! How long grants took while the disk of one of two nodes was slow.

use std::time::Duration;

/// How long the next grant took, at each moment that was looked at.
#[derive(Default)]
pub struct WaitsOfTwo {
    /// While the disk of the leader was slow.
    pub of_leader: Vec<Duration>,
    /// While that of the follower was.
    pub of_follower: Vec<Duration>,
}

/// The one in the middle, in milliseconds.
pub(crate) fn median_ms(waits: &[Duration]) -> u64 {
    let mut sorted = waits.to_vec();
    sorted.sort_unstable();
    let middle = sorted.get(sorted.len() / 2);
    middle.map_or(0, |middle| middle.as_millis() as u64)
}
