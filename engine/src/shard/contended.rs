//! The verbs under the room mutex: whatever needs a queue or a record.
//!
//! The pattern is always the same. Lock the room. `enter`: find the key and mark its word QUEUED, which takes it out of
//! everybody else's hands. Do the thing. `settle`: drop holders whose leases are over, grant to the front of the queue as
//! long as that is possible, and write the word back with QUEUED only if somebody still waits. Because every path ends in
//! `settle`, a waiter at the front is never left standing next to a free lock. `settle` itself is in `settle.rs`, and who
//! holds what is told in `describe.rs`.

use crate::cell::{Cell, Ending, Terms};
use crate::fault::{self, Fault};
use crate::fence::Fence;
use crate::key::Key;
use crate::note::Note;
use crate::request::{
    Acquire, Downgrade, GaveUp, Host, Limit, Mode, NotHeld, Outcome, Release, Renewal, Ticket,
};
use crate::room::{Room, Want};
use crate::seat::CellRef;
use crate::session::SessionId;
use crate::shard::{Answer, Shard, Wait, held_ms};
use crate::slab::NONE;
use crate::sync::Ordering;
use crate::table::epoch::Guard;
use crate::tick::Tick;
use crate::word::{Kind, Word};

impl<H: Host> Shard<H> {
    #[cold]
    pub(crate) fn acquire_contended(
        &self,
        request: &Acquire<'_>,
        hash: u64,
        terms: &Terms,
        wait: Option<Wait<H::Waiter>>,
        guard: &Guard,
    ) -> Answer<Outcome> {
        let mut room = self.room.lock();
        let slot = match self.enter_or_insert(request.key, hash, terms.now, guard) {
            Ok(slot) => slot,
            Err(limit) => {
                return Answer {
                    outcome: Outcome::Busy(limit),
                    slot: NONE,
                };
            }
        };
        self.settle_queue(&mut room, slot, terms.now);
        let outcome = self.decide(&mut room, slot, request, terms, wait);
        self.settle(&mut room, slot, terms.now);
        Answer { outcome, slot }
    }

    /// What to answer to an acquire of a key whose state is up to date and whose word is ours.
    fn decide(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        request: &Acquire<'_>,
        terms: &Terms,
        wait: Option<Wait<H::Waiter>>,
    ) -> Outcome {
        // Whoever wants another shared lock beside its own just gets one.
        let may_clash = request.reentrant || request.mode == Mode::Exclusive;
        if may_clash && let Some(hold) = self.hold_of(room, slot, terms.owner) {
            let is_upgrade = hold.mode == Mode::Shared && request.mode == Mode::Exclusive;
            if request.reentrant && !is_upgrade {
                if self.move_to_record(room, slot) {
                    return self.reenter(room, slot, hold.fence, terms);
                }
                // Another core has just found the lease over. Then it is not ours any more: ask as anybody would.
                self.settle_queue(room, slot, terms.now);
                return self.decide(room, slot, request, terms, wait);
            }
            // Another task of the same session may be about to release it, so whoever is ready to wait may wait.
            if is_upgrade && (request.reentrant || wait.is_none()) {
                return Outcome::UpgradeRefused(self.describe(room, slot, terms.now));
            }
        }
        let is_open = room.queue_length(slot) == 0 && self.admits(room, slot, request.mode);
        if is_open && self.is_full(room, slot, request.mode) {
            return Outcome::Busy(Limit::SharedHolders);
        }
        if is_open && self.may_issue(self.next_fence(slot)) {
            let Some(note) = Note::try_new(request.note, &self.common.notes) else {
                return Outcome::Busy(Limit::Bytes);
            };
            return Outcome::Granted(self.grant(room, slot, terms, request.mode, note));
        }
        match wait {
            Some(wait) => self.enqueue(room, slot, request, terms, wait),
            // Free, and yet not to be had: only for want of fences, which those in line wait for already.
            None if !self.table.cell(slot).word().is_held() => Outcome::AtCeiling,
            None => Outcome::Held(self.describe(room, slot, terms.now)),
        }
    }

    fn enqueue(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        request: &Acquire<'_>,
        terms: &Terms,
        wait: Wait<H::Waiter>,
    ) -> Outcome {
        let limits = &self.common.limits;
        let ahead = room.queue_length(slot);
        if ahead >= limits.waiters_per_key_max {
            return Outcome::Busy(Limit::WaitersPerKey);
        }
        let Some(note) = Note::try_new(request.note, &self.common.notes) else {
            return Outcome::Busy(Limit::Bytes);
        };
        if self.common.waiters.fetch_add(1, Ordering::Relaxed) >= limits.waiters_max {
            self.common.waiters.fetch_sub(1, Ordering::Relaxed);
            return Outcome::Busy(Limit::Waiters);
        }
        let want = Want {
            owner: terms.owner,
            mode: request.mode,
            span: request.span,
            note,
        };
        let (waiter, generation) = room.push_waiter(slot, wait.deadline, want, wait.waiter);
        self.note_room_due(wait.deadline);
        // The shard's number is filled in by the engine, which knows it.
        Outcome::Queued {
            ticket: Ticket {
                cell: CellRef::new(0, slot),
                waiter,
                generation,
            },
            ahead,
        }
    }

    #[cold]
    pub(crate) fn renew_contended(
        &self,
        key: Key<'_>,
        hash: u64,
        fence: Fence,
        terms: &Terms,
        guard: &Guard,
    ) -> Renewal {
        let mut room = self.room.lock();
        let Some(slot) = self.enter(key, hash, guard) else {
            return Renewal::NotHeld(NotHeld::Free);
        };
        let outcome = match self.check_hold(&mut room, slot, fence, terms.owner, terms.now) {
            Err(why) => Renewal::NotHeld(why),
            Ok(()) if !self.move_to_record(&mut room, slot) => Renewal::NotHeld(NotHeld::Expired),
            Ok(()) => {
                let holder = room
                    .record_mut(slot)
                    .and_then(|record| record.holder_mut(fence));
                let holder = holder.expect("a hold that was checked is in the record");
                if holder.lease.kind() == Kind::Timed {
                    holder.lease = holder.lease.with_deadline(terms.deadline);
                }
                let until = self.lease_end(holder.lease, terms.owner);
                self.note_lease_end(slot, until);
                Renewal::Renewed { until }
            }
        };
        self.settle(&mut room, slot, terms.now);
        outcome
    }

    #[cold]
    pub(crate) fn release_contended(
        &self,
        key: Key<'_>,
        hash: u64,
        fence: Fence,
        owner: SessionId,
        now: Tick,
        guard: &Guard,
    ) -> (Release, u64) {
        let mut room = self.room.lock();
        let Some(slot) = self.enter(key, hash, guard) else {
            return (Release::NotHeld(NotHeld::Free), 0);
        };
        let outcome = match self.check_hold(&mut room, slot, fence, owner, now) {
            Err(why) => (Release::NotHeld(why), 0),
            Ok(()) => {
                let hold = self.hold_under(&room, slot, fence);
                let count = self.take_back(&mut room, slot, fence, now);
                let held_ms = hold.map_or(0, |seen| held_ms(seen.since_low32, now));
                (Release::Released { count }, held_ms)
            }
        };
        self.settle(&mut room, slot, now);
        outcome
    }

    pub(crate) fn downgrade(
        &self,
        key: Key<'_>,
        hash: u64,
        fence: Fence,
        owner: SessionId,
        now: Tick,
    ) -> Downgrade {
        let guard = self.pin();
        let mut room = self.room.lock();
        let Some(slot) = self.enter(key, hash, &guard) else {
            return Downgrade::NotHeld(NotHeld::Free);
        };
        let outcome = match self.check_hold(&mut room, slot, fence, owner, now) {
            Err(why) => Downgrade::NotHeld(why),
            Ok(()) if !self.move_to_record(&mut room, slot) => Downgrade::NotHeld(NotHeld::Expired),
            Ok(()) => {
                room.record_mut(slot).expect("just moved there").mode = Mode::Shared;
                Downgrade::Downgraded
            }
        };
        self.settle(&mut room, slot, now);
        outcome
    }

    pub(crate) fn force_contended(
        &self,
        key: Key<'_>,
        hash: u64,
        fence: Fence,
        now: Tick,
        guard: &Guard,
    ) -> bool {
        let mut room = self.room.lock();
        let Some(slot) = self.enter(key, hash, guard) else {
            return false;
        };
        self.drop_overdue(&mut room, slot, now);
        let hold = self.hold_under(&room, slot, fence);
        if let Some(seen) = &hold {
            // A renewal may still get through to the lease word, and is then told by the lock word that it came too late.
            self.remove_hold(&mut room, slot, fence, Ending::Taken, now);
            self.tell_lost(key, fence, seen, now);
        }
        self.settle(&mut room, slot, now);
        hold.is_some()
    }

    /// Takes a waiter out of line. `None`: it does not wait any more.
    pub(crate) fn cancel(&self, ticket: Ticket, now: Tick) -> Option<H::Waiter> {
        let mut room = self.room.lock();
        let slot = room.slot_of_wait(ticket.waiter, ticket.generation)?;
        let (_, waiter) = self.remove(&mut room, ticket.waiter);
        self.settle(&mut room, slot, now);
        Some(waiter)
    }

    pub(crate) fn is_waiting(&self, ticket: Ticket) -> bool {
        self.room
            .lock()
            .slot_of_wait(ticket.waiter, ticket.generation)
            .is_some()
    }

    /// Wakes waiters whose time is up, and expires what others wait for, at most `budget` of them. `true`: more may be due.
    pub(crate) fn advance_room(&self, now: Tick, budget: &mut u32) -> bool {
        use crate::wheel::Due;
        if self.room_due.load(Ordering::Relaxed) > now.as_ms() {
            return false;
        }
        let mut room = self.room.lock();
        let more = loop {
            let due = {
                let room = &mut *room;
                room.wheel.pop_due(&room.waiters, now, budget)
            };
            match due {
                Due::Entry(place) => {
                    let slot = room.slot_of_place(place);
                    if room.deadline_of(place) <= now {
                        let (_, waiter) = self.remove(&mut room, place);
                        self.common.host.gave_up(waiter, GaveUp::TimedOut);
                    } else {
                        room.wait_on(place);
                        self.record_lag(&room, slot, now);
                    }
                    self.settle(&mut room, slot, now);
                }
                Due::Done => break false,
                Due::OutOfBudget => break true,
            }
        };
        let next = room.wheel.next_due().unwrap_or(Tick::NEVER);
        self.room_due.store(next.as_ms(), Ordering::Relaxed);
        more
    }

    /// Finds a key and makes its word ours. `None`: the key has no cell.
    pub(crate) fn enter(&self, key: Key<'_>, hash: u64, guard: &Guard) -> Option<u32> {
        loop {
            let found = self.table.find(key, hash, guard)?;
            if self.claim(self.table.cell(found.slot), found.word) {
                return Some(found.slot);
            }
        }
    }

    pub(crate) fn enter_or_insert(
        &self,
        key: Key<'_>,
        hash: u64,
        now: Tick,
        guard: &Guard,
    ) -> Result<u32, Limit> {
        loop {
            let (found, is_new) = self
                .table
                .find_or_insert(key, hash, &self.bounds, now, guard)
                .map_err(Limit::from)?;
            let cell = self.table.cell(found.slot);
            if is_new {
                self.introduce(cell, found.slot);
            }
            if self.claim(cell, found.word) {
                return Ok(found.slot);
            }
        }
    }

    /// Makes a word ours that was seen, with the mutex held, before its key was compared. One that belongs to the room is
    /// ours as long as we hold the mutex; a plain one is marked, and the CAS tells whether it is still what was seen.
    fn claim(&self, cell: &Cell, seen: Word) -> bool {
        if fault::injected(Fault::WaiterUnannounced) {
            return cell.word() == seen;
        }
        seen.belongs_to_room() || cell.replace_word(seen, seen.with_queued())
    }
}
