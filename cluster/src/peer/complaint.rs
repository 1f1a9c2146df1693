//! Log lines about peers, each at most once a minute: a port that is open to a network must not
//! let strangers fill the log.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Display;
use std::time::Duration;
use tokio::time::Instant;

/// How long the same line is not written again.
pub(super) const QUIET: Duration = Duration::from_secs(60);

/// How many different lines are told apart. While so many are quiet, others are only counted.
const REASONS_MAX: usize = 64;

/// Which lines were written lately.
#[derive(Default)]
pub(super) struct Complaints {
    written: Mutex<HashMap<String, Line>>,
}

struct Line {
    at: Instant,
    kept_back: u64,
}

impl Complaints {
    /// Warns about the peer at this address, unless the same was said of any peer a moment ago.
    pub(super) fn warn(&self, address: &str, reason: impl Display) {
        if let Some(kept_back) = self.may_write(reason.to_string(), Instant::now()) {
            tracing::warn!(peer = address, kept_back, "{reason}");
        }
    }

    /// `Some`: write it, and say how often it was kept back since it was written last.
    fn may_write(&self, reason: String, now: Instant) -> Option<u64> {
        let mut written = self.written.lock();
        if let Some(line) = written.get_mut(&reason) {
            if now < line.at + QUIET {
                line.kept_back += 1;
                return None;
            }
            let kept_back = std::mem::take(&mut line.kept_back);
            line.at = now;
            return Some(kept_back);
        }
        if written.len() >= REASONS_MAX {
            written.retain(|_, line| now < line.at + QUIET);
        }
        if written.len() >= REASONS_MAX {
            return None;
        }
        let line = Line {
            at: now,
            kept_back: 0,
        };
        written.insert(reason, line);
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_line_waits_a_minute() {
        let complaints = Complaints::default();
        let now = Instant::now();
        assert_eq!(complaints.may_write("one".into(), now), Some(0));
        assert_eq!(complaints.may_write("one".into(), now), None);
        assert_eq!(complaints.may_write("two".into(), now), Some(0));
        assert_eq!(complaints.may_write("one".into(), now + QUIET), Some(1));
    }

    #[test]
    fn endless_reasons_are_kept_back() {
        let complaints = Complaints::default();
        let now = Instant::now();
        let written = |n: &u32| complaints.may_write(n.to_string(), now).is_some();
        assert_eq!((0..10_000).filter(written).count(), REASONS_MAX);
        assert_eq!(complaints.may_write("new".into(), now + QUIET), Some(0));
    }
}
