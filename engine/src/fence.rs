//! Fences, and the two numbers that bound them in a shard.
//!
//! A grant's fence is the cell's last fence plus one, never above the shard's **ceiling**. The
//! **floor** matters when a cell is born: it is at least every fence that an evicted cell of this
//! shard ever had, so a key that was forgotten comes back above everything it was granted before.
//! Both only rise.
//!
//! The ceiling is what durability promises: fences up to it may have been issued, so a restart
//! begins with `floor = ceiling`. It is raised from outside, after the new value is on disk: by the
//! server's keeper (`server/src/durability/keeper.rs`). Half of the way from one ceiling to the
//! next lies the **alarm**, which says that it is time. The floor at the **start** divides fences
//! of this life from those of earlier ones: a lock that outlived a restart keeps its old fence, and
//! the next grant of its key has one of this life.

use crate::sync::{AtomicU64, Ordering};
use crate::time::lease::Lease;

use types::Fence;

/// One shard's floor and ceiling. Any core may read and raise them; neither ever falls.
pub(crate) struct Bounds {
    floor: AtomicU64,
    ceiling: AtomicU64,
    alarm: AtomicU64,
    /// About the highest fence issued: never below it, and above it by the grain at most. Up to
    /// here no grant writes anything.
    mark: AtomicU64,
    start: Fence,
}

/// How far the mark is moved at once.
const MARK_GRAIN: u64 = 1024;

impl Bounds {
    pub(crate) fn new(floor: Fence, ceiling: Fence) -> Self {
        let ceiling = ceiling.get().min(Fence::MAX.get());
        Bounds {
            floor: AtomicU64::new(floor.get()),
            ceiling: AtomicU64::new(ceiling),
            alarm: AtomicU64::new(alarm_between(floor.get(), ceiling)),
            mark: AtomicU64::new(floor.get()),
            start: floor,
        }
    }

    /// Every fence of this life lies above this, every fence of an earlier one at or below it.
    pub(crate) fn start(&self) -> Fence {
        self.start
    }

    /// The fence of the grant that follows one under `last`. Its lease never has the tag of the
    /// lease under `last`: until the new lease is written the cell shows the old one, and only the
    /// tag tells them apart.
    #[inline]
    pub(crate) fn next_after(&self, last: Fence) -> Fence {
        if last >= self.start {
            return last.next();
        }
        self.first_after_restored(last)
    }

    /// The first fence of this life, for a key that came with one of an earlier life. Fences in
    /// between are left out, so that the two may be any distance apart, a multiple of the number of
    /// tags included.
    #[cold]
    fn first_after_restored(&self, last: Fence) -> Fence {
        let first = self.start.next();
        let is_same_tag = Lease::tag_of(first.get()) == Lease::tag_of(last.get());
        if is_same_tag && !fault!(RestoredTagRepeats) {
            return first.next();
        }
        first
    }

    /// Takes note of a fence that was issued. `true`: so many have been that the ceiling should be
    /// raised.
    #[inline]
    pub(crate) fn note_issued(&self, fence: Fence) -> bool {
        fence.get() > self.mark.load(Ordering::Relaxed) && self.move_mark(fence)
    }

    #[cold]
    fn move_mark(&self, fence: Fence) -> bool {
        let alarm = self.alarm.load(Ordering::Relaxed);
        if fence.get() > alarm {
            self.mark.fetch_max(fence.get() - 1, Ordering::Relaxed);
            return true;
        }
        let mark = (fence.get() + MARK_GRAIN).min(alarm);
        self.mark.fetch_max(mark, Ordering::Relaxed);
        false
    }

    /// How many fences are left below the ceiling for the key that has used most, a little less
    /// than that at times.
    pub(crate) fn headroom(&self) -> u64 {
        let mark = self.mark.load(Ordering::Relaxed);
        self.ceiling().get().saturating_sub(mark)
    }

    pub(crate) fn floor(&self) -> Fence {
        // Acquire, paired with `raise_floor`. An inserter that found its key evicted has already
        // synchronised with the evictor through the dead word or the index entry, so it sees the
        // floor that was raised before.
        Fence::from_number(self.floor.load(Ordering::Acquire))
    }

    pub(crate) fn raise_floor(&self, to: Fence) {
        self.floor.fetch_max(to.get(), Ordering::AcqRel);
    }

    pub(crate) fn ceiling(&self) -> Fence {
        // Acquire, paired with `raise_ceiling`: a grantor that sees the new ceiling sees that it
        // was made durable.
        Fence::from_number(self.ceiling.load(Ordering::Acquire))
    }

    pub(crate) fn raise_ceiling(&self, to: Fence) {
        let to = to.get().min(Fence::MAX.get());
        let from = self.ceiling.fetch_max(to, Ordering::AcqRel);
        if from < to {
            self.alarm
                .fetch_max(alarm_between(from, to), Ordering::Relaxed);
        }
    }
}

/// At the largest fence of all there is nothing left to raise.
fn alarm_between(from: u64, to: u64) -> u64 {
    if to == Fence::MAX.get() {
        to
    } else {
        to - to.saturating_sub(from) / 2
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Found by a model: with the same tag, the ended lease of a restored lock was taken for that
    /// of the grant after it, and the key had two holders.
    #[test]
    fn no_grant_has_the_tag_of_the_one_before_it() {
        for start in [0, 1, (1 << 24) - 1, 1 << 24, (1 << 24) + 5, 3 << 24] {
            let bounds = Bounds::new(Fence::from_number(start), Fence::MAX);
            let around = |number: u64| number.saturating_sub(2)..=number + 2;
            let lasts = around(start % (1 << 24)).chain(around(start));
            for last in lasts.map(Fence::from_number) {
                let next = bounds.next_after(last);
                assert!(next > last && next > bounds.start(), "{last} and {next}");
                assert_ne!(
                    Lease::tag_of(next.get()),
                    Lease::tag_of(last.get()),
                    "{last} and {next} with a start at {start}"
                );
            }
        }
    }
}
