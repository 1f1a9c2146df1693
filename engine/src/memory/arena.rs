//! Memory that the slabs of all shards share, handed out in pieces of equal size.
//!
//! Shared, because of huge pages: they make a lookup among millions of keys a fifth cheaper, and each array that is partly
//! used pays for the unused rest of one. A piece is small, so what a shard has taken and does not use yet is small too;
//! pieces of different shards share their huge pages.
//!
//! Chunks come zeroed (`chunk.rs`), the large ones on huge pages. What nobody has touched costs no resident memory. The first chunks
//! are small, for engines of a few keys.
//!
//! Whoever is the first to touch memory waits until the kernel has it ready: milliseconds for a huge page whose memory the
//! host has to find first. So there is a stock: somebody who may wait (`stock_up`) touches it ahead of those who may not.

use crate::chunk::Chunk;
use crate::fault::{self, Fault};
use crate::hint::PAGE_BYTES;
use crate::slab::{NONE, Slot};
use crate::sync::{AtomicU32, Mutex, OnceLock, Ordering, Queue, made};

/// Slots of a piece, log2: 64 KiB of cells.
const PIECE_BITS: u32 = if cfg!(loom) { 1 } else { 10 };
pub(crate) const PIECE_SLOTS: usize = 1 << PIECE_BITS;

pub(crate) type Piece<T> = [T; PIECE_SLOTS];

/// Pieces of the first chunk, log2, and of the largest: 256 KiB and 16 MiB of cells. Each chunk has twice as many as the one
/// before it until they are that large.
const FIRST_CHUNK_BITS: u32 = if cfg!(loom) { 0 } else { 2 };
const LARGEST_CHUNK_BITS: u32 = if cfg!(loom) { 1 } else { 8 };

/// How many pieces are in stock at most, and no more than are in use: 4 MiB of cells, for a tenth of a second of a server that
/// does nothing but insert.
const STOCK_PIECES_MAX: u32 = 64;

pub(crate) struct Arena<T: 'static> {
    chunks: Box<[OnceLock<Chunk<T>>]>,
    /// One more than can be in use: while one is being made ready for the stock, nobody has to wait for it.
    piece_count: u32,
    /// How many pieces have been taken out of their chunks, for the stock or for use.
    taken: AtomicU32,
    /// Pieces that are ready for use.
    stock: Queue<u32>,
    stock_count: AtomicU32,
    /// Held by whoever adds to the stock.
    stocking: Mutex<()>,
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
        }
    }

    /// A piece that is the caller's from here on. There are as many as was said at the beginning.
    pub(crate) fn take_piece(&self) -> &Piece<T> {
        // At the very end all are taken, and the one that is left came into the stock while we looked elsewhere: whoever stocks up
        // has one in hand at most, and there is one more than can be in use.
        let look_again = || match fault::injected(Fault::StockLookedAtOnce) {
            true => None,
            false => self.take_from_stock(),
        };
        let piece = self.take_from_stock().or_else(|| self.take());
        let piece = piece.or_else(look_again);
        let (chunk_index, piece_index) = position(piece.expect("there is a piece for every place"));
        &self.chunks[chunk_index].get_or_init(|| make_chunk(chunk_index))[piece_index]
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
            if fault::injected(Fault::PieceTakenTwice) {
                self.taken.store(taken + 1, Ordering::Release);
                return Some(taken);
            }
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
            let _ = chunk.set(make_chunk(chunk_index));
        }
        let slots = &made(chunk).expect("somebody has made it")[piece_index];
        let slots_per_page = (PAGE_BYTES / size_of::<T>()).max(1);
        for slot in slots.iter().step_by(slots_per_page) {
            slot.free_link().store(NONE, Ordering::Relaxed);
        }
    }
}

/// How many pieces the slots up to this number take.
pub(crate) fn piece_count(slot_max: u32) -> usize {
    (slot_max as usize).div_ceil(PIECE_SLOTS)
}

/// Which chunk a piece is in, and which of its pieces it is.
fn position(piece: u32) -> (usize, usize) {
    // As if there had been a chunk before the first one: then chunk `n` of the growing ones begins at a power of two.
    let shifted = piece + (1 << FIRST_CHUNK_BITS);
    let bits = shifted.ilog2().min(LARGEST_CHUNK_BITS);
    let of_this_size = shifted >> bits;
    let chunk_index = bits - FIRST_CHUNK_BITS + of_this_size - 1;
    (
        chunk_index as usize,
        (shifted - (of_this_size << bits)) as usize,
    )
}

fn make_chunk<T: Slot>(chunk_index: usize) -> Chunk<T> {
    let bits = (FIRST_CHUNK_BITS + chunk_index as u32).min(LARGEST_CHUNK_BITS);
    Chunk::new(1 << bits)
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
    use crate::slab::Thing;
    use std::collections::HashSet;

    #[test]
    fn every_piece_is_handed_out_once() {
        // Past the first chunk of the largest size.
        let pieces = 4 << LARGEST_CHUNK_BITS;
        let arena = Arena::<Thing>::new(pieces);
        for number in 1..=pieces as u32 {
            let piece = arena.take_piece();
            for slot in [piece.first(), piece.last()] {
                let link = &slot.expect("a piece has slots").link;
                assert_eq!(link.swap(number, Ordering::Relaxed), 0, "handed out twice");
            }
        }
    }

    #[test]
    fn chunks_follow_each_other_and_hold_all_pieces() {
        let mut next = (0, 0);
        for piece in 0..5 << LARGEST_CHUNK_BITS {
            assert_eq!(position(piece), next, "piece {piece}");
            let (chunk_index, piece_index) = next;
            let is_last = piece_index + 1 == make_chunk::<Thing>(chunk_index).len();
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
            assert_eq!(arena.take_piece()[0].link.load(Ordering::Relaxed), 0);
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
            assert!(seen.insert(arena.take_piece().as_ptr()));
            if number % 3 != 0 {
                arena.stock_up();
            }
        }
    }
}
