//! Walks over the table, some cells at a time: keys by prefix ([`Engine::list`]), all holds
//! ([`Engine::holds`]), the oldest hold ([`Engine::survey`]). One [`Cursor`] says where each goes
//! on.
//!
//! What lasts from the beginning of a walk to its end is met; other things may be. Evictions wait
//! while a part of a list or of the holds is looked at, other calls go on.

use super::Engine;
use crate::api::{HOLDERS_PER_LOOK, Host, KeyState};
use crate::cell::Cell;
use crate::cell::block::ShortMetadata;
use crate::cell::word::Word;
use crate::memory::slot::SLOT_MAX;
use crate::session::SessionId;
use crate::session::seat::CellRef;
use crate::shard::{Shard, held_ms};
use crate::time::lease::Kind;
use crate::time::tick::Tick;
use types::{Fence, Key, Mode};

/// Where a walk goes on: `shard:8 | slot:24`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor(u32);

impl Cursor {
    /// The cursor with these bits, as it came over the wire. Any bits are a cursor.
    pub fn from_bits(bits: u32) -> Self {
        Cursor(bits)
    }

    /// The bits, for the wire.
    pub fn bits(self) -> u32 {
        self.0
    }

    fn new(shard: usize, slot: u32) -> Self {
        Cursor((shard as u32) << 24 | slot)
    }

    fn shard(self) -> usize {
        (self.0 >> 24) as usize
    }

    fn slot(self) -> u32 {
        (self.0 & SLOT_MAX).max(1)
    }
}

/// A part of a listing.
pub struct Page {
    /// Keys that are held or waited for, with their state.
    pub keys: Vec<(Box<[u8]>, KeyState)>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// One holder of one key.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// What is held.
    pub key: Key<'a>,
    /// Under which fence.
    pub fence: Fence,
    /// By which session.
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
    pub metadata: &'a [u8],
}

/// One grant, found again as long as it lasts: a cell never sees the same fence twice, whatever
/// keys it serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    cell: CellRef,
    fence: Fence,
}

/// What a part of the table looked like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Survey {
    /// The oldest hold in it, and for how many milliseconds it has been held.
    pub oldest: Option<(Hold, u64)>,
    /// Where to go on; `None` at the end of the table.
    pub next: Option<Cursor>,
}

/// How many cells one call of `list` looks at.
const SCAN_MAX: u32 = 10_000;

/// What a shard costs besides its cells, in cells: a mutex and some lines of memory. So a call goes
/// through all shards of a small table, and is bounded by their number, too.
const SHARD_CELLS: u32 = 16;

impl<H: Host> Engine<H> {
    /// Keys that begin with `prefix` and are held or waited for, at most `limit` of them, in no
    /// particular order. Looks at a bounded number of cells, so a page may be short or empty and
    /// still have a next one.
    pub fn list(&self, prefix: &[u8], cursor: Cursor, limit: usize, now: Tick) -> Page {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut next = Some(cursor);
        let mut cells_left = SCAN_MAX;
        while let Some(from) = next
            && names.len() < limit
            && cells_left > 0
        {
            next = self.walk(from, |shard, first| {
                let stopped = shard.table.scan(first, cells_left, |found, key| {
                    let word = shard.table.cell(found.slot).word();
                    let is_used = word.is_held() || word.is_queued();
                    if is_used && key.as_bytes().starts_with(prefix) {
                        names.push(key.as_bytes().into());
                    }
                    names.len() < limit
                });
                let end = stopped.unwrap_or_else(|| shard.table.last_slot() + 1);
                let cells = end.saturating_sub(first).saturating_add(SHARD_CELLS);
                cells_left = cells_left.saturating_sub(cells);
                stopped
            });
        }
        let state = |name: Box<[u8]>| {
            let state = self.query(Key::new(&name).ok()?, now)?;
            (state.holder_count > 0 || state.queue_length > 0).then_some((name, state))
        };
        Page {
            keys: names.into_iter().filter_map(state).collect(),
            next: next.filter(|_| limit > 0),
        }
    }

    /// Calls `visit` for the holds in up to `cells_max` cells from `from` on, each with the lease
    /// it had at some moment. Returns where to go on; `None` at the end.
    ///
    /// A walk over millions of cells takes seconds, so it reads `clock` again and again: a look at
    /// a record brings its key up to date, and by an old clock a waiter would be granted a lease
    /// that is over already.
    pub fn holds(
        &self,
        from: Cursor,
        cells_max: u32,
        clock: impl Fn() -> Tick,
        mut visit: impl FnMut(&Held<'_>),
    ) -> Option<Cursor> {
        // Those in records are asked for afterwards: the room mutex is never taken inside the one
        // that holds off evictions.
        let mut in_records: Vec<Box<[u8]>> = Vec::new();
        let now = clock();
        let next = self.walk(from, |shard, first| {
            shard.table.scan(first, cells_max, |found, key| {
                let cell = shard.table.cell(found.slot);
                if !shard.visit_plain(cell, cell.word(), key, now, &mut visit) {
                    in_records.push(key.as_bytes().into());
                }
                true
            })
        });
        for name in in_records {
            let key = Key::new(&name).expect("it has a cell");
            self.visit_record(key, &clock, &mut visit);
        }
        next
    }

    fn visit_record(
        &self,
        key: Key<'_>,
        clock: impl Fn() -> Tick,
        mut visit: impl FnMut(&Held<'_>),
    ) {
        let mut above = Fence::ZERO;
        loop {
            let now = clock();
            let holders = self.query_above(key, above, now);
            let holders = holders.map_or_else(Vec::new, |state| state.holders);
            for holder in &holders {
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
                    metadata: &holder.metadata,
                });
            }
            if holders.len() < HOLDERS_PER_LOOK {
                return;
            }
        }
    }

    /// Looks for the oldest hold in up to `cells_max` cells from `from` on. Times are exact up to
    /// 24 days. Takes no lock for a plain hold, and the room mutex for a moment for each that is in
    /// a record.
    pub fn survey(&self, from: Cursor, mut cells_max: u32, now: Tick) -> Survey {
        let mut oldest: Option<(Hold, u64)> = None;
        let mut next = Some(from);
        while let Some(from) = next
            && cells_max > 0
        {
            next = self.walk(from, |shard, first| {
                let last = shard.table.last_slot();
                for slot in first..=last {
                    if cells_max == 0 {
                        return Some(slot);
                    }
                    cells_max -= 1;
                    if let Some((fence, age_ms)) = shard.oldest_hold(slot, now)
                        && oldest.is_none_or(|(_, most_ms)| age_ms > most_ms)
                    {
                        let cell = CellRef::new(shard.number, slot);
                        oldest = Some((Hold { cell, fence }, age_ms));
                    }
                }
                None
            });
        }
        Survey { oldest, next }
    }

    /// For how many milliseconds this hold has lasted; `None` if it is over.
    pub fn held_ms(&self, hold: Hold, now: Tick) -> Option<u64> {
        let shard = self.shards.get(hold.cell.shard())?;
        shard.held_under_ms(hold.cell.slot(), hold.fence, now)
    }

    /// One step of a walk: `part` looks at some cells of one shard, from a slot on, and says at
    /// which slot it stopped; `None` at the end of the shard. Returns where to go on.
    fn walk(
        &self,
        from: Cursor,
        part: impl FnOnce(&Shard<H>, u32) -> Option<u32>,
    ) -> Option<Cursor> {
        let number = from.shard();
        let (shard, slot) = match part(self.shards.get(number)?, from.slot()) {
            Some(slot) => (number, slot),
            None => (number + 1, 0),
        };
        (shard < self.shards.len()).then(|| Cursor::new(shard, slot))
    }
}

impl<H: Host> Shard<H> {
    /// Calls `visit` for the hold in the words of a cell, if there is one. `false`: its holders are
    /// in a record, or about to be.
    fn visit_plain(
        &self,
        cell: &Cell,
        word: Word,
        key: Key<'_>,
        now: Tick,
        mut visit: impl FnMut(&Held<'_>),
    ) -> bool {
        // One look at the lease. Were it read again, it might have become that of a record
        // meanwhile. A record in the making is in the lease first.
        let seen_before = fault!(WalkReadsLeaseTwice).then(|| cell.lease());
        let seen = self.seen(cell, word);
        let lease = seen_before.or(seen.map(|seen| seen.lease));
        let is_in_record = lease.is_some_and(|lease| lease.kind() == Kind::Record);
        if word.is_rich() || is_in_record {
            return false;
        }
        // Owner and lease belong together if the grant is still the same.
        let Some(seen) = seen.filter(|_| cell.word().fence() == word.fence()) else {
            return true;
        };
        if self.is_over(&seen, now) {
            return true;
        }
        let metadata = self.short_metadata(cell, word, &seen);
        if word.has_metadata() && metadata.is_none() {
            // It has just ended, or been moved to a record.
            return false;
        }
        visit(&Held {
            key,
            fence: word.fence(),
            owner: seen.owner,
            mode: Mode::PLAIN,
            is_session_bound: seen.lease.kind() == Kind::Session,
            until: self.lease_end(seen.lease, seen.owner),
            held_ms: held_ms(seen.since_low32, now),
            seen: now,
            count: 1,
            metadata: metadata.as_ref().map_or(&[], ShortMetadata::bytes),
        });
        true
    }
}
