//! What the generator needs of a peer's protocol, and nothing else: bytes for a request, answers
//! out of bytes.
//!
//! A *lane* is one contender with at most one request under way; it is known by its number. A
//! *link* is a client process: one connection to the peer, or as many as the peer's protocol wants
//! (five for Redlock). Many lanes share a link.

use super::stream::Stream;
use bytes::BytesMut;
use std::io;

/// Bytes of every key.
pub(crate) const KEY_BYTES: usize = 16;

/// What a lane asks for.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    /// Which lock.
    pub(crate) key: [u8; KEY_BYTES],
    /// For how long.
    pub(crate) ttl_ms: u32,
    /// How long to stand in line, where the peer has a line; 0 wants an answer at once.
    pub(crate) wait_ms: u32,
}

/// What a peer answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The lane has the lock. The fence is 0 where the peer gives none.
    Granted { lane: u32, fence: u64 },
    /// Another lane has it. This one may try again later.
    Held { lane: u32 },
    /// The lane has given it back.
    Released { lane: u32 },
    /// The lease was prolonged.
    Renewed { lane: u32 },
    /// There was nothing to give back or prolong.
    NotHeld { lane: u32 },
    /// The wait was in vain.
    TimedOut { lane: u32 },
    /// The peer could not.
    Failed { lane: u32 },
    /// Some lock was given back: now is a good time to try again.
    Freed,
}

/// One link's half of a protocol. Whatever is appended to `outs[i]` is sent on the link's
/// connection `i`.
pub(crate) trait Speaker {
    /// Says hello on fresh connections, which still block, and readies what the lanes need.
    fn open(&mut self, streams: &mut [Stream], lanes: &[u32]) -> io::Result<()>;

    /// Asks for a lock.
    fn acquire(&mut self, lane: u32, ask: &Ask, outs: &mut [BytesMut]);

    /// Gives a lock back.
    fn release(&mut self, lane: u32, key: &[u8; KEY_BYTES], fence: u64, outs: &mut [BytesMut]);

    /// Prolongs a lock, or everything the link holds where the protocol can do that: see
    /// [`Speaker::RENEWS_ALL`].
    fn renew(
        &mut self,
        lane: u32,
        key: &[u8; KEY_BYTES],
        fence: u64,
        ttl_ms: u32,
        outs: &mut [BytesMut],
    );

    /// Whether one `renew` prolongs every lock that the link holds.
    const RENEWS_ALL: bool;

    /// Takes one answer off the front of `unread`. `None`: it holds no whole answer. An error ends
    /// the run.
    fn read(
        &mut self,
        connection: usize,
        unread: &mut &[u8],
        outs: &mut [BytesMut],
    ) -> Result<Option<Answer>, String>;
}
