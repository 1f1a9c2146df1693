//! The log itself: opened, appended to, synced. Everything here waits for the disk and none of it
//! knows of threads; the writer thread owns one of these, and crash tests drive one step by step.
//!
//! # Opening
//!
//! [`Found::read`] reads the log and changes nothing: a server that cannot start for another reason
//! leaves the directory as it was. [`Found::start`] is the first that writes. It tidies the
//! directory and **writes the last segment once more**: its records as they are, zeros behind them,
//! then synced. That makes true what was read, which may have come from a cache and not from the
//! disk if the last server met an error; and it removes the remains of a write that was cut short,
//! which might otherwise be found whole one day behind new records. All of that may be done any
//! number of times. Then [`Record::Started`] is written, so that from here on the log no longer
//! ends in a clean stop. What the log says of leases does not change by that: replay keeps what it
//! knew until the server's first horizon says that it serves.

pub(crate) mod queue;
pub(crate) mod room;
pub(crate) mod snapshot;
pub(crate) mod writer;

use crate::error::{Blame, IoFailure, ReplayError, WalError};
use crate::files::key::SessionKey;
use crate::files::segment::{Closed, Name, PAGE_BYTES, SEGMENT_BYTES, Segment, Shelf};
use crate::metrics::Metrics;
use crate::record::frame::{self, END, Position};
use crate::record::{Record, Scope};
use crate::replay::node::NodeLog;
use crate::replay::recovered::Recovered;
use crate::replay::state::State;
use crate::replay::{self, Layout, Link};
use disk::{DirDisk, Disk};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// How much log there is, at least, before a snapshot is wanted.
pub const SNAPSHOT_LOG_BYTES: u64 = 256 << 20;

/// How many segments are kept to be used again: what two snapshots' worth of log needs.
pub const SPARES_MAX: usize = 32;

/// How a log is laid out, and for what it is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What will be written down.
    pub scope: Scope,
    /// The time, by the log's clock, when it is opened.
    pub now_unix_ms: u64,
    /// Bytes of a new segment. Those that exist keep their size.
    pub segment_bytes: u64,
    /// How many segments are kept to be used again.
    pub spares_max: usize,
    /// How many bytes of log there are, at least, before a snapshot is wanted.
    pub snapshot_log_bytes: u64,
}

impl Options {
    /// The usual sizes.
    pub fn new(scope: Scope, now_unix_ms: u64) -> Self {
        Options {
            scope,
            now_unix_ms,
            segment_bytes: SEGMENT_BYTES,
            spares_max: SPARES_MAX,
            snapshot_log_bytes: SNAPSHOT_LOG_BYTES,
        }
    }
}

/// An open log.
pub(crate) struct Log {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) metrics: Arc<Metrics>,
    segment: Segment,
    /// Where the next record goes. Everything before is on the disk.
    end: Position,
    /// Whether a [`Record::Synced`] stands there.
    is_marked: bool,
    _lock: Box<dyn Send + Sync>,
}

/// Whether what was read from the log of a node adds up.
pub(crate) fn check_node(
    disk: &dyn Disk,
    walked: Result<Layout, ReplayError>,
    node: &mut NodeLog,
) -> Result<Layout, ReplayError> {
    let dir = disk.dir();
    let checked = walked.and_then(|layout| {
        let checked = node.check();
        checked.map_err(|rule| ReplayError::broken(dir, dir.to_owned(), 0, rule))?;
        Ok(layout)
    });
    checked.map_err(|error| error.of_node(dir, node.owner()))
}

/// A log that was read. Nothing in its directory has been changed.
pub(crate) struct Found {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) layout: Layout,
    pub(crate) options: Options,
    /// `None`: it belongs to a node, and is there.
    session_key: Option<SessionKey>,
    metrics: Arc<Metrics>,
    lock: Box<dyn Send + Sync>,
}

impl Found {
    /// Locks the directory and reads what is there.
    pub(crate) fn read(
        disk: Arc<dyn Disk>,
        options: &Options,
    ) -> Result<(Found, Recovered), WalError> {
        let lock = lock(&*disk)?;
        let start = Instant::now();
        let mut state = State::default();
        let layout = replay::walk(&*disk, &mut state)?;
        let recovered = Recovered::new(state, &layout, start, &*disk)?;
        let metrics = Arc::new(Metrics::default());
        let snapshot = (recovered.snapshot_unix_ms, layout.snapshot_bytes);
        metrics.recovered(snapshot, recovered.duration, recovered.records);
        let found = Found {
            disk,
            layout,
            options: *options,
            session_key: Some(recovered.session_key.clone()),
            metrics,
            lock,
        };
        Ok((found, recovered))
    }

    /// Locks the directory of a cluster's node and reads what is there.
    pub(crate) fn read_node(
        disk: Arc<dyn Disk>,
        options: &Options,
    ) -> Result<(Found, NodeLog), WalError> {
        let lock = lock(&*disk)?;
        let mut node = NodeLog::default();
        let walked = replay::walk(&*disk, &mut node);
        let layout = check_node(&*disk, walked, &mut node)?;
        let session_key = SessionKey::for_node(&*disk)?;
        let metrics = Arc::new(Metrics::default());
        metrics.found_snapshot(layout.snapshot_bytes);
        let found = Found {
            disk,
            layout,
            options: *options,
            session_key,
            metrics,
            lock,
        };
        Ok((found, node))
    }

    /// Makes the log ready to be appended to, and says that a server has started.
    pub(crate) fn start(mut self) -> Result<Log, WalError> {
        let Options {
            segment_bytes,
            spares_max,
            now_unix_ms,
            scope,
            ..
        } = self.options;
        let shelf = Arc::new(Shelf::new(segment_bytes, spares_max));
        let segment = ready(&*self.disk, &shelf, &self.layout)?;
        let mut log = Log {
            disk: self.disk,
            shelf,
            metrics: self.metrics,
            segment,
            end: self.layout.end,
            is_marked: false,
            _lock: self.lock,
        };
        // After the first segment has its name, and before anything is granted: see `key.rs`.
        if let Some(key) = &mut self.session_key {
            key.keep(&*log.disk)?;
        }
        let mut records = Vec::new();
        let started = Record::Started {
            unix_ms: now_unix_ms,
            scope,
        };
        started.append_to(&mut records);
        log.commit(&mut records)?;
        log.count_segments();
        Ok(log)
    }
}

impl Log {
    /// Reads the log and starts it at once.
    #[cfg(test)]
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        options: &Options,
    ) -> Result<(Log, Recovered), WalError> {
        let (found, recovered) = Found::read(disk, options)?;
        Ok((found.start()?, recovered))
    }

    /// Where the next record goes. Everything before is on the disk.
    pub(crate) fn end(&self) -> Position {
        self.end
    }

    /// Writes and syncs `records`, as [`Record::append_to`] made them. When this returns `Ok`, they
    /// are on the disk; when it returns an error, they may be or not, and the log must not be used
    /// again.
    pub(crate) fn commit(&mut self, records: &mut Vec<u8>) -> Result<(), WalError> {
        let total = records.len();
        records.extend_from_slice(&END);
        let mut done = 0;
        while done < total {
            let room = self.segment.room(self.end);
            let (bytes, count) = frame::place(&mut records[done..total], self.end, room);
            if bytes == 0 {
                self.go_on_in_next()?;
                continue;
            }
            let rest = done + bytes;
            if rest == total {
                self.write(&records[done..])?;
            } else {
                // The rest goes to the next segment, and the mark of the end is not where it is
                // needed.
                self.write(&records[done..rest])?;
                self.write_behind(bytes, &END)?;
            }
            self.sync()?;
            self.end = self.end.plus(bytes as u64);
            self.is_marked = false;
            self.metrics.wrote(count, bytes as u64);
            done = rest;
        }
        Ok(())
    }

    /// Writes down that everything so far is on the disk. Not synced: it is a proof for later, and
    /// nothing depends on it.
    pub(crate) fn mark(&mut self) -> Result<(), WalError> {
        if self.is_marked {
            return Ok(());
        }
        self.write_marker(Record::Synced)?;
        self.is_marked = true;
        Ok(())
    }

    fn write_marker(&mut self, marker: Record<'_>) -> Result<(), WalError> {
        let mut bytes = Vec::new();
        marker.append_to(&mut bytes);
        frame::stamp(&mut bytes, self.end, 0);
        bytes.extend_from_slice(&END);
        self.write(&bytes)
    }

    /// Begins the next segment. All of this one has been synced.
    fn go_on_in_next(&mut self) -> Result<(), WalError> {
        let sequence = self.segment.sequence + 1;
        let begun = self.shelf.begin_segment(&*self.disk, sequence, self.end);
        let next = begun?;
        // Only now: a reader that finds this must find the next one too. It need not be synced,
        // since it only helps to notice that a file has gone missing.
        self.write_marker(Record::Continued { sequence })?;
        let full = std::mem::replace(&mut self.segment, next);
        self.shelf.close(Closed {
            sequence: full.sequence,
            end: self.end,
            bytes: full.bytes,
        });
        self.count_segments();
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> Result<(), WalError> {
        self.write_behind(0, bytes)
    }

    fn write_behind(&self, behind: usize, bytes: &[u8]) -> Result<(), WalError> {
        let offset = self.segment.offset(self.end) + behind as u64;
        assert!(
            offset + bytes.len() as u64 <= self.segment.bytes,
            "a write at {offset} leaves its segment"
        );
        let written = self.segment.file.write_at(bytes, offset);
        let written = written.blame("write", &*self.disk, &self.segment.name());
        Ok(written?)
    }

    fn sync(&self) -> Result<(), WalError> {
        let start = Instant::now();
        let synced = self.segment.file.sync_data();
        synced.blame("sync", &*self.disk, &self.segment.name())?;
        self.metrics.synced(start.elapsed());
        Ok(())
    }

    fn count_segments(&self) {
        // The one that is being written counts.
        self.metrics.segments_in_use(self.shelf.closed_count() + 1);
    }
}

/// The directory at `dir`, which must exist.
pub(crate) fn open_dir(dir: &Path) -> Result<DirDisk, WalError> {
    let disk = DirDisk::open(dir).map_err(|error| IoFailure {
        action: "open",
        path: dir.to_owned(),
        source: Arc::new(error),
    });
    Ok(disk?)
}

/// Takes the directory.
pub(crate) fn lock(disk: &dyn Disk) -> Result<Box<dyn Send + Sync>, WalError> {
    let lock = disk.lock().blame("lock", disk, "")?;
    lock.ok_or_else(|| WalError::Locked {
        dir: disk.dir().to_owned(),
    })
}

/// Tidies the directory and makes the last segment ready, or the first.
fn ready(disk: &dyn Disk, shelf: &Shelf, layout: &Layout) -> Result<Segment, IoFailure> {
    // The last server may have been killed between giving a file its name and syncing that.
    disk.sync_dir().blame("sync", disk, "")?;
    for &spare in &layout.spares {
        shelf.adopt(disk, spare)?;
    }
    for &name in &layout.obsolete {
        // Segments too: there are enough spares, or will be after the next snapshot.
        let name = name.to_string();
        disk.remove(&name).blame("remove", disk, &name)?;
    }
    for pair in layout.chain.windows(2) {
        shelf.close(Closed {
            sequence: pair[0].sequence,
            end: pair[1].begin,
            bytes: pair[0].bytes,
        });
    }
    match layout.chain.last() {
        Some(last) => rewrite(disk, last, layout.end),
        None => shelf.begin_segment(disk, 1, layout.end),
    }
}

/// Writes the last segment once more.
fn rewrite(disk: &dyn Disk, last: &Link, end: Position) -> Result<Segment, IoFailure> {
    let name = Name::Segment(last.sequence).to_string();
    let file = disk.open_write(&name).blame("open", disk, &name)?;
    let segment = Segment {
        file,
        sequence: last.sequence,
        begin: last.begin,
        bytes: last.bytes,
    };
    let mut bytes = vec![0; last.bytes as usize];
    let end_offset = segment.offset(end) as usize;
    let read = segment.file.read_at(&mut bytes[..end_offset], 0);
    read.blame("read", disk, &name)?;
    // Not the first page: it was synced before the segment had its name, and is never written
    // again.
    let page = PAGE_BYTES as usize;
    let written = segment.file.write_at(&bytes[page..], PAGE_BYTES);
    written.blame("write", disk, &name)?;
    segment.file.sync_data().blame("sync", disk, &name)?;
    Ok(segment)
}

#[cfg(test)]
mod tests;
