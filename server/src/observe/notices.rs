//! Log lines that a crowd of peers could bring about: one for each kind and interval, with the
//! number of those that went without.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How long a kind is quiet after a line.
const INTERVAL: Duration = Duration::from_secs(10);

/// What is said so seldom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The system refused to accept a connection.
    AcceptFailed,
    /// A native client was not let in.
    HelloRefused,
    /// All places are taken.
    NoPlace,
    /// A peer had to give way to newer ones before it had introduced itself.
    GaveWay,
    /// A peer did not keep up.
    TooSlow,
}

const KINDS: usize = 5;

/// When each kind was last said, and how many there have been since.
#[derive(Default)]
pub(crate) struct Notices([Mutex<Said>; KINDS]);

#[derive(Default)]
struct Said {
    at: Option<Instant>,
    since: u64,
}

impl Notices {
    /// Calls `say` unless it was called for this kind a moment ago, with the number of those that
    /// were not said since.
    pub(crate) fn say(&self, notice: Notice, say: impl FnOnce(u64)) {
        self.say_at(notice, Instant::now(), say);
    }

    fn say_at(&self, notice: Notice, now: Instant, say: impl FnOnce(u64)) {
        let mut said = self.0[notice as usize].lock();
        if said.at.is_some_and(|at| now.duration_since(at) < INTERVAL) {
            said.since += 1;
            return;
        }
        said.at = Some(now);
        let unsaid = std::mem::take(&mut said.since);
        drop(said);
        say(unsaid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_one_line_and_a_number() {
        let notices = Notices::default();
        let begun = Instant::now();
        let mut lines = Vec::new();
        for _ in 0..2_000 {
            notices.say_at(Notice::NoPlace, begun, |unsaid| lines.push(unsaid));
        }
        notices.say_at(Notice::TooSlow, begun, |unsaid| lines.push(unsaid));
        assert_eq!(lines, [0, 0], "one line for each kind");
        notices.say_at(Notice::NoPlace, begun + INTERVAL, |unsaid| {
            lines.push(unsaid)
        });
        assert_eq!(lines, [0, 0, 1_999]);
    }
}
