//! The verbs under the room mutex: whatever needs a queue or a record.
//!
//! The pattern is always the same. Lock the room. `enter`: find the key and mark its word QUEUED, which takes it out of
//! everybody else's hands. Do the thing. `settle`: drop holders whose leases are over, grant to the front of the queue as
//! long as that is possible, and write the word back with QUEUED only if somebody still waits. Because every path ends in
//! `settle`, a waiter at the front is never left standing next to a free lock.

use crate::cell::{Cell, Seen, Terms};
use crate::fault::{self, Fault};
use crate::fence::Fence;
use crate::key::Key;
use crate::note::Note;
use crate::request::{
    Acquire, Downgrade, GaveUp, Grant, Holder, Host, Invalid, KeyState, Limit, Mode, NotHeld,
    Outcome, Release, Renewal, Ticket,
};
use crate::room::{Record, RecordHolder, Room, Want};
use crate::seat::CellRef;
use crate::session::SessionId;
use crate::shard::{Answer, Shard, Wait, held_ms};
use crate::slab::NONE;
use crate::sync::Ordering;
use crate::table::reclaim::Guard;
use crate::tick::Tick;
use crate::word::{Kind, Lease, Word};

/// Up to so many holders of a record are all looked at whenever the key is, so that a session that has just ended is noticed
/// at once. Of more than that the leases are looked at when one of them is due, and sessions when they are vacated: ten
/// thousand readers must not be asked for each one who joins.
const ASKED_ALWAYS_MAX: usize = 64;

/// How a session holds a key.
struct Hold {
    mode: Mode,
    fence: Fence,
}

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
        self.room_due
            .fetch_min(wait.deadline.as_ms(), Ordering::Relaxed);
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
            self.remove_hold(&mut room, slot, fence, now);
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

    pub(crate) fn query(&self, key: Key<'_>, hash: u64, now: Tick) -> Option<KeyState> {
        let guard = self.pin();
        let mut room = self.room.lock();
        let slot = self.enter(key, hash, &guard)?;
        let state = self.state(&mut room, slot, now);
        self.settle(&mut room, slot, now);
        Some(state)
    }

    /// What is known of a key whose word is ours.
    fn state(&self, room: &mut Room<H::Waiter>, slot: u32, now: Tick) -> KeyState {
        self.settle_queue(room, slot, now);
        let cell = self.table.cell(slot);
        let word = cell.word();
        let queue_length = room.queue_length(slot);
        let holders = match room.record(slot) {
            Some(record) => {
                let count = record.holders.len() as u32;
                record
                    .holders
                    .iter()
                    .map(|holder| {
                        self.describe_holder(holder, record.mode, count, queue_length, now)
                    })
                    .collect()
            }
            None if word.is_held() => vec![self.describe_plain(cell, word, queue_length, now)],
            None => Vec::new(),
        };
        KeyState {
            fence: word.fence(),
            holders,
            queue_length,
        }
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

    // ---- one key, its word ours

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

    /// Brings a key up to date and gives its word back: free for all if nobody waits and there is no record.
    pub(crate) fn settle(&self, room: &mut Room<H::Waiter>, slot: u32, now: Tick) {
        self.settle_queue(room, slot, now);
        let cell = self.table.cell(slot);
        let is_waiting = room.queue_length(slot) > 0;
        if is_waiting {
            self.watch_for_waiters(room, slot, now);
        }
        room.tidy_line(slot);
        if fault::injected(Fault::WaiterUnannounced) {
            return;
        }
        cell.set_word(cell.word().with_queued_if(is_waiting));
    }

    /// Sees to it that the first in line is looked at when the lease in front of it ends. A renewal tells nobody; it is then
    /// looked at too early, and again later.
    fn watch_for_waiters(&self, room: &mut Room<H::Waiter>, slot: u32, now: Tick) {
        let cell = self.table.cell(slot);
        let word = cell.word();
        let Some((first, _, _)) = room.first_waiter(slot) else {
            return;
        };
        // What is free is waited for at the ceiling, and its raise is announced.
        if !word.is_held() {
            return;
        }
        let end = match cell.seen(word) {
            Some(seen) if seen.lease.kind() == Kind::Record => seen.lease.deadline(),
            Some(seen) => self.lease_end(seen.lease, seen.owner),
            // Its grantor has not come that far.
            None => now,
        };
        let end = end.max(now.plus_ms(1));
        room.wake_by(first, end);
        self.room_due.fetch_min(end.as_ms(), Ordering::Relaxed);
    }

    /// Drops holders whose leases are over and grants to the front of the queue while that is possible.
    fn settle_queue(&self, room: &mut Room<H::Waiter>, slot: u32, now: Tick) {
        self.drop_overdue(room, slot, now);
        while let Some((place, want, deadline)) = room.first_waiter(slot) {
            // Nobody fits in beside an exclusive holder. Whoever has given up meanwhile is left to the wheel, which takes
            // them a few at a time.
            if !self.admits(room, slot, Mode::Shared) {
                break;
            }
            let gone = if deadline <= now {
                Some(GaveUp::TimedOut)
            } else if self.common.sessions.is_ended(want.owner, now)
                && !fault::injected(Fault::HandoffToTheDead)
            {
                Some(GaveUp::SessionEnded)
            } else {
                None
            };
            if let Some(why) = gone {
                let (_, waiter) = self.remove(room, place);
                self.common.host.gave_up(waiter, why);
                continue;
            }
            if !self.admits(room, slot, want.mode) || self.is_full(room, slot, want.mode) {
                break;
            }
            if !self.may_issue(self.next_fence(slot)) {
                room.note_starved(slot);
                break;
            }
            let (want, waiter) = self.remove(room, place);
            let terms = self.terms(want.owner, want.span, now);
            // Granted first and told afterwards: a waiter that hears of it may release at once.
            let grant = self.grant(room, slot, &terms, want.mode, want.note);
            if !self.common.host.granted(&waiter, grant) {
                self.remove_hold(room, slot, grant.fence, now);
            }
        }
    }

    /// The fence of the next grant of this key.
    fn next_fence(&self, slot: u32) -> Fence {
        self.bounds.next_after(self.table.cell(slot).word().fence())
    }

    /// Mints a fence and writes the grant: into the words if they can say it all, else into the record.
    fn grant(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        terms: &Terms,
        mode: Mode,
        note: Note,
    ) -> Grant {
        let cell = self.table.cell(slot);
        let fence = self.next_fence(slot);
        assert!(
            self.may_issue(fence),
            "fence {fence} lies above the ceiling {}",
            self.bounds.ceiling()
        );
        self.mind_ceiling(fence);
        if mode == Mode::Exclusive && note.bytes().is_empty() {
            cell.set_word(Word::held(fence).with_queued());
            cell.publish(fence, terms);
            let until = self.watch(cell, slot, terms);
            return Grant {
                fence,
                until,
                count: 1,
            };
        }
        let lease = Lease::new(terms.kind, terms.deadline, fence.get());
        let holder = RecordHolder {
            fence,
            owner: terms.owner,
            lease,
            since_low32: terms.since_low32,
            count: 1,
            note,
        };
        let line = room.line_mut(slot);
        line.record
            .get_or_insert_with(|| Record {
                mode,
                holders: Vec::new(),
            })
            .holders
            .push(holder);
        cell.set_word(Word::held(fence).with_rich().with_queued());
        let until = self.lease_end(lease, terms.owner);
        self.note_lease_end(slot, until);
        Grant {
            fence,
            until,
            count: 1,
        }
    }

    /// Takes one count of a hold away, and the hold with the last. Returns what is left.
    fn take_back(&self, room: &mut Room<H::Waiter>, slot: u32, fence: Fence, now: Tick) -> u32 {
        if let Some(holder) = room
            .record_mut(slot)
            .and_then(|record| record.holder_mut(fence))
            && holder.count > 1
        {
            holder.count -= 1;
            return holder.count;
        }
        self.remove_hold(room, slot, fence, now);
        0
    }

    /// Takes a hold away, however often it is held. With the last one the key is free, its word still ours.
    fn remove_hold(&self, room: &mut Room<H::Waiter>, slot: u32, fence: Fence, now: Tick) {
        let cell = self.table.cell(slot);
        let word = cell.word();
        if let Some(record) = room.record_mut(slot) {
            record.remove(fence);
            if record.holders.is_empty() {
                self.end_record(room, slot, now);
            }
            return;
        }
        cell.set_word(Word::free(word.fence()).with_queued());
    }

    /// Frees a key whose record has no holders left. Its word is still ours.
    pub(crate) fn end_record(&self, room: &mut Room<H::Waiter>, slot: u32, now: Tick) {
        let cell = self.table.cell(slot);
        let fence = cell.word().fence();
        room.line_mut(slot).record = None;
        cell.end_record(fence, now);
        cell.set_word(Word::free(fence).with_queued());
    }

    /// Takes everything away from those holders of a record for whom it `is_over`, and tells them.
    pub(crate) fn drop_holders(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        now: Tick,
        is_over: impl Fn(&RecordHolder) -> bool,
    ) {
        let Some(record) = room.record_mut(slot) else {
            return;
        };
        let over: Vec<RecordHolder> = record
            .holders
            .extract_if(.., |holder| is_over(holder))
            .collect();
        if record.holders.is_empty() {
            self.end_record(room, slot, now);
        }
        if !over.is_empty() {
            let key = self.table.key_of(slot);
            for holder in over {
                self.tell_lost(key.key(), holder.fence, &holder.seen(), now);
            }
        }
    }

    /// Takes everything away from holders whose leases or sessions are over.
    fn drop_overdue(&self, room: &mut Room<H::Waiter>, slot: u32, now: Tick) {
        let cell = self.table.cell(slot);
        let word = cell.word();
        if !word.is_held() {
            return;
        }
        if room.record(slot).is_none() {
            // Again if the lease has changed meanwhile: one renewed by a session that has ended is still over.
            while let Some(seen) = cell.seen(word)
                && self.is_over(&seen, now)
            {
                if seen.lease.kind() == Kind::Ended || cell.try_end_lease(seen.lease) {
                    cell.set_word(Word::free(word.fence()).with_queued());
                    self.tell_lost(self.table.key_of(slot).key(), word.fence(), &seen, now);
                    return;
                }
                if fault::injected(Fault::RoomGivesUp) {
                    return;
                }
            }
            return;
        }
        let is_due = cell.lease().deadline() <= now;
        let count = room.record(slot).map_or(0, |record| record.holders.len());
        if is_due || count <= ASKED_ALWAYS_MAX {
            self.drop_holders(room, slot, now, |holder| self.is_over(&holder.seen(), now));
        }
        if is_due && room.record(slot).is_some() {
            self.note_earliest(room, slot);
        }
    }

    /// Turns a plain hold into a record of one, keeping a renewal that gets in at the last moment. `false`: its lease was
    /// ended at the last moment.
    pub(crate) fn move_to_record(&self, room: &mut Room<H::Waiter>, slot: u32) -> bool {
        if room.record(slot).is_some() {
            return true;
        }
        let cell = self.table.cell(slot);
        let word = cell.word();
        let seen = cell
            .seen(word)
            .expect("a hold that was checked is published");
        let mut lease = cell.move_lease_to_record(word.fence(), seen.lease.deadline());
        if fault::injected(Fault::RecordKeepsWhatWasSeen) {
            lease = seen.lease;
        }
        let holder = RecordHolder {
            fence: word.fence(),
            owner: seen.owner,
            lease,
            since_low32: seen.since_low32,
            count: 1,
            note: Note::default(),
        };
        room.line_mut(slot).record = Some(Record {
            mode: Mode::Exclusive,
            holders: vec![holder],
        });
        cell.set_word(word.with_rich());
        self.note_earliest(room, slot);
        lease.kind() != Kind::Ended
    }

    fn reenter(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        fence: Fence,
        terms: &Terms,
    ) -> Outcome {
        let holder = room
            .record_mut(slot)
            .and_then(|record| record.holder_mut(fence));
        let holder = holder.expect("a hold that was moved is in the record");
        let Some(count) = holder.count.checked_add(1) else {
            return Outcome::Invalid(Invalid::Reentries);
        };
        holder.count = count;
        if holder.lease.kind() == Kind::Timed && terms.kind == Kind::Timed {
            holder.lease = holder
                .lease
                .with_deadline(holder.lease.deadline().max(terms.deadline));
        }
        let until = self.lease_end(holder.lease, terms.owner);
        Outcome::Granted(Grant {
            fence,
            until,
            count,
        })
    }

    /// Finds out when the first lease of the record ends, and tells the wheel.
    fn note_earliest(&self, room: &mut Room<H::Waiter>, slot: u32) {
        let record = room.record(slot).expect("only called with a record");
        let earliest = record.earliest(|owner| self.common.sessions.deadline(owner));
        self.tell_wheel(slot, earliest);
    }

    /// Tells the wheel of one lease of the record that is new or has moved. The earliest that is known may belong to one that
    /// has ended or moved away since; then the wheel looks in vain, once, and `note_earliest` puts it right.
    pub(crate) fn note_lease_end(&self, slot: u32, end: Tick) {
        let lease = self.table.cell(slot).lease();
        let earliest = match lease.kind() {
            Kind::Record => lease.deadline().min(end),
            _ => end,
        };
        self.tell_wheel(slot, earliest);
    }

    /// Writes into the cell's lease word when the wheel is to look at its record.
    fn tell_wheel(&self, slot: u32, earliest: Tick) {
        let cell = self.table.cell(slot);
        cell.move_lease_to_record(cell.word().fence(), earliest);
        if cell.is_armed_after(earliest) {
            self.ask_attention(cell, slot);
        }
    }

    fn remove(&self, room: &mut Room<H::Waiter>, place: u32) -> (Want, H::Waiter) {
        self.common.waiters.fetch_sub(1, Ordering::Relaxed);
        room.remove_waiter(place)
    }

    /// Whether somebody who wants the key in this mode fits in beside those who hold it.
    pub(crate) fn admits(&self, room: &Room<H::Waiter>, slot: u32, mode: Mode) -> bool {
        match room.record(slot) {
            Some(record) => record.mode == Mode::Shared && mode == Mode::Shared,
            None => !self.table.cell(slot).word().is_held(),
        }
    }

    /// Whether there are as many shared holders as there may be. An exclusive one is never one too many.
    pub(crate) fn is_full(&self, room: &Room<H::Waiter>, slot: u32, mode: Mode) -> bool {
        let holders = room.record(slot).map_or(0, |record| record.holders.len());
        mode == Mode::Shared && holders >= self.common.limits.shared_holders_max as usize
    }

    fn hold_of(&self, room: &Room<H::Waiter>, slot: u32, owner: SessionId) -> Option<Hold> {
        if let Some(record) = room.record(slot) {
            return record.holder_of(owner).map(|holder| Hold {
                mode: record.mode,
                fence: holder.fence,
            });
        }
        let word = self.table.cell(slot).word();
        let seen = self.table.cell(slot).seen(word)?;
        (seen.owner == owner).then_some(Hold {
            mode: Mode::Exclusive,
            fence: word.fence(),
        })
    }

    /// Who holds the key under this very fence, until when and since when.
    pub(crate) fn hold_under(
        &self,
        room: &Room<H::Waiter>,
        slot: u32,
        fence: Fence,
    ) -> Option<Seen> {
        if let Some(record) = room.record(slot) {
            let position = record
                .holders
                .binary_search_by_key(&fence, |holder| holder.fence)
                .ok()?;
            return Some(record.holders[position].seen());
        }
        let word = self.table.cell(slot).word();
        let seen = self.table.cell(slot).seen(word)?;
        (word.fence() == fence).then_some(seen)
    }

    /// Whether `owner` holds the key under `fence`, after whatever is over has been dropped.
    pub(crate) fn check_hold(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        fence: Fence,
        owner: SessionId,
        now: Tick,
    ) -> Result<(), NotHeld> {
        let is_owner = |room: &_| {
            self.hold_under(room, slot, fence)
                .map(|seen| seen.owner == owner)
        };
        let was_owner = is_owner(room) == Some(true);
        self.drop_overdue(room, slot, now);
        match is_owner(room) {
            Some(true) => Ok(()),
            _ if was_owner => Err(NotHeld::Expired),
            Some(false) => Err(NotHeld::OtherOwner),
            None if self.table.cell(slot).word().is_held() => Err(NotHeld::OtherFence),
            None => Err(NotHeld::Free),
        }
    }

    fn describe(&self, room: &Room<H::Waiter>, slot: u32, now: Tick) -> Holder {
        let cell = self.table.cell(slot);
        let queue_length = room.queue_length(slot);
        match room.record(slot) {
            Some(record) => {
                let first = record.holders.first().expect("a record has holders");
                self.describe_holder(
                    first,
                    record.mode,
                    record.holders.len() as u32,
                    queue_length,
                    now,
                )
            }
            None => self.describe_plain(cell, cell.word(), queue_length, now),
        }
    }

    fn describe_holder(
        &self,
        holder: &RecordHolder,
        mode: Mode,
        holders: u32,
        queue_length: u32,
        now: Tick,
    ) -> Holder {
        Holder {
            owner: Some(holder.owner),
            fence: holder.fence,
            mode,
            held_ms: held_ms(holder.since_low32, now),
            until: self.lease_end(holder.lease, holder.owner),
            is_session_bound: holder.lease.kind() == Kind::Session,
            count: holder.count,
            holders,
            queue_length,
            note: holder.note.bytes().into(),
        }
    }
}
