//! A histogram by powers of two, for durations and sizes that every part of the server counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts values in `N` buckets. Bucket 0 counts zeros, bucket `i` values from 2^(i-1) to 2^i - 1,
/// and the last one all larger values.
///
/// All orderings are relaxed: a count publishes nothing but itself.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    buckets: [AtomicU64; N],
    sum: AtomicU64,
}

/// What a histogram, or several together, had counted at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistogramCounts<const N: usize> {
    /// How many values fell into each bucket.
    pub buckets: [u64; N],
    /// The sum of all values.
    pub sum: u64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Histogram {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum: AtomicU64::new(0),
        }
    }
}

impl<const N: usize> Histogram<N> {
    /// Counts a value. Any thread may.
    #[inline]
    pub fn record(&self, value: u64) {
        self.buckets[bucket::<N>(value)].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// Counts a value of the histogram's only writer: loads and stores, no read-modify-write.
    #[inline]
    pub fn record_alone(&self, value: u64) {
        let add = |number: &AtomicU64, more| number.store(number.load(Relaxed) + more, Relaxed);
        add(&self.buckets[bucket::<N>(value)], 1);
        add(&self.sum, value);
    }

    /// What was counted so far.
    pub fn counts(&self) -> HistogramCounts<N> {
        HistogramCounts {
            buckets: self.buckets.each_ref().map(|bucket| bucket.load(Relaxed)),
            sum: self.sum.load(Relaxed),
        }
    }
}

impl<const N: usize> Default for HistogramCounts<N> {
    fn default() -> Self {
        HistogramCounts {
            buckets: [0; N],
            sum: 0,
        }
    }
}

impl<const N: usize> HistogramCounts<N> {
    /// Adds what another histogram has counted.
    pub fn add(&mut self, other: &Self) {
        for (total, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *total += count;
        }
        self.sum += other.sum;
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The largest value of a bucket; `None` for the last, which has no bound.
    pub fn upper_bound(bucket: usize) -> Option<u64> {
        (bucket + 1 < N).then(|| (1 << bucket) - 1)
    }
}

#[inline]
fn bucket<const N: usize>(value: u64) -> usize {
    ((u64::BITS - value.leading_zeros()) as usize).min(N - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_bucket_whose_bound_they_do_not_exceed() {
        let (shared, alone) = (Histogram::<24>::default(), Histogram::<24>::default());
        for value in [0, 1, 2, 3, 4, 1 << 40] {
            shared.record(value);
            alone.record_alone(value);
        }
        let counts = shared.counts();
        assert_eq!(counts, alone.counts());
        assert_eq!(counts.buckets[..5], [1, 1, 2, 1, 0]);
        assert_eq!(counts.buckets[23], 1);
        assert_eq!(counts.count(), 6);
        assert_eq!(counts.sum, 10 + (1 << 40));
        let bounds = [0, 1, 2, 23].map(HistogramCounts::<24>::upper_bound);
        assert_eq!(bounds, [Some(0), Some(1), Some(3), None]);
    }

    #[test]
    fn counts_of_several_histograms_add_up() {
        let histogram = Histogram::<4>::default();
        histogram.record(5);
        let mut total = HistogramCounts::default();
        total.add(&histogram.counts());
        total.add(&histogram.counts());
        assert_eq!((total.count(), total.sum), (2, 10));
    }
}
