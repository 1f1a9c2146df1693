//! Order of arrival against order of grants.
//!
//! Two lanes that wait at the same time are a *pair*. It is *reordered* if the one that asked later
//! is granted first. Requests on two connections race each other to the server, though: one that
//! leaves a few microseconds later may well be read earlier, and no contender barged. So an
//! *inversion* is a reordered pair whose requests left more than [`RACE_NS`] apart; the share of
//! reordered pairs counts all of them.
//!
//! A server with several threads may still have inversions though its queue is first come first
//! served: a request lies unread while its thread waits for a processor, and others are read by
//! another thread meanwhile. Requests on *one* connection are read in the order in which they were
//! written, whatever the scheduler does. So pairs of those that are reordered are counted by
//! themselves, without any margin: a queue that is first come first served has none of them.

use std::collections::VecDeque;

/// Requests that leave within this time race each other: a thread of the server may have lost its
/// core for that long.
pub(crate) const RACE_NS: u64 = 1_000_000;

/// The waiters, since when each waits, and what was counted so far.
#[derive(Default)]
pub(crate) struct Fairness {
    /// The waiters, in order of arrival.
    waiting: VecDeque<Wish>,
    arrivals: u64,
    counts: Counts,
    grants: Vec<u64>,
}

/// A waiter.
struct Wish {
    arrival: u64,
    /// When it asked, and on which link.
    asked: u64,
    link: usize,
    /// It is the first of an inversion already.
    is_overtaken: bool,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Contenders that waited at the same time.
    pairs: u64,
    /// Pairs that were granted the wrong way round, races on the way to the server included.
    reordered: u64,
    /// Those of them that asked on one connection, where nothing races.
    pub(crate) reordered_on_one_link: u64,
    /// Pairs that were granted the wrong way round, though one asked clearly before the other.
    pub(crate) inversions: u64,
    /// How many wishes were the first of an inversion.
    pub(crate) overtaken: u64,
    /// How much later than the one it overtook a contender asked, at most.
    pub(crate) head_start_ns_max: u64,
}

impl Fairness {
    /// For so many lanes.
    pub(crate) fn new(lane_count: u32) -> Self {
        Fairness {
            grants: vec![0; lane_count as usize],
            ..Fairness::default()
        }
    }

    /// A contender asks for the lock. The number names this wish to `granted`. Times must not run
    /// backwards.
    pub(crate) fn arrived(&mut self, link: usize, now: u64) -> u64 {
        self.arrivals += 1;
        self.waiting.push_back(Wish {
            arrival: self.arrivals,
            asked: now,
            link,
            is_overtaken: false,
        });
        self.arrivals
    }

    /// The wish was granted.
    pub(crate) fn granted(&mut self, lane: u32, arrival: u64) {
        let Some((granted, position)) = self.remove(arrival) else {
            return;
        };
        self.grants[lane as usize] += 1;
        let counts = &mut self.counts;
        counts.pairs += self.waiting.len() as u64;
        counts.reordered += position as u64;
        for earlier in self.waiting.range_mut(..position) {
            counts.reordered_on_one_link += u64::from(earlier.link == granted.link);
            let head_start_ns = granted.asked - earlier.asked;
            if head_start_ns > RACE_NS {
                counts.inversions += 1;
                counts.overtaken += u64::from(!earlier.is_overtaken);
                counts.head_start_ns_max = counts.head_start_ns_max.max(head_start_ns);
                earlier.is_overtaken = true;
            }
        }
    }

    /// The wish came to nothing.
    pub(crate) fn gave_up(&mut self, arrival: u64) {
        self.remove(arrival);
    }

    fn remove(&mut self, arrival: u64) -> Option<(Wish, usize)> {
        let position = self
            .waiting
            .binary_search_by_key(&arrival, |wish| wish.arrival)
            .ok()?;
        Some((self.waiting.remove(position)?, position))
    }

    /// Forgets what was counted, but not the waiters: the warm-up is over.
    pub(crate) fn reset(&mut self) {
        self.counts = Counts::default();
        self.grants.fill(0);
        for wish in &mut self.waiting {
            wish.is_overtaken = false;
        }
    }

    /// What was counted so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The share of pairs that were granted the wrong way round, races on the way to the server
    /// included.
    pub(crate) fn reordered_share(&self) -> f64 {
        let Counts {
            pairs, reordered, ..
        } = self.counts;
        if pairs == 0 {
            return 0.0;
        }
        reordered as f64 / pairs as f64
    }

    /// Jain's index of the grants that the lanes got: 1 when all got the same, 1/n when one got
    /// all.
    pub(crate) fn jain_index(&self) -> f64 {
        jain_index(&self.grants)
    }
}

fn jain_index(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn first_come_first_served_has_no_inversions() {
        let mut fairness = Fairness::new(3);
        for round in 0..10 {
            let wishes: Vec<u64> = (0..3)
                .map(|lane| fairness.arrived(0, (round * 3 + lane) * 5 * MS))
                .collect();
            for (lane, wish) in wishes.into_iter().enumerate() {
                fairness.granted(lane as u32, wish);
            }
        }
        assert_eq!(fairness.counts().inversions, 0);
        assert_eq!(fairness.reordered_share(), 0.0);
        assert_eq!(fairness.jain_index(), 1.0);
    }

    #[test]
    fn last_come_first_served_reorders_every_pair() {
        let mut fairness = Fairness::new(4);
        let wishes: Vec<u64> = (0..4)
            .map(|lane| fairness.arrived(lane as usize % 2, lane * 5 * MS))
            .collect();
        for (lane, wish) in wishes.into_iter().enumerate().rev() {
            fairness.granted(lane as u32, wish);
        }
        let counts = fairness.counts();
        assert_eq!(counts.inversions, 6);
        assert_eq!(counts.overtaken, 3);
        assert_eq!(counts.head_start_ns_max, 15 * MS);
        // The first and the third, the second and the fourth.
        assert_eq!(counts.reordered_on_one_link, 2);
        assert_eq!(fairness.reordered_share(), 1.0);
    }

    #[test]
    fn a_race_on_the_way_to_the_server_is_no_inversion() {
        let mut fairness = Fairness::new(2);
        let first = fairness.arrived(0, 0);
        let second = fairness.arrived(1, RACE_NS);
        fairness.granted(1, second);
        fairness.granted(0, first);
        let counts = fairness.counts();
        assert_eq!((counts.inversions, counts.reordered_on_one_link), (0, 0));
        assert_eq!(fairness.reordered_share(), 1.0);
    }

    #[test]
    fn nothing_races_on_one_connection() {
        let mut fairness = Fairness::new(2);
        let first = fairness.arrived(7, 0);
        let second = fairness.arrived(7, 1);
        fairness.granted(1, second);
        fairness.granted(0, first);
        let counts = fairness.counts();
        assert_eq!((counts.inversions, counts.reordered_on_one_link), (0, 1));
    }

    #[test]
    fn a_waiter_overtaken_twice_is_overtaken_once_by_each() {
        let mut fairness = Fairness::new(3);
        let slow = fairness.arrived(0, 0);
        let others = [2 * MS, 3 * MS].map(|at| fairness.arrived(1, at));
        for wish in others {
            fairness.granted(1, wish);
        }
        fairness.granted(0, slow);
        let counts = fairness.counts();
        assert_eq!((counts.inversions, counts.overtaken), (2, 1));
        assert_eq!(counts.head_start_ns_max, 3 * MS);
    }

    #[test]
    fn a_waiter_overtaken_in_the_warm_up_can_be_overtaken_again() {
        let mut fairness = Fairness::new(2);
        fairness.arrived(0, 0);
        let others = [2 * MS, 3 * MS].map(|at| fairness.arrived(1, at));
        fairness.granted(1, others[0]);
        fairness.reset();
        fairness.granted(1, others[1]);
        let counts = fairness.counts();
        assert_eq!((counts.inversions, counts.overtaken), (1, 1));
    }

    #[test]
    fn a_waiter_that_gives_up_counts_for_nothing() {
        let mut fairness = Fairness::new(2);
        let first = fairness.arrived(0, 0);
        let second = fairness.arrived(0, 5 * MS);
        fairness.gave_up(first);
        fairness.granted(1, second);
        assert_eq!(fairness.counts().inversions, 0);
        assert_eq!(fairness.reordered_share(), 0.0);
    }

    #[test]
    fn jains_index_is_one_over_n_when_one_takes_all() {
        assert_eq!(jain_index(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain_index(&[8, 0, 0, 0]), 0.25);
        assert_eq!(jain_index(&[3, 1]), 0.8);
        assert_eq!(jain_index(&[0, 0]), 1.0);
    }

    #[test]
    fn the_warm_up_is_forgotten_but_not_the_waiters() {
        let mut fairness = Fairness::new(2);
        let early = fairness.arrived(0, 0);
        let late = fairness.arrived(0, 5 * MS);
        fairness.granted(1, late);
        fairness.reset();
        let latest = fairness.arrived(0, 10 * MS);
        fairness.granted(1, latest);
        assert_eq!(fairness.counts().inversions, 1);
        fairness.granted(0, early);
        assert_eq!(fairness.counts().inversions, 1);
    }
}
