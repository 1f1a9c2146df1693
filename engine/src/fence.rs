//! Fences, and the two numbers that bound them in a shard.
//!
//! A grant's fence is the cell's last fence plus one, never above the shard's **ceiling**. The **floor** matters when a
//! cell is born: it is at least every fence that an evicted cell of this shard ever had, so a key that was forgotten
//! comes back above everything it was granted before. Both only rise.
//!
//! The ceiling is what durability promises: fences up to it may have been issued, so a restart begins with
//! `floor = ceiling`. It is advanced from outside, after the new value is on disk.

use crate::sync::{AtomicU64, Ordering};
use std::fmt;

/// The number carried by a grant: larger than that of every earlier grant of the same key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fence(u64);

impl Fence {
    /// The fence below all fences. Never granted.
    pub const ZERO: Fence = Fence(0);

    /// 2^53 - 1: the largest integer that JavaScript holds exactly. A million grants a second reach it after 285 years.
    pub const MAX: Fence = Fence((1 << 53) - 1);

    /// The fence with this number; `None` above [`Fence::MAX`].
    pub const fn new(number: u64) -> Option<Fence> {
        if number <= Self::MAX.0 {
            Some(Fence(number))
        } else {
            None
        }
    }

    /// The number itself, as it goes over the wire.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next fence. A cell never grants at `MAX` (no ceiling lies above it), so this cannot overflow.
    pub(crate) fn next(self) -> Fence {
        assert!(
            self.0 < u64::MAX >> 3,
            "fence {} leaves the lock word",
            self.0
        );
        Fence(self.0 + 1)
    }

    /// For numbers that come out of a lock word, which may lie one above `MAX` (a reused cell that can never grant).
    pub(crate) const fn from_word(number: u64) -> Fence {
        Fence(number)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One shard's floor and ceiling. Any core may read and raise them; neither ever falls.
pub(crate) struct Bounds {
    floor: AtomicU64,
    ceiling: AtomicU64,
}

impl Bounds {
    pub(crate) fn new(floor: Fence, ceiling: Fence) -> Self {
        Bounds {
            floor: AtomicU64::new(floor.0),
            ceiling: AtomicU64::new(ceiling.0.min(Fence::MAX.0)),
        }
    }

    pub(crate) fn floor(&self) -> Fence {
        // Acquire, paired with `raise_floor`. An inserter that found its key evicted has already synchronised with the
        // evictor through the dead word or the index entry, so it sees the floor that was raised before.
        Fence(self.floor.load(Ordering::Acquire))
    }

    pub(crate) fn raise_floor(&self, to: Fence) {
        self.floor.fetch_max(to.0, Ordering::AcqRel);
    }

    pub(crate) fn ceiling(&self) -> Fence {
        // Acquire, paired with `raise_ceiling`: whoever sees the new ceiling sees that it was made durable.
        Fence(self.ceiling.load(Ordering::Acquire))
    }

    pub(crate) fn raise_ceiling(&self, to: Fence) {
        self.ceiling
            .fetch_max(to.0.min(Fence::MAX.0), Ordering::AcqRel);
    }
}
