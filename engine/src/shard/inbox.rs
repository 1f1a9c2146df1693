//! How any core asks for the home core's attention: a lock-free list through the cells themselves.
//! A cell is on it once at most, so it needs no bound. What the home core does with it is in
//! `home.rs`.
//!
//! **A home that sleeps.** A home with nothing to do says until when it sleeps (`rests_until`), and
//! puts ASLEEP into the head of its empty inbox (`rest`). What asks for attention then lies there
//! until it wakes, which is soon enough for all but what is due earlier; for that the asker has it
//! woken. Why no asker leaves that to another one that does not do it:
//!
//! 1. The cell was linked before ASLEEP was there. Then the inbox was not empty, and the home does
//!    not sleep.
//! 2. The cell is linked behind ASLEEP. The core that links it sees the flag, and then changes the
//!    cell's `inbox` field once more. Another core that asks for the same cell, and so does not
//!    link it, has written its lease before it set its own flag in that field. Set before the
//!    change, the lease is seen by the linking core, which goes by the earliest end that is known
//!    of the cell. Set after it, the asker sees ASLEEP itself, and goes by its own.
//! 3. ASLEEP is gone again. The home has taken the list since, and with the cell its lease, as
//!    ever.
//!
//! Waiters and sessions come under a mutex each, under which the home also says that it sleeps:
//! there is no in between.

use super::Shard;
use crate::api::Host;
use crate::cell::{Cell, Terms};
use crate::memory::slot::{NONE, SLOT_MAX};
use crate::sync::Ordering;
use crate::time::lease::Kind;
use crate::time::tick::Tick;

/// In a cell's `inbox` field: the cell is in the inbox or about to be.
pub(crate) const REQUESTED: u32 = 1 << 31;

/// Beside it: the cell has a new key, and is in no wheel yet.
pub(crate) const NEWBORN: u32 = 1 << 30;

/// In the head of a shard's inbox: the home sleeps until `rests_until`.
pub(crate) const ASLEEP: u32 = 1 << 31;

const _: () = assert!(
    SLOT_MAX & (REQUESTED | NEWBORN | ASLEEP) == 0,
    "flags and link share a word"
);

impl<H: Host> Shard<H> {
    /// Makes sure that the wheel looks at this cell when the lease just written ends. Returns that
    /// moment.
    #[inline(always)]
    pub(crate) fn watch(&self, cell: &Cell, slot: u32, terms: &Terms) -> Tick {
        let until = match terms.kind {
            Kind::Session => self.common.sessions.deadline(terms.owner),
            _ => terms.deadline,
        };
        let due = until.over_at();
        if cell.is_armed_after(due) {
            self.ask_attention(cell, slot, due);
        }
        until
    }

    /// Asks the home core to look at a cell that it knows, by `due` at the latest.
    #[cold]
    pub(crate) fn ask_attention(&self, cell: &Cell, slot: u32, due: Tick) {
        self.put_into_inbox(cell, slot, REQUESTED, due);
    }

    /// Makes a cell known to the home core, once its key is in the index.
    #[cold]
    pub(crate) fn introduce(&self, cell: &Cell, slot: u32) {
        // The grant that follows says until when. A key that is never granted is in no hurry to be
        // forgotten.
        self.put_into_inbox(cell, slot, REQUESTED | NEWBORN, Tick::NEVER);
    }

    /// Puts a cell into the inbox of the home core, unless it is there already, and has the home
    /// woken if it would oversleep.
    fn put_into_inbox(&self, cell: &Cell, slot: u32, flags: u32, due: Tick) {
        let head = if cell.inbox.fetch_or(flags, Ordering::AcqRel) & REQUESTED == 0 {
            self.link(cell, slot)
        } else {
            self.inbox.load(Ordering::Acquire)
        };
        if head & ASLEEP != 0 {
            self.wake_in_time(cell, due);
        }
    }

    /// Puts a cell at the head of the inbox. Returns what the head was.
    fn link(&self, cell: &Cell, slot: u32) -> u32 {
        let mut link = NONE;
        let mut head = self.inbox.load(Ordering::Relaxed);
        loop {
            let first = head & SLOT_MAX;
            if fault!(LinkOverwritesFlags) {
                cell.inbox.store(REQUESTED | first, Ordering::Relaxed);
            } else {
                // The link is ours alone, the flags beside it are not. And what others did before
                // they set theirs is seen by the home core only if we do not come between with a
                // plain store.
                cell.inbox.fetch_xor(link ^ first, Ordering::Relaxed);
            }
            link = first;
            // Release, paired with the swap of the home core: it finds the link written. Acquire:
            // behind ASLEEP we find until when it sleeps.
            match self.inbox.compare_exchange_weak(
                head,
                slot | head & ASLEEP,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return head,
                Err(now) => head = now,
            }
        }
    }

    /// Wakes a home that sleeps longer than to the end of the lease that stands in this cell, or
    /// than to `due`.
    #[cold]
    fn wake_in_time(&self, cell: &Cell, due: Tick) {
        // Changes nothing: it takes our place among the cores that ask for the same cell (the
        // module's second case).
        cell.inbox.fetch_or(0, Ordering::AcqRel);
        let known = match cell.seen(cell.word()) {
            Some(seen) if !fault!(LinkerMindsItself) => self.lease_end(seen.lease, seen.owner),
            _ => Tick::NEVER,
        };
        self.wake_home_by(due.min(known));
    }

    /// Wakes the home if it sleeps beyond `due`. One of the callers that find that out does it.
    pub(crate) fn wake_home_by(&self, due: Tick) {
        if self.rests_until.is_slept_over(due) {
            self.common.host.wake(self.number);
        }
    }

    /// The home is about to sleep until `until`. `false`: something has come that it must look at
    /// first.
    pub(crate) fn rest(&self, until: Tick) -> bool {
        self.rests_until.announce(until);
        // Release publishes until when; Acquire, paired with the push, is for the next look.
        let announce = || {
            self.inbox
                .compare_exchange(NONE, ASLEEP, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        if fault!(SleeperLooksFirst) {
            let is_empty = self.inbox.load(Ordering::Acquire) == NONE;
            announce();
            return is_empty;
        }
        if !announce() {
            return false;
        }
        // Under the mutex under which waiters come: either we see when they are due, or they see
        // that we sleep.
        let _room = self.room.lock();
        self.room_due.load(Ordering::Relaxed) >= until.as_ms()
    }
}
