//! A disk that fails once, at a given moment, with a given error: the real one until then, and
//! never asked again after. Or one that does what it is told while the server runs ([`Order`]).

use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wal::{DirDisk, Disk, DiskFile};

/// What fails, the how-manyeth, and with which error of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which operation.
    pub of: Operation,
    /// Counted from 1, over all files of the log.
    pub number: u64,
    /// `EIO`, `ENOSPC` and the like, as a number.
    pub error: i32,
}

/// Something that is asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum Operation {
    Sync,
    Write,
    Create,
    /// Of a file that exists, to read or to write it.
    Open,
    Rename,
    Remove,
    SyncDir,
    /// Of a snapshot's file. Counts as a sync, too.
    SnapshotSync,
}

impl Operation {
    /// All of them, and how a child process is told.
    const WORDS: [(Operation, &str); 8] = [
        (Operation::Sync, "sync"),
        (Operation::Write, "write"),
        (Operation::Create, "create"),
        (Operation::Open, "open"),
        (Operation::Rename, "rename"),
        (Operation::Remove, "remove"),
        (Operation::SyncDir, "sync-dir"),
        (Operation::SnapshotSync, "snapshot-sync"),
    ];

    fn word(self) -> &'static str {
        let found = Operation::WORDS.iter().find(|(of, _)| *of == self);
        found.expect("all operations are in the table").1
    }

    fn named(word: &str) -> Option<Operation> {
        let found = Operation::WORDS.iter().find(|(_, name)| *name == word);
        found.map(|(of, _)| *of)
    }
}

/// The variable through which a child process is told of its failure: `sync 40 5`.
pub const VARIABLE: &str = "CRASH_TESTS_FAILURE";

/// The variable that gives a child process a disk which takes orders.
pub const TAKES_ORDERS: &str = "CRASH_TESTS_DISK_TAKES_ORDERS";

/// What the disk of a child process is told, by a line on its standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From now on every sync takes so much longer.
    Slow(Duration),
    /// The next operation of this kind fails, with this error of the system.
    Fail(Operation, i32),
}

impl Order {
    /// As [`Order::parse`] reads it.
    pub fn show(&self) -> String {
        match self {
            Order::Slow(delay) => format!("disk slow {}", delay.as_millis()),
            Order::Fail(of, error) => format!("disk fail {} {error}", of.word()),
        }
    }

    pub(crate) fn parse(line: &str) -> Option<Order> {
        let mut words = line.strip_prefix("disk ")?.split(' ');
        match (words.next()?, words.next()?, words.next()) {
            ("slow", ms, None) => Some(Order::Slow(Duration::from_millis(ms.parse().ok()?))),
            ("fail", of, Some(error)) => {
                Some(Order::Fail(Operation::named(of)?, error.parse().ok()?))
            }
            _ => None,
        }
    }

    /// Has the disks of this process do it.
    pub(crate) fn give(self) {
        match self {
            Order::Slow(delay) => *SYNC_DELAY.lock() = delay,
            Order::Fail(of, error) => *NEXT_FAILS.lock() = Some((of, error)),
        }
    }
}

/// How much longer each sync takes. A child process has one disk.
static SYNC_DELAY: Mutex<Duration> = Mutex::new(Duration::ZERO);

/// What fails next.
static NEXT_FAILS: Mutex<Option<(Operation, i32)>> = Mutex::new(None);

/// What a snapshot is called while it is written (`docs/wal.md`).
const UNFINISHED: &str = "unfinished.wal";

impl Failure {
    /// As [`Failure::parse`] reads it.
    pub fn show(&self) -> String {
        format!("{} {} {}", self.of.word(), self.number, self.error)
    }

    pub(crate) fn parse(text: &str) -> Option<Failure> {
        let mut words = text.split(' ');
        let of = Operation::named(words.next()?)?;
        let number = words.next()?.parse().ok()?;
        let error = words.next()?.parse().ok()?;
        Some(Failure { of, number, error })
    }
}

/// A directory whose disk fails.
pub(crate) struct FailingDisk {
    inner: DirDisk,
    plan: Arc<Countdown>,
}

struct Countdown {
    /// `None`: only what it is told.
    failure: Option<Failure>,
    done: AtomicU64,
}

struct FailingFile {
    inner: Box<dyn DiskFile>,
    is_snapshot: bool,
    plan: Arc<Countdown>,
}

impl FailingDisk {
    pub(crate) fn new(dir: &Path, failure: Option<Failure>) -> io::Result<Self> {
        let done = AtomicU64::new(0);
        Ok(FailingDisk {
            inner: DirDisk::open_or_create(dir)?,
            plan: Arc::new(Countdown { failure, done }),
        })
    }

    fn wrap(&self, name: &str, inner: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(FailingFile {
            inner,
            is_snapshot: name == UNFINISHED,
            plan: self.plan.clone(),
        })
    }
}

impl Countdown {
    fn count(&self, of: Operation) -> io::Result<()> {
        if let Some(failure) = self.failure.filter(|failure| failure.of == of)
            && self.done.fetch_add(1, Ordering::Relaxed) + 1 == failure.number
        {
            return Err(io::Error::from_raw_os_error(failure.error));
        }
        if of == Operation::Sync {
            let delay = *SYNC_DELAY.lock();
            std::thread::sleep(delay);
        }
        match NEXT_FAILS.lock().take_if(|(next, _)| *next == of) {
            Some((_, error)) => Err(io::Error::from_raw_os_error(error)),
            None => Ok(()),
        }
    }
}

impl Disk for FailingDisk {
    fn dir(&self) -> &Path {
        self.inner.dir()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.inner.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn open_read(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.plan.count(Operation::Open)?;
        self.inner.open_read(name)
    }

    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.plan.count(Operation::Open)?;
        Ok(self.wrap(name, self.inner.open_write(name)?))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        self.plan.count(Operation::Create)?;
        Ok(self.wrap(name, self.inner.create(name, bytes)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.plan.count(Operation::Rename)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.plan.count(Operation::Remove)?;
        self.inner.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.plan.count(Operation::SyncDir)?;
        self.inner.sync_dir()
    }
}

impl DiskFile for FailingFile {
    fn bytes(&self) -> io::Result<u64> {
        self.inner.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.plan.count(Operation::Write)?;
        self.inner.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.plan.count(Operation::Sync)?;
        if self.is_snapshot {
            self.plan.count(Operation::SnapshotSync)?;
        }
        self.inner.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_is_shown() {
        for order in [
            Order::Slow(Duration::from_millis(300)),
            Order::Fail(Operation::Sync, 5),
            Order::Fail(Operation::Write, 28),
        ] {
            assert_eq!(Order::parse(&order.show()), Some(order));
        }
        assert_eq!(Order::parse("3600000"), None);
    }
}
