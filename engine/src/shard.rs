//! One shard: the file where table, room, wheel and fences meet. Here are the verbs as most calls take them, a find and a
//! CAS; what happens under the room mutex is in `contended.rs`, what the home core does in `home.rs`.
//!
//! Who may touch what. Any core may change a plain lock word by CAS. Only the holder of the room mutex changes a word that
//! is QUEUED or RICH, and only it touches queues and records. Only the home core, holding `home`, turns the wheel and
//! evicts cells. Nobody waits for anybody while holding a mutex, and `home` is never taken inside `room`.

use crate::cell::{self, Cell, Seen, Terms};
use crate::fault::{self, Fault};
use crate::fence::{Bounds, Fence};
use crate::home::{Home, LagRecord};
use crate::key::Key;
use crate::note::NoteBudget;
use crate::request::{
    Acquire, Grant, Holder, Host, Loss, Lost, Mode, NotHeld, Outcome, Release, Renewal, Span,
};
use crate::room::Room;
use crate::session::{SessionId, Sessions};
use crate::slab::{NONE, SLOT_MAX};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use crate::table::reclaim::{self, Guard};
use crate::table::{Found, Table};
use crate::tick::Tick;
use crate::word::{Kind, Lease, Word};
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
    /// The first cell that asks for the home core's attention.
    pub(crate) inbox: AtomicU32,
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
        let guard = reclaim::pin();
        let terms = self.terms(owner, request.span, now);
        // What lives in a record is under the room mutex from the start.
        if request.is_plain()
            && let Some(answer) = self.acquire_plain(request, hash, &terms, wait.is_some(), &guard)
        {
            return answer;
        }
        self.acquire_contended(request, hash, &terms, wait, &guard)
    }

    /// What most calls come to, and nothing else: the key has a cell, it is free, and one CAS takes it. `None`: nothing has
    /// happened, and `acquire` decides. Kept short, because it is inlined into every caller.
    #[inline]
    pub(crate) fn take_free(
        &self,
        key: Key<'_>,
        hash: u64,
        terms: &Terms,
    ) -> Option<Answer<Grant>> {
        let guard = reclaim::pin();
        let (cell, Found { slot, word }) = self.table.find_cell(key, hash, &guard)?;
        let fence = self.bounds.next_after(word.fence());
        if !word.is_plain_free() || !self.may_issue(fence) || !cell.try_grant(word, fence, terms) {
            return None;
        }
        self.mind_ceiling(fence);
        let until = self.watch(cell, slot, terms);
        let count = 1;
        Some(Answer {
            outcome: Grant {
                fence,
                until,
                count,
            },
            slot,
        })
    }

    /// The same for a release: the key is held by the caller alone, under this fence, nobody waits, and one CAS frees it.
    /// Returns the cell and for how long it was held. `None`: nothing has happened, and `release` decides.
    #[inline]
    pub(crate) fn give_back(
        &self,
        key: Key<'_>,
        hash: u64,
        fence: Fence,
        owner: SessionId,
        now: Tick,
    ) -> Option<Answer<u64>> {
        let guard = reclaim::pin();
        let (cell, Found { slot, word }) = self.table.find_cell(key, hash, &guard)?;
        if word != Word::held(fence) {
            return None;
        }
        let seen = cell.seen(word)?;
        if seen.owner != owner || seen.lease.has_ended(now) || !cell.try_free(word) {
            return None;
        }
        Some(Answer {
            outcome: held_ms(seen.since_low32, now),
            slot,
        })
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
                if cell.try_grant(word, fence, terms) {
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
                    self.expire_plain(cell, word, &seen, request.key, now)
                }
                Some(seen) if request.reentrant && seen.owner == terms.owner => return None,
                _ if may_wait => return None,
                // Granted a moment ago, and perhaps free again in another: a caller that is refused now and asks again at
                // once would do nothing but take the line away from whoever is about to give the lock back.
                seen if pauses > 0 && seen.is_none_or(|seen| seen.since_low32 == now.low32()) => {
                    (0..std::mem::take(&mut pauses)).for_each(|_| std::hint::spin_loop());
                }
                _ => {
                    let holder = self.describe_plain(cell, word, 0, now);
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
        let guard = reclaim::pin();
        let terms = self.terms(owner, span, now);
        if span == Span::Forever {
            return self.renew_contended(key, hash, fence, &terms, &guard);
        }
        loop {
            let Some(found) = self.table.find(key, hash, &guard) else {
                return Renewal::NotHeld(NotHeld::Free);
            };
            let (cell, word) = (self.table.cell(found.slot), found.word);
            if !word.is_held() {
                return Renewal::NotHeld(NotHeld::Free);
            }
            let seen = match cell.seen(word) {
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
        let guard = reclaim::pin();
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
                return not_held(NotHeld::Free, slot);
            }
            // Not published yet: a fence that nobody has been told cannot be the caller's.
            let Some(seen) = cell.seen(word) else {
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
            if cell.try_free(word) {
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

    /// Takes the lock away from whoever holds it under `fence`. `false`: nobody does.
    pub(crate) fn force(&self, key: Key<'_>, hash: u64, fence: Fence, now: Tick) -> bool {
        let guard = reclaim::pin();
        self.force_contended(key, hash, fence, now, &guard)
    }

    /// Frees what a session that has ended still has in this cell.
    pub(crate) fn vacate(&self, slot: u32, owner: SessionId, now: Tick) {
        loop {
            let cell = self.table.cell(slot);
            let word = cell.word();
            if word.belongs_to_room() {
                let mut room = self.room.lock();
                if cell.word().belongs_to_room() {
                    self.drop_holders(&mut room, slot, now, |holder| holder.owner == owner);
                    self.settle(&mut room, slot, now);
                    return;
                }
                continue;
            }
            match cell.seen(word) {
                Some(seen) if seen.owner == owner && word.is_plain_held() => {
                    // Held by us, so it cannot be evicted before the word changes, and its key can be read.
                    let key = self.table.key_of(slot);
                    self.expire_plain(cell, word, &seen, key.key(), now);
                }
                _ => return,
            }
        }
    }

    /// Calls `visit` with the fence of each grant under which `owner` holds this cell.
    pub(crate) fn each_hold(&self, slot: u32, owner: SessionId, mut visit: impl FnMut(Fence)) {
        let cell = self.table.cell(slot);
        let mut word = cell.word();
        if word.is_rich() {
            let room = self.room.lock();
            if let Some(record) = room.record(slot) {
                let holders = record.holders.iter().filter(|holder| holder.owner == owner);
                holders.for_each(|holder| visit(holder.fence));
                return;
            }
            word = cell.word();
        }
        if cell.seen(word).is_some_and(|seen| seen.owner == owner) {
            visit(word.fence());
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
                self.settle(&mut room, slot, now);
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

    #[inline]
    pub(crate) fn terms(&self, owner: SessionId, span: Span, now: Tick) -> Terms {
        let (kind, deadline) = match span {
            Span::Ms(ttl_ms) => (Kind::Timed, now.plus_ms(ttl_ms)),
            Span::Session => (Kind::Session, now),
            Span::Forever => (Kind::Timed, Tick::NEVER),
        };
        Terms {
            owner,
            kind,
            deadline,
            now,
            since_low32: now.low32(),
        }
    }

    /// Says so when fences run low.
    #[inline]
    pub(crate) fn mind_ceiling(&self, issued: Fence) {
        if self.bounds.note_issued(issued) {
            self.common.host.ceiling_low(self.number);
        }
    }

    /// Whether a lease has ended, by its own deadline or with its session.
    #[inline]
    pub(crate) fn is_over(&self, seen: &Seen, now: Tick) -> bool {
        match seen.lease.kind() {
            Kind::Ended => true,
            Kind::Record => false,
            Kind::Timed => {
                seen.lease.deadline() <= now || self.common.sessions.is_ended(seen.owner, now)
            }
            Kind::Session => self.common.sessions.is_ended(seen.owner, now),
        }
    }

    /// Ends and frees a plain lease that is over. Whoever gets the word from HELD to FREE tells the loser.
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
        let freed = if fault::injected(Fault::ExpiryOverwrites) {
            cell.set_word(Word::free(word.fence()));
            true
        } else {
            cell.try_free(word)
        };
        if freed {
            self.tell_lost(key, word.fence(), seen, now);
        }
    }

    /// As `expire_plain`, for a word that may have waiters. `false`: the grant stands, because another thread of its session
    /// renewed it at the last moment. Look again: an answer that says "expired" must not leave it held.
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
        if cell.word().belongs_to_room() && !fault::injected(Fault::ExpiryForgetsWaiters) {
            let mut room = self.room.lock();
            if cell.word().belongs_to_room() {
                self.settle(&mut room, slot, now);
            }
        }
        let left = cell.word();
        !left.is_held() || left.fence() != word.fence() || fault::injected(Fault::ExpiryUnproven)
    }

    pub(crate) fn tell_lost(&self, key: Key<'_>, fence: Fence, seen: &Seen, now: Tick) {
        let deadline = seen.lease.deadline();
        // Of a lease that another core has ended it is not known whether it was a session's, whose deadline says nothing.
        let expired = match seen.lease.kind() {
            Kind::Session => false,
            Kind::Ended => deadline <= now && !self.common.sessions.is_ended(seen.owner, now),
            Kind::Timed | Kind::Record => deadline <= now,
        };
        let why = if expired {
            Lost::Expired
        } else if self.common.sessions.is_ended(seen.owner, now) {
            Lost::SessionEnded
        } else {
            Lost::Forced
        };
        let late_ms = if expired { deadline.ms_until(now) } else { 0 };
        self.common.host.lost(&Loss {
            key,
            fence,
            owner: seen.owner,
            why,
            late_ms,
            held_ms: held_ms(seen.since_low32, now),
        });
    }

    /// Makes sure that the wheel looks at this cell when the lease just written ends. Returns that moment.
    #[inline]
    pub(crate) fn watch(&self, cell: &Cell, slot: u32, terms: &Terms) -> Tick {
        let until = match terms.kind {
            Kind::Session => self.common.sessions.deadline(terms.owner),
            _ => terms.deadline,
        };
        if cell.is_armed_after(until) {
            self.ask_attention(cell, slot);
        }
        until
    }

    /// Asks the home core to look at a cell that it knows.
    #[cold]
    pub(crate) fn ask_attention(&self, cell: &Cell, slot: u32) {
        self.put_into_inbox(cell, slot, REQUESTED);
    }

    /// Makes a cell known to the home core, once its key is in the index.
    #[cold]
    pub(crate) fn introduce(&self, cell: &Cell, slot: u32) {
        self.put_into_inbox(cell, slot, REQUESTED | NEWBORN);
    }

    /// Puts a cell into the inbox of the home core, unless it is there already.
    fn put_into_inbox(&self, cell: &Cell, slot: u32, flags: u32) {
        if cell.inbox.fetch_or(flags, Ordering::AcqRel) & REQUESTED != 0 {
            return;
        }
        let mut link = NONE;
        let mut first = self.inbox.load(Ordering::Relaxed);
        loop {
            if fault::injected(Fault::LinkOverwritesFlags) {
                cell.inbox.store(REQUESTED | first, Ordering::Relaxed);
            } else {
                // The link is ours alone, the flags beside it are not. And what others did before they set theirs is seen
                // by the home core only if we do not come between with a plain store.
                cell.inbox.fetch_xor(link ^ first, Ordering::Relaxed);
            }
            link = first;
            // Release, paired with the swap of the home core: it finds the link written.
            match self
                .inbox
                .compare_exchange_weak(first, slot, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// When a lease ends by itself.
    pub(crate) fn lease_end(&self, lease: Lease, owner: SessionId) -> Tick {
        match lease.kind() {
            Kind::Session => self.common.sessions.deadline(owner),
            _ => lease.deadline(),
        }
    }

    /// What can be said of a plain holder without a lock.
    pub(crate) fn describe_plain(
        &self,
        cell: &Cell,
        word: Word,
        queue_length: u32,
        now: Tick,
    ) -> Holder {
        let seen = cell.seen(word);
        Holder {
            owner: seen.map(|seen| seen.owner),
            fence: word.fence(),
            mode: Mode::Exclusive,
            held_ms: seen.map_or(0, |seen| held_ms(seen.since_low32, now)),
            until: seen.map_or(now, |seen| self.lease_end(seen.lease, seen.owner)),
            is_session_bound: seen.is_some_and(|seen| seen.lease.kind() == Kind::Session),
            count: 1,
            holders: 1,
            queue_length,
            note: Box::default(),
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

    pub(crate) fn pin(&self) -> Guard {
        reclaim::pin()
    }
}

/// In a cell's `inbox` field: the cell is in the inbox or about to be.
pub(crate) const REQUESTED: u32 = 1 << 31;

/// Beside it: the cell has a new key, and is in no wheel yet.
pub(crate) const NEWBORN: u32 = 1 << 30;

const _: () = assert!(
    SLOT_MAX & (REQUESTED | NEWBORN) == 0,
    "flags and link share a word"
);

/// How long ago `since` was. Exact for 49 days, which no lease reaches without being renewed a good many times.
pub(crate) fn held_ms(since_low32: u32, now: Tick) -> u64 {
    u64::from(now.low32().wrapping_sub(since_low32))
}
