//! A seat: one thread's share of a session. It remembers which cells the session took through it,
//! so that ending the session costs no more than what it holds.
//!
//! A seat belongs to one thread and is not synchronised; a session that works on several cores has
//! a seat on each. The list costs five bytes a lock. The latest grants stand in a line of their
//! own: a release that comes last-in first-out, or in the order of the grants as those of a
//! pipelining client do, takes its entry off at once and looks at no cell. What leaves that line at
//! its old end goes to the list. Entries there go stale and are swept a few at a time, so that the
//! list stays within a small multiple (four) of what is live.

use crate::memory::slot::SLOT_MAX;
use crate::session::SessionId;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use types::Fence;

/// A cell of any shard: `shard:8 | slot:24`. Slots are numbered from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CellRef(NonZeroU32);

/// As many shards as a `CellRef` can name.
pub(crate) const SHARDS_MAX: usize = 256;

impl CellRef {
    #[inline]
    pub(crate) fn new(shard: usize, slot: u32) -> Self {
        assert!(
            shard < SHARDS_MAX && slot <= SLOT_MAX,
            "shard {shard}, slot {slot}"
        );
        CellRef::from_bits((shard as u32) << 24 | slot)
    }

    #[inline]
    fn from_bits(bits: u32) -> Self {
        CellRef(NonZeroU32::new(bits).expect("no cell has slot 0"))
    }

    pub(crate) fn shard(self) -> usize {
        (self.0.get() >> 24) as usize
    }

    pub(crate) fn slot(self) -> u32 {
        self.0.get() & SLOT_MAX
    }
}

/// A grant that a seat remembers. The byte of the fence is there because keys come back: a key that
/// is given back and taken again, over and over, would otherwise look held to every sweep, and each
/// of its grants would stay in the list. One in 256 old entries is taken for the new one, and goes
/// with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    cell: CellRef,
    fence_low: u8,
}

impl Taken {
    #[inline]
    pub(crate) fn new(cell: CellRef, fence: Fence) -> Self {
        let fence_low = fence_low(fence);
        Taken { cell, fence_low }
    }

    pub(crate) fn cell(self) -> CellRef {
        self.cell
    }

    /// Whether this may be the grant of that fence, if it is one of the same cell.
    pub(crate) fn is_under(self, fence: Fence) -> bool {
        self.fence_low == fence_low(fence)
    }
}

fn fence_low(fence: Fence) -> u8 {
    (fence.get() & 0xff) as u8
}

/// A place in a queue. Names one wait only, for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    pub(crate) cell: CellRef,
    pub(crate) waiter: u32,
    pub(crate) generation: u32,
}

/// One thread's share of a session: what it took through this thread. For use with the engine that
/// opened the session and no other. See the module.
pub struct Seat {
    session: SessionId,
    /// The cell that was taken or given back last.
    near: Option<CellRef>,
    /// The latest grant, unless it has been given back. Most are before there is another.
    latest: Option<Taken>,
    /// Those before it, oldest first.
    recent: VecDeque<Taken>,
    pub(crate) held: TakenList,
    pub(crate) waits: Vec<Ticket>,
    /// The next entry a sweep looks at; a sweep is on while it lies below `sweep_end`.
    sweep_hand: usize,
    sweep_end: usize,
    /// A sweep begins when the list has grown to this.
    sweep_at: usize,
    pub(crate) waits_sweep_at: usize,
    /// Its session may end, and then all that is remembered is to be freed.
    remembers: bool,
}

/// Lists shorter than this are not worth sweeping.
pub(crate) const SWEEP_MIN: usize = 64;
/// How many grants are recent: more than a client has under way on one connection.
pub(crate) const RECENT_MAX: usize = 512;
/// How far from the oldest of them a release looks for its grant.
const RECENT_LOOKED_AT: usize = 4;
/// How many old entries each new one looks at while a sweep is on.
const SWEEP_PER_PUSH: usize = 4;

impl Seat {
    /// A seat of this session, for one thread.
    pub fn new(session: SessionId) -> Self {
        Seat {
            session,
            near: None,
            latest: None,
            recent: VecDeque::new(),
            held: TakenList::default(),
            waits: Vec::new(),
            sweep_hand: 0,
            sweep_end: 0,
            sweep_at: SWEEP_MIN,
            waits_sweep_at: SWEEP_MIN,
            remembers: true,
        }
    }

    /// From here on nothing is remembered of what is taken through this seat, and nothing of what
    /// was. For a session that lasts as long as the engine: what it took is never asked for.
    pub fn stop_remembering(&mut self) {
        *self = Seat {
            remembers: false,
            waits: std::mem::take(&mut self.waits),
            ..Seat::new(self.session)
        };
    }

    /// Whose seat it is.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The cell that was used last through this seat. It may have become another key's, or none's.
    #[inline]
    pub(crate) fn near(&self) -> Option<CellRef> {
        self.near
    }

    /// Remembers a grant, and sweeps a few entries if it is time. `is_held` says whether an entry
    /// is still worth keeping.
    #[inline]
    pub(crate) fn remember(&mut self, taken: Taken, is_held: impl Fn(Taken) -> bool) {
        self.near = Some(taken.cell);
        if !self.remembers {
            return;
        }
        if let Some(earlier) = self.latest.replace(taken) {
            self.keep(earlier, is_held);
        }
    }

    /// Puts a grant in line with the latest ones.
    #[inline(never)]
    fn keep(&mut self, taken: Taken, is_held: impl Fn(Taken) -> bool) {
        self.recent.push_back(taken);
        if self.recent.len() > RECENT_MAX {
            self.retire(is_held);
        }
    }

    /// Moves the oldest of the latest grants to the list.
    fn retire(&mut self, is_held: impl Fn(Taken) -> bool) {
        let Some(oldest) = self.recent.pop_front() else {
            return;
        };
        self.held.push(oldest);
        if self.held.len() >= self.sweep_at || self.sweep_hand < self.sweep_end {
            self.sweep(is_held);
        }
    }

    /// Forgets a grant that was just released, if it is the latest one, or one of the oldest among
    /// the latest.
    #[inline]
    pub(crate) fn forget(&mut self, taken: Taken) {
        self.near = Some(taken.cell);
        if self.latest == Some(taken) {
            self.latest = None;
        } else {
            self.forget_earlier(taken);
        }
    }

    #[inline(never)]
    fn forget_earlier(&mut self, taken: Taken) {
        if self.recent.back() == Some(&taken) {
            self.recent.pop_back();
            return;
        }
        let mut oldest = self.recent.iter().take(RECENT_LOOKED_AT);
        if let Some(position) = oldest.position(|old| *old == taken) {
            // Moves no more than those in front of it.
            self.recent.remove(position);
        } else if self.held.last() == Some(taken) {
            self.held.pop();
        }
    }

    /// The latest grant that is remembered.
    pub(crate) fn last(&self) -> Option<Taken> {
        let earlier = || self.recent.back().copied();
        self.latest.or_else(earlier).or_else(|| self.held.last())
    }

    /// Takes one of all that are remembered.
    pub(crate) fn pop(&mut self) -> Option<Taken> {
        let latest = self.latest.take();
        latest
            .or_else(|| self.recent.pop_back())
            .or_else(|| self.held.pop())
    }

    /// How many entries there are.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn remembered(&self) -> usize {
        usize::from(self.latest.is_some()) + self.recent.len() + self.held.len()
    }

    #[cold]
    fn sweep(&mut self, is_held: impl Fn(Taken) -> bool) {
        if self.sweep_hand >= self.sweep_end {
            self.sweep_hand = 0;
            self.sweep_end = self.held.len();
        }
        for _ in 0..SWEEP_PER_PUSH {
            self.sweep_end = self.sweep_end.min(self.held.len());
            if self.sweep_hand >= self.sweep_end {
                break;
            }
            if is_held(self.held.get(self.sweep_hand)) {
                self.sweep_hand += 1;
            } else {
                self.held.swap_remove(self.sweep_hand);
            }
        }
        if self.sweep_hand >= self.sweep_end {
            self.sweep_at = (self.held.len() * 2).max(SWEEP_MIN);
        }
    }
}

/// A grant in five bytes.
#[derive(Clone, Copy)]
struct Packed([u8; 5]);

impl Packed {
    fn new(taken: Taken) -> Self {
        let [a, b, c, d] = taken.cell.0.get().to_le_bytes();
        Packed([a, b, c, d, taken.fence_low])
    }

    fn taken(self) -> Taken {
        let [a, b, c, d, fence_low] = self.0;
        let cell = CellRef::from_bits(u32::from_le_bytes([a, b, c, d]));
        Taken { cell, fence_low }
    }
}

/// A list of grants in chunks, so that growing it never copies much of what is there.
#[derive(Default)]
pub(crate) struct TakenList {
    full: Vec<Vec<Packed>>,
    /// The last chunk, where entries come and go. Empty only if the list is.
    tail: Vec<Packed>,
    /// An empty chunk, kept so that a list at the border of two does not allocate with every push.
    spare: Vec<Packed>,
}

/// The first chunk grows to this from small, as most sessions hold a handful of locks; the others
/// are born with it.
const CHUNK: usize = 4096;

impl TakenList {
    pub(crate) fn len(&self) -> usize {
        self.full.len() * CHUNK + self.tail.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, taken: Taken) {
        if self.tail.len() == CHUNK {
            self.begin_chunk();
        }
        self.tail.push(Packed::new(taken));
    }

    #[cold]
    fn begin_chunk(&mut self) {
        let mut chunk = std::mem::take(&mut self.spare);
        chunk.reserve_exact(CHUNK);
        self.full.push(std::mem::replace(&mut self.tail, chunk));
    }

    #[inline]
    pub(crate) fn last(&self) -> Option<Taken> {
        self.tail.last().map(|last| last.taken())
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Taken> {
        let last = self.tail.pop();
        if self.tail.is_empty() {
            self.end_chunk();
        }
        last.map(Packed::taken)
    }

    fn end_chunk(&mut self) {
        if let Some(chunk) = self.full.pop() {
            self.spare = std::mem::replace(&mut self.tail, chunk);
        }
    }

    pub(crate) fn get(&self, position: usize) -> Taken {
        let chunk = self.full.get(position / CHUNK).unwrap_or(&self.tail);
        chunk[position % CHUNK].taken()
    }

    pub(crate) fn swap_remove(&mut self, position: usize) {
        let last = self.pop().expect("the position is in the list");
        if position < self.len() {
            let chunk = self.full.get_mut(position / CHUNK);
            chunk.unwrap_or(&mut self.tail)[position % CHUNK] = Packed::new(last);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn session() -> SessionId {
        SessionId::from_bits(1 << 32 | 1)
    }

    fn taken(shard: usize, slot: u32) -> Taken {
        Taken::new(CellRef::new(shard, slot), Fence::ZERO)
    }

    #[test]
    fn an_entry_tells_its_cell_and_one_grant_from_the_next() {
        let cell = CellRef::new(SHARDS_MAX - 1, SLOT_MAX);
        for number in 0..1000 {
            let fence = Fence::from_number(number);
            let taken = Taken::new(cell, fence);
            assert_eq!(taken.cell(), cell);
            assert!(taken.is_under(fence));
            assert!(!taken.is_under(fence.next()));
        }
    }

    #[test]
    fn a_seat_that_is_not_to_remember_does_not() {
        let mut seat = Seat::new(session());
        seat.remember(taken(0, 1), |_| true);
        seat.stop_remembering();
        for slot in 1..=1_000 {
            seat.remember(taken(0, slot), |_| true);
        }
        assert_eq!(seat.remembered(), 0);
        seat.forget(taken(0, 1));
        assert_eq!(seat.pop(), None);
    }

    #[test]
    fn the_list_grows_and_shrinks_across_chunks() {
        let mut list = TakenList::default();
        for slot in 1..=3 * CHUNK as u32 {
            list.push(taken(0, slot));
        }
        list.swap_remove(0);
        assert_eq!(list.get(0).cell().slot(), 3 * CHUNK as u32);
        for _ in 0..list.len() {
            assert!(list.pop().is_some());
        }
        assert_eq!(list.pop(), None);
        list.push(taken(1, 9));
        assert_eq!(list.last(), Some(taken(1, 9)));
    }

    #[test]
    fn stale_entries_are_swept_and_live_ones_kept() {
        let mut seat = Seat::new(session());
        let live: HashSet<u32> = (1..=100_000).filter(|slot| slot % 100 == 0).collect();
        for slot in 1..=100_000 {
            seat.remember(taken(0, slot), |taken| {
                let kept = taken.cell().slot();
                live.contains(&kept) || kept == slot
            });
        }
        let kept: HashSet<u32> = std::iter::from_fn(|| seat.pop())
            .map(|taken| taken.cell().slot())
            .collect();
        assert!(live.is_subset(&kept), "a live entry was lost");
        assert!(
            kept.len() < 4 * live.len() + 2 * SWEEP_MIN + RECENT_MAX,
            "{} entries kept for {} live ones",
            kept.len(),
            live.len()
        );
    }

    #[test]
    fn what_is_given_back_in_order_or_last_first_is_forgotten_without_a_sweep() {
        let mut seat = Seat::new(session());
        let never = |_| -> bool { panic!("nothing is old enough to be looked at") };
        for slot in 1..=100 {
            seat.remember(taken(0, slot), never);
        }
        for slot in 101..=10_000 {
            seat.remember(taken(0, slot), never);
            seat.forget(taken(0, slot - 100));
        }
        assert_eq!(seat.remembered(), 100);
        // One is kept for long; the others pass it by.
        for slot in 10_001..=10_400 {
            seat.remember(taken(0, slot), never);
            seat.forget(taken(0, slot - 99));
        }
        seat.forget(taken(0, 10_400));
        assert_eq!(seat.last(), Some(taken(0, 10_399)));
        let rest: Vec<u32> = std::iter::from_fn(|| seat.pop())
            .map(|taken| taken.cell().slot())
            .collect();
        let expected: Vec<u32> = (10_302..=10_399).rev().chain([9_901]).collect();
        assert_eq!(rest, expected);
    }
}
