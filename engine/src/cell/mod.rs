//! One key's words and their transitions: the two-word protocol. Everything here works on one cell,
//! knows no table, no queue and no clock, and never waits.
//!
//! | step       | how                                                              | decided by |
//! |------------|------------------------------------------------------------------|------------|
//! | grant      | CAS `FREE(f)` to `HELD(g)`, `g > f`; owner; the lease by swap    | word       |
//! | renew(f)   | CAS lease `{d, f}` to `{d', f}`; the word must still be `HELD(f)` | lease      |
//! | release(f) | CAS `HELD(f)` to `FREE(f)`                                       | word       |
//! | expire     | CAS lease `{d, f}` to `{Ended, f}`, then as release              | lease      |
//!
//! Ground rules. A plain word (no QUEUED, no RICH) is changed by CAS from any core; a word that
//! belongs to the room only by the holder of the shard's room mutex. The word given to a transition
//! is the one that was read before the key was compared. Owner and lease are written by the last
//! grantor; a reader trusts the owner only behind a lease that is tagged with the word's fence. The
//! wheel fields belong to the home core, except `inbox`, which is how other cores ask for its
//! attention, and `armed`, which they read.

pub(crate) mod block;
pub(crate) mod key;
pub(crate) mod metadata;
pub(crate) mod word;

use crate::cell::key::StoredKey;
use crate::cell::word::Word;
use crate::memory::slot::{NONE, Slot};
use crate::session::SessionId;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::lease::{Kind, Lease};
use crate::time::tick::Tick;
use types::Fence;
use types::Span;

/// One key's state, on a cache line of its own.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[repr(C, align(64))]
pub(crate) struct Cell {
    word: AtomicU64,
    lease: AtomicU64,
    /// Whose it is. Of a free cell whose last holders were in a record: how the last grant ended
    /// (`Ending`).
    owner: AtomicU64,
    pub(crate) key: StoredKey,
    /// When the present lease was granted, low 32 bits: a look tells how long it is held. Of a
    /// META word the block where that stands, with the metadata.
    since: AtomicU32,
    /// The tick at which the wheel will look at this cell, low 32 bits. Written by the home core.
    armed: AtomicU32,
    /// `REQUESTED | NEWBORN | next in the shard's inbox:24`. Zero when the cell is not in the
    /// inbox.
    pub(crate) inbox: AtomicU32,
    pub(crate) wheel_next: AtomicU32,
    pub(crate) wheel_prev: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Cell>() == 64, "a cell is one cache line");

impl Slot for Cell {
    fn free_link(&self) -> &AtomicU32 {
        // A free cell is in no wheel.
        &self.wheel_next
    }

    #[cfg(loom)]
    fn zeroed() -> Self {
        Cell {
            word: AtomicU64::new(0),
            lease: AtomicU64::new(0),
            owner: AtomicU64::new(0),
            key: StoredKey::zeroed(),
            since: AtomicU32::new(0),
            armed: AtomicU32::new(0),
            inbox: AtomicU32::new(0),
            wheel_next: AtomicU32::new(0),
            wheel_prev: AtomicU32::new(0),
        }
    }
}

/// What a grant writes besides the word.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) owner: SessionId,
    /// `Timed` or `Session`.
    pub(crate) kind: Kind,
    /// When the lease ends; for a session's lease the time of the grant.
    pub(crate) deadline: Tick,
    pub(crate) now: Tick,
    /// When the grant was made, low 32 bits: now, unless it is an old one that is put back.
    pub(crate) since_low32: u32,
}

/// A published grant as another core sees it.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) lease: Lease,
    pub(crate) owner: SessionId,
    /// Of a META word only as `Shard::seen` gives it.
    pub(crate) since_low32: u32,
    /// The block of its metadata, if the word is META.
    pub(crate) metadata: u32,
}

/// How the last grant of a free cell ended, for a holder that asks too late.
///
/// It costs no memory and nothing on the fast path, because the words of a free cell have room for
/// it. A plain grant that was given back leaves its lease as it was, and one that ran out leaves it
/// `Ended`. What ends under the room mutex in another way, or in a record, is written in the place
/// of the owner: no session has so small an id. It is known of the last grant of a key only, for as
/// long as the key is; an earlier one was under another fence, and that is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Ending {
    /// Never granted under this key, or one of several holders whose end was not the last.
    Unknown = 0,
    Released = 1,
    Expired = 2,
    Taken = 3,
}

impl Ending {
    /// What stands in the place of the owner of an ended lease.
    fn from_owner(owner: u64) -> Ending {
        match owner {
            0 => Ending::Unknown,
            1 => Ending::Released,
            3 => Ending::Taken,
            // A session: the lease was in the words, and ran out.
            _ => Ending::Expired,
        }
    }
}

/// How a renewal of a plain lease went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The lease runs to the new deadline.
    Renewed,
    /// The lease is over, or the cell has passed to another grant.
    NotHeld,
    /// The lease ended before this renewal came.
    Overdue,
    /// The lease is in the record: ask under the room mutex.
    InRecord,
}

impl Terms {
    #[inline]
    pub(crate) fn new(owner: SessionId, span: Span, now: Tick) -> Self {
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
}

impl Cell {
    #[inline]
    pub(crate) fn word(&self) -> Word {
        // Acquire, paired with the Release half of every change of the word.
        Word::from_bits(self.word.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn lease(&self) -> Lease {
        Lease::from_bits(self.lease.load(Ordering::Acquire))
    }

    fn replace_lease(&self, seen: Lease, new: Lease) -> bool {
        self.lease
            .compare_exchange(seen.bits(), new.bits(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The one way from one word to another outside the room.
    #[inline]
    pub(crate) fn replace_word(&self, seen: Word, new: Word) -> bool {
        self.word
            .compare_exchange(seen.bits(), new.bits(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Sets a word that belongs to the room; the caller holds the room mutex. A swap, not a store:
    /// it takes its place among the read-modify-writes of others, which then fail.
    pub(crate) fn set_word(&self, new: Word) -> Word {
        Word::from_bits(self.word.swap(new.bits(), Ordering::AcqRel))
    }

    /// Takes a plain free cell under this fence. `false`: another core was faster, look again.
    #[inline]
    pub(crate) fn try_grant(&self, seen: Word, fence: Fence, terms: &Terms) -> bool {
        debug_assert!(seen.is_plain_free());
        match self.replace_word(seen, Word::held(fence)) {
            true => {}
            false if fault!(GrantOverwrites) => _ = self.set_word(Word::held(fence)),
            false => return false,
        }
        self.publish(fence, terms);
        true
    }

    /// Writes owner and lease of the grant whose word has just been written by the caller.
    #[inline]
    pub(crate) fn publish(&self, fence: Fence, terms: &Terms) {
        self.publish_with(fence, terms, terms.since_low32);
    }

    /// The same for a META word: the block where the time of the grant stands takes its place.
    #[inline]
    pub(crate) fn publish_with(&self, fence: Fence, terms: &Terms, since_or_block: u32) {
        self.owner.store(terms.owner.get(), Ordering::Release);
        // Release, paired with `seen`: a reader of the number of a block sees what was written into
        // it, and the word.
        self.since.store(since_or_block, Ordering::Release);
        let lease = Lease::new(terms.kind, terms.deadline, fence.get());
        // A swap, so that it takes its place in one order with renewals, expiry and the wheel's
        // look (see `arm`). Release publishes owner and since to readers of this tag; Acquire makes
        // the wheel's `armed` visible.
        self.lease.swap(lease.bits(), Ordering::AcqRel);
    }

    /// Moves the holder's data out of the words into the record; the caller holds the room mutex
    /// and owns the word. A renewal that got in before is in the lease that is returned; one that
    /// comes later is sent to the record.
    pub(crate) fn move_lease_to_record(&self, fence: Fence, earliest: Tick) -> Lease {
        let record = Lease::new(Kind::Record, earliest, fence.get());
        Lease::from_bits(self.lease.swap(record.bits(), Ordering::AcqRel))
    }

    /// Ends the lease of a grant that is over, and writes down how. The caller holds the room mutex
    /// and owns the word, which is free, so no other core writes an owner. A renewal that came in
    /// between is swept away.
    pub(crate) fn end_as(&self, fence: Fence, ending: Ending, now: Tick) {
        self.owner.store(ending as u64, Ordering::Release);
        self.lease.swap(
            Lease::new(Kind::Ended, now, fence.get()).bits(),
            Ordering::AcqRel,
        );
    }

    /// What is published for the grant of `word`; `None` while its grantor has not come that far.
    #[inline]
    pub(crate) fn seen(&self, word: Word) -> Option<Seen> {
        let lease = self.lease();
        if !word.is_held() || !lease.is_tagged(word.fence().get()) {
            return None;
        }
        // Behind the tag: these are the grant's own, or a later grant's, and then the word has
        // moved on and a core that acts on them fails at the word.
        let owner = SessionId::from_bits(self.owner.load(Ordering::Acquire));
        let since_or_block = self.since.load(Ordering::Acquire);
        Some(Seen {
            lease,
            owner,
            since_low32: since_or_block,
            metadata: if word.has_metadata() {
                since_or_block
            } else {
                NONE
            },
        })
    }

    /// How the last grant of a free word ended.
    pub(crate) fn ending(&self, word: Word) -> Ending {
        let lease = self.lease();
        let ending = match lease.kind() {
            Kind::Timed | Kind::Session => Ending::Released,
            Kind::Ended => Ending::from_owner(self.owner.load(Ordering::Acquire)),
            // Just being ended.
            Kind::Record => Ending::Unknown,
        };
        // Owner and lease may be the next grant's already, and then the word is.
        match lease.is_tagged(word.fence().get()) && self.word().is_same_grant(word) {
            true => ending,
            false => Ending::Unknown,
        }
    }

    /// Extends the lease of `HELD(fence)` if it has not ended by `now`.
    pub(crate) fn renew(&self, fence: Fence, deadline: Tick, now: Tick) -> Renewal {
        loop {
            let lease = self.lease();
            if !lease.is_tagged(fence.get()) && !fault!(FenceUnchecked) {
                return Renewal::NotHeld;
            }
            match lease.kind() {
                Kind::Ended => return Renewal::Overdue,
                Kind::Record => return Renewal::InRecord,
                // A session's lease is renewed by the session's keep-alive; there is nothing to
                // move here.
                Kind::Session => break,
                Kind::Timed if lease.deadline().is_over(now) => return Renewal::Overdue,
                Kind::Timed => {}
            }
            if self.replace_lease(lease, lease.with_deadline(deadline)) {
                break;
            }
        }
        // The tag has 24 bits of the fence. Had another grant with the same tag come between, the
        // word would show it.
        let word = self.word();
        if word.is_held() && (word.fence() == fence || fault!(FenceUnchecked)) {
            Renewal::Renewed
        } else {
            Renewal::NotHeld
        }
    }

    /// Frees a plain held cell, keeping its fence. `false`: the word has changed, look again.
    #[inline]
    pub(crate) fn try_free(&self, seen: Word) -> bool {
        debug_assert!(seen.is_plain_held());
        let free = Word::free(seen.fence());
        let is_freed = self.replace_word(seen, free);
        if !is_freed && fault!(ReleaseOverwrites) {
            self.set_word(free);
        }
        is_freed || fault!(ReleaseOverwrites)
    }

    /// Ends a lease that the caller has found over. From here on no renewal succeeds. `false`: it
    /// was renewed, ended or replaced meanwhile.
    pub(crate) fn try_end_lease(&self, seen: Lease) -> bool {
        let ended = seen.ended();
        fault!(ExpiryLeavesLease) || self.replace_lease(seen, ended)
    }

    /// Writes into the lease of a grant that is over and whose word is free since when it is: the
    /// wheel goes by that. Nothing happens if the lease is not the one that was seen, because a
    /// renewal came too late or the next grant in time.
    pub(crate) fn end_lease_at(&self, seen: Lease, now: Tick) {
        // One that was given back is not to look as if it had run out (`ending`), and not to be
        // found over by its time.
        let kind = match seen.kind() {
            Kind::Ended => Kind::Ended,
            _ => Kind::Session,
        };
        let ended = Lease::new(kind, now, seen.tag());
        let _ = self.lease.compare_exchange(
            seen.bits(),
            ended.bits(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// Prepares an unused slot for a new key: it starts free and unborn, at the floor and above the
    /// fence it died with. The caller publishes it through the index.
    pub(crate) fn prepare(&self, floor: Fence, now: Tick) -> Word {
        let died_with = self.word();
        let is_reused = died_with != Word::free(Fence::ZERO);
        let fence = match is_reused {
            true => floor.max(died_with.fence().next()),
            false => floor,
        };
        let word = match is_reused && fault!(ReuseRepeatsWord) {
            true => Word::free(died_with.fence()),
            false => Word::unborn(fence),
        };
        self.owner.store(0, Ordering::Release);
        self.lease.swap(
            Lease::new(Kind::Ended, now, fence.get()).bits(),
            Ordering::AcqRel,
        );
        self.armed.store(unarmed(now), Ordering::Relaxed);
        self.set_word(word);
        word
    }

    /// Whether the wheel plans to look later than at `at`, when a lease just published is over.
    #[inline]
    pub(crate) fn is_armed_after(&self, at: Tick) -> bool {
        let ahead_ms = self.armed.load(Ordering::Relaxed).wrapping_sub(at.low32()) as i32;
        ahead_ms > 0
    }

    /// First half of the home core's look at a cell: from here on every grant or renewal asks for
    /// attention, and the lease that is returned is the latest in its modification order. A grant
    /// whose swap comes after ours reads from it, sees `armed` as written here or later, and asks
    /// if its deadline is earlier.
    pub(crate) fn disarm(&self, now: Tick) -> Lease {
        self.armed.store(unarmed(now), Ordering::Relaxed);
        match fault!(ArmingReadsOnly) {
            false => Lease::from_bits(self.lease.fetch_or(0, Ordering::AcqRel)),
            true => self.lease(),
        }
    }

    /// The tick this cell was armed for, as its low 32 bits tell: within 2^31 ms of `near` on
    /// either side.
    pub(crate) fn armed_for(&self, near: Tick) -> Tick {
        let ahead_ms = self
            .armed
            .load(Ordering::Relaxed)
            .wrapping_sub(near.low32()) as i32;
        if ahead_ms >= 0 {
            near.plus_ms(ahead_ms as u64)
        } else {
            Tick::from_ms(
                near.as_ms()
                    .saturating_sub(u64::from(ahead_ms.unsigned_abs())),
            )
        }
    }

    /// Second half: the wheel will look again at `at`.
    pub(crate) fn set_armed(&self, at: Tick) {
        self.armed.store(at.low32(), Ordering::Relaxed);
    }
}

/// How far ahead the wheel is ever armed, so that ticks can be compared by their low 32 bits.
pub(crate) const ARM_AHEAD_MS_MAX: u64 = 1 << 30;

/// The value of `armed` that is later than every deadline one may be asked about.
fn unarmed(now: Tick) -> u32 {
    now.low32().wrapping_add(ARM_AHEAD_MS_MAX as u32)
}
