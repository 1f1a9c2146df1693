//! How late leases were expired.

use crate::sync::{AtomicU64, Ordering};

/// How late leases were expired by the wheel: one counter per power of two of milliseconds.
pub(crate) struct LagRecord {
    buckets: [AtomicU64; LAG_BUCKETS],
    sum_ms: AtomicU64,
}

/// On time, then under 2, 4, 8 ... ms; the last takes everything from four minutes on.
pub const LAG_BUCKETS: usize = if cfg!(loom) { 2 } else { 20 };

impl LagRecord {
    pub(crate) fn new() -> Self {
        LagRecord {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_ms: AtomicU64::new(0),
        }
    }

    pub(super) fn record(&self, late_ms: u64) {
        let bucket = if late_ms == 0 {
            0
        } else {
            late_ms.ilog2() as usize + 1
        };
        self.buckets[bucket.min(LAG_BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.sum_ms.fetch_add(late_ms, Ordering::Relaxed);
    }

    pub(crate) fn sum_ms(&self) -> u64 {
        self.sum_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn add_to(&self, totals: &mut [u64; LAG_BUCKETS]) {
        for (total, bucket) in totals.iter_mut().zip(&self.buckets) {
            *total += bucket.load(Ordering::Relaxed);
        }
    }
}
