//! Between appenders and the writer: a queue without locks, tickets, and what every thread may know
//! of how far the writer is.
//!
//! A ticket is drawn before its records are pushed, so two threads may push in the other order than
//! they drew. The writer takes what it finds, and `Progress` works out up to which ticket *all*
//! have been written.

use crate::error::WalError;
use crate::record::Record;
use crate::record::frame::Position;
use crossbeam_queue::SegQueue;
use engine::SleepFlag;
use parking_lot::{Condvar, Mutex};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Bytes that may wait to be written. Nothing is refused beyond that, since what is appended has
/// happened already; but [`Queue::is_congested`] says so, and callers then stop reading requests.
/// What they have begun still comes, so the queue is bounded by this and what each thread can
/// append in one turn.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Records that are appended together: those of one turn of a thread.
#[derive(Default, Debug)]
pub struct Batch {
    pub(crate) bytes: Vec<u8>,
    /// What is checked before they are written.
    pub(crate) ceilings: Vec<(u16, u64)>,
    pub(crate) fence_max: u64,
}

impl Batch {
    /// No records.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Adds a record. Starts, stops and the marks of snapshots are for the log itself to write.
    pub fn push(&mut self, record: &Record<'_>) {
        assert!(record.is_callers(), "{record:?} is for the log to write");
        self.push_any(record);
    }

    pub(crate) fn push_any(&mut self, record: &Record<'_>) {
        match *record {
            Record::Ceiling { shard, fence } => self.ceilings.push((shard, fence)),
            Record::Granted(lease) | Record::GrantedLong(lease) => {
                self.fence_max = self.fence_max.max(lease.fence);
            }
            _ => {}
        }
        record.append_to(&mut self.bytes);
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of all records in it.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The records as bytes, one after the other, for [`crate::records`] to read.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Says when something that was appended is on the disk: as soon as [`crate::Wal::synced`] is not
/// below it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ticket(u64);

impl Ticket {
    /// Below every ticket that is given out.
    pub const ZERO: Ticket = Ticket(0);

    /// The number, for places that keep it in an atomic.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Reads back what [`Ticket::get`] gave.
    pub const fn from_bits(bits: u64) -> Self {
        Ticket(bits)
    }
}

/// What appenders and the writer share.
///
/// | field                 | written by                      | read by                     |
/// |-----------------------|---------------------------------|-----------------------------|
/// | `entries`             | appenders push, the writer pops |                             |
/// | `issued`              | appenders                       | snapshots                   |
/// | `synced`, `position`  | the writer                      | anyone                      |
/// | `sleep`               | the writer raises, anyone lowers| appenders                   |
/// | `failure`             | the writer or a snapshot, once  | anyone                      |
/// | `is_stopping`         | `close`                         | the writer                  |
/// | `is_gone`             | the writer, last of all         | threads that wait for it    |
pub(crate) struct Queue {
    entries: SegQueue<(Ticket, Batch)>,
    waiting_bytes: AtomicUsize,
    issued: AtomicU64,
    synced: AtomicU64,
    position: AtomicU64,
    sleep: SleepFlag,
    failure: OnceLock<WalError>,
    is_stopping: AtomicBool,
    is_gone: AtomicBool,
    /// Waiting threads sleep on this: changes of `synced`, `failure` and `is_gone` are announced
    /// under it.
    news: Mutex<()>,
    heard: Condvar,
}

impl Queue {
    pub(crate) fn new(position: Position) -> Self {
        Queue {
            entries: SegQueue::new(),
            waiting_bytes: AtomicUsize::new(0),
            issued: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            position: AtomicU64::new(position.get()),
            sleep: SleepFlag::new(),
            failure: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            news: Mutex::new(()),
            heard: Condvar::new(),
        }
    }

    /// Leaves a batch for the writer. The caller must then call [`Queue::must_wake`]. When the log
    /// has failed, the batch is dropped and its ticket never comes up.
    pub(crate) fn push(&self, batch: Batch) -> Ticket {
        // Relaxed: a ticket only has to be unique; its batch is published by the queue.
        let ticket = Ticket(self.issued.fetch_add(1, Ordering::Relaxed) + 1);
        if self.failure().is_none() {
            let bytes = batch.bytes.len();
            self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.entries.push((ticket, batch));
        }
        ticket
    }

    /// Whether the caller has to wake the writer, after it left something for it.
    pub(crate) fn must_wake(&self) -> bool {
        self.sleep.must_wake()
    }

    /// Says that the writer is about to sleep. `false`: there is something to do.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleep.raise();
        let must_not = !self.entries.is_empty() || self.is_stopping() || self.failure().is_some();
        if must_not {
            self.sleep.lower();
        }
        !must_not
    }

    /// Takes one batch.
    pub(crate) fn pop(&self) -> Option<(Ticket, Batch)> {
        let entry = self.entries.pop()?;
        let bytes = entry.1.bytes.len();
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Some(entry)
    }

    pub(crate) fn is_congested(&self) -> bool {
        self.waiting_bytes.load(Ordering::Relaxed) > QUEUE_BYTES_MAX
    }

    /// The last ticket that was given out.
    pub(crate) fn issued(&self) -> Ticket {
        // Relaxed: one that is drawn while we look may be counted or not.
        Ticket(self.issued.load(Ordering::Relaxed))
    }

    pub(crate) fn synced(&self) -> Ticket {
        // Acquire, paired with `publish`: a thread that sees a ticket here sees the position that
        // came with it.
        Ticket(self.synced.load(Ordering::Acquire))
    }

    pub(crate) fn position(&self) -> Position {
        // Acquire, paired with `publish`: a thread that sees a position behind a record sees
        // everything that happened before the record was appended. Snapshots rely on it.
        Position::new(self.position.load(Ordering::Acquire))
    }

    /// Everything up to `ticket` is on the disk, and the log reaches `position`.
    pub(crate) fn publish(&self, ticket: Ticket, position: Position) {
        self.position.store(position.get(), Ordering::Release);
        self.synced.store(ticket.0, Ordering::Release);
        self.announce();
    }

    /// The log is broken. The first to say so decides why.
    pub(crate) fn fail(&self, error: WalError) {
        let _ = self.failure.set(error);
        self.announce();
    }

    pub(crate) fn failure(&self) -> Option<&WalError> {
        self.failure.get()
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    pub(crate) fn leave(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.announce();
    }

    /// Blocks until everything up to `ticket` is on the disk.
    pub(crate) fn wait(&self, ticket: Ticket) -> Result<(), WalError> {
        let mut news = self.news.lock();
        loop {
            if self.synced() >= ticket {
                return Ok(());
            }
            if let Some(error) = self.failure() {
                return Err(error.clone());
            }
            if self.is_gone.load(Ordering::Acquire) {
                return Err(WalError::Closed);
            }
            self.heard.wait(&mut news);
        }
    }

    fn announce(&self) {
        // The mutex is taken so that no thread is between looking and waiting.
        drop(self.news.lock());
        self.heard.notify_all();
    }
}

/// Up to which ticket all have been seen, when they come out of order.
#[derive(Default)]
pub(crate) struct Progress {
    done: u64,
    /// Seen, but with one before them missing.
    early: BinaryHeap<Reverse<u64>>,
}

impl Progress {
    pub(crate) fn see(&mut self, ticket: Ticket) {
        assert!(ticket.0 > self.done, "ticket {} was seen before", ticket.0);
        self.early.push(Reverse(ticket.0));
        while self.early.peek() == Some(&Reverse(self.done + 1)) {
            self.early.pop();
            self.done += 1;
        }
    }

    pub(crate) fn done(&self) -> Ticket {
        Ticket(self.done)
    }
}

#[cfg(test)]
mod tests;
