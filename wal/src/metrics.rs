//! What the log counts: written by the writer and by snapshots, read by the metrics page. All
//! orderings are relaxed: a number publishes nothing but itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use types::Histogram;

/// How many buckets the log's histograms have.
pub const BUCKETS: usize = 24;

/// One number that every thread may read.
#[derive(Default, Debug)]
pub struct Number(AtomicU64);

impl Number {
    /// What it is now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }
}

/// The numbers of one log.
#[derive(Default, Debug)]
pub struct Metrics {
    /// How long syncs of the log took, in microseconds.
    pub sync_us: Histogram<BUCKETS>,
    /// How many records were written at once.
    pub batch_records: Histogram<BUCKETS>,
    /// Bytes of records written to the log.
    pub bytes_written: Number,
    /// Segments that are in use, the one being written included.
    pub segments: Number,
    /// Snapshots completed since the start.
    pub snapshots: Number,
    /// When the newest snapshot was begun; 0 if there is none. Its age is the difference to now.
    pub snapshot_unix_ms: Number,
    /// How long the newest snapshot took to write; 0 if this server wrote none.
    pub snapshot_ms: Number,
    /// How long the newest snapshot is.
    pub snapshot_bytes: Number,
    /// How often a segment or a snapshot could not be made for want of room on the disk.
    pub no_room: Number,
    /// How long reading the log took at the start.
    pub recovery_ms: Number,
    /// How many records were read at the start.
    pub recovery_records: Number,
}

impl Metrics {
    pub(crate) fn wrote(&self, records: u64, bytes: u64) {
        self.batch_records.record(records);
        self.bytes_written.add(bytes);
    }

    pub(crate) fn synced(&self, took: Duration) {
        self.sync_us.record(took.as_micros() as u64);
    }

    pub(crate) fn segments_in_use(&self, count: usize) {
        self.segments.set(count as u64);
    }

    pub(crate) fn snapshot_done(&self, unix_ms: u64, took: Duration, bytes: u64) {
        self.snapshots.add(1);
        self.snapshot_unix_ms.set(unix_ms);
        self.snapshot_ms.set(took.as_millis() as u64);
        self.snapshot_bytes.set(bytes);
    }

    pub(crate) fn found_no_room(&self) {
        self.no_room.add(1);
    }

    pub(crate) fn found_snapshot(&self, bytes: u64) {
        self.snapshot_bytes.set(bytes);
    }

    /// The log was read: its newest snapshot, and what reading took.
    pub(crate) fn recovered(&self, snapshot: (u64, u64), took: Duration, records: u64) {
        let (unix_ms, bytes) = snapshot;
        self.snapshot_unix_ms.set(unix_ms);
        self.snapshot_bytes.set(bytes);
        self.recovery_ms.set(took.as_millis() as u64);
        self.recovery_records.set(records);
    }
}
