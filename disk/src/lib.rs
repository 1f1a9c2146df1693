//! All that a log asks of a disk. Two logs do: the server's write-ahead log (`wal`) and the guard's
//! journal of fences (`resource`). A crate of its own, so that a guard needs neither the log of the
//! server nor its engine.
//!
//! | file           | what                                                              |
//! |----------------|-------------------------------------------------------------------|
//! | `lib.rs`       | the traits                                                        |
//! | `real.rs`      | a directory of the file system                                    |
//! | `full.rs`      | how a full file system answers                                    |
//! | `forgetful.rs` | a disk in memory that forgets what was not synced, for tests      |
//!
//! Files are named, not pathed: a log lives in one flat directory. What is written is durable after
//! `sync_data` of its file; a name, its removal or its change after `sync_dir`.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "testing"))]
pub mod forgetful;
mod full;
mod real;
#[cfg(test)]
mod tests;

pub use full::{is_full, mount_point};
pub use real::DirDisk;

use std::io;
use std::path::Path;

/// A directory for one log.
pub trait Disk: Send + Sync {
    /// Where it is, for messages.
    fn dir(&self) -> &Path;

    /// Takes the directory for this process, until the guard is dropped. `None`: another process
    /// has it.
    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>>;

    /// The names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file that exists, to read it.
    fn open_read(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file that exists, to read and write it.
    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Makes a file of so many zero bytes, really written, so that later writes need no new room on
    /// the disk. Replaces a file of that name.
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

    /// Cuts off what lies behind `bytes`. Only a log that grows at its end asks for it.
    fn shorten(&self, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Waits until everything written is on the disk, with as much of the metadata as reading it
    /// back takes.
    fn sync_data(&self) -> io::Result<()>;
}
