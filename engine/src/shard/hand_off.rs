//! Bringing a contended key up to date: leases that are over are dropped, the front of the queue is granted what is free, and
//! the wheels are told when to look next. Everything here runs under the room mutex, on a key whose word is ours.

use crate::cell::{Ending, Terms};
use crate::fault::{self, Fault};
use crate::fence::Fence;
use crate::note::Note;
use crate::request::{GaveUp, Grant, Host, Invalid, Mode, Outcome};
use crate::room::{Record, RecordHolder, Room, Want};
use crate::shard::Shard;
use crate::sync::Ordering;
use crate::tick::Tick;
use crate::word::{Kind, Lease, Word};

/// Up to so many holders of a record are all looked at whenever the key is, so that a session that has just ended is noticed
/// at once. Of more than that the leases are looked at when one of them is due, and sessions when they are vacated: ten
/// thousand readers must not be asked for each one who joins.
const ASKED_ALWAYS_MAX: usize = 64;

impl<H: Host> Shard<H> {
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
    pub(crate) fn watch_for_waiters(&self, room: &mut Room<H::Waiter>, slot: u32, now: Tick) {
        let cell = self.table.cell(slot);
        let word = cell.word();
        let Some((first, _, _)) = room.first_waiter(slot) else {
            return;
        };
        // What is free is waited for at the ceiling, and its raise is announced.
        if !word.is_held() || fault::injected(Fault::ExpiryForgetsWaiters) {
            return;
        }
        let end = match cell.seen(word) {
            Some(seen) if seen.lease.kind() == Kind::Record => seen.lease.deadline(),
            Some(seen) => self.lease_end(seen.lease, seen.owner),
            // Its grantor has not come that far.
            None => now,
        };
        let at = end.over_at().max(now.plus_ms(1));
        room.wake_by(first, at);
        self.note_room_due(at);
    }

    /// Something in the room is due then: the home does not sleep beyond it.
    pub(crate) fn note_room_due(&self, due: Tick) {
        let due_before = self.room_due.fetch_min(due.as_ms(), Ordering::Relaxed);
        // Of what is due later than that the home knows already, or is being told.
        if due.as_ms() < due_before {
            self.wake_home_by(due);
        }
    }

    /// Drops holders whose leases are over and grants to the front of the queue while that is possible.
    pub(crate) fn settle_queue(&self, room: &mut Room<H::Waiter>, slot: u32, now: Tick) {
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
            let terms = Terms::new(want.owner, want.span, now);
            // Granted first and told afterwards: a waiter that hears of it may release at once.
            let grant = self.grant(room, slot, &terms, want.mode, want.note);
            if !self.common.host.granted(&waiter, grant) {
                self.remove_hold(room, slot, grant.fence, Ending::Released, now);
            }
        }
    }

    /// The fence of the next grant of this key.
    pub(crate) fn next_fence(&self, slot: u32) -> Fence {
        self.bounds.next_after(self.table.cell(slot).word().fence())
    }

    /// Mints a fence and writes the grant: into the words if they can say it all, else into the record.
    pub(crate) fn grant(
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
        let is_endless = terms.deadline == Tick::NEVER;
        if mode == Mode::Exclusive && note.bytes().is_empty() && !is_endless {
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
                // Most records have one holder, and a list that grows by itself begins with room for four.
                holders: Vec::with_capacity(1),
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
    pub(crate) fn take_back(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        fence: Fence,
        now: Tick,
    ) -> u32 {
        if let Some(holder) = room
            .record_mut(slot)
            .and_then(|record| record.holder_mut(fence))
            && holder.count > 1
        {
            holder.count -= 1;
            return holder.count;
        }
        self.remove_hold(room, slot, fence, Ending::Released, now);
        0
    }

    /// Takes a hold away, however often it is held. With the last one the key is free, its word still ours.
    pub(crate) fn remove_hold(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        fence: Fence,
        ending: Ending,
        now: Tick,
    ) {
        let cell = self.table.cell(slot);
        let word = cell.word();
        if let Some(record) = room.record_mut(slot) {
            record.remove(fence);
            if record.holders.is_empty() {
                self.end_record(room, slot, (fence, ending), now);
            }
            return;
        }
        self.free_ours(slot, word, ending, now);
    }

    /// Frees a key whose record has no holders left, and of whom this one was the last. Its word is still ours.
    pub(crate) fn end_record(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        (last, ending): (Fence, Ending),
        now: Tick,
    ) {
        let cell = self.table.cell(slot);
        let fence = cell.word().fence();
        room.line_mut(slot).record = None;
        cell.set_word(Word::free(fence).with_queued());
        // A cell tells of the grant that its word names. That of another holder may have ended in another way.
        let ending = match last == fence {
            true => ending,
            false => Ending::Unknown,
        };
        cell.end_as(fence, ending, now);
        self.forget_ended(cell, slot, now);
    }

    /// Takes everything away from those holders of a record for whom it `is_over`, and tells them.
    pub(crate) fn drop_holders(
        &self,
        room: &mut Room<H::Waiter>,
        slot: u32,
        ending: Ending,
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
        if record.holders.is_empty()
            && let Some(last) = over.last()
        {
            self.end_record(room, slot, (last.fence, ending), now);
        }
        if !over.is_empty() {
            let key = self.table.key_of(slot);
            for holder in over {
                self.tell_lost(key.key(), holder.fence, &holder.seen(), now);
            }
        }
    }

    /// Takes everything away from holders whose leases or sessions are over.
    pub(crate) fn drop_overdue(&self, room: &mut Room<H::Waiter>, slot: u32, now: Tick) {
        let cell = self.table.cell(slot);
        let word = cell.word();
        if !word.is_held() {
            return;
        }
        if room.record(slot).is_none() {
            // Again if the lease has changed meanwhile: one renewed by a session that has ended is still over.
            while let Some(seen) = self.seen(cell, word)
                && self.is_over(&seen, now)
            {
                if seen.lease.kind() == Kind::Ended || cell.try_end_lease(seen.lease) {
                    self.free_ours(slot, word, Ending::Expired, now);
                    self.tell_lost(self.table.key_of(slot).key(), word.fence(), &seen, now);
                    return;
                }
                if fault::injected(Fault::RoomGivesUp) {
                    return;
                }
            }
            return;
        }
        let is_due = cell.lease().deadline().is_over(now);
        let count = room.record(slot).map_or(0, |record| record.holders.len());
        if is_due || count <= ASKED_ALWAYS_MAX {
            self.drop_holders(room, slot, Ending::Expired, now, |holder| {
                self.is_over(&holder.seen(), now)
            });
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
        let seen = self.seen(cell, word);
        let seen = seen.expect("a hold that was checked is published");
        let note = self.short_note(cell, word, &seen);
        let note = note.map_or_else(Note::default, |note| {
            Note::keep(note.bytes(), &self.common.notes)
        });
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
            note,
        };
        room.line_mut(slot).record = Some(Record {
            mode: Mode::Exclusive,
            holders: vec![holder],
        });
        cell.set_word(word.with_rich());
        self.drop_note(&seen, word.fence());
        self.note_earliest(room, slot);
        lease.kind() != Kind::Ended
    }

    pub(crate) fn reenter(
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
    pub(crate) fn note_earliest(&self, room: &mut Room<H::Waiter>, slot: u32) {
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
    pub(crate) fn tell_wheel(&self, slot: u32, earliest: Tick) {
        let cell = self.table.cell(slot);
        cell.move_lease_to_record(cell.word().fence(), earliest);
        let due = earliest.over_at();
        if cell.is_armed_after(due) {
            self.ask_attention(cell, slot, due);
        }
    }

    pub(crate) fn remove(&self, room: &mut Room<H::Waiter>, place: u32) -> (Want, H::Waiter) {
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
}
