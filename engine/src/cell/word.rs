//! The lock word of a cell. A plain value; the transitions are in `cell/mod.rs`.

use types::Fence;

/// The lock word: `fence:60 | META | RICH | QUEUED | HELD`. The only place where ownership
/// changes.
///
/// ```text
/// bits            | meaning                                | ways out
/// ----------------|----------------------------------------|-------------------------------------
/// (none)          | FREE(f): f was the last fence          | any core: CAS to HELD(f+1)
///                 |                                        | the home core: CAS to DEAD(f)
/// META alone      | UNBORN(f): never granted as this key's | as FREE, if found in the index
/// HELD            | held exclusively under fence f         | its owner or expiry: CAS to FREE(f)
/// + QUEUED        | waiters stand in line, or a slow path  | only under the shard's room mutex
///                 | is at work                             |
/// + RICH          | the holders are in a record            | only under the shard's room mutex
/// + META          | held exclusively, with short metadata  | as without; then that is dropped
/// RICH alone      | DEAD(f): evicted, the slot is unused   | an inserter: to a higher UNBORN
/// ```
///
/// A slot's word never takes the same value twice while a core could still compare against it:
/// fences rise with every grant, and a reused slot starts above the fence it died with. That makes
/// the fence the slot's generation: a CAS that expects a word read before the key was compared
/// fails if the slot has passed to another key meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

const HELD: u64 = 1;
const QUEUED: u64 = 2;
const RICH: u64 = 4;
const META: u64 = 8;
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
        Word(fence.get() << FENCE_SHIFT | META)
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

    /// Its grant has short metadata (`cell/block.rs`).
    pub(crate) const fn has_metadata(self) -> bool {
        self.0 & (META | HELD) == META | HELD
    }

    /// Whether it tells of the same hold, whether or not a waiter has come meanwhile.
    pub(crate) const fn is_same_grant(self, other: Word) -> bool {
        self.with_queued().0 == other.with_queued().0
    }

    pub(crate) const fn is_dead(self) -> bool {
        self.0 & (HELD | QUEUED | RICH) == RICH
    }

    /// Free, with no waiter in line.
    pub(crate) const fn is_plain_free(self) -> bool {
        self.0 & (HELD | QUEUED | RICH) == 0
    }

    /// Free, and not granted yet since its cell was prepared for the key it has. The first grantor
    /// has made sure that the cell is in the index: so a cell that is held, or free after having
    /// been held, is in it, and one with this word need not be.
    pub(crate) const fn is_unborn(self) -> bool {
        self.0 & (HELD | QUEUED | RICH | META) == META
    }

    /// Held exclusively, no waiter, no record: what a CAS can decide.
    pub(crate) const fn is_plain_held(self) -> bool {
        self.0 & (HELD | QUEUED | RICH) == HELD
    }

    /// Held under this fence, with no waiter, record or metadata. The word is taken apart rather
    /// than the fence shifted into a word: a caller may name a fence of more than 60 bits, and it
    /// must not pass for another.
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

    /// Its holders are in a record, and so is their metadata.
    pub(crate) const fn with_rich(self) -> Word {
        Word(self.0 & !META | RICH)
    }

    pub(crate) const fn with_metadata(self) -> Word {
        Word(self.0 | META)
    }
}
