//! The grace period: after a stop without notice, holders may claim what they held, and nothing new is granted.

use engine::Tick;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far the server has come to know who holds what.
#[derive(Default)]
pub(crate) struct Recovery {
    is_on: AtomicBool,
    until: Tick,
    /// Locks that were claimed.
    claimed: AtomicU64,
    /// The horizon of the servers before, which holds until a later one is written.
    horizon_unix_ms: u64,
}

impl Recovery {
    /// A server that goes on where another one stopped. Its grace period lasts until `until`, if it has one.
    pub(crate) fn new(until: Option<Tick>, horizon_unix_ms: u64) -> Self {
        Recovery {
            is_on: AtomicBool::new(until.is_some()),
            until: until.unwrap_or_default(),
            claimed: AtomicU64::new(0),
            horizon_unix_ms,
        }
    }

    /// Whether nothing new is granted yet.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// What is left of the grace period; `None` when its time is up, or there was none.
    pub(crate) fn remaining_ms(&self, now: Tick) -> Option<u64> {
        let left_ms = now.ms_until(self.until);
        (self.is_on() && left_ms > 0).then_some(left_ms)
    }

    /// As the wire has it: how long not all holders are known. At least 1, since the first ceiling may be raised a little after
    /// the time is up.
    #[inline]
    pub(crate) fn recovering_ms(&self, now: Tick) -> Option<u32> {
        if !self.is_on() {
            return None;
        }
        let left_ms = self.remaining_ms(now).unwrap_or(1);
        Some(u32::try_from(left_ms).unwrap_or(u32::MAX))
    }

    pub(crate) fn end(&self) {
        self.is_on.store(false, Ordering::Release);
    }

    pub(crate) fn count_claim(&self) {
        self.claimed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn claimed(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }

    pub(crate) fn horizon_unix_ms(&self) -> u64 {
        self.horizon_unix_ms
    }
}
