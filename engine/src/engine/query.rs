//! Asking who holds a key. Whoever looks has the shard's room mutex meanwhile, so one look copies a
//! bounded number of holders; of a key with more, the rest comes by further looks.

use super::Engine;
use crate::fence::Fence;
use crate::key::Key;
use crate::request::{HOLDERS_PER_LOOK, Holder, Host, KeyState};
use crate::session::SessionId;
use crate::shard::Shard;
use crate::tick::Tick;

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
        let (shard, hash) = self.locate(key);
        self.shards[shard].query(key, hash, above, now)
    }

    /// As [`Engine::query`], with up to `holders_max` holders, by as many looks as it takes. Between
    /// two of them holders come and go; one that holds the key all the time is there once.
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
        let (shard, hash) = self.locate(key);
        self.shards[shard].holder(key, hash, fence, now)
    }

    /// Whether a session holds this key, under whatever fence.
    pub fn is_held_by(&self, key: Key<'_>, session: SessionId, now: Tick) -> bool {
        let (shard, hash) = self.locate(key);
        self.shards[shard].is_held_by(key, hash, session, now)
    }
}

impl<H: Host> Shard<H> {
    fn holder(&self, key: Key<'_>, hash: u64, fence: Fence, now: Tick) -> Option<Holder> {
        let guard = self.pin();
        let mut room = self.room.lock();
        let slot = self.enter(key, hash, &guard)?;
        self.settle_queue(&mut room, slot, now);
        let cell = self.table.cell(slot);
        let word = cell.word();
        let queue_length = room.queue_length(slot);
        let holder = match room.record(slot) {
            Some(record) => record.holder(fence).map(|holder| {
                let count = record.holders.len() as u32;
                self.describe_holder(holder, record.mode, count, queue_length, now)
            }),
            None if word.is_held() && word.fence() == fence => {
                Some(self.describe_plain(cell, word, true, queue_length, now))
            }
            None => None,
        };
        self.settle(&mut room, slot, now);
        holder
    }

    fn is_held_by(&self, key: Key<'_>, hash: u64, owner: SessionId, now: Tick) -> bool {
        let guard = self.pin();
        let mut room = self.room.lock();
        let Some(slot) = self.enter(key, hash, &guard) else {
            return false;
        };
        self.settle_queue(&mut room, slot, now);
        let is_held = self.hold_of(&room, slot, owner).is_some();
        self.settle(&mut room, slot, now);
        is_held
    }
}
