//! What is left of forgotten keys: floors, in a fixed amount of memory.
//!
//! One floor for everything forgotten would be safe, and useless as soon as one busy key was
//! forgotten: fences are counted per key, so quiet keys lie below the busy one's floor for ever.
//! Hence many floors. A key stands on one cell in each of [`ROWS`] rows, chosen by its hash;
//! forgetting the key raises all of them to its fence; a key that is not remembered has as its
//! floor the **lowest** of its cells.
//!
//! Why that is safe: each cell of a forgotten key was raised to its fence and cells never fall, so
//! the lowest of them is at or above that fence. Other keys can only have raised it further. Why it
//! is useful: a key is refused wrongly only if forgotten keys with higher fences hit it in every
//! row. With n forgotten keys that happens to about (1 - e^(-n / CELLS))^ROWS of the others: 4 in
//! 10 000 at n = 10 000, 4 in 10 at n = 100 000, and then nearly all.
//!
//! The hash is keyed with a random seed, so no client can choose keys that meet, and it is stable:
//! the cells are in the log.

use protocol::Fence;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

/// Cells that one key stands on.
const ROWS: usize = 4;

/// Cells in a row; a power of two.
const CELLS: usize = 1 << 16;

const _: () = assert!(CELLS.is_power_of_two());

/// Seeds the hash of keys.
pub(crate) type Seed = [u8; 16];

pub(crate) struct Floors {
    seed: Seed,
    /// Row after row, 0 where nothing was forgotten; empty until something is. 2 MiB then.
    cells: Vec<u64>,
}

impl Floors {
    pub(crate) fn new(seed: Seed) -> Self {
        Floors {
            seed,
            cells: Vec::new(),
        }
    }

    /// The floor that `key` stands on.
    pub(crate) fn under(&self, key: &[u8]) -> Option<Fence> {
        if self.cells.is_empty() {
            return None;
        }
        let lowest = self
            .stands_on(key)
            .into_iter()
            .map(|cell| self.cells[cell])
            .min();
        Fence::new(lowest.expect("there are rows"))
    }

    /// Forgets a key that had this fence.
    pub(crate) fn raise(&mut self, key: &[u8], fence: Fence) {
        for cell in self.stands_on(key) {
            self.raise_cell(cell, fence);
        }
    }

    /// Every cell that was raised, for a new log.
    pub(crate) fn raised(&self) -> impl Iterator<Item = (u32, Fence)> {
        let numbered = (0..).zip(&self.cells);
        numbered.filter_map(|(cell, floor)| Some((cell, Fence::new(*floor)?)))
    }

    /// Raises one cell, as a log says. `false`: there is no such cell.
    #[must_use]
    pub(crate) fn restore(&mut self, cell: u32, fence: Fence) -> bool {
        let cell = cell as usize;
        if cell < ROWS * CELLS {
            self.raise_cell(cell, fence);
        }
        cell < ROWS * CELLS
    }

    fn raise_cell(&mut self, cell: usize, fence: Fence) {
        if self.cells.is_empty() {
            self.cells = vec![0; ROWS * CELLS];
        }
        self.cells[cell] = self.cells[cell].max(fence.get());
    }

    fn stands_on(&self, key: &[u8]) -> [usize; ROWS] {
        let mut hasher = SipHasher13::new_with_key(&self.seed);
        hasher.write(key);
        let hash = hasher.finish128().as_u128();
        std::array::from_fn(|row| {
            // Each row takes 32 bits of its own.
            let bits = (hash >> (32 * row)) as usize;
            row * CELLS + bits % CELLS
        })
    }
}

const _: () = assert!(ROWS * 32 <= u128::BITS as usize);
