//! A disk that fails once, at a given moment, with a given error: the real one until then, and never asked again after.

use server::wal::{DirDisk, Disk, DiskFile};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What fails, the how-manyeth, and with which error of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Syncs or writes.
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
}

/// The variable through which a child process is told of its failure: `sync 40 5`.
pub const VARIABLE: &str = "CRASH_TESTS_FAILURE";

impl Failure {
    /// As [`Failure::parse`] reads it.
    pub fn show(&self) -> String {
        let of = match self.of {
            Operation::Sync => "sync",
            Operation::Write => "write",
        };
        format!("{of} {} {}", self.number, self.error)
    }

    pub(crate) fn parse(text: &str) -> Option<Failure> {
        let mut words = text.split(' ');
        let of = match words.next()? {
            "sync" => Operation::Sync,
            "write" => Operation::Write,
            _ => return None,
        };
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
    failure: Failure,
    done: AtomicU64,
}

struct FailingFile {
    inner: Box<dyn DiskFile>,
    plan: Arc<Countdown>,
}

impl FailingDisk {
    pub(crate) fn new(dir: &Path, failure: Failure) -> io::Result<Self> {
        let done = AtomicU64::new(0);
        Ok(FailingDisk {
            inner: DirDisk::open_or_create(dir)?,
            plan: Arc::new(Countdown { failure, done }),
        })
    }

    fn wrap(&self, file: io::Result<Box<dyn DiskFile>>) -> io::Result<Box<dyn DiskFile>> {
        let plan = self.plan.clone();
        file.map(|inner| Box::new(FailingFile { inner, plan }) as Box<dyn DiskFile>)
    }
}

impl Countdown {
    fn count(&self, of: Operation) -> io::Result<()> {
        if of == self.failure.of
            && self.done.fetch_add(1, Ordering::Relaxed) + 1 == self.failure.number
        {
            return Err(io::Error::from_raw_os_error(self.failure.error));
        }
        Ok(())
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
        self.inner.open_read(name)
    }

    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.wrap(self.inner.open_write(name))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        self.wrap(self.inner.create(name, bytes))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
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
        self.inner.sync_data()
    }
}
