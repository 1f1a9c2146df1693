//! Memory that never moves: slabs of slots, the arena they share, and how the kernel is asked for it.

pub(crate) mod arena;
pub(crate) mod chunk;
pub(crate) mod hint;
pub(crate) mod pieces;
pub(crate) mod slab;
pub(crate) mod slot;
