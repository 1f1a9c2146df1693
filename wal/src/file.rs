//! The file boundary: all that the log asks of a disk, and the real disk. The tests have one that forgets what was not
//! synced (`file/forgetful.rs`).
//!
//! Files are named, not pathed: a log lives in one flat directory. What is written is durable after `sync_data` of its
//! file; a name, its removal or its change after `sync_dir`.

use super::error::IoFailure;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory for one log.
pub trait Disk: Send + Sync {
    /// Where it is, for messages.
    fn dir(&self) -> &Path;

    /// Takes the directory for this process, until the guard is dropped. `None`: another process has it.
    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>>;

    /// The names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file that exists, to read it.
    fn open_read(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file that exists, to read and write it.
    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Makes a file of so many zero bytes, really written, so that later writes need no new room on the disk. Replaces a
    /// file of that name.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name, atomically; a file that had it is gone.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all changes of names durable.
    fn sync_dir(&self) -> io::Result<()>;

    /// How many bytes more there is room for. `None`: that cannot be said.
    fn room(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

/// An open file.
pub trait DiskFile: Send {
    /// How long it is.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`, making the file longer if need be.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Waits until everything written is on the disk, with as much of the metadata as reading it back takes.
    fn sync_data(&self) -> io::Result<()>;
}

/// Adds to a failure what was tried, and with what.
pub(crate) trait Blame<T> {
    fn blame(self, action: &'static str, disk: &dyn Disk, name: &str) -> Result<T, IoFailure>;
}

impl<T> Blame<T> for io::Result<T> {
    fn blame(self, action: &'static str, disk: &dyn Disk, name: &str) -> Result<T, IoFailure> {
        self.map_err(|error| IoFailure {
            action,
            path: disk.dir().join(name),
            source: Arc::new(error),
        })
    }
}

/// A real directory.
pub struct DirDisk {
    dir: PathBuf,
    /// Locked and synced through this. The lock is on the directory itself, so reading a log creates nothing in it.
    handle: File,
}

impl DirDisk {
    /// The directory at `dir`, which must exist.
    pub fn open(dir: &Path) -> io::Result<Self> {
        Ok(DirDisk {
            dir: dir.to_owned(),
            handle: File::open(dir)?,
        })
    }

    /// The directory at `dir`, made if it does not exist. Keys and names of clients are nobody else's business: it and its
    /// files are for their owner only.
    pub fn open_or_create(dir: &Path) -> io::Result<Self> {
        create_dir(dir)?;
        Self::open(dir)
    }
}

/// Makes a directory and those above it. Their names must outlast a power failure too.
fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = match dir.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    create_dir(parent)?;
    fs::DirBuilder::new().mode(0o700).create(dir)?;
    File::open(parent)?.sync_all()
}

impl Disk for DirDisk {
    fn dir(&self) -> &Path {
        &self.dir
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        // A handle of its own: a lock belongs to the open file, and goes when the last copy of it is closed.
        let handle = File::open(&self.dir)?;
        match handle.try_lock() {
            Ok(()) => Ok(Some(Box::new(handle))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            // A name that is not text is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn open_read(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::open(self.dir.join(name))?))
    }

    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        Ok(Box::new(options.open(self.dir.join(name))?))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.mode(0o600).open(self.dir.join(name))?;
        // Zeros are written and not just reserved: a sync of reserved room has to mark it as used each time.
        let zeros = [0; 64 * 1024];
        let mut at = 0;
        while at < bytes {
            let part = zeros.len().min((bytes - at) as usize);
            file.write_all_at(&zeros[..part], at)?;
            at += part as u64;
        }
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.dir.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn room(&self) -> io::Result<Option<u64>> {
        let system = rustix::fs::fstatvfs(&self.handle)?;
        Ok(Some(system.f_bavail.saturating_mul(system.f_frsize)))
    }
}

impl DiskFile for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod forgetful;
#[cfg(test)]
mod tests;
