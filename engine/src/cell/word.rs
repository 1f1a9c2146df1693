//! The two packed words of a cell: who may hold it, and until when. Plain values; the transitions are in `cell.rs`.

use crate::fence::Fence;
use crate::tick::Tick;

/// The lock word: `fence:60 | NOTED | RICH | QUEUED | HELD`. The only place where ownership changes.
///
/// ```text
/// bits            | meaning                                | ways out
/// ----------------|----------------------------------------|---------------------------------------------------------
/// (none)          | FREE(f): f was the last fence          | anyone: CAS to HELD(f+1). The home core: CAS to DEAD(f)
/// NOTED alone     | UNBORN(f): never granted as this key's | as FREE, for whoever found it in the index
/// HELD            | held exclusively under fence f         | its owner or expiry: CAS to FREE(f)
/// + QUEUED        | waiters stand in line, or a slow path  | only under the shard's room mutex
///                 | is at work                             |
/// + RICH          | the holders are in a record            | only under the shard's room mutex
/// + NOTED         | held exclusively, with a short note    | as without it; the note is dropped afterwards
/// RICH alone      | DEAD(f): evicted, the slot is unused   | whoever reuses the slot: to UNBORN of a higher fence
/// ```
///
/// A slot's word never takes the same value twice while anybody could still compare against it: fences rise with every
/// grant, and a reused slot starts above the fence it died with. That makes the fence the slot's generation: a CAS that
/// expects a word read before the key was compared fails if the slot has passed to another key meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

const HELD: u64 = 1;
const QUEUED: u64 = 2;
const RICH: u64 = 4;
const NOTED: u64 = 8;
const FENCE_SHIFT: u32 = 4;

// Every fence, and the few above the maximum at which a cell can be born, fit.
const _: () = assert!(Fence::MAX.get() + (1 << 32) < 1 << 60);

impl Word {
    pub(crate) const fn free(fence: Fence) -> Word {
        Word(fence.get() << FENCE_SHIFT)
    }

    pub(crate) const fn held(fence: Fence) -> Word {
        Word(fence.get() << FENCE_SHIFT | HELD)
    }

    pub(crate) const fn unborn(fence: Fence) -> Word {
        Word(fence.get() << FENCE_SHIFT | NOTED)
    }

    pub(crate) const fn dead(fence: Fence) -> Word {
        Word(fence.get() << FENCE_SHIFT | RICH)
    }

    pub(crate) const fn from_bits(bits: u64) -> Word {
        Word(bits)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn fence(self) -> Fence {
        Fence::from_number(self.0 >> FENCE_SHIFT)
    }

    pub(crate) const fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    pub(crate) const fn is_queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    pub(crate) const fn is_rich(self) -> bool {
        self.0 & RICH != 0
    }

    /// Its grant has a short note (`noted.rs`).
    pub(crate) const fn is_noted(self) -> bool {
        self.0 & (NOTED | HELD) == NOTED | HELD
    }

    /// Whether it tells of the same hold, whoever has come to stand in line meanwhile.
    pub(crate) const fn is_same_grant(self, other: Word) -> bool {
        self.with_queued().0 == other.with_queued().0
    }

    pub(crate) const fn is_dead(self) -> bool {
        self.0 & (HELD | QUEUED | RICH) == RICH
    }

    /// Free, and nobody is in line.
    pub(crate) const fn is_plain_free(self) -> bool {
        self.0 & (HELD | QUEUED | RICH) == 0
    }

    /// Free, and not granted yet since its cell was prepared for the key it has. Whoever makes the first grant has made sure that the
    /// cell is in the index: so a cell that is held, or free after having been held, is in it, and one with this word need not be.
    pub(crate) const fn is_unborn(self) -> bool {
        self.0 & (HELD | QUEUED | RICH | NOTED) == NOTED
    }

    /// Held exclusively, nobody in line, no record: what the fast paths work on.
    pub(crate) const fn is_plain_held(self) -> bool {
        self.0 & (HELD | QUEUED | RICH) == HELD
    }

    /// Held under this fence, with no waiter, record or note. The word is taken apart rather than the
    /// fence shifted into a word: a caller may name a fence of more than 60 bits, and it must not
    /// pass for another.
    pub(crate) const fn is_held_simply_under(self, fence: Fence) -> bool {
        (self.0 ^ HELD).rotate_right(FENCE_SHIFT) == fence.get()
    }

    /// Only the holder of the room mutex may change this word.
    pub(crate) const fn belongs_to_room(self) -> bool {
        self.0 & (QUEUED | RICH) != 0 && !self.is_dead()
    }

    pub(crate) const fn with_queued(self) -> Word {
        Word(self.0 | QUEUED)
    }

    pub(crate) const fn with_queued_if(self, queued: bool) -> Word {
        if queued {
            self.with_queued()
        } else {
            Word(self.0 & !QUEUED)
        }
    }

    /// Its holders are in a record, and so are their notes.
    pub(crate) const fn with_rich(self) -> Word {
        Word(self.0 & !NOTED | RICH)
    }

    pub(crate) const fn with_note(self) -> Word {
        Word(self.0 | NOTED)
    }
}

/// What a lease word says about its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The lease ends at its own deadline.
    Timed,
    /// The lease ends with its owner's session; the deadline field holds the time of the grant.
    Session,
    /// The lease has ended: no renewal can succeed any more.
    Ended,
    /// The leases are in the key's record; the deadline field holds the earliest of them, for the wheel.
    Record,
}

/// The lease word: `kind:2 | deadline_tick:38 | fence_low:24`, tagged with the fence it belongs to. While the tag
/// differs from the word's fence, the grant is not published yet: held, not expirable, owner unknown.
///
/// A session's state is packed the same way, tagged with the session's generation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease(u64);

const TAG_BITS: u32 = 24;
const DEADLINE_BITS: u32 = 38;
const KIND_SHIFT: u32 = TAG_BITS + DEADLINE_BITS;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const DEADLINE_MASK: u64 = (1 << DEADLINE_BITS) - 1;

const _: () = assert!(
    Tick::NEVER.as_ms() == DEADLINE_MASK,
    "a tick fills the deadline field exactly"
);

impl Lease {
    pub(crate) fn new(kind: Kind, deadline: Tick, tag: u64) -> Lease {
        let kind = match kind {
            Kind::Timed => 0,
            Kind::Session => 1,
            Kind::Ended => 2,
            Kind::Record => 3,
        };
        Lease(kind << KIND_SHIFT | deadline.as_ms() << TAG_BITS | Lease::tag_of(tag))
    }

    /// What of a fence or a generation fits into a tag.
    pub(crate) const fn tag_of(number: u64) -> u64 {
        number & TAG_MASK
    }

    pub(crate) const fn from_bits(bits: u64) -> Lease {
        Lease(bits)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn kind(self) -> Kind {
        match self.0 >> KIND_SHIFT {
            0 => Kind::Timed,
            1 => Kind::Session,
            2 => Kind::Ended,
            _ => Kind::Record,
        }
    }

    pub(crate) fn deadline(self) -> Tick {
        Tick::from_bits(self.0 >> TAG_BITS & DEADLINE_MASK)
    }

    /// Whether it is a timed one, and tagged so.
    pub(crate) const fn is_timed_as(self, tag: u64) -> bool {
        // Of a timed one the bits of its kind are zero.
        self.0 & !(DEADLINE_MASK << TAG_BITS) == Lease::tag_of(tag)
    }

    pub(crate) const fn is_tagged(self, tag: u64) -> bool {
        self.tag() == Lease::tag_of(tag)
    }

    pub(crate) const fn tag(self) -> u64 {
        self.0 & TAG_MASK
    }

    pub(crate) fn with_deadline(self, deadline: Tick) -> Lease {
        Lease(self.0 & !(DEADLINE_MASK << TAG_BITS) | deadline.as_ms() << TAG_BITS)
    }

    /// Whether it was ended or its own deadline has passed. A session's lease and a record say nothing of that.
    #[inline]
    pub(crate) fn has_ended(self, now: Tick) -> bool {
        self.kind() == Kind::Ended || (self.kind() == Kind::Timed && self.deadline().is_over(now))
    }

    pub(crate) fn ended(self) -> Lease {
        Lease::new(Kind::Ended, self.deadline(), self.tag())
    }
}
