//! Storage that never moves and never goes back to the allocator while the engine lives: slots
//! numbered from 1. Type-stable memory is what lets the rest of the engine read a slot without a
//! lock and find out afterwards whether it was still the same one. The memory itself is in
//! `arena.rs`.
//!
//! Freed slots are kept on a stack whose head carries a version, so that a pop which was overtaken
//! fails.

use super::arena::Arena;
use super::hint::prefetch;
use super::pieces::Pieces;
use super::slot::{NONE, PIECE_SLOTS, SLOT_MAX, Slot, piece_count};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

pub(crate) struct Slab<T: 'static> {
    pieces: Pieces<T>,
    /// `version:32 | slot:32`.
    free: AtomicU64,
    /// Slots below this have been handed out at least once.
    fresh: AtomicU32,
    live: AtomicU32,
    /// Fresh slots are handed out up to here.
    slot_max: AtomicU32,
    /// `slot_max` from the time on at which the reserve is closed.
    slot_max_later: u32,
}

impl<T: Slot> Slab<T> {
    /// A slab of up to `slot_max` slots, in memory that it shares with others.
    pub(crate) fn new(slot_max: u32, arena: Arc<Arena<T>>) -> Self {
        Slab::with_reserve(slot_max, 0, arena)
    }

    /// One with room for `reserve` more, until the reserve is closed.
    pub(crate) fn with_reserve(slot_max: u32, reserve: u32, arena: Arc<Arena<T>>) -> Self {
        let slot_max_now = slot_max.saturating_add(reserve).min(SLOT_MAX);
        Slab {
            pieces: Pieces::new(piece_count(slot_max_now), arena),
            free: AtomicU64::new(0),
            fresh: AtomicU32::new(0),
            live: AtomicU32::new(0),
            slot_max: AtomicU32::new(slot_max_now),
            slot_max_later: slot_max.min(SLOT_MAX),
        }
    }

    /// From here on only as many slots are handed out as the slab is for, or as it has handed out
    /// already.
    pub(crate) fn close_reserve(&self) {
        self.slot_max.store(self.slot_max_later, Ordering::Relaxed);
    }

    /// One with memory of its own.
    pub(crate) fn alone(slot_max: u32) -> Self {
        let arena = Arena::new(piece_count(slot_max.min(SLOT_MAX)));
        Slab::new(slot_max, Arc::new(arena))
    }

    /// The slot with this number, which must have been taken before.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &T {
        let (piece, offset) = locate(slot);
        &self.pieces.get(piece)[offset]
    }

    /// An unused slot: one that was freed, else a fresh one. `None` at the slab's limit.
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
            // Release, paired with the Acquire in `pop_free`: the taker sees the slot as its last
            // user left it.
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

    /// The highest slot number ever handed out, for a walk over all slots.
    pub(crate) fn last(&self) -> u32 {
        // Acquire, paired with `take_fresh`: the pieces of all these slots are there.
        self.fresh.load(Ordering::Acquire)
    }

    fn pop_free(&self) -> Option<u32> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let slot = head as u32;
            if slot == NONE {
                return None;
            }
            // The slot may have been popped and be in use by now; then this link is garbage and the
            // version has moved on.
            let next = self.get(slot).free_link().load(Ordering::Relaxed);
            match self.free.compare_exchange_weak(
                head,
                next_head(head, next),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    // The next taker need not wait for its slot as we have waited for ours.
                    if next != NONE {
                        prefetch(self.get(next));
                    }
                    return Some(slot);
                }
                Err(now) => head = now,
            }
        }
    }

    fn take_fresh(&self) -> Option<u32> {
        let mut last = self.fresh.load(Ordering::Acquire);
        loop {
            if last >= self.slot_max.load(Ordering::Relaxed) {
                return None;
            }
            let slot = last + 1;
            let (piece, offset) = locate(slot);
            if offset == 0 {
                self.pieces.provide(piece);
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
    let step = u32::from(!fault!(FreeListUnversioned));
    let version = (head >> 32) as u32;
    (u64::from(version.wrapping_add(step)) << 32) | u64::from(slot)
}

/// Which piece a slot is in, and where.
#[inline]
fn locate(slot: u32) -> (usize, usize) {
    debug_assert!(slot != NONE, "slot numbers start at 1");
    // Slot 0 would be in a piece that no slab has.
    let position = slot.wrapping_sub(1) as usize;
    (position / PIECE_SLOTS, position % PIECE_SLOTS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::slot::Thing;

    #[test]
    fn every_slot_number_has_its_own_place() {
        let arena = Arc::new(Arena::new(8));
        let slabs: [Slab<Thing>; 2] = std::array::from_fn(|_| Slab::new(4_000, arena.clone()));
        for number in 1..=4_000 {
            for slab in &slabs {
                let slot = slab.take().unwrap();
                assert_eq!(slot, number);
                assert_eq!(slab.get(slot).link.swap(slot, Ordering::Relaxed), 0);
            }
        }
        assert!(slabs.iter().all(|slab| slab.take().is_none()));
        assert_eq!(locate(SLOT_MAX).0 + 1, piece_count(SLOT_MAX));
    }

    #[test]
    fn freed_slots_come_back_and_the_limit_holds() {
        let slab = Slab::<Thing>::alone(3);
        let taken = [slab.take(), slab.take(), slab.take()];
        assert_eq!(taken, [Some(1), Some(2), Some(3)]);
        assert_eq!(slab.take(), None);
        slab.put(2);
        assert_eq!(slab.live(), 2);
        assert_eq!(slab.take(), Some(2));
        assert_eq!(slab.take(), None);
    }

    #[test]
    fn a_reserve_is_used_until_it_is_closed() {
        for (before, after) in [(2, 3), (4, 4)] {
            let slab = Slab::<Thing>::with_reserve(3, 2, Arc::new(Arena::new(2)));
            for _ in 0..before {
                assert!(slab.take().is_some());
            }
            slab.close_reserve();
            while slab.take().is_some() {}
            assert_eq!(slab.live(), after);
            slab.put(1);
            assert_eq!(slab.take(), Some(1));
            assert_eq!(slab.take(), None);
        }
    }
}
