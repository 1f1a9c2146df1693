//! Locks that outlived a restart: put back by the reader of the log (`restore`), or claimed by
//! their holders when no log knows them (`claim`). Either way they keep their old fence, which
//! lies at or below the floor this life began with; the next grant of the key has one above it.
//!
//! `restore` comes before any other call, and puts a plain hold into the words of its cell, where
//! it costs no more than any other. `claim` comes while other sessions wait in line and claim the
//! same key; it keeps to the record and the room mutex, where nothing can be mistaken for an
//! earlier state of the word.
//!
//! A claim is believed as long as no ceiling has been raised, that is, as long as this life has
//! granted nothing. Claims that contradict each other are decided by their fences: of two grants of
//! which one is exclusive, the one with the lower fence must have been over before the other was
//! made.

use super::contended::Contended;
use super::record::longer_of;
use super::room::{Record, RecordHolder};
use super::{Answer, Shard, Target, held_ms};
use crate::api::{Claimed, Grant, Host, Limit, Loss, Lost, NotHeld, OldHold};
use crate::cell::block::SHORT_METADATA_BYTES_MAX;
use crate::cell::metadata::Metadata;
use crate::cell::word::Word;
use crate::cell::{Ending, Terms};
use crate::memory::slot::NONE;
use crate::session::SessionId;
use crate::table::epoch;
use crate::time::lease::Lease;
use crate::time::tick::Tick;
use types::Fence;
use types::Span;

impl OldHold<'_> {
    fn terms(&self, owner: SessionId, now: Tick) -> Terms {
        Terms {
            since_low32: now.low32().wrapping_sub(self.held_ms as u32),
            ..Terms::new(owner, self.span, now)
        }
    }

    /// Whether it fits into the words of a cell.
    fn is_plain(&self) -> bool {
        self.mode.has_one_holder()
            && self.count == 1
            && self.metadata.len() <= SHORT_METADATA_BYTES_MAX
            && self.span != Span::Forever
    }
}

impl<H: Host> Shard<H> {
    /// Puts a lock back. `false` beside its slot: the key is held in a mode that does not admit it.
    pub(crate) fn restore(
        &self,
        target: Target<'_>,
        old: &OldHold<'_>,
        owner: SessionId,
        now: Tick,
    ) -> Result<Answer<bool>, Limit> {
        assert!(
            old.fence <= self.bounds.start(),
            "fence {} is none of an earlier life",
            old.fence
        );
        let terms = old.terms(owner, now);
        let guard = epoch::pin();
        if old.is_plain() {
            let found = self.find_or_insert(target, now, &guard)?;
            let (cell, slot) = (self.table.cell(found.slot), found.slot);
            let is_taken = match old.metadata {
                _ if !found.word.is_plain_free() => Some(false),
                [] => Some(cell.try_grant(found.word, old.fence, &terms)),
                metadata => self.try_grant_with(cell, found.word, old.fence, &terms, metadata),
            };
            // Without a block for its metadata it takes a record.
            if let Some(outcome) = is_taken {
                if outcome {
                    self.watch(cell, slot, &terms);
                }
                return Ok(Answer::new(outcome, slot));
            }
        }
        let mut room = self.room.lock();
        let mut key = self.enter_or_insert(&mut room, target, now, &guard)?;
        let outcome = key.admits(old.mode);
        if outcome {
            // It was accepted before.
            let metadata = Metadata::keep(old.metadata, &self.common.metadata);
            key.put_back(old, &terms, metadata);
        }
        Ok(Answer::new(outcome, key.slot))
    }

    /// Answers a claim.
    pub(crate) fn claim(
        &self,
        target: Target<'_>,
        old: &OldHold<'_>,
        owner: SessionId,
        now: Tick,
    ) -> Answer<Claimed> {
        let terms = old.terms(owner, now);
        let guard = epoch::pin();
        let mut room = self.room.lock();
        // Whether this life has granted anything: the ceiling is raised before the room is told,
        // see `raise_ceiling`.
        let is_open = self.bounds.ceiling() == self.bounds.start();
        let entered = if is_open && old.fence <= self.bounds.start() {
            self.enter_or_insert(&mut room, target, now, &guard)
                .map_err(Claimed::Busy)
        } else {
            // Too late, or never granted. It may still be a repetition of a claim that came in
            // time.
            self.enter(&mut room, target, now, &guard)
                .ok_or(Claimed::NotHeld(NotHeld::Free))
        };
        match entered {
            Ok(mut key) => Answer::new(key.decide_claim(old, &terms, is_open), key.slot),
            Err(outcome) => Answer::new(outcome, NONE),
        }
    }
}

impl<H: Host> Contended<'_, H> {
    fn decide_claim(&mut self, old: &OldHold<'_>, terms: &Terms, is_open: bool) -> Claimed {
        let shard = self.shard;
        match self.check_hold(old.fence, terms.owner) {
            // It came again. What it holds it keeps; its lease is renewed as a renewal would.
            Ok(()) => return self.renew_claim(old.fence, terms),
            Err(why) if !is_open || old.fence > shard.bounds.start() => {
                return Claimed::NotHeld(why);
            }
            Err(NotHeld::OtherOwner) => return Claimed::NotHeld(NotHeld::OtherOwner),
            Err(_) => {}
        }
        if self.is_full(old.mode) {
            return Claimed::Busy(Limit::SharedHolders);
        }
        // Granted a moment ago, because the ceiling has just been raised; or restored.
        let word = self.cell.word();
        let is_plain = word.is_held() && self.room.record(self.slot).is_none();
        if is_plain && !fault!(ClaimOverlooksGrant) {
            if word.fence() > old.fence {
                return Claimed::Superseded;
            }
            self.move_to_record();
        }
        let is_rivalled = !self.admits(old.mode);
        let record = self.room.record(self.slot).filter(|_| is_rivalled);
        let rival = record.and_then(|record| record.holders.last());
        let rival = rival.map(|rival| rival.fence);
        let is_beaten = rival.is_some_and(|rival| rival > old.fence);
        if is_beaten && !fault!(ClaimIgnoresRivals) {
            return Claimed::Superseded;
        }
        let Some(metadata) = Metadata::try_new(old.metadata, &shard.common.metadata) else {
            return Claimed::Busy(Limit::Bytes);
        };
        if rival.is_some() {
            self.supersede_all();
        }
        Claimed::Granted(self.put_back(old, terms, metadata))
    }

    fn renew_claim(&mut self, fence: Fence, terms: &Terms) -> Claimed {
        if !self.move_to_record() {
            return Claimed::NotHeld(NotHeld::Expired);
        }
        let holder = self.holder_mut(fence);
        holder.lease = longer_of(holder.lease, terms);
        let (lease, count) = (holder.lease, holder.count);
        let until = self.shard.lease_end(lease, terms.owner);
        self.note_lease_end(until);
        Claimed::Granted(Grant {
            fence,
            until,
            count,
        })
    }

    /// Takes the key away from all sessions that claimed it under lower fences, and tells them.
    fn supersede_all(&mut self) {
        let record = self.room.record_mut(self.slot).expect("there are rivals");
        let losers = std::mem::take(&mut record.holders);
        let last = losers.last().map_or(Fence::ZERO, |loser| loser.fence);
        self.end_record(last, Ending::Taken);
        let key = self.shard.table.key_of(self.slot);
        for loser in losers {
            self.shard.common.host.lost(&Loss {
                key: key.key(),
                fence: loser.fence,
                owner: loser.owner,
                why: Lost::Superseded,
                late_ms: 0,
                held_ms: held_ms(loser.since_low32, self.now),
            });
        }
    }

    /// Writes an old hold into the record. The key admits it.
    fn put_back(&mut self, old: &OldHold<'_>, terms: &Terms, metadata: Metadata) -> Grant {
        let lease = Lease::new(terms.kind, terms.deadline, old.fence.get());
        let holder = RecordHolder {
            fence: old.fence,
            owner: terms.owner,
            lease,
            since_low32: terms.since_low32,
            count: old.count,
            metadata,
        };
        let line = self.room.line_mut(self.slot);
        let record = line.record.get_or_insert_with(|| Record {
            mode: old.mode,
            holders: Vec::new(),
        });
        let position = record
            .holders
            .partition_point(|other| other.fence < old.fence);
        record.holders.insert(position, holder);
        // The word keeps the fence it was born with: it tells of no holder, and must not fall.
        let word = Word::held(self.cell.word().fence());
        self.cell.set_word(word.with_rich().with_queued());
        let until = self.shard.lease_end(lease, terms.owner);
        self.note_lease_end(until);
        Grant {
            fence: old.fence,
            until,
            count: old.count,
        }
    }
}
