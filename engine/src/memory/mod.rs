//! Memory for millions of cells that never moves and never goes back while the engine lives.
//!
//! **Why it never moves.** A reader follows an index entry to a cell without a lock. Reading a cell
//! is always safe because its memory stays a cell for ever; whether it was still the right one, the
//! lock word tells afterwards.
//!
//! **From the kernel to a slot.**
//!
//! ```text
//! chunk  256 KiB to 16 MiB, zeroed; the large ones mapped on huge pages     chunk.rs
//!   |    all chunks together are the arena, which all shards share          arena.rs
//! piece  64 KiB, 1024 slots: what one slab takes at a time                  slot.rs, pieces.rs
//!   |    a slab finds its pieces by address, with one read
//! slot   one cell or block, numbered from 1                                 slot.rs, slab.rs
//!        freed slots go on a stack and are handed out again
//! ```
//!
//! There is one arena for cells and one for blocks of long keys and short metadata, each shared by
//! the slabs of all shards. So a shard wastes a part of a piece, and not of a huge page.
//!
//! **Why it is prefaulted.** Memory from the kernel is not there before it is written to. The first
//! write to a huge page waits until the kernel has two megabytes ready, up to ten milliseconds
//! where the host has to find them. So a thread of the server, which no client waits for, writes to
//! pieces ahead of need (`Arena::prefault`), lays out the next index of a table before the current
//! one is crowded (`table/spare.rs`), and frees outgrown ones (`table/epoch.rs`). It takes no mutex
//! that a core waits for. An inserter that finds no prefaulted piece takes one that is not, and
//! waits for the kernel itself.
//!
//! **Hints** (`hint.rs`) change nothing that a program can see: a prefetch of one cache line, and
//! the wish for huge pages. They make a lookup among millions of keys a fifth cheaper.

pub(crate) mod arena;
mod chunk;
pub(crate) mod hint;
mod pieces;
pub(crate) mod slab;
pub(crate) mod slot;
