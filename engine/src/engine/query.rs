//! Looking at a key and its holders. A plain lock is read without a mutex and without a write.
//! Holders in a record are copied under the shard's room mutex, a bounded number in one look; of a
//! key with more, the rest comes by further looks.

use super::Engine;
use crate::api::{HOLDERS_PER_LOOK, Holder, Host, KeyState};
use crate::session::SessionId;
use crate::time::tick::Tick;
use types::Fence;
use types::Key;

impl<H: Host> Engine<H> {
    /// What is known of a key, with its first [`HOLDERS_PER_LOOK`] holders; `None` for one that was
    /// never locked or is long forgotten.
    ///
    /// [`HOLDERS_PER_LOOK`]: crate::HOLDERS_PER_LOOK
    pub fn query(&self, key: Key<'_>, now: Tick) -> Option<KeyState> {
        self.query_above(key, Fence::ZERO, now)
    }

    /// As [`Engine::query`], with the first holders whose fences lie above this one.
    pub fn query_above(&self, key: Key<'_>, above: Fence, now: Tick) -> Option<KeyState> {
        let (shard, target) = self.target(key, None);
        self.shards[shard].query(target, above, now)
    }

    /// As [`Engine::query`], with up to `holders_max` holders, by as many looks as it takes.
    /// Between two of them holders come and go; one that holds the key all the time is there once.
    pub fn query_up_to(&self, key: Key<'_>, holders_max: usize, now: Tick) -> Option<KeyState> {
        let mut state = self.query(key, now)?;
        let mut is_full = state.holders.len() == HOLDERS_PER_LOOK;
        while is_full
            && state.holders.len() < holders_max
            && let Some(last) = state.holders.last()
            && let Some(more) = self.query_above(key, last.fence, now)
        {
            is_full = more.holders.len() == HOLDERS_PER_LOOK;
            state.holders.extend(more.holders);
        }
        state.holders.truncate(holders_max);
        Some(state)
    }

    /// The holder of this key under this fence, if there is one.
    pub fn holder(&self, key: Key<'_>, fence: Fence, now: Tick) -> Option<Holder> {
        let (shard, target) = self.target(key, None);
        self.shards[shard].holder(target, fence, now)
    }

    /// Whether a session holds this key, under whatever fence.
    pub fn is_held_by(&self, key: Key<'_>, session: SessionId, now: Tick) -> bool {
        let (shard, target) = self.target(key, None);
        self.shards[shard].is_held_by(target, session, now)
    }
}
