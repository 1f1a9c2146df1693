//! What only a shard's home core does: turn the wheel, expire what is due, evict what is idle.
//!
//! There is one wheel entry per cell, not per grant: a renewal or a new grant moves nothing. When
//! the entry fires, the cell is looked at and the entry is armed for whatever comes next. Only a
//! lease that ends before the wheel would look needs more: its core puts the cell into the shard's
//! inbox, and so does the maker of a new cell.
//!
//! Why no deadline is missed. The home core first writes `armed` as far away as it can, then takes
//! its place in the lease's modification order (`Cell::disarm`), and only then decides. A grant
//! that comes before it in that order is seen; one that comes after it sees `armed` as it was
//! written, finds its own deadline earlier, and asks.

use super::inbox::NEWBORN;
use super::{Home, Shard};
use crate::api::{Host, Progress};
use crate::cell::ARM_AHEAD_MS_MAX;
use crate::memory::slot::{NONE, SLOT_MAX};
use crate::sync::Ordering;
use crate::table::{Table, epoch};
use crate::time::lease::Kind;
use crate::time::tick::Tick;
use crate::time::wheel::{Due, Links, Wheel};

impl<H: Host> Shard<H> {
    /// Does what is due by `now`, at most `budget` steps of it. One thread at a time; a second one
    /// is sent away.
    pub(crate) fn advance(&self, now: Tick, budget: &mut u32) -> Progress {
        let Some(mut home) = self.home.try_lock() else {
            return Progress {
                more: false,
                next_due: Some(now.plus_ms(1)),
            };
        };
        // A caller whose clock lies behind the hand would find entries due that are not over by its
        // clock, arm them for a moment that has passed, and get them again at once, for ever.
        let now = now.max(home.wheel.now());
        let budget_given = *budget;
        // Waiters first: there are few of them, and they are in a hurry.
        let mut more = self.advance_room(now, budget);
        let inbox_left = self.take_inbox(&mut home, now, budget);
        more |= inbox_left || self.turn_wheel(&mut home, now, budget);
        // Giving a few megabytes back takes the allocator up to a millisecond: only when there is
        // nothing else to do.
        if *budget == budget_given {
            self.table.free_outgrown();
        }
        let room_due = Tick::from_bits(self.room_due.load(Ordering::Relaxed));
        let next_due = [
            home.wheel.next_due(),
            (room_due != Tick::NEVER).then_some(room_due),
        ]
        .into_iter()
        .flatten()
        .min();
        Progress { more, next_due }
    }

    fn take_inbox(&self, home: &mut Home, now: Tick, budget: &mut u32) -> bool {
        loop {
            if home.inbox_rest == NONE {
                // Acquire, paired with the push in `link`. ASLEEP goes with it: we are awake.
                home.inbox_rest = self.inbox.swap(NONE, Ordering::AcqRel) & SLOT_MAX;
            }
            let slot = home.inbox_rest;
            if slot == NONE {
                return false;
            }
            if *budget == 0 {
                return true;
            }
            *budget -= 1;
            let cell = self.table.cell(slot);
            // Out of the inbox before we look: a core that asks from here on puts it in again.
            let taken = cell.inbox.swap(0, Ordering::AcqRel);
            home.inbox_rest = taken & SLOT_MAX;
            let links = self.links(home);
            if Wheel::is_linked(&links, slot) {
                home.wheel.remove(&links, slot);
            } else if taken & NEWBORN == 0 && !fault!(WheelTakesAnyCell) {
                // A core asked so late that the cell has been evicted since. It may be in
                // preparation for another key by now, and the inserter that prepares it may have to
                // give it back; once it is in the index, it is introduced.
                continue;
            }
            self.look(home, slot, now);
        }
    }

    fn turn_wheel(&self, home: &mut Home, now: Tick, budget: &mut u32) -> bool {
        loop {
            let links = self.links(home);
            match home.wheel.pop_due(&links, now, budget) {
                Due::Entry(slot) => self.look(home, slot, now),
                Due::Done => return false,
                Due::OutOfBudget => return true,
            }
        }
    }

    /// Looks at a cell that is in no wheel, does what is due, and arms it again unless it is gone.
    fn look(&self, home: &mut Home, slot: u32, now: Tick) {
        let cell = self.table.cell(slot);
        let lease = cell.disarm(now);
        let mut word = cell.word();
        let mut at = None;
        if word.is_held() {
            match self.seen(cell, word) {
                // Its grantor will see that we look late, and ask again. A record in the making is
                // no different.
                None => at = Some(now.plus_ms(1)),
                Some(seen) if seen.lease.kind() == Kind::Record => {
                    if seen.lease.deadline().is_over(now) {
                        self.settle_record(slot, now);
                        at = Some(self.next_look(slot, now));
                    } else {
                        at = Some(seen.lease.deadline().over_at());
                    }
                }
                Some(seen) if self.is_over(&seen, now) => {
                    if seen.lease.kind() == Kind::Timed {
                        self.lag
                            .record(seen.lease.deadline().over_at().ms_until(now));
                    }
                    // We are the home core, so the cell is not evicted under us and its key can be
                    // read.
                    self.expire(slot, word, &seen, self.table.key_of(slot).key(), now);
                    word = cell.word();
                    if !word.is_plain_free() {
                        at = Some(self.next_look(slot, now));
                    }
                }
                Some(seen) => at = Some(self.lease_end(seen.lease, seen.owner).over_at()),
            }
        }
        let at = match at {
            Some(at) => at,
            None => {
                let idle_ms = self.common.limits.idle_ms;
                let idle_until = lease.deadline().plus_ms(idle_ms);
                if lease.deadline() > now {
                    // Not at the end of the idle time yet: a session that takes the key meanwhile,
                    // for as long as it was taken before, would have to ask for an earlier look.
                    lease.deadline()
                } else if idle_until > now {
                    idle_until
                } else if self.table.evict(slot, &self.bounds, &epoch::pin()) {
                    return;
                } else {
                    // In use after all, or waited for at the ceiling: its next grantor asks if that
                    // is too late.
                    now.plus_ms(idle_ms)
                }
            }
        };
        let at = at.max(now.plus_ms(1)).min(now.plus_ms(ARM_AHEAD_MS_MAX));
        cell.set_armed(at);
        let links = self.links(home);
        home.wheel.insert(&links, slot, at);
    }

    /// Drops what is over of a record that is due, which also finds out when to look at it next:
    /// its sessions may have been kept alive, which the wheel is not told.
    fn settle_record(&self, slot: u32, now: Tick) {
        let mut room = self.room.lock();
        if !self.table.cell(slot).word().belongs_to_room() {
            return;
        }
        self.contended(&mut room, slot, now).record_lag();
    }

    fn links(&self, home: &Home) -> CellLinks<'_> {
        CellLinks {
            table: &self.table,
            hand: home.wheel.now(),
        }
    }

    /// When to look again at a cell that has just changed hands or records.
    fn next_look(&self, slot: u32, now: Tick) -> Tick {
        let cell = self.table.cell(slot);
        match cell.seen(cell.word()) {
            Some(seen) if seen.lease.kind() == Kind::Record => seen.lease.deadline().over_at(),
            Some(seen) => self.lease_end(seen.lease, seen.owner).over_at(),
            None => now.plus_ms(1),
        }
    }
}

/// The wheel's links, in the cells. A cell is due when it was armed for.
///
/// Seen from the hand and not from now: an armed cell lies ahead of the hand, however long the
/// wheel has not been turned. Should it lie so far ahead that 32 bits mislead, it comes out early,
/// and is only looked at once more.
struct CellLinks<'a> {
    table: &'a Table,
    hand: Tick,
}

impl Links for CellLinks<'_> {
    fn next(&self, entry: u32) -> u32 {
        self.table.cell(entry).wheel_next.load(Ordering::Relaxed)
    }
    fn prev(&self, entry: u32) -> u32 {
        self.table.cell(entry).wheel_prev.load(Ordering::Relaxed)
    }
    fn set_next(&self, entry: u32, next: u32) {
        self.table
            .cell(entry)
            .wheel_next
            .store(next, Ordering::Relaxed);
    }
    fn set_prev(&self, entry: u32, prev: u32) {
        self.table
            .cell(entry)
            .wheel_prev
            .store(prev, Ordering::Relaxed);
    }
    fn due(&self, entry: u32) -> Tick {
        self.table.cell(entry).armed_for(self.hand)
    }
}
