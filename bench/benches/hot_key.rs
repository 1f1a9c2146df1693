//! Question: how often can one key be acquired and released, by one thread and by 2, 4 and 8 that
//! all want it?
//!
//! Unit: nanoseconds per cycle of acquire and release, all threads together: 50 ns are 20 M
//! cycles/s. Only cycles that were granted count; a thread that is refused tries again at once,
//! without a pause.
//!
//! Leaves out: the network, the clock (time stands still), waiting in line (`handoff` asks that),
//! and what a cold cache costs (`random_keys`). Beyond one thread per core the scheduler decides
//! more than the table does: a thread that is preempted while it holds the lock leaves the others
//! refused until its next turn.

use bench::baseline::Map;
use bench::keys::key_bytes;
use bench::subject::{NOW, SHARDS, Subject, Until, contend, engine_for};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::Key;
use std::hint::black_box;
use std::time::Duration;

fn one_thread(c: &mut Criterion) {
    let mut group = c.benchmark_group("hot_key/1_thread");
    group
        .throughput(Throughput::Elements(1))
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(30);
    let bytes = key_bytes(0);
    let key = Key::new(&bytes).unwrap();

    fn cycle<S: Subject>(subject: &S, seat: &mut S::Seat, key: Key<'_>) {
        let fence = subject.acquire(seat, black_box(key), 30_000, NOW).unwrap();
        assert!(subject.release(seat, black_box(key), fence, NOW));
    }

    let engine = engine_for(1_000);
    let mut seat = engine.seat(0);
    cycle(&engine, &mut seat, key);
    engine.settle(NOW);
    group.bench_function("engine", |b| b.iter(|| cycle(&engine, &mut seat, key)));
    group.bench_function("engine, in a batch", |b| {
        let _batch = engine.batch();
        b.iter(|| cycle(&engine, &mut seat, key));
    });
    let map = Map::<u32>::new(SHARDS, 10_000);
    let mut seat = map.seat(0);
    group.bench_function("mutex map", |b| b.iter(|| cycle(&map, &mut seat, key)));
    group.finish();
}

fn many_threads(c: &mut Criterion) {
    let mut group = c.benchmark_group("hot_key/threads");
    group
        .throughput(Throughput::Elements(1))
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .sample_size(15);
    fn measure<S: Subject>(subject: &S, threads: u64, cycles: u64) -> Duration {
        let contest = contend(subject, threads, Until::Cycles(cycles));
        contest
            .elapsed
            .mul_f64(cycles as f64 / contest.cycles as f64)
    }
    for threads in [2, 4, 8] {
        let engine = engine_for(1_000);
        group.bench_function(BenchmarkId::new("engine", threads), |b| {
            b.iter_custom(|cycles| measure(&engine, threads, cycles));
        });
        let map = Map::<u32>::new(SHARDS, 10_000);
        group.bench_function(BenchmarkId::new("mutex map", threads), |b| {
            b.iter_custom(|cycles| measure(&map, threads, cycles));
        });
    }
    group.finish();
}

criterion_group!(benches, one_thread, many_threads);
criterion_main!(benches);
