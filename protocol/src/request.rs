//! What a client asks for. Decode and encode stand side by side, one pair of arms per operation.
//!
//! In every body the numbers come first, then the byte strings, then the optional fields.
//!
//! A new operation is a number in [`op`], a variant of [`Request`] with its two arms, and an arm in
//! the server's `native/dispatch.rs`, as the compiler asks for. docs/protocol.md gets its row and
//! its bytes; `tests/it/document.rs` compares them with the code.

use crate::codec::{
    MODE_FLAGS, OPTION_HEADER_BYTES, Reader, Writer, at_most, mode_flags, mode_of, option_array,
    read_hold_count, tag, write_hold_count,
};
use crate::error::DecodeError;
use crate::field::{
    Cursor, Fence, Key, Lease, Metadata, Mode, Prefix, RequestId, SessionId, TraceId,
};
use crate::frame::{self, FLAG_REPEATED, Frame, HEADER_BYTES};
use crate::hello::{self, Hello};
use crate::limits;
use bytes::BytesMut;

/// The numbers of the operations.
pub mod op {
    #![allow(
        missing_docs,
        reason = "named after the variants of Request, which say it all"
    )]
    pub const HELLO: u8 = 0x01;
    pub const PING: u8 = 0x02;
    pub const KEEP_ALIVE: u8 = 0x03;
    pub const GOODBYE: u8 = 0x04;
    pub const ACQUIRE: u8 = 0x10;
    pub const RENEW: u8 = 0x11;
    pub const RELEASE: u8 = 0x12;
    pub const DOWNGRADE: u8 = 0x13;
    pub const CANCEL: u8 = 0x14;
    pub const CLAIM: u8 = 0x15;
    /// Reserved: several keys at once. Unknown to version 1.
    pub const ACQUIRE_MANY: u8 = 0x16;
    pub const QUERY: u8 = 0x20;
    pub const LIST: u8 = 0x21;
    /// Reserved: be told when a key changes. Unknown to version 1.
    pub const WATCH: u8 = 0x22;
    pub const SESSIONS: u8 = 0x30;
    pub const STATS: u8 = 0x31;
    pub const FORCE_RELEASE: u8 = 0x32;
    pub const END_SESSION: u8 = 0x33;
}

/// On `Acquire`, `Renew` and `Claim`: the lease lives by the session.
const FLAG_SESSION_BOUND: u8 = 0x02;
/// On `Acquire`.
const FLAG_REENTRANT: u8 = 0x04;
/// On `Acquire`: the lock does not belong to the session.
const FLAG_DETACHED: u8 = 0x08;

/// One request. Its id travels in the [`Frame`], so that an error can be answered even where
/// nothing could be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Opens a connection; the first request on it and only the first. Answered by `Welcome` or
    /// `HelloRefused`.
    Hello(Hello<'a>),
    /// Answered by `Pong`.
    Ping,
    /// Renews the session, and with it every lock bound to it. Answered by `KeptAlive`.
    KeepAlive,
    /// Ends the session: what it holds and waits for is freed at once. Answered by `Bye`.
    Goodbye,
    /// Asks for a lock. Answered, perhaps later, by `Granted`, `Refused`, `TimedOut`, `Cancelled`,
    /// `Busy` or `Unavailable`.
    Acquire(Acquire<'a>),
    /// Gives a lock a new lease from now on. Answered by `Renewed` or `NotHeld`.
    Renew {
        /// Which lock.
        key: Key<'a>,
        /// Of which grant.
        fence: Fence,
        /// The new lease.
        lease: Lease,
    },
    /// Gives a lock back, or one hold of a reentrant one. Answered by `Released` or `NotHeld`.
    Release {
        /// Which lock.
        key: Key<'a>,
        /// Of which grant.
        fence: Fence,
    },
    /// Turns an exclusive lock into a shared one without letting go. Answered by `Granted` or
    /// `NotHeld`.
    Downgrade {
        /// Which lock.
        key: Key<'a>,
        /// Of which grant.
        fence: Fence,
    },
    /// Gives up waiting. Answered by `Cancelled` (so is the acquire, just before) or `NotWaiting`.
    Cancel {
        /// The acquire that waits, on the same connection.
        acquire_id: RequestId,
    },
    /// After a restart of the server: claims a lock held before. Answered by `Granted` with the
    /// same fence, or `NotHeld`.
    Claim(Claim<'a>),
    /// Asks about one key. Answered by `QueryResult`.
    Query {
        /// Which key.
        key: Key<'a>,
    },
    /// Asks for a page of held keys. Answered by `ListPage`.
    List {
        /// What they begin with.
        prefix: Prefix<'a>,
        /// From the page before; empty for the first.
        cursor: Cursor<'a>,
        /// The longest page wanted, up to [`limits::LIST_PAGE_MAX`]; 0 leaves it to the server.
        limit: u16,
    },
    /// For operators: asks for a page of sessions. Answered by `SessionsPage`.
    Sessions {
        /// From the page before; empty for the first.
        cursor: Cursor<'a>,
        /// The longest page wanted, up to [`limits::SESSIONS_PAGE_MAX`]; 0 leaves it to the server.
        limit: u16,
    },
    /// For operators: asks for the server's counters. Answered by `Stats`.
    Stats,
    /// For operators: takes a lock from its holder, which is told. Answered by `Released` or
    /// `NotHeld`.
    ForceRelease {
        /// Which lock.
        key: Key<'a>,
        /// Of which grant, so that the next holder keeps its lock.
        fence: Fence,
        /// Of the operator, for the audit log.
        trace_id: TraceId<'a>,
    },
    /// For operators: ends a session, as its client's `Goodbye` would; its connections are closed.
    /// Answered by `Bye`, or by the error `session_unknown`.
    EndSession {
        /// Which session.
        session_id: SessionId,
    },
    /// An operation from a later version. Answered by an error; the connection goes on.
    Unknown {
        /// Its number.
        op: u8,
    },
}

/// A request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquire<'a> {
    /// What to lock.
    pub key: Key<'a>,
    /// Alone or with others.
    pub mode: Mode,
    /// For how long, from the grant on.
    pub lease: Lease,
    /// How long to wait in the queue, up to [`limits::WAIT_MS_MAX`]; 0 wants an answer at once.
    pub wait_ms: u32,
    /// If this session holds the lock already, count one more hold instead of refusing.
    pub is_reentrant: bool,
    /// The lock does not belong to the session that asks: it lives by its own lease only, and any
    /// session may renew, downgrade or release it by key and fence. Neither reentrant nor bound to
    /// a session.
    pub is_detached: bool,
    /// Shown to refused clients.
    pub metadata: Metadata<'a>,
    /// For the audit log.
    pub trace_id: TraceId<'a>,
    /// How long it has stood in line already, at a server that no longer leads its cluster; up to
    /// [`limits::WAIT_MS_MAX`], and 0 at first. The new leader may put it into the line by its age.
    pub waited_ms: u32,
}

impl<'a> Acquire<'a> {
    /// A plain lock: alone, not waiting, not reentrant, no metadata.
    pub fn exclusive(key: Key<'a>, lease: Lease) -> Self {
        Self {
            key,
            mode: Mode::Exclusive,
            lease,
            wait_ms: 0,
            is_reentrant: false,
            is_detached: false,
            metadata: Metadata::default(),
            trace_id: TraceId::default(),
            waited_ms: 0,
        }
    }
}

/// A lock held before the server restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// What was locked.
    pub key: Key<'a>,
    /// The grant's fence. Of two claims of one key, the higher fence wins.
    pub fence: Fence,
    /// Alone or with others.
    pub mode: Mode,
    /// From now on.
    pub lease: Lease,
    /// How often it is held, for reentrant ones; at least 1.
    pub hold_count: u32,
    /// As it was given to the acquire.
    pub metadata: Metadata<'a>,
    /// As it was given to the acquire; the server that knew it is gone.
    pub trace_id: TraceId<'a>,
}

impl<'a> Request<'a> {
    /// Reads the request in a frame. What later versions add is skipped; what breaks a rule of this
    /// one is an error, for this frame only.
    #[inline(always)]
    pub fn decode(frame: &Frame<'a>) -> Result<Self, DecodeError> {
        if frame.request_id == RequestId::NONE {
            return Err(DecodeError::Zero {
                field: "request id",
            });
        }
        let flags = frame.flags;
        let reader = &mut Reader::new(frame.body);
        let request = match frame.kind {
            op::HELLO => Self::Hello(Hello::read(flags, reader)?),
            op::PING => Self::Ping,
            op::KEEP_ALIVE => Self::KeepAlive,
            op::GOODBYE => Self::Goodbye,
            op::ACQUIRE => Self::Acquire(Acquire::read(flags, reader)?),
            op::RENEW => Self::Renew {
                fence: reader.fence()?,
                lease: reader.lease(flags & FLAG_SESSION_BOUND != 0)?,
                key: reader.key()?,
            },
            op::RELEASE => Self::Release {
                fence: reader.fence()?,
                key: reader.key()?,
            },
            op::DOWNGRADE => Self::Downgrade {
                fence: reader.fence()?,
                key: reader.key()?,
            },
            op::CANCEL => Self::Cancel {
                acquire_id: RequestId::new(reader.u64("the id of the acquire")?),
            },
            op::CLAIM => Self::Claim(Claim::read(flags, reader)?),
            op::QUERY => Self::Query { key: reader.key()? },
            op::LIST => Self::List {
                limit: read_limit(reader, limits::LIST_PAGE_MAX)?,
                prefix: Prefix::read(reader)?,
                cursor: Cursor::read(reader)?,
            },
            op::SESSIONS => Self::Sessions {
                limit: read_limit(reader, limits::SESSIONS_PAGE_MAX)?,
                cursor: Cursor::read(reader)?,
            },
            op::STATS => Self::Stats,
            op::FORCE_RELEASE => Self::ForceRelease {
                fence: reader.fence()?,
                key: reader.key()?,
                trace_id: read_trace_id(reader)?,
            },
            op::END_SESSION => Self::EndSession {
                session_id: SessionId::new(reader.u64("the id of the session")?),
            },
            // An unknown operation may have any flags and any body.
            op => return Ok(Self::Unknown { op }),
        };
        reader.skip_options()?;
        let flags_unknown = flags & !flags_known(frame.kind);
        if flags_unknown != 0 {
            return Err(DecodeError::UnknownFlags {
                op: frame.kind,
                flags: flags_unknown,
            });
        }
        Ok(request)
    }

    /// The key that a frame is about, for reading ahead: nothing else of the frame is read or
    /// checked. `None` for rare operations, and for frames that do not decode.
    #[inline]
    pub fn peek_key(frame: &Frame<'a>) -> Option<Key<'a>> {
        // The numbers in front of the key: lease and wait, a fence, or a fence and a lease.
        let number_bytes = match frame.kind {
            op::ACQUIRE | op::RELEASE => 8,
            op::RENEW => 12,
            _ => return None,
        };
        Reader::new(frame.body.get(number_bytes..)?).key().ok()
    }

    /// Appends the request as one frame. `request_id` must be new to the session and not
    /// [`RequestId::NONE`].
    #[inline]
    pub fn append(&self, request_id: RequestId, out: &mut BytesMut) {
        self.append_with(0, request_id, out);
    }

    /// Appends the request once more, under the id it had: its reply never came, and it must not
    /// take effect twice.
    pub fn append_repeat(&self, request_id: RequestId, out: &mut BytesMut) {
        self.append_with(FLAG_REPEATED, request_id, out);
    }

    #[inline]
    fn append_with(&self, flags: u8, request_id: RequestId, out: &mut BytesMut) {
        debug_assert_ne!(request_id, RequestId::NONE, "{self:?} needs an id");
        let flags = flags | self.flags();
        frame::append(out, self.op(), flags, request_id, |writer| match *self {
            Self::Hello(ref hello) => hello.write(writer),
            Self::Acquire(ref acquire) => acquire.write(writer),
            Self::Renew { key, fence, lease } => {
                writer.u64(fence.get());
                writer.ttl_ms(lease);
                writer.bytes(key.as_bytes());
            }
            Self::Release { key, fence } | Self::Downgrade { key, fence } => {
                writer.u64(fence.get());
                writer.bytes(key.as_bytes());
            }
            Self::ForceRelease {
                key,
                fence,
                trace_id,
            } => {
                writer.u64(fence.get());
                writer.bytes(key.as_bytes());
                writer.option(tag::TRACE_ID, trace_id.as_bytes());
            }
            Self::Cancel { acquire_id } => writer.u64(acquire_id.get()),
            Self::EndSession { session_id } => writer.u64(session_id.get()),
            Self::Claim(ref claim) => claim.write(writer),
            Self::Query { key } => writer.bytes(key.as_bytes()),
            Self::List {
                prefix,
                cursor,
                limit,
            } => {
                writer.u16(limit);
                writer.bytes(prefix.as_bytes());
                writer.bytes(cursor.as_bytes());
            }
            Self::Sessions { cursor, limit } => {
                writer.u16(limit);
                writer.bytes(cursor.as_bytes());
            }
            Self::Ping | Self::KeepAlive | Self::Goodbye | Self::Stats | Self::Unknown { .. } => {}
        });
    }

    /// The number of the operation.
    pub const fn op(&self) -> u8 {
        match *self {
            Self::Hello(_) => op::HELLO,
            Self::Ping => op::PING,
            Self::KeepAlive => op::KEEP_ALIVE,
            Self::Goodbye => op::GOODBYE,
            Self::Acquire(_) => op::ACQUIRE,
            Self::Renew { .. } => op::RENEW,
            Self::Release { .. } => op::RELEASE,
            Self::Downgrade { .. } => op::DOWNGRADE,
            Self::Cancel { .. } => op::CANCEL,
            Self::Claim(_) => op::CLAIM,
            Self::Query { .. } => op::QUERY,
            Self::List { .. } => op::LIST,
            Self::Sessions { .. } => op::SESSIONS,
            Self::Stats => op::STATS,
            Self::ForceRelease { .. } => op::FORCE_RELEASE,
            Self::EndSession { .. } => op::END_SESSION,
            Self::Unknown { op } => op,
        }
    }

    const fn flags(&self) -> u8 {
        match self {
            Self::Hello(hello) => hello.flags(),
            Self::Acquire(acquire) => acquire.flags(),
            Self::Renew { lease, .. } => lease_flags(*lease),
            Self::Claim(claim) => claim.flags(),
            _ => 0,
        }
    }
}

/// The flags that version 1 defines. Others might change what the request means, so they are
/// refused, not ignored.
const fn flags_known(op: u8) -> u8 {
    FLAG_REPEATED
        | match op {
            op::HELLO => hello::FLAG_JOIN,
            op::ACQUIRE => MODE_FLAGS | FLAG_SESSION_BOUND | FLAG_REENTRANT | FLAG_DETACHED,
            op::RENEW => FLAG_SESSION_BOUND,
            op::CLAIM => MODE_FLAGS | FLAG_SESSION_BOUND,
            _ => 0,
        }
}

impl<'a> Acquire<'a> {
    /// An acquire without optional fields, as almost all are.
    const fn frame_bytes(key_bytes: usize) -> usize {
        HEADER_BYTES + (4 + 4) + (2 + key_bytes)
    }

    /// The longest `Acquire`, which is the longest request.
    const FRAME_BYTES_MAX: usize = Self::frame_bytes(limits::KEY_BYTES_MAX)
        + (OPTION_HEADER_BYTES + limits::METADATA_BYTES_MAX)
        + (OPTION_HEADER_BYTES + limits::TRACE_ID_BYTES_MAX)
        + (OPTION_HEADER_BYTES + 4);

    #[inline]
    fn read(flags: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let is_detached = flags & FLAG_DETACHED != 0;
        if is_detached && flags & (FLAG_SESSION_BOUND | FLAG_REENTRANT) != 0 {
            return Err(DecodeError::DetachedWithSession);
        }
        let mut acquire = Self {
            lease: reader.lease(flags & FLAG_SESSION_BOUND != 0)?,
            wait_ms: reader.u32_at_most("wait_ms", limits::WAIT_MS_MAX)?,
            key: reader.key()?,
            mode: mode_of(flags),
            is_reentrant: flags & FLAG_REENTRANT != 0,
            is_detached,
            metadata: Metadata::default(),
            trace_id: TraceId::default(),
            waited_ms: 0,
        };
        let mut options = reader.options();
        while let Some((tag, value)) = options.next()? {
            match tag {
                tag::METADATA => acquire.metadata = Metadata::new(value)?,
                tag::TRACE_ID => acquire.trace_id = TraceId::from_wire(value)?,
                tag::WAITED_MS => {
                    let waited_ms = u32::from_le_bytes(option_array(tag, value)?);
                    acquire.waited_ms = at_most("waited_ms", waited_ms, limits::WAIT_MS_MAX)?;
                }
                _ => {}
            }
        }
        Ok(acquire)
    }

    #[inline]
    fn write(&self, writer: &mut Writer<'_>) {
        writer.ttl_ms(self.lease);
        writer.u32(self.wait_ms);
        writer.bytes(self.key.as_bytes());
        writer.option(tag::METADATA, self.metadata.as_bytes());
        writer.option(tag::TRACE_ID, self.trace_id.as_bytes());
        if self.waited_ms != 0 {
            writer.option(tag::WAITED_MS, &self.waited_ms.to_le_bytes());
        }
    }

    const fn flags(&self) -> u8 {
        let reentrant = if self.is_reentrant { FLAG_REENTRANT } else { 0 };
        let detached = if self.is_detached { FLAG_DETACHED } else { 0 };
        mode_flags(self.mode) | lease_flags(self.lease) | reentrant | detached
    }
}

impl<'a> Claim<'a> {
    fn read(flags: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut claim = Self {
            fence: reader.fence()?,
            lease: reader.lease(flags & FLAG_SESSION_BOUND != 0)?,
            key: reader.key()?,
            mode: mode_of(flags),
            hold_count: 1,
            metadata: Metadata::default(),
            trace_id: TraceId::default(),
        };
        let mut options = reader.options();
        while let Some((tag, value)) = options.next()? {
            match tag {
                tag::METADATA => claim.metadata = Metadata::new(value)?,
                tag::TRACE_ID => claim.trace_id = TraceId::from_wire(value)?,
                tag::HOLD_COUNT => claim.hold_count = read_hold_count(value)?,
                _ => {}
            }
        }
        Ok(claim)
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.fence.get());
        writer.ttl_ms(self.lease);
        writer.bytes(self.key.as_bytes());
        writer.option(tag::METADATA, self.metadata.as_bytes());
        writer.option(tag::TRACE_ID, self.trace_id.as_bytes());
        write_hold_count(self.hold_count, writer);
    }

    const fn flags(&self) -> u8 {
        mode_flags(self.mode) | lease_flags(self.lease)
    }
}

const fn lease_flags(lease: Lease) -> u8 {
    match lease {
        Lease::Ttl { .. } => 0,
        Lease::Session => FLAG_SESSION_BOUND,
    }
}

/// Empty when it is not told. Reads to the end of the optional fields.
fn read_trace_id<'a>(reader: &mut Reader<'a>) -> Result<TraceId<'a>, DecodeError> {
    let mut trace_id = TraceId::default();
    let mut options = reader.options();
    while let Some((tag, value)) = options.next()? {
        if tag == tag::TRACE_ID {
            trace_id = TraceId::from_wire(value)?;
        }
    }
    Ok(trace_id)
}

fn read_limit(reader: &mut Reader<'_>, limit_max: u16) -> Result<u16, DecodeError> {
    let limit = reader.u16("limit")?;
    at_most("limit", limit.into(), limit_max.into())?;
    Ok(limit)
}

// A promise to users: asking for a lock costs one small packet.
const _: () = assert!(Acquire::frame_bytes(16) <= 40);
const _: () = assert!(Acquire::FRAME_BYTES_MAX <= limits::REQUEST_FRAME_BYTES_MAX as usize / 4);

#[cfg(test)]
mod tests;
