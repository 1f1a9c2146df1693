//! What a server answers: every request exactly once, under its own id.
//!
//! Contention ([`Reply::Refused`], [`Reply::Busy`], ...) is an answer like any other;
//! [`Reply::Error`] means that the request itself was wrong.

use crate::code::{BusyBound, ErrorCode, NotHeldReason, UnavailableReason};
use crate::codec::{
    OPTION_HEADER_BYTES, Reader, read_hold_count, read_recovering, tag, write_hold_count,
    write_recovering,
};
use crate::error::DecodeError;
use crate::field::{Cursor, Fence, Message, NodeAddress, RequestId, read_leader};
use crate::frame::{self, Frame, HEADER_BYTES};
use crate::hello::Welcome;
use crate::limits;
use crate::record::{Contention, Holder, LockEntry, Records, SessionEntry, StatEntry};
use bytes::BytesMut;

/// The numbers of the replies.
pub mod kind {
    #![allow(
        missing_docs,
        reason = "named after the variants of Reply, which say it all"
    )]
    pub const ERROR: u8 = 0x80;
    pub const WELCOME: u8 = 0x81;
    pub const HELLO_REFUSED: u8 = 0x82;
    pub const PONG: u8 = 0x83;
    pub const KEPT_ALIVE: u8 = 0x84;
    pub const BYE: u8 = 0x85;
    pub const GRANTED: u8 = 0x90;
    pub const REFUSED: u8 = 0x91;
    pub const TIMED_OUT: u8 = 0x92;
    pub const CANCELLED: u8 = 0x93;
    pub const NOT_WAITING: u8 = 0x94;
    pub const BUSY: u8 = 0x95;
    pub const UNAVAILABLE: u8 = 0x96;
    pub const RENEWED: u8 = 0x97;
    pub const RELEASED: u8 = 0x98;
    pub const NOT_HELD: u8 = 0x99;
    pub const QUERY_RESULT: u8 = 0xa0;
    pub const LIST_PAGE: u8 = 0xa1;
    pub const SESSIONS_PAGE: u8 = 0xa2;
    pub const STATS: u8 = 0xa3;
}

/// One reply. The id of its request travels in the [`Frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The request did nothing. Under [`RequestId::NONE`] it concerns the connection, which then
    /// closes.
    Error {
        /// For programs.
        code: ErrorCode,
        /// For people.
        message: Message<'a>,
        /// With [`ErrorCode::NOT_LEADER`]: who leads, if that is known; otherwise empty.
        leader: NodeAddress<'a>,
    },
    /// The connection is open.
    Welcome(Welcome<'a>),
    /// The connection is refused and closes.
    HelloRefused {
        /// For programs.
        code: ErrorCode,
        /// The oldest version the server speaks.
        version_min: u16,
        /// The newest version the server speaks.
        version_max: u16,
        /// For people.
        message: Message<'a>,
        /// With [`ErrorCode::NOT_LEADER`]: who leads, if that is known; otherwise empty.
        leader: NodeAddress<'a>,
    },
    /// Answers `Ping`.
    Pong,
    /// The session lives on.
    KeptAlive {
        /// For this long.
        ttl_ms: u32,
    },
    /// The session has ended; the connection closes.
    Bye,
    /// The lock is held: answers `Acquire`, `Downgrade` and `Claim`.
    Granted {
        /// Goes with every request to the protected resource.
        fence: Fence,
        /// For this long. Where the lease lives by the session, what is left of the session's time.
        ttl_ms: u32,
        /// How often this session now holds it; more than 1 only when reentrant.
        hold_count: u32,
    },
    /// The lock is held, and the request would not wait.
    Refused(Contention<'a>),
    /// The request waited in vain.
    TimedOut(Contention<'a>),
    /// The wait is over without a lock: answers the acquire that waited, and then the `Cancel`.
    Cancelled,
    /// There was nothing to cancel: the acquire has been answered already.
    NotWaiting,
    /// A bound was hit; nothing happened.
    Busy {
        /// Which one.
        bound: BusyBound,
        /// When to try again, at a guess; 0 for no guess.
        retry_after_ms: u32,
    },
    /// The server grants nothing at the moment.
    Unavailable {
        /// Why.
        reason: UnavailableReason,
        /// When to try again, at a guess; 0 for no guess.
        retry_after_ms: u32,
    },
    /// The lease starts afresh.
    Renewed {
        /// For this long. Where the lease lives by the session, what is left of the session's time.
        ttl_ms: u32,
    },
    /// One hold was given back.
    Released {
        /// The holds that remain; 0 means that the lock is free.
        remaining_count: u32,
    },
    /// There is no such lock to renew, release, downgrade, claim or take away. Nothing happened.
    NotHeld {
        /// What the server knows of it.
        reason: NotHeldReason,
    },
    /// The state of one key.
    QueryResult {
        /// The fence of its newest grant, if the server remembers one.
        last_fence: Option<Fence>,
        /// How many hold it; 0 means that it is free, unless the server recovers.
        holder_count: u32,
        /// How many wait for it.
        queue_length: u32,
        /// As many of the holders as fit.
        holders: Records<'a, Holder<'a>>,
        /// The server was restarted and does not know all holders for this much longer: the key may
        /// be held by others.
        recovering_ms: Option<u32>,
    },
    /// Some of the held keys.
    ListPage {
        /// Where the next page begins; empty after the last.
        next: Cursor<'a>,
        /// In no promised order. A key held all along is listed once at least; others may be missed
        /// or come twice.
        entries: Records<'a, LockEntry<'a>>,
        /// The server was restarted and does not know all holders for this much longer: more keys
        /// may be held.
        recovering_ms: Option<u32>,
    },
    /// Some of the sessions.
    SessionsPage {
        /// Where the next page begins; empty after the last.
        next: Cursor<'a>,
        /// In no promised order.
        entries: Records<'a, SessionEntry<'a>>,
    },
    /// The server's counters.
    Stats {
        /// By name.
        entries: Records<'a, StatEntry<'a>>,
    },
    /// An answer from a later version: the request failed, as far as this client can tell.
    Unknown {
        /// Its number.
        kind: u8,
    },
}

impl<'a> Reply<'a> {
    /// Reads the reply in a frame. What later versions add is skipped.
    pub fn decode(frame: &Frame<'a>) -> Result<Self, DecodeError> {
        let reader = &mut Reader::new(frame.body);
        let reply = match frame.kind {
            kind::ERROR => Self::Error {
                code: ErrorCode(reader.u16("code")?),
                message: Message::read(reader)?,
                leader: read_leader(reader)?,
            },
            kind::WELCOME => Self::Welcome(Welcome::read(frame.flags, reader)?),
            kind::HELLO_REFUSED => Self::HelloRefused {
                code: ErrorCode(reader.u16("code")?),
                version_min: reader.u16("version_min")?,
                version_max: reader.u16("version_max")?,
                message: Message::read(reader)?,
                leader: read_leader(reader)?,
            },
            kind::PONG => Self::Pong,
            kind::KEPT_ALIVE => Self::KeptAlive {
                ttl_ms: reader.u32("ttl_ms")?,
            },
            kind::BYE => Self::Bye,
            kind::GRANTED => {
                let fence = reader.fence()?;
                let ttl_ms = reader.u32("ttl_ms")?;
                let mut hold_count = 1;
                let mut options = reader.options();
                while let Some((tag, value)) = options.next()? {
                    if tag == tag::HOLD_COUNT {
                        hold_count = read_hold_count(value)?;
                    }
                }
                Self::Granted {
                    fence,
                    ttl_ms,
                    hold_count,
                }
            }
            kind::REFUSED => Self::Refused(Contention::read_reply(reader)?),
            kind::TIMED_OUT => Self::TimedOut(Contention::read_reply(reader)?),
            kind::CANCELLED => Self::Cancelled,
            kind::NOT_WAITING => Self::NotWaiting,
            kind::BUSY => Self::Busy {
                bound: BusyBound(reader.u8("bound")?),
                retry_after_ms: reader.u32("retry_after_ms")?,
            },
            kind::UNAVAILABLE => Self::Unavailable {
                reason: UnavailableReason(reader.u8("reason")?),
                retry_after_ms: reader.u32("retry_after_ms")?,
            },
            kind::RENEWED => Self::Renewed {
                ttl_ms: reader.u32("ttl_ms")?,
            },
            kind::RELEASED => Self::Released {
                remaining_count: reader.u32("remaining_count")?,
            },
            kind::NOT_HELD => Self::NotHeld {
                reason: NotHeldReason(reader.u8("reason")?),
            },
            kind::QUERY_RESULT => Self::QueryResult {
                last_fence: Fence::new(reader.u64("last_fence")?),
                holder_count: reader.u32("holder_count")?,
                queue_length: reader.u32("queue_length")?,
                holders: Records::read(reader)?,
                recovering_ms: read_recovering(reader)?,
            },
            kind::LIST_PAGE => Self::ListPage {
                next: Cursor::read(reader)?,
                entries: Records::read(reader)?,
                recovering_ms: read_recovering(reader)?,
            },
            kind::SESSIONS_PAGE => Self::SessionsPage {
                next: Cursor::read(reader)?,
                entries: Records::read(reader)?,
            },
            kind::STATS => Self::Stats {
                entries: Records::read(reader)?,
            },
            kind => return Ok(Self::Unknown { kind }),
        };
        reader.skip_options()?;
        Ok(reply)
    }

    /// Appends the reply to the request `request_id` as one frame.
    #[inline]
    pub fn append(&self, request_id: RequestId, out: &mut BytesMut) {
        let flags = match self {
            Self::Welcome(welcome) => welcome.flags(),
            _ => 0,
        };
        frame::append(out, self.kind(), flags, request_id, |writer| match *self {
            Self::Error {
                code,
                message,
                leader,
            } => {
                writer.u16(code.0);
                writer.bytes(message.as_bytes());
                writer.option(tag::LEADER, leader.as_bytes());
            }
            Self::Welcome(ref welcome) => welcome.write(writer),
            Self::HelloRefused {
                code,
                version_min,
                version_max,
                message,
                leader,
            } => {
                writer.u16(code.0);
                writer.u16(version_min);
                writer.u16(version_max);
                writer.bytes(message.as_bytes());
                writer.option(tag::LEADER, leader.as_bytes());
            }
            Self::KeptAlive { ttl_ms } | Self::Renewed { ttl_ms } => writer.u32(ttl_ms),
            Self::Granted {
                fence,
                ttl_ms,
                hold_count,
            } => {
                writer.u64(fence.get());
                writer.u32(ttl_ms);
                write_hold_count(hold_count, writer);
            }
            Self::Refused(ref contention) | Self::TimedOut(ref contention) => {
                contention.write_reply(writer);
            }
            Self::Busy {
                bound,
                retry_after_ms,
            } => {
                writer.u8(bound.0);
                writer.u32(retry_after_ms);
            }
            Self::Unavailable {
                reason,
                retry_after_ms,
            } => {
                writer.u8(reason.0);
                writer.u32(retry_after_ms);
            }
            Self::Released { remaining_count } => writer.u32(remaining_count),
            Self::NotHeld { reason } => writer.u8(reason.0),
            Self::QueryResult {
                last_fence,
                holder_count,
                queue_length,
                holders,
                recovering_ms,
            } => {
                writer.u64(last_fence.map_or(0, Fence::get));
                writer.u32(holder_count);
                writer.u32(queue_length);
                holders.write(writer);
                write_recovering(recovering_ms, writer);
            }
            Self::ListPage {
                next,
                entries,
                recovering_ms,
            } => {
                writer.bytes(next.as_bytes());
                entries.write(writer);
                write_recovering(recovering_ms, writer);
            }
            Self::SessionsPage { next, entries } => {
                writer.bytes(next.as_bytes());
                entries.write(writer);
            }
            Self::Stats { entries } => entries.write(writer),
            Self::Pong | Self::Bye | Self::Cancelled | Self::NotWaiting | Self::Unknown { .. } => {}
        });
    }

    /// The number of the reply.
    pub const fn kind(&self) -> u8 {
        match *self {
            Self::Error { .. } => kind::ERROR,
            Self::Welcome(_) => kind::WELCOME,
            Self::HelloRefused { .. } => kind::HELLO_REFUSED,
            Self::Pong => kind::PONG,
            Self::KeptAlive { .. } => kind::KEPT_ALIVE,
            Self::Bye => kind::BYE,
            Self::Granted { .. } => kind::GRANTED,
            Self::Refused(_) => kind::REFUSED,
            Self::TimedOut(_) => kind::TIMED_OUT,
            Self::Cancelled => kind::CANCELLED,
            Self::NotWaiting => kind::NOT_WAITING,
            Self::Busy { .. } => kind::BUSY,
            Self::Unavailable { .. } => kind::UNAVAILABLE,
            Self::Renewed { .. } => kind::RENEWED,
            Self::Released { .. } => kind::RELEASED,
            Self::NotHeld { .. } => kind::NOT_HELD,
            Self::QueryResult { .. } => kind::QUERY_RESULT,
            Self::ListPage { .. } => kind::LIST_PAGE,
            Self::SessionsPage { .. } => kind::SESSIONS_PAGE,
            Self::Stats { .. } => kind::STATS,
            Self::Unknown { kind } => kind,
        }
    }
}

// A client needs no larger buffer for the answer to its `Hello`.
const _: () = assert!(
    HEADER_BYTES
        + (2 + 2 + 2)
        + (2 + limits::MESSAGE_BYTES_MAX)
        + (OPTION_HEADER_BYTES + limits::NODE_ADDRESS_BYTES_MAX)
        <= limits::HELLO_FRAME_BYTES_MAX as usize
);

/// A grant of a lock that is held once.
const GRANTED_FRAME_BYTES: usize = HEADER_BYTES + 8 + 4;

// A promise to users: a grant is smaller still than its request.
const _: () = assert!(GRANTED_FRAME_BYTES <= 32);
const _: () = {
    let cursor = 2 + limits::CURSOR_BYTES_MAX;
    let recovering = OPTION_HEADER_BYTES + 4;
    let largest = [
        8 + 4 + 4 + Records::<Holder<'_>>::BYTES_MAX + recovering,
        cursor + Records::<LockEntry<'_>>::BYTES_MAX + recovering,
        cursor + Records::<SessionEntry<'_>>::BYTES_MAX,
        Records::<StatEntry<'_>>::BYTES_MAX,
    ];
    let mut index = 0;
    while index < largest.len() {
        assert!(HEADER_BYTES + largest[index] <= limits::FRAME_BYTES_MAX as usize);
        index += 1;
    }
};

#[cfg(test)]
mod tests;
