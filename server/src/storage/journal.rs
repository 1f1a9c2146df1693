//! Where records go, and how their appenders learn that they are safe there. Cores, keeper and
//! start-up append and wait through this type alone.
//!
//! | variant | settled is                                                        |
//! |---------|-------------------------------------------------------------------|
//! | `Disk`  | what this server's disk has synced                                |
//! | `Group` | what a majority of a cluster's nodes has, and this node's ledger  |
//!
//! What concerns the files of the log (snapshots, segments, their numbers) is not part of the seam:
//! see [`Journal::disk`].

use cluster::propose::Reign;
use std::sync::Arc;
use wal::{Batch, Record, Ticket, Wal, WalError};

#[allow(
    clippy::large_enum_variant,
    reason = "a server has one; not large with all features"
)]
pub(crate) enum Journal {
    Disk(Wal),
    /// One leadership of a cluster's node, and the log on that node's disk.
    Group(Arc<Reign>, Arc<Wal>),
}

impl Journal {
    /// Appends records, all at once. Never waits, never refuses: what they say has happened.
    ///
    /// Without records, the ticket of a `Group` comes up when an entry is committed that was
    /// proposed after this call: see [`Journal::holds_all_replies`].
    #[inline]
    pub(crate) fn append_batch(&self, records: Batch) -> Ticket {
        match self {
            Journal::Disk(wal) => wal.append_batch(records),
            Journal::Group(reign, _) => reign.append_batch(records),
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
            Journal::Group(reign, _) => reign.issued(),
        }
    }

    /// Everything up to this ticket survives a crash, and may be acknowledged.
    #[inline]
    pub(crate) fn settled(&self) -> Ticket {
        match self {
            Journal::Disk(wal) => wal.synced(),
            Journal::Group(reign, _) => reign.settled(),
        }
    }

    /// Blocks until everything up to `ticket` is settled, or never will be: the disk has failed, or
    /// the leadership is over.
    pub(crate) fn wait(&self, ticket: Ticket) -> Result<(), WalError> {
        match self {
            Journal::Disk(wal) => wal.wait(ticket),
            Journal::Group(reign, _) => reign.wait(ticket).map_err(|_| WalError::Closed),
        }
    }

    /// Whether more waits to be settled than should: callers read no further requests until less
    /// does.
    #[inline]
    pub(crate) fn is_congested(&self) -> bool {
        match self {
            Journal::Disk(wal) => wal.is_congested(),
            // Also while this node's own disk is behind the others', which commits do not wait for.
            Journal::Group(reign, wal) => reign.is_congested() || wal.is_congested(),
        }
    }

    /// Whether every reply waits, also one that follows from no record. Another node may lead
    /// already, without this one knowing: what it saw is true only if an entry is committed that
    /// was proposed after it looked.
    #[inline]
    pub(crate) fn holds_all_replies(&self) -> bool {
        matches!(self, Journal::Group(..))
    }

    /// The log on this node's disk, for those parts of the server that look after its files.
    pub(crate) fn disk(&self) -> &Wal {
        match self {
            Journal::Disk(wal) => wal,
            Journal::Group(_, wal) => wal,
        }
    }
}
