//! How far the fences of a directory have come, for a server that grants fences without writing them down.
//!
//! `durability = none` keeps nothing, but it may follow a server that did, in the same directory and for the same
//! resources. Its fences must not fall below those. So it reads the log, and leaves the directory exactly as it is: it takes
//! no lock, since it would keep nobody from anything, and it writes nothing.

use super::error::{IoFailure, WalError};
use super::file::{Blame, DirDisk, Disk};
use super::record::Record;
use super::replay::{self, Place, Visitor};
use super::state::BrokenRule;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The highest ceiling of a log, and the latest time that the log knows of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Highest {
    /// No fence above this was issued by a server that wrote to the log. 0 if there is no log.
    pub ceiling: u64,
    /// What the wall clock showed when the log last said so: after the last server's start. 0 if there is no log.
    pub clock_unix_ms: u64,
}

impl Highest {
    /// Reads the directory at `dir`. A directory that does not exist has no log.
    ///
    /// `None`: another server is writing to it while we read, so there is no last state to find.
    pub fn read(dir: &Path) -> Result<Option<Highest>, WalError> {
        match DirDisk::open(dir) {
            Ok(disk) => Self::read_on(&disk),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Highest::default())),
            Err(error) => Err(WalError::Io(IoFailure {
                action: "open",
                path: dir.to_owned(),
                source: Arc::new(error),
            })),
        }
    }

    pub(crate) fn read_on(disk: &dyn Disk) -> Result<Option<Highest>, WalError> {
        let is_in_use = || -> Result<bool, WalError> {
            // Given back at once.
            Ok(disk.lock().blame("lock", disk, "")?.is_none())
        };
        if is_in_use()? {
            return Ok(None);
        }
        let mut highest = Highest::default();
        match replay::walk(disk, &mut highest) {
            Ok(_) => Ok(Some(highest)),
            // A server that has started meanwhile changes what we read; damage stays.
            Err(_) if is_in_use()? => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Visitor for Highest {
    fn snapshot(&mut self, place: Place, record: &Record<'_>) -> Result<(), BrokenRule> {
        self.log(place, record)
    }

    fn log(&mut self, _: Place, record: &Record<'_>) -> Result<(), BrokenRule> {
        match *record {
            Record::Ceiling { fence, .. } => self.ceiling = self.ceiling.max(fence),
            Record::Clock {
                unix_ms,
                wall_unix_ms,
            } => self.clock_unix_ms = wall_unix_ms.unwrap_or(unix_ms),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
