//! Storage that never moves and never goes back to the allocator while the engine lives: slots numbered from 1, in
//! segments of doubling size. Type-stable memory is what lets the rest of the engine read a slot without a lock and
//! find out afterwards whether it was still the same one.
//!
//! Segments come zeroed from the allocator, so the part of a segment that no slot has used costs no resident memory.
//! Freed slots are kept on a stack whose head carries a version, so that a pop which was overtaken fails.

use crate::fault::{self, Fault};
use crate::sync::{AtomicU32, AtomicU64, OnceLock, Ordering};

/// What can live in a slab: something whose all-zero state means "never used", with a link for when it is free.
pub(crate) trait Slot: Sized {
    /// Holds the next free slot's number while this one is free. Not touched by the slab otherwise.
    fn free_link(&self) -> &AtomicU32;

    /// A segment of zeroed slots.
    fn zeroed_segment(slot_count: usize) -> Box<[Self]>;
}

/// No slot. Slot numbers start at 1 so that zeroed links mean nothing is linked.
pub(crate) const NONE: u32 = 0;

/// The first segment's size, log2. Small enough for an embedded engine of a few keys.
const FIRST_BITS: u32 = if cfg!(loom) { 1 } else { 6 };
const SEGMENT_COUNT: usize = if cfg!(loom) {
    2
} else {
    25 - FIRST_BITS as usize
};

/// Slot numbers fit in 24 bits: an index entry packs one beside its tag.
pub(crate) const SLOT_MAX: u32 = (1 << 24) - 1;

pub(crate) struct Slab<T> {
    segments: [OnceLock<Box<[T]>>; SEGMENT_COUNT],
    /// `version:32 | slot:32`.
    free: AtomicU64,
    /// Slots below this have been handed out at least once.
    fresh: AtomicU32,
    live: AtomicU32,
    slot_max: u32,
}

impl<T: Slot> Slab<T> {
    pub(crate) fn new(slot_max: u32) -> Self {
        Slab {
            segments: std::array::from_fn(|_| OnceLock::new()),
            free: AtomicU64::new(0),
            fresh: AtomicU32::new(0),
            live: AtomicU32::new(0),
            slot_max: slot_max.min(SLOT_MAX),
        }
    }

    /// The slot with this number, which must have been taken before.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &T {
        let (segment, offset) = locate(slot);
        let segment = self.segments[segment]
            .get()
            .expect("a slot number exists only after its segment");
        &segment[offset]
    }

    /// A slot nobody uses: one that was freed, else a fresh one. `None` at the slab's limit.
    pub(crate) fn take(&self) -> Option<u32> {
        let slot = self.pop_free().or_else(|| self.take_fresh())?;
        self.live.fetch_add(1, Ordering::Relaxed);
        Some(slot)
    }

    /// Gives a slot back. The caller was its only user.
    pub(crate) fn put(&self, slot: u32) {
        let link = self.get(slot).free_link();
        let mut head = self.free.load(Ordering::Relaxed);
        loop {
            link.store(head as u32, Ordering::Relaxed);
            // Release, paired with the Acquire in `pop_free`: the taker sees the slot as its last user left it.
            match self.free.compare_exchange_weak(
                head,
                next_head(head, slot),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many slots are in use.
    pub(crate) fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    /// The highest slot number ever handed out, for those who walk all slots.
    pub(crate) fn last(&self) -> u32 {
        // Acquire, paired with `take_fresh`: the segments of all these slots exist.
        self.fresh.load(Ordering::Acquire)
    }

    fn pop_free(&self) -> Option<u32> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let slot = head as u32;
            if slot == NONE {
                return None;
            }
            // The slot may have been popped and be in use by now; then this link is garbage and the version has moved on.
            let next = self.get(slot).free_link().load(Ordering::Relaxed);
            match self.free.compare_exchange_weak(
                head,
                next_head(head, next),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(slot),
                Err(now) => head = now,
            }
        }
    }

    fn take_fresh(&self) -> Option<u32> {
        let mut last = self.fresh.load(Ordering::Acquire);
        loop {
            if last >= self.slot_max {
                return None;
            }
            let slot = last + 1;
            let (segment, offset) = locate(slot);
            if offset == 0 {
                self.segments[segment]
                    .get_or_init(|| T::zeroed_segment(1 << (FIRST_BITS + segment as u32)));
            }
            match self
                .fresh
                .compare_exchange_weak(last, slot, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(slot),
                Err(now) => last = now,
            }
        }
    }
}

fn next_head(head: u64, slot: u32) -> u64 {
    let step = u32::from(!fault::injected(Fault::FreeListUnversioned));
    let version = (head >> 32) as u32;
    (u64::from(version.wrapping_add(step)) << 32) | u64::from(slot)
}

/// Segment `s` holds `2^(FIRST_BITS + s)` slots, so a slot's segment is the position of its leading bit.
#[inline]
fn locate(slot: u32) -> (usize, usize) {
    debug_assert!(slot != NONE, "slot numbers start at 1");
    // With slot 0 this would be one less than the first segment begins with, and no segment at all.
    let position = slot + ((1 << FIRST_BITS) - 1);
    let bits = position.ilog2();
    (
        bits.wrapping_sub(FIRST_BITS) as usize,
        (position & !(1 << bits)) as usize,
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[derive(bytemuck::Zeroable)]
    struct Thing {
        link: AtomicU32,
    }

    impl Slot for Thing {
        fn free_link(&self) -> &AtomicU32 {
            &self.link
        }
        fn zeroed_segment(slot_count: usize) -> Box<[Self]> {
            bytemuck::zeroed_slice_box(slot_count)
        }
    }

    #[test]
    fn every_slot_number_has_its_own_place() {
        let mut expected = (0, 0);
        for slot in 1..=100_000 {
            assert_eq!(locate(slot), expected, "slot {slot}");
            expected.1 += 1;
            if expected.1 == 1 << (FIRST_BITS as usize + expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(
            locate(SLOT_MAX).0 < SEGMENT_COUNT,
            "the last slot has a segment"
        );
    }

    #[test]
    fn freed_slots_come_back_and_the_limit_holds() {
        let slab = Slab::<Thing>::new(3);
        let taken = [slab.take(), slab.take(), slab.take()];
        assert_eq!(taken, [Some(1), Some(2), Some(3)]);
        assert_eq!(slab.take(), None);
        slab.put(2);
        assert_eq!(slab.live(), 2);
        assert_eq!(slab.take(), Some(2));
        assert_eq!(slab.take(), None);
    }
}
