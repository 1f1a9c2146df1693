//! What callers ask for and what they are told: plain values, no behaviour.

use crate::fence::Fence;
use crate::key::Key;
use crate::session::SessionId;
use crate::tick::Tick;

pub use types::limits::{NOTE_BYTES_MAX, SPAN_MS_MAX as TTL_MS_MAX};
pub use types::{Mode, Span};

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
    /// Kept with the grant and shown to whoever asks. One of a few dozen bytes costs a block beside the cell, a longer one a
    /// record; most grants have none.
    pub note: &'a [u8],
    /// A refusal tells what the holder said of itself and since when it holds. Costs a look at its note.
    pub asks_who: bool,
}

impl<'a> Acquire<'a> {
    /// An exclusive lock on `key` for `ttl_ms`.
    pub fn exclusive(key: Key<'a>, ttl_ms: u64) -> Self {
        Acquire {
            key,
            mode: Mode::Exclusive,
            span: Span::Ms(ttl_ms),
            reentrant: false,
            note: &[],
            asks_who: true,
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

/// A granted lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Larger than the fence of every earlier grant of this key. The same again for a reentrant acquire.
    pub fence: Fence,
    /// When the lease ends; for a session's lease, when the session does unless it is kept alive.
    pub until: Tick,
    /// How often the holder has it now: 1, or more if reentrant.
    pub count: u32,
}

/// What came of an acquire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is yours.
    Granted(Grant),
    /// Somebody holds it and you wait. The waiter will be told.
    Queued {
        /// With this the wait can be cancelled.
        ticket: Ticket,
        /// How many stand in front.
        ahead: u32,
    },
    /// Somebody holds it, and you did not want to wait. The holder may be you.
    Held(Holder),
    /// You hold it shared and asked for it exclusively. Release it first: two holders who both wait to upgrade would wait
    /// for ever.
    UpgradeRefused(Holder),
    /// A limit was reached; nothing was changed.
    Busy(Limit),
    /// No more fences may be issued until the ceiling has been raised.
    AtCeiling,
    /// The session is over or was never opened.
    SessionEnded,
    /// The request itself is not possible.
    Invalid(Invalid),
}

pub use crate::seat::Ticket;

/// Which limit was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The shard has no room for another key.
    Keys,
    /// The key's queue is full.
    WaitersPerKey,
    /// All queues together are full.
    Waiters,
    /// The key has as many shared holders as it may have.
    SharedHolders,
    /// There are as many sessions as there may be.
    Sessions,
    /// Long keys or notes take as many bytes as they may.
    Bytes,
}

/// What is wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalid {
    /// A lease lasts 1 to [`TTL_MS_MAX`] milliseconds.
    Ttl {
        /// What was asked for.
        ttl_ms: u64,
    },
    /// A wait lasts 1 to [`WAIT_MS_MAX`] milliseconds.
    Wait {
        /// What was asked for.
        wait_ms: u64,
    },
    /// A note has at most [`NOTE_BYTES_MAX`] bytes.
    Note {
        /// How many it had.
        note_bytes: usize,
    },
    /// A lock is held 1 to 2^32 - 1 times.
    Reentries,
}

/// Who holds a key, as far as one answer can say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Whose it is. `None` for a grant so fresh that its owner is not written down yet.
    pub owner: Option<SessionId>,
    /// Under which fence; of several shared holders, the first.
    pub fence: Fence,
    /// Alone or together.
    pub mode: Mode,
    /// Since how long.
    pub held_ms: u64,
    /// When its lease ends by itself.
    pub until: Tick,
    /// When its session ends unless that is kept alive, and all its locks with it.
    pub session_until: Tick,
    /// It lives as long as its session.
    pub is_session_bound: bool,
    /// How often the holder has it.
    pub count: u32,
    /// How many hold it together.
    pub holders: u32,
    /// How many wait for it.
    pub queue_length: u32,
    /// What the holder said with its request.
    pub note: Box<[u8]>,
}

impl Holder {
    /// When it ends, with its lease or with its session, whichever is first. `None`: not by itself.
    pub fn end(&self) -> Option<Tick> {
        let end = self.until.min(self.session_until);
        // Of a session that never ends the deadline is the last moment there is.
        (end < Tick::MAX).then_some(end)
    }

    /// Whether it is its session that ends it: renewing the lock does not help, keeping the session alive does.
    pub fn ends_with_session(&self) -> bool {
        self.session_until < Tick::MAX && (self.is_session_bound || self.session_until < self.until)
    }
}

/// What came of a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// The lease now ends then.
    Renewed {
        /// When.
        until: Tick,
    },
    /// It is not yours to renew.
    NotHeld(NotHeld),
    /// The request itself is not possible.
    Invalid(Invalid),
}

/// What came of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// Done.
    Released {
        /// How often it is still held: 0 unless it was reentrant.
        count: u32,
    },
    /// It was not yours, or no longer. Nothing was changed.
    NotHeld(NotHeld),
}

/// What came of a downgrade from exclusive to shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Downgrade {
    /// It is shared now, under the same fence.
    Downgraded,
    /// It is not yours.
    NotHeld(NotHeld),
}

/// Why a lock named by key and fence is not the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotHeld {
    /// Nobody holds the key, and how the grant under this fence ended is not known, if there was one.
    Free,
    /// Nobody was ever granted this fence of this key.
    Never,
    /// The lease, or the session it lived by, ended before this request came.
    Expired,
    /// It was given back before.
    Released,
    /// It was taken away: by an operator, or by a caller whose protocol has such a verb.
    Forced,
    /// The key is held under another fence.
    OtherFence,
    /// The key is held under this fence by another session.
    OtherOwner,
    /// The caller's session is over.
    SessionEnded,
}

/// A lock that went without being released by its owner.
#[derive(Clone, Copy, Debug)]
pub struct Loss<'a> {
    /// What was lost.
    pub key: Key<'a>,
    /// Under which fence.
    pub fence: Fence,
    /// By whom.
    pub owner: SessionId,
    /// How.
    pub why: Lost,
    /// How long after its deadline the lease was taken away. Zero unless it expired.
    pub late_ms: u64,
    /// How long it had been held.
    pub held_ms: u64,
}

/// How a lock was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Its lease ran out.
    Expired,
    /// Its session ended.
    SessionEnded,
    /// An operator took it away.
    Forced,
    /// After a restart somebody claimed the key under a higher fence.
    Superseded,
}

/// Why a wait ended without a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GaveUp {
    /// Its deadline passed.
    TimedOut,
    /// Its session ended.
    SessionEnded,
}

/// How many holders of a key one look copies, with their notes, while it has the room mutex.
pub const HOLDERS_PER_LOOK: usize = 64;

/// What is known of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyState {
    /// The last fence that was granted.
    pub fence: Fence,
    /// Who holds it now, in the order of their fences: no more than were asked for.
    pub holders: Vec<Holder>,
    /// How many hold it now.
    pub holder_count: u32,
    /// How many wait.
    pub queue_length: u32,
}

/// The world around the engine: who is told when something happens that nobody asked for just now.
///
/// All of these may be called while the engine holds a shard's mutex. They must be quick, must not wait and must not call
/// the engine.
pub trait Host: Send + Sync {
    /// How a waiter is reached.
    type Waiter: Send;

    /// The lock was handed to this waiter. A host that finds its client gone releases the lock
    /// like any other.
    fn granted(&self, waiter: Self::Waiter, grant: Grant);

    /// This wait is over without a grant.
    fn gave_up(&self, waiter: Self::Waiter, why: GaveUp);

    /// A lock was lost.
    fn lost(&self, loss: &Loss<'_>);

    /// A session's time was up. Its seats are to be vacated and the session forgotten. May be said twice.
    fn session_ended(&self, session: SessionId);

    /// The home of this shard sleeps too long: something is due before the moment it named to [`crate::Engine::rest_shard`]. It is
    /// to call [`crate::Engine::advance_shard`] at once. Sessions live where shard 0 does. May be said in vain.
    fn wake(&self, _shard: usize) {}

    /// Half of the fences between this shard's last two ceilings have been issued. Said with every grant until the ceiling is
    /// raised.
    fn ceiling_low(&self, _shard: usize) {}
}
