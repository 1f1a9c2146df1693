//! A hierarchical timing wheel: says which entries are due, at a cost that does not grow with how
//! many are not.
//!
//! Entries are numbers; their links live with their owner, behind [`Links`]. Each slot is the head
//! of a doubly linked list. Arming and disarming are O(1). A slot of level 0 holds one tick; a slot
//! of a higher level holds a range, and when the hand reaches the start of that range its entries
//! move to lower levels ("cascade"), at most six times in a life.
//!
//! | level | one slot | reaches   |
//! |-------|----------|-----------|
//! | 0     | 1 ms     | 64 ms     |
//! | 1     | 64 ms    | 4.1 s     |
//! | 2     | 4.1 s    | 4.4 min   |
//! | 3     | 4.4 min  | 4.7 hours |
//! | 4     | 4.7 hours| 12 days   |
//! | 5     | 12 days  | 2.2 years |
//! | 6     | 2.2 years| 8.7 years, all that a [`Tick`] can say (4 of its 64 slots) |
//!
//! **Bounded steps.** Ten million entries may share a slot, so a slot is never worked off in one
//! go. Its list moves as a whole to the *pending* list, by rewriting one head, and is taken from
//! there entry by entry, each against the caller's budget. The hand ([`Wheel::now`]) advances only
//! while nothing is pending. It may therefore lag behind the caller's clock; arming goes by the
//! hand, never by the clock, so an entry armed half-way through a cascade is placed as correctly as
//! any other, and one armed for the stretch in between still fires in its turn.
//!
//! Ground rules:
//! - Only the holder of the shard's wheel calls it, and only the wheel writes links. [`Links::due`]
//!   alone may change under its feet.
//! - An entry is in at most one wheel. A slot's list is last in, first out: entries of one tick
//!   come in no promised order, those of different ticks come in the order of their ticks unless
//!   they were late already when armed.
//! - An entry never comes out while its `due` lies ahead, and always comes out once the hand has
//!   reached the tick it was armed for, if its `due` is not later.

mod level;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::time::tick::Tick;
use level::{LEVEL_COUNT, SLOT_COUNT, place, slot_start};

/// No entry. As a `prev`: in no list, which is what a zeroed entry says.
pub const NONE: u32 = 0;

/// Marks the `prev` of a list's first entry; the bits below are the list's number. Thanks to it an
/// entry leaves any list without a search, and a list changes its number with one write.
const HEAD_FLAG: u32 = 1 << 31;

/// The list of what the hand has reached and the caller has not been given yet. The lists before it
/// are the slots, level by level.
const PENDING: usize = LEVEL_COUNT * SLOT_COUNT;

/// Where a wheel keeps the two links of each entry: in the cell itself, so that an entry costs
/// eight bytes and no allocation. Only the wheel sets them, one thread at a time: relaxed atomics
/// or plain `Cell`s will do.
pub trait Links {
    /// The link last set by [`Links::set_next`]; [`NONE`] in a fresh entry.
    fn next(&self, entry: u32) -> u32;

    /// The link last set by [`Links::set_prev`]; [`NONE`] in a fresh entry.
    fn prev(&self, entry: u32) -> u32;

    /// Remembers what follows `entry`.
    fn set_next(&self, entry: u32, next: u32);

    /// Remembers what `entry` follows.
    fn set_prev(&self, entry: u32, prev: u32);

    /// When the entry is due, as its owner sees it at this moment: the wheel keeps no copy of the
    /// tick an entry was armed for, and asks each time the hand reaches the entry's slot. So the
    /// answer may change while the entry is armed:
    ///
    /// - later than armed for: the entry goes on waiting without being moved (a renewal);
    /// - earlier: noticed only when the slot is reached. An owner in a hurry removes the entry and
    ///   arms it again;
    /// - at or before the hand, or [`Tick::NEVER`]: the entry comes out, and the caller of
    ///   [`Wheel::pop_due`] decides. That is also the answer for an owner that cannot tell just
    ///   now.
    fn due(&self, entry: u32) -> Tick;
}

/// What [`Wheel::pop_due`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Due {
    /// This entry is due. It is out of the wheel and may be armed again at once.
    Entry(u32),
    /// Nothing else is due by now.
    Done,
    /// There may be more, but the budget is spent. The next call goes on from here.
    OutOfBudget,
}

/// A timing wheel of one shard. The module says what each thread may do with it.
pub struct Wheel {
    /// The hand: every slot before it is empty, and every entry outside `PENDING` lies where
    /// `place` puts it from here.
    now: Tick,
    /// Entries in all lists together.
    len: usize,
    /// Per level, one bit for each slot whose list is not empty.
    occupied: [u64; LEVEL_COUNT],
    /// The first entry of each list.
    heads: [u32; PENDING + 1],
}

impl Wheel {
    /// An empty wheel with its hand at `now`.
    #[must_use]
    pub fn new(now: Tick) -> Wheel {
        assert!(now != Tick::NEVER, "a wheel starts at a moment");
        Wheel {
            now,
            len: 0,
            occupied: [0; LEVEL_COUNT],
            heads: [NONE; PENDING + 1],
        }
    }

    /// Where the hand stands. Behind the caller's clock while [`Due::OutOfBudget`] work is left.
    #[must_use]
    pub fn now(&self) -> Tick {
        self.now
    }

    /// How many entries are armed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no entry is armed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `entry` is armed, in this wheel or another.
    #[must_use]
    pub fn is_linked(links: &impl Links, entry: u32) -> bool {
        links.prev(entry) != NONE
    }

    /// Arms `entry` for `at`, which should be what [`Links::due`] answers. O(1).
    ///
    /// If `at` has passed, or is the hand's own tick, the next [`Wheel::pop_due`] gives the entry
    /// out, whatever its `now`. A loop that drains the wheel and arms what it popped for `now` or
    /// before therefore meets it again in the same loop, and stops only by its budget: to look
    /// again soon, arm for `now.plus_ms(1)`.
    pub fn insert(&mut self, links: &impl Links, entry: u32, at: Tick) {
        assert!(
            entry != NONE && entry < HEAD_FLAG,
            "entry {entry} is not a valid number"
        );
        assert!(at != Tick::NEVER, "entry {entry} armed for never");
        assert!(
            !Self::is_linked(links, entry),
            "entry {entry} is armed already"
        );

        let (level, slot) = place(self.now.as_ms(), at.as_ms());
        let list = level * SLOT_COUNT + slot;
        let first = self.heads[list];
        if first != NONE {
            links.set_prev(first, entry);
        }
        links.set_next(entry, first);
        links.set_prev(entry, HEAD_FLAG | list as u32);
        self.heads[list] = entry;
        self.occupied[level] |= 1 << slot;
        self.len += 1;
    }

    /// Disarms `entry`, wherever in the wheel it is. O(1).
    pub fn remove(&mut self, links: &impl Links, entry: u32) {
        let (prev, next) = (links.prev(entry), links.next(entry));
        assert!(prev != NONE, "entry {entry} is not armed");

        if prev & HEAD_FLAG == 0 {
            links.set_next(prev, next);
        } else {
            let list = (prev & !HEAD_FLAG) as usize;
            assert!(
                self.heads[list] == entry,
                "entry {entry} says it is the first of list {list} of another wheel"
            );
            self.heads[list] = next;
            if next == NONE && list != PENDING {
                self.occupied[list / SLOT_COUNT] &= !(1 << (list % SLOT_COUNT));
            }
        }
        if next != NONE {
            links.set_prev(next, prev);
        }
        links.set_next(entry, NONE);
        links.set_prev(entry, NONE);
        self.len -= 1;
    }

    /// Takes out one entry that is due by `now`, moving the hand towards `now` as far as that
    /// needs.
    ///
    /// Takes one from `budget` for each slot reached and each entry looked at, whether it comes out
    /// or goes to a lower level; a budget of zero still tells [`Due::Done`] from
    /// [`Due::OutOfBudget`]. Between two calls the caller may insert and remove as it likes. A
    /// `now` behind the hand counts as the hand's: cores read the clock at slightly different
    /// moments.
    pub fn pop_due(&mut self, links: &impl Links, now: Tick, budget: &mut u32) -> Due {
        assert!(now != Tick::NEVER, "now is a moment");
        let now = now.max(self.now);

        loop {
            let entry = self.heads[PENDING];
            if entry != NONE {
                if !try_spend(budget) {
                    return Due::OutOfBudget;
                }
                self.remove(links, entry);
                let due = links.due(entry);
                if due <= self.now || due == Tick::NEVER {
                    return Due::Entry(entry);
                }
                self.insert(links, entry, due);
                continue;
            }

            let reached = self.next_slot().filter(|&(_, _, start)| start <= now);
            let Some((level, slot, start)) = reached else {
                // Every slot in use starts after `now`, so every entry's place is the same seen
                // from `now`.
                self.now = now;
                return Due::Done;
            };
            if !try_spend(budget) {
                return Due::OutOfBudget;
            }
            self.now = start;
            self.start_draining(links, level, slot);
        }
    }

    /// A tick before which there is nothing to do, if nothing is armed meanwhile: the hand's own if
    /// work is left over, exact for what is due within its 64 ms, else the moment of the next
    /// cascade. `None` if nothing is armed.
    #[must_use]
    pub fn next_due(&self) -> Option<Tick> {
        if self.heads[PENDING] != NONE {
            return Some(self.now);
        }
        self.next_slot().map(|(_, _, start)| start)
    }

    /// The slot in use that the hand reaches first, as level, slot and its first tick. Never before
    /// the hand.
    fn next_slot(&self) -> Option<(usize, usize, Tick)> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        let slot = self.occupied[level].trailing_zeros() as usize;
        let start = Tick::from_ms(slot_start(self.now.as_ms(), level, slot));
        assert!(
            start >= self.now,
            "slot {slot} of level {level} was passed over: {start:?} < {:?}",
            self.now
        );
        Some((level, slot, start))
    }

    /// Makes the list of a slot the pending list. O(1), however long it is.
    fn start_draining(&mut self, links: &impl Links, level: usize, slot: usize) {
        assert!(
            self.heads[PENDING] == NONE,
            "the hand moved on with work left over"
        );
        let first = std::mem::replace(&mut self.heads[level * SLOT_COUNT + slot], NONE);
        assert!(
            first != NONE,
            "slot {slot} of level {level} is marked as in use and is empty"
        );
        self.occupied[level] &= !(1 << slot);
        self.heads[PENDING] = first;
        links.set_prev(first, HEAD_FLAG | PENDING as u32);
    }
}

/// Takes one unit of work from the budget, unless it is spent.
fn try_spend(budget: &mut u32) -> bool {
    let left = budget.checked_sub(1);
    *budget = left.unwrap_or(0);
    left.is_some()
}
