//! The pieces of memory that one slab has, by number. What a slab looks up most, several times in
//! every call of the engine: so a piece is known by its address, and found with one read.

#![expect(
    unsafe_code,
    reason = "a piece outlives every look-up, in a way the compiler cannot see"
)]

use super::arena::Arena;
use super::slot::{Piece, Slot};
use crate::sync::{AtomicPtr, Mutex, Ordering};
use std::ptr;
use std::sync::Arc;

pub(crate) struct Pieces<T: 'static> {
    /// Null where there is none yet. Every other pointer came from a reference into `arena`.
    places: Box<[AtomicPtr<Piece<T>>]>,
    /// Held while a place is given its piece.
    providing: Mutex<()>,
    arena: Arc<Arena<T>>,
}

impl<T: Slot> Pieces<T> {
    /// Room for so many, with none there yet.
    pub(crate) fn new(piece_count: usize, arena: Arc<Arena<T>>) -> Self {
        Pieces {
            places: (0..piece_count)
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect(),
            providing: Mutex::new(()),
            arena,
        }
    }

    /// The piece with this number, which must have been provided before.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> &Piece<T> {
        // Acquire, paired with the Release in `provide`: what is in the piece was written before.
        let piece = self.places[number].load(Ordering::Acquire);
        // SAFETY: null, or made in `provide` from a reference to a piece of the arena. The arena
        // lives as long as `self`, never moves or frees a piece before it goes itself, and hands
        // out shared references only.
        unsafe { piece.as_ref() }.expect("this piece has been provided")
    }

    /// Sees to it that there is a piece with this number.
    #[cold]
    pub(crate) fn provide(&self, number: usize) {
        let _providing = self.providing.lock();
        let place = &self.places[number];
        if place.load(Ordering::Acquire).is_null() || fault!(PieceReplaced) {
            let piece = self.arena.take_piece();
            place.store(ptr::from_ref(piece).cast_mut(), Ordering::Release);
        }
    }
}
