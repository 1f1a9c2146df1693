//! What a protocol has to say for itself. A connection is served by one loop
//! (`serve/conversation.rs`), whatever its peer speaks; a protocol comes in two parts.
//!
//! - A [`Dialect`] belongs to the connection's own task. It decides what was read.
//! - A [`Voice`] belongs to the [`Connection`](super::connection::Connection) and is reached from
//!   anywhere on its core: it puts into words what a peer is told unasked.

use super::places::Stranger;
use crate::session::waiter::Waiter;
use bytes::BytesMut;
use engine::{Fence, GaveUp, Grant, Tick};
use protocol::{ErrorCode, LostReason};
use std::fmt;
use tokio::time::Instant;

/// One peer's conversation, as its own task knows it.
pub(crate) trait Dialect {
    /// The out-buffer has room for one of these above its high mark.
    const MESSAGE_BYTES_MAX: usize;

    /// Why a peer is cut off that does not complete what it began to send.
    const INCOMPLETE: &'static str;

    /// Why a stream cannot be read on.
    type Malformed: fmt::Display;

    /// Decides the complete messages in `bytes` and appends the replies, until `out` holds
    /// `out_high`, something took long or the peer is blocked.
    fn decide(
        &mut self,
        bytes: &[u8],
        out: &mut BytesMut,
        out_high: usize,
    ) -> Result<Decided, Self::Malformed>;

    /// Whether the peer waits for something, and nothing behind that is decided until it comes.
    fn is_blocked(&self) -> bool {
        false
    }

    /// When that wait is over, if it has an end that nothing else brings about.
    fn blocked_until(&self) -> Option<Instant> {
        None
    }

    /// That time has come.
    fn end_block(&mut self) {}

    /// The connection was woken: what a blocked peer waits for may have come.
    fn look_again(&mut self) {}

    /// Whether the peer hears of what others do, beyond the locks that it waits for.
    fn is_listening(&self) -> bool {
        false
    }

    /// The peer, as long as it has not introduced itself.
    fn stranger(&self) -> Option<&Stranger> {
        None
    }

    /// The connection has ended.
    fn leave(&mut self);
}

/// How far a batch came.
#[derive(Clone, Copy, Default)]
pub(crate) struct Decided {
    /// How many bytes were used.
    pub(crate) bytes: usize,
    /// It was broken off: there may be complete messages among the rest.
    pub(crate) more: bool,
    /// How many requests there were.
    pub(crate) requests: u64,
    /// The connection is to be closed once all of it is answered.
    pub(crate) is_last: bool,
}

/// What a peer is told though it is not the answer to what it has just sent.
pub(crate) enum News<'a> {
    /// A lock that it waited for.
    Granted {
        request_id: u64,
        grant: &'a Grant,
        now: Tick,
    },
    /// It has waited in vain.
    GaveUp { waiter: &'a Waiter, why: GaveUp },
    /// It waits for this on another connection now.
    WaitsElsewhere { request_id: u64 },
    /// It waits no more, because the server stops.
    WaitStopped { request_id: u64 },
    /// A lock is gone that it held.
    Lost {
        key: &'a [u8],
        fence: Fence,
        reason: LostReason,
    },
    /// Something was left in a signal list that it waits for.
    ListReady,
    /// A message of a channel that it listens to.
    Published(&'a Message),
    /// The server stops in so many milliseconds.
    Stopping { grace_ms: u32 },
    /// The connection is closed.
    Closing { code: ErrorCode, message: &'a str },
}

/// One message on its way to one listener of a channel.
#[derive(Debug)]
pub(crate) struct Message {
    /// The pattern by which it was heard, if it was.
    pub(crate) pattern: Option<Box<[u8]>>,
    pub(crate) channel: Box<[u8]>,
    pub(crate) payload: Box<[u8]>,
}

/// In which words a peer is told news.
pub(crate) trait Voice {
    /// Appends the news, or nothing if the protocol has no words for it.
    fn say(&self, news: &News<'_>, out: &mut BytesMut);

    /// Takes the grant of a wait that is over. `false`: the request came again on another
    /// connection and is waited for there.
    fn accepts(&self, _waiter: &Waiter, _grant: &Grant) -> bool {
        true
    }

    /// Whether a wait blocks the connection, so that its task must look again when it is over.
    fn is_blocked_by_waits(&self) -> bool;

    /// Whether there are words for [`News::Stopping`].
    fn announces_stop(&self) -> bool;
}
