//! How a cell stores its key.
//!
//! The first 16 bytes are in the cell; longer keys go on in blocks of 56 bytes from the shard's
//! block slab. All of it is type-stable and atomic, so a reader may compare a key while its cell is
//! being reused: it gets a wrong answer, never an invalid one, and the lock word tells it so.

use crate::memory::slab::Slab;
use crate::memory::slot::{NONE, Slot};
use crate::sync::{AtomicU32, Ordering};

use types::Key;
pub(crate) use types::limits::KEY_BYTES_MAX;

/// One word under the models, which look at each of them in every order.
const INLINE_BYTES: usize = if cfg!(loom) { WORD_BYTES } else { 16 };
/// Words of four bytes, so that the stored key needs no more alignment than its length field and a
/// cell stays one line.
pub(crate) const WORD_BYTES: usize = 4;
/// Under the models as few as metadata can be told in.
const BLOCK_WORDS: usize = if cfg!(loom) { 4 } else { 14 };
pub(crate) const BLOCK_BYTES: usize = BLOCK_WORDS * WORD_BYTES;
/// The longest key takes this many.
pub(crate) const BLOCKS_MAX: usize = (KEY_BYTES_MAX - INLINE_BYTES).div_ceil(BLOCK_BYTES);

/// The part of a cell that holds its key. Written by the inserter that prepares the cell, before
/// the index points to it.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[repr(C)]
pub(crate) struct StoredKey {
    inline: [AtomicU32; INLINE_BYTES / WORD_BYTES],
    /// `first block:24 | length - 1:8`.
    rest: AtomicU32,
}

/// Fifty-six more bytes of a long key, or short metadata (`cell/block.rs`).
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[repr(C)]
pub(crate) struct KeyBlock {
    pub(crate) words: [AtomicU32; BLOCK_WORDS],
    next: AtomicU32,
    free_link: AtomicU32,
}

/// What a block takes.
pub(crate) const BLOCK_MEMORY_BYTES: u64 = 64;
#[cfg(not(loom))]
const _: () = assert!(size_of::<KeyBlock>() as u64 == BLOCK_MEMORY_BYTES);

impl Slot for KeyBlock {
    fn free_link(&self) -> &AtomicU32 {
        &self.free_link
    }

    #[cfg(loom)]
    fn zeroed() -> Self {
        KeyBlock {
            words: std::array::from_fn(|_| AtomicU32::new(0)),
            next: AtomicU32::new(0),
            free_link: AtomicU32::new(0),
        }
    }
}

impl StoredKey {
    #[cfg(loom)]
    pub(crate) fn zeroed() -> Self {
        StoredKey {
            inline: std::array::from_fn(|_| AtomicU32::new(0)),
            rest: AtomicU32::new(0),
        }
    }

    /// Writes `key` here. `false` if the block slab is at its limit; then nothing is kept.
    ///
    /// The stores are Release, paired with the Acquire loads in `equals`: a reader of a byte of the
    /// new key also sees that the word has left its old incarnation, so a comparison across the two
    /// is always found out.
    pub(crate) fn write(&self, key: Key<'_>, blocks: &Slab<KeyBlock>) -> bool {
        let (inline, tail) = key
            .as_bytes()
            .split_at(key.as_bytes().len().min(INLINE_BYTES));
        let mut first = NONE;
        for chunk in tail.chunks(BLOCK_BYTES).rev() {
            let Some(block) = blocks.take() else {
                free_blocks(first, blocks);
                return false;
            };
            for (word, bytes) in blocks.get(block).words.iter().zip(chunk.chunks(WORD_BYTES)) {
                word.store(load_word(bytes), Ordering::Release);
            }
            blocks.get(block).next.store(first, Ordering::Release);
            first = block;
        }
        for (word, value) in self.inline.iter().zip(inline_words(inline)) {
            word.store(value, Ordering::Release);
        }
        self.rest.store(
            first << 8 | (key.as_bytes().len() as u32 - 1),
            Ordering::Release,
        );
        true
    }

    /// Whether `key` is stored here. Only as good as the word that was read before and is compared
    /// again after.
    #[inline]
    pub(crate) fn equals(&self, key: Key<'_>, blocks: &Slab<KeyBlock>) -> bool {
        let rest = self.rest.load(Ordering::Acquire);
        if (rest & 0xff) as usize != key.as_bytes().len() - 1 {
            return false;
        }
        let is_begun = self.inline_equals(key.as_bytes());
        match key.as_bytes().get(INLINE_BYTES..) {
            Some(tail) if is_begun && !tail.is_empty() => tail_equals(rest >> 8, tail, blocks),
            _ => is_begun,
        }
    }

    #[inline]
    fn inline_equals(&self, key: &[u8]) -> bool {
        let words = self.inline.iter().zip(inline_words(key));
        // All of them, and one decision: they are on one line.
        words.fold(0, |differing, (word, wanted)| {
            differing | (word.load(Ordering::Acquire) ^ wanted)
        }) == 0
    }

    /// Copies the key out. Exact while the cell cannot be evicted; otherwise as good as `equals`.
    pub(crate) fn read(&self, blocks: &Slab<KeyBlock>) -> KeyBuffer {
        let rest = self.rest.load(Ordering::Acquire);
        let mut buffer = KeyBuffer {
            bytes: [0; BUFFER_BYTES],
            length: (rest & 0xff) as usize + 1,
        };
        let mut words = buffer.bytes.chunks_exact_mut(WORD_BYTES);
        for (word, bytes) in self.inline.iter().zip(words.by_ref()) {
            bytes.copy_from_slice(&word.load(Ordering::Acquire).to_le_bytes());
        }
        let mut block = rest >> 8;
        for _ in 0..BLOCKS_MAX {
            if block == NONE {
                break;
            }
            for (word, bytes) in blocks.get(block).words.iter().zip(words.by_ref()) {
                bytes.copy_from_slice(&word.load(Ordering::Acquire).to_le_bytes());
            }
            block = blocks.get(block).next.load(Ordering::Acquire);
        }
        buffer
    }

    /// Gives the blocks of a long key back. Only for the evictor, after the index has let go of the
    /// cell.
    pub(crate) fn clear(&self, blocks: &Slab<KeyBlock>) {
        let rest = self.rest.swap(0, Ordering::AcqRel);
        free_blocks(rest >> 8, blocks);
    }
}

#[cold]
fn tail_equals(mut block: u32, tail: &[u8], blocks: &Slab<KeyBlock>) -> bool {
    for chunk in tail.chunks(BLOCK_BYTES) {
        // A reused cell may have a shorter chain than the length we read promised.
        if block == NONE {
            return false;
        }
        let stored = blocks.get(block);
        if !stored
            .words
            .iter()
            .zip(chunk.chunks(WORD_BYTES))
            .all(|(word, bytes)| word.load(Ordering::Acquire) == load_word(bytes))
        {
            return false;
        }
        block = stored.next.load(Ordering::Acquire);
    }
    true
}

fn free_blocks(mut block: u32, blocks: &Slab<KeyBlock>) {
    while block != NONE {
        let next = blocks.get(block).next.load(Ordering::Acquire);
        blocks.put(block);
        block = next;
    }
}

/// The first sixteen bytes of a key, padded with zeros. Keys of different lengths never compare
/// equal, so that is safe.
#[inline]
fn inline_words(key: &[u8]) -> [u32; INLINE_BYTES / WORD_BYTES] {
    let inline = match key.split_first_chunk::<INLINE_BYTES>() {
        Some((inline, _)) => *inline,
        None => padded(key),
    };
    let mut words = inline.chunks_exact(WORD_BYTES).map(load_word);
    std::array::from_fn(|_| words.next().unwrap_or_default())
}

/// Fewer than sixteen bytes, made up with zeros. Not by copying a number of bytes that is not
/// known, which is a call: by reading from both ends, and moving what was read twice out of the
/// way.
#[inline]
fn padded(bytes: &[u8]) -> [u8; INLINE_BYTES] {
    let length = bytes.len();
    let from_both_ends = |first: u64, last: u64, read: usize| -> u128 {
        let last = u128::from(last) << (8 * (length - read));
        u128::from(first) | last
    };
    let value = if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        from_both_ends(u64::from_le_bytes(*first), u64::from_le_bytes(*last), 8)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let word = |bytes: &[u8; 4]| u64::from(u32::from_le_bytes(*bytes));
        from_both_ends(word(first), word(last), 4)
    } else {
        bytes
            .iter()
            .rev()
            .fold(0, |value, &byte| value << 8 | u128::from(byte))
    };
    let mut padded = [0; INLINE_BYTES];
    padded.copy_from_slice(&value.to_le_bytes()[..INLINE_BYTES]);
    padded
}

/// Up to four bytes as a word, padded with zeros.
#[inline]
pub(crate) fn load_word(bytes: &[u8]) -> u32 {
    if let Ok(whole) = <[u8; WORD_BYTES]>::try_from(bytes) {
        return u32::from_le_bytes(whole);
    }
    let mut padded = [0; WORD_BYTES];
    padded[..bytes.len()].copy_from_slice(bytes);
    u32::from_le_bytes(padded)
}

const BUFFER_BYTES: usize = INLINE_BYTES + BLOCKS_MAX * BLOCK_BYTES;

/// A key copied out of its cell, on the stack.
pub(crate) struct KeyBuffer {
    bytes: [u8; BUFFER_BYTES],
    length: usize,
}

impl KeyBuffer {
    pub(crate) fn key(&self) -> Key<'_> {
        Key::new(&self.bytes[..self.length]).expect("a stored length is 1 to 256")
    }
}

const _: () = assert!(KEY_BYTES_MAX - 1 <= 0xff && BUFFER_BYTES >= KEY_BYTES_MAX);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_are_stored_and_told_apart() {
        let blocks = Slab::alone(64);
        for length in 1..=KEY_BYTES_MAX {
            let stored: StoredKey = bytemuck::Zeroable::zeroed();
            let bytes: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let key = Key::new(&bytes).unwrap();
            assert!(stored.write(key, &blocks));
            assert!(stored.equals(key, &blocks));
            assert_eq!(stored.read(&blocks).key(), key);
            for flipped in 0..length {
                let mut other = bytes.clone();
                other[flipped] ^= 0x80;
                assert!(
                    !stored.equals(Key::new(&other).unwrap(), &blocks),
                    "length {length}, byte {flipped}"
                );
            }
            // Zero padding must not make a shorter or longer key equal.
            if length < KEY_BYTES_MAX {
                let longer = [bytes.as_slice(), &[0]].concat();
                assert!(!stored.equals(Key::new(&longer).unwrap(), &blocks));
            }
            stored.clear(&blocks);
            assert_eq!(blocks.live(), 0);
        }
    }

    #[test]
    fn a_full_block_slab_refuses_the_key_and_keeps_nothing() {
        let blocks = Slab::alone(2);
        let stored: StoredKey = bytemuck::Zeroable::zeroed();
        assert!(!stored.write(Key::new(&[1; 256]).unwrap(), &blocks));
        assert_eq!(blocks.live(), 0);
    }
}
