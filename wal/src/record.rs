//! What the log says: the kinds of records and their payloads. How they become bytes is in
//! `payload.rs`, how a record stands in a file in `frame.rs`.
//!
//! All numbers are little-endian. A byte string at the end of a payload has no length of its own.
//! Kinds are never given a second meaning and payloads never grow: what is new gets a new kind, and
//! a server that meets a kind it does not know refuses to start, since a newer one wrote it.

pub(crate) mod frame;
pub(crate) mod payload;

use frame::RECORD_BYTES_MAX;
use std::fmt;
use types::{Fence, Mode};

pub use types::limits::{KEY_BYTES_MAX, NOTE_BYTES_MAX};

/// Bytes of the longest name of a session.
pub const NAME_BYTES_MAX: usize = 256;
/// The largest fence there is.
pub const FENCE_MAX: u64 = Fence::MAX.get();

const _: () =
    assert!(frame::HEADER_BYTES + LEASE_BYTES + KEY_BYTES_MAX + NOTE_BYTES_MAX <= RECORD_BYTES_MAX);

/// What a server writes down while it runs, and so what can be believed after it stopped without
/// saying so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Ceilings, horizons and leases longer than a horizon is to cover, with their sessions. Other
    /// leases are in the snapshot of a clean stop and nowhere else.
    Fences,
    /// Every grant, renewal, release and session.
    Leases,
}

impl Scope {
    pub(crate) fn code(self) -> u8 {
        match self {
            Scope::Fences => 1,
            Scope::Leases => 2,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Scope> {
        match code {
            1 => Some(Scope::Fences),
            2 => Some(Scope::Leases),
            _ => None,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Fences => "fences",
            Scope::Leases => "leases",
        })
    }
}

/// One holder of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease<'a> {
    /// What is held.
    pub key: &'a [u8],
    /// Under which fence.
    pub fence: u64,
    /// The session that holds it.
    pub session: u64,
    /// Whether others may hold the key too.
    pub mode: Mode,
    /// It lives as long as its session.
    pub is_session_bound: bool,
    /// How often the holder has it: 1, or more if reentrant.
    pub count: u32,
    /// When it ends by itself. For a session's lease, when the session did as far as was known.
    pub until_unix_ms: u64,
    /// Since when it is held.
    pub granted_unix_ms: u64,
    /// What the holder said with its request.
    pub note: &'a [u8],
}

/// Bytes of a granted lease before its key.
pub(crate) const LEASE_BYTES: usize = 8 + 8 + 8 + 8 + 4 + 1 + 2;
pub(crate) const SHARED: u8 = 1 << 0;
pub(crate) const SESSION_BOUND: u8 = 1 << 1;

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// A server began to write. Written by the log itself when it is opened.
    Started {
        /// When.
        unix_ms: u64,
        /// What it writes down.
        scope: Scope,
    },
    /// A server stopped in good order. Written by the log itself when it is closed.
    CleanStop {
        /// When.
        unix_ms: u64,
    },
    /// Fences of this shard up to this one may have been issued.
    Ceiling {
        /// Which shard.
        shard: u16,
        /// The largest that may be issued.
        fence: u64,
    },
    /// No lease that is not written down ends later than this.
    Horizon {
        /// When the last one may end.
        unix_ms: u64,
        /// How long such a lease may last at most. `None` in logs of servers that had no such
        /// bound.
        lease_ms_max: Option<u32>,
    },
    /// What the log's own clock and the wall clock showed at one moment.
    Clock {
        /// By the log's clock, as every other time in the log.
        unix_ms: u64,
        /// By the wall clock. `None` in logs of servers that wrote the wall clock everywhere.
        wall_unix_ms: Option<u64>,
    },
    /// A session began.
    SessionOpened {
        /// Which.
        session: u64,
        /// How long it outlives its last sign of life.
        ttl_ms: u32,
        /// When it ends unless it is kept alive.
        deadline_unix_ms: u64,
        /// What its client called itself.
        name: &'a [u8],
    },
    /// A session gave a sign of life.
    SessionKept {
        /// Which.
        session: u64,
        /// When it ends now.
        deadline_unix_ms: u64,
    },
    /// A session ended, and with it everything it held.
    SessionEnded {
        /// Which.
        session: u64,
    },
    /// A lock was granted, or granted again to its reentrant holder.
    Granted(Lease<'a>),
    /// The same for a lease longer than a server that writes down fences only leaves to its
    /// horizon: it is written down one by one until it ends.
    GrantedLong(Lease<'a>),
    /// A lease was renewed.
    Renewed {
        /// Of which key.
        key: &'a [u8],
        /// Under which fence.
        fence: u64,
        /// When it ends now.
        until_unix_ms: u64,
    },
    /// A lock was released, or taken away.
    Released {
        /// Of which key.
        key: &'a [u8],
        /// Under which fence.
        fence: u64,
        /// How often it is still held: 0 unless it was reentrant.
        count_left: u32,
    },
    /// An exclusive lock became a shared one.
    Downgraded {
        /// Of which key.
        key: &'a [u8],
        /// Under which fence.
        fence: u64,
    },
    /// First in a snapshot.
    SnapshotBegin {
        /// When it was begun.
        unix_ms: u64,
        /// What the server wrote down that made it.
        scope: Scope,
    },
    /// In a snapshot, before its leases: those show everything that the log says of leases before
    /// this position.
    SnapshotShows {
        /// At or behind the position at which the snapshot begins.
        log_position: u64,
    },
    /// Last in a snapshot.
    SnapshotEnd {
        /// How many records stand between the beginning and this.
        records: u64,
        /// So much of the log was on the disk when the snapshot was completed.
        log_end: u64,
        /// CRC32C of the checksums of all records before this, each as four bytes.
        chain: u32,
    },
    /// Behind the last record of a segment: the log goes on in another file, which must exist.
    Continued {
        /// The segment it goes on in.
        sequence: u64,
    },
    /// Behind the last record while there is nothing to write: everything before this was on the
    /// disk before this was written. The next record takes its place.
    Synced,
}

/// The bytes that stand for the kinds.
pub(crate) mod kind {
    pub(crate) const STARTED: u8 = 0x01;
    pub(crate) const CLEAN_STOP: u8 = 0x02;
    pub(crate) const CEILING: u8 = 0x03;
    pub(crate) const HORIZON: u8 = 0x04;
    pub(crate) const CLOCK: u8 = 0x05;
    // 0x06 to 0x08 are left to the cluster.
    pub(crate) const CLOCK_PAIR: u8 = 0x09;
    pub(crate) const HORIZON_BOUNDED: u8 = 0x0a;
    pub(crate) const SESSION_OPENED: u8 = 0x10;
    pub(crate) const SESSION_KEPT: u8 = 0x11;
    pub(crate) const SESSION_ENDED: u8 = 0x12;
    pub(crate) const GRANTED: u8 = 0x20;
    pub(crate) const RENEWED: u8 = 0x21;
    pub(crate) const RELEASED: u8 = 0x22;
    pub(crate) const DOWNGRADED: u8 = 0x23;
    // 0x24 is left to the cluster.
    pub(crate) const GRANTED_LONG: u8 = 0x25;
    pub(crate) const SNAPSHOT_BEGIN: u8 = 0x30;
    pub(crate) const SNAPSHOT_END: u8 = 0x31;
    pub(crate) const SNAPSHOT_SHOWS: u8 = 0x32;
    pub(crate) const CONTINUED: u8 = 0x40;
    pub(crate) const SYNCED: u8 = 0x41;
}

/// Bytes of the record that ends a snapshot.
pub(crate) const SNAPSHOT_END_BYTES: usize = frame::HEADER_BYTES + 8 + 8 + 4;
/// Bytes of the record that leads from one segment to the next.
pub(crate) const CONTINUED_BYTES: usize = frame::HEADER_BYTES + 8;

impl<'a> Record<'a> {
    /// Appends the record to `out`, without its place in the log.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        frame::append(out, self.kind(), |out| self.encode(out));
    }

    /// Whether it is for callers of the log to write, and not for the log itself.
    pub(crate) fn is_callers(&self) -> bool {
        (kind::CEILING..kind::SNAPSHOT_BEGIN).contains(&self.kind())
    }

    /// The byte that says what kind of record this is.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Record::Started { .. } => kind::STARTED,
            Record::CleanStop { .. } => kind::CLEAN_STOP,
            Record::Ceiling { .. } => kind::CEILING,
            Record::Horizon {
                lease_ms_max: None, ..
            } => kind::HORIZON,
            Record::Horizon { .. } => kind::HORIZON_BOUNDED,
            Record::Clock {
                wall_unix_ms: None, ..
            } => kind::CLOCK,
            Record::Clock { .. } => kind::CLOCK_PAIR,
            Record::SessionOpened { .. } => kind::SESSION_OPENED,
            Record::SessionKept { .. } => kind::SESSION_KEPT,
            Record::SessionEnded { .. } => kind::SESSION_ENDED,
            Record::Granted(_) => kind::GRANTED,
            Record::GrantedLong(_) => kind::GRANTED_LONG,
            Record::Renewed { .. } => kind::RENEWED,
            Record::Released { .. } => kind::RELEASED,
            Record::Downgraded { .. } => kind::DOWNGRADED,
            Record::SnapshotBegin { .. } => kind::SNAPSHOT_BEGIN,
            Record::SnapshotEnd { .. } => kind::SNAPSHOT_END,
            Record::SnapshotShows { .. } => kind::SNAPSHOT_SHOWS,
            Record::Continued { .. } => kind::CONTINUED,
            Record::Synced => kind::SYNCED,
        }
    }
}

#[cfg(test)]
mod tests;
