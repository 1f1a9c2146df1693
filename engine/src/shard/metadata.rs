//! Short metadata of plain grants, in a block beside the cell (`cell/block.rs`).

use super::Shard;
use crate::api::Host;
use crate::cell::block::{self, ShortMetadata};
use crate::cell::word::Word;
use crate::cell::{Cell, Seen, Terms};
use types::Fence;

impl<H: Host> Shard<H> {
    /// What was seen of a cell, and since when the grant stands: of a META word only its block
    /// knows.
    #[inline]
    pub(crate) fn with_since(&self, word: Word, mut seen: Seen) -> Option<Seen> {
        if word.has_metadata() {
            let block = block::find(self.table.metadata_blocks(), seen.metadata)?;
            seen.since_low32 = block::since_low32(block);
        }
        Some(seen)
    }

    /// Takes a plain free cell with short metadata. `None`: there is no block for it.
    /// `Some(false)`: another core was faster.
    pub(crate) fn try_grant_with(
        &self,
        cell: &Cell,
        seen: Word,
        fence: Fence,
        terms: &Terms,
        metadata: &[u8],
    ) -> Option<bool> {
        let blocks = self.table.metadata_blocks();
        let block = block::write(blocks, fence, terms.since_low32, metadata)?;
        let is_taken = cell.replace_word(seen, Word::held(fence).with_metadata());
        if is_taken {
            cell.publish_with(fence, terms, block);
        } else {
            block::drop_block(blocks, block, fence);
        }
        Some(is_taken)
    }

    /// The metadata of a plain grant, if it has one and has not ended meanwhile.
    pub(crate) fn short_metadata(
        &self,
        cell: &Cell,
        word: Word,
        seen: &Seen,
    ) -> Option<ShortMetadata> {
        if !word.has_metadata() {
            return None;
        }
        let metadata = block::read(block::find(self.table.metadata_blocks(), seen.metadata)?);
        let is_same = cell.word().is_same_grant(word);
        (is_same || fault!(MetadataUnchecked)).then_some(metadata)
    }

    /// Drops the metadata of a plain grant that has just been moved to a record.
    pub(crate) fn drop_metadata(&self, seen: &Seen, fence: Fence) {
        block::drop_block(self.table.metadata_blocks(), seen.metadata, fence);
    }
}
