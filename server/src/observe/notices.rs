//! Log lines that many peers can cause at once. Each kind is logged once in an interval, with the
//! number of those that were left out.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How long a kind is quiet after a line.
const INTERVAL: Duration = Duration::from_secs(10);

/// The kinds of such lines.
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
    /// A peer and this server do not accept each other's certificates, or found no version.
    HandshakeFailed,
    /// A peer speaks without TLS to a port that speaks TLS only.
    NotTls,
    /// A peer speaks TLS to a port that does not.
    OnlyPlain,
    /// A peer speaks HTTP to the Redis port.
    SpeaksHttp,
}

const KINDS: usize = 9;

/// When each kind was last logged, and how many were left out since.
#[derive(Default)]
pub(crate) struct Notices([Mutex<Said>; KINDS]);

#[derive(Default)]
struct Said {
    at: Option<Instant>,
    since: u64,
}

impl Notices {
    /// Calls `say` unless it was called for this kind within the interval. Its argument is the
    /// number of lines that were left out since.
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
