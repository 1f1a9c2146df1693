//! Walking over all holds, some cells at a time: for whoever writes them down.
//!
//! A hold that lasts from the beginning of the walk to its end is met, with the lease it had at some moment in between; others
//! may be. Evictions wait while a part is looked at, everybody else goes on.

use super::{Cursor, Engine};
use crate::fence::Fence;
use crate::key::Key;
use crate::noted::ShortNote;
use crate::request::{Host, Mode};
use crate::session::SessionId;
use crate::shard::held_ms;
use crate::slab::SLOT_MAX;
use crate::tick::Tick;
use crate::word::Kind;

/// One holder of one key.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// What is held.
    pub key: Key<'a>,
    /// Under which fence.
    pub fence: Fence,
    /// By whom.
    pub owner: SessionId,
    /// Alone or together.
    pub mode: Mode,
    /// It lives as long as its session.
    pub is_session_bound: bool,
    /// When it ends by itself.
    pub until: Tick,
    /// Since how long it is held.
    pub held_ms: u64,
    /// How often.
    pub count: u32,
    /// What the holder said with its request.
    pub note: &'a [u8],
}

impl<H: Host> Engine<H> {
    /// Calls `visit` for the holds in up to `cells_max` cells from `from` on. Returns where to go on; `None` at the end.
    pub fn holds(
        &self,
        from: Cursor,
        cells_max: u32,
        now: Tick,
        mut visit: impl FnMut(&Held<'_>),
    ) -> Option<Cursor> {
        let (shard_number, slot) = ((from.0 >> 24) as usize, from.0 & SLOT_MAX);
        let shard = self.shards.get(shard_number)?;
        // Those in records are asked for afterwards: the room mutex is never taken inside the one that holds off evictions.
        let mut in_records: Vec<Box<[u8]>> = Vec::new();
        let rest = shard.table.scan(slot, cells_max, |found, key| {
            let cell = shard.table.cell(found.slot);
            let word = cell.word();
            // A record in the making is in the lease first.
            if word.is_rich() || cell.lease().kind() == Kind::Record {
                in_records.push(key.bytes().into());
            } else if let Some(seen) = shard.seen(cell, word)
                // Owner and lease belong together if the grant is still the same.
                && cell.word().fence() == word.fence()
                && !shard.is_over(&seen, now)
            {
                let note = shard.short_note(cell, word, &seen);
                if word.is_noted() && note.is_none() {
                    // It has just ended, or been moved to a record.
                    in_records.push(key.bytes().into());
                    return true;
                }
                visit(&Held {
                    key,
                    fence: word.fence(),
                    owner: seen.owner,
                    mode: Mode::Exclusive,
                    is_session_bound: seen.lease.kind() == Kind::Session,
                    until: shard.lease_end(seen.lease, seen.owner),
                    held_ms: held_ms(seen.since_low32, now),
                    count: 1,
                    note: note.as_ref().map_or(&[], ShortNote::bytes),
                });
            }
            true
        });
        for name in in_records {
            let key = Key::new(&name).expect("it has a cell");
            let state = self.query(key, now);
            for holder in state.iter().flat_map(|state| &state.holders) {
                // Only a plain grant can be so fresh that its owner is not written down.
                let Some(owner) = holder.owner else { continue };
                visit(&Held {
                    key,
                    fence: holder.fence,
                    owner,
                    mode: holder.mode,
                    is_session_bound: holder.is_session_bound,
                    until: holder.until,
                    held_ms: holder.held_ms,
                    count: holder.count,
                    note: &holder.note,
                });
            }
        }
        let (shard_number, slot) = match rest {
            Some(rest) => (shard_number, rest),
            None => (shard_number + 1, 0),
        };
        (shard_number < self.shards.len()).then_some(Cursor((shard_number as u32) << 24 | slot))
    }
}
