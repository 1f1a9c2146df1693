//! Waiting before trying again: exponential, capped, with jitter.

use crate::limits::{BACKOFF_FIRST, BACKOFF_MAX, ELECTION_FIRST, ELECTION_MAX};
use std::time::Duration;

/// The waits between attempts to do something that failed.
///
/// The first attempt is made at once: most breaks are a restarted proxy or a timeout, and leases
/// run meanwhile. From the second on, the wait doubles up to a cap. Half of it is random, so that a
/// thousand clients of a restarted server do not come back together.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempt_count: u32,
    /// Attempts in a row that found a cluster without a leader.
    election_count: u32,
}

impl Backoff {
    /// How long to wait before the next attempt.
    pub(crate) fn next(&mut self) -> Duration {
        if let Some(count) = self.election_count.checked_sub(1) {
            // 2^16 times the first wait is far beyond the cap.
            let full = (ELECTION_FIRST * (1 << count.min(16))).min(ELECTION_MAX);
            return spread(full, 0.5);
        }
        let full = match self.attempt_count {
            0 => Duration::ZERO,
            // 2^16 times the first wait is far beyond the cap.
            count => (BACKOFF_FIRST * (1 << (count - 1).min(16))).min(BACKOFF_MAX),
        };
        self.attempt_count = self.attempt_count.saturating_add(1);
        spread(full, 0.5)
    }

    /// Something worked: start over.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// An attempt failed. In a cluster that is about to choose a leader the next one follows soon,
    /// however often that happens: what the client holds is still good, and runs out.
    pub(crate) fn note_failure(&mut self, is_electing: bool) {
        if is_electing {
            self.election_count = self.election_count.saturating_add(1);
            self.ease();
        } else {
            self.election_count = 0;
        }
    }

    /// It worked, but not for long: go on with short waits.
    pub(crate) fn ease(&mut self) {
        self.attempt_count = self.attempt_count.min(EASY_ATTEMPT_COUNT);
    }
}

/// After so many attempts the wait is still a fraction of a second.
const EASY_ATTEMPT_COUNT: u32 = 2;

/// `full`, shortened by a random part of at most `jitter` of it.
pub(crate) fn spread(full: Duration, jitter: f64) -> Duration {
    full.mul_f64(1.0 - jitter * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_attempt_is_made_at_once_and_the_others_wait_longer_and_longer_up_to_the_cap() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(), Duration::ZERO);
        let mut full = BACKOFF_FIRST;
        for _ in 0..100 {
            let wait = backoff.next();
            assert!(
                wait >= full / 2 && wait <= full,
                "{wait:?} is not within half of {full:?}"
            );
            full = (full * 2).min(BACKOFF_MAX);
        }
        backoff.ease();
        assert!(backoff.next() <= BACKOFF_FIRST * 2);
        backoff.reset();
        assert_eq!(backoff.next(), Duration::ZERO);
    }

    #[test]
    fn an_election_is_waited_for_in_short_steps_and_leaves_no_long_wait_behind() {
        let mut backoff = Backoff::default();
        for _ in 0..100 {
            backoff.next();
            backoff.note_failure(false);
        }
        let mut full = ELECTION_FIRST;
        for _ in 0..100 {
            backoff.note_failure(true);
            let wait = backoff.next();
            assert!(
                wait >= full / 2 && wait <= full,
                "{wait:?} is not within half of {full:?}"
            );
            full = (full * 2).min(ELECTION_MAX);
        }
        backoff.note_failure(false);
        assert!(backoff.next() <= BACKOFF_FIRST * 2);
        backoff.reset();
        assert_eq!(backoff.next(), Duration::ZERO);
    }

    #[test]
    fn spreading_shortens_and_never_lengthens() {
        let full = Duration::from_secs(10);
        for _ in 0..1000 {
            let spread = spread(full, 0.2);
            assert!(spread >= full.mul_f64(0.8) && spread <= full);
        }
    }
}
