//! Question: what does the timing wheel cost per lease, against a binary heap and a B-tree?
//!
//! Unit: nanoseconds per entry. `arm`: a hundred thousand or a million entries with random
//! deadlines within a minute. `run`: the hand passes over all of them in steps of one millisecond,
//! cascades included, and gives each out once. `rearm`: an armed entry is taken out and armed for
//! another time, which the heap cannot do.
//!
//! Leaves out: the cells the links live in (here they are packed arrays, kinder to the cache, as
//! are the heap's entries), and what the engine does with an entry that is due (`bench engine
//! expiry`).

use bench::keys::Random;
use criterion::measurement::WallTime;
use criterion::{
    BatchSize, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main,
};
use engine::Tick;
use engine::wheel::{Due, Links, NONE, Wheel};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::hint::black_box;
use std::time::Duration;

const SPAN_MS: u64 = 60_000;

/// What all timers are given: when each entry is due. Entries are numbered from 1.
struct Deadlines(Vec<Tick>);

impl Deadlines {
    fn new(entries: usize) -> Self {
        let mut random = Random::new(11);
        let deadline = |_| Tick::from_ms(1 + random.below(SPAN_MS));
        Deadlines((0..=entries).map(deadline).collect())
    }

    fn entries(&self) -> std::ops::Range<u32> {
        1..self.0.len() as u32
    }
}

/// A timer under test.
trait Timer {
    const NAME: &'static str;
    fn new(entries: usize) -> Self;
    fn arm(&mut self, entry: u32, at: Tick);
    /// Gives out everything due by `now`.
    fn run(&mut self, now: Tick, due: impl FnMut(u32));
}

struct WheelTimer {
    wheel: Wheel,
    links: ArrayLinks,
}

struct ArrayLinks {
    links: Vec<(Cell<u32>, Cell<u32>)>,
    due: Vec<Cell<Tick>>,
}

impl Links for ArrayLinks {
    fn next(&self, entry: u32) -> u32 {
        self.links[entry as usize].0.get()
    }
    fn prev(&self, entry: u32) -> u32 {
        self.links[entry as usize].1.get()
    }
    fn set_next(&self, entry: u32, next: u32) {
        self.links[entry as usize].0.set(next);
    }
    fn set_prev(&self, entry: u32, prev: u32) {
        self.links[entry as usize].1.set(prev);
    }
    fn due(&self, entry: u32) -> Tick {
        self.due[entry as usize].get()
    }
}

impl Timer for WheelTimer {
    const NAME: &'static str = "wheel";

    fn new(entries: usize) -> Self {
        WheelTimer {
            wheel: Wheel::new(Tick::default()),
            links: ArrayLinks {
                links: (0..=entries)
                    .map(|_| (Cell::new(NONE), Cell::new(NONE)))
                    .collect(),
                due: vec![Cell::new(Tick::default()); entries + 1],
            },
        }
    }

    fn arm(&mut self, entry: u32, at: Tick) {
        self.links.due[entry as usize].set(at);
        self.wheel.insert(&self.links, entry, at);
    }

    fn run(&mut self, now: Tick, mut due: impl FnMut(u32)) {
        let mut budget = u32::MAX;
        while let Due::Entry(entry) = self.wheel.pop_due(&self.links, now, &mut budget) {
            due(entry);
        }
    }
}

impl Timer for BinaryHeap<Reverse<(Tick, u32)>> {
    const NAME: &'static str = "binary heap";

    fn new(_: usize) -> Self {
        BinaryHeap::new()
    }

    fn arm(&mut self, entry: u32, at: Tick) {
        self.push(Reverse((at, entry)));
    }

    fn run(&mut self, now: Tick, mut due: impl FnMut(u32)) {
        while self.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            due(self.pop().expect("just seen").0.1);
        }
    }
}

impl Timer for BTreeSet<(Tick, u32)> {
    const NAME: &'static str = "b-tree";

    fn new(_: usize) -> Self {
        BTreeSet::new()
    }

    fn arm(&mut self, entry: u32, at: Tick) {
        self.insert((at, entry));
    }

    fn run(&mut self, now: Tick, mut due: impl FnMut(u32)) {
        while self.first().is_some_and(|(at, _)| *at <= now) {
            due(self.pop_first().expect("just seen").1);
        }
    }
}

fn armed<T: Timer>(deadlines: &Deadlines) -> T {
    let mut timer = T::new(deadlines.0.len());
    for entry in deadlines.entries() {
        timer.arm(entry, deadlines.0[entry as usize]);
    }
    timer
}

fn arm_and_run<T: Timer>(group: &mut BenchmarkGroup<'_, WallTime>, deadlines: &Deadlines) {
    group.bench_function(format!("arm/{}", T::NAME), |b| {
        b.iter_batched_ref(
            || T::new(deadlines.0.len()),
            |timer| {
                for entry in deadlines.entries() {
                    timer.arm(entry, deadlines.0[entry as usize]);
                }
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function(format!("run/{}", T::NAME), |b| {
        b.iter_batched_ref(
            || armed::<T>(deadlines),
            |timer| {
                let mut count = 0;
                for ms in 0..=SPAN_MS {
                    timer.run(Tick::from_ms(ms), |entry| {
                        black_box(entry);
                        count += 1;
                    });
                }
                assert_eq!(count, deadlines.entries().len());
            },
            BatchSize::PerIteration,
        );
    });
}

fn rearm(group: &mut BenchmarkGroup<'_, WallTime>, deadlines: &Deadlines) {
    let mut random = Random::new(13);
    let mut timer = armed::<WheelTimer>(deadlines);
    group.bench_function("rearm/wheel", |b| {
        b.iter(|| {
            for entry in deadlines.entries() {
                timer.wheel.remove(&timer.links, entry);
                timer.arm(entry, Tick::from_ms(1 + random.below(SPAN_MS)));
            }
        });
    });
    let mut due = deadlines.0.clone();
    let mut timer = armed::<BTreeSet<(Tick, u32)>>(deadlines);
    group.bench_function("rearm/b-tree", |b| {
        b.iter(|| {
            for entry in deadlines.entries() {
                let at = Tick::from_ms(1 + random.below(SPAN_MS));
                let was = std::mem::replace(&mut due[entry as usize], at);
                assert!(timer.remove(&(was, entry)));
                timer.arm(entry, at);
            }
        });
    });
}

fn wheel(c: &mut Criterion) {
    for (name, entries) in [("100k", 100_000), ("1M", 1_000_000)] {
        let deadlines = Deadlines::new(entries);
        let mut group = c.benchmark_group(format!("wheel/{name}"));
        group
            .throughput(Throughput::Elements(entries as u64))
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_secs(2))
            .sample_size(10);
        arm_and_run::<WheelTimer>(&mut group, &deadlines);
        arm_and_run::<BinaryHeap<Reverse<(Tick, u32)>>>(&mut group, &deadlines);
        arm_and_run::<BTreeSet<(Tick, u32)>>(&mut group, &deadlines);
        rearm(&mut group, &deadlines);
        group.finish();
    }
}

criterion_group!(benches, wheel);
criterion_main!(benches);
