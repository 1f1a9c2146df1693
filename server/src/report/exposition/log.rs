//! The log on disk, in numbers.

use super::page::{HistogramData, Page, Unit};
use crate::core::shared::Shared;
use std::fmt;
use types::HistogramCounts;

/// What the log counts, at one moment.
pub(super) struct LogNumbers {
    sync: HistogramData,
    batch_records: u64,
    batches: u64,
    bytes_written: u64,
    segments: u64,
    spares: u64,
    no_room: u64,
    room_bytes: Option<u64>,
    snapshots: u64,
    snapshot_age_ms: u64,
    snapshot_ms: u64,
    snapshot_bytes: u64,
    recovery_ms: u64,
    recovery_records: u64,
    headroom: u64,
    grace_left_ms: u64,
    crash_grace_ms: u64,
    long_leases: u64,
    claimed: u64,
}

impl LogNumbers {
    /// `None` if there is no log.
    pub(super) fn take(shared: &Shared) -> Option<Self> {
        let storage = shared.storage.as_ref()?;
        let files = storage.journal.disk();
        let log = files.metrics();
        let engine = &shared.engine;
        let now = shared.clock.now();
        let snapshot_unix_ms = log.snapshot_unix_ms.get();
        let age_ms = storage.unix_ms(now).saturating_sub(snapshot_unix_ms);
        Some(LogNumbers {
            sync: microseconds(&log.sync_us.counts()),
            batch_records: log.batch_records.counts().sum,
            batches: log.batch_records.counts().count(),
            bytes_written: log.bytes_written.get(),
            segments: log.segments.get(),
            spares: files.spare_count() as u64,
            no_room: log.no_room.get(),
            room_bytes: files.room_bytes(),
            snapshots: log.snapshots.get(),
            snapshot_age_ms: if snapshot_unix_ms == 0 { 0 } else { age_ms },
            snapshot_ms: log.snapshot_ms.get(),
            snapshot_bytes: log.snapshot_bytes.get(),
            recovery_ms: log.recovery_ms.get(),
            recovery_records: log.recovery_records.get(),
            headroom: (0..engine.shard_count())
                .map(|shard| engine.headroom(shard))
                .min()
                .unwrap_or(0),
            grace_left_ms: shared.recovery.remaining_ms(now).unwrap_or(0),
            crash_grace_ms: shared.crash_grace_ms(now),
            long_leases: storage.long.count() as u64,
            claimed: shared.recovery.claimed(),
        })
    }

    pub(super) fn show(&self, page: &mut Page) -> fmt::Result {
        page.histogram(
            "log_sync",
            "How long the disk took to sync the log",
            &[(None, self.sync.clone())],
        )?;
        page.counter(
            "log_batches",
            "Writes to the log, each with one sync",
            self.batches,
        )?;
        page.counter(
            "log_records",
            "Records written to the log; records per batch say how many share a sync",
            self.batch_records,
        )?;
        page.counter_in(
            Unit::Bytes,
            "log_written",
            "Bytes written to the log",
            self.bytes_written,
        )?;
        page.gauge("log_segments", "Segments of the log in use", self.segments)?;
        page.gauge(
            "log_spare_segments",
            "Segments ready to be written next; 0 for longer than a moment: the disk has no room for one",
            self.spares,
        )?;
        page.counter(
            "log_no_room",
            "Times that a segment or a snapshot could not be made because the disk is full",
            self.no_room,
        )?;
        if let Some(room_bytes) = self.room_bytes {
            page.gauge_in(
                Unit::Bytes,
                "log_room",
                "Room on the file system of the log",
                room_bytes as f64,
            )?;
        }
        page.counter(
            "log_snapshots",
            "Snapshots written since the start",
            self.snapshots,
        )?;
        page.gauge_in(
            Unit::Seconds,
            "log_snapshot_age",
            "How old the newest snapshot is, 0 if there is none",
            self.snapshot_age_ms as f64 / 1e3,
        )?;
        page.gauge_in(
            Unit::Seconds,
            "log_snapshot_duration",
            "How long the newest snapshot took to write, 0 if this server wrote none",
            self.snapshot_ms as f64 / 1e3,
        )?;
        page.gauge_in(
            Unit::Bytes,
            "log_snapshot",
            "How long the newest snapshot is",
            self.snapshot_bytes as f64,
        )?;
        page.gauge_in(
            Unit::Seconds,
            "log_recovery_duration",
            "How long reading the log took at the start",
            self.recovery_ms as f64 / 1e3,
        )?;
        page.gauge(
            "log_recovery_records",
            "Records that were read at the start",
            self.recovery_records,
        )?;
        page.gauge(
            "fence_headroom",
            "Fences left below the ceiling on disk, for the key that has used most; at 0 acquires wait for the disk",
            self.headroom,
        )?;
        page.gauge_in(
            Unit::Seconds,
            "grace_remaining",
            "How long holders from before the last stop may still claim their locks, 0 if that is over",
            self.grace_left_ms as f64 / 1e3,
        )?;
        page.gauge_in(
            Unit::Seconds,
            "crash_grace",
            "How long nothing new could be granted after a crash at this moment",
            self.crash_grace_ms as f64 / 1e3,
        )?;
        page.gauge(
            "long_leases",
            "Leases that are written down one by one because they are longer than grace_max",
            self.long_leases,
        )?;
        page.counter(
            "locks_claimed",
            "Locks that were claimed by their holders after the last stop",
            self.claimed,
        )
    }
}

pub(super) fn microseconds<const N: usize>(counts: &HistogramCounts<N>) -> HistogramData {
    let bound = |bucket| match HistogramCounts::<N>::upper_bound(bucket) {
        Some(us) => us as f64 / 1e6,
        None => f64::INFINITY,
    };
    let buckets = counts
        .buckets
        .iter()
        .enumerate()
        .map(|(bucket, count)| (bound(bucket), *count));
    HistogramData::from_bounds(buckets.collect(), counts.sum as f64 / 1e6)
}
