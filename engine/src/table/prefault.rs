//! Memory that the tables of all shards share, and what the prefaulting thread has to do for them.

use super::epoch::Retired;
use super::index::Index;
use crate::cell::Cell;
use crate::cell::key::{BLOCKS_MAX, KeyBlock};
use crate::memory::arena::Arena;
use crate::memory::slot::piece_count;
use crate::sync::{AtomicU32, Ordering};
use std::sync::Arc;

/// How many keys, blocks of long keys and short metadata a table may have.
#[derive(Clone, Copy)]
pub(crate) struct TableSize {
    pub(crate) keys_max: u32,
    pub(crate) blocks_max: u32,
    pub(crate) metadata_blocks_max: u32,
    /// So many keys may be put back beside them, before any other comes.
    pub(crate) keys_restored_max: u32,
}

impl TableSize {
    pub(super) fn blocks_restored_max(&self) -> u32 {
        self.keys_restored_max.saturating_mul(BLOCKS_MAX as u32)
    }
}

pub(crate) struct Memory {
    pub(super) cells: Arc<Arena<Cell>>,
    pub(super) blocks: Arc<Arena<KeyBlock>>,
    /// Where their outgrown indexes go.
    pub(super) retired: Retired<Index>,
    /// How they say that an index fills up.
    pub(super) index_wanted: Arc<IndexWanted>,
}

impl Memory {
    /// Memory for so many tables of this size, none of it taken yet.
    pub(crate) fn new(table_count: usize, size: TableSize) -> Self {
        // What is put back may fall into few tables or into all: each begins a piece of its own at
        // most.
        let restored = |slots| match piece_count(slots) {
            0 => 0,
            pieces => pieces + table_count,
        };
        let cells = table_count * piece_count(size.keys_max);
        let blocks =
            table_count * (piece_count(size.blocks_max) + piece_count(size.metadata_blocks_max));
        Memory {
            cells: Arc::new(Arena::new(cells + restored(size.keys_restored_max))),
            blocks: Arc::new(Arena::new(blocks + restored(size.blocks_restored_max()))),
            retired: Retired::new(),
            index_wanted: Arc::new(IndexWanted(AtomicU32::new(0))),
        }
    }

    /// Whether [`Memory::prefault`] has something to do.
    pub(crate) fn wants_prefault(&self) -> bool {
        self.index_wanted.is_set()
            || !self.retired.is_empty()
            || self.cells.wants_prefault()
            || self.blocks.wants_prefault()
    }

    /// Does a little of everything. `lay_out_index` lays out the next index of one table that wants
    /// one. `false`: there was nothing to do.
    pub(crate) fn prefault(&self, lay_out_index: impl FnOnce() -> bool) -> bool {
        let cells = self.cells.prefault();
        let blocks = self.blocks.prefault();
        let index = self.index_wanted.take() && lay_out_index();
        if index {
            // Other tables may want theirs: the shards fill up together.
            self.index_wanted.set();
        }
        let outgrown = self.retired.free_one();
        cells || blocks || index || outgrown
    }
}

/// Set while some table wants its next index laid out.
pub(super) struct IndexWanted(AtomicU32);

impl IndexWanted {
    /// Called by every insertion into an index that fills up, until the next one is there: so
    /// nothing is lost if it is taken too early.
    #[inline]
    pub(super) fn set(&self) {
        if !self.is_set() {
            self.0.store(1, Ordering::Relaxed);
        }
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn take(&self) -> bool {
        self.is_set() && self.0.swap(0, Ordering::Relaxed) != 0
    }
}
