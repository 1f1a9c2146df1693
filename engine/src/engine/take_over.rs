//! Taking a key away from whoever holds it and holding it oneself, in one step: for those whose protocol has such a verb.

use super::{Engine, invalid_span};
use crate::cell::{Ending, Terms};
use crate::fault::{self, Fault};
use crate::fence::Fence;
use crate::note::Note;
use crate::request::{Acquire, Host, Invalid, Limit, NOTE_BYTES_MAX, Outcome};
use crate::room::Room;
use crate::seat::{CellRef, Seat, Taken};
use crate::shard::{Answer, Shard};
use crate::slab::NONE;
use crate::table::epoch::Guard;
use crate::tick::Tick;

impl<H: Host> Engine<H> {
    /// Grants the key to the caller whoever holds it: the holders are told that they lost it, and those in line stay where
    /// they are. With `from`, only if the key is held under that fence now; `None` then says that it is not, and that
    /// nothing was changed.
    ///
    /// [`Outcome::Held`] is answered for a grant so fresh that its owner is not written down yet: ask again.
    pub fn take_over(
        &self,
        seat: &mut Seat,
        request: &Acquire<'_>,
        from: Option<Fence>,
        now: Tick,
    ) -> Option<Outcome> {
        if let Some(invalid) = invalid_span(request.span) {
            return Some(Outcome::Invalid(invalid));
        }
        let note_bytes = request.note.len();
        if note_bytes > NOTE_BYTES_MAX {
            return Some(Outcome::Invalid(Invalid::Note { note_bytes }));
        }
        if !self.is_open(seat.session(), now) {
            return Some(Outcome::SessionEnded);
        }
        let (number, hash) = self.locate(request.key);
        let shard = self.shard(number);
        let terms = Terms::new(seat.session(), request.span, now);
        let answer = shard.take_over(request, hash, &terms, from, &shard.pin());
        if let Some(Outcome::Granted(grant)) = &answer.outcome {
            let cell = CellRef::new(number, answer.slot);
            self.remember(seat, Taken::new(cell, grant.fence));
            if !self.is_open(seat.session(), now) {
                return Some(self.refuse_late(shard, answer.slot, seat.session(), now));
            }
        }
        answer.outcome
    }
}

impl<H: Host> Shard<H> {
    fn take_over(
        &self,
        request: &Acquire<'_>,
        hash: u64,
        terms: &Terms,
        from: Option<Fence>,
        guard: &Guard,
    ) -> Answer<Option<Outcome>> {
        let mut room = self.room.lock();
        let slot = match self.enter_or_insert(request.key, hash, terms.now, guard) {
            Ok(slot) => slot,
            Err(limit) => {
                return Answer {
                    outcome: Some(Outcome::Busy(limit)),
                    slot: NONE,
                };
            }
        };
        self.settle_queue(&mut room, slot, terms.now);
        let outcome = self.replace_holders(&mut room, slot, request, terms, from);
        self.settle(&mut room, slot, terms.now);
        Answer { outcome, slot }
    }

    /// On a key whose state is up to date and whose word is ours.
    fn replace_holders(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        request: &Acquire<'_>,
        terms: &Terms,
        from: Option<Fence>,
    ) -> Option<Outcome> {
        if let Some(fence) = from
            && !fault::injected(Fault::TakeOverUnchecked)
        {
            self.hold_under(room, slot, fence)?;
        }
        // Everything that can be refused comes before anything that is taken away.
        if !self.may_issue(self.next_fence(slot)) {
            return Some(Outcome::AtCeiling);
        }
        let Some(note) = Note::try_new(request.note, &self.common.notes) else {
            return Some(Outcome::Busy(Limit::Bytes));
        };
        let word = self.table.cell(slot).word();
        if room.record(slot).is_some() {
            self.drop_holders(room, slot, Ending::Taken, terms.now, |_| true);
        } else if word.is_held() {
            // Until its grantor has published the lease, that lease is the grantor's to write.
            let seen = self.seen(self.table.cell(slot), word);
            if seen.is_none() && !fault::injected(Fault::TakeOverRushes) {
                return Some(Outcome::Held(self.describe(room, slot, terms.now)));
            }
            self.remove_hold(room, slot, word.fence(), Ending::Taken, terms.now);
            if let Some(seen) = seen {
                self.tell_lost(request.key, word.fence(), &seen, terms.now);
            }
        }
        Some(Outcome::Granted(self.grant(
            room,
            slot,
            terms,
            request.mode,
            note,
        )))
    }
}
