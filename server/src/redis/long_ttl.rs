//! Ends that lie further ahead than the engine counts, which is two years: some clients ask for thousands. The engine is given the
//! longest it takes, and what was asked for is kept here, to be told when they ask. A restart forgets it; the lock it keeps.
//!
//! One such table stands in each stripe of the keyspace, and hardly ever has anything in it.

use engine::Fence;
use hashbrown::HashMap;

/// From so many on, those whose locks are gone are looked for before another one is added.
const SWEEP_FROM: usize = 64;

/// How many one stripe may have. Beyond, clients are told the end that the engine knows.
const LONG_TTLS_MAX: usize = 65_536;

/// When some of the locks of a stripe end.
#[derive(Default)]
pub(crate) struct LongTtls {
    ends: HashMap<Box<[u8]>, LongTtl>,
    sweep_at: usize,
}

struct LongTtl {
    /// Under which the lock is held that it belongs to.
    fence: Fence,
    unix_ms: u64,
}

impl LongTtls {
    /// When the lock ends that is held under this fence, if that is further ahead than the engine knows.
    pub(crate) fn get(&self, name: &[u8], fence: Fence) -> Option<u64> {
        if self.ends.is_empty() {
            return None;
        }
        let end = self.ends.get(name)?;
        (end.fence == fence).then_some(end.unix_ms)
    }

    /// Whether adding one should be preceded by [`Self::sweep`].
    pub(crate) fn is_sweep_due(&self) -> bool {
        self.ends.len() >= self.sweep_at.max(SWEEP_FROM)
    }

    /// Forgets those whose locks are gone.
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
