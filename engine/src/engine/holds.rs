//! Walking over all holds, some cells at a time: for whoever writes them down.
//!
//! A hold that lasts from the beginning of the walk to its end is met, with the lease it had at some moment in between; others
//! may be. Evictions wait while a part is looked at, everybody else goes on.
//!
//! A walk over millions of cells takes seconds. So it asks for the time again and again: a look at
//! a record brings its key up to date, and by an old clock a waiter would be granted a lease that
//! is over already.

use super::{Cursor, Engine};
use crate::fault::{self, Fault};
use crate::fence::Fence;
use crate::key::Key;
use crate::noted::ShortNote;
use crate::request::{HOLDERS_PER_LOOK, Host, Mode};
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
    /// Since how long it is held, as of `seen`.
    pub held_ms: u64,
    /// When it was looked at.
    pub seen: Tick,
    /// How often.
    pub count: u32,
    /// What the holder said with its request.
    pub note: &'a [u8],
}

impl<H: Host> Engine<H> {
    /// Calls `visit` for the holds in up to `cells_max` cells from `from` on. Returns where to go on; `None` at the end.
    /// `clock` says what time it is.
    pub fn holds(
        &self,
        from: Cursor,
        cells_max: u32,
        clock: impl Fn() -> Tick,
        mut visit: impl FnMut(&Held<'_>),
    ) -> Option<Cursor> {
        let (shard_number, slot) = ((from.0 >> 24) as usize, from.0 & SLOT_MAX);
        let shard = self.shards.get(shard_number)?;
        // Those in records are asked for afterwards: the room mutex is never taken inside the one that holds off evictions.
        let mut in_records: Vec<Box<[u8]>> = Vec::new();
        let now = clock();
        let rest = shard.table.scan(slot, cells_max, |found, key| {
            let cell = shard.table.cell(found.slot);
            let word = cell.word();
            let seen_before = fault::injected(Fault::WalkReadsLeaseTwice).then(|| cell.lease());
            // One look at the lease. Were it read again, it might have become that of a record
            // meanwhile.
            let seen = shard.seen(cell, word);
            // A record in the making is in the lease first.
            let lease = seen_before.or(seen.map(|seen| seen.lease));
            let is_in_record = lease.is_some_and(|lease| lease.kind() == Kind::Record);
            if word.is_rich() || is_in_record {
                in_records.push(key.bytes().into());
            } else if let Some(seen) = seen
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
                    seen: now,
                    count: 1,
                    note: note.as_ref().map_or(&[], ShortNote::bytes),
                });
            }
            true
        });
        for name in in_records {
            let key = Key::new(&name).expect("it has a cell");
            let mut above = Fence::ZERO;
            loop {
                let now = clock();
                let state = self.query_above(key, above, now);
                let Some(state) = state.filter(|state| !state.holders.is_empty()) else {
                    break;
                };
                for holder in &state.holders {
                    above = holder.fence;
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
                        seen: now,
                        count: holder.count,
                        note: &holder.note,
                    });
                }
                if state.holders.len() < HOLDERS_PER_LOOK {
                    break;
                }
            }
        }
        let (shard_number, slot) = match rest {
            Some(rest) => (shard_number, rest),
            None => (shard_number + 1, 0),
        };
        (shard_number < self.shards.len()).then_some(Cursor((shard_number as u32) << 24 | slot))
    }
}
