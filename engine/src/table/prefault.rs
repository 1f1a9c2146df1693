//! What the tables of all shards take their cells and blocks from, and what whoever waits for memory ahead of them has to do.

use super::epoch::Attic;
use super::{Table, TableSize};
use crate::arena::{Arena, piece_count};
use crate::cell::Cell;
use crate::key::KeyBlock;
use crate::sync::{AtomicU32, Ordering};
use std::sync::Arc;

pub(crate) struct Memory {
    pub(super) cells: Arc<Arena<Cell>>,
    pub(super) blocks: Arc<Arena<KeyBlock>>,
    /// Where their outgrown indexes go.
    pub(super) attic: Attic,
    /// How they say that an index fills up.
    pub(super) stock_call: Arc<StockCall>,
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
        let blocks = table_count * (piece_count(size.blocks_max) + piece_count(size.notes_max));
        Memory {
            cells: Arc::new(Arena::new(cells + restored(size.keys_restored_max))),
            blocks: Arc::new(Arena::new(blocks + restored(size.blocks_restored_max()))),
            attic: Attic::default(),
            stock_call: Arc::new(StockCall(AtomicU32::new(0))),
        }
    }

    /// Whether there is something to do for whoever waits for memory ahead of the others.
    pub(crate) fn is_stock_low(&self) -> bool {
        self.stock_call.is_made()
            || !self.attic.is_empty()
            || self.cells.is_stock_low()
            || self.blocks.is_stock_low()
    }

    /// Does a little of everything. `false`: there was nothing to do.
    pub(crate) fn stock_up<'t>(&self, tables: impl Iterator<Item = &'t Table>) -> bool {
        let cells = self.cells.stock_up();
        let blocks = self.blocks.stock_up();
        let index = self.lay_out_index(tables);
        let outgrown = self.attic.free_one();
        cells || blocks || index || outgrown
    }

    /// Lays out one index, if some table wants one.
    fn lay_out_index<'t>(&self, mut tables: impl Iterator<Item = &'t Table>) -> bool {
        let is_done = self.stock_call.answer() && tables.any(Table::stock_up);
        if is_done {
            // Others may want theirs: the shards fill up together.
            self.stock_call.make();
        }
        is_done
    }
}

/// Set while some table wants its next index laid out.
pub(super) struct StockCall(AtomicU32);

impl StockCall {
    /// Called by every insertion into an index that fills up, until the next one is there: so nothing is lost if it is answered
    /// too early.
    #[inline]
    pub(super) fn make(&self) {
        if !self.is_made() {
            self.0.store(1, Ordering::Relaxed);
        }
    }

    fn is_made(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn answer(&self) -> bool {
        self.is_made() && self.0.swap(0, Ordering::Relaxed) != 0
    }
}
