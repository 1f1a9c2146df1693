//! The cluster's clock, as a node knows it: a lower bound.
//!
//! The leader stamps its clock into every batch. A node that heard an entry stamped `s` at its own
//! time `m` knows, once the entry is committed, that the clock is at `s + (now - m)` at least:
//! messages take time. It takes the highest of these of one reign. A node that becomes leader goes
//! on from there, so leases keep their milliseconds, and end late, never early, by what the
//! messages took.
//!
//! Nodes' steady clocks may run at different speeds, by [`DRIFT_PART`] at most. A node counts its
//! own time that much shorter, or it would run ahead of the leader that it follows.
//!
//! Only committed entries count. An entry that another leader replaced was stamped by a clock that
//! no promise was made by.
//!
//! And only those of the latest reign. A leader that was restarted goes on from its last stamp: for
//! it time stood still, so its clock, by which it promises, is behind what other nodes had worked
//! out from the leader before. If one of these went on from that when it leads, it would end leases
//! early. So the first batch of a later reign replaces the bound, even by a lower one.
//! `cluster-model` finds two holders without this (`ClockOfAllReigns`).

use crate::simulation::{Mistake, planted};
use std::time::{Duration, Instant};

/// A hundredth: clocks of nodes and clients run within this of each other.
pub const DRIFT_PART: u32 = 100;

/// Only for the planted mistake: what a message may have been under way.
const UNDER_WAY_MS: u64 = 50;

/// A lower bound of the cluster's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterClock {
    /// The reign that it is known from.
    reign: u64,
    /// The stamp of an entry, and when it was heard.
    anchor: Option<(u64, Instant)>,
}

impl ClusterClock {
    /// An entry of this reign with this stamp is committed; it was heard then.
    pub fn hear(&mut self, reign: u64, stamp_ms: u64, heard: Instant, now: Instant) {
        let bound_ms = stamp_ms + shortened_ms(now.saturating_duration_since(heard));
        let is_later = reign > self.reign || self.anchor.is_none();
        let is_later = is_later && !(planted(Mistake::ClockOfAllReigns) && self.anchor.is_some());
        let is_of_reign = reign == self.reign || planted(Mistake::ClockOfAllReigns);
        if is_later || is_of_reign && bound_ms > self.now_ms(now) {
            self.reign = reign;
            self.anchor = Some((stamp_ms, heard));
        }
    }

    /// Takes over what another clock of the same node knows, by the same rule.
    pub fn hear_of(&mut self, other: &ClusterClock, now: Instant) {
        if let Some((stamp_ms, heard)) = other.anchor {
            self.hear(other.reign, stamp_ms, heard, now);
        }
    }

    /// The clock is here at least; 0 if nothing is known of it.
    pub fn now_ms(&self, now: Instant) -> u64 {
        self.anchor.map_or(0, |(stamp_ms, heard)| {
            stamp_ms + shortened_ms(now.saturating_duration_since(heard))
        })
    }
}

fn shortened_ms(elapsed: Duration) -> u64 {
    if planted(Mistake::ClockAsUpperBound) {
        return (elapsed + elapsed / DRIFT_PART).as_millis() as u64 + UNDER_WAY_MS;
    }
    (elapsed - elapsed / DRIFT_PART).as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_stamp_grows_older_by_less_than_the_time_that_passes() {
        let begin = Instant::now();
        let mut clock = ClusterClock::default();
        assert_eq!(clock.now_ms(begin), 0);
        clock.hear(1, 5_000, begin, begin);
        assert_eq!(clock.now_ms(begin), 5_000);
        assert_eq!(clock.now_ms(begin + 100 * SECOND), 104_000);
    }

    #[test]
    fn the_highest_bound_counts_and_it_never_falls() {
        let begin = Instant::now();
        let mut clock = ClusterClock::default();
        clock.hear(1, 5_000, begin, begin);
        // Took long to come: says less than what is known.
        clock.hear(1, 5_100, begin + SECOND, begin + SECOND);
        assert_eq!(clock.now_ms(begin + SECOND), 5_990);
        clock.hear(1, 6_000, begin + SECOND, begin + 2 * SECOND);
        assert_eq!(clock.now_ms(begin + 2 * SECOND), 6_990);
    }

    #[test]
    fn a_later_reign_replaces_the_bound_even_by_a_lower_one() {
        let begin = Instant::now();
        let mut clock = ClusterClock::default();
        clock.hear(1, 5_000, begin, begin);
        let later = begin + 10 * SECOND;
        // A restarted node leads, whose clock stood still meanwhile.
        clock.hear(2, 5_001, later, later);
        assert_eq!(clock.now_ms(later), 5_001);
        clock.hear(1, 9_000, later, later);
        assert_eq!(clock.now_ms(later), 5_001, "the reign before is over");
        let mut other = ClusterClock::default();
        other.hear_of(&clock, later);
        assert_eq!(other.now_ms(later), 5_001);
    }

    #[test]
    fn a_fast_node_does_not_overtake_the_leader_that_it_follows() {
        // This node's clock is one part in a hundred faster than the leader's, and entries come
        // without delay.
        let begin = Instant::now();
        let mut clock = ClusterClock::default();
        for second in 0..1_000_u32 {
            let leader_ms = 1_000 * u64::from(second);
            let own = begin + SECOND * second + SECOND * second / 100;
            clock.hear(1, leader_ms, own, own);
            assert!(clock.now_ms(own) <= leader_ms);
        }
    }
}
