//! Question: what does a lock cost when its key is not in the cache, in a table of a million and of
//! ten million keys?
//!
//! Unit: nanoseconds per acquire and release of a random key, one thread. All keys are in the table
//! and free; the acquire pays for the cold lines, the release finds them warm.
//!
//! Leaves out: the cost of new keys (`bench engine growth`), of ten million *held* locks, where a
//! release comes first and pays (`bench engine random`), the network, a second thread, and what
//! huge pages are worth (`bench engine random --small-pages`).

use bench::baseline::Map;
use bench::keys::{Random, key_bytes};
use bench::subject::{NOW, SHARDS, Subject, engine_for};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use engine::Key;
use std::hint::black_box;
use std::time::Duration;

fn random_keys(c: &mut Criterion) {
    for (name, keys) in [("1M", 1_000_000), ("10M", 10_000_000)] {
        let mut group = c.benchmark_group(format!("random_keys/{name}"));
        group
            .throughput(Throughput::Elements(1))
            .warm_up_time(Duration::from_secs(1))
            .measurement_time(Duration::from_secs(4))
            .sample_size(20);
        measure(&mut group, &engine_for(keys), keys);
        measure(&mut group, &Map::<u32>::new(SHARDS, 10_000), keys);
        group.finish();
    }
}

fn measure<S: Subject>(group: &mut BenchmarkGroup<'_, WallTime>, subject: &S, keys: u64) {
    let mut seat = subject.seat(0);
    let mut cycle = |number: u64| {
        let bytes = key_bytes(number);
        let key = Key::new(black_box(&bytes)).unwrap();
        let fence = subject.acquire(&mut seat, key, 30_000, NOW).unwrap();
        assert!(subject.release(&mut seat, key, fence, NOW));
    };
    (0..keys).for_each(&mut cycle);
    subject.settle(NOW);
    let mut random = Random::new(7);
    group.bench_function(S::NAME, |b| b.iter(|| cycle(random.below(keys))));
}

criterion_group!(benches, random_keys);
criterion_main!(benches);
