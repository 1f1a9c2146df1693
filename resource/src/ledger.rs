//! The ledger: per key the highest fence let through, in bounded memory. No locks, no files, no
//! clock.
//!
//! What happens at the bound is up to [`WhenFull`]. `Forget` drops the key that was written longest
//! ago and raises the floor it stood on (`ledger/floors.rs`), so that whatever would have been
//! refused still is. `Refuse` takes no new keys: where a key has a value, forgetting it would be
//! losing data. Both err on the side of refusing, never of letting through.
//!
//! A write comes in two steps, since its fence goes to the disk in between: [`Ledger::admit`]
//! decides, [`Ledger::apply`] makes it so. The caller has the key's turn (`turns.rs`) all the
//! while, so nothing about the key changes between. Only `apply` touches anything that is
//! remembered, and what it does follows from the order of its calls alone: a log that is replayed
//! gives the same ledger again.

mod floors;
#[cfg(test)]
mod tests;

pub(crate) use floors::{Floors, Seed};

use crate::refusal::{Full, Policy, Refusal, Stale};
use bytes::Bytes;
use lru::LruCache;
use protocol::Fence;
use std::hash::RandomState;
use std::sync::Arc;

/// What a ledger keeps beside a fence: nothing for a guard, the value for a service.
pub(crate) trait Value: Clone + Send + 'static {
    /// Marks the logs of this kind.
    const KIND: u8;

    fn as_bytes(&self) -> &[u8];

    /// `None`: no value of this kind has these bytes.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

impl Value for () {
    const KIND: u8 = 1;

    fn as_bytes(&self) -> &[u8] {
        &[]
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(())
    }
}

impl Value for Bytes {
    const KIND: u8 = 2;

    fn as_bytes(&self) -> &[u8] {
        self
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Bytes::copy_from_slice(bytes))
    }
}

/// What to do about a new key when there is no room. Both are safe; they differ in which writes are
/// refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Forget the key that was written longest ago, and raise the floor it stood on. A key that is
    /// not remembered is then refused as stale if its fence lies below that, though it may not be.
    /// Fences of Fencepost and etcd hardly ever do; those of a counter per key do: see
    /// [`Builder::keys_max`](crate::Builder::keys_max).
    #[default]
    Forget,
    /// Take no new keys: [`Refusal::Full`](crate::Refusal::Full). Those that are known go on as
    /// before. For a set of keys that is known to fit, and for fences that are counted per key.
    Refuse,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) keys_max: usize,
    /// Of keys and values together. Only kept where keys are refused, not where they are forgotten.
    pub(crate) bytes_max: u64,
    pub(crate) when_full: WhenFull,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing: any fence will do.
    Nothing,
    /// The highest fence that it let through.
    Fence(Fence),
    /// It was never seen, or was seen and forgotten; in that case with a fence not above this one.
    Floor(Fence),
}

impl Seen {
    /// The fence to compare with, if there is one.
    pub fn fence(self) -> Option<Fence> {
        match self {
            Seen::Nothing => None,
            Seen::Fence(fence) | Seen::Floor(fence) => Some(fence),
        }
    }
}

struct Entry<V> {
    fence: Fence,
    value: V,
}

pub(crate) struct Ledger<V> {
    /// In the order of their last writes.
    entries: LruCache<Arc<[u8]>, Entry<V>, RandomState>,
    floors: Floors,
    bounds: Bounds,
    bytes: u64,
    /// Admitted and not yet applied: room that is spoken for.
    pending_keys: usize,
    pending_bytes: u64,
}

impl<V: Value> Ledger<V> {
    pub(crate) fn new(bounds: Bounds, seed: Seed) -> Self {
        assert!(
            bounds.keys_max > 0,
            "a ledger has room for one key at least"
        );
        Ledger {
            entries: LruCache::unbounded_with_hasher(RandomState::new()),
            floors: Floors::new(seed),
            bounds,
            bytes: 0,
            pending_keys: 0,
            pending_bytes: 0,
        }
    }

    /// What is known of a key. Looking does not count as use.
    pub(crate) fn seen(&self, key: &[u8]) -> Seen {
        if let Some(entry) = self.entries.peek(key) {
            return Seen::Fence(entry.fence);
        }
        self.floors.under(key).map_or(Seen::Nothing, Seen::Floor)
    }

    /// The value of a key and the highest fence that it let through.
    pub(crate) fn get(&self, key: &[u8]) -> Option<(V, Fence)> {
        let entry = self.entries.peek(key)?;
        Some((entry.value.clone(), entry.fence))
    }

    pub(crate) fn keys(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether `fence` runs backwards on `key`.
    pub(crate) fn compare(&self, key: &[u8], fence: Fence, policy: Policy) -> Result<(), Stale> {
        let seen = self.seen(key);
        match seen.fence() {
            Some(highest) if !policy.admits(highest, fence) => Err(Stale {
                seen: highest,
                got: fence,
                is_floor: matches!(seen, Seen::Floor(_)),
            }),
            _ => Ok(()),
        }
    }

    /// Decides on a write and, if it may happen, sets room aside for it. `policy` is `None` where
    /// fences are not enforced.
    pub(crate) fn admit(
        &mut self,
        key: &[u8],
        fence: Fence,
        value: &V,
        policy: Option<Policy>,
    ) -> Result<(), Refusal> {
        if let Some(policy) = policy {
            self.compare(key, fence, policy)?;
        }
        if self.bounds.when_full == WhenFull::Forget {
            return Ok(());
        }
        let Bounds {
            keys_max,
            bytes_max,
            ..
        } = self.bounds;
        let old_bytes = self
            .entries
            .peek(key)
            .map(|entry| size_of(key, &entry.value));
        if old_bytes.is_none() && self.entries.len() + self.pending_keys >= keys_max {
            return Err(Refusal::Full(Full::Keys { keys_max }));
        }
        let new_bytes = size_of(key, value);
        let after = self.bytes + self.pending_bytes + new_bytes - old_bytes.unwrap_or(0);
        // A value may always be replaced by one that is no larger, or a full service could not even
        // shrink.
        if after > bytes_max && new_bytes > old_bytes.unwrap_or(0) {
            return Err(Refusal::Full(Full::Bytes { bytes_max }));
        }
        self.pending_keys += usize::from(old_bytes.is_none());
        self.pending_bytes += new_bytes;
        Ok(())
    }

    /// Makes a write so that was admitted.
    pub(crate) fn apply(&mut self, key: &Arc<[u8]>, fence: Fence, value: V) {
        if self.bounds.when_full == WhenFull::Refuse {
            self.pending_keys -= usize::from(!self.entries.contains(key));
            self.pending_bytes -= size_of(key, &value);
        }
        self.restore(key, fence, value);
    }

    /// Makes a write so that was applied in an earlier life.
    pub(crate) fn restore(&mut self, key: &Arc<[u8]>, fence: Fence, value: V) {
        // Where fences are not enforced one may run backwards; what was seen stays seen.
        let fence = self.seen(key).fence().map_or(fence, |seen| seen.max(fence));
        self.bytes += size_of(key, &value);
        if let Some(old) = self.entries.put(Arc::clone(key), Entry { fence, value }) {
            assert!(
                fence >= old.fence,
                "the fence of a key fell from {} to {fence}",
                old.fence
            );
            self.bytes -= size_of(key, &old.value);
        }
        if self.bounds.when_full == WhenFull::Forget {
            while self.entries.len() > self.bounds.keys_max {
                self.forget_oldest();
            }
        }
    }

    /// Raises a floor, as a log says. `false`: there is no such floor.
    #[must_use]
    pub(crate) fn restore_floor(&mut self, cell: u32, fence: Fence) -> bool {
        self.floors.restore(cell, fence)
    }

    /// All floors that were raised, for a new log.
    pub(crate) fn floors(&self) -> impl Iterator<Item = (u32, Fence)> {
        self.floors.raised()
    }

    /// All keys, the one written longest ago first, for a new log.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Arc<[u8]>, Fence, &V)> {
        let oldest_first = self.entries.iter().rev();
        oldest_first.map(|(key, entry)| (key, entry.fence, &entry.value))
    }

    fn forget_oldest(&mut self) {
        if let Some((key, entry)) = self.entries.pop_lru() {
            self.floors.raise(&key, entry.fence);
            self.bytes -= size_of(&key, &entry.value);
        }
    }
}

fn size_of<V: Value>(key: &[u8], value: &V) -> u64 {
    (key.len() + value.as_bytes().len()) as u64
}
