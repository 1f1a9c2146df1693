//! Slots: numbered places for one value each, and the pieces in which memory is handed out for
//! them.

use crate::sync::AtomicU32;
#[cfg(not(loom))]
use bytemuck::Zeroable;

/// Under the models there is no such promise: an atomic of loom's is more than its value.
#[cfg(loom)]
pub(crate) trait Zeroable {}
#[cfg(loom)]
impl<T> Zeroable for T {}

/// What can live in a slab: something whose all-zero state means "never used", with a link for when
/// it is free.
pub(crate) trait Slot: Zeroable + Sized + 'static {
    /// Holds the next free slot's number while this one is free. Not touched by the slab otherwise.
    fn free_link(&self) -> &AtomicU32;

    /// One that was never used.
    #[cfg(loom)]
    fn zeroed() -> Self;
}

/// No slot. Slot numbers start at 1 so that zeroed links mean nothing is linked.
pub(crate) const NONE: u32 = 0;

/// Slot numbers fit in 24 bits: an index entry packs one beside its tag.
pub(crate) const SLOT_MAX: u32 = (1 << 24) - 1;

/// Slots of a piece, log2: 64 KiB of cells.
const PIECE_BITS: u32 = if cfg!(loom) { 1 } else { 10 };
pub(crate) const PIECE_SLOTS: usize = 1 << PIECE_BITS;

pub(crate) type Piece<T> = [T; PIECE_SLOTS];

/// How many pieces the slots up to this number take.
pub(crate) fn piece_count(slot_max: u32) -> usize {
    (slot_max as usize).div_ceil(PIECE_SLOTS)
}

/// The smallest slot there can be, for tests of what slots stand in.
#[cfg(all(test, not(loom)))]
#[derive(Zeroable)]
pub(crate) struct Thing {
    pub(crate) link: AtomicU32,
}

#[cfg(all(test, not(loom)))]
impl Slot for Thing {
    fn free_link(&self) -> &AtomicU32 {
        &self.link
    }
}
