//! The lock table of one shard: from keys to cells. Looking up and inserting take no lock.
//!
//! Cells stand in a slab and never move. An index of four-byte entries leads to them. When it is
//! three quarters used, a new one takes its place beside it, which the prefaulting thread may have
//! laid out before (`spare.rs`), and every inserter carries a few entries over, so that no
//! operation ever pays for the whole move; lookups follow from the old index into the new one where
//! entries are closed. The last to carry one over retires the old index, which is freed when no
//! reader can be in it any more, one index at a time.
//!
//! Any core finds and inserts. The holder of the growth mutex migrates entries and evicts cells, so
//! the two never meet. An inserter only ever tries that mutex, except when the old index is full to
//! the brim or the new one fills faster than the move goes on.
//!
//! A cell found by its key is returned with the word that was read before the key was compared. A
//! core that changes the cell compares against that word, and so finds out if the cell has been
//! evicted and reused in between.

#[cfg(loom)]
pub(crate) mod bare;
pub(crate) mod epoch;
pub(crate) mod index;
mod prefault;
mod spare;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::cell::Cell;
use crate::cell::key::{BLOCK_MEMORY_BYTES, KeyBlock, KeyBuffer};
use crate::cell::word::Word;
use crate::fence::Bounds;
use crate::memory::hint::prefetch;
use crate::memory::slab::Slab;
use crate::sync::Mutex;
use crate::time::tick::Tick;
use epoch::{Guard, Pointer, Retired};
use index::{Index, Insert, Probe, Search};
use prefault::IndexWanted;
pub(crate) use prefault::{Memory, TableSize};
use spare::Spare;
use std::sync::Arc;
use types::Key;

/// How many entries one insertion carries over while the index grows: at a cache miss each, some
/// microseconds. The new index has room for all that comes in meanwhile
/// (`Index::successor_capacity`).
const MIGRATE_PER_INSERT: usize = if cfg!(loom) { 2 } else { 64 };

pub(crate) struct Table {
    cells: Slab<Cell>,
    blocks: Slab<KeyBlock>,
    metadata_blocks: Slab<KeyBlock>,
    current: Pointer<Index>,
    /// The next one, if it is there already.
    spare: Spare,
    growth: Mutex<Growth>,
    retired: Retired<Index>,
    index_wanted: Arc<IndexWanted>,
    hash_key: ahash::RandomState,
}

/// Held while index entries are moved or removed.
struct Growth {
    /// The next entry of the current index to migrate; meaningful while it has a successor.
    position: usize,
}

/// A cell and the word it had before its key was compared.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) slot: u32,
    pub(crate) word: Word,
}

/// A key for which there is no room.
#[derive(Debug)]
pub(crate) enum TableFull {
    /// There are as many keys as there may be.
    Cells,
    /// Long keys take as many blocks as they may.
    Blocks,
}

impl Table {
    pub(crate) fn new(memory: &Memory, size: TableSize, hash_key: ahash::RandomState) -> Self {
        Table {
            cells: Slab::with_reserve(size.keys_max, size.keys_restored_max, memory.cells.clone()),
            blocks: Slab::with_reserve(
                size.blocks_max,
                size.blocks_restored_max(),
                memory.blocks.clone(),
            ),
            metadata_blocks: Slab::new(size.metadata_blocks_max, memory.blocks.clone()),
            current: Pointer::new(Index::smallest()),
            spare: Spare::default(),
            growth: Mutex::new(Growth { position: 0 }),
            retired: memory.retired.clone(),
            index_wanted: memory.index_wanted.clone(),
            hash_key,
        }
    }

    /// Lays the index out for so many keys. Before the first one comes.
    pub(crate) fn expecting(mut self, keys: usize) -> Self {
        if keys > 0 {
            self.current.free();
            self.current = Pointer::new(Index::for_keys(keys));
        }
        self
    }

    /// All that is to be put back has been.
    pub(crate) fn close_reserve(&self) {
        self.cells.close_reserve();
        self.blocks.close_reserve();
    }

    #[inline]
    pub(crate) fn cell(&self, slot: u32) -> &Cell {
        self.cells.get(slot)
    }

    /// Where short metadata are. Not among the blocks of long keys, which are not to be had
    /// elsewhere when they run out.
    pub(crate) fn metadata_blocks(&self) -> &Slab<KeyBlock> {
        &self.metadata_blocks
    }

    pub(crate) fn live(&self) -> u32 {
        self.cells.live()
    }

    /// What long keys and short metadata take beside their cells.
    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.blocks.live() + self.metadata_blocks.live()) * BLOCK_MEMORY_BYTES
    }

    /// The highest slot number there is, for a walk over all cells.
    pub(crate) fn last_slot(&self) -> u32 {
        self.cells.last()
    }

    /// The cell of `key`, if it has one.
    #[inline]
    pub(crate) fn find(&self, key: Key<'_>, hash: u64, guard: &Guard) -> Option<Found> {
        self.find_cell(key, hash, guard).map(|(_, found)| found)
    }

    /// The same, with the cell itself.
    #[inline]
    pub(crate) fn find_cell(
        &self,
        key: Key<'_>,
        hash: u64,
        guard: &Guard,
    ) -> Option<(&Cell, Found)> {
        let index = self.current(guard);
        match index.search(hash, |slot| self.compare_found(slot, key, hash, guard)) {
            Search::Found(found) => Some(found),
            Search::Absent => None,
            Search::Moved => self.find_beyond(index, key, hash, guard),
        }
    }

    /// Has the index fetched where a search for this hash begins, so that it is at hand when the
    /// search comes.
    #[inline]
    pub(crate) fn prefetch_index(&self, hash: u64, guard: &Guard) {
        self.current(guard).prefetch(hash);
    }

    /// Has the cell fetched that a search for this hash would look at first.
    #[inline]
    pub(crate) fn prefetch_cell(&self, hash: u64, guard: &Guard) {
        if let Search::Found(slot) = self.current(guard).search(hash, Some) {
            prefetch(self.cell(slot));
        }
    }

    /// Goes on where entries have been moved from `index`.
    #[cold]
    fn find_beyond(
        &self,
        index: &Index,
        key: Key<'_>,
        hash: u64,
        guard: &Guard,
    ) -> Option<(&Cell, Found)> {
        let mut index = index.next.load(guard)?;
        loop {
            match index.search(hash, |slot| self.compare_found(slot, key, hash, guard)) {
                Search::Found(found) => return Some(found),
                Search::Absent => return None,
                Search::Moved => index = index.next.load(guard)?,
            }
        }
    }

    /// The cell of `key`, made if it has none. `true` beside it: it is new, and its wheel does not
    /// know it yet.
    #[inline]
    pub(crate) fn find_or_insert(
        &self,
        key: Key<'_>,
        hash: u64,
        bounds: &Bounds,
        now: Tick,
        guard: &Guard,
    ) -> Result<(Found, bool), TableFull> {
        match self.find(key, hash, guard) {
            Some(found) => Ok((found, false)),
            None => self.insert(key, hash, bounds, now, guard),
        }
    }

    #[cold]
    fn insert(
        &self,
        key: Key<'_>,
        hash: u64,
        bounds: &Bounds,
        now: Tick,
        guard: &Guard,
    ) -> Result<(Found, bool), TableFull> {
        let slot = self.cells.take().ok_or(TableFull::Cells)?;
        if !self.cell(slot).key.write(key, &self.blocks) {
            self.cells.put(slot);
            return Err(TableFull::Blocks);
        }
        let placed = self.place(slot, key, hash, bounds, now, guard);
        if placed.1 {
            self.help_growth(guard);
        }
        Ok(placed)
    }

    /// Puts a slot that has the key into the index, or finds that another inserter was faster.
    fn place(
        &self,
        slot: u32,
        key: Key<'_>,
        hash: u64,
        bounds: &Bounds,
        now: Tick,
        guard: &Guard,
    ) -> (Found, bool) {
        let mut index = self.current(guard);
        'index: loop {
            let mut prober = index.prober(hash);
            loop {
                match index.probe(&mut prober) {
                    Probe::Candidate(other) => {
                        let found = self.compare_found(other, key, hash, guard);
                        if let Some((_, found)) = found {
                            self.discard(slot);
                            return (found, false);
                        }
                    }
                    Probe::Vacant(position) => {
                        // Here, and not before: the probe has gone past every trace that an
                        // eviction of this key has left, so the floor that is read now lies above
                        // every fence the key has had.
                        let word = self.cell(slot).prepare(bounds.floor(), now);
                        if let Insert::Done = index.insert_at(position, &prober, slot) {
                            return (Found { slot, word }, true);
                        }
                    }
                    Probe::Moved => {
                        index = index
                            .next
                            .load(guard)
                            .expect("an entry is closed only when there is a next index");
                        continue 'index;
                    }
                    Probe::Exhausted => {
                        index = match index.next.load(guard) {
                            Some(next) => next,
                            None => {
                                self.grow_now(guard);
                                self.current(guard)
                            }
                        };
                        continue 'index;
                    }
                }
            }
        }
    }

    /// Forgets a cell that is free and idle. The floor rises first, so that the key comes back
    /// above its last fence. `false`: it is in use after all.
    pub(crate) fn evict(&self, slot: u32, bounds: &Bounds, guard: &Guard) -> bool {
        let growth = self.growth.lock();
        let cell = self.cell(slot);
        let word = cell.word();
        if !word.is_plain_free() {
            return false;
        }
        if !fault!(FloorAfterEviction) {
            bounds.raise_floor(word.fence());
        }
        if !cell.replace_word(word, Word::dead(word.fence())) {
            return false;
        }
        let hash = self.hash_of(slot);
        let index = self.current(guard);
        let mut removed = index.remove(hash, slot);
        // While the index grows an entry may stand in both, or only in the new one.
        if let Some(next) = index.next.load(guard) {
            removed |= next.remove(hash, slot);
        }
        assert!(removed, "slot {slot} was live and in no index");
        cell.key.clear(&self.blocks);
        self.cells.put(slot);
        drop(growth);
        if fault!(FloorAfterEviction) {
            bounds.raise_floor(word.fence());
        }
        true
    }

    /// A cell's key. The caller knows that the cell cannot be evicted now: it is the home core, or
    /// holds the room mutex and the word belongs to the room.
    pub(crate) fn key_of(&self, slot: u32) -> KeyBuffer {
        self.cell(slot).key.read(&self.blocks)
    }

    /// Looks at up to `scan_max` cells from `first` on, with evictions held off, and calls `visit`
    /// for those that have ever been granted, until it says stop. Returns the slot to go on from,
    /// `None` at the end.
    pub(crate) fn scan(
        &self,
        first: u32,
        scan_max: u32,
        mut visit: impl FnMut(Found, Key<'_>) -> bool,
    ) -> Option<u32> {
        let _growth = self.growth.lock();
        let last = self.last_slot();
        for slot in (first.max(1)..=last).take(scan_max as usize) {
            let word = self.cell(slot).word();
            // A slot in preparation may be given back and become another key's under our eyes; a
            // holder has been granted it. A cell that has been granted is in the index, and stays
            // there as long as we hold evictions off.
            if word.is_dead() || word.is_unborn() || word == Word::from_bits(0) {
                continue;
            }
            if !visit(Found { slot, word }, self.key_of(slot).key()) {
                return (slot < last).then_some(slot + 1);
            }
        }
        let next = first.max(1).saturating_add(scan_max);
        (next <= last).then_some(next)
    }

    fn current<'g>(&self, guard: &'g Guard) -> &'g Index {
        self.current
            .load(guard)
            .expect("a table always has an index")
    }

    /// Whether the cell has this key, and the word it had before its key was compared.
    #[inline(always)]
    pub(crate) fn compare(&self, slot: u32, key: Key<'_>) -> Option<(&Cell, Found)> {
        let cell = self.cell(slot);
        let word = cell.word();
        (!word.is_dead() && cell.key.equals(key, &self.blocks))
            .then_some((cell, Found { slot, word }))
    }

    /// The same for a slot that an index entry led to.
    ///
    /// The entry may be an old one: between reading it and reading the word, the cell may have been
    /// evicted, and an inserter may be preparing it for this very key again. Then it is unborn, and
    /// in no index yet. So a core that finds an unborn cell looks a second time, and from the
    /// beginning: the evictor has taken its entries out of all indexes that can be reached by now,
    /// and what is found there was put there since.
    #[inline(always)]
    fn compare_found(
        &self,
        slot: u32,
        key: Key<'_>,
        hash: u64,
        guard: &Guard,
    ) -> Option<(&Cell, Found)> {
        let (cell, found) = self.compare(slot, key)?;
        let is_in_index = !found.word.is_unborn() || self.leads_to(slot, hash, guard);
        is_in_index.then_some((cell, found))
    }

    /// Whether every search for this hash from now on comes upon this slot.
    #[cold]
    fn leads_to(&self, slot: u32, hash: u64, guard: &Guard) -> bool {
        let mut index = self.current(guard);
        loop {
            match index.search(hash, |other| (other == slot).then_some(())) {
                Search::Found(()) => return true,
                Search::Absent => return fault!(OldEntryTrusted),
                Search::Moved => match index.next.load(guard) {
                    Some(next) => index = next,
                    None => return fault!(OldEntryTrusted),
                },
            }
        }
    }

    /// Takes back a slot that was prepared and lost the race.
    fn discard(&self, slot: u32) {
        let cell = self.cell(slot);
        cell.set_word(Word::dead(cell.word().fence()));
        cell.key.clear(&self.blocks);
        self.cells.put(slot);
    }

    fn hash_of(&self, slot: u32) -> u64 {
        self.hash(self.key_of(slot).key())
    }

    /// The engine's hash of a key.
    pub(crate) fn hash(&self, key: Key<'_>) -> u64 {
        self.hash_key.hash_one(key.bytes())
    }

    /// Carries some entries over if the index is growing or should be. Leaves it to the thread that
    /// is at it already, unless the new index fills up meanwhile: then every inserter waits and
    /// helps.
    fn help_growth(&self, guard: &Guard) {
        self.retired.free_one_of_many();
        let index = self.current(guard);
        let growth = match index.next.load(guard) {
            Some(next) if next.count_arrival() => Some(self.growth.lock()),
            None if !index.is_crowded() => {
                if index.is_filling() && !self.spare.is_there() {
                    self.index_wanted.set();
                }
                None
            }
            _ => self.growth.try_lock(),
        };
        if let Some(mut growth) = growth {
            self.migrate_some(&mut growth, guard);
        }
    }

    /// Frees one outgrown index of any shard's, if there is one.
    pub(crate) fn free_outgrown(&self) {
        self.retired.free_one();
    }

    /// Lays out the next index if this one fills up, and waits for its memory. `false`: there is
    /// nothing to do.
    pub(crate) fn lay_out_spare(&self) -> bool {
        let capacity = {
            let guard = epoch::pin();
            let index = self.current(&guard);
            if !index.is_filling() || index.next.load(&guard).is_some() || self.spare.is_there() {
                return false;
            }
            self.successor_capacity(index)
        };
        // Not pinned any more: no other table's memory is to wait for this.
        let next = Index::with_capacity(capacity);
        next.touch_all();
        self.spare.put(next);
        true
    }

    fn successor_capacity(&self, index: &Index) -> usize {
        index.successor_capacity(|| self.cells.live() as usize, MIGRATE_PER_INSERT)
    }

    /// The index is full and its growth has not begun: wait for the holder of the mutex, and begin.
    #[cold]
    fn grow_now(&self, guard: &Guard) {
        self.migrate_some(&mut self.growth.lock(), guard);
    }

    fn migrate_some(&self, growth: &mut Growth, guard: &Guard) {
        let index = self.current(guard);
        let next = match index.next.load(guard) {
            Some(next) => next,
            // Another thread has finished the move since we looked.
            None if !index.is_crowded() => return,
            None => {
                let capacity = self.successor_capacity(index);
                // One that was laid out long ago may be too small by now.
                let spare = self
                    .spare
                    .take()
                    .filter(|spare| spare.capacity() >= capacity);
                let next = spare.unwrap_or_else(|| Index::with_capacity(capacity));
                growth.position = 0;
                index.next.publish(next);
                index
                    .next
                    .load(guard)
                    .expect("just published, and the mutex is ours")
            }
        };
        let end = index.capacity().min(growth.position + MIGRATE_PER_INSERT);
        // Each move reads a cell, to know its key's hash. All at once they come in little more than
        // the time of one.
        for slot in (growth.position..end).filter_map(|position| index.slot_at(position)) {
            prefetch(self.cell(slot));
        }
        for position in growth.position..end {
            index.migrate(position, next, |slot| self.hash_of(slot));
        }
        growth.position = end;
        if end == index.capacity() {
            self.current.replace(&index.next, &self.retired, guard);
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // The current index may be half-way to its successor, which has no other owner.
        let mut successor = match self.current.load(&epoch::pin()) {
            Some(index) => index.next.take(),
            None => Pointer::null(),
        };
        successor.free();
        self.current.free();
    }
}
