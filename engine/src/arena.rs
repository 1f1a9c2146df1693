//! Memory that the slabs of all shards share, handed out in pieces of equal size.
//!
//! Shared, because of huge pages: they make a lookup among millions of keys a fifth cheaper, and each array that is partly
//! used pays for the unused rest of one. A piece is small, so what a shard has taken and does not use yet is small too;
//! pieces of different shards share their huge pages.
//!
//! Chunks come zeroed from the allocator and ask the kernel for huge pages. What nobody has touched costs no resident memory. The
//! first chunks are small, for engines of a few keys.
//!
//! Whoever is the first to touch memory waits until the kernel has it ready: milliseconds for a huge page whose memory the
//! host has to find first. So there is a stock: somebody who may wait (`stock_up`) touches it ahead of those who may not.

use crate::fault::{self, Fault};
use crate::hint::{self, Ends, PAGE_BYTES};
use crate::slab::{NONE, Slot};
use crate::sync::{AtomicU32, AtomicU64, Mutex, OnceLock, Ordering, Queue, made};

/// Slots of a piece, log2: 64 KiB of cells.
pub(crate) const PIECE_BITS: u32 = if cfg!(loom) { 1 } else { 10 };

/// Pieces of the first chunk, log2, and of the largest: 256 KiB and 16 MiB of cells. Each chunk has twice as many as the one
/// before it until they are that large. The larger they are, the less is lost where a chunk ends inside a huge page.
const FIRST_CHUNK_BITS: u32 = if cfg!(loom) { 0 } else { 2 };
const LARGEST_CHUNK_BITS: u32 = if cfg!(loom) { 1 } else { 8 };

/// How many pieces are in stock at most, and no more than are in use: 4 MiB of cells, for a tenth of a second of a server that
/// does nothing but insert.
const STOCK_PIECES_MAX: u32 = 64;

pub(crate) struct Arena<T> {
    chunks: Box<[OnceLock<Box<[T]>>]>,
    /// One more than can be in use: while one is being made ready for the stock, nobody has to wait for it.
    piece_count: u32,
    /// How many pieces have been taken out of their chunks, for the stock or for use.
    taken: AtomicU32,
    /// Pieces that are ready for use.
    stock: Queue<u32>,
    stock_count: AtomicU32,
    /// Held by whoever adds to the stock.
    stocking: Mutex<()>,
    /// Held by whoever gives a place its piece.
    providing: Mutex<()>,
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
        let piece_count =
            u32::try_from(piece_count + 1).expect("slots are numbered in 24 bits, shards in 8");
        Arena {
            chunks: (0..chunk_count(piece_count))
                .map(|_| OnceLock::new())
                .collect(),
            piece_count,
            taken: AtomicU32::new(0),
            stock: Queue::new(),
            stock_count: AtomicU32::new(0),
            stocking: Mutex::new(()),
            providing: Mutex::new(()),
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
        let _providing = self.providing.lock();
        if place.0.load(Ordering::Acquire) != 0 && !fault::injected(Fault::PieceReplaced) {
            return;
        }
        // At the very end all are taken, and the one that is left came into the stock while we looked elsewhere: whoever stocks up
        // has one in hand at most, and there is one more than can be in use.
        let look_again = || match fault::injected(Fault::StockLookedAtOnce) {
            true => None,
            false => self.take_from_stock(),
        };
        let piece = self.take_from_stock().or_else(|| self.take());
        let piece = piece.or_else(look_again);
        let piece = piece.expect("there is a piece for every place");
        let (chunk_index, piece_index) = position(piece);
        self.chunks[chunk_index].get_or_init(|| make_chunk(chunk_index));
        let first_slot = piece_index << PIECE_BITS;
        let bits = (chunk_index as u64 + 1) << 32 | u64::from(first_slot);
        place.0.store(bits, Ordering::Release);
    }

    /// Whether there is less in stock than there should be.
    #[inline]
    pub(crate) fn is_stock_low(&self) -> bool {
        let stock_count = self.stock_count.load(Ordering::Relaxed);
        let taken = self.taken.load(Ordering::Relaxed);
        let in_use = taken.saturating_sub(stock_count);
        stock_count < in_use.min(STOCK_PIECES_MAX) && taken < self.piece_count
    }

    /// Makes one more piece ready, and waits for its memory. `false`: there is enough, or somebody else is at it.
    pub(crate) fn stock_up(&self) -> bool {
        let Some(_stocking) = self.stocking.try_lock() else {
            return false;
        };
        if !self.is_stock_low() {
            return false;
        }
        let Some(piece) = self.take() else {
            return false;
        };
        let is_early = fault::injected(Fault::StockedTooEarly);
        if is_early {
            self.stock.push(piece);
        }
        self.touch(piece);
        self.stock_count.fetch_add(1, Ordering::Relaxed);
        if !is_early {
            self.stock.push(piece);
        }
        true
    }

    fn take_from_stock(&self) -> Option<u32> {
        let piece = self.stock.pop()?;
        self.stock_count.fetch_sub(1, Ordering::Relaxed);
        Some(piece)
    }

    /// A piece that nobody has.
    fn take(&self) -> Option<u32> {
        // Acquire, paired with the Release below: who finds that all are taken sees what those who took them had put into the stock
        // before.
        let mut taken = self.taken.load(Ordering::Acquire);
        while taken < self.piece_count {
            match self.taken.compare_exchange_weak(
                taken,
                taken + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(piece) => return Some(piece),
                Err(now) => taken = now,
            }
        }
        None
    }

    /// Writes to every page of a piece that is the caller's own: the kernel gives memory only to those who write.
    fn touch(&self, piece: u32) {
        let (chunk_index, piece_index) = position(piece);
        let chunk = &self.chunks[chunk_index];
        if made(chunk).is_none() {
            // Not by `get_or_init`, where whoever needs it now would wait for us. If somebody was faster, there is one.
            if let Err(unneeded) = chunk.set(make_chunk(chunk_index)) {
                hint::ask_for_small(&unneeded, Ends::Excluded);
            }
        }
        let first_slot = (piece_index as usize) << PIECE_BITS;
        let slots = made(chunk).expect("somebody has made it")[first_slot..].iter();
        let slots_per_page = (PAGE_BYTES / size_of::<T>()).max(1);
        for slot in slots.take(1 << PIECE_BITS).step_by(slots_per_page) {
            slot.free_link().store(NONE, Ordering::Relaxed);
        }
    }
}

/// How many pieces the slots up to this number take.
pub(crate) fn piece_count(slot_max: u32) -> usize {
    (slot_max as usize).div_ceil(1 << PIECE_BITS)
}

/// Which chunk a piece is in, and which of its pieces it is.
fn position(piece: u32) -> (usize, u32) {
    // As if there had been a chunk before the first one: then chunk `n` of the growing ones begins at a power of two.
    let shifted = piece + (1 << FIRST_CHUNK_BITS);
    let bits = shifted.ilog2().min(LARGEST_CHUNK_BITS);
    let of_this_size = shifted >> bits;
    let chunk_index = bits - FIRST_CHUNK_BITS + of_this_size - 1;
    (chunk_index as usize, shifted - (of_this_size << bits))
}

fn make_chunk<T: Slot>(chunk_index: usize) -> Box<[T]> {
    let bits = (FIRST_CHUNK_BITS + chunk_index as u32).min(LARGEST_CHUNK_BITS);
    let chunk = T::zeroed_chunk(1 << (bits + PIECE_BITS));
    hint::ask_for_huge(&chunk, Ends::Excluded);
    chunk
}

/// How many chunks so many pieces take.
fn chunk_count(piece_count: u32) -> usize {
    match piece_count.checked_sub(1) {
        Some(last) => position(last).0 + 1,
        None => 0,
    }
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
        let pieces = 4 << LARGEST_CHUNK_BITS;
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
    fn chunks_follow_each_other_and_hold_all_pieces() {
        let mut next = (0, 0);
        for piece in 0..5 << LARGEST_CHUNK_BITS {
            assert_eq!(position(piece), next, "piece {piece}");
            let (chunk_index, piece_index) = next;
            let is_last =
                (piece_index as usize + 1) << PIECE_BITS == make_chunk::<Thing>(chunk_index).len();
            next = if is_last {
                (chunk_index + 1, 0)
            } else {
                (chunk_index, piece_index + 1)
            };
        }
        assert_eq!(chunk_count(0), 0);
        assert_eq!(chunk_count(1), 1);
        assert_eq!(chunk_count(1 << FIRST_CHUNK_BITS), 1);
        assert_eq!(chunk_count((1 << FIRST_CHUNK_BITS) + 1), 2);
    }

    #[test]
    fn the_stock_is_as_large_as_what_is_in_use_within_its_bounds() {
        let pieces = 200;
        let arena = Arena::<Thing>::new(pieces);
        assert!(
            !arena.is_stock_low() && !arena.stock_up(),
            "nobody has taken anything"
        );
        for in_use in 1..=pieces as u32 {
            let place = Place::nowhere();
            arena.provide(&place);
            assert_eq!(arena.get(&place, 0).link.load(Ordering::Relaxed), 0);
            while arena.stock_up() {}
            assert!(!arena.is_stock_low());
            let left = pieces as u32 + 1 - in_use;
            let expected = in_use.min(STOCK_PIECES_MAX).min(left);
            assert_eq!(arena.stock_count.load(Ordering::Relaxed), expected);
        }
    }

    #[test]
    fn pieces_from_the_stock_are_nobody_elses() {
        let pieces = 300;
        let arena = Arena::<Thing>::new(pieces);
        let mut seen = HashSet::new();
        for number in 0..pieces {
            let place = Place::nowhere();
            arena.provide(&place);
            assert!(seen.insert(place.0.load(Ordering::Relaxed)));
            if number % 3 != 0 {
                arena.stock_up();
            }
        }
    }
}
