//! Until when a thread that turns a wheel sleeps.

use super::tick::Tick;
use crate::sync::{AtomicU64, Ordering};

/// The moment until which the home of a shard, or of the sessions, sleeps.
pub(crate) struct RestsUntil(AtomicU64);

/// It does not sleep, or has been woken.
const AWAKE: u64 = 0;

impl RestsUntil {
    pub(crate) fn new() -> Self {
        RestsUntil(AtomicU64::new(AWAKE))
    }

    /// The sleeper is about to sleep until then. Relaxed here and below: a mutex or the inbox,
    /// which sleeper and asker both go through, orders it.
    pub(crate) fn announce(&self, until: Tick) {
        self.0.store(until.as_ms(), Ordering::Relaxed);
    }

    /// Whether it sleeps beyond `due`. `true` for one of the callers that find that out: it wakes
    /// the sleeper. If it takes away the moment of a later sleep, the sleeper wakes once in vain.
    pub(crate) fn is_slept_over(&self, due: Tick) -> bool {
        due.as_ms() < self.0.load(Ordering::Relaxed)
            && self.0.swap(AWAKE, Ordering::Relaxed) != AWAKE
    }
}
