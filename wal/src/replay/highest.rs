//! How far the fences of a directory have come, for a server that grants fences without writing
//! them down.
//!
//! `durability = none` keeps nothing, but it may follow a server that did, in the same directory
//! and for the same resources. Its fences must not fall below those. So it reads the log, and
//! leaves the directory exactly as it is: it does not lock it, since a server that needs the
//! directory must not find it in use, and it writes nothing.

use crate::error::BrokenRule;
use crate::error::{Blame, IoFailure, WalError};
use crate::record::Record;
use crate::replay::{self, Place, Visitor};
use disk::{DirDisk, Disk};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The highest ceiling of a log, and the latest time that the log knows of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Highest {
    /// No fence above this was issued by a server that wrote to the log. 0 if there is no log.
    pub ceiling: u64,
    /// What the wall clock showed when the log last said so: after the last server's start. 0 if
    /// there is no log.
    pub clock_unix_ms: u64,
}

impl Highest {
    /// Reads the directory at `dir`. A directory that does not exist has no log.
    ///
    /// `None`: it cannot be read because another server is writing to it.
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

    /// The same on any disk.
    pub fn read_on(disk: &dyn Disk) -> Result<Option<Highest>, WalError> {
        let mut highest = Highest::default();
        let error = match replay::walk(disk, &mut highest) {
            Ok(_) => return Ok(Some(highest)),
            Err(error) => error,
        };
        // What another server is just writing may look like damage. The lock is given back at once.
        let is_in_use = disk.lock().blame("lock", disk, "")?.is_none();
        match is_in_use {
            true => Ok(None),
            false => Err(error.into()),
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
