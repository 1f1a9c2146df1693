//! One shard: the file where table, room, wheel and fences meet. Here are the verbs as far as a CAS can decide them; the short way
//! that most calls take is in `engine/short_way.rs`, what happens under the room mutex in `contended.rs`, what the home core does in
//! `home.rs`.
//!
//! Who may touch what. Any core may change a plain lock word by CAS. Only the holder of the room mutex changes a word that
//! is QUEUED or RICH, and only it touches queues and records. Only the home core, holding `home`, turns the wheel and
//! evicts cells. Nobody waits for anybody while holding a mutex, and `home` is never taken inside `room`.

pub(crate) mod claim;
mod contended;
mod describe;
mod expiry;
mod hand_off;
pub(crate) mod home;
pub(crate) mod inbox;
pub(crate) mod noted;
mod record;
pub(crate) mod room;
mod take_over;

use crate::cell::{self, Seen, Terms};
use crate::fault::{self, Fault};
use crate::fence::{Bounds, Fence};
use crate::home::{Home, LagRecord};
use crate::inbox::AWAKE;
use crate::key::Key;
use crate::note::NoteBudget;
use crate::request::{Acquire, Grant, Host, NotHeld, Outcome, Release, Renewal, Span};
use crate::room::Room;
use crate::session::{SessionId, Sessions};
use crate::slab::NONE;
use crate::sync::{AtomicU32, AtomicU64, Mutex};
use crate::table::Table;
use crate::table::epoch::{self, Guard};
use crate::tick::Tick;
use crate::word::{Kind, Word};
use std::sync::Arc;

/// What all shards share.
pub(crate) struct Common<H: Host> {
    pub(crate) host: H,
    pub(crate) sessions: Sessions,
    pub(crate) limits: Limits,
    /// Waiters of all shards.
    pub(crate) waiters: AtomicU32,
    /// Notes of all shards.
    pub(crate) notes: Arc<NoteBudget>,
}

/// The bounds that a shard checks itself.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) waiters_per_key_max: u32,
    pub(crate) waiters_max: u32,
    pub(crate) shared_holders_max: u32,
    pub(crate) idle_ms: u64,
    pub(crate) pauses_before_refusal: u32,
}

pub(crate) struct Shard<H: Host> {
    pub(crate) number: usize,
    pub(crate) common: Arc<Common<H>>,
    pub(crate) table: Table,
    pub(crate) bounds: Bounds,
    pub(crate) room: Mutex<Room<H::Waiter>>,
    /// No waiter's deadline lies before this tick. Written under the room mutex.
    pub(crate) room_due: AtomicU64,
    /// `ASLEEP | the first cell that asks for the home core's attention`.
    pub(crate) inbox: AtomicU32,
    /// Until when the home sleeps, if it does; or `AWAKE`. See `inbox.rs`.
    pub(crate) rests_until: AtomicU64,
    pub(crate) home: Mutex<Home>,
    pub(crate) lag: LagRecord,
}

/// A wish to wait: until when, and how to tell.
pub(crate) struct Wait<W> {
    pub(crate) deadline: Tick,
    pub(crate) waiter: W,
}

/// Where a call found what it was about; the caller's seat remembers the cell.
pub(crate) struct Answer<T> {
    pub(crate) outcome: T,
    pub(crate) slot: u32,
}

impl<H: Host> Shard<H> {
    pub(crate) fn new(
        number: usize,
        common: Arc<Common<H>>,
        table: Table,
        floor: Fence,
        ceiling: Fence,
        now: Tick,
    ) -> Self {
        Shard {
            number,
            common,
            table,
            bounds: Bounds::new(floor, ceiling),
            room: Mutex::new(Room::new(now)),
            room_due: AtomicU64::new(Tick::NEVER.as_ms()),
            inbox: AtomicU32::new(NONE),
            rests_until: AtomicU64::new(AWAKE),
            home: Mutex::new(Home::new(now)),
            lag: LagRecord::new(),
        }
    }

    /// Grants, queues or refuses one acquire. Runs to completion on the calling core; never waits.
    pub(crate) fn acquire(
        &self,
        request: &Acquire<'_>,
        hash: u64,
        owner: SessionId,
        wait: Option<Wait<H::Waiter>>,
        now: Tick,
    ) -> Answer<Outcome> {
        let guard = epoch::pin();
        let terms = Terms::new(owner, request.span, now);
        // What lives in a record is under the room mutex from the start.
        if request.is_plain()
            && let Some(answer) = self.acquire_plain(request, hash, &terms, wait.is_some(), &guard)
        {
            return answer;
        }
        self.acquire_contended(request, hash, &terms, wait, &guard)
    }

    /// An exclusive acquire as far as a CAS can decide it. `None`: it takes the room.
    fn acquire_plain(
        &self,
        request: &Acquire<'_>,
        hash: u64,
        terms: &Terms,
        may_wait: bool,
        guard: &Guard,
    ) -> Option<Answer<Outcome>> {
        let now = terms.now;
        let mut pauses = self.common.limits.pauses_before_refusal;
        loop {
            let found = self
                .table
                .find_or_insert(request.key, hash, &self.bounds, now, guard);
            let (found, is_new) = match found {
                Ok(found) => found,
                Err(full) => {
                    return Some(Answer {
                        outcome: Outcome::Busy(full.into()),
                        slot: NONE,
                    });
                }
            };
            let (cell, slot, word) = (self.table.cell(found.slot), found.slot, found.word);
            if is_new {
                self.introduce(cell, slot);
            }
            if word.is_plain_free() {
                let fence = self.bounds.next_after(word.fence());
                if !self.may_issue(fence) {
                    return (!may_wait).then_some(Answer {
                        outcome: Outcome::AtCeiling,
                        slot,
                    });
                }
                let is_taken = match request.note {
                    [] => cell.try_grant(word, fence, terms),
                    // Without a block for its note it takes a record.
                    note => self.try_grant_noted(cell, word, fence, terms, note)?,
                };
                if is_taken {
                    self.mind_ceiling(fence);
                    let until = self.watch(cell, slot, terms);
                    return Some(Answer {
                        outcome: Outcome::Granted(Grant {
                            fence,
                            until,
                            count: 1,
                        }),
                        slot,
                    });
                }
                continue;
            }
            if !word.is_plain_held() {
                return None;
            }
            match cell.seen(word) {
                // An expired lease does not wait for the wheel.
                Some(seen) if self.is_over(&seen, now) => {
                    // The lease that was found over, and no later one.
                    if let Some(seen) = self.with_since(word, seen) {
                        self.expire_plain(cell, word, &seen, request.key, now);
                    }
                }
                Some(seen) if request.reentrant && seen.owner == terms.owner => return None,
                _ if may_wait => return None,
                // Granted a moment ago, and perhaps free again in another: a caller that is refused now and asks again at
                // once would do nothing but take the line away from whoever is about to give the lock back.
                // (Since when a lock with a note is held is not worth a look at the note.)
                seen if pauses > 0
                    && !word.is_noted()
                    && seen.is_none_or(|seen| seen.since_low32 == now.low32()) =>
                {
                    (0..std::mem::take(&mut pauses)).for_each(|_| std::hint::spin_loop());
                }
                _ => {
                    let holder = self.describe_plain(cell, word, request.asks_who, 0, now);
                    return Some(Answer {
                        outcome: Outcome::Held(holder),
                        slot,
                    });
                }
            }
        }
    }

    /// Extends the lease named by key and fence, if it is the caller's and has not ended.
    pub(crate) fn renew(
        &self,
        key: Key<'_>,
        hash: u64,
        fence: Fence,
        owner: SessionId,
        span: Span,
        now: Tick,
    ) -> Renewal {
        let guard = epoch::pin();
        let terms = Terms::new(owner, span, now);
        if span == Span::Forever {
            return self.renew_contended(key, hash, fence, &terms, &guard);
        }
        loop {
            let Some(found) = self.table.find(key, hash, &guard) else {
                return Renewal::NotHeld(NotHeld::Free);
            };
            let (cell, word) = (self.table.cell(found.slot), found.word);
            if !word.is_held() {
                return Renewal::NotHeld(self.why_free(cell, word, fence));
            }
            let seen = match self.seen(cell, word) {
                None if word.is_plain_held() => return Renewal::NotHeld(NotHeld::OtherFence),
                Some(seen) if seen.lease.kind() != Kind::Record => seen,
                // In a record, or just being handed over: the room knows.
                _ => break,
            };
            if let Some(why) = self.why_not(word, &seen, fence, owner) {
                return Renewal::NotHeld(why);
            }
            if self.is_over(&seen, now) {
                if !self.expire(found.slot, word, &seen, key, now) {
                    continue;
                }
                return Renewal::NotHeld(NotHeld::Expired);
            }
            match cell.renew(fence, terms.deadline, now) {
                cell::Renewal::Renewed => {
                    let until = match seen.lease.kind() {
                        Kind::Session => self.common.sessions.deadline(owner),
                        _ => self.watch(cell, found.slot, &terms),
                    };
                    return Renewal::Renewed { until };
                }
                cell::Renewal::NotHeld => return Renewal::NotHeld(NotHeld::OtherFence),
                cell::Renewal::Overdue => return Renewal::NotHeld(NotHeld::Expired),
                cell::Renewal::InRecord => break,
            }
        }
        self.renew_contended(key, hash, fence, &terms, &guard)
    }

    /// Frees the lock named by key and fence, if it is the caller's. Tells how long it had been held, too.
    pub(crate) fn release(
        &self,
        key: Key<'_>,
        hash: u64,
        fence: Fence,
        owner: SessionId,
        now: Tick,
    ) -> Answer<(Release, u64)> {
        let not_held = |why, slot| Answer {
            outcome: (Release::NotHeld(why), 0),
            slot,
        };
        let guard = epoch::pin();
        loop {
            let Some(found) = self.table.find(key, hash, &guard) else {
                return not_held(NotHeld::Free, NONE);
            };
            let (cell, slot, word) = (self.table.cell(found.slot), found.slot, found.word);
            if word.belongs_to_room() {
                return Answer {
                    outcome: self.release_contended(key, hash, fence, owner, now, &guard),
                    slot,
                };
            }
            if !word.is_held() {
                return not_held(self.why_free(cell, word, fence), slot);
            }
            // Not published yet: a fence that nobody has been told cannot be the caller's.
            let Some(seen) = self.seen(cell, word) else {
                return not_held(NotHeld::OtherFence, slot);
            };
            if let Some(why) = self.why_not(word, &seen, fence, owner) {
                return not_held(why, slot);
            }
            if self.is_over(&seen, now) {
                if !self.expire(slot, word, &seen, key, now) {
                    continue;
                }
                return not_held(NotHeld::Expired, slot);
            }
            if self.free_plain(cell, word, &seen) {
                self.forget_in_time(cell, slot, seen.lease, now);
                return Answer {
                    outcome: (
                        Release::Released { count: 0 },
                        held_ms(seen.since_low32, now),
                    ),
                    slot,
                };
            }
        }
    }

    /// Why the key is not held under `fence`. Whether it is was asked before.
    pub(crate) fn why_not_held(&self, key: Key<'_>, hash: u64, fence: Fence) -> NotHeld {
        match self.table.find(key, hash, &epoch::pin()) {
            None => NotHeld::Free,
            Some(found) if found.word.is_held() => NotHeld::OtherFence,
            Some(found) => self.why_free(self.table.cell(found.slot), found.word, fence),
        }
    }

    /// Allows fences up to `to`, and serves whoever was waiting for them.
    pub(crate) fn raise_ceiling(&self, to: Fence, now: Tick) {
        if !fault::injected(Fault::CeilingServesFirst) {
            self.bounds.raise_ceiling(to);
        }
        let mut room = self.room.lock();
        for slot in room.take_starved() {
            if self.table.cell(slot).word().belongs_to_room() {
                drop(self.contended(&mut room, slot, now));
            } else {
                // Whoever waited has given up.
                room.tidy_line(slot);
            }
        }
        if fault::injected(Fault::CeilingServesFirst) {
            self.bounds.raise_ceiling(to);
        }
    }

    /// Whether this fence lies within what has been made durable.
    #[inline]
    pub(crate) fn may_issue(&self, fence: Fence) -> bool {
        fence <= self.bounds.ceiling() || fault::injected(Fault::CeilingUnchecked)
    }

    /// Says so when fences run low.
    #[inline]
    pub(crate) fn mind_ceiling(&self, issued: Fence) {
        if self.bounds.note_issued(issued) {
            self.common.host.ceiling_low(self.number);
        }
    }

    /// Why a published grant is not the one the caller names; `None` if it is.
    #[inline]
    fn why_not(&self, word: Word, seen: &Seen, fence: Fence, owner: SessionId) -> Option<NotHeld> {
        if fault::injected(Fault::FenceUnchecked) {
            return None;
        }
        if word.fence() != fence {
            Some(NotHeld::OtherFence)
        } else if seen.owner != owner {
            Some(NotHeld::OtherOwner)
        } else {
            None
        }
    }
}

/// How long ago `since` was. Exact for 24 days, which no lease reaches without being renewed a good many times. By the clock
/// of another core it may lie a moment ahead: that is now.
pub(crate) fn held_ms(since_low32: u32, now: Tick) -> u64 {
    let held_ms = now.low32().wrapping_sub(since_low32);
    u64::try_from(held_ms as i32).unwrap_or(0)
}
