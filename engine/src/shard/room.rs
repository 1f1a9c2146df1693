//! The waiting room of a shard: the queues of its contended keys, and the records of keys whose
//! holders do not fit into a cell's words (shared or reentrant holders, grants with metadata).
//! Plain data, always reached through the room mutex; what to do with it is decided in
//! `contended.rs`.

use crate::cell::Seen;
use crate::cell::metadata::{Kept, Metadata};
use crate::session::SessionId;
use crate::time::lease::{Kind, Lease};
use crate::time::tick::Tick;
use crate::time::wheel::{Due, Links, NONE, Wheel};
use hashbrown::HashMap;
use std::cell::Cell;
use types::Fence;
use types::{Mode, Span};

/// How many later waiters one that comes back may pass. The room mutex is held meanwhile.
const PASSED_MAX: u32 = 1024;

pub(crate) struct Room<W> {
    /// By slot: every key with waiters or a record, or on the list of those that wait for fences,
    /// and no other.
    lines: HashMap<u32, Line>,
    pub(crate) waiters: Waiters<W>,
    /// Wakes waiters at their deadlines, and the first in line also when the lease in front of it
    /// ends: a key that has waiters is not to stand behind ten million that have none.
    pub(crate) wheel: Wheel,
    /// Slots whose first waiter could not be granted for want of fences.
    starved: Vec<u32>,
}

/// One key's queue and record.
#[derive(Default)]
pub(crate) struct Line {
    first: u32,
    last: u32,
    pub(crate) length: u32,
    pub(crate) record: Option<Record>,
    /// Stands in the room's list of keys that wait for fences.
    pub(crate) is_starved: bool,
}

/// Several holders, or one with more to remember than a cell can.
pub(crate) struct Record {
    pub(crate) mode: Mode,
    /// In the order of their fences, which is the order of their grants.
    pub(crate) holders: Vec<RecordHolder>,
}

pub(crate) struct RecordHolder {
    pub(crate) fence: Fence,
    pub(crate) owner: SessionId,
    /// Tagged with the fence; `Timed` or `Session`.
    pub(crate) lease: Lease,
    /// When it was granted, low 32 bits.
    pub(crate) since_low32: u32,
    pub(crate) count: u32,
    pub(crate) metadata: Metadata,
}

impl RecordHolder {
    /// This hold, as a cell would show it.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            lease: self.lease,
            owner: self.owner,
            since_low32: self.since_low32,
            metadata: NONE,
        }
    }
}

/// What a waiter waits for.
pub(crate) struct Want {
    pub(crate) owner: SessionId,
    pub(crate) mode: Mode,
    pub(crate) span: Span,
    pub(crate) metadata: Metadata,
    /// Of what its waiter keeps outside the engine.
    pub(crate) _kept: Kept,
}

/// When a waiter asked, and until when it waits.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) now: Tick,
    /// How long it had stood in line before, with a server that is gone.
    pub(crate) waited_ms: u64,
    pub(crate) deadline: Tick,
}

impl Times {
    fn asked_ms(self) -> i64 {
        let ms = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        ms(self.now.as_ms()) - ms(self.waited_ms)
    }
}

/// Where a new waiter stands.
pub(crate) struct Standing {
    pub(crate) place: u32,
    /// Of the place.
    pub(crate) generation: u32,
    /// How many stand in front of it.
    pub(crate) ahead: u32,
}

/// A waiter's place: links of its queue and of the wheel, and the handle by which it is told.
pub(crate) struct Place<W> {
    generation: u32,
    slot: u32,
    next: u32,
    prev: u32,
    wheel_next: Cell<u32>,
    wheel_prev: Cell<u32>,
    pub(crate) deadline: Tick,
    /// When it asked, in milliseconds of the engine's clock: before 0 if it has stood in line with
    /// a server that is gone.
    asked_ms: i64,
    /// When the wheel looks at it: its deadline or before.
    wake: Tick,
    occupant: Option<(Want, W)>,
}

/// All waiters of a shard. Places are numbered from 1 and reused; a generation tells one use from
/// the next.
pub(crate) struct Waiters<W> {
    places: Vec<Place<W>>,
    free: u32,
}

impl<W> Room<W> {
    pub(crate) fn new(now: Tick) -> Self {
        Room {
            lines: HashMap::default(),
            waiters: Waiters {
                places: Vec::new(),
                free: NONE,
            },
            wheel: Wheel::new(now),
            starved: Vec::new(),
        }
    }

    pub(crate) fn line(&self, slot: u32) -> Option<&Line> {
        self.lines.get(&slot)
    }

    pub(crate) fn line_mut(&mut self, slot: u32) -> &mut Line {
        self.lines.entry(slot).or_default()
    }

    pub(crate) fn queue_length(&self, slot: u32) -> u32 {
        self.line(slot).map_or(0, |line| line.length)
    }

    pub(crate) fn record(&self, slot: u32) -> Option<&Record> {
        self.line(slot)?.record.as_ref()
    }

    pub(crate) fn record_mut(&mut self, slot: u32) -> Option<&mut Record> {
        self.lines.get_mut(&slot)?.record.as_mut()
    }

    /// Forgets a key that has neither waiters nor a record. One on the list of those that wait for
    /// fences is kept, or a client that waits and gives up, over and over, would put it there again
    /// each time.
    pub(crate) fn tidy_line(&mut self, slot: u32) {
        if let Some(line) = self.lines.get(&slot)
            && line.length == 0
            && line.record.is_none()
            && !line.is_starved
        {
            self.lines.remove(&slot);
        }
    }

    /// Puts a waiter into its key's queue: at the end, or, if it has stood in line before, in front
    /// of those that asked later.
    pub(crate) fn push_waiter(
        &mut self,
        slot: u32,
        times: Times,
        want: Want,
        waiter: W,
    ) -> Standing {
        let line = self.lines.entry(slot).or_default();
        let asked_ms = times.asked_ms();
        let (mut prev, mut next, mut behind) = (line.last, NONE, 0);
        if times.waited_ms > 0 {
            while prev != NONE && behind < PASSED_MAX && self.waiters.get(prev).asked_ms > asked_ms
            {
                (prev, next) = (self.waiters.get(prev).prev, prev);
                behind += 1;
            }
        }
        let ahead = line.length - behind;
        let place = self.waiters.take(Place {
            generation: 0,
            slot,
            next,
            prev,
            wheel_next: Cell::new(NONE),
            wheel_prev: Cell::new(NONE),
            deadline: times.deadline,
            asked_ms,
            wake: times.deadline,
            occupant: Some((want, waiter)),
        });
        match prev {
            NONE => line.first = place,
            prev => self.waiters.get_mut(prev).next = place,
        }
        match next {
            NONE => line.last = place,
            next => self.waiters.get_mut(next).prev = place,
        }
        line.length += 1;
        self.wheel.insert(&self.waiters, place, times.deadline);
        Standing {
            place,
            generation: self.waiters.get(place).generation,
            ahead,
        }
    }

    /// Takes the next waiter that is to be looked at by `now` out of the wheel.
    pub(crate) fn pop_due(&mut self, now: Tick, budget: &mut u32) -> Due {
        self.wheel.pop_due(&self.waiters, now, budget)
    }

    /// Has the wheel look at a waiter at `at`, if that is sooner than it would.
    pub(crate) fn wake_by(&mut self, place: u32, at: Tick) {
        if self.waiters.get(place).wake <= at {
            return;
        }
        if Wheel::is_linked(&self.waiters, place) {
            self.wheel.remove(&self.waiters, place);
        }
        self.waiters.get_mut(place).wake = at;
        self.wheel.insert(&self.waiters, place, at);
    }

    /// A waiter came out of the wheel before its deadline: it goes back in.
    pub(crate) fn wait_on(&mut self, place: u32) {
        let node = self.waiters.get_mut(place);
        node.wake = node.deadline;
        let deadline = node.deadline;
        self.wheel.insert(&self.waiters, place, deadline);
    }

    pub(crate) fn deadline_of(&self, place: u32) -> Tick {
        self.waiters.get(place).deadline
    }

    /// The first in line, with what it wants.
    pub(crate) fn first_waiter(&self, slot: u32) -> Option<(u32, &Want, Tick)> {
        let first = self.line(slot)?.first;
        if first == NONE {
            return None;
        }
        let place = self.waiters.get(first);
        let (want, _) = place
            .occupant
            .as_ref()
            .expect("a place in a queue is occupied");
        Some((first, want, place.deadline))
    }

    /// The key that this very wait is for, if it still goes on.
    pub(crate) fn slot_of_wait(&self, place: u32, generation: u32) -> Option<u32> {
        let place = self.waiters.places.get(place.checked_sub(1)? as usize)?;
        let is_same = place.generation == generation || fault!(CancelUnchecked);
        (is_same && place.occupant.is_some()).then_some(place.slot)
    }

    /// Takes a waiter out of its queue and out of the wheel, wherever it stands. O(1).
    pub(crate) fn remove_waiter(&mut self, place: u32) -> (Want, W) {
        if Wheel::is_linked(&self.waiters, place) {
            self.wheel.remove(&self.waiters, place);
        }
        let node = self.waiters.get(place);
        let (slot, prev, next) = (node.slot, node.prev, node.next);
        let line = self
            .lines
            .get_mut(&slot)
            .expect("a waiter's key has a line");
        if prev == NONE {
            line.first = next;
        }
        if next == NONE {
            line.last = prev;
        }
        line.length -= 1;
        if prev != NONE {
            self.waiters.get_mut(prev).next = next;
        }
        if next != NONE {
            self.waiters.get_mut(next).prev = prev;
        }
        self.waiters.put(place)
    }

    /// Remembers a key whose first waiter waits for the ceiling.
    pub(crate) fn note_starved(&mut self, slot: u32) {
        let line = self.lines.entry(slot).or_default();
        if !std::mem::replace(&mut line.is_starved, true) {
            self.starved.push(slot);
        }
    }

    /// Takes the list of keys that wait for the ceiling.
    pub(crate) fn take_starved(&mut self) -> Vec<u32> {
        let starved = std::mem::take(&mut self.starved);
        for slot in &starved {
            if let Some(line) = self.lines.get_mut(slot) {
                line.is_starved = false;
            }
        }
        starved
    }

    pub(crate) fn slot_of_place(&self, place: u32) -> u32 {
        self.waiters.get(place).slot
    }
}

impl Record {
    pub(crate) fn holder(&self, fence: Fence) -> Option<&RecordHolder> {
        let position = self
            .holders
            .binary_search_by_key(&fence, |holder| holder.fence)
            .ok()?;
        Some(&self.holders[position])
    }

    pub(crate) fn holder_mut(&mut self, fence: Fence) -> Option<&mut RecordHolder> {
        let position = self
            .holders
            .binary_search_by_key(&fence, |holder| holder.fence)
            .ok()?;
        Some(&mut self.holders[position])
    }

    pub(crate) fn holder_of(&self, owner: SessionId) -> Option<&RecordHolder> {
        self.holders.iter().find(|holder| holder.owner == owner)
    }

    pub(crate) fn remove(&mut self, fence: Fence) {
        let position = self
            .holders
            .binary_search_by_key(&fence, |holder| holder.fence);
        if let Ok(position) = position {
            self.holders.remove(position);
        }
    }

    /// When the wheel has to look at this record next.
    pub(crate) fn earliest(&self, session_deadline: impl Fn(SessionId) -> Tick) -> Tick {
        let deadlines = self.holders.iter().map(|holder| match holder.lease.kind() {
            Kind::Session => session_deadline(holder.owner),
            _ => holder.lease.deadline(),
        });
        deadlines.min().unwrap_or(Tick::NEVER)
    }
}

impl<W> Waiters<W> {
    fn get(&self, place: u32) -> &Place<W> {
        &self.places[place as usize - 1]
    }

    fn get_mut(&mut self, place: u32) -> &mut Place<W> {
        &mut self.places[place as usize - 1]
    }

    fn take(&mut self, new: Place<W>) -> u32 {
        if self.free == NONE {
            self.places.push(new);
            return self.places.len() as u32;
        }
        let place = self.free;
        let node = self.get_mut(place);
        let (generation, next_free) = (node.generation, node.next);
        *node = Place { generation, ..new };
        self.free = next_free;
        place
    }

    fn put(&mut self, place: u32) -> (Want, W) {
        let free = self.free;
        let node = self.get_mut(place);
        let occupant = node.occupant.take().expect("a place is left once");
        // A ticket for this place is void from now on. Four thousand million waits later it would
        // not be; no ticket lives through a thousandth of that.
        node.generation = node.generation.wrapping_add(1);
        node.next = free;
        self.free = place;
        occupant
    }
}

impl<W> Links for Waiters<W> {
    fn next(&self, entry: u32) -> u32 {
        self.get(entry).wheel_next.get()
    }
    fn prev(&self, entry: u32) -> u32 {
        self.get(entry).wheel_prev.get()
    }
    fn set_next(&self, entry: u32, next: u32) {
        self.get(entry).wheel_next.set(next);
    }
    fn set_prev(&self, entry: u32, prev: u32) {
        self.get(entry).wheel_prev.set(prev);
    }
    fn due(&self, entry: u32) -> Tick {
        self.get(entry).wake
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_waits_for_fences_once_however_often_its_waiters_come_and_go() {
        let mut room = Room::<()>::new(Tick::default());
        for _ in 0..1000 {
            let want = Want {
                owner: SessionId::from_bits(1),
                mode: Mode::Exclusive,
                span: Span::Session,
                metadata: Metadata::default(),
                _kept: Kept::default(),
            };
            let times = Times {
                now: Tick::default(),
                waited_ms: 0,
                deadline: Tick::MAX,
            };
            let standing = room.push_waiter(7, times, want, ());
            room.note_starved(7);
            room.remove_waiter(standing.place);
            room.tidy_line(7);
        }
        assert_eq!(room.take_starved(), [7]);
        room.tidy_line(7);
        assert!(room.lines.is_empty());
    }
}
