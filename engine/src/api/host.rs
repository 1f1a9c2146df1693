//! What the engine tells without having been asked.

use super::outcome::Grant;
use crate::session::SessionId;
use types::{Fence, Key};

/// The world around the engine: it is told of what happens by itself, or on another caller's
/// account.
///
/// All of these may be called while the engine holds a shard's mutex. They must be quick, must not
/// wait and must not call the engine.
pub trait Host: Send + Sync {
    /// How a waiter is reached.
    type Waiter: Send;

    /// What a waiter keeps on the heap outside the engine. Counted in `bytes_max` while it waits.
    fn waiter_bytes(&self, _waiter: &Self::Waiter) -> u64 {
        0
    }

    /// The lock was handed to this waiter. A host that finds its client gone releases the lock
    /// like any other.
    fn granted(&self, waiter: Self::Waiter, grant: Grant);

    /// This wait is over without a grant.
    fn gave_up(&self, waiter: Self::Waiter, why: GaveUp);

    /// A lock was lost.
    fn lost(&self, loss: &Loss<'_>);

    /// A session's time was up. Its seats are to be vacated and the session forgotten. May be said
    /// twice.
    fn session_ended(&self, session: SessionId);

    /// The home of this shard sleeps too long: something is due before the moment it named to
    /// [`crate::Engine::rest_shard`]. It is to call [`crate::Engine::advance_shard`] at once.
    /// Sessions live where shard 0 does. May be said in vain.
    fn wake(&self, _shard: usize) {}

    /// Half of the fences between this shard's last two ceilings have been issued. Said with every
    /// grant until the ceiling is raised.
    fn ceiling_low(&self, _shard: usize) {}
}

/// A lock that went without being released by its owner.
#[derive(Clone, Copy, Debug)]
pub struct Loss<'a> {
    /// What was lost.
    pub key: Key<'a>,
    /// Under which fence.
    pub fence: Fence,
    /// By which session.
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
    /// After a restart another session claimed the key under a higher fence.
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

/// A host for callers that never wait and need not be told: the engine alone, as an in-process lock
/// table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Host for Alone {
    type Waiter = ();

    fn granted(&self, (): (), _: Grant) {}
    fn gave_up(&self, (): (), _: GaveUp) {}
    fn lost(&self, _: &Loss<'_>) {}
    fn session_ended(&self, _: SessionId) {}
}
