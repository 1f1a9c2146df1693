//! A directory in memory.

use super::super::file::{Disk, DiskFile};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

type Bytes = Arc<Mutex<Vec<u8>>>;

/// Keeps what is written, and refuses nothing.
pub(crate) struct MemoryDisk(Mutex<BTreeMap<String, Bytes>>);

struct MemoryFile(Bytes);

impl MemoryDisk {
    pub(crate) fn with(files: Vec<(String, Vec<u8>)>) -> Arc<dyn Disk> {
        let files = files.into_iter();
        let files = files.map(|(name, bytes)| (name, Arc::new(Mutex::new(bytes))));
        Arc::new(MemoryDisk(Mutex::new(files.collect())))
    }

    fn find(&self, name: &str) -> io::Result<Bytes> {
        let found = self.0.lock().get(name).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for MemoryDisk {
    fn dir(&self) -> &Path {
        Path::new("memory")
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        Ok(Some(Box::new(())))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().keys().cloned().collect())
    }

    fn open_read(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.open_write(name)
    }

    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(MemoryFile(self.find(name)?)))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        let file: Bytes = Arc::new(Mutex::new(vec![0; bytes as usize]));
        self.0.lock().insert(name.to_owned(), file.clone());
        Ok(Box::new(MemoryFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let file = self.find(from)?;
        let mut files = self.0.lock();
        files.remove(from);
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.find(name)?;
        self.0.lock().remove(name);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.0.lock();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let wanted = bytes.get(start..start.saturating_add(buffer.len()));
        buffer.copy_from_slice(wanted.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut file = self.0.lock();
        let end = offset as usize + bytes.len();
        if file.len() < end {
            file.resize(end, 0);
        }
        file[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}
