//! Ends that lie further ahead than the engine counts, which is two years. Some clients ask for
//! thousands. The engine is given the longest TTL that it takes, and the end that was asked for is
//! kept here, for `PTTL` and its relatives. A restart forgets the end and keeps the lock.
//!
//! Each stripe of the keyspace has one such table, which is nearly always empty.

use engine::Fence;
use hashbrown::HashMap;

/// From so many entries on, `sweep` removes those whose locks are gone before another is added.
const SWEEP_FROM: usize = 64;

/// How many entries one stripe may have. Beyond, clients are told the end that the engine knows.
const LONG_TTLS_MAX: usize = 65_536;

/// The ends of those locks of a stripe that have a long TTL.
#[derive(Default)]
pub(crate) struct LongTtls {
    ends: HashMap<Box<[u8]>, LongTtl>,
    sweep_at: usize,
}

struct LongTtl {
    /// The fence of the hold that it belongs to.
    fence: Fence,
    unix_ms: u64,
}

impl LongTtls {
    /// When the hold under this fence ends, if the engine does not know it.
    pub(crate) fn get(&self, name: &[u8], fence: Fence) -> Option<u64> {
        if self.ends.is_empty() {
            return None;
        }
        let end = self.ends.get(name)?;
        (end.fence == fence).then_some(end.unix_ms)
    }

    /// Whether [`Self::sweep`] should come before the next entry.
    pub(crate) fn is_sweep_due(&self) -> bool {
        self.ends.len() >= self.sweep_at.max(SWEEP_FROM)
    }

    /// Removes the entries whose locks are gone.
    pub(crate) fn sweep(&mut self, is_held: impl Fn(&[u8], Fence) -> bool) {
        self.ends.retain(|name, end| is_held(name, end.fence));
        self.sweep_at = self.ends.len() * 2;
    }

    pub(crate) fn set(&mut self, name: &[u8], fence: Fence, unix_ms: u64) {
        if self.ends.len() < LONG_TTLS_MAX {
            self.ends.insert(name.into(), LongTtl { fence, unix_ms });
        }
    }

    pub(crate) fn forget(&mut self, name: &[u8]) {
        if !self.ends.is_empty() {
            self.ends.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    #[test]
    fn an_end_belongs_to_one_hold_of_a_lock() {
        let mut ends = LongTtls::default();
        ends.set(b"k", fence(7), 1_000);
        assert_eq!(ends.get(b"k", fence(7)), Some(1_000));
        assert_eq!(ends.get(b"k", fence(8)), None);
        assert_eq!(ends.get(b"l", fence(7)), None);
        ends.forget(b"k");
        assert_eq!(ends.get(b"k", fence(7)), None);
    }

    #[test]
    fn what_is_gone_is_swept_away_and_the_rest_is_bounded() {
        let mut ends = LongTtls::default();
        for number in 1..=LONG_TTLS_MAX as u64 + 1 {
            ends.set(&number.to_le_bytes(), fence(number), number);
        }
        assert_eq!(ends.ends.len(), LONG_TTLS_MAX);
        assert!(ends.is_sweep_due());
        ends.sweep(|_, held| held == fence(3));
        assert_eq!(ends.ends.len(), 1);
        assert!(!ends.is_sweep_due());
        assert_eq!(ends.get(&3_u64.to_le_bytes(), fence(3)), Some(3));
    }
}
