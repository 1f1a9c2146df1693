//! What does a release and acquire of a random key cost among ten million held locks?
//!
//! Unit: nanoseconds per pair, one thread, median of eleven rounds; rounds of engine and baseline alternate. All ten
//! million locks are held throughout, by four sessions: each step releases one of them and takes it again, so it is the
//! release that pays for the cold cache. The control does what the loop itself does: it draws a number, makes a key and
//! reads the fence under which the lock is held from an array, a cache miss of its own. It is not subtracted.

use super::{Arguments, BOTH, ENGINE, MAP, NOBODY, Report, Target, median};
use bench::baseline::Map;
use bench::keys::{Random, key_bytes};
use bench::subject::{NOW, SHARDS, Subject, engine_for, take_all};
use engine::Key;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 11;
const PAIRS: u64 = 400_000;
const TTL_MS: u64 = 3_600_000;

/// A table in which everything is held.
struct Held<S: Subject> {
    subject: S,
    seats: Vec<S::Seat>,
    fences: Vec<S::Fence>,
}

impl<S: Subject> Held<S> {
    fn new(subject: S, keys: u64) -> Self {
        eprintln!("  {}: taking {keys} locks", S::NAME);
        let mut seats: Vec<_> = (0..4).map(|number| subject.seat(number)).collect();
        let mut fences = Vec::with_capacity(keys as usize);
        take_all(&subject, &mut seats, keys, TTL_MS, NOW, |_, fence| {
            fences.push(fence)
        });
        subject.settle(NOW);
        Held {
            subject,
            seats,
            fences,
        }
    }

    /// Nanoseconds per pair.
    fn round(&mut self, random: &mut Random) -> f64 {
        let begun = Instant::now();
        for _ in 0..PAIRS {
            let number = random.below(self.fences.len() as u64);
            let bytes = key_bytes(number);
            let key = Key::new(black_box(&bytes)).expect("16 bytes");
            let fence = &mut self.fences[number as usize];
            let turn = number as usize % self.seats.len();
            let seat = &mut self.seats[turn];
            assert!(self.subject.release(seat, key, *fence, NOW));
            let again = self.subject.acquire(seat, key, TTL_MS, NOW);
            *fence = again.expect("just released, and nobody else is here");
        }
        begun.elapsed().as_nanos() as f64 / PAIRS as f64
    }

    /// The same without the locks.
    fn empty_round(&self, random: &mut Random) -> f64 {
        let begun = Instant::now();
        for _ in 0..PAIRS {
            let number = random.below(self.fences.len() as u64);
            black_box(key_bytes(number));
            black_box(self.fences[number as usize]);
        }
        begun.elapsed().as_nanos() as f64 / PAIRS as f64
    }
}

pub(super) fn both(arguments: &Arguments, report: &mut Report<'_>) {
    let mut engine = Held::new(engine_for(arguments.keys), arguments.keys);
    let mut map = Held::new(Map::<u32>::new(SHARDS, 10_000), arguments.keys);
    let mut random = Random::new(5);
    let (mut of_engine, mut of_map, mut of_loop) = (Vec::new(), Vec::new(), Vec::new());
    // The first round of each warms up.
    for _ in 0..=ROUNDS {
        of_engine.push(engine.round(&mut random));
        of_map.push(map.round(&mut random));
        of_loop.push(engine.empty_round(&mut random));
    }
    let [engine_ns, map_ns, loop_ns] =
        [&mut of_engine, &mut of_map, &mut of_loop].map(|rounds| median(&mut rounds[1..]));
    let what = "random key among all held, release and acquire";
    report.subject = ENGINE;
    report.add_against(what, engine_ns, "ns", Target::at_most(450.0));
    report.subject = MAP;
    report.add(what, map_ns, "ns");
    report.subject = NOBODY;
    report.add("the loop by itself", loop_ns, "ns");
    report.subject = BOTH;
    report.add("rate", map_ns / engine_ns, "x");
}
