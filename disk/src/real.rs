//! The real disk: one directory of the file system.

use crate::{Disk, DiskFile};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A real directory.
pub struct DirDisk {
    dir: PathBuf,
    /// Syncs the names. The lock is on the directory too, so that reading a log creates nothing in
    /// it.
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

    /// The directory at `dir`, made if it does not exist. It and its files are readable for their
    /// owner only: they have the keys and names of clients in them.
    pub fn open_or_create(dir: &Path) -> io::Result<Self> {
        create_dir(dir)?;
        Self::open(dir)
    }
}

/// Makes a directory and those above it, and syncs their names.
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
        // A handle of its own: a lock belongs to the open file and ends when that is closed.
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
        // Zeros are written and not just reserved: a sync of reserved room would have to mark it as
        // used each time.
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

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }
}
