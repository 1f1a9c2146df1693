//! The short way, which most calls go: the key has a cell and it is free, or held by the caller alone, and one CAS decides. Where
//! that is not so, nothing has happened, and the long way begins. Kept short, because it is inlined into every caller.
//!
//! **The cell next door.** A seat remembers the cell that was used last through it. Who gives back what it has just taken, or
//! takes again what it has just given back, finds its cell there: no hash, no index, no guard. The cell may have passed to
//! another key since, or to nobody. Three things make that harmless. The key is compared behind the word, and a slot's word never
//! takes a value twice: if the cell changes hands meanwhile, the CAS fails. Whoever holds a cell keeps it from being evicted. And a
//! free cell is taken from here only if it has been granted under its key before: one that somebody is just preparing for
//! this very key is not in the index yet, and may never be.

use super::Engine;
use crate::cell::{Cell, Terms};
use crate::fault::{self, Fault};
use crate::fence::Fence;
use crate::key::Key;
use crate::request::{Acquire, Grant, Host, Outcome};
use crate::seat::{CellRef, Seat, Taken};
use crate::session::SessionId;
use crate::shard::{Shard, held_ms};
use crate::table::Found;
use crate::table::epoch;
use crate::tick::Tick;
use crate::word::Word;

impl<H: Host> Engine<H> {
    /// Takes a free key. `None`: nothing has happened.
    #[inline]
    pub(super) fn take_free(
        &self,
        seat: &mut Seat,
        request: &Acquire<'_>,
        now: Tick,
    ) -> Option<Outcome> {
        if !request.is_plain()
            || !request.note.is_empty()
            || super::invalid_span(request.span).is_some()
        {
            return None;
        }
        let session = self.common.sessions.find(seat.session())?;
        if session.is_ended(now) {
            return None;
        }
        let terms = Terms::new(seat.session(), request.span, now);
        let (cell, grant) = match self.look_next_door(seat, request.key) {
            Some((near, cell, word)) => {
                let shard = &self.shards[near.shard()];
                (near, shard.take_if_free(cell, near.slot(), word, &terms)?)
            }
            None => self.take_found(request.key, &terms)?,
        };
        self.remember(seat, Taken::new(cell, grant.fence));
        if session.is_ended(now) {
            let shard = &self.shards[cell.shard()];
            return Some(self.refuse_late(shard, cell.slot(), seat.session(), now));
        }
        Some(Outcome::Granted(grant))
    }

    /// Gives back what the caller holds alone, with nobody in line, and tells for how long it was held. `None`: nothing has
    /// happened.
    #[inline]
    pub(super) fn give_back(
        &self,
        seat: &mut Seat,
        key: Key<'_>,
        fence: Fence,
        now: Tick,
    ) -> Option<u64> {
        let owner = seat.session();
        let (cell, held_ms) = match self.look_next_door(seat, key) {
            Some((near, cell, word)) => {
                let shard = &self.shards[near.shard()];
                let slot = near.slot();
                (
                    near,
                    shard.give_back_if_own(cell, slot, word, fence, owner, now)?,
                )
            }
            None => self.give_back_found(key, fence, owner, now)?,
        };
        seat.forget(Taken::new(cell, fence));
        Some(held_ms)
    }

    /// The cell that was used last through this seat, if it is this key's, and the word it had before its key was compared.
    #[inline(always)]
    fn look_next_door(&self, seat: &Seat, key: Key<'_>) -> Option<(CellRef, &Cell, Word)> {
        let near = seat.near()?;
        let table = &self.shards[near.shard()].table;
        if fault::injected(Fault::RememberedCellTrusted) {
            let cell = table.cell(near.slot());
            return Some((near, cell, cell.word()));
        }
        let (cell, Found { word, .. }) = table.compare(near.slot(), key)?;
        let is_in_index = !word.is_unborn() || fault::injected(Fault::UnbornCellTaken);
        is_in_index.then_some((near, cell, word))
    }

    /// Takes a free key by way of the index. Not inlined, so that those who find their cell next door have little to carry.
    #[inline(never)]
    fn take_found(&self, key: Key<'_>, terms: &Terms) -> Option<(CellRef, Grant)> {
        let (number, hash) = self.locate(key);
        let shard = &self.shards[number];
        let guard = epoch::pin();
        let (cell, Found { slot, word }) = shard.table.find_cell(key, hash, &guard)?;
        let grant = shard.take_if_free(cell, slot, word, terms)?;
        Some((CellRef::new(number, slot), grant))
    }

    /// Gives back by way of the index.
    #[inline(never)]
    fn give_back_found(
        &self,
        key: Key<'_>,
        fence: Fence,
        owner: SessionId,
        now: Tick,
    ) -> Option<(CellRef, u64)> {
        let (number, hash) = self.locate(key);
        let shard = &self.shards[number];
        let guard = epoch::pin();
        let (cell, Found { slot, word }) = shard.table.find_cell(key, hash, &guard)?;
        let held_ms = shard.give_back_if_own(cell, slot, word, fence, owner, now)?;
        Some((CellRef::new(number, slot), held_ms))
    }
}

impl<H: Host> Shard<H> {
    /// Takes a cell that was found for the caller's key. `None`: it is not free, or not any more.
    #[inline(always)]
    fn take_if_free(&self, cell: &Cell, slot: u32, word: Word, terms: &Terms) -> Option<Grant> {
        let fence = self.bounds.next_after(word.fence());
        if !word.is_plain_free() || !self.may_issue(fence) || !cell.try_grant(word, fence, terms) {
            return None;
        }
        self.mind_ceiling(fence);
        Some(Grant {
            fence,
            until: self.watch(cell, slot, terms),
            count: 1,
        })
    }

    /// Frees a cell that was found for the caller's key, if the caller holds it under this fence and nobody waits. Returns for
    /// how long it was held.
    #[inline(always)]
    fn give_back_if_own(
        &self,
        cell: &Cell,
        slot: u32,
        word: Word,
        fence: Fence,
        owner: SessionId,
        now: Tick,
    ) -> Option<u64> {
        if fault::injected(Fault::RememberedCellTrusted) {
            cell.set_word(Word::free(word.fence()));
            return Some(0);
        }
        if !word.is_held_simply_under(fence) {
            return None;
        }
        let seen = cell.seen(word)?;
        if seen.owner != owner || seen.lease.has_ended(now) || !cell.try_free(word) {
            return None;
        }
        self.forget_in_time(cell, slot, seen.lease, now);
        Some(held_ms(seen.since_low32, now))
    }
}
