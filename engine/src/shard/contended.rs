//! A key under the room mutex: whatever needs a queue or a record.
//!
//! [`Contended`] says "this key's word is ours". Entering the room makes one: the room mutex is
//! held and the word is marked QUEUED, so no other core changes it by CAS. Its end settles the key
//! (`hand_off.rs`): holders whose leases are over are dropped, the front of the queue is granted
//! what is free, and the word is given back, QUEUED only if a waiter is left. So no waiter is left
//! beside a free lock, whichever way the caller takes.
//!
//! The verbs are here. `record.rs` has what is done with holders, `describe.rs` what is told of
//! them, `claim.rs` and `take_over.rs` the verbs of their own kind.

use super::room::{Room, Times, Want};
use super::{Answer, Shard, Target, Wait, held_ms};
use crate::api::{Acquire, Downgrade, GaveUp, Host, Limit, NotHeld, Outcome, Release, Renewal};
use crate::cell::metadata::{Kept, Metadata};
use crate::cell::word::Word;
use crate::cell::{Cell, Ending, Terms};
use crate::memory::slot::NONE;
use crate::session::SessionId;
use crate::session::seat::{CellRef, Ticket};
use crate::sync::Ordering;
use crate::table::epoch::{self, Guard};
use crate::time::lease::Kind;
use crate::time::tick::Tick;
use crate::time::wheel::Due;
use types::Fence;
use types::Key;

/// A key whose word is ours for as long as this lives. See the module.
pub(crate) struct Contended<'a, H: Host> {
    pub(super) shard: &'a Shard<H>,
    pub(super) room: &'a mut Room<H::Waiter>,
    pub(super) cell: &'a Cell,
    pub(super) slot: u32,
    pub(super) now: Tick,
    /// The front of the queue may fit in: not served yet, or something was taken away since.
    pub(super) may_serve: bool,
}

impl<H: Host> Drop for Contended<'_, H> {
    fn drop(&mut self) {
        // After a panic the word stays QUEUED, so the next caller enters the room and settles it.
        if !std::thread::panicking() {
            self.settle();
        }
    }
}

impl<H: Host> Shard<H> {
    /// Finds a key and makes its word ours. `None`: the key has no cell.
    pub(super) fn enter<'a>(
        &'a self,
        room: &'a mut Room<H::Waiter>,
        target: Target<'_>,
        now: Tick,
        guard: &Guard,
    ) -> Option<Contended<'a, H>> {
        loop {
            let found = self.find(target, guard)?;
            if self.mark(self.table.cell(found.slot), found.word) {
                return Some(self.contended(room, found.slot, now));
            }
        }
    }

    /// The same for a key that is given a cell if it has none.
    pub(super) fn enter_or_insert<'a>(
        &'a self,
        room: &'a mut Room<H::Waiter>,
        target: Target<'_>,
        now: Tick,
        guard: &Guard,
    ) -> Result<Contended<'a, H>, Limit> {
        loop {
            let found = self.find_or_insert(target, now, guard)?;
            if self.mark(self.table.cell(found.slot), found.word) {
                return Ok(self.contended(room, found.slot, now));
            }
        }
    }

    /// The same for a cell whose word belongs to the room already.
    pub(super) fn contended<'a>(
        &'a self,
        room: &'a mut Room<H::Waiter>,
        slot: u32,
        now: Tick,
    ) -> Contended<'a, H> {
        Contended {
            shard: self,
            room,
            cell: self.table.cell(slot),
            slot,
            now,
            may_serve: true,
        }
    }

    /// Makes a word ours that was read, with the room mutex held, before its key was compared. One
    /// that belongs to the room is ours as long as we hold the mutex. A plain one is marked, and
    /// the CAS tells whether it is still what was read.
    fn mark(&self, cell: &Cell, seen: Word) -> bool {
        match fault!(WaiterUnannounced) {
            false => seen.belongs_to_room() || cell.replace_word(seen, seen.with_queued()),
            true => cell.word() == seen,
        }
    }

    #[cold]
    pub(super) fn acquire_contended(
        &self,
        target: Target<'_>,
        request: &Acquire<'_>,
        terms: &Terms,
        wait: Option<Wait<'_, H::Waiter>>,
        guard: &Guard,
    ) -> Answer<Outcome> {
        let mut room = self.room.lock();
        match self.enter_or_insert(&mut room, target, terms.now, guard) {
            Ok(mut key) => {
                key.catch_up();
                Answer::new(key.decide(request, terms, wait), key.slot)
            }
            Err(limit) => Answer::new(Outcome::Busy(limit), NONE),
        }
    }

    #[cold]
    pub(super) fn renew_contended(
        &self,
        target: Target<'_>,
        fence: Fence,
        terms: &Terms,
        guard: &Guard,
    ) -> Renewal {
        let mut room = self.room.lock();
        match self.enter(&mut room, target, terms.now, guard) {
            Some(mut key) => key.renew(fence, terms),
            None => Renewal::NotHeld(NotHeld::Free),
        }
    }

    #[cold]
    pub(super) fn release_contended(
        &self,
        target: Target<'_>,
        fence: Fence,
        owner: SessionId,
        now: Tick,
        guard: &Guard,
    ) -> Answer<(Release, u64)> {
        let mut room = self.room.lock();
        match self.enter(&mut room, target, now, guard) {
            Some(mut key) => Answer::new(key.release(fence, owner), key.slot),
            None => Answer::new((Release::NotHeld(NotHeld::Free), 0), NONE),
        }
    }

    pub(crate) fn downgrade(
        &self,
        target: Target<'_>,
        fence: Fence,
        owner: SessionId,
        now: Tick,
    ) -> Downgrade {
        let guard = epoch::pin();
        let mut room = self.room.lock();
        match self.enter(&mut room, target, now, &guard) {
            Some(mut key) => key.downgrade(fence, owner),
            None => Downgrade::NotHeld(NotHeld::Free),
        }
    }

    /// Takes the lock away from its holder under `fence`. `false`: there is none.
    pub(crate) fn force(&self, target: Target<'_>, fence: Fence, now: Tick) -> bool {
        let guard = epoch::pin();
        let mut room = self.room.lock();
        match self.enter(&mut room, target, now, &guard) {
            Some(mut key) => key.force(target.key, fence),
            None => false,
        }
    }

    /// Takes a waiter out of line. `None`: it does not wait any more.
    pub(crate) fn cancel(&self, ticket: Ticket, now: Tick) -> Option<H::Waiter> {
        let mut room = self.room.lock();
        let slot = room.slot_of_wait(ticket.waiter, ticket.generation)?;
        let (_, waiter) = self.contended(&mut room, slot, now).remove(ticket.waiter);
        Some(waiter)
    }

    pub(crate) fn is_waiting(&self, ticket: Ticket) -> bool {
        let room = self.room.lock();
        room.slot_of_wait(ticket.waiter, ticket.generation)
            .is_some()
    }

    /// Ends waits whose time is up, and leases that a waiter stands behind, at most `budget` of
    /// them. `true`: more may be due.
    pub(crate) fn advance_room(&self, now: Tick, budget: &mut u32) -> bool {
        if self.room_due.load(Ordering::Relaxed) > now.as_ms() {
            return false;
        }
        let mut room = self.room.lock();
        let more = loop {
            match room.pop_due(now, budget) {
                Due::Entry(place) => {
                    let slot = room.slot_of_place(place);
                    self.contended(&mut room, slot, now).look_at_waiter(place);
                }
                Due::Done => break false,
                Due::OutOfBudget => break true,
            }
        };
        let next = room.wheel.next_due().unwrap_or(Tick::NEVER);
        self.room_due.store(next.as_ms(), Ordering::Relaxed);
        more
    }
}

impl<H: Host> Contended<'_, H> {
    /// The answer to an acquire of a key that is up to date.
    fn decide(
        &mut self,
        request: &Acquire<'_>,
        terms: &Terms,
        wait: Option<Wait<'_, H::Waiter>>,
    ) -> Outcome {
        // A session that wants another shared lock beside its own just gets one.
        let may_clash = request.reentrant || !request.mode.admits(request.mode);
        if may_clash && let Some(hold) = self.hold_of(terms.owner) {
            let is_upgrade = hold.mode.is_upgrade(request.mode);
            if request.reentrant && !is_upgrade {
                if self.move_to_record() {
                    return self.reenter(hold.fence, terms);
                }
                // Another core has just found the lease over. The caller asks as any other would.
                self.catch_up();
                return self.decide(request, terms, wait);
            }
            // Another task of the same session may be about to release it, so a caller that is
            // ready to wait may wait.
            if is_upgrade && (request.reentrant || wait.is_none()) {
                return Outcome::UpgradeRefused(self.describe());
            }
        }
        let is_open = self.queue_length() == 0 && self.admits(request.mode);
        if is_open && self.is_full(request.mode) {
            return Outcome::Busy(Limit::SharedHolders);
        }
        if is_open && self.shard.may_issue(self.next_fence()) {
            let Some(metadata) = Metadata::try_new(request.metadata, &self.shard.common.metadata)
            else {
                return Outcome::Busy(Limit::Bytes);
            };
            return Outcome::Granted(self.grant(terms, request.mode, metadata));
        }
        if let Some(wait) = wait
            && let Some(waiter) = (wait.make)()
        {
            return self.enqueue(request, terms, wait.deadline, waiter);
        }
        match self.cell.word().is_held() {
            true => Outcome::Held(self.describe()),
            // Free, and yet not to be had: only for want of fences, which the waiters in line wait
            // for already.
            false => Outcome::AtCeiling,
        }
    }

    fn enqueue(
        &mut self,
        request: &Acquire<'_>,
        terms: &Terms,
        deadline: Tick,
        waiter: H::Waiter,
    ) -> Outcome {
        let common = &self.shard.common;
        if self.queue_length() >= common.limits.waiters_per_key_max {
            return Outcome::Busy(Limit::WaitersPerKey);
        }
        let Some(metadata) = Metadata::try_new(request.metadata, &common.metadata) else {
            return Outcome::Busy(Limit::Bytes);
        };
        let Some(kept) = Kept::try_new(common.host.waiter_bytes(&waiter), &common.metadata) else {
            return Outcome::Busy(Limit::Bytes);
        };
        if common.waiters.fetch_add(1, Ordering::Relaxed) >= common.limits.waiters_max {
            common.waiters.fetch_sub(1, Ordering::Relaxed);
            return Outcome::Busy(Limit::Waiters);
        }
        let want = Want {
            owner: terms.owner,
            mode: request.mode,
            span: request.span,
            metadata,
            _kept: kept,
        };
        let times = Times {
            now: self.now,
            waited_ms: request.waited_ms,
            deadline,
        };
        let standing = self.room.push_waiter(self.slot, times, want, waiter);
        // A new front is looked at as every front is: it may wait for the ceiling.
        self.may_serve |= standing.ahead == 0;
        self.shard.note_room_due(deadline);
        Outcome::Queued {
            ticket: Ticket {
                cell: CellRef::new(self.shard.number, self.slot),
                waiter: standing.place,
                generation: standing.generation,
            },
            ahead: standing.ahead,
        }
    }

    fn renew(&mut self, fence: Fence, terms: &Terms) -> Renewal {
        if let Err(why) = self.check_hold(fence, terms.owner) {
            return Renewal::NotHeld(why);
        }
        if !self.move_to_record() {
            return Renewal::NotHeld(NotHeld::Expired);
        }
        let holder = self.holder_mut(fence);
        if holder.lease.kind() == Kind::Timed {
            holder.lease = holder.lease.with_deadline(terms.deadline);
        }
        let lease = holder.lease;
        let until = self.shard.lease_end(lease, terms.owner);
        self.note_lease_end(until);
        Renewal::Renewed { until }
    }

    /// Takes one count of a hold away. Tells for how long it had been held, too.
    fn release(&mut self, fence: Fence, owner: SessionId) -> (Release, u64) {
        if let Err(why) = self.check_hold(fence, owner) {
            return (Release::NotHeld(why), 0);
        }
        let hold = self.hold_under(fence);
        let count = self.take_back(fence);
        let held_ms = hold.map_or(0, |seen| held_ms(seen.since_low32, self.now));
        (Release::Released { count }, held_ms)
    }

    fn downgrade(&mut self, fence: Fence, owner: SessionId) -> Downgrade {
        if let Err(why) = self.check_hold(fence, owner) {
            return Downgrade::NotHeld(why);
        }
        if !self.move_to_record() {
            return Downgrade::NotHeld(NotHeld::Expired);
        }
        self.share_record();
        Downgrade::Downgraded
    }

    fn force(&mut self, key: Key<'_>, fence: Fence) -> bool {
        self.drop_overdue();
        let Some(seen) = self.hold_under(fence) else {
            return false;
        };
        // A renewal may still get through to the lease word, and is then told by the lock word that
        // it came too late.
        self.remove_hold(fence, Ending::Taken);
        self.shard.tell_lost(key, fence, &seen, self.now);
        true
    }

    /// A waiter came out of the wheel: its time is up, or the lease in front of it may be over.
    fn look_at_waiter(&mut self, place: u32) {
        if self.room.deadline_of(place) <= self.now {
            let (_, waiter) = self.remove(place);
            self.shard.common.host.gave_up(waiter, GaveUp::TimedOut);
        } else {
            self.room.wait_on(place);
            self.record_lag();
        }
    }
}
