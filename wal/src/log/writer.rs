//! The thread that writes. It takes whatever has arrived while the last sync ran, writes it with
//! one write, syncs once, and says so. Under load batches grow by themselves; alone, a record waits
//! for nothing but its own sync.

use crate::error::WalError;
use crate::log::Log;
use crate::log::queue::{Batch, Progress, Queue, Ticket};
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;

/// Bytes that are written and synced together, at most.
const WRITE_BYTES_MAX: usize = 4 << 20;

/// Hears how far the log is. Called on the writer's thread, which writes nothing meanwhile.
pub trait Listener: Send + 'static {
    /// Everything appended up to this ticket is on the disk: replies that waited for it may leave.
    fn synced(&mut self, up_to: Ticket);

    /// The log is broken, and nothing further will be synced. Called once; the server stops: one by
    /// itself in its `storage/mod.rs`, a node of a cluster in its `node/server.rs`.
    fn failed(&mut self, error: &WalError);
}

/// For callers that ask instead.
impl Listener for () {
    fn synced(&mut self, _: Ticket) {}
    fn failed(&mut self, _: &WalError) {}
}

pub(crate) struct Writer<L: Listener> {
    log: Log,
    queue: Arc<Queue>,
    listener: L,
    checks: Checks,
    progress: Progress,
    /// What will be written next.
    records: Vec<u8>,
}

impl<L: Listener> Writer<L> {
    pub(crate) fn new(log: Log, queue: Arc<Queue>, listener: L, ceiling_max: u64) -> Self {
        Writer {
            log,
            queue,
            listener,
            checks: Checks {
                floor: ceiling_max,
                synced: ceiling_max,
                written: ceiling_max,
                shards: BTreeMap::new(),
            },
            progress: Progress::default(),
            records: Vec::new(),
        }
    }

    /// Writes until the log is closed or fails.
    pub(crate) fn run(mut self) {
        let queue = self.queue.clone();
        // A broken assertion must stop the server like a broken disk; the panic itself has been
        // reported already.
        let written = panic::catch_unwind(AssertUnwindSafe(|| self.write_all()));
        if let Err(error) = written.unwrap_or(Err(WalError::WriterGone)) {
            queue.fail(error);
        }
        if let Some(error) = queue.failure() {
            self.listener.failed(error);
        }
        // The directory is free before a waiting thread hears that we are gone.
        drop(self);
        queue.leave();
    }

    fn write_all(&mut self) -> Result<(), WalError> {
        loop {
            if self.queue.failure().is_some() {
                return Ok(());
            }
            if self.write_some()? {
                continue;
            }
            self.log.mark()?;
            if self.queue.is_stopping() {
                return Ok(());
            }
            if self.queue.fall_asleep() {
                thread::park();
            }
        }
    }

    /// Writes and syncs what has arrived, and says so. `false`: nothing has.
    fn write_some(&mut self) -> Result<bool, WalError> {
        if !self.gather() {
            return Ok(false);
        }
        self.log.commit(&mut self.records)?;
        self.checks.synced();
        if self.queue.failure().is_none() {
            let done = self.progress.done();
            self.queue.publish(done, self.log.end());
            self.listener.synced(done);
        }
        Ok(true)
    }

    /// Takes what has arrived. `false`: nothing.
    fn gather(&mut self) -> bool {
        self.records.clear();
        while self.records.len() < WRITE_BYTES_MAX
            && let Some((ticket, batch)) = self.queue.pop()
        {
            self.progress.see(ticket);
            self.checks.check(&batch);
            self.records.extend_from_slice(&batch.bytes);
        }
        !self.records.is_empty()
    }
}

/// A writer without a thread, for simulations: another thread makes its turns.
#[cfg(any(test, feature = "testing"))]
pub(crate) trait SteppedWriter: Send {
    /// Writes and syncs what has arrived.
    fn turn(&mut self);
}

#[cfg(any(test, feature = "testing"))]
impl<L: Listener> SteppedWriter for Writer<L> {
    fn turn(&mut self) {
        if self.queue.failure().is_some() {
            return;
        }
        let written = loop {
            match self.write_some() {
                Ok(true) => {}
                Ok(false) => break self.log.mark(),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = written {
            self.listener.failed(&error);
            self.queue.fail(error);
        }
    }
}

/// What must be true of all that is written: replay checks it once more. Our own mistakes end here
/// and not on the disk.
struct Checks {
    /// The highest ceiling of all servers before.
    floor: u64,
    /// The highest ceiling on the disk.
    synced: u64,
    /// The highest ceiling in what will be written next.
    written: u64,
    shards: BTreeMap<u16, u64>,
}

impl Checks {
    fn check(&mut self, batch: &Batch) {
        for &(shard, fence) in &batch.ceilings {
            let before = self.shards.insert(shard, fence).unwrap_or(self.floor);
            assert!(
                before <= fence,
                "the ceiling of shard {shard} would fall from {before} to {fence}"
            );
            self.written = self.written.max(fence);
        }
        assert!(
            batch.fence_max <= self.synced,
            "fence {} was granted above every ceiling on the disk: {}",
            batch.fence_max,
            self.synced
        );
    }

    fn synced(&mut self) {
        self.synced = self.written;
    }
}

#[cfg(test)]
mod tests;
