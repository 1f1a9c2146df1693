//! The lease word: until when something lasts, and of which grant or session it tells. A plain
//! value; the transitions are in `cell/mod.rs` and `session/mod.rs`.

use super::tick::Tick;

/// What a lease word says about its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The lease ends at its own deadline.
    Timed,
    /// The lease ends with its owner's session; the deadline field holds the time of the grant.
    Session,
    /// The lease has ended: no renewal can succeed any more.
    Ended,
    /// The leases are in the key's record; the deadline field holds the earliest of them, for the
    /// wheel.
    Record,
}

/// The lease word: `kind:2 | deadline_tick:38 | fence_low:24`, tagged with the fence it belongs to.
/// While the tag differs from the word's fence, the grant is not published yet: held, not
/// expirable, owner unknown.
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

    /// Whether it was ended or its own deadline has passed. A session's lease and a record say
    /// nothing of that.
    #[inline]
    pub(crate) fn has_ended(self, now: Tick) -> bool {
        self.kind() == Kind::Ended || (self.kind() == Kind::Timed && self.deadline().is_over(now))
    }

    pub(crate) fn ended(self) -> Lease {
        Lease::new(Kind::Ended, self.deadline(), self.tag())
    }
}
