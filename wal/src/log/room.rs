//! Room on the disk: how much a log needs before a server starts with it, and what a full file
//! system is called.
//!
//! A segment is zeros from end to end before it is used, so while one is written, a full disk
//! changes nothing. What has to be made anew is the next segment, the spare, and a snapshot, which
//! stands beside the old one until it is complete. A server starts only if there is room for those.
//! Later it goes on for as long as the segment in use has room, whatever else cannot be made; `Wal`
//! counts that and says so.

use crate::error::{Blame, IoFailure, WalError};
use crate::files::segment::SEGMENT_BYTES;
use crate::log::{self, Options};
use crate::replay::Layout;
use disk::Disk;
use parking_lot::Mutex;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a server that found no room waits before it tries again to make the same thing.
pub(crate) const RETRY: Duration = Duration::from_secs(5);

/// How often it says so in the log.
const TELL: Duration = Duration::from_secs(60);

/// Room for a snapshot of which nothing is known yet, and on top of the last one.
const SNAPSHOT_ROOM_BYTES: u64 = 1 << 20;

/// Something that could not be made for want of room. The log goes on without it for as long as it
/// can.
#[derive(Default)]
pub(crate) struct Shortage(Mutex<Option<Since>>);

struct Since {
    retry_at: Instant,
    told_at: Instant,
}

impl Shortage {
    /// Whether it may be tried to make it.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let since = self.0.lock();
        since.as_ref().is_none_or(|since| now >= since.retry_at)
    }

    /// Whether it could not be made the last time.
    pub(crate) fn is_on(&self) -> bool {
        self.0.lock().is_some()
    }

    /// It could not be made. Says so, once per interval.
    pub(crate) fn note(&self, failure: &IoFailure, what_now: &str, now: Instant) {
        let mut since = self.0.lock();
        let told_at = since.as_ref().map(|since| since.told_at);
        let is_due = told_at.is_none_or(|told_at| now - told_at >= TELL);
        if is_due {
            tracing::error!("{failure}. {what_now}");
        }
        *since = Some(Since {
            retry_at: now + RETRY,
            told_at: told_at.filter(|_| !is_due).unwrap_or(now),
        });
    }

    /// It could be made.
    pub(crate) fn end(&self, what: &str) {
        if self.0.lock().take().is_some() {
            tracing::info!("there is room on the disk again: {what}");
        }
    }
}

/// Makes sure that there is room for what a server will write beside what is there.
pub(crate) fn check(disk: &dyn Disk, layout: &Layout, options: &Options) -> Result<(), WalError> {
    let segment = u64::from(layout.chain.is_empty()) * options.segment_bytes;
    let has_spare = !layout.spares.is_empty() || options.spares_max == 0;
    let spare = u64::from(!has_spare) * options.segment_bytes;
    let snapshot = layout.snapshot_bytes + SNAPSHOT_ROOM_BYTES;
    require(
        disk.dir(),
        disk.room().blame("look at", disk, "")?,
        segment + spare + snapshot,
    )
}

/// The same for a log in a directory that is to be made below one that is there.
pub fn check_room_for_new(dir: &Path, above: &Path) -> Result<(), WalError> {
    let disk = log::open_dir(above)?;
    let room = disk.room().blame("look at", &disk, "")?;
    require(dir, room, 2 * SEGMENT_BYTES + SNAPSHOT_ROOM_BYTES)
}

fn require(dir: &Path, room: Option<u64>, needed_bytes: u64) -> Result<(), WalError> {
    match room {
        Some(free_bytes) if free_bytes < needed_bytes => Err(WalError::NoRoom {
            dir: dir.to_owned(),
            mount_point: disk::mount_point(dir),
            free_bytes,
            needed_bytes,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
