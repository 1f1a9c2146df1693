//! Short metadata of a plain grant, in a block of its own beside the cell: a lock with metadata is
//! taken and given back like any other, by CAS, without the room. Long metadata goes into a record,
//! and so does that of a contended key.
//!
//! The cell has no room for the block's number, except where the time of the grant stands; that
//! moves into the block. A word that is META says so.
//!
//! ```text
//! words | what
//! ------|-----------------------------------------------------------------------------
//! 0     | whose: 31 bits of the fence under which it was written; 0: unused
//! 1     | when the grant was made, low 32 bits
//! 2     | how many bytes
//! 3 ..  | the bytes
//! ```
//!
//! The core that takes the word away from HELD drops the block, once, after that. A reader takes
//! what it has read for the metadata only if the word is still the same afterwards: the next user
//! of the block writes with Release what the reader reads with Acquire, so a reader of a byte of it
//! finds the word changed.

use crate::cell::key::{BLOCK_BYTES, KeyBlock, WORD_BYTES, load_word};
use crate::memory::slab::Slab;
use crate::memory::slot::NONE;
use crate::sync::Ordering;
use types::Fence;

const WHOSE: usize = 0;
const SINCE: usize = 1;
const LENGTH: usize = 2;
const BYTES: usize = 3;

/// The longest metadata that fits into a block. Tokens of the usual kind do: a UUID as text has 36.
pub(crate) const SHORT_METADATA_BYTES_MAX: usize = BLOCK_BYTES - BYTES * WORD_BYTES;

/// Metadata copied out of its block, on the stack.
pub(crate) struct ShortMetadata {
    bytes: [u8; SHORT_METADATA_BYTES_MAX],
    length: usize,
}

impl ShortMetadata {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

fn mark(fence: Fence) -> u32 {
    fence.get() as u32 | 1 << 31
}

/// Writes metadata into a block of its own. `None`: there is none left.
pub(crate) fn write(
    blocks: &Slab<KeyBlock>,
    fence: Fence,
    since_low32: u32,
    metadata: &[u8],
) -> Option<u32> {
    let block = blocks.take()?;
    let words = &blocks.get(block).words;
    words[SINCE].store(since_low32, Ordering::Release);
    words[LENGTH].store(metadata.len() as u32, Ordering::Release);
    for (word, bytes) in words[BYTES..].iter().zip(metadata.chunks(WORD_BYTES)) {
        word.store(load_word(bytes), Ordering::Release);
    }
    words[WHOSE].store(mark(fence), Ordering::Release);
    Some(block)
}

/// Gives a block back that was written under `fence`, unless it was given back before.
pub(crate) fn drop_block(blocks: &Slab<KeyBlock>, block: u32, fence: Fence) {
    let Some(metadata) = find(blocks, block) else {
        return;
    };
    let whose = &metadata.words[WHOSE];
    if whose
        .compare_exchange(mark(fence), 0, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
    {
        blocks.put(block);
    }
}

/// What a reader that was overtaken takes for a block's number may be anything.
pub(crate) fn find(blocks: &Slab<KeyBlock>, block: u32) -> Option<&KeyBlock> {
    (block != NONE && block <= blocks.last()).then(|| blocks.get(block))
}

pub(crate) fn read(block: &KeyBlock) -> ShortMetadata {
    let length = block.words[LENGTH].load(Ordering::Acquire) as usize;
    let mut metadata = ShortMetadata {
        bytes: [0; SHORT_METADATA_BYTES_MAX],
        length: length.min(SHORT_METADATA_BYTES_MAX),
    };
    let words = block.words[BYTES..].iter();
    for (word, bytes) in words.zip(metadata.bytes[..metadata.length].chunks_mut(WORD_BYTES)) {
        let loaded = word.load(Ordering::Acquire).to_le_bytes();
        bytes.copy_from_slice(&loaded[..bytes.len()]);
    }
    metadata
}

/// When the grant was made whose metadata is in this block.
pub(crate) fn since_low32(block: &KeyBlock) -> u32 {
    block.words[SINCE].load(Ordering::Acquire)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn notes_of_every_length_are_read_back_as_they_were_written() {
        let blocks = Slab::alone(4);
        for length in 0..=SHORT_METADATA_BYTES_MAX {
            let metadata: Vec<u8> = (1..=length as u8).collect();
            let fence = Fence::from_number(length as u64);
            let block = write(&blocks, fence, 7, &metadata).unwrap();
            assert_eq!(read(blocks.get(block)).bytes(), metadata);
            drop_block(&blocks, block, fence);
        }
        assert_eq!(blocks.live(), 0);
    }

    #[test]
    fn a_block_is_dropped_once_and_by_its_own_fence_only() {
        let blocks = Slab::alone(1);
        let (one, two) = (Fence::new(1).unwrap(), Fence::new(2).unwrap());
        let block = write(&blocks, one, 0, b"one").unwrap();
        drop_block(&blocks, block, two);
        assert!(write(&blocks, two, 0, b"two").is_none(), "still in use");
        drop_block(&blocks, block, one);
        drop_block(&blocks, block, one);
        assert_eq!(blocks.live(), 0);
        assert_eq!(write(&blocks, two, 0, b"two"), Some(block));
        assert!(write(&blocks, two, 0, b"two").is_none(), "there is but one");
        for nonsense in [NONE, 2, u32::MAX] {
            drop_block(&blocks, nonsense, two);
        }
        assert_eq!(blocks.live(), 1);
    }
}
