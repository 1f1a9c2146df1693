use super::*;

#[test]
fn an_acquire_counts_once_however_it_ends() {
    let counters = Counters::default();
    for end in [
        AcquireEnd::Granted,
        AcquireEnd::Contended,
        AcquireEnd::Failed,
    ] {
        counters.begin_acquire().end(end);
    }
    drop(counters.begin_acquire());
    let under_way = counters.begin_acquire();
    let metrics = counters.snapshot(0, 0);
    assert_eq!(metrics.acquires, 5);
    assert_eq!(metrics.acquires_under_way(), 1);
    let ends = [
        metrics.acquires_granted,
        metrics.acquires_contended,
        metrics.acquires_failed,
        metrics.acquires_dropped,
    ];
    assert_eq!(ends, [1; 4]);
    assert_eq!(metrics.acquire_time.count(), 1, "granted ones are timed");
    drop(under_way);
    assert_eq!(counters.snapshot(0, 0).acquires_under_way(), 0);
}

#[test]
fn what_the_owner_ends_is_no_loss() {
    let counters = Counters::default();
    for loss in [Loss::Released, Loss::Closed] {
        counters.count_loss(loss);
    }
    assert_eq!(counters.snapshot(0, 0).losses, 0);
    for loss in [Loss::Expired, Loss::DeadlinePassed, Loss::Forced] {
        counters.count_loss(loss);
    }
    assert_eq!(counters.snapshot(0, 0).losses, 3);
}

#[test]
fn a_duration_falls_into_the_first_bucket_that_it_does_not_exceed() {
    let mut counts = [0; BUCKETS];
    for us in [0, 1, 2, 3, 4, u64::MAX] {
        counts[bucket(us)] += 1;
    }
    let timings = Timings {
        sum: Duration::ZERO,
        counts,
    };
    let filled: Vec<_> = timings.buckets().filter(|(_, count)| *count > 0).collect();
    let us = |us| Some(Duration::from_micros(us));
    let expected = [(us(0), 1), (us(1), 1), (us(3), 2), (us(7), 1), (None, 1)];
    assert_eq!(filled, expected);
    assert_eq!(timings.count(), 6);
}
