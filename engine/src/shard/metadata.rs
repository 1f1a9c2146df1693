//! Short notes of plain grants, in a block beside the cell (`cell/block.rs`).

use super::Shard;
use crate::api::Host;
use crate::cell::block::{self, ShortNote};
use crate::cell::word::Word;
use crate::cell::{Cell, Seen, Terms};
use types::Fence;

impl<H: Host> Shard<H> {
    /// What was seen of a cell, and since when the grant stands: of a NOTED word only its block
    /// knows.
    #[inline]
    pub(crate) fn with_since(&self, word: Word, mut seen: Seen) -> Option<Seen> {
        if word.is_noted() {
            let block = block::find(self.table.notes(), seen.note)?;
            seen.since_low32 = block::since_low32(block);
        }
        Some(seen)
    }

    /// Takes a plain free cell with a short note. `None`: there is no block for it. `Some(false)`:
    /// another core was faster.
    pub(crate) fn try_grant_noted(
        &self,
        cell: &Cell,
        seen: Word,
        fence: Fence,
        terms: &Terms,
        note: &[u8],
    ) -> Option<bool> {
        let blocks = self.table.notes();
        let block = block::write(blocks, fence, terms.since_low32, note)?;
        let is_taken = cell.replace_word(seen, Word::held(fence).with_note());
        if is_taken {
            cell.publish_noted(fence, terms, block);
        } else {
            block::drop_block(blocks, block, fence);
        }
        Some(is_taken)
    }

    /// The note of a plain grant, if it has one and has not ended meanwhile.
    pub(crate) fn short_note(&self, cell: &Cell, word: Word, seen: &Seen) -> Option<ShortNote> {
        if !word.is_noted() {
            return None;
        }
        let note = block::read(block::find(self.table.notes(), seen.note)?);
        let is_same = cell.word().is_same_grant(word);
        (is_same || fault!(NoteUnchecked)).then_some(note)
    }

    /// Drops the note of a plain grant that has just been moved to a record.
    pub(crate) fn drop_note(&self, seen: &Seen, fence: Fence) {
        block::drop_block(self.table.notes(), seen.note, fence);
    }
}
