//! The keys that clients contend for: which ones, and how often a second.
//!
//! Each core keeps the few keys that it turned the most acquires away from: those that had to wait
//! and those that were refused because the key was held. An acquire that is granted at once never
//! comes here. The counts are those of Space-Saving (Metwally, Agrawal, El Abbadi 2005): a key that
//! is not kept takes the place of the one with the lowest count, and goes on from that count. So a
//! key that has more than its share is always among them, and a count is too high by at most the
//! count that it took over, which is kept beside it.
//!
//! Counts are halved every [`PERIOD_MS`], on all cores at the same time. What is left is the rate
//! of late: at a steady rate of `r` a second a count is `r` times a period right after a halving,
//! and grows by `r` every second until the next one.

use ahash::RandomState;
use crossbeam_utils::CachePadded;
use engine::Tick;
use hashbrown::HashMap;
use parking_lot::Mutex;

/// How many keys a core keeps. A look-up reads eight cache lines of hashes.
const KEPT_MAX: usize = 64;

/// How often counts are halved.
const PERIOD_MS: u64 = 10_000;

/// The contended keys of all cores.
pub(crate) struct HotKeys {
    /// Each is written by its own core, and locked by a reader now and then.
    cores: Box<[CachePadded<Mutex<Kept>>]>,
    hasher: RandomState,
}

/// A key that clients contend for.
#[derive(Debug, PartialEq)]
pub(crate) struct HotKey {
    pub(crate) key: Box<[u8]>,
    /// How often a second an acquire had to wait for it or was refused, of late.
    pub(crate) per_second: f64,
    /// By how much that may be too high.
    pub(crate) too_high_by: f64,
}

#[derive(Default)]
struct Kept {
    hashes: Vec<u64>,
    entries: Vec<Entry>,
    /// The number of the period that the counts are of.
    period: u64,
    /// Where the last look-up ended: a hot key is asked for again and again.
    latest: usize,
}

struct Entry {
    key: Vec<u8>,
    count: u64,
    /// What of the count was another key's.
    inherited: u64,
}

impl HotKeys {
    pub(crate) fn new(core_count: usize) -> Self {
        HotKeys {
            cores: (0..core_count).map(|_| CachePadded::default()).collect(),
            hasher: RandomState::new(),
        }
    }

    /// An acquire of this key had to wait, or was refused because it is held.
    #[cold]
    pub(crate) fn note(&self, core: usize, key: &[u8], now: Tick) {
        let hash = self.hasher.hash_one(key);
        self.cores[core].lock().note(hash, key, now);
    }

    /// The keys that are contended for most, at most `limit` of them.
    pub(crate) fn top(&self, limit: usize, now: Tick) -> Vec<HotKey> {
        let mut counts: HashMap<Vec<u8>, (u64, u64)> = HashMap::new();
        for core in &self.cores {
            let mut core = core.lock();
            core.halve(now);
            for entry in &core.entries {
                let (count, inherited) = counts.entry_ref(&*entry.key).or_default();
                *count += entry.count;
                *inherited += entry.inherited;
            }
        }
        let seconds = (PERIOD_MS + now.as_ms() % PERIOD_MS) as f64 / 1e3;
        let mut top: Vec<_> = counts
            .into_iter()
            .filter(|(_, (count, _))| *count > 0)
            .collect();
        top.sort_unstable_by(|(a, (more, _)), (b, (less, _))| {
            less.cmp(more).then_with(|| a.cmp(b))
        });
        top.truncate(limit);
        top.into_iter()
            .map(|(key, (count, inherited))| HotKey {
                key: key.into(),
                per_second: count as f64 / seconds,
                too_high_by: inherited as f64 / seconds,
            })
            .collect()
    }
}

impl Kept {
    fn note(&mut self, hash: u64, key: &[u8], now: Tick) {
        self.halve(now);
        let is_latest = self.hashes.get(self.latest) == Some(&hash);
        let same = match is_latest {
            true => Some(self.latest),
            false => self.hashes.iter().position(|known| *known == hash),
        };
        if let Some(index) = same.filter(|index| self.entries[*index].key == key) {
            self.entries[index].count += 1;
            self.latest = index;
        } else if self.entries.len() < KEPT_MAX {
            self.hashes.push(hash);
            self.entries.push(Entry {
                key: key.to_vec(),
                count: 1,
                inherited: 0,
            });
        } else {
            self.replace_least(hash, key);
        }
    }

    fn replace_least(&mut self, hash: u64, key: &[u8]) {
        let counts = self.entries.iter().enumerate();
        let least = counts.min_by_key(|(_, entry)| entry.count);
        let (index, _) = least.expect("it is full, and so not empty");
        let entry = &mut self.entries[index];
        entry.key.clear();
        entry.key.extend_from_slice(key);
        entry.inherited = entry.count;
        entry.count += 1;
        self.hashes[index] = hash;
    }

    /// Halves the counts for every period that has begun since the last time.
    fn halve(&mut self, now: Tick) {
        let period = now.as_ms() / PERIOD_MS;
        let times = period.saturating_sub(self.period);
        if times == 0 {
            return;
        }
        self.period = period;
        for entry in &mut self.entries {
            entry.count = entry.count.checked_shr(times as u32).unwrap_or(0);
            entry.inherited = entry.inherited.checked_shr(times as u32).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests;
