//! Where records go, and how their appenders learn that they are safe there. Cores, keeper and
//! start-up append and wait through this type alone, so another log can take the place of the one
//! on this node's disk: a replicated one settles a ticket when a majority has its records.
//!
//! With one variant, every call is a call of [`Wal`]. What concerns the files of the log
//! (snapshots, segments, their numbers) is not part of the seam: see [`Journal::disk`].

use wal::{Batch, Record, Ticket, Wal, WalError};

pub(crate) enum Journal {
    /// Settled is what this node's disk has synced.
    Disk(Wal),
}

impl Journal {
    /// Appends records, all at once. Never waits, never refuses: what they say has happened.
    #[inline]
    pub(crate) fn append_batch(&self, records: Batch) -> Ticket {
        match self {
            Journal::Disk(wal) => wal.append_batch(records),
        }
    }

    /// Appends one record.
    pub(crate) fn append(&self, record: &Record<'_>) -> Ticket {
        let mut records = Batch::new();
        records.push(record);
        self.append_batch(records)
    }

    /// A ticket that is settled when everything is that any thread has appended by now.
    #[inline]
    pub(crate) fn barrier(&self) -> Ticket {
        match self {
            Journal::Disk(wal) => wal.barrier(),
        }
    }

    /// Everything up to this ticket survives a crash, and may be acknowledged.
    #[inline]
    pub(crate) fn settled(&self) -> Ticket {
        match self {
            Journal::Disk(wal) => wal.synced(),
        }
    }

    /// Blocks until everything up to `ticket` is settled, or never will be.
    pub(crate) fn wait(&self, ticket: Ticket) -> Result<(), WalError> {
        match self {
            Journal::Disk(wal) => wal.wait(ticket),
        }
    }

    /// Whether more waits to be settled than should: callers read no further requests until less
    /// does.
    #[inline]
    pub(crate) fn is_congested(&self) -> bool {
        match self {
            Journal::Disk(wal) => wal.is_congested(),
        }
    }

    /// The log on this node's disk, for those parts of the server that look after its files.
    pub(crate) fn disk(&self) -> &Wal {
        match self {
            Journal::Disk(wal) => wal,
        }
    }
}
