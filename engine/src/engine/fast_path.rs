//! The fast path: the key has a cell that is free, or held by the caller alone, and one CAS
//! decides. Where that is not so nothing has happened, and the slow path begins in the cell that
//! was found. Kept short, because it is inlined into every caller.
//!
//! **The cell used last.** A seat remembers the cell that was used last through it. A caller that
//! releases or re-acquires that key needs no hash, no index and no guard. The cell may have passed
//! to another key since, or to none. Three things make that harmless. The key is compared behind
//! the word, and a slot's word never takes a value twice: if the cell passes to another key
//! meanwhile, the CAS fails. A held cell is never evicted. And a free cell is taken from here only
//! if it has been granted under its key before: one that an inserter is just preparing for this
//! very key is not in the index yet, and may never be.

use super::{Engine, Missed};
use crate::api::{Acquire, Grant, Host, Outcome};
use crate::cell::word::Word;
use crate::cell::{Cell, Terms};
use crate::session::SessionId;
use crate::session::seat::{CellRef, Seat, Taken};
use crate::table::Found;
use crate::table::epoch;
use crate::time::tick::Tick;
use types::Fence;
use types::Key;

impl<H: Host> Engine<H> {
    /// Takes a free key.
    #[inline]
    pub(super) fn take_free(
        &self,
        seat: &mut Seat,
        request: &Acquire<'_>,
        now: Tick,
    ) -> Result<Outcome, Missed> {
        if !request.is_plain()
            || !request.metadata.is_empty()
            || super::invalid_span(request.span).is_some()
        {
            return Err(Missed(None));
        }
        let session = self.common.sessions.find(seat.session());
        let session = session.ok_or(Missed(None))?;
        if session.is_ended(now) {
            return Err(Missed(None));
        }
        let terms = Terms::new(seat.session(), request.span, now);
        let (cell, grant) = match self.look_near(seat, request.key) {
            Some((near, cell, word)) => {
                let shard = &self.shards[near.shard()];
                let grant = shard.take_if_free(cell, near.slot(), word, &terms);
                (near, grant.ok_or(Missed(Some(near)))?)
            }
            None => self.take_found(request.key, &terms)?,
        };
        self.remember(seat, Taken::new(cell, grant.fence));
        if session.is_ended(now) {
            let shard = &self.shards[cell.shard()];
            return Ok(self.refuse_late(shard, cell.slot(), seat.session(), now));
        }
        Ok(Outcome::Granted(grant))
    }

    /// Gives back what the caller holds alone, with no waiter in line. Returns for how long it was
    /// held.
    #[inline]
    pub(super) fn give_back(
        &self,
        seat: &mut Seat,
        key: Key<'_>,
        fence: Fence,
        now: Tick,
    ) -> Result<u64, Missed> {
        let owner = seat.session();
        let (cell, held_ms) = match self.look_near(seat, key) {
            Some((near, cell, word)) => {
                let shard = &self.shards[near.shard()];
                let held_ms = shard.give_back_if_own(cell, near.slot(), word, fence, owner, now);
                (near, held_ms.ok_or(Missed(Some(near)))?)
            }
            None => self.give_back_found(key, fence, owner, now)?,
        };
        seat.forget(Taken::new(cell, fence));
        Ok(held_ms)
    }

    /// The cell that was used last through this seat, if it is this key's, and the word it had
    /// before its key was compared.
    #[inline(always)]
    fn look_near(&self, seat: &Seat, key: Key<'_>) -> Option<(CellRef, &Cell, Word)> {
        let near = seat.near()?;
        let table = &self.shards[near.shard()].table;
        let Some((cell, Found { word, .. })) = table.compare(near.slot(), key) else {
            let trusted = || table.cell(near.slot());
            return fault!(RememberedCellTrusted).then(|| (near, trusted(), trusted().word()));
        };
        let is_in_index = !word.is_unborn() || fault!(UnbornCellTaken);
        is_in_index.then_some((near, cell, word))
    }

    /// Takes a free key by way of the index. Not inlined, so that a caller that finds its cell near
    /// has little to carry.
    #[inline(never)]
    fn take_found(&self, key: Key<'_>, terms: &Terms) -> Result<(CellRef, Grant), Missed> {
        let (number, hash) = self.locate(key);
        let shard = &self.shards[number];
        let guard = epoch::pin();
        let found = shard.table.find_cell(key, hash, &guard);
        let (cell, Found { slot, word }) = found.ok_or(Missed(None))?;
        let place = CellRef::new(number, slot);
        match shard.take_if_free(cell, slot, word, terms) {
            Some(grant) => Ok((place, grant)),
            None => Err(Missed(Some(place))),
        }
    }

    /// Gives back by way of the index.
    #[inline(never)]
    fn give_back_found(
        &self,
        key: Key<'_>,
        fence: Fence,
        owner: SessionId,
        now: Tick,
    ) -> Result<(CellRef, u64), Missed> {
        let (number, hash) = self.locate(key);
        let shard = &self.shards[number];
        let guard = epoch::pin();
        let found = shard.table.find_cell(key, hash, &guard);
        let (cell, Found { slot, word }) = found.ok_or(Missed(None))?;
        let place = CellRef::new(number, slot);
        match shard.give_back_if_own(cell, slot, word, fence, owner, now) {
            Some(held_ms) => Ok((place, held_ms)),
            None => Err(Missed(Some(place))),
        }
    }
}
