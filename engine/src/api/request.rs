//! What a caller asks for.

use types::Fence;
use types::Key;

pub use types::limits::{NOTE_BYTES_MAX, SPAN_MS_MAX as TTL_MS_MAX};
use types::{Mode, Span};

/// The longest wait, in milliseconds.
pub const WAIT_MS_MAX: u64 = types::limits::WAIT_MS_MAX as u64;

/// A request for a lock.
#[derive(Clone, Copy, Debug)]
pub struct Acquire<'a> {
    /// What to lock.
    pub key: Key<'a>,
    /// Alone or together.
    pub mode: Mode,
    /// For how long.
    pub span: Span,
    /// If this session holds the key already: count, and keep the fence.
    pub reentrant: bool,
    /// Kept with the grant and shown to every caller that asks. One of a few dozen bytes costs a
    /// block beside the cell, a longer one a record; most grants have none.
    pub metadata: &'a [u8],
    /// A refusal tells what the holder said of itself and since when it holds. Costs a look at its
    /// metadata.
    pub asks_who: bool,
    /// How long it has stood in line already, with a server that is gone. It goes in front of
    /// waiters that asked later. 0 for a new request: it goes to the end.
    pub waited_ms: u64,
}

impl<'a> Acquire<'a> {
    /// An exclusive lock on `key` for `ttl_ms`.
    pub fn exclusive(key: Key<'a>, ttl_ms: u64) -> Self {
        Acquire {
            key,
            mode: Mode::Exclusive,
            span: Span::Ms(ttl_ms),
            reentrant: false,
            metadata: &[],
            asks_who: true,
            waited_ms: 0,
        }
    }

    /// A shared lock on `key` for `ttl_ms`.
    pub fn shared(key: Key<'a>, ttl_ms: u64) -> Self {
        Acquire {
            mode: Mode::Shared,
            ..Acquire::exclusive(key, ttl_ms)
        }
    }
}

/// A lock as it was held before the restart.
#[derive(Clone, Copy, Debug)]
pub struct OldHold<'a> {
    /// What is held.
    pub key: Key<'a>,
    /// Under which fence, one of an earlier life.
    pub fence: Fence,
    /// Alone or together.
    pub mode: Mode,
    /// For how long from now.
    pub span: Span,
    /// How often.
    pub count: u32,
    /// Since how long.
    pub held_ms: u64,
    /// What the holder said with its request.
    pub metadata: &'a [u8],
}
