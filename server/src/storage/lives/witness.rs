//! The disk that a server is killed on while it starts.

use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::Arc;
use wal::forgetful::ForgetfulDisk;
use wal::{Disk, DiskFile};

/// A disk that keeps a copy of itself as it was just before a given change.
pub(super) struct Witness {
    pub(super) disk: ForgetfulDisk,
    pub(super) change: u64,
    /// The copy.
    pub(super) left: Arc<Mutex<Option<ForgetfulDisk>>>,
}

/// A file of it.
struct WitnessFile {
    file: Box<dyn DiskFile>,
    witness: Witness,
}

impl Witness {
    fn look(&self) {
        let mut left = self.left.lock();
        if left.is_none() && self.disk.changes() >= self.change {
            *left = Some(self.disk.kill());
        }
    }

    fn file(&self, file: io::Result<Box<dyn DiskFile>>) -> io::Result<Box<dyn DiskFile>> {
        let witness = Witness {
            disk: self.disk.clone(),
            change: self.change,
            left: self.left.clone(),
        };
        Ok(Box::new(WitnessFile {
            file: file?,
            witness,
        }))
    }
}

impl Disk for Witness {
    fn dir(&self) -> &Path {
        self.disk.dir()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.disk.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open_read(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.file(self.disk.open_read(name))
    }

    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.file(self.disk.open_write(name))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        self.look();
        self.file(self.disk.create(name, bytes))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.look();
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.look();
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.look();
        self.disk.sync_dir()
    }
}

impl DiskFile for WitnessFile {
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.witness.look();
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.witness.look();
        self.file.sync_data()
    }
}
