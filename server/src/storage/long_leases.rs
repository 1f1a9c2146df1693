//! Which leases this server writes down one by one, although it writes down fences only.
//!
//! In `fence` mode a short lease leaves no record: after a crash, the grace period covers it. A
//! lease longer than that may be is written down, and from then on so is everything that happens to
//! it. Here is which ones those are. Most releases are of short leases and must not pay for the
//! question: a count answers it when there are no long ones, and a small filter answers it for
//! nearly all others.
//!
//! A lease is in the set before its record is appended, and leaves it with its release, its expiry
//! or the end of its session. It is known by a hash of key and fence. Two leases that share all 64
//! bits would at worst cost a record that replay ignores, or miss one once in longer than any log.

use ahash::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::sync::atomic::{self, AtomicU32, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

/// Counters of the filter: 64 KiB.
const FILTER_SLOTS: usize = 1 << 14;

/// Parts of the set, so that cores seldom meet.
const PARTS: usize = 64;

pub(crate) struct LongLeases {
    count: AtomicUsize,
    /// How many leases of the set fall into each slot.
    filter: Box<[AtomicU32]>,
    parts: Box<[Mutex<HashTable<u64>>]>,
    hasher: RandomState,
    /// Leases that were taken away, by force or by a grant under a higher fence, until the core
    /// that did it writes that down. Never more than there were long leases.
    taken_away: Mutex<Vec<TakenAway>>,
    taken_away_count: AtomicUsize,
}

/// The core that takes a lease away is the one that writes that down: its answer waits for the
/// record. Written down by another core, which took the key next, the end would be in that core's
/// turn, and the answer would not wait for it.
struct TakenAway {
    by: ThreadId,
    key: Box<[u8]>,
    fence: u64,
}

impl LongLeases {
    pub(crate) fn new() -> LongLeases {
        LongLeases {
            count: AtomicUsize::new(0),
            filter: (0..FILTER_SLOTS).map(|_| AtomicU32::new(0)).collect(),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            taken_away: Mutex::default(),
            taken_away_count: AtomicUsize::new(0),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether this lease is written down.
    #[inline]
    pub(crate) fn contains(&self, key: &[u8], fence: u64) -> bool {
        self.count() > 0 && self.look(self.hash(key, fence))
    }

    fn look(&self, hash: u64) -> bool {
        self.slot(hash).load(Ordering::Acquire) > 0
            && self
                .part(hash)
                .lock()
                .find(hash, |&other| other == hash)
                .is_some()
    }

    pub(crate) fn insert(&self, key: &[u8], fence: u64) {
        let hash = self.hash(key, fence);
        let mut part = self.part(hash).lock();
        if part.find(hash, |&other| other == hash).is_none() {
            part.insert_unique(hash, hash, |&hash| hash);
            self.slot(hash).fetch_add(1, Ordering::AcqRel);
            self.count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Takes a lease out. `false`: it was not written down.
    #[inline]
    pub(crate) fn remove(&self, key: &[u8], fence: u64) -> bool {
        self.count() > 0 && self.take_out(self.hash(key, fence))
    }

    fn take_out(&self, hash: u64) -> bool {
        if self.slot(hash).load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut part = self.part(hash).lock();
        let Ok(found) = part.find_entry(hash, |&other| other == hash) else {
            return false;
        };
        found.remove();
        self.slot(hash).fetch_sub(1, Ordering::AcqRel);
        self.count.fetch_sub(1, Ordering::AcqRel);
        true
    }

    /// This lease was taken away, by the calling thread.
    pub(crate) fn take_away(&self, key: &[u8], fence: u64) {
        // Paired with the one in `Books::follow`: either this thread finds the lease in the set, or
        // the core that puts it there finds the lock gone.
        atomic::fence(Ordering::SeqCst);
        if self.remove(key, fence) {
            self.taken_away.lock().push(TakenAway {
                by: thread::current().id(),
                key: key.into(),
                fence,
            });
            self.taken_away_count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The leases of this key that the calling thread took away and has not written down as over
    /// yet; or that under one fence only. Each is handed out once.
    #[inline]
    pub(crate) fn to_write_down(&self, key: &[u8], only: Option<u64>) -> Vec<u64> {
        if self.taken_away_count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let by = thread::current().id();
        let is_it = |other: &mut TakenAway| {
            other.by == by && *other.key == *key && only.is_none_or(|fence| fence == other.fence)
        };
        let mut taken_away = self.taken_away.lock();
        let fences = taken_away.extract_if(.., is_it).map(|other| other.fence);
        let fences: Vec<u64> = fences.collect();
        self.taken_away_count
            .fetch_sub(fences.len(), Ordering::AcqRel);
        fences
    }

    fn hash(&self, key: &[u8], fence: u64) -> u64 {
        self.hasher.hash_one((key, fence))
    }

    fn slot(&self, hash: u64) -> &AtomicU32 {
        &self.filter[hash as usize % FILTER_SLOTS]
    }

    fn part(&self, hash: u64) -> &Mutex<HashTable<u64>> {
        // The bits above those of the slot.
        &self.parts[(hash >> 14) as usize % PARTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_in_the_set_from_its_grant_to_its_end() {
        let long = LongLeases::new();
        assert!(!long.contains(b"a", 1));
        long.insert(b"a", 1);
        long.insert(b"a", 1);
        assert_eq!(long.count(), 1);
        assert!(long.contains(b"a", 1));
        assert!(!long.contains(b"a", 2));
        assert!(!long.contains(b"b", 1));
        assert!(!long.remove(b"a", 2));
        assert!(long.remove(b"a", 1));
        assert!(!long.remove(b"a", 1));
        assert_eq!(long.count(), 0);
    }

    #[test]
    fn a_lease_that_was_taken_away_is_handed_out_once_to_be_written_down() {
        let long = LongLeases::new();
        long.insert(b"a", 1);
        long.insert(b"b", 1);
        for (key, fence) in [(b"a", 1), (b"b", 1), (b"a", 7)] {
            long.take_away(key, fence);
        }
        assert_eq!(long.count(), 0);
        assert_eq!(long.to_write_down(b"a", None), [1]);
        assert_eq!(long.to_write_down(b"a", None), [0; 0]);
        assert_eq!(long.to_write_down(b"b", Some(2)), [0; 0]);
        assert_eq!(long.to_write_down(b"b", Some(1)), [1]);
    }

    /// A forced release on one core and a take-over on another: the end of the first was handed out
    /// to the second.
    #[test]
    fn each_thread_is_handed_out_what_it_took_away_itself() {
        let long = LongLeases::new();
        long.insert(b"a", 1);
        long.insert(b"a", 2);
        long.take_away(b"a", 1);
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                long.take_away(b"a", 2);
                long.to_write_down(b"a", None)
            });
            assert_eq!(other.join().unwrap(), [2]);
        });
        assert_eq!(long.to_write_down(b"a", Some(1)), [1]);
    }

    #[test]
    fn many_leases_are_kept_apart() {
        let long = LongLeases::new();
        let key = |number: u64| format!("key/{number}");
        for number in 0..50_000 {
            long.insert(key(number).as_bytes(), number);
        }
        for number in (0..50_000).step_by(2) {
            assert!(long.remove(key(number).as_bytes(), number));
        }
        for number in 0..50_000 {
            let is_in = long.contains(key(number).as_bytes(), number);
            assert_eq!(is_in, number % 2 == 1, "{number}");
        }
        assert_eq!(long.count(), 25_000);
        let left: u32 = long
            .filter
            .iter()
            .map(|slot| slot.load(Ordering::Relaxed))
            .sum();
        assert_eq!(left, 25_000);
    }
}
