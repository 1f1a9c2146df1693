//! What does a release and acquire of a random key cost among ten million held locks?
//!
//! Unit: nanoseconds on the core per pair, one thread, median of eleven rounds; rounds of engine
//! and baseline alternate. All ten million locks are held throughout, by four sessions: each step
//! releases one of them and takes it again, so it is the release that pays for the cold cache. No
//! key is met twice, so every lock is released under its first fence, and the loop need not look
//! fences up, which would be a cache miss of its own. The control is the loop by itself.

use super::process::Clocks;
use super::{Arguments, BOTH, CONTROL, ENGINE, MAP, Report, Target, median};
use bench::baseline::Map;
use bench::keys::{Shuffled, key_bytes};
use bench::subject::{NOW, SHARDS, Subject, engine_for, take_all};
use engine::Key;
use std::hint::black_box;

/// And one before them, to warm up.
const ROUNDS: u64 = 11;
const TTL_MS: u64 = 3_600_000;

/// A table in which everything is held.
struct Held<S: Subject> {
    subject: S,
    seats: Vec<S::Seat>,
    first_fence: S::Fence,
    order: Shuffled,
    pairs_per_round: u64,
}

impl<S: Subject> Held<S> {
    fn new(subject: S, keys: u64) -> Self {
        eprintln!("  {}: taking {keys} locks", S::NAME);
        let mut seats: Vec<_> = (0..4).map(|number| subject.seat(number)).collect();
        let mut first_fence = None;
        take_all(&subject, &mut seats, keys, TTL_MS, NOW, |_, fence| {
            assert!(
                *first_fence.get_or_insert(fence) == fence,
                "first fences are alike"
            );
        });
        subject.settle(NOW);
        Held {
            subject,
            seats,
            first_fence: first_fence.expect("at least one key"),
            order: Shuffled::new(keys),
            pairs_per_round: (keys / (ROUNDS + 1)).min(400_000),
        }
    }

    /// Nanoseconds per pair.
    fn round(&mut self) -> f64 {
        let begun = Clocks::start();
        for number in self.order.by_ref().take(self.pairs_per_round as usize) {
            let bytes = key_bytes(number);
            let key = Key::new(black_box(&bytes)).expect("16 bytes");
            let turn = number as usize % self.seats.len();
            let seat = &mut self.seats[turn];
            assert!(self.subject.release(seat, key, self.first_fence, NOW));
            let again = self.subject.acquire(seat, key, TTL_MS, NOW);
            assert!(again.expect("just released") > self.first_fence);
        }
        begun.took().core_ns as f64 / self.pairs_per_round as f64
    }

    /// The same without the locks.
    fn empty_round(&self) -> f64 {
        let begun = Clocks::start();
        for number in Shuffled::new(self.pairs_per_round) {
            black_box(key_bytes(number));
        }
        begun.took().core_ns as f64 / self.pairs_per_round as f64
    }
}

pub(super) fn both(arguments: &Arguments, report: &mut Report<'_>) {
    let mut engine = Held::new(engine_for(arguments.keys), arguments.keys);
    let mut map = Held::new(Map::<u32>::new(SHARDS, 10_000), arguments.keys);
    let (mut of_engine, mut of_map, mut of_loop) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..=ROUNDS {
        of_engine.push(engine.round());
        of_map.push(map.round());
        of_loop.push(engine.empty_round());
    }
    let [engine_ns, map_ns, loop_ns] =
        [&mut of_engine, &mut of_map, &mut of_loop].map(|rounds| median(&mut rounds[1..]));
    let what = "random key among all held, release and acquire";
    report.subject = ENGINE;
    report.add_against(what, engine_ns, "ns", Target::at_most(450.0));
    report.subject = MAP;
    report.add(what, map_ns, "ns");
    report.subject = CONTROL;
    report.add("the loop by itself", loop_ns, "ns");
    report.subject = BOTH;
    report.add("rate", map_ns / engine_ns, "x");
}
