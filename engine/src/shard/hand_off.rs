//! Settling a contended key: leases that are over are dropped, the front of the queue is granted
//! what is free, and the wheels learn when to look next.
//!
//! A cancel and a hand-off of the same wait are decided by the room mutex (`Shard::cancel` in
//! `contended.rs`): the waiter is in line, or it is not and its grant is on its way. A client whose
//! cancel came too late is told so and gets the grant (`native/dispatch.rs` of the server); the
//! grant of a connection that went meanwhile is given back (`core/delivery.rs` there).

use super::Shard;
use super::contended::Contended;
use super::room::{Record, RecordHolder, Want};
use crate::api::{GaveUp, Grant, Host};
use crate::cell::Terms;
use crate::cell::metadata::Metadata;
use crate::cell::word::Word;
use crate::session::SessionId;
use crate::sync::Ordering;
use crate::time::lease::{Kind, Lease};
use crate::time::tick::Tick;
use types::Fence;
use types::Mode;

impl<H: Host> Contended<'_, H> {
    /// Brings the key up to date and gives its word back: plain if no waiter is left and there is
    /// no record. The end of every `Contended`, and called from nowhere else.
    pub(super) fn settle(&mut self) {
        if self.may_serve {
            self.catch_up();
        }
        let is_waiting = self.queue_length() > 0;
        if is_waiting {
            self.watch_for_first();
        }
        self.room.tidy_line(self.slot);
        if fault!(WaiterUnannounced) {
            return;
        }
        self.cell
            .set_word(self.cell.word().with_queued_if(is_waiting));
    }

    /// Drops holders whose leases are over and grants to the front of the queue while that is
    /// possible.
    pub(super) fn catch_up(&mut self) {
        self.drop_overdue();
        while let Some((place, want, deadline)) = self.room.first_waiter(self.slot) {
            let (owner, mode) = (want.owner, want.mode);
            // No waiter fits in beside an exclusive holder. One that has given up meanwhile is left
            // to the wheel, which takes them a few at a time.
            if !self.admits_any() {
                break;
            }
            if let Some(why) = self.why_gone(owner, deadline) {
                let (_, waiter) = self.remove(place);
                self.shard.common.host.gave_up(waiter, why);
                continue;
            }
            if !self.admits(mode) || self.is_full(mode) {
                break;
            }
            if !self.shard.may_issue(self.next_fence()) {
                self.room.note_starved(self.slot);
                break;
            }
            let (want, waiter) = self.remove(place);
            let terms = Terms::new(want.owner, want.span, self.now);
            // Granted first and told afterwards: a waiter that hears of it may release at once.
            let grant = self.grant(&terms, want.mode, want.metadata);
            self.shard.common.host.granted(waiter, grant);
        }
        self.may_serve = false;
    }

    /// Why a waiter is not to be granted anything any more.
    fn why_gone(&self, owner: SessionId, deadline: Tick) -> Option<GaveUp> {
        if deadline <= self.now {
            return Some(GaveUp::TimedOut);
        }
        let is_ended = self.shard.common.sessions.is_ended(owner, self.now);
        (is_ended && !fault!(HandoffToTheDead)).then_some(GaveUp::SessionEnded)
    }

    /// Has the waiters' wheel look at the first in line when the lease in front of it ends. A
    /// renewal is not announced: the wheel then looks too early, and again later.
    fn watch_for_first(&mut self) {
        let word = self.cell.word();
        let Some((first, _, _)) = self.room.first_waiter(self.slot) else {
            return;
        };
        // What is free is waited for at the ceiling, and its raise is announced.
        if !word.is_held() || fault!(ExpiryForgetsWaiters) {
            return;
        }
        let end = match self.cell.seen(word) {
            Some(seen) if seen.lease.kind() == Kind::Record => seen.lease.deadline(),
            Some(seen) => self.shard.lease_end(seen.lease, seen.owner),
            // Its grantor has not published the lease yet.
            None => self.now,
        };
        let at = end.over_at().max(self.now.plus_ms(1));
        self.room.wake_by(first, at);
        self.shard.note_room_due(at);
    }

    /// The fence of the next grant of this key.
    pub(super) fn next_fence(&self) -> Fence {
        self.shard.bounds.next_after(self.cell.word().fence())
    }

    /// Mints a fence and writes the grant: into the words if they can say it all, else into the
    /// record.
    pub(super) fn grant(&mut self, terms: &Terms, mode: Mode, metadata: Metadata) -> Grant {
        let shard = self.shard;
        let fence = self.next_fence();
        assert!(
            shard.may_issue(fence),
            "fence {fence} lies above the ceiling {}",
            shard.bounds.ceiling()
        );
        shard.mind_ceiling(fence);
        let is_endless = terms.deadline == Tick::NEVER;
        let until = if mode.has_one_holder() && metadata.bytes().is_empty() && !is_endless {
            self.cell.set_word(Word::held(fence).with_queued());
            self.cell.publish(fence, terms);
            shard.watch(self.cell, self.slot, terms)
        } else {
            let lease = Lease::new(terms.kind, terms.deadline, fence.get());
            let holder = RecordHolder {
                fence,
                owner: terms.owner,
                lease,
                since_low32: terms.since_low32,
                count: 1,
                metadata,
            };
            let line = self.room.line_mut(self.slot);
            let record = line.record.get_or_insert_with(|| Record {
                mode,
                // Most records have one holder, and a list that grows by itself begins with room
                // for four.
                holders: Vec::with_capacity(1),
            });
            record.holders.push(holder);
            self.cell
                .set_word(Word::held(fence).with_rich().with_queued());
            let until = shard.lease_end(lease, terms.owner);
            self.note_lease_end(until);
            until
        };
        Grant {
            fence,
            until,
            count: 1,
        }
    }

    /// Takes a waiter of this key out of line.
    pub(super) fn remove(&mut self, place: u32) -> (Want, H::Waiter) {
        self.may_serve = true;
        self.shard.common.waiters.fetch_sub(1, Ordering::Relaxed);
        self.room.remove_waiter(place)
    }

    pub(super) fn queue_length(&self) -> u32 {
        self.room.queue_length(self.slot)
    }

    /// Whether there is a mode in which one more holder fits in beside the present ones.
    fn admits_any(&self) -> bool {
        match self.room.record(self.slot) {
            Some(record) => !record.mode.has_one_holder(),
            None => !self.cell.word().is_held(),
        }
    }

    /// Whether one more holder in this mode fits in beside the present ones.
    pub(super) fn admits(&self, mode: Mode) -> bool {
        match self.room.record(self.slot) {
            Some(record) => record.mode.admits(mode),
            None => !self.cell.word().is_held(),
        }
    }

    /// Whether there are as many shared holders as there may be. An exclusive one is never one too
    /// many.
    pub(super) fn is_full(&self, mode: Mode) -> bool {
        let holders_max = self.shard.common.limits.shared_holders_max as usize;
        let record = self.room.record(self.slot);
        let holder_count = record.map_or(0, |record| record.holders.len());
        !mode.has_one_holder() && holder_count >= holders_max
    }
}

impl<H: Host> Shard<H> {
    /// Something in the room is due then: the home core does not sleep beyond it.
    pub(super) fn note_room_due(&self, due: Tick) {
        let due_before = self.room_due.fetch_min(due.as_ms(), Ordering::Relaxed);
        // Of what is due later than that the home core knows already, or is being told.
        if due.as_ms() < due_before {
            self.wake_home_by(due);
        }
    }
}
