//! The file of the audit log: appended to, opened again at a signal, renamed when it is large
//! enough.
//!
//! The server renames only a regular file that still is what it writes to. So a log that goes to
//! `/dev/stderr` or a pipe is left alone, and so is one that another program has moved away.

use super::sink::Sink;
use crate::observe::history::files::{Tail, renamed, renamed_at, renamed_files};
use parking_lot::Mutex;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// When a file is renamed, and how many stay.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Rotation {
    /// Zero: it is not renamed.
    pub(crate) bytes: u64,
    /// How many files stay, the one that is written included. Zero: all.
    pub(crate) files_max: u32,
}

/// The file that is written, and the slot where `reopen` leaves the next one.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// The size at which it is renamed.
    due_bytes: u64,
    rotation: Rotation,
    next: Arc<Mutex<Option<File>>>,
}

impl LogFile {
    /// Opens the file for appending, and says how the log ends so far.
    pub(super) fn open(
        path: &Path,
        rotation: Rotation,
        next: Arc<Mutex<Option<File>>>,
    ) -> io::Result<(LogFile, Tail)> {
        // A pipe or a terminal cannot be read back, and has no neighbours.
        let tail = match std::fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => Tail::default(),
            _ => Tail::of_log(path)?,
        };
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        let log_file = LogFile {
            path: path.to_owned(),
            file,
            bytes,
            due_bytes: rotation.bytes,
            rotation,
            next,
        };
        Ok((log_file, tail))
    }

    fn go_on_in(&mut self, file: File) {
        if let Err(error) = self.sync() {
            tracing::error!("the audit log so far may not have reached the disk: {error}");
        }
        self.bytes = file.metadata().map_or(0, |metadata| metadata.len());
        self.due_bytes = self.rotation.bytes;
        self.file = file;
    }

    /// Whether the name still leads to the file that is written.
    fn is_in_place(&self) -> io::Result<bool> {
        let (named, own) = (
            std::fs::symlink_metadata(&self.path)?,
            self.file.metadata()?,
        );
        Ok(named.is_file() && (named.dev(), named.ino()) == (own.dev(), own.ino()))
    }

    fn rename(&mut self, last_seq: u64) -> io::Result<()> {
        if !self.is_in_place()? {
            return Ok(());
        }
        let old = renamed(&self.path, last_seq);
        // Never onto another file: that would be the end of its lines.
        renameat_with(CWD, &self.path, CWD, &old, RenameFlags::NOREPLACE)?;
        let file = match open(&self.path) {
            Ok(file) => file,
            Err(error) => {
                // The lines go on in the old file; under its old name a reader expects them.
                let _ = renameat_with(CWD, &old, CWD, &self.path, RenameFlags::NOREPLACE);
                return Err(error);
            }
        };
        self.go_on_in(file);
        self.remove_oldest()
    }

    fn remove_oldest(&self) -> io::Result<()> {
        if self.rotation.files_max == 0 {
            return Ok(());
        }
        let mut old: Vec<(u64, PathBuf)> = renamed_files(&self.path)?
            .into_iter()
            .filter_map(|path| Some((renamed_at(&path, &self.path)?, path)))
            .collect();
        old.sort_unstable();
        let stay = self.rotation.files_max as usize - 1;
        let gone = old.len().saturating_sub(stay);
        for (_, path) in &old[..gone] {
            std::fs::remove_file(path)?;
        }
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Sink for LogFile {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn turn_over(&mut self, last_seq: u64) {
        let next = self.next.lock().take();
        if let Some(next) = next {
            return self.go_on_in(next);
        }
        if self.rotation.bytes == 0 || self.bytes < self.due_bytes {
            return;
        }
        // Not tried again at every line if it fails or cannot be.
        self.due_bytes = self.bytes + self.rotation.bytes;
        if let Err(error) = self.rename(last_seq) {
            let path = self.path.display();
            tracing::error!("the audit log {path} cannot be rotated: {error}");
        }
    }
}

pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).append(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // Keys and clients' names are not for other users of the machine.
        options.mode(0o640);
    }
    options.open(path)
}
