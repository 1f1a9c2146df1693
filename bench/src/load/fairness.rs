//! Order of arrival against order of grants.
//!
//! Two lanes that wait at the same time are a *pair*. It is *reordered* if the one that asked later is granted first. Requests
//! on two connections race each other to the server, though: one that leaves a few microseconds later may well be
//! read earlier, and nobody barged. So an *inversion* is a reordered pair whose requests left more than
//! [`RACE_NS`] apart; the share of reordered pairs counts all of them.

use std::collections::VecDeque;

/// Requests that leave within this time race each other: a thread of the server may have lost its core for that long.
pub(crate) const RACE_NS: u64 = 1_000_000;

/// Who waits since when, and how it went so far.
#[derive(Default)]
pub(crate) struct Fairness {
    /// Those who wait, in order of arrival: arrival number and time.
    waiting: VecDeque<(u64, u64)>,
    arrivals: u64,
    pairs: u64,
    reordered: u64,
    inversions: u64,
    grants: Vec<u64>,
}

impl Fairness {
    /// For so many lanes.
    pub(crate) fn new(lane_count: u32) -> Self {
        Fairness {
            grants: vec![0; lane_count as usize],
            ..Fairness::default()
        }
    }

    /// Somebody asks for the lock. The number names this wish to `granted`. Times must not run backwards.
    pub(crate) fn arrived(&mut self, now: u64) -> u64 {
        self.arrivals += 1;
        self.waiting.push_back((self.arrivals, now));
        self.arrivals
    }

    /// The wish was granted.
    pub(crate) fn granted(&mut self, lane: u32, arrival: u64) {
        if let Some(((_, asked), position)) = self.remove(arrival) {
            self.pairs += self.waiting.len() as u64;
            self.reordered += position as u64;
            let clearly_before = |&(_, at): &(u64, u64)| at + RACE_NS < asked;
            self.inversions += self.waiting.partition_point(clearly_before) as u64;
            self.grants[lane as usize] += 1;
        }
    }

    /// The wish came to nothing.
    pub(crate) fn gave_up(&mut self, arrival: u64) {
        self.remove(arrival);
    }

    fn remove(&mut self, arrival: u64) -> Option<((u64, u64), usize)> {
        let position = self
            .waiting
            .binary_search_by_key(&arrival, |&(number, _)| number)
            .ok()?;
        Some((self.waiting.remove(position)?, position))
    }

    /// Forgets what was counted, but not who waits: the warm-up is over.
    pub(crate) fn reset(&mut self) {
        (self.pairs, self.reordered, self.inversions) = (0, 0, 0);
        self.grants.fill(0);
    }

    /// Pairs that were granted the wrong way round, though one asked clearly before the other.
    pub(crate) fn inversions(&self) -> u64 {
        self.inversions
    }

    /// The share of pairs that were granted the wrong way round, races on the way to the server included.
    pub(crate) fn reordered_share(&self) -> f64 {
        if self.pairs == 0 {
            return 0.0;
        }
        self.reordered as f64 / self.pairs as f64
    }

    /// Jain's index of the grants that the lanes got: 1 when all got the same, 1/n when one got all.
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
                .map(|lane| fairness.arrived((round * 3 + lane) * 5 * MS))
                .collect();
            for (lane, wish) in wishes.into_iter().enumerate() {
                fairness.granted(lane as u32, wish);
            }
        }
        assert_eq!(fairness.inversions(), 0);
        assert_eq!(fairness.reordered_share(), 0.0);
        assert_eq!(fairness.jain_index(), 1.0);
    }

    #[test]
    fn last_come_first_served_reorders_every_pair() {
        let mut fairness = Fairness::new(4);
        let wishes: Vec<u64> = (0..4).map(|lane| fairness.arrived(lane * 5 * MS)).collect();
        for (lane, wish) in wishes.into_iter().enumerate().rev() {
            fairness.granted(lane as u32, wish);
        }
        assert_eq!(fairness.inversions(), 6);
        assert_eq!(fairness.reordered_share(), 1.0);
    }

    #[test]
    fn a_race_on_the_way_to_the_server_is_no_inversion() {
        let mut fairness = Fairness::new(2);
        let first = fairness.arrived(0);
        let second = fairness.arrived(RACE_NS);
        fairness.granted(1, second);
        fairness.granted(0, first);
        assert_eq!(fairness.inversions(), 0);
        assert_eq!(fairness.reordered_share(), 1.0);
    }

    #[test]
    fn whoever_gives_up_counts_for_nothing() {
        let mut fairness = Fairness::new(2);
        let first = fairness.arrived(0);
        let second = fairness.arrived(5 * MS);
        fairness.gave_up(first);
        fairness.granted(1, second);
        assert_eq!(fairness.inversions(), 0);
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
    fn the_warm_up_is_forgotten_but_not_those_who_wait() {
        let mut fairness = Fairness::new(2);
        let early = fairness.arrived(0);
        let late = fairness.arrived(5 * MS);
        fairness.granted(1, late);
        fairness.reset();
        let latest = fairness.arrived(10 * MS);
        fairness.granted(1, latest);
        assert_eq!(fairness.inversions(), 1);
        fairness.granted(0, early);
        assert_eq!(fairness.inversions(), 1);
    }
}
