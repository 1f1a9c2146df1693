//! One generation of a shard's index: open addressing, linear probing, four bytes an entry.
//!
//! ```text
//! entry             | meaning                              | becomes
//! ------------------|--------------------------------------|------------------------------------
//! EMPTY             | no probe for a key goes past this    | an inserter: LIVE; the mover: CLOSED
//! LIVE (tag | slot) | a cell whose key's hash has this tag | the evictor: GONE
//! GONE              | a cell was here; probes go past      | nothing
//! CLOSED            | was EMPTY; look in the next index    | nothing
//! ```
//!
//! No entry ever becomes EMPTY again, and inserters fill only the first EMPTY of a probe. So two
//! inserters of one key meet at the same entry and one CAS decides; and a key that stands behind an
//! entry never loses the path to it. The price is that GONE entries pile up until the index is
//! rebuilt, which growth does anyway.

use super::epoch::Pointer;
use crate::memory::hint::{self, PAGE_BYTES};
use crate::memory::slot::SLOT_MAX;
use crate::sync::{AtomicU32, Ordering};

const EMPTY: u32 = 0;
const GONE: u32 = 1 << TAG_SHIFT;
const CLOSED: u32 = 2 << TAG_SHIFT;
const TAG_SHIFT: u32 = 24;

/// The smallest index.
const CAPACITY_MIN: usize = if cfg!(loom) { 4 } else { 64 };

/// The smallest index whose successor is laid out ahead of need: 64 KiB.
const SPARE_CAPACITY_MIN: usize = 16_384;

/// The smallest index on huge pages: 512 KiB. All shards' indexes are of about that size then, some
/// megabytes together. Smaller ones find themselves between other things that are on small pages
/// already.
const HUGE_CAPACITY_MIN: usize = 131_072;

/// How many threads are thought to be half-way through an insertion at the same moment, each with
/// one entry that is counted nowhere yet. Twice as many would do no harm, see `smallest_successor`.
const INSERTERS_MAX: usize = if cfg!(loom) { 3 } else { 64 };

const _: () = assert!(
    SLOT_MAX == (1 << TAG_SHIFT) - 1,
    "tag and slot share an entry; slot 0 marks the special ones"
);

pub(crate) struct Index {
    entries: Box<[AtomicU32]>,
    /// Entries that are no longer EMPTY. Counted before the fact: an inserter that finds no empty
    /// entry also finds the index crowded.
    used: AtomicU32,
    /// Insertions into this index and the one before it since the move from there to here began.
    arrived: AtomicU32,
    /// Where CLOSED entries lead. Set before the first entry is closed.
    pub(crate) next: Pointer<Index>,
}

/// What a probe came upon.
pub(crate) enum Probe {
    /// This slot may be the one: the tag fits.
    Candidate(u32),
    /// The end: the key is not here, and would be inserted at this position.
    Vacant(usize),
    /// The key is not here; look in the next index.
    Moved,
    /// All positions were probed and none was empty.
    Exhausted,
}

/// What a search came to.
pub(crate) enum Search<T> {
    Found(T),
    /// The key is in no index.
    Absent,
    /// The key is not here; look in the next index, if there is one.
    Moved,
}

/// How an insertion at a vacant position went.
pub(crate) enum Insert {
    Done,
    /// Another inserter wrote there first: probe on from the same position.
    Overtaken,
}

/// A walk along one key's probe sequence.
pub(crate) struct Prober {
    position: usize,
    probed: usize,
    tag: u32,
}

/// How many insertions may come during a move before every inserter waits for the mover: a quarter
/// of the new index.
const fn free_arrivals(capacity: usize) -> usize {
    capacity / 4
}

/// The smallest capacity of an index to which the entries of another are moved.
///
/// It must not be full before the move is over, since the mover has nowhere else to put an entry.
/// The mover may be held up at any point; inserters go on without it until they have to wait. So it
/// must hold, all at once:
///
/// ```text
/// next >= live                  what is moved
///       + unused                what comes into the old index before its entries are closed
///       + free_arrivals(next)   what comes into the new one before inserters wait
///       + steps                 what comes afterwards: one entry for each step that is left
///       + INSERTERS_MAX         entries that are counted nowhere yet
/// ```
///
/// A move that nothing holds up ends below three quarters, so the new index is not crowded at once.
fn smallest_successor(
    live: usize,
    unused: usize,
    capacity: usize,
    entries_per_step: usize,
) -> usize {
    let steps = capacity.div_ceil(entries_per_step);
    let mut needed = live + unused + steps + INSERTERS_MAX;
    if fault!(SuccessorForgetsInserters) {
        needed = capacity - unused;
    }
    // `free_arrivals` takes a quarter of it.
    (needed * 4)
        .div_ceil(3)
        .next_power_of_two()
        .max(CAPACITY_MIN)
}

impl Drop for Index {
    fn drop(&mut self) {
        if self.capacity() >= HUGE_CAPACITY_MIN {
            hint::ask_for_small(&self.entries);
        }
    }
}

impl Index {
    /// The smallest index, for a table with nothing in it.
    pub(crate) fn smallest() -> Self {
        Index::with_capacity(CAPACITY_MIN)
    }

    /// One that so many keys do not crowd.
    pub(crate) fn for_keys(keys: usize) -> Self {
        let capacity = (keys + keys / 2).next_power_of_two();
        Index::with_capacity(capacity.max(CAPACITY_MIN))
    }

    /// How large an index must be to which the entries of this one are moved. `live` says how many
    /// of them are in use.
    pub(crate) fn successor_capacity(
        &self,
        live: impl FnOnce() -> usize,
        entries_per_step: usize,
    ) -> usize {
        // Before `live`: an inserter takes its cell first and counts here afterwards. So none is
        // counted in neither.
        let unused = self.unused();
        smallest_successor(live(), unused, self.capacity(), entries_per_step)
    }

    /// How many more it can take.
    pub(crate) fn unused(&self) -> usize {
        // Counted before the fact: for a moment there may be more used than there are.
        let used = self.used.load(Ordering::Acquire) as usize;
        self.capacity().saturating_sub(used)
    }

    /// One of this size, with nothing in it.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        #[cfg(not(loom))]
        let entries: Box<[AtomicU32]> = bytemuck::zeroed_slice_box(capacity);
        #[cfg(loom)]
        let entries: Box<[AtomicU32]> = (0..capacity).map(|_| AtomicU32::new(EMPTY)).collect();
        if capacity >= HUGE_CAPACITY_MIN {
            // Beside it are those of other shards.
            hint::ask_for_huge(&entries);
        }
        Index {
            entries,
            used: AtomicU32::new(0),
            arrived: AtomicU32::new(0),
            next: Pointer::null(),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is time to move to another index: three quarters are used, by live entries or by
    /// gone ones.
    pub(crate) fn is_crowded(&self) -> bool {
        self.used.load(Ordering::Relaxed) as usize * 4 >= self.capacity() * 3
    }

    /// Whether it is time to have the prefaulting thread lay out the next index: an eighth is left
    /// before it is needed. Not for a small one, which costs next to nothing.
    #[inline]
    pub(crate) fn is_filling(&self) -> bool {
        self.capacity() >= SPARE_CAPACITY_MIN
            && self.used.load(Ordering::Relaxed) as usize * 8 >= self.capacity() * 5
    }

    /// Writes to every page, so that the memory is there. Before any other thread knows of this
    /// index.
    pub(crate) fn touch_all(&self) {
        for entry in self.entries.iter().step_by(PAGE_BYTES / size_of::<u32>()) {
            entry.store(EMPTY, Ordering::Relaxed);
        }
    }

    /// Counts an insertion during the move to this index. `true`: too many have come without a step
    /// of the move, and every inserter waits for the mover from now on (`free_arrivals`).
    pub(crate) fn count_arrival(&self) -> bool {
        self.arrived.fetch_add(1, Ordering::Relaxed) as usize >= free_arrivals(self.capacity())
    }

    #[inline]
    pub(crate) fn prober(&self, hash: u64) -> Prober {
        // The position comes from the low bits, the tag from the high ones (the shard from those in
        // between).
        Prober {
            position: hash as usize & (self.capacity() - 1),
            probed: 0,
            tag: (hash >> 56) as u32,
        }
    }

    /// Goes on to the next thing worth looking at.
    #[inline]
    pub(crate) fn probe(&self, prober: &mut Prober) -> Probe {
        while prober.probed < self.capacity() {
            // Acquire, paired with the Release of the writer of the entry: the cell behind it is
            // ready, and behind a GONE the floor has been raised.
            let entry = self.entries[prober.position].load(Ordering::Acquire);
            let slot = entry & SLOT_MAX;
            if slot == 0 {
                if entry == EMPTY {
                    return Probe::Vacant(prober.position);
                }
                if entry == CLOSED {
                    return Probe::Moved;
                }
            }
            prober.position = (prober.position + 1) & (self.capacity() - 1);
            prober.probed += 1;
            if slot != 0 && entry >> TAG_SHIFT == prober.tag {
                return Probe::Candidate(slot);
            }
        }
        Probe::Exhausted
    }

    /// Offers every slot whose tag fits to `compare`, until that finds what it looks for. What
    /// `probe` does step by step, for the many callers that only look.
    #[inline]
    pub(crate) fn search<T>(
        &self,
        hash: u64,
        mut compare: impl FnMut(u32) -> Option<T>,
    ) -> Search<T> {
        let Prober { position, tag, .. } = self.prober(hash);
        let mask = self.capacity() - 1;
        for step in 0..self.capacity() {
            // Acquire, as in `probe`.
            let entry = self.entries[(position + step) & mask].load(Ordering::Acquire);
            let slot = entry & SLOT_MAX;
            if entry >> TAG_SHIFT == tag && slot != 0 {
                if let Some(found) = compare(slot) {
                    return Search::Found(found);
                }
            } else if entry == EMPTY {
                return Search::Absent;
            } else if entry == CLOSED {
                return Search::Moved;
            }
        }
        Search::Moved
    }

    /// Has the entry fetched where a search for this hash begins.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        hint::prefetch(&self.entries[self.prober(hash).position]);
    }

    /// Fills the vacant entry that a probe ended at. One of several inserters wins.
    pub(crate) fn insert_at(&self, position: usize, prober: &Prober, slot: u32) -> Insert {
        let entry = prober.tag << TAG_SHIFT | slot;
        // Relaxed: published by the entry, to the readers that need both.
        self.used.fetch_add(1, Ordering::Relaxed);
        // Release: a reader that follows this entry must find the cell prepared.
        match self.entries[position].compare_exchange(
            EMPTY,
            entry,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => Insert::Done,
            Err(_) if fault!(OvertakenInsertCounts) => Insert::Done,
            Err(_) => {
                self.used.fetch_sub(1, Ordering::Relaxed);
                Insert::Overtaken
            }
        }
    }

    /// Lets go of a slot, if it stands here. The caller holds the growth mutex, so nothing moves
    /// meanwhile.
    pub(crate) fn remove(&self, hash: u64, slot: u32) -> bool {
        let mut prober = self.prober(hash);
        loop {
            match self.probe(&mut prober) {
                Probe::Candidate(found) if found == slot => {
                    let position = prober.position.wrapping_sub(1) & (self.capacity() - 1);
                    // Release, paired with `probe`: a probe that goes past this entry sees the
                    // floor that was raised before.
                    let was = self.entries[position].swap(GONE, Ordering::AcqRel);
                    assert!(
                        was & SLOT_MAX == slot,
                        "only the evictor changes a live entry"
                    );
                    return true;
                }
                Probe::Candidate(_) => {}
                Probe::Vacant(_) | Probe::Moved | Probe::Exhausted => return false,
            }
        }
    }

    /// The slot in an entry, if there is one.
    pub(crate) fn slot_at(&self, position: usize) -> Option<u32> {
        let slot = self.entries[position].load(Ordering::Acquire) & SLOT_MAX;
        (slot != 0).then_some(slot)
    }

    /// Moves one entry to the next index: closes it if it is empty, copies it if it is live. The
    /// caller holds the growth mutex and has set `next`.
    pub(crate) fn migrate(&self, position: usize, next: &Index, hash_of: impl FnOnce(u32) -> u64) {
        let entry = &self.entries[position];
        let closed = if fault!(MigrationLeavesOpen) {
            EMPTY
        } else {
            CLOSED
        };
        if entry
            .compare_exchange(EMPTY, closed, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            return;
        }
        // Not empty any more, and it never will be: live or gone, and only we, holding the mutex,
        // can make it gone.
        let slot = entry.load(Ordering::Acquire) & SLOT_MAX;
        if slot != 0 {
            next.insert_known_absent(hash_of(slot), slot);
        }
    }

    /// Inserts a slot whose key is certainly not here.
    fn insert_known_absent(&self, hash: u64, slot: u32) {
        let mut prober = self.prober(hash);
        loop {
            match self.probe(&mut prober) {
                Probe::Vacant(position) => {
                    if let Insert::Done = self.insert_at(position, &prober, slot) {
                        return;
                    }
                }
                Probe::Candidate(_) => {}
                Probe::Moved | Probe::Exhausted => {
                    panic!("the index being filled has room for all and is not being left")
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The inequality of `smallest_successor`, at the edge and around it: what must fit does,
        /// and half of it would not do.
        #[test]
        fn a_successor_has_room_for_all_that_may_come_during_the_move(
            log_capacity in 6..24u32,
            live in 0..1usize << 24,
            unused in 0..1usize << 24,
            entries_per_step in 1..200usize,
        ) {
            let capacity = 1 << log_capacity;
            let (live, unused) = (live % (capacity + 1), unused % (capacity + 1));
            let next = smallest_successor(live, unused, capacity, entries_per_step);
            let steps = capacity.div_ceil(entries_per_step);
            let comes = |next| live + unused + free_arrivals(next) + steps + INSERTERS_MAX;
            prop_assert!(next.is_power_of_two());
            prop_assert!(next >= comes(next), "{next} entries for {}", comes(next));
            let half = next / 2;
            prop_assert!(half < CAPACITY_MIN || half < comes(half), "{half} would do");
        }
    }

    /// The numbers of the index that was too small: 32,768 entries for 33,724.
    #[test]
    fn the_rest_of_a_move_that_was_held_up_counts() {
        assert_eq!(smallest_successor(8_123, 16_384, 65_536, 64), 65_536);
    }
}
