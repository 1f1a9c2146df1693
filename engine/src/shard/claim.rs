//! Locks that outlived a restart: put back by whoever read the log (`restore`), or claimed by their holders when no log
//! knows them (`reclaim`). Either way they keep their old fence, which lies at or below the floor this life began with; the
//! next grant of the key has one above it.
//!
//! `restore` comes before anybody else uses the engine, and puts a plain hold into the words of its cell, where it costs
//! no more than any other. `reclaim` comes while others wait in line and claim the same key; it keeps to the record and
//! the room mutex, where nothing can be mistaken for an earlier state of the word.
//!
//! A claim is believed as long as no ceiling has been raised, that is, as long as this life has granted nothing. Claims that
//! contradict each other are settled by their fences: of two grants of which one is exclusive, the one with the lower fence
//! must have been over before the other was made.

use crate::cell::{Ending, Terms};
use crate::engine::{Engine, invalid_span};
use crate::fault::{self, Fault};
use crate::fence::Fence;
use crate::key::Key;
use crate::note::Note;
use crate::noted::SHORT_NOTE_BYTES_MAX;
use crate::request::{
    Grant, Host, Invalid, Limit, Loss, Lost, Mode, NOTE_BYTES_MAX, NotHeld, Span,
};
use crate::room::{Record, RecordHolder, Room};
use crate::seat::{CellRef, Seat, Taken};
use crate::session::SessionId;
use crate::shard::{Answer, Shard, held_ms};
use crate::slab::NONE;
use crate::tick::Tick;
use crate::word::{Kind, Lease, Word};

/// A lock as it was held before the restart.
#[derive(Clone, Copy, Debug)]
pub struct OldHold<'a> {
    /// What is held.
    pub key: Key<'a>,
    /// Under which fence, one of an earlier life.
    pub fence: Fence,
    /// Alone or together.
    pub mode: Mode,
    /// For how long from now.
    pub span: Span,
    /// How often.
    pub count: u32,
    /// Since how long.
    pub held_ms: u64,
    /// What the holder said with its request.
    pub note: &'a [u8],
}

/// What came of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaimed {
    /// It is yours as before.
    Granted(Grant),
    /// It is not, or no longer.
    NotHeld(NotHeld),
    /// Somebody holds the key under a higher fence.
    Superseded,
    /// A limit was reached; nothing was changed.
    Busy(Limit),
    /// The claim itself is not possible.
    Invalid(Invalid),
}

impl<H: Host> Engine<H> {
    /// Puts back a lock that the log knows. Only before anything else is asked of this engine; two exclusive holds of one
    /// key are a mistake of the caller's, and the second is refused with `false`. There is room for
    /// as many keys as [`Settings::keys_restored`] says; `Err` beyond that.
    ///
    /// [`Settings::keys_restored`]: crate::Settings::keys_restored
    pub fn restore(&self, seat: &mut Seat, old: &OldHold<'_>, now: Tick) -> Result<bool, Limit> {
        let (number, hash) = self.locate(old.key);
        let answer = self.shard(number).restore(old, hash, seat.session(), now)?;
        if answer.outcome {
            // Nothing to sweep: what was taken so far is held.
            let cell = CellRef::new(number, answer.slot);
            seat.held.push(Taken::new(cell, old.fence));
        }
        Ok(answer.outcome)
    }

    /// All that is to be put back has been. From here on limits are what the settings say.
    pub fn finish_restoring(&self) {
        for number in 0..self.shard_count() {
            self.shard(number).table.close_reserve();
        }
    }

    /// Claims a lock that the caller held before the restart and that nobody wrote down. It can be repeated without harm.
    pub fn reclaim(&self, seat: &mut Seat, old: &OldHold<'_>, now: Tick) -> Reclaimed {
        if !self.is_open(seat.session(), now) {
            return Reclaimed::NotHeld(NotHeld::SessionEnded);
        }
        if let Some(invalid) = invalid(old) {
            return Reclaimed::Invalid(invalid);
        }
        let (number, hash) = self.locate(old.key);
        let shard = self.shard(number);
        let answer = shard.reclaim(old, hash, seat.session(), now);
        if let Reclaimed::Granted(_) = answer.outcome {
            let cell = CellRef::new(number, answer.slot);
            self.remember(seat, Taken::new(cell, old.fence));
            // As with an acquire: the seat may have been vacated already.
            if !self.is_open(seat.session(), now) {
                shard.vacate(answer.slot, seat.session(), now);
                return Reclaimed::NotHeld(NotHeld::SessionEnded);
            }
        }
        answer.outcome
    }
}

/// What is wrong with a claim, if anything is.
fn invalid(old: &OldHold<'_>) -> Option<Invalid> {
    if old.note.len() > NOTE_BYTES_MAX {
        let note_bytes = old.note.len();
        return Some(Invalid::Note { note_bytes });
    }
    if old.count == 0 {
        return Some(Invalid::Reentries);
    }
    invalid_span(old.span)
}

impl<H: Host> Shard<H> {
    fn old_terms(old: &OldHold<'_>, owner: SessionId, now: Tick) -> Terms {
        Terms {
            since_low32: now.low32().wrapping_sub(old.held_ms as u32),
            ..Terms::new(owner, old.span, now)
        }
    }

    fn restore(
        &self,
        old: &OldHold<'_>,
        hash: u64,
        owner: SessionId,
        now: Tick,
    ) -> Result<Answer<bool>, Limit> {
        assert!(
            old.fence <= self.bounds.start(),
            "fence {} is none of an earlier life",
            old.fence
        );
        let terms = Self::old_terms(old, owner, now);
        let guard = self.pin();
        let is_plain = old.mode == Mode::Exclusive
            && old.count == 1
            && old.note.len() <= SHORT_NOTE_BYTES_MAX
            && old.span != Span::Forever;
        if is_plain {
            let (found, is_new) =
                self.table
                    .find_or_insert(old.key, hash, &self.bounds, now, &guard)?;
            let (cell, slot) = (self.table.cell(found.slot), found.slot);
            if is_new {
                self.introduce(cell, slot);
            }
            let is_taken = match old.note {
                _ if !found.word.is_plain_free() => Some(false),
                [] => Some(cell.try_grant(found.word, old.fence, &terms)),
                note => self.try_grant_noted(cell, found.word, old.fence, &terms, note),
            };
            // Without a block for its note it takes a record.
            if let Some(outcome) = is_taken {
                if outcome {
                    self.watch(cell, slot, &terms);
                }
                return Ok(Answer { outcome, slot });
            }
        }
        let mut room = self.room.lock();
        let slot = self.enter_or_insert(old.key, hash, now, &guard)?;
        let outcome = self.admits(&room, slot, old.mode);
        if outcome {
            // It was accepted before.
            let note = Note::keep(old.note, &self.common.notes);
            self.put_back(&mut room, slot, old, &terms, note);
        }
        self.settle(&mut room, slot, now);
        Ok(Answer { outcome, slot })
    }

    fn reclaim(
        &self,
        old: &OldHold<'_>,
        hash: u64,
        owner: SessionId,
        now: Tick,
    ) -> Answer<Reclaimed> {
        let terms = Self::old_terms(old, owner, now);
        let guard = self.pin();
        let mut room = self.room.lock();
        // Whether this life has granted anything: the ceiling is raised before the room is told, see `raise_ceiling`.
        let is_open = self.bounds.ceiling() == self.bounds.start();
        let entered = if is_open && old.fence <= self.bounds.start() {
            self.enter_or_insert(old.key, hash, now, &guard)
        } else {
            // Too late, or never granted. It may still be a repetition of a claim that came in time.
            match self.enter(old.key, hash, &guard) {
                Some(slot) => Ok(slot),
                None => {
                    return Answer {
                        outcome: Reclaimed::NotHeld(NotHeld::Free),
                        slot: NONE,
                    };
                }
            }
        };
        let slot = match entered {
            Ok(slot) => slot,
            Err(limit) => {
                return Answer {
                    outcome: Reclaimed::Busy(limit),
                    slot: NONE,
                };
            }
        };
        let outcome = self.decide_claim(&mut room, slot, old, &terms, is_open);
        self.settle(&mut room, slot, now);
        Answer { outcome, slot }
    }

    /// What to answer to a claim of a key whose word is ours.
    fn decide_claim(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        old: &OldHold<'_>,
        terms: &Terms,
        is_open: bool,
    ) -> Reclaimed {
        match self.check_hold(room, slot, old.fence, terms.owner, terms.now) {
            // It came again. What it holds it keeps; its lease is renewed as a renewal would.
            Ok(()) => return self.renew_claim(room, slot, old.fence, terms),
            Err(why) if !is_open || old.fence > self.bounds.start() => {
                return Reclaimed::NotHeld(why);
            }
            Err(NotHeld::OtherOwner) => return Reclaimed::NotHeld(NotHeld::OtherOwner),
            Err(_) => {}
        }
        if self.is_full(room, slot, old.mode) {
            return Reclaimed::Busy(Limit::SharedHolders);
        }
        // Granted a moment ago, because the ceiling has just been raised; or restored.
        let word = self.table.cell(slot).word();
        let is_plain = word.is_held() && room.record(slot).is_none();
        if is_plain && !fault::injected(Fault::ClaimOverlooksGrant) {
            if word.fence() > old.fence {
                return Reclaimed::Superseded;
            }
            self.move_to_record(room, slot);
        }
        let rivals = room
            .record(slot)
            .filter(|_| !self.admits(room, slot, old.mode));
        let rival = rivals.and_then(|record| record.holders.last());
        let is_beaten = rival.is_some_and(|rival| rival.fence > old.fence);
        if is_beaten && !fault::injected(Fault::ClaimIgnoresRivals) {
            return Reclaimed::Superseded;
        }
        let Some(note) = Note::try_new(old.note, &self.common.notes) else {
            return Reclaimed::Busy(Limit::Bytes);
        };
        if rival.is_some() {
            self.supersede_all(room, slot, terms.now);
        }
        Reclaimed::Granted(self.put_back(room, slot, old, terms, note))
    }

    fn renew_claim(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        fence: Fence,
        terms: &Terms,
    ) -> Reclaimed {
        if !self.move_to_record(room, slot) {
            return Reclaimed::NotHeld(NotHeld::Expired);
        }
        let record = room.record_mut(slot).expect("just moved there");
        let holder = record.holder_mut(fence).expect("the hold was checked");
        if holder.lease.kind() == Kind::Timed && terms.kind == Kind::Timed {
            holder.lease = holder
                .lease
                .with_deadline(holder.lease.deadline().max(terms.deadline));
        }
        let (lease, count) = (holder.lease, holder.count);
        let until = self.lease_end(lease, terms.owner);
        self.note_lease_end(slot, until);
        Reclaimed::Granted(Grant {
            fence,
            until,
            count,
        })
    }

    /// Takes a key away from all who claimed it under lower fences, and tells them.
    fn supersede_all(&self, room: &mut Room<H::Waiter>, slot: u32, now: Tick) {
        let record = room.record_mut(slot).expect("there are rivals");
        let losers = std::mem::take(&mut record.holders);
        let last = losers.last().map_or(Fence::ZERO, |loser| loser.fence);
        self.end_record(room, slot, (last, Ending::Taken), now);
        let key = self.table.key_of(slot);
        for loser in losers {
            self.common.host.lost(&Loss {
                key: key.key(),
                fence: loser.fence,
                owner: loser.owner,
                why: Lost::Superseded,
                late_ms: 0,
                held_ms: held_ms(loser.since_low32, now),
            });
        }
    }

    /// Writes an old hold into the record. The key admits it, and its word is ours.
    fn put_back(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        old: &OldHold<'_>,
        terms: &Terms,
        note: Note,
    ) -> Grant {
        let lease = Lease::new(terms.kind, terms.deadline, old.fence.get());
        let holder = RecordHolder {
            fence: old.fence,
            owner: terms.owner,
            lease,
            since_low32: terms.since_low32,
            count: old.count,
            note,
        };
        let record = room.line_mut(slot).record.get_or_insert_with(|| Record {
            mode: old.mode,
            holders: Vec::new(),
        });
        let position = record
            .holders
            .partition_point(|other| other.fence < old.fence);
        record.holders.insert(position, holder);
        let cell = self.table.cell(slot);
        // The word keeps the fence it was born with: it tells of no holder, and must not fall.
        let word = Word::held(cell.word().fence()).with_rich().with_queued();
        cell.set_word(word);
        let until = self.lease_end(lease, terms.owner);
        self.note_lease_end(slot, until);
        Grant {
            fence: old.fence,
            until,
            count: old.count,
        }
    }
}
