//! Histograms.

use super::*;

#[test]
fn values_fall_into_the_bucket_whose_bound_they_do_not_exceed() {
    let histogram = Histogram::default();
    for value in [0, 1, 2, 3, 4, 1 << 40] {
        histogram.record(value);
    }
    let buckets = histogram.buckets();
    assert_eq!(buckets[..5], [1, 1, 2, 1, 0]);
    assert_eq!(buckets[BUCKETS - 1], 1);
    assert_eq!(histogram.count(), 6);
    assert_eq!(histogram.total(), 10 + (1 << 40));
    let bounds = [0, 1, 2, BUCKETS - 1].map(Histogram::upper_bound);
    assert_eq!(bounds, [Some(0), Some(1), Some(3), None]);
}
