//! What a caller is told.

use crate::session::SessionId;
use crate::session::seat::Ticket;
use crate::time::tick::Tick;
use types::{Fence, Mode};

/// A granted lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Larger than the fence of every earlier grant of this key. The same again for a reentrant
    /// acquire.
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
    /// It is held, and you wait. The waiter will be told.
    Queued {
        /// With this the wait can be cancelled.
        ticket: Ticket,
        /// How many stand in front.
        ahead: u32,
    },
    /// It is held, and you did not want to wait. The holder may be you.
    Held(Holder),
    /// You hold it shared and asked for it exclusively. Release it first: two holders that both
    /// wait to upgrade would wait for ever.
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
    /// Long keys or metadata take as many bytes as they may.
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
    /// Metadata has at most [`NOTE_BYTES_MAX`] bytes.
    Metadata {
        /// How many it had.
        metadata_bytes: usize,
    },
    /// A lock is held 1 to 2^32 - 1 times.
    Reentries,
}

/// A holder of a key, as far as one answer can describe it.
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
    pub metadata: Box<[u8]>,
}

impl Holder {
    /// When it ends, with its lease or with its session, whichever is first. `None`: not by itself.
    pub fn end(&self) -> Option<Tick> {
        let end = self.until.min(self.session_until);
        // Of a session that never ends the deadline is the last moment there is.
        (end < Tick::MAX).then_some(end)
    }

    /// Whether it is its session that ends it: renewing the lock does not help, keeping the session
    /// alive does.
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
    /// The key is free, and how the grant under this fence ended is not known, if there was one.
    Free,
    /// This fence of this key was never granted.
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

/// How many holders of a key one look copies, with their metadata, while it has the room mutex.
pub const HOLDERS_PER_LOOK: usize = 64;

/// What is known of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyState {
    /// The last fence that was granted.
    pub fence: Fence,
    /// Its holders, in the order of their fences: no more than were asked for.
    pub holders: Vec<Holder>,
    /// How many hold it now.
    pub holder_count: u32,
    /// How many wait.
    pub queue_length: u32,
}

/// What came of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claimed {
    /// It is yours as before.
    Granted(Grant),
    /// It is not, or no longer.
    NotHeld(NotHeld),
    /// The key is held under a higher fence.
    Superseded,
    /// A limit was reached; nothing was changed.
    Busy(Limit),
    /// The claim itself is not possible.
    Invalid(Invalid),
}

/// How far one call of `advance` came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// More is due already: call again soon.
    pub more: bool,
    /// Nothing will be due before this tick, unless something new happens.
    pub next_due: Option<Tick>,
}
