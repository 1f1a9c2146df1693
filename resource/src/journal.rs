//! The log on disk: what makes fences survive a restart, a `kill -9` and a power cut.
//!
//! One thread owns the file. It takes all writes that are waiting, writes them as one frame, syncs,
//! and only then applies them to the ledger and answers. So a fence counts, is seen and is
//! acknowledged only once it is on the disk, and one sync serves every waiting write. No other
//! thread changes the ledger, so the ledger follows from the order of the file.
//!
//! Every write brings its turn along, and the thread keeps it until the write is applied. The
//! caller may go away in the meantime; the next in line for the key still finds this write's fence
//! in the ledger.
//!
//! The first failure is the last: what is on the disk is unknown after it, and nothing is accepted
//! any more.

mod file;
mod frame;
#[cfg(test)]
mod tests;

use crate::ledger::{Bounds, Ledger, Seed, Value};
use crate::limits::{BATCH_BYTES, JOURNAL_QUEUE_MAX};
use crate::refusal::JournalError;
use crate::turns::Turn;
use disk::DirDisk;
use file::LogFile;
use frame::Frame;
use parking_lot::Mutex;
use protocol::Fence;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::sync::{mpsc, oneshot};

/// A ledger that readers look into while the thread changes it.
pub(crate) type SharedLedger<V> = Arc<Mutex<Ledger<V>>>;

/// What a write gets back: its turn, once its fence is on the disk.
pub(crate) type Answer = Result<Turn, Arc<JournalError>>;

/// The way to the thread. Dropping it waits for what was sent, and ends the thread.
pub(crate) struct Journal<V> {
    sender: Option<mpsc::Sender<Append<V>>>,
    thread: Option<JoinHandle<()>>,
}

struct Append<V> {
    turn: Turn,
    fence: Fence,
    value: V,
    answer: oneshot::Sender<Answer>,
}

/// A seed for a ledger that has no log to keep one in.
pub(crate) fn fresh_seed() -> Seed {
    file::random_seed()
}

impl<V: Value> Journal<V> {
    /// Opens the log in `dir` and reads it.
    pub(crate) fn open(
        dir: &Path,
        bounds: Bounds,
        compact_bytes_min: u64,
    ) -> Result<(Self, SharedLedger<V>), JournalError> {
        let failed = |action| {
            move |source| JournalError::Io {
                action,
                path: dir.to_owned(),
                source,
            }
        };
        let disk = DirDisk::open_or_create(dir).map_err(failed("open"))?;
        let (file, ledger) = LogFile::open(Box::new(disk), bounds)?;
        let ledger = Arc::new(Mutex::new(ledger));
        let (sender, receiver) = mpsc::channel(JOURNAL_QUEUE_MAX);
        let writer = Writer {
            file,
            ledger: Arc::clone(&ledger),
            compact_bytes_min,
            broken: None,
        };
        let spawned = thread::Builder::new()
            .name("fences".to_owned())
            .spawn(move || writer.run(receiver));
        let thread = spawned.map_err(failed("start the writer of"))?;
        let journal = Journal {
            sender: Some(sender),
            thread: Some(thread),
        };
        Ok((journal, ledger))
    }

    /// A place in the thread's queue. Cancel safe.
    pub(crate) async fn reserve(&self) -> Result<Slot<'_, V>, Arc<JournalError>> {
        self.sender().reserve().await.map(Slot).map_err(|_| gone())
    }

    /// Puts a write on the disk, from a thread that may block.
    pub(crate) fn append_blocking(&self, turn: Turn, fence: Fence, value: V) -> Answer {
        let (append, answer) = Append::new(turn, fence, value);
        // If the thread is gone, so is the other end of the answer.
        let _ = self.sender().blocking_send(append);
        answer.blocking_recv().unwrap_or_else(|_| Err(gone()))
    }

    fn sender(&self) -> &mpsc::Sender<Append<V>> {
        self.sender.as_ref().expect("only drop takes it")
    }
}

impl<V> Drop for Journal<V> {
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by then, and every waiting write was answered.
            let _ = thread.join();
        }
    }
}

/// A place in the queue: a write that has one is sent without another wait.
pub(crate) struct Slot<'a, V>(mpsc::Permit<'a, Append<V>>);

impl<V: Value> Slot<'_, V> {
    /// Puts a write on the disk. It is on its way as soon as this is called; dropping the answer
    /// does not call it back.
    pub(crate) fn append(
        self,
        turn: Turn,
        fence: Fence,
        value: V,
    ) -> impl Future<Output = Answer> + use<V> {
        let (append, answer) = Append::new(turn, fence, value);
        self.0.send(append);
        async { answer.await.unwrap_or_else(|_| Err(gone())) }
    }
}

impl<V> Append<V> {
    fn new(turn: Turn, fence: Fence, value: V) -> (Self, oneshot::Receiver<Answer>) {
        let (answer, receiver) = oneshot::channel();
        let append = Append {
            turn,
            fence,
            value,
            answer,
        };
        (append, receiver)
    }
}

fn gone() -> Arc<JournalError> {
    Arc::new(JournalError::Io {
        action: "reach the thread of",
        path: "the log".into(),
        source: io::ErrorKind::BrokenPipe.into(),
    })
}

struct Writer<V> {
    file: LogFile,
    ledger: SharedLedger<V>,
    compact_bytes_min: u64,
    broken: Option<Arc<JournalError>>,
}

impl<V: Value> Writer<V> {
    fn run(mut self, mut receiver: mpsc::Receiver<Append<V>>) {
        let mut frame = Frame::new();
        let mut batch = Vec::new();
        while let Some(first) = receiver.blocking_recv() {
            self.take(first, &mut frame, &mut batch);
            while frame.body_bytes() < BATCH_BYTES
                && let Ok(next) = receiver.try_recv()
            {
                self.take(next, &mut frame, &mut batch);
            }
            self.settle(&mut frame, &mut batch);
        }
    }

    fn take(&self, append: Append<V>, frame: &mut Frame, batch: &mut Vec<Append<V>>) {
        if self.broken.is_none() {
            frame.push_write(append.turn.key(), append.fence, append.value.as_bytes());
        }
        batch.push(append);
    }

    /// Commits, applies, answers; in this order.
    fn settle(&mut self, frame: &mut Frame, batch: &mut Vec<Append<V>>) {
        if self.broken.is_none() {
            self.broken = self.file.commit(frame).err().map(Arc::new);
        }
        for append in batch.drain(..) {
            let Append {
                turn,
                fence,
                value,
                answer,
            } = append;
            let answered = match &self.broken {
                None => {
                    self.ledger.lock().apply(turn.key(), fence, value);
                    Ok(turn)
                }
                Some(error) => Err(Arc::clone(error)),
            };
            // If the caller is gone, the turn ends here.
            let _ = answer.send(answered);
        }
        if self.broken.is_none() && self.file.wants_rewriting(self.compact_bytes_min) {
            self.broken = self.file.rewrite(&self.ledger).err().map(Arc::new);
        }
    }
}
