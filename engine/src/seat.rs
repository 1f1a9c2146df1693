//! A seat: one thread's share of a session. It remembers which cells the session took through it, so that ending the
//! session costs no more than what it holds.
//!
//! A seat belongs to one thread and is not synchronised; a session that works on several cores has a seat on each. The
//! list costs four bytes a lock. A release through the same seat that comes last-in first-out takes its entry off at
//! once; other entries go stale and are swept a few at a time, so that the list stays within a small multiple (four) of what is live.

use crate::session::SessionId;
use crate::slab::SLOT_MAX;

/// A cell of any shard: `shard:8 | slot:24`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CellRef(u32);

/// As many shards as a `CellRef` can name.
pub(crate) const SHARDS_MAX: usize = 256;

impl CellRef {
    pub(crate) fn new(shard: usize, slot: u32) -> Self {
        assert!(
            shard < SHARDS_MAX && slot <= SLOT_MAX,
            "shard {shard}, slot {slot}"
        );
        CellRef((shard as u32) << 24 | slot)
    }

    pub(crate) fn shard(self) -> usize {
        (self.0 >> 24) as usize
    }

    pub(crate) fn slot(self) -> u32 {
        self.0 & SLOT_MAX
    }
}

/// A place in a queue. Names one wait only, for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    pub(crate) cell: CellRef,
    pub(crate) waiter: u32,
    pub(crate) generation: u32,
}

/// One thread's share of a session: what it took through this thread. See the module.
pub struct Seat {
    session: SessionId,
    pub(crate) held: RefList,
    pub(crate) waits: Vec<Ticket>,
    /// The next entry a sweep looks at; a sweep is on while it lies below `sweep_end`.
    sweep_hand: usize,
    sweep_end: usize,
    /// A sweep begins when the list has grown to this.
    sweep_at: usize,
    pub(crate) waits_sweep_at: usize,
}

/// Lists shorter than this are not worth sweeping.
pub(crate) const SWEEP_MIN: usize = 64;
/// How many old entries each new one looks at while a sweep is on.
const SWEEP_PER_PUSH: usize = 4;

impl Seat {
    /// A seat of this session, for one thread.
    pub fn new(session: SessionId) -> Self {
        Seat {
            session,
            held: RefList::default(),
            waits: Vec::new(),
            sweep_hand: 0,
            sweep_end: 0,
            sweep_at: SWEEP_MIN,
            waits_sweep_at: SWEEP_MIN,
        }
    }

    /// Whose seat it is.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Remembers a cell, and sweeps a few entries if it is time. `is_held` says whether an entry is still worth keeping.
    #[inline]
    pub(crate) fn remember(&mut self, cell: CellRef, is_held: impl Fn(CellRef) -> bool) {
        self.held.push(cell);
        if self.held.len() >= self.sweep_at || self.sweep_hand < self.sweep_end {
            self.sweep(is_held);
        }
    }

    /// Forgets a cell that was just released, if it was the last one taken.
    #[inline]
    pub(crate) fn forget_last(&mut self, cell: CellRef) {
        if self.held.last() == Some(cell) {
            self.held.pop();
        }
    }

    #[cold]
    fn sweep(&mut self, is_held: impl Fn(CellRef) -> bool) {
        if self.sweep_hand >= self.sweep_end {
            self.sweep_hand = 0;
            self.sweep_end = self.held.len();
        }
        for _ in 0..SWEEP_PER_PUSH {
            self.sweep_end = self.sweep_end.min(self.held.len());
            if self.sweep_hand >= self.sweep_end {
                break;
            }
            if is_held(self.held.get(self.sweep_hand)) {
                self.sweep_hand += 1;
            } else {
                self.held.swap_remove(self.sweep_hand);
            }
        }
        if self.sweep_hand >= self.sweep_end {
            self.sweep_at = (self.held.len() * 2).max(SWEEP_MIN);
        }
    }
}

/// A list of cells in chunks, so that growing it never copies what is there.
#[derive(Default)]
pub(crate) struct RefList {
    chunks: Vec<Vec<CellRef>>,
    length: usize,
}

const CHUNK: usize = 4096;
/// The first chunk grows from small: most sessions hold a handful of locks.
const CHUNK_FIRST: usize = 16;

impl RefList {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    #[inline]
    pub(crate) fn push(&mut self, cell: CellRef) {
        let full = self.length == self.chunks.len() * CHUNK;
        if full {
            let capacity = if self.length == 0 { CHUNK_FIRST } else { CHUNK };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        self.chunks[self.length / CHUNK].push(cell);
        self.length += 1;
    }

    #[inline]
    pub(crate) fn last(&self) -> Option<CellRef> {
        (self.length > 0).then(|| self.get(self.length - 1))
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<CellRef> {
        let last = self.last()?;
        self.length -= 1;
        let chunk = self.length / CHUNK;
        self.chunks[chunk].pop();
        // One empty chunk is kept, so that a list at the border does not allocate with every push.
        self.chunks.truncate(chunk + 2);
        Some(last)
    }

    #[inline]
    pub(crate) fn get(&self, position: usize) -> CellRef {
        self.chunks[position / CHUNK][position % CHUNK]
    }

    pub(crate) fn swap_remove(&mut self, position: usize) {
        let last = self.pop().expect("the position is in the list");
        if position < self.length {
            self.chunks[position / CHUNK][position % CHUNK] = last;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn session() -> SessionId {
        SessionId::from_bits(1 << 32 | 1)
    }

    #[test]
    fn the_list_grows_and_shrinks_across_chunks() {
        let mut list = RefList::default();
        for slot in 1..=3 * CHUNK as u32 {
            list.push(CellRef::new(0, slot));
        }
        list.swap_remove(0);
        assert_eq!(list.get(0).slot(), 3 * CHUNK as u32);
        for _ in 0..list.len() {
            assert!(list.pop().is_some());
        }
        assert_eq!(list.pop(), None);
        list.push(CellRef::new(1, 9));
        assert_eq!(list.last(), Some(CellRef::new(1, 9)));
    }

    #[test]
    fn stale_entries_are_swept_and_live_ones_kept() {
        let mut seat = Seat::new(session());
        let live: HashSet<u32> = (1..=100_000).filter(|slot| slot % 100 == 0).collect();
        for slot in 1..=100_000 {
            seat.remember(CellRef::new(0, slot), |cell| {
                live.contains(&cell.slot()) || cell.slot() == slot
            });
        }
        let kept: HashSet<u32> = (0..seat.held.len())
            .map(|position| seat.held.get(position).slot())
            .collect();
        assert!(live.is_subset(&kept), "a live entry was lost");
        assert!(
            kept.len() < 4 * live.len() + 2 * SWEEP_MIN,
            "{} entries kept for {} live ones",
            kept.len(),
            live.len()
        );
    }
}
