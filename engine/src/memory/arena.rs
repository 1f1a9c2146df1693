//! Memory that the slabs of all shards share, handed out in pieces of equal size.
//!
//! It is shared because of huge pages. They make a lookup among millions of keys a fifth cheaper,
//! and each array that is partly used pays for the unused rest of one. A piece is small, so what a
//! shard has taken and does not use yet is small too; pieces of different shards share their huge
//! pages. Chunks double in size, so that an engine of a few keys stays small.

use super::chunk::Chunk;
use super::hint::PAGE_BYTES;
use super::slot::{NONE, Piece, Slot};
use crate::sync::{AtomicU32, Mutex, OnceLock, Ordering, Queue, get};

/// Pieces of the first chunk, log2, and of the largest: 256 KiB and 16 MiB of cells. Each chunk has
/// twice as many as the one before it until they are that large.
const FIRST_CHUNK_BITS: u32 = if cfg!(loom) { 0 } else { 2 };
const LARGEST_CHUNK_BITS: u32 = if cfg!(loom) { 1 } else { 8 };

/// How many prefaulted pieces are kept at most, and no more than are in use: 4 MiB of cells, for a
/// tenth of a second of a server that does nothing but insert.
const READY_PIECES_MAX: u32 = 64;

pub(crate) struct Arena<T: 'static> {
    chunks: Box<[OnceLock<Chunk<T>>]>,
    /// One more than can be in use: while the prefaulting thread has one in hand, no inserter has
    /// to wait for it.
    piece_count: u32,
    /// How many pieces have been taken out of their chunks, to be prefaulted or for use.
    taken: AtomicU32,
    /// Prefaulted pieces.
    ready: Queue<u32>,
    ready_count: AtomicU32,
    /// Held by the thread that prefaults.
    prefaulting: Mutex<()>,
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
            ready: Queue::new(),
            ready_count: AtomicU32::new(0),
            prefaulting: Mutex::new(()),
        }
    }

    /// A piece that is the caller's from here on. There are as many as was said at the beginning.
    pub(crate) fn take_piece(&self) -> &Piece<T> {
        let piece = self.take_ready().or_else(|| self.take());
        // At the very end all are taken, and the one that is left became ready while we looked
        // elsewhere: the prefaulting thread has one in hand at most, and there is one more than can
        // be in use.
        let piece = piece.or_else(|| match fault!(ReadyLookedAtOnce) {
            false => self.take_ready(),
            true => None,
        });
        let (chunk_index, piece_index) = position(piece.expect("there is a piece for every place"));
        &self.chunks[chunk_index].get_or_init(|| make_chunk(chunk_index))[piece_index]
    }

    /// Whether fewer pieces are ready than should be.
    #[inline]
    pub(crate) fn wants_prefault(&self) -> bool {
        let ready_count = self.ready_count.load(Ordering::Relaxed);
        let taken = self.taken.load(Ordering::Relaxed);
        let in_use = taken.saturating_sub(ready_count);
        ready_count < in_use.min(READY_PIECES_MAX) && taken < self.piece_count
    }

    /// Prefaults one more piece, and waits for its memory. `false`: enough are ready, or another
    /// thread is at it.
    pub(crate) fn prefault(&self) -> bool {
        let Some(_prefaulting) = self.prefaulting.try_lock() else {
            return false;
        };
        if !self.wants_prefault() {
            return false;
        }
        let Some(piece) = self.take() else {
            return false;
        };
        if !fault!(ReadyTooEarly) {
            self.touch(piece);
        }
        self.ready_count.fetch_add(1, Ordering::Relaxed);
        self.ready.push(piece);
        if fault!(ReadyTooEarly) {
            self.touch(piece);
        }
        true
    }

    fn take_ready(&self) -> Option<u32> {
        let piece = self.ready.pop()?;
        self.ready_count.fetch_sub(1, Ordering::Relaxed);
        Some(piece)
    }

    /// A piece that has not been taken out of its chunk yet.
    fn take(&self) -> Option<u32> {
        // Acquire, paired with the Release below: a thread that finds all pieces taken sees those
        // that the prefaulting thread made ready before it took its last.
        let mut taken = self.taken.load(Ordering::Acquire);
        while taken < self.piece_count {
            match self.taken.compare_exchange_weak(
                taken,
                taken + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(piece) => return Some(piece),
                Err(_) if fault!(PieceTakenTwice) => return Some(taken),
                Err(now) => taken = now,
            }
        }
        None
    }

    /// Writes to every page of a piece that is the caller's own: the kernel gives memory only to
    /// writers.
    fn touch(&self, piece: u32) {
        let (chunk_index, piece_index) = position(piece);
        let chunk = &self.chunks[chunk_index];
        if get(chunk).is_none() {
            // Not by `get_or_init`, where an inserter that needs it now would wait for us. If
            // another thread was faster, there is one.
            let _ = chunk.set(make_chunk(chunk_index));
        }
        let slots = &get(chunk).expect("made here or by another thread")[piece_index];
        let slots_per_page = (PAGE_BYTES / size_of::<T>()).max(1);
        for slot in slots.iter().step_by(slots_per_page) {
            slot.free_link().store(NONE, Ordering::Relaxed);
        }
    }
}

/// Which chunk a piece is in, and which of its pieces it is.
fn position(piece: u32) -> (usize, usize) {
    // As if there had been a chunk before the first one: then chunk `n` of the growing ones begins
    // at a power of two.
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
    use crate::memory::slot::Thing;
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
    fn as_many_pieces_are_ready_as_are_in_use_within_bounds() {
        let pieces = 200;
        let arena = Arena::<Thing>::new(pieces);
        assert!(
            !arena.wants_prefault() && !arena.prefault(),
            "nothing has been taken"
        );
        for in_use in 1..=pieces as u32 {
            assert_eq!(arena.take_piece()[0].link.load(Ordering::Relaxed), 0);
            while arena.prefault() {}
            assert!(!arena.wants_prefault());
            let left = pieces as u32 + 1 - in_use;
            let expected = in_use.min(READY_PIECES_MAX).min(left);
            assert_eq!(arena.ready_count.load(Ordering::Relaxed), expected);
        }
    }

    #[test]
    fn prefaulted_pieces_are_handed_out_once() {
        let pieces = 300;
        let arena = Arena::<Thing>::new(pieces);
        let mut seen = HashSet::new();
        for number in 0..pieces {
            assert!(seen.insert(arena.take_piece().as_ptr()));
            if number % 3 != 0 {
                arena.prefault();
            }
        }
    }
}
