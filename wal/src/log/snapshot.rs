//! Snapshots: all that matters, written down once more, so that the log before it can go.
//!
//! A snapshot is taken while the server runs and the log goes on. It begins at the position up to
//! which the log was synced when it was begun: every record before that has had its effect, so a
//! caller that looks at its tables afterwards sees it. What it also sees, of records that come
//! later, is replayed once more; `leases.rs` says why that does no harm.
//!
//! One thing would: the end of a grant may stand in the log before the grant (`leases.rs` again),
//! and the snapshot may begin between the two. The end is forgotten with the log before the
//! snapshot, the grant is replayed, and what was released is held again. So a second position is
//! taken before the first lease is looked at:
//!
//! 1. The snapshot begins at `begin`: the log is synced up to there.
//! 2. Each thread that appends ends the turn it is in. So every grant whose end stands before
//!    `begin` has been appended.
//! 3. All that was appended so far is synced. `shows` is where the log ends now: see
//!    [`Record::SnapshotShows`].
//! 4. All leases are looked at.
//!
//! Every record before `shows` has had its effect before step 4, so the snapshot knows better than
//! any of them, and replay leaves them out. Except for ends: the grant of an end that stands
//! between `begin` and `shows` may stand behind `shows`. The grant of an end that stands before
//! `begin` cannot, because of step 2.
//!
//! The file is written under another name, synced, and gets its name only then. Before that, all
//! that had been appended when the last record was added is synced, and the snapshot's last record
//! says how far the log reaches with it: a log that ends before that has lost something. An effect
//! whose record was not even appended may show too. It was not acknowledged, so it may as well have
//! happened as not.

use crate::error::{Blame, IoFailure};
use crate::files::segment::{Header, Name, Sort, UNFINISHED};
use crate::record::frame::{self, Position};
use crate::record::{Record, Scope};
use crate::replay::Tally;
use disk::{Disk, DiskFile};
use std::sync::Arc;

/// Bytes that are written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes after which the file is synced. The log's own syncs wait behind what the disk has been
/// given of this file: with 16 MiB for 16 ms where they take 0.1 ms, with this for 2 to 5 ms. The
/// file is done no later for it.
const SYNC_BYTES: u64 = 1 << 20;

/// A snapshot that is being written.
pub(crate) struct SnapshotFile {
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    begin: Position,
    /// What is in the file already.
    written: u64,
    synced: u64,
    /// What is not, the rest of the first page included.
    buffer: Vec<u8>,
    tally: Tally,
}

impl SnapshotFile {
    /// Begins a snapshot of everything that the log says up to `begin`.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        begin: Position,
        unix_ms: u64,
        scope: Scope,
    ) -> Result<Self, IoFailure> {
        let file = disk.create(UNFINISHED, 0);
        let file = file.blame("create", &*disk, UNFINISHED)?;
        let header = Header {
            sort: Sort::Snapshot,
            sequence: 0,
            begin,
            bytes: 0,
        };
        let mut snapshot = SnapshotFile {
            disk,
            file,
            begin,
            written: 0,
            synced: 0,
            buffer: header.encode(),
            tally: Tally::default(),
        };
        snapshot.append(&Record::SnapshotBegin { unix_ms, scope })?;
        Ok(snapshot)
    }

    /// Adds one record: a ceiling, the horizon, the clock, a session or a lease.
    pub(crate) fn add(&mut self, record: &Record<'_>) -> Result<(), IoFailure> {
        assert!(
            matches!(
                record,
                Record::Ceiling { .. }
                    | Record::Horizon { .. }
                    | Record::Clock { .. }
                    | Record::SessionOpened { .. }
                    | Record::SnapshotShows { .. }
                    | Record::Granted(_)
                    | Record::GrantedLong(_)
            ) || record.is_of_node(),
            "{record:?} is a change and no state"
        );
        self.append(record)
    }

    fn append(&mut self, record: &Record<'_>) -> Result<(), IoFailure> {
        let start = self.buffer.len();
        record.append_to(&mut self.buffer);
        let position = Position::new(self.written + start as u64);
        let checksum = frame::stamp(&mut self.buffer[start..], position, 0);
        self.tally.add(checksum);
        if self.buffer.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoFailure> {
        let written = self.file.write_at(&self.buffer, self.written);
        written.blame("write", &*self.disk, UNFINISHED)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        if self.written - self.synced >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), IoFailure> {
        let synced = self.file.sync_data();
        synced.blame("sync", &*self.disk, UNFINISHED)?;
        self.synced = self.written;
        Ok(())
    }

    /// Completes the snapshot; the log is on the disk up to `log_end`, and reaches as far as what
    /// was added may show. Returns its name and length.
    pub(crate) fn finish(mut self, log_end: Position) -> Result<(Name, u64), IoFailure> {
        assert!(
            self.begin <= log_end,
            "a log that ends at {log_end} has not reached {}",
            self.begin
        );
        let Tally { records, chain } = self.tally;
        let end = Record::SnapshotEnd {
            records,
            log_end: log_end.get(),
            chain,
        };
        self.append(&end)?;
        self.flush()?;
        self.sync()?;
        let disk = &*self.disk;
        let name = Name::Snapshot(self.begin.get());
        let renamed = disk.rename(UNFINISHED, &name.to_string());
        renamed.blame("rename", disk, UNFINISHED)?;
        disk.sync_dir().blame("sync", disk, "")?;
        Ok((name, self.written))
    }

    /// Gives the snapshot up. If the file cannot be removed now, the next start does it.
    pub(crate) fn abandon(self) {
        let _ = self.disk.remove(UNFINISHED);
    }
}

/// Removes all snapshots but this one, which is on the disk.
pub(crate) fn remove_others(disk: &dyn Disk, newest: Name) -> Result<(), IoFailure> {
    for name in disk.list().blame("list", disk, "")? {
        let parsed = Name::parse(&name);
        if matches!(parsed, Some(Name::Snapshot(_))) && parsed != Some(newest) {
            disk.remove(&name).blame("remove", disk, &name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
