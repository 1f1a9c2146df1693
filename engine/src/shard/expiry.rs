//! How a lease ends without its owner's doing: whether it is over, which core frees its cell, and
//! what its owner is told.

use super::{Shard, held_ms};
use crate::api::{Host, Loss, Lost, NotHeld};
use crate::cell::word::Word;
use crate::cell::{Cell, Ending, Seen};
use crate::session::SessionId;
use crate::time::lease::{Kind, Lease};
use crate::time::tick::Tick;
use types::Fence;
use types::Key;

/// A free key may take this much longer to be forgotten than it was to be remembered, so that not
/// each of them asks for the home core's attention.
const FORGET_LATE_MS: u64 = 600_000;

impl<H: Host> Shard<H> {
    /// Sees to it that a key that has just become free is forgotten in good time. The wheel would
    /// look at it when the lease that it had would have ended, and that may be tomorrow.
    #[inline(always)]
    pub(crate) fn forget_in_time(&self, cell: &Cell, slot: u32, lease: Lease, now: Tick) {
        if lease.deadline() > self.forget_late(now) {
            cell.end_lease_at(lease, now);
            self.forget_ended(cell, slot, now);
        }
    }

    /// The same for a key whose lease has been ended.
    pub(crate) fn forget_ended(&self, cell: &Cell, slot: u32, now: Tick) {
        let late = self.forget_late(now);
        if cell.is_armed_after(late) {
            self.ask_attention(cell, slot, late);
        }
    }

    #[inline]
    fn forget_late(&self, now: Tick) -> Tick {
        now.plus_ms(self.common.limits.idle_ms.max(FORGET_LATE_MS))
    }

    /// Whether a lease has ended, by its own deadline or with its session.
    #[inline]
    pub(crate) fn is_over(&self, seen: &Seen, now: Tick) -> bool {
        match seen.lease.kind() {
            Kind::Ended => true,
            Kind::Record => false,
            Kind::Timed => {
                seen.lease.deadline().is_over(now) || self.common.sessions.is_ended(seen.owner, now)
            }
            Kind::Session => self.common.sessions.is_ended(seen.owner, now),
        }
    }

    /// When a lease ends by itself.
    pub(crate) fn lease_end(&self, lease: Lease, owner: SessionId) -> Tick {
        match lease.kind() {
            Kind::Session => self.common.sessions.deadline(owner),
            _ => lease.deadline(),
        }
    }

    /// Ends and frees a plain lease that is over. The core that gets the word from HELD to FREE
    /// tells the loser.
    pub(crate) fn expire_plain(
        &self,
        cell: &Cell,
        word: Word,
        seen: &Seen,
        key: Key<'_>,
        now: Tick,
    ) {
        if seen.lease.kind() != Kind::Ended && !cell.try_end_lease(seen.lease) {
            return;
        }
        let freed = if fault!(ExpiryOverwrites) {
            cell.set_word(Word::free(word.fence()));
            true
        } else {
            self.free_plain(cell, word, seen)
        };
        if freed {
            self.tell_lost(key, word.fence(), seen, now);
        }
    }

    /// As `expire_plain`, for a word that may have waiters. `false`: the grant stands, because
    /// another thread of its session renewed it at the last moment. Look again: an answer that says
    /// "expired" must not leave it held.
    pub(crate) fn expire(
        &self,
        slot: u32,
        word: Word,
        seen: &Seen,
        key: Key<'_>,
        now: Tick,
    ) -> bool {
        let cell = self.table.cell(slot);
        if word.is_plain_held() {
            self.expire_plain(cell, word, seen, key, now);
        }
        // Waiters may have come between, or have been there before.
        if cell.word().belongs_to_room() && !fault!(ExpiryForgetsWaiters) {
            let mut room = self.room.lock();
            if cell.word().belongs_to_room() {
                drop(self.contended(&mut room, slot, now));
            }
        }
        let left = cell.word();
        !left.is_held() || left.fence() != word.fence() || fault!(ExpiryUnproven)
    }

    /// Frees what a session that has ended still has in this cell.
    pub(crate) fn vacate(&self, slot: u32, owner: SessionId, now: Tick) {
        loop {
            let cell = self.table.cell(slot);
            let word = cell.word();
            if word.belongs_to_room() {
                let mut room = self.room.lock();
                if cell.word().belongs_to_room() {
                    return self.contended(&mut room, slot, now).drop_holds_of(owner);
                }
                continue;
            }
            match self.seen(cell, word) {
                Some(seen) if seen.owner == owner && word.is_plain_held() => {
                    // Held by us, so it cannot be evicted before the word changes, and its key can
                    // be read.
                    let key = self.table.key_of(slot);
                    self.expire_plain(cell, word, &seen, key.key(), now);
                    self.forget_in_time(cell, slot, seen.lease.ended(), now);
                }
                _ => return,
            }
        }
    }

    /// Why a free key is not held under `fence`.
    pub(crate) fn why_free(&self, cell: &Cell, word: Word, fence: Fence) -> NotHeld {
        if fence > word.fence() {
            // Fences of a key only rise, those of its cells before this one included.
            return NotHeld::Never;
        }
        if fence < word.fence() {
            return NotHeld::Free;
        }
        match cell.ending(word) {
            Ending::Unknown => NotHeld::Free,
            Ending::Released => NotHeld::Released,
            Ending::Expired => NotHeld::Expired,
            Ending::Taken => NotHeld::Forced,
        }
    }

    pub(crate) fn tell_lost(&self, key: Key<'_>, fence: Fence, seen: &Seen, now: Tick) {
        let deadline = seen.lease.deadline();
        // Of a lease that another core has ended it is not known whether it was a session's, whose
        // deadline says nothing.
        let expired = match seen.lease.kind() {
            Kind::Session => false,
            Kind::Ended => deadline.is_over(now) && !self.common.sessions.is_ended(seen.owner, now),
            Kind::Timed | Kind::Record => deadline.is_over(now),
        };
        let why = if expired {
            Lost::Expired
        } else if self.common.sessions.is_ended(seen.owner, now) {
            Lost::SessionEnded
        } else {
            Lost::Forced
        };
        let late_ms = match expired {
            true => deadline.over_at().ms_until(now),
            false => 0,
        };
        self.common.host.lost(&Loss {
            key,
            fence,
            owner: seen.owner,
            why,
            late_ms,
            held_ms: held_ms(seen.since_low32, now),
        });
    }
}
