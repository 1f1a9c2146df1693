//! A table without an engine around it, for models of its growth. A grant, its session and its
//! wheel add so many steps to an insertion that a model with three threads takes hours. So does
//! what an insertion does before it comes to the index; here that is a step of its own.

use super::{Memory, Table, TableSize, epoch};
use crate::fence::Bounds;
use crate::time::tick::Tick;
use types::{Fence, Key};

/// Keys go in and are found again. Nothing is granted and nothing evicted.
pub struct BareTable {
    table: Table,
    bounds: Bounds,
}

/// A slot that has its key and is in no index yet.
pub struct Prepared {
    key: Key<'static>,
    slot: u32,
}

impl BareTable {
    /// A table for so many short keys.
    pub fn new(keys_max: u32) -> Self {
        let size = TableSize {
            keys_max,
            blocks_max: 0,
            metadata_blocks_max: 0,
            keys_restored_max: 0,
        };
        let hash_key = ahash::RandomState::with_seeds(7, 7, 7, 7);
        BareTable {
            table: Table::new(&Memory::new(1, size), size, hash_key),
            // Not zero: a word that is all zeros says that its cell was never used.
            bounds: Bounds::new(Fence::ZERO.next(), Fence::MAX),
        }
    }

    /// Takes a slot for a key that is in no index.
    pub fn prepare(&self, key: Key<'static>) -> Prepared {
        let slot = self.table.cells.take().expect("there is a cell left");
        let is_written = self.table.cell(slot).key.write(key, &self.table.blocks);
        assert!(is_written, "a short key needs no block");
        Prepared { key, slot }
    }

    /// Puts it into the index.
    pub fn place(&self, prepared: &Prepared) {
        let (table, key, guard) = (&self.table, prepared.key, epoch::pin());
        let now = Tick::from_ms(0);
        let (_, is_new) = table.place(
            prepared.slot,
            key,
            self.hash(key),
            &self.bounds,
            now,
            &guard,
        );
        assert!(is_new, "every key is inserted once");
    }

    /// Carries some entries over if the index grows or should, as every insertion does in the end.
    pub fn help_growth(&self) {
        self.table.help_growth(&epoch::pin());
    }

    /// Whether the key has a cell.
    pub fn contains(&self, key: Key<'_>) -> bool {
        let found = self.table.find(key, self.hash(key), &epoch::pin());
        found.is_some()
    }

    fn hash(&self, key: Key<'_>) -> u64 {
        self.table.hash_key.hash_one(key.bytes())
    }
}
