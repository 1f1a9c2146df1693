//! What the log says: the kinds of records and their payloads. How they become bytes is in
//! `payload.rs`, how a record stands in a file in `frame.rs`.
//!
//! All numbers are little-endian. A byte string at the end of a payload has no length of its own.
//! Kinds are never given a second meaning and payloads never grow: what is new gets a new kind, and
//! a server that meets a kind it does not know refuses to start, since a newer one wrote it.

pub(crate) mod frame;
pub(crate) mod payload;

use frame::RECORD_BYTES_MAX;
use payload::RecordError;
use std::fmt;
use types::{Fence, Mode};

pub use types::limits::{KEY_BYTES_MAX, NOTE_BYTES_MAX};

/// Bytes of the longest name of a session.
pub const NAME_BYTES_MAX: usize = 256;
/// The largest fence there is.
pub const FENCE_MAX: u64 = Fence::MAX.get();

const _: () =
    assert!(frame::HEADER_BYTES + LEASE_BYTES + KEY_BYTES_MAX + NOTE_BYTES_MAX <= RECORD_BYTES_MAX);

/// Bytes of an entry, or of a ledger's image, that one record carries at most.
pub const PART_BYTES_MAX: usize = 1_900;

const _: () = assert!(frame::HEADER_BYTES + ENTRY_BEGIN_BYTES + PART_BYTES_MAX <= RECORD_BYTES_MAX);

/// Bytes of the first record of an entry before its part.
const ENTRY_BEGIN_BYTES: usize = 2 + 8 + 8 + 8 + 4;

/// The place of an entry in a replicated log: who led when it was proposed, and its index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct EntryId {
    /// The term of the leader that proposed it.
    pub term: u64,
    /// That leader.
    pub node: u64,
    /// Where it stands.
    pub index: u64,
}

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
    /// A session's request was answered with a grant. It stands beside the grant, so that the next
    /// leader of a cluster knows the request when it is repeated. In replicated logs only.
    Answered {
        /// The session that asked.
        session: u64,
        /// Its number for the request.
        request: u64,
        /// The fence of the grant.
        fence: u64,
        /// How often the lock was held then.
        count: u32,
    },
    /// Each thread that appends has ended a turn since the record of this kind before. So
    /// everything that was decided before that one stands before this one. In replicated logs only.
    TurnsEnded,
    /// Which node of a cluster this directory belongs to.
    NodeIs {
        /// The node.
        node: u64,
        /// Random, made with the directory: a node that lost its disk has another one.
        disk: u64,
    },
    /// The latest leader that this node has accepted, or the candidate it has voted for.
    Vote {
        /// Of which replicated log.
        group: u16,
        /// In which term.
        term: u64,
        /// For which node.
        node: u64,
        /// A majority has granted it.
        is_committed: bool,
    },
    /// An entry of a replicated log begins. It takes the place of all entries from its index on.
    EntryBegin {
        /// Of which replicated log.
        group: u16,
        /// Its place there.
        id: EntryId,
        /// Bytes of the whole entry.
        bytes: u32,
        /// The first of them.
        part: &'a [u8],
    },
    /// The entry goes on.
    EntryPart {
        /// Of which replicated log.
        group: u16,
        /// The bytes behind those before.
        part: &'a [u8],
    },
    /// The entries from this index on are gone: another leader has replaced them.
    Truncated {
        /// Of which replicated log.
        group: u16,
        /// The first that is gone.
        from: u64,
    },
    /// The entries up to this one are not needed any more: the ledger's image has what they said.
    Purged {
        /// Of which replicated log.
        group: u16,
        /// The last one that is gone.
        id: EntryId,
    },
    /// In a snapshot of a node's log: a part of the ledger's image.
    ImagePart {
        /// Of which replicated log.
        group: u16,
        /// The bytes behind those before.
        part: &'a [u8],
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
    pub(crate) const CLOCK_PAIR: u8 = 0x09;
    pub(crate) const HORIZON_BOUNDED: u8 = 0x0a;
    pub(crate) const TURNS_ENDED: u8 = 0x0b;
    pub(crate) const SESSION_OPENED: u8 = 0x10;
    pub(crate) const SESSION_KEPT: u8 = 0x11;
    pub(crate) const SESSION_ENDED: u8 = 0x12;
    pub(crate) const GRANTED: u8 = 0x20;
    pub(crate) const RENEWED: u8 = 0x21;
    pub(crate) const RELEASED: u8 = 0x22;
    pub(crate) const DOWNGRADED: u8 = 0x23;
    pub(crate) const ANSWERED: u8 = 0x24;
    pub(crate) const GRANTED_LONG: u8 = 0x25;
    pub(crate) const SNAPSHOT_BEGIN: u8 = 0x30;
    pub(crate) const SNAPSHOT_END: u8 = 0x31;
    pub(crate) const SNAPSHOT_SHOWS: u8 = 0x32;
    pub(crate) const CONTINUED: u8 = 0x40;
    pub(crate) const SYNCED: u8 = 0x41;
    pub(crate) const VOTE: u8 = 0x50;
    pub(crate) const ENTRY_BEGIN: u8 = 0x51;
    pub(crate) const ENTRY_PART: u8 = 0x52;
    pub(crate) const TRUNCATED: u8 = 0x53;
    pub(crate) const PURGED: u8 = 0x54;
    pub(crate) const IMAGE_PART: u8 = 0x55;
    pub(crate) const NODE_IS: u8 = 0x56;
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
        (kind::CEILING..kind::SNAPSHOT_BEGIN).contains(&self.kind()) || self.is_of_node()
    }

    /// Whether it belongs into the log of a cluster's node, and into no other.
    pub(crate) fn is_of_node(&self) -> bool {
        (kind::VOTE..=kind::NODE_IS).contains(&self.kind())
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
            Record::Answered { .. } => kind::ANSWERED,
            Record::TurnsEnded => kind::TURNS_ENDED,
            Record::NodeIs { .. } => kind::NODE_IS,
            Record::Vote { .. } => kind::VOTE,
            Record::EntryBegin { .. } => kind::ENTRY_BEGIN,
            Record::EntryPart { .. } => kind::ENTRY_PART,
            Record::Truncated { .. } => kind::TRUNCATED,
            Record::Purged { .. } => kind::PURGED,
            Record::ImagePart { .. } => kind::IMAGE_PART,
            Record::SnapshotBegin { .. } => kind::SNAPSHOT_BEGIN,
            Record::SnapshotEnd { .. } => kind::SNAPSHOT_END,
            Record::SnapshotShows { .. } => kind::SNAPSHOT_SHOWS,
            Record::Continued { .. } => kind::CONTINUED,
            Record::Synced => kind::SYNCED,
        }
    }
}

/// Reads the records of a [`Batch`](crate::Batch) back from its bytes. Ends after the first error.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Record<'_>, RecordError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((kind, payload, behind)) = frame::split_appended(rest) else {
            rest = &[];
            return Some(Err(RecordError::Malformed {
                kind: 0,
                field: "length",
            }));
        };
        let record = Record::decode(kind, payload);
        rest = if record.is_ok() { behind } else { &[] };
        Some(record)
    })
}

#[cfg(test)]
mod tests;
