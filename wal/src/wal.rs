//! A log that is open: reading it, starting its writer, appending, snapshots, closing.

use crate::error::{Blame, IoFailure, WalError};
use crate::files::segment::{Shelf, UNFINISHED};
use crate::log::queue::{Batch, Queue, Ticket};
use crate::log::room::{self, Shortage};
use crate::log::snapshot::{self, SnapshotFile};
#[cfg(any(test, feature = "testing"))]
use crate::log::writer::SteppedWriter;
use crate::log::writer::{Listener, Writer};
use crate::log::{Found, Options};
use crate::metrics::Metrics;
use crate::record::Record;
use crate::record::frame::Position;
use crate::replay::node::NodeLog;
use crate::replay::recovered::Recovered;
use disk::{DirDisk, Disk};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle, Thread};
use std::time::Instant;

/// Reads the log in `dir`, which is made if it does not exist. Nothing else is changed before
/// [`Opened::start`].
pub fn open(dir: &Path, options: &Options) -> Result<(Opened, Recovered), WalError> {
    open_on(disk_of(dir)?, options)
}

/// Reads the log on a disk, and makes sure that there is room to go on with it. Nothing is changed.
pub fn open_on(disk: Arc<dyn Disk>, options: &Options) -> Result<(Opened, Recovered), WalError> {
    let (found, recovered) = Found::read(disk, options)?;
    room::check(&*found.disk, &found.layout, options)?;
    let opened = Opened {
        found,
        options: *options,
        ceiling_max: recovered.ceiling_max,
        snapshot_begin: recovered.snapshot_begin,
    };
    Ok((opened, recovered))
}

/// Reads the log of a cluster's node in `dir`, which is made if it does not exist. Nothing else is
/// changed before [`Opened::start`].
pub fn open_node(dir: &Path, options: &Options) -> Result<(Opened, NodeLog), WalError> {
    open_node_on(disk_of(dir)?, options)
}

/// The same on any disk.
pub fn open_node_on(disk: Arc<dyn Disk>, options: &Options) -> Result<(Opened, NodeLog), WalError> {
    let (found, node) = Found::read_node(disk, options)?;
    room::check(&*found.disk, &found.layout, options)?;
    let snapshot_begin = found.layout.begin;
    let opened = Opened {
        found,
        options: *options,
        ceiling_max: 0,
        snapshot_begin,
    };
    Ok((opened, node))
}

fn disk_of(dir: &Path) -> Result<Arc<dyn Disk>, WalError> {
    let disk = DirDisk::open_or_create(dir).map_err(|error| IoFailure {
        action: "open",
        path: dir.to_owned(),
        source: Arc::new(error),
    })?;
    Ok(Arc::new(disk))
}

/// A log that was read and has no writer yet: its listener is built from what it says.
pub struct Opened {
    found: Found,
    options: Options,
    ceiling_max: u64,
    snapshot_begin: Position,
}

impl Opened {
    /// Sets the time of the start, for a server that learns it from what was read.
    pub fn at(mut self, now_unix_ms: u64) -> Self {
        self.found.options.now_unix_ms = now_unix_ms;
        self
    }

    /// Starts to write. From here on the log no longer ends in a clean stop.
    pub fn start(self, listener: impl Listener) -> Result<Wal, WalError> {
        // The thread first: when there is none to be had, nothing has been written.
        let (hand_over, taken) = mpsc::sync_channel::<Writer<_>>(1);
        let spawned = thread::Builder::new()
            .name("wal".to_owned())
            .spawn(move || {
                if let Ok(writer) = taken.recv() {
                    writer.run();
                }
            });
        let join = spawned.blame("start the writer of", &*self.found.disk, "")?;
        let (mut wal, writer) = self.begin(listener)?;
        wal.writer = join.thread().clone();
        wal.join = Mutex::new(Some(join));
        let sent = hand_over.send(writer);
        assert!(sent.is_ok(), "the thread waits for its writer");
        Ok(wal)
    }

    /// Starts to write without a thread, for simulations that must come out the same each time:
    /// what is appended waits for [`Wal::turn`], or for a caller that waits for the disk. Dropping
    /// the log is a crash: what waits is lost.
    #[cfg(any(test, feature = "testing"))]
    pub fn start_stepped(self, listener: impl Listener) -> Result<Wal, WalError> {
        let (mut wal, writer) = self.begin(listener)?;
        wal.stepped = Some(Mutex::new(Box::new(writer)));
        Ok(wal)
    }

    /// A log that is ready to be written, by this thread so far, and its writer.
    fn begin<L: Listener>(self, listener: L) -> Result<(Wal, Writer<L>), WalError> {
        let log = self.found.start()?;
        let queue = Arc::new(Queue::new(log.end()));
        let wal = Wal {
            disk: log.disk.clone(),
            shelf: log.shelf.clone(),
            metrics: log.metrics.clone(),
            queue: queue.clone(),
            writer: thread::current(),
            join: Mutex::new(None),
            options: self.options,
            snapshot_begin: AtomicU64::new(self.snapshot_begin.get()),
            is_snapshot_under_way: AtomicBool::new(false),
            spare_shortage: Shortage::default(),
            snapshot_shortage: Shortage::default(),
            #[cfg(any(test, feature = "testing"))]
            stepped: None,
        };
        let writer = Writer::new(log, queue, listener, self.ceiling_max);
        Ok((wal, writer))
    }
}

/// A log that is being written. All methods take `&self` and may be called from any thread.
pub struct Wal {
    disk: Arc<dyn Disk>,
    shelf: Arc<Shelf>,
    metrics: Arc<Metrics>,
    queue: Arc<Queue>,
    writer: Thread,
    join: Mutex<Option<JoinHandle<()>>>,
    options: Options,
    /// Where the newest snapshot begins.
    snapshot_begin: AtomicU64,
    is_snapshot_under_way: AtomicBool,
    /// The next segment could not be made for want of room.
    spare_shortage: Shortage,
    /// Nor could a snapshot.
    snapshot_shortage: Shortage,
    /// The writer, if there is no thread for it.
    #[cfg(any(test, feature = "testing"))]
    stepped: Option<Mutex<Box<dyn SteppedWriter>>>,
}

impl Wal {
    /// Appends one record. Never waits, never refuses: what it says has happened.
    pub fn append(&self, record: &Record<'_>) -> Ticket {
        let mut batch = Batch::new();
        batch.push(record);
        self.append_batch(batch)
    }

    /// Appends several records at once, for the price of one. A batch without records is on the
    /// disk as soon as everything is that was appended before.
    pub fn append_batch(&self, batch: Batch) -> Ticket {
        if batch.is_empty() {
            return self.barrier();
        }
        let ticket = self.queue.push(batch);
        self.wake();
        ticket
    }

    /// A ticket that is on the disk when everything is that any thread has appended by now.
    pub fn barrier(&self) -> Ticket {
        self.queue.issued()
    }

    /// Everything up to this ticket is on the disk.
    pub fn synced(&self) -> Ticket {
        self.queue.synced()
    }

    /// Blocks until everything up to `ticket` is on the disk, or never will be.
    pub fn wait(&self, ticket: Ticket) -> Result<(), WalError> {
        #[cfg(any(test, feature = "testing"))]
        self.turn();
        self.queue.wait(ticket)
    }

    /// Writes and syncs what was appended so far, if this log was started without a thread.
    #[cfg(any(test, feature = "testing"))]
    pub fn turn(&self) {
        if let Some(stepped) = &self.stepped {
            stepped.lock().turn();
        }
    }

    /// Whether more than [`QUEUE_BYTES_MAX`] wait to be written: the disk does not keep up, and
    /// callers should read no further requests until it does.
    pub fn is_congested(&self) -> bool {
        self.queue.is_congested()
    }

    /// Why nothing is written any more, if so.
    pub fn failure(&self) -> Option<&WalError> {
        self.queue.failure()
    }

    /// The numbers.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Makes sure that the next segment is ready before the writer needs it. May wait for the disk:
    /// call it now and then from a thread that has the time. A disk without room for it is no
    /// failure yet: the log goes on in the segment it has, and this tries again later.
    pub fn restock(&self) -> Result<(), WalError> {
        self.restock_at(Instant::now())
    }

    pub(crate) fn restock_at(&self, now: Instant) -> Result<(), WalError> {
        if !self.spare_shortage.is_due(now) {
            return Ok(());
        }
        match self.shelf.restock(&*self.disk) {
            Ok(_) => {
                self.spare_shortage.end("the next segment is ready");
                Ok(())
            }
            Err(failure) if failure.is_for_want_of_room() => {
                self.metrics.found_no_room();
                let what_now = "The log goes on in the segment it has; when that is full and there is still no room, the \
                                server stops. Make room now";
                self.spare_shortage.note(&failure, what_now, now);
                Ok(())
            }
            Err(failure) => Err(self.fail(failure.into())),
        }
    }

    /// How many segments are ready to be written next. 0 for longer than a moment: the disk has no
    /// room for one.
    pub fn spare_count(&self) -> usize {
        self.shelf.spare_count()
    }

    /// How many bytes more there is room for on the log's file system, if that can be said.
    pub fn room_bytes(&self) -> Option<u64> {
        self.disk.room().ok().flatten()
    }

    /// Whether enough log has come together that a snapshot is worth its writing: as much as the
    /// options say, and half as much as the last snapshot. Less will do if there is no room for a
    /// spare segment, since a snapshot sets some free.
    pub fn wants_snapshot(&self) -> bool {
        self.wants_snapshot_at(Instant::now())
    }

    pub(crate) fn wants_snapshot_at(&self, now: Instant) -> bool {
        if !self.snapshot_shortage.is_due(now) {
            return false;
        }
        let begin = Position::new(self.snapshot_begin.load(Ordering::Relaxed));
        let log_bytes = self.queue.position().since(begin);
        let snapshot_bytes = self.metrics.snapshot_bytes.get();
        log_bytes >= self.options.snapshot_log_bytes.max(snapshot_bytes / 2)
            || self.spare_shortage.is_on() && self.shelf.closed_count() > 0
    }

    /// Begins a snapshot. Everything that a record on the disk says must be visible to the caller
    /// by now; then it adds all ceilings, the horizon, all sessions and all leases, and finishes
    /// it. The log goes on meanwhile.
    pub fn begin_snapshot(&self, now_unix_ms: u64) -> Result<Snapshot<'_>, WalError> {
        if self.is_snapshot_under_way.swap(true, Ordering::Acquire) {
            return Err(WalError::SnapshotUnderWay);
        }
        let turn = Turn(&self.is_snapshot_under_way);
        let begin = self.queue.position();
        let created =
            SnapshotFile::create(self.disk.clone(), begin, now_unix_ms, self.options.scope);
        match created {
            Ok(file) => Ok(Snapshot {
                wal: self,
                file: Some(file),
                begin,
                unix_ms: now_unix_ms,
                start: Instant::now(),
                _turn: turn,
            }),
            Err(failure) => Err(self.fail_snapshot(failure)),
        }
    }

    /// Stops in good order: writes what was appended and that this was all, and gives the directory
    /// back. Records that are appended afterwards are never synced.
    pub fn close(&self, now_unix_ms: u64) -> Result<(), WalError> {
        let mut batch = Batch::new();
        batch.push_any(&Record::CleanStop {
            unix_ms: now_unix_ms,
        });
        let ticket = self.append_batch(batch);
        let waited = self.wait(ticket);
        self.stop();
        waited
    }

    /// Ends the writer thread after what was appended so far.
    fn stop(&self) {
        self.queue.stop();
        self.wake();
        // A listener may have the last reference, and the writer cannot wait for itself.
        let is_writer = thread::current().id() == self.writer.id();
        if let Some(join) = self.join.lock().take()
            && !is_writer
        {
            // It does not panic; and if it did, `failure` says so.
            let _ = join.join();
        }
    }

    fn wake(&self) {
        if self.queue.must_wake() {
            self.writer.unpark();
        }
    }

    /// A snapshot could not be written. For want of room that is no failure of the log, as long as
    /// it has no name yet: what there is of it is given up, and the log before it stays.
    fn fail_snapshot(&self, failure: IoFailure) -> WalError {
        if !failure.is_for_want_of_room() || !failure.path.ends_with(UNFINISHED) {
            return self.fail(failure.into());
        }
        self.metrics.found_no_room();
        let _ = self.disk.remove(UNFINISHED);
        let what_now =
            "No snapshot is written, and the log grows until there is room for one. Make room now";
        self.snapshot_shortage
            .note(&failure, what_now, Instant::now());
        WalError::Io(failure)
    }

    /// Whatever fails in the directory, the log has failed. Returns why.
    fn fail(&self, error: WalError) -> WalError {
        self.queue.fail(error.clone());
        self.wake();
        error
    }
}

impl Drop for Wal {
    /// Without [`Wal::close`] this is no clean stop, but nothing that was appended is lost.
    fn drop(&mut self) {
        self.stop();
    }
}

/// A snapshot that is being written. Dropped before it is finished, it was never there.
pub struct Snapshot<'a> {
    wal: &'a Wal,
    file: Option<SnapshotFile>,
    begin: Position,
    unix_ms: u64,
    start: Instant,
    _turn: Turn<'a>,
}

impl Snapshot<'_> {
    /// Adds one record: a ceiling, the horizon, the clock, a session ([`Record::SessionOpened`]) or
    /// a lease ([`Record::Granted`]), in any order.
    pub fn add(&mut self, record: &Record<'_>) -> Result<(), WalError> {
        let file = self.file.as_mut().expect("taken by `finish` only");
        let added = file.add(record);
        added.map_err(|failure| self.wal.fail_snapshot(failure))
    }

    /// Says that each thread that appends has ended a turn since this snapshot was begun, and that
    /// no lease has been looked at yet. Waits for the disk. Replay then knows what the leases
    /// that are added show: see `snapshot.rs`.
    pub fn mark_shown(&mut self) -> Result<(), WalError> {
        let wal = self.wal;
        wal.wait(wal.queue.issued())?;
        let log_position = wal.queue.position().get();
        self.add(&Record::SnapshotShows { log_position })
    }

    /// Completes the snapshot, and makes room of the log before it. Waits for the disk.
    pub fn finish(mut self) -> Result<(), WalError> {
        let wal = self.wal;
        // What was added may show the effects of records that are not on the disk yet: see
        // `snapshot.rs`.
        wal.wait(wal.queue.issued())?;
        let log_end = wal.queue.position();
        let file = self.file.take().expect("taken here only");
        let finished = file.finish(log_end).and_then(|(name, bytes)| {
            snapshot::remove_others(&*wal.disk, name)?;
            wal.shelf.retire(&*wal.disk, self.begin)?;
            Ok(bytes)
        });
        let bytes = finished.map_err(|failure| wal.fail_snapshot(failure))?;
        wal.snapshot_shortage.end("a snapshot was written");
        wal.metrics.segments_in_use(wal.shelf.closed_count() + 1);
        let begin = self.begin.get();
        wal.snapshot_begin.store(begin, Ordering::Relaxed);
        let took = self.start.elapsed();
        wal.metrics.snapshot_done(self.unix_ms, took, bytes);
        Ok(())
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            file.abandon();
        }
    }
}

/// There is one snapshot at a time.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
