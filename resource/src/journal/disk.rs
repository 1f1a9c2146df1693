//! What the log asks of a disk, and the real one. The tests have one that forgets what was not synced.
//!
//! Bytes of a file are durable after its `sync`; a name, or its change, after `sync_names`.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A directory for one log.
pub(super) trait Disk {
    type File: DiskFile;

    /// Where a file is, for messages.
    fn path(&self, name: &str) -> PathBuf;

    /// Opens a file that exists.
    fn open(&self, name: &str) -> io::Result<Option<Self::File>>;

    /// Makes an empty file, in the place of any of that name.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Gives a file another name, atomically; a file that had it is gone.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    fn remove(&self, name: &str) -> io::Result<()>;

    fn sync_names(&self) -> io::Result<()>;
}

/// An open file.
pub(super) trait DiskFile {
    fn bytes(&self) -> io::Result<u64>;

    /// Reads at most as much as fits, and nothing at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes everything at `offset`, making the file longer if need be.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts off what lies behind.
    fn shorten(&self, bytes: u64) -> io::Result<()>;

    /// Waits until everything is on the disk that it takes to read the file back.
    fn sync(&self) -> io::Result<()>;
}

/// A real directory, locked.
pub(super) struct Dir {
    path: PathBuf,
    /// The lock is this handle's; it also syncs the names.
    handle: File,
}

impl Dir {
    /// Opens a directory, which is made if need be. `None`: another process has it.
    pub(super) fn open(path: &Path) -> io::Result<Option<Dir>> {
        create_dir(path)?;
        let handle = File::open(path)?;
        match handle.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(Some(Dir {
            path: path.to_owned(),
            handle,
        }))
    }
}

/// Makes a directory and those above it. Their names must outlast a power cut, as what lies in them does.
fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = dir.parent().filter(|above| *above != Path::new(""));
    let above = above.unwrap_or(Path::new("."));
    create_dir(above)?;
    DirBuilder::new().mode(0o700).create(dir)?;
    File::open(above)?.sync_all()
}

impl Disk for Dir {
    type File = File;

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn open(&self, name: &str) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        match options.read(true).write(true).open(self.path(name)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Values are nobody else's business: the file is for its owner only.
    fn create(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        options.mode(0o600).open(self.path(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.handle.sync_all()
    }
}

impl DiskFile for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync: it includes the length, which is all of the metadata that reading takes.
        self.sync_data()
    }
}
