//! The verbs on a plain lock: one exclusive holder at most, no waiter, no record. A CAS on the lock
//! word decides, on whichever core asks, without a lock.
//!
//! Each verb has two tiers side by side. The fast path tries once, on a cell that the caller has
//! found, and is inlined into the engine's verbs (`engine/fast_path.rs`). Where it fails nothing
//! has happened, and the loop below it finds out why: it answers, or says that the call
//! [needs the room](Attempt::NeedsRoom).

use super::{Answer, Shard, Target, Wait, held_ms};
use crate::api::{Acquire, Grant, Host, NotHeld, Outcome, Release, Renewal};
use crate::cell::block::SHORT_METADATA_BYTES_MAX;
use crate::cell::word::Word;
use crate::cell::{self, Cell, Seen, Terms};
use crate::memory::slot::NONE;
use crate::session::SessionId;
use crate::table::epoch::{self, Guard};
use crate::time::lease::Kind;
use crate::time::tick::Tick;
use types::Fence;
use types::Span;

/// What a verb came to without the room.
enum Attempt<T> {
    /// Decided on the words alone.
    Plain(T),
    /// Waiters or a record are involved: only the holder of the room mutex can say.
    NeedsRoom,
}
use Attempt::{NeedsRoom, Plain};

impl Acquire<'_> {
    /// Whether its grant fits into the words of a cell, and a block for its metadata. Shared
    /// holders, long metadata and leases without an end are kept in a record: with its record the
    /// wheel learns that a key is free, and need not wait for the end of its lease.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.mode.has_one_holder()
            && self.metadata.len() <= SHORT_METADATA_BYTES_MAX
            && self.span != Span::Forever
    }
}

// ---- acquire

impl<H: Host> Shard<H> {
    /// Takes a cell that was found for the caller's key. `None`: it is not free, or not any more.
    #[inline(always)]
    pub(crate) fn take_if_free(
        &self,
        cell: &Cell,
        slot: u32,
        word: Word,
        terms: &Terms,
    ) -> Option<Grant> {
        let fence = self.bounds.next_after(word.fence());
        if !word.is_plain_free() || !self.may_issue(fence) || !cell.try_grant(word, fence, terms) {
            return None;
        }
        Some(self.grant_plain(cell, slot, fence, terms))
    }

    /// What follows the CAS that took a cell.
    #[inline(always)]
    fn grant_plain(&self, cell: &Cell, slot: u32, fence: Fence, terms: &Terms) -> Grant {
        self.mind_ceiling(fence);
        Grant {
            fence,
            until: self.watch(cell, slot, terms),
            count: 1,
        }
    }

    /// Grants, queues or refuses one acquire. Runs to completion on the calling core; never waits.
    pub(crate) fn acquire(
        &self,
        target: Target<'_>,
        request: &Acquire<'_>,
        owner: SessionId,
        wait: Option<Wait<'_, H::Waiter>>,
        now: Tick,
    ) -> Answer<Outcome> {
        let guard = epoch::pin();
        let terms = Terms::new(owner, request.span, now);
        let attempt = match request.is_plain() {
            true => self.try_acquire(target, request, &terms, wait.is_some(), &guard),
            false => NeedsRoom,
        };
        match attempt {
            Plain(answer) => answer,
            NeedsRoom => self.acquire_contended(target, request, &terms, wait, &guard),
        }
    }

    #[inline]
    fn try_acquire(
        &self,
        target: Target<'_>,
        request: &Acquire<'_>,
        terms: &Terms,
        may_wait: bool,
        guard: &Guard,
    ) -> Attempt<Answer<Outcome>> {
        let now = terms.now;
        let mut pauses = self.common.limits.pauses_before_refusal;
        loop {
            let found = match self.find_or_insert(target, now, guard) {
                Ok(found) => found,
                Err(limit) => return Plain(Answer::new(Outcome::Busy(limit), NONE)),
            };
            let (cell, slot, word) = (self.table.cell(found.slot), found.slot, found.word);
            if word.is_plain_free() {
                let fence = self.bounds.next_after(word.fence());
                if !self.may_issue(fence) {
                    return match may_wait {
                        true => NeedsRoom,
                        false => Plain(Answer::new(Outcome::AtCeiling, slot)),
                    };
                }
                let is_taken = match request.metadata {
                    [] => Some(cell.try_grant(word, fence, terms)),
                    metadata => self.try_grant_with(cell, word, fence, terms, metadata),
                };
                match is_taken {
                    Some(true) => {
                        let grant = self.grant_plain(cell, slot, fence, terms);
                        return Plain(Answer::new(Outcome::Granted(grant), slot));
                    }
                    Some(false) => continue,
                    // Without a block for its metadata it takes a record.
                    None => return NeedsRoom,
                }
            }
            if !word.is_plain_held() {
                return NeedsRoom;
            }
            match cell.seen(word) {
                // An expired lease does not wait for the wheel.
                Some(seen) if self.is_over(&seen, now) => {
                    // The lease that was found over, and no later one.
                    if let Some(seen) = self.with_since(word, seen) {
                        self.expire_plain(cell, word, &seen, request.key, now);
                    }
                }
                Some(seen) if request.reentrant && seen.owner == terms.owner => return NeedsRoom,
                _ if may_wait => return NeedsRoom,
                // Granted a moment ago, and perhaps free again in another: a caller that is refused
                // now and asks again at once would only take the cache line away from the holder
                // that is about to release. (Since when a lock with metadata is held is not worth a
                // look at the metadata.)
                seen if pauses > 0
                    && !word.has_metadata()
                    && seen.is_none_or(|seen| seen.since_low32 == now.low32()) =>
                {
                    (0..std::mem::take(&mut pauses)).for_each(|_| std::hint::spin_loop());
                }
                _ => {
                    let holder = self.describe_plain(cell, word, request.asks_who, 0, now);
                    return Plain(Answer::new(Outcome::Held(holder), slot));
                }
            }
        }
    }
}

// ---- release

impl<H: Host> Shard<H> {
    /// Frees a cell that was found for the caller's key, if the caller holds it under this fence
    /// and no waiter stands in line. Returns for how long it was held.
    #[inline(always)]
    pub(crate) fn give_back_if_own(
        &self,
        cell: &Cell,
        slot: u32,
        word: Word,
        fence: Fence,
        owner: SessionId,
        now: Tick,
    ) -> Option<u64> {
        if !word.is_held_simply_under(fence) {
            if fault!(RememberedCellTrusted) {
                cell.set_word(Word::free(word.fence()));
                return Some(0);
            }
            return None;
        }
        let seen = cell.seen(word)?;
        if seen.owner != owner || seen.lease.has_ended(now) || !cell.try_free(word) {
            return None;
        }
        self.forget_in_time(cell, slot, seen.lease, now);
        Some(held_ms(seen.since_low32, now))
    }

    /// Frees the lock named by key and fence, if it is the caller's. Tells how long it had been
    /// held, too.
    pub(crate) fn release(
        &self,
        target: Target<'_>,
        fence: Fence,
        owner: SessionId,
        now: Tick,
    ) -> Answer<(Release, u64)> {
        let guard = epoch::pin();
        match self.try_release(target, fence, owner, now, &guard) {
            Plain(answer) => answer,
            NeedsRoom => self.release_contended(target, fence, owner, now, &guard),
        }
    }

    #[inline(always)]
    fn try_release(
        &self,
        target: Target<'_>,
        fence: Fence,
        owner: SessionId,
        now: Tick,
        guard: &Guard,
    ) -> Attempt<Answer<(Release, u64)>> {
        let not_held = |why, slot| Plain(Answer::new((Release::NotHeld(why), 0), slot));
        loop {
            let Some(found) = self.find(target, guard) else {
                return not_held(NotHeld::Free, NONE);
            };
            let (cell, slot, word) = (self.table.cell(found.slot), found.slot, found.word);
            if word.belongs_to_room() {
                return NeedsRoom;
            }
            if !word.is_held() {
                return not_held(self.why_free(cell, word, fence), slot);
            }
            // Not published yet: a fence that no caller has been told cannot be this caller's.
            let Some(seen) = self.seen(cell, word) else {
                return not_held(NotHeld::OtherFence, slot);
            };
            if let Some(why) = why_not(word, &seen, fence, owner) {
                return not_held(why, slot);
            }
            if self.is_over(&seen, now) {
                if !self.expire(slot, word, &seen, target.key, now) {
                    continue;
                }
                return not_held(NotHeld::Expired, slot);
            }
            if self.free_plain(cell, word, &seen) {
                self.forget_in_time(cell, slot, seen.lease, now);
                let held_ms = held_ms(seen.since_low32, now);
                return Plain(Answer::new((Release::Released { count: 0 }, held_ms), slot));
            }
        }
    }

    /// Frees a plain held cell, keeping its fence, and drops its metadata. `false`: the word has
    /// changed, look again.
    #[inline]
    pub(super) fn free_plain(&self, cell: &Cell, word: Word, seen: &Seen) -> bool {
        let has_metadata = word.has_metadata();
        if has_metadata && fault!(MetadataDroppedFirst) {
            self.drop_metadata(seen, word.fence());
        }
        let is_freed = cell.try_free(word);
        if is_freed && has_metadata {
            self.drop_metadata(seen, word.fence());
        }
        is_freed
    }
}

// ---- renew

impl<H: Host> Shard<H> {
    /// Extends the lease named by key and fence, if it is the caller's and has not ended.
    pub(crate) fn renew(
        &self,
        target: Target<'_>,
        fence: Fence,
        owner: SessionId,
        span: Span,
        now: Tick,
    ) -> Renewal {
        let guard = epoch::pin();
        let terms = Terms::new(owner, span, now);
        let attempt = match span {
            Span::Forever => NeedsRoom,
            _ => self.try_renew(target, fence, &terms, &guard),
        };
        match attempt {
            Plain(renewal) => renewal,
            NeedsRoom => self.renew_contended(target, fence, &terms, &guard),
        }
    }

    #[inline(always)]
    fn try_renew(
        &self,
        target: Target<'_>,
        fence: Fence,
        terms: &Terms,
        guard: &Guard,
    ) -> Attempt<Renewal> {
        let (owner, now) = (terms.owner, terms.now);
        let not_held = |why| Plain(Renewal::NotHeld(why));
        loop {
            let Some(found) = self.find(target, guard) else {
                return not_held(NotHeld::Free);
            };
            let (cell, word) = (self.table.cell(found.slot), found.word);
            if !word.is_held() {
                return not_held(self.why_free(cell, word, fence));
            }
            let seen = match self.seen(cell, word) {
                None if word.is_plain_held() => return not_held(NotHeld::OtherFence),
                Some(seen) if seen.lease.kind() != Kind::Record => seen,
                // In a record, or just being handed over: the room knows.
                _ => return NeedsRoom,
            };
            if let Some(why) = why_not(word, &seen, fence, owner) {
                return not_held(why);
            }
            if self.is_over(&seen, now) {
                if !self.expire(found.slot, word, &seen, target.key, now) {
                    continue;
                }
                return not_held(NotHeld::Expired);
            }
            return match cell.renew(fence, terms.deadline, now) {
                cell::Renewal::Renewed => {
                    let until = match seen.lease.kind() {
                        Kind::Session => self.common.sessions.deadline(owner),
                        _ => self.watch(cell, found.slot, terms),
                    };
                    Plain(Renewal::Renewed { until })
                }
                cell::Renewal::NotHeld => not_held(NotHeld::OtherFence),
                cell::Renewal::Overdue => not_held(NotHeld::Expired),
                cell::Renewal::InRecord => NeedsRoom,
            };
        }
    }
}

// ---- what the words say

impl<H: Host> Shard<H> {
    /// What is published for the grant of `word`; `None` while its grantor has not come that far.
    #[inline]
    pub(crate) fn seen(&self, cell: &Cell, word: Word) -> Option<Seen> {
        self.with_since(word, cell.seen(word)?)
    }

    /// Why the key is not held under `fence`. Whether it is was asked before.
    pub(crate) fn why_not_held(&self, target: Target<'_>, fence: Fence) -> NotHeld {
        match self.find(target, &epoch::pin()) {
            None => NotHeld::Free,
            Some(found) if found.word.is_held() => NotHeld::OtherFence,
            Some(found) => self.why_free(self.table.cell(found.slot), found.word, fence),
        }
    }
}

/// Why a published grant is not the one the caller names; `None` if it is.
#[inline]
fn why_not(word: Word, seen: &Seen, fence: Fence, owner: SessionId) -> Option<NotHeld> {
    let why = if word.fence() != fence {
        Some(NotHeld::OtherFence)
    } else if seen.owner != owner {
        Some(NotHeld::OtherOwner)
    } else {
        None
    };
    why.filter(|_| !fault!(FenceUnchecked))
}
