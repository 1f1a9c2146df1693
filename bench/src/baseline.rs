//! What the engine has to beat: the lock table that most people would write. Sixty-four shards,
//! each a mutex around a hash table; a `VecDeque` for the waiters of a key; a binary heap for
//! deadlines.
//!
//! It does the same job as far as the benches ask: owner, fence and deadline per key; the lease
//! checked by the next caller; the fence minted in the grant, above the shard's
//! floor and never above its ceiling; direct hand-off in order of arrival; one heap entry per key
//! and not per grant; eviction that raises the floor first. It is built as well as this design
//! allows: one hash for shard and bucket (which is why it is `HashTable`, hashbrown's map with the
//! hash passed in), keys of up to 22 bytes in the entry, an entry of one cache line, mutexes on
//! lines of their own.
//!
//! What it leaves out, all to its advantage: sessions (no session's end frees anything), shared and
//! reentrant locks, notes, limits, waiters whose time is up (they are skipped at the hand-off and
//! not told) or whose key expires (they are not served), and any care for long pauses.

use crossbeam_utils::CachePadded;
use engine::{Key, Tick};
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A lock table of sharded mutexes. `W` is how a waiter is reached.
pub struct Map<W> {
    shards: Box<[CachePadded<Mutex<Shard<W>>>]>,
    hash_key: ahash::RandomState,
    idle_ms: u64,
}

struct Shard<W> {
    keys: HashTable<Entry<W>>,
    /// Every fence lies above this: what evicted keys have had.
    floor: u64,
    ceiling: u64,
    /// When to look at which key, the earliest first.
    due: BinaryHeap<Reverse<Alarm>>,
}

/// When, and the hash of the key. Two keys with one hash would share their alarms and still be
/// found by `armed`.
type Alarm = (Tick, u64);

struct Entry<W> {
    key: StoredKey,
    /// The last fence granted.
    fence: u64,
    /// Zero while it is free.
    owner: u64,
    deadline: Tick,
    /// When the heap will look at this key; never, if it is not in the heap.
    armed: Tick,
    #[expect(
        clippy::box_collection,
        reason = "most keys have no queue: eight bytes, and the entry stays one line"
    )]
    queue: Option<Box<VecDeque<Waiting<W>>>>,
}

const _: () = assert!(size_of::<Entry<u32>>() == 64, "an entry is one cache line");

struct Waiting<W> {
    owner: u64,
    ttl_ms: u64,
    deadline: Tick,
    waiter: W,
}

enum StoredKey {
    Short { length: u8, bytes: [u8; 22] },
    Long(Box<[u8]>),
}

/// A granted lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Above every earlier fence of the key.
    pub fence: u64,
    /// When the lease ends.
    pub until: Tick,
}

/// What came of an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is yours.
    Granted(Grant),
    /// It is held, and the caller is in the queue.
    Queued,
    /// It is held.
    Held {
        /// Its owner.
        owner: u64,
        /// Under which fence.
        fence: u64,
        /// Until when.
        until: Tick,
    },
    /// No more fences may be issued.
    AtCeiling,
}

impl<W> Map<W> {
    /// A map with nothing in it. `idle_ms` is how long a free key is remembered, as in the engine.
    pub fn new(shards: usize, idle_ms: u64) -> Self {
        let shard = || {
            CachePadded::new(Mutex::new(Shard {
                keys: HashTable::new(),
                floor: 0,
                ceiling: u64::MAX >> 3,
                due: BinaryHeap::new(),
            }))
        };
        Map {
            shards: (0..shards.next_power_of_two()).map(|_| shard()).collect(),
            hash_key: ahash::RandomState::with_seeds(1, 2, 3, 4),
            idle_ms,
        }
    }

    /// Asks for a lock without waiting.
    #[inline]
    pub fn acquire(&self, key: Key<'_>, owner: u64, ttl_ms: u64, now: Tick) -> Outcome {
        self.acquire_with(key, owner, ttl_ms, None, now)
    }

    /// Asks for a lock, ready to wait for it until `deadline`.
    pub fn acquire_or_wait(
        &self,
        key: Key<'_>,
        owner: u64,
        ttl_ms: u64,
        (deadline, waiter): (Tick, W),
        now: Tick,
    ) -> Outcome {
        let waiting = Waiting {
            owner,
            ttl_ms,
            deadline,
            waiter,
        };
        self.acquire_with(key, owner, ttl_ms, Some(waiting), now)
    }

    #[inline]
    fn acquire_with(
        &self,
        key: Key<'_>,
        owner: u64,
        ttl_ms: u64,
        waiting: Option<Waiting<W>>,
        now: Tick,
    ) -> Outcome {
        let hash = self.hash_key.hash_one(key.bytes());
        let mut shard = self.shard(hash).lock();
        let Shard {
            keys,
            floor,
            ceiling,
            due,
        } = &mut *shard;
        let entry = keys.entry(
            hash,
            |entry| entry.key.bytes() == key.bytes(),
            |entry| self.hash_key.hash_one(entry.key.bytes()),
        );
        let mut entry = entry.or_insert_with(|| Entry {
            key: StoredKey::new(key.bytes()),
            fence: *floor,
            owner: 0,
            deadline: now,
            armed: Tick::NEVER,
            queue: None,
        });
        let entry = entry.get_mut();
        if entry.owner != 0 && now < entry.deadline {
            return match waiting {
                None => Outcome::Held {
                    owner: entry.owner,
                    fence: entry.fence,
                    until: entry.deadline,
                },
                Some(waiting) => {
                    let queue = entry.queue.get_or_insert_default();
                    queue.push_back(waiting);
                    Outcome::Queued
                }
            };
        }
        match entry.grant(hash, owner, ttl_ms, *ceiling, due, now) {
            Some(grant) => Outcome::Granted(grant),
            None => Outcome::AtCeiling,
        }
    }

    /// Frees the lock named by key and fence, or hands it to the first waiter, which is told
    /// through `granted`. `false`: it was not the caller's, or no longer.
    #[inline]
    pub fn release(
        &self,
        key: Key<'_>,
        owner: u64,
        fence: u64,
        now: Tick,
        granted: impl FnOnce(&W, Grant),
    ) -> bool {
        let hash = self.hash_key.hash_one(key.bytes());
        let mut shard = self.shard(hash).lock();
        let Shard {
            keys, ceiling, due, ..
        } = &mut *shard;
        let Some(entry) = keys.find_mut(hash, |entry| entry.key.bytes() == key.bytes()) else {
            return false;
        };
        if entry.owner != owner || entry.fence != fence || entry.deadline <= now {
            return false;
        }
        entry.owner = 0;
        if let Some(queue) = &mut entry.queue {
            while let Some(next) = queue.pop_front() {
                if next.deadline <= now {
                    continue;
                }
                if let Some(grant) = entry.grant(hash, next.owner, next.ttl_ms, *ceiling, due, now)
                {
                    granted(&next.waiter, grant);
                }
                break;
            }
        }
        true
    }

    /// Expires and evicts what is due in one shard, at most `budget` steps of it. `lost` hears how
    /// late each was, in milliseconds. `true`: there is more.
    pub fn advance_shard(
        &self,
        shard: usize,
        now: Tick,
        budget: &mut u32,
        mut lost: impl FnMut(u64),
    ) -> bool {
        let mut shard = self.shards[shard].lock();
        let Shard {
            keys, floor, due, ..
        } = &mut *shard;
        while let Some(&Reverse((at, hash))) = due.peek()
            && at <= now
        {
            if *budget == 0 {
                return true;
            }
            *budget -= 1;
            due.pop();
            let Ok(mut found) = keys.find_entry(hash, |entry| entry.armed == at) else {
                continue;
            };
            let entry = found.get_mut();
            if entry.owner != 0 && entry.deadline <= now {
                lost(entry.deadline.ms_until(now));
                entry.owner = 0;
            }
            let until = if entry.owner != 0 {
                entry.deadline
            } else {
                entry.deadline.plus_ms(self.idle_ms)
            };
            if entry.owner == 0 && until <= now {
                *floor = entry.fence.max(*floor);
                found.remove();
            } else {
                let until = until.max(now.plus_ms(1));
                entry.armed = until;
                due.push(Reverse((until, hash)));
            }
        }
        false
    }

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().keys.len())
            .sum()
    }

    /// How many shards there are.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Mutex<Shard<W>> {
        // Bits that the table uses neither for positions nor for tags.
        &self.shards[(hash >> 40) as usize & (self.shards.len() - 1)]
    }
}

impl<W> Entry<W> {
    /// Mints the next fence and writes the grant. `None` at the ceiling.
    #[inline]
    fn grant(
        &mut self,
        hash: u64,
        owner: u64,
        ttl_ms: u64,
        ceiling: u64,
        due: &mut BinaryHeap<Reverse<Alarm>>,
        now: Tick,
    ) -> Option<Grant> {
        if self.fence >= ceiling {
            return None;
        }
        self.fence += 1;
        self.owner = owner;
        self.deadline = now.plus_ms(ttl_ms);
        if self.deadline < self.armed {
            self.armed = self.deadline;
            due.push(Reverse((self.deadline, hash)));
        }
        Some(Grant {
            fence: self.fence,
            until: self.deadline,
        })
    }
}

impl StoredKey {
    fn new(key: &[u8]) -> Self {
        let mut bytes = [0; 22];
        match bytes.get_mut(..key.len()) {
            Some(start) => {
                start.copy_from_slice(key);
                StoredKey::Short {
                    length: key.len() as u8,
                    bytes,
                }
            }
            None => StoredKey::Long(key.into()),
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            StoredKey::Short { length, bytes } => &bytes[..usize::from(*length)],
            StoredKey::Long(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL_MS: u64 = 100;

    fn at(ms: u64) -> Tick {
        Tick::from_ms(ms)
    }

    fn fence(outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Granted(grant) => grant.fence,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lock_is_exclusive_until_it_is_released_or_expires() {
        let map = Map::<u32>::new(4, 0);
        for bytes in [b"short".as_slice(), &[b'x'; 200]] {
            let key = Key::new(bytes).unwrap();
            let first = fence(map.acquire(key, 1, TTL_MS, at(0)));
            assert!(matches!(
                map.acquire(key, 2, TTL_MS, at(0)),
                Outcome::Held { owner: 1, .. }
            ));
            assert!(!map.release(key, 2, first, at(0), |_, _| ()));
            assert!(map.release(key, 1, first, at(0), |_, _| ()));
            let second = fence(map.acquire(key, 2, TTL_MS, at(0)));
            let third = fence(map.acquire(key, 3, TTL_MS, at(TTL_MS)));
            assert!(first < second && second < third);
            assert!(!map.release(key, 2, second, at(TTL_MS), |_, _| ()));
        }
    }

    #[test]
    fn waiters_are_served_in_order() {
        let map = Map::<u32>::new(4, 0);
        let key = Key::new(b"k").unwrap();
        let mut holder = (1, fence(map.acquire(key, 1, TTL_MS, at(0))));
        for owner in 2..5 {
            let waiter = (at(50), owner as u32);
            let outcome = map.acquire_or_wait(key, owner, TTL_MS, waiter, at(0));
            assert_eq!(outcome, Outcome::Queued);
        }
        for expected in 2..5 {
            let mut next = None;
            let released = map.release(key, holder.0, holder.1, at(1), |&waiter, grant| {
                next = Some((u64::from(waiter), grant.fence));
            });
            assert!(released);
            let next = next.unwrap();
            assert_eq!(next.0, expected);
            assert!(next.1 > holder.1);
            holder = next;
        }
    }

    #[test]
    fn what_expired_is_evicted_and_comes_back_above_its_last_fence() {
        let map = Map::<u32>::new(1, 0);
        let key = Key::new(b"k").unwrap();
        let first = fence(map.acquire(key, 1, TTL_MS, at(0)));
        let mut late_ms = Vec::new();
        assert!(!map.advance_shard(0, at(TTL_MS - 1), &mut 10, |late| late_ms.push(late)));
        assert_eq!(map.keys(), 1);
        assert!(!map.advance_shard(0, at(TTL_MS + 7), &mut 10, |late| late_ms.push(late)));
        assert_eq!((map.keys(), late_ms), (0, vec![7]));
        assert!(fence(map.acquire(key, 1, TTL_MS, at(500))) > first);
    }
}
