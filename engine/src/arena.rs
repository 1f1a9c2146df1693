//! Memory that the slabs of all shards share, handed out in pieces of equal size.
//!
//! Large and shared, because of huge pages: they make a lookup among millions of keys a third cheaper, and each array that
//! is partly used pays for the unused rest of one. A piece is small, so what a shard has taken and does not use yet is
//! small too; pieces of different shards share their huge pages.
//!
//! Chunks come zeroed from the allocator, which decides about huge pages. What no slot has used costs no resident memory,
//! apart from the rest of the last huge page. The first chunks are small, for engines of a few keys.

use crate::fault::{self, Fault};
use crate::slab::Slot;
use crate::sync::{AtomicU64, Mutex, OnceLock, Ordering};

/// Slots of a piece, log2: 64 KiB of cells.
pub(crate) const PIECE_BITS: u32 = if cfg!(loom) { 1 } else { 10 };

/// Pieces of the first chunk, log2, and of the largest: 256 KiB and 64 MiB of cells. Each chunk has twice as many as the
/// one before it until they are that large.
const FIRST_CHUNK_BITS: u32 = if cfg!(loom) { 0 } else { 2 };
const LARGEST_CHUNK_BITS: u32 = if cfg!(loom) { 1 } else { 10 };

pub(crate) struct Arena<T> {
    chunks: Box<[OnceLock<Box<[T]>>]>,
    fresh: Mutex<Fresh>,
}

/// The next piece nobody has.
struct Fresh {
    chunk_index: u32,
    piece_index: u32,
}

/// Where a piece is: `chunk + 1:32 | its first slot there:32`. Zero: there is none yet.
pub(crate) struct Place(AtomicU64);

impl Place {
    pub(crate) fn nowhere() -> Self {
        Place(AtomicU64::new(0))
    }
}

impl<T: Slot> Arena<T> {
    /// Memory for so many pieces, none of them there yet.
    pub(crate) fn new(piece_count: usize) -> Self {
        Arena {
            chunks: (0..chunk_count(piece_count))
                .map(|_| OnceLock::new())
                .collect(),
            fresh: Mutex::new(Fresh {
                chunk_index: 0,
                piece_index: 0,
            }),
        }
    }

    /// The slot with this offset in the piece at `place`, which must have been provided before.
    #[inline]
    pub(crate) fn get(&self, place: &Place, offset: usize) -> &T {
        // Acquire, paired with `provide`: the chunk is there.
        let bits = place.0.load(Ordering::Acquire);
        // Of a place where nothing is, the chunk before the first one, and there is none.
        let chunk_index = (bits >> 32).wrapping_sub(1) as usize;
        let chunk = self.chunks[chunk_index]
            .get()
            .expect("a place names a chunk that is there");
        &chunk[bits as u32 as usize + offset]
    }

    /// Sees to it that there is a piece at `place`.
    #[cold]
    pub(crate) fn provide(&self, place: &Place) {
        let mut fresh = self.fresh.lock();
        if place.0.load(Ordering::Acquire) != 0 && !fault::injected(Fault::PieceReplaced) {
            return;
        }
        let piece_count = 1 << chunk_bits(fresh.chunk_index);
        let Fresh {
            chunk_index,
            piece_index,
        } = *fresh;
        self.chunks[chunk_index as usize]
            .get_or_init(|| T::zeroed_chunk(piece_count << PIECE_BITS));
        *fresh = if piece_index as usize + 1 < piece_count {
            Fresh {
                chunk_index,
                piece_index: piece_index + 1,
            }
        } else {
            Fresh {
                chunk_index: chunk_index + 1,
                piece_index: 0,
            }
        };
        let first_slot = piece_index << PIECE_BITS;
        let bits = u64::from(chunk_index + 1) << 32 | u64::from(first_slot);
        place.0.store(bits, Ordering::Release);
    }
}

/// How many pieces the slots up to this number take.
pub(crate) fn piece_count(slot_max: u32) -> usize {
    (slot_max as usize).div_ceil(1 << PIECE_BITS)
}

fn chunk_bits(chunk_index: u32) -> u32 {
    (FIRST_CHUNK_BITS + chunk_index).min(LARGEST_CHUNK_BITS)
}

/// How many chunks so many pieces take.
fn chunk_count(piece_count: usize) -> usize {
    let mut left = piece_count;
    (0..)
        .take_while(|&chunk_index| {
            let is_needed = left > 0;
            left = left.saturating_sub(1 << chunk_bits(chunk_index));
            is_needed
        })
        .count()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::AtomicU32;
    use std::collections::HashSet;

    #[derive(bytemuck::Zeroable)]
    struct Thing {
        link: AtomicU32,
    }

    impl Slot for Thing {
        fn free_link(&self) -> &AtomicU32 {
            &self.link
        }
        fn zeroed_chunk(slot_count: usize) -> Box<[Self]> {
            bytemuck::zeroed_slice_box(slot_count)
        }
    }

    #[test]
    fn every_piece_is_handed_out_once_and_every_place_has_its_own_slots() {
        // Past the first chunk of the largest size.
        let pieces = 3 << LARGEST_CHUNK_BITS;
        let arena = Arena::<Thing>::new(pieces);
        let places: Vec<Place> = (0..pieces).map(|_| Place::nowhere()).collect();
        let mut seen = HashSet::new();
        for place in &places {
            arena.provide(place);
            let bits = place.0.load(Ordering::Relaxed);
            assert!(seen.insert(bits), "a piece was handed out twice");
            arena.provide(place);
            assert_eq!(place.0.load(Ordering::Relaxed), bits, "a piece stays");
        }
        let last = (1 << PIECE_BITS) - 1;
        for (number, place) in places.iter().enumerate() {
            for offset in [0, last] {
                let link = &arena.get(place, offset).link;
                assert_eq!(link.swap(number as u32 + 1, Ordering::Relaxed), 0);
            }
        }
    }

    #[test]
    fn there_are_chunks_for_all_pieces_and_no_more() {
        assert_eq!(chunk_count(0), 0);
        assert_eq!(chunk_count(1), 1);
        let first = 1 << FIRST_CHUNK_BITS;
        assert_eq!(chunk_count(first), 1);
        assert_eq!(chunk_count(first + 1), 2);
        let largest = 1 << LARGEST_CHUNK_BITS;
        assert_eq!(chunk_count(10 * largest), chunk_count(9 * largest) + 1);
    }
}
