//! The grace period: after a stop without notice, holders may claim what they held, and nothing new
//! is granted.

use engine::{Fence, Tick};
use hashbrown::HashSet;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wal::Record;

/// How far the server has come to know the holders of before.
#[derive(Default)]
pub(crate) struct Recovery {
    is_on: AtomicBool,
    until: Tick,
    /// Locks that were claimed.
    claimed: AtomicU64,
    /// The horizon of the servers before, which counts until it has passed.
    horizon: Horizon,
    /// Keys and fences that were taken away by force in the grace period. Not more than locks that
    /// were held.
    taken_away: Mutex<HashSet<(Box<[u8]>, Fence)>>,
}

/// Until when leases may live that no record names, and how long such a lease can have been.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Horizon {
    pub(crate) unix_ms: u64,
    /// `None`: there was no bound.
    pub(crate) lease_ms_max: Option<u32>,
}

impl Horizon {
    pub(crate) fn record(self) -> Record<'static> {
        Record::Horizon {
            unix_ms: self.unix_ms,
            lease_ms_max: self.lease_ms_max,
        }
    }

    /// A horizon that covers what both do.
    pub(crate) fn and(self, other: Horizon) -> Horizon {
        if self.unix_ms == 0 {
            return other;
        }
        let both = self.lease_ms_max.zip(other.lease_ms_max);
        Horizon {
            unix_ms: self.unix_ms.max(other.unix_ms),
            lease_ms_max: both.map(|(own, other)| own.max(other)),
        }
    }
}

impl Recovery {
    /// A server that goes on where another one stopped. Its grace period lasts until `until`, if it
    /// has one.
    pub(crate) fn new(until: Option<Tick>, horizon: Horizon) -> Self {
        Recovery {
            is_on: AtomicBool::new(until.is_some()),
            until: until.unwrap_or_default(),
            claimed: AtomicU64::new(0),
            horizon,
            taken_away: Mutex::default(),
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

    /// As the wire has it: how long not all holders are known. At least 1, since the first ceiling
    /// may be raised a little after the time is up.
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

    /// A lock was taken away by force. If that was in the grace period, it cannot be claimed any
    /// more: its end is in the log, and replay takes an end as final.
    pub(crate) fn note_taken_away(&self, key: &[u8], fence: Fence) {
        if self.is_on() {
            self.taken_away.lock().insert((key.into(), fence));
        }
    }

    pub(crate) fn was_taken_away(&self, key: &[u8], fence: Fence) -> bool {
        self.taken_away.lock().contains(&(key.into(), fence))
    }

    pub(crate) fn count_claim(&self) {
        self.claimed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn claimed(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }

    pub(crate) fn horizon(&self) -> Horizon {
        self.horizon
    }
}
