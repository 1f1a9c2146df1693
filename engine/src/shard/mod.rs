//! One shard: where table, room, wheel and fences meet.
//!
//! What each core may touch. Any core may change a plain lock word by CAS (`plain.rs`). Only the
//! holder of the room mutex changes a word that is QUEUED or RICH, and only it touches queues and
//! records (`contended.rs`). Only the home core, holding `home`, turns the wheel and evicts cells
//! (`home.rs`). No caller waits while it holds a mutex, and `home` is never taken inside `room`.

mod claim;
mod contended;
mod describe;
mod expiry;
mod hand_off;
mod home;
mod inbox;
mod metadata;
mod plain;
mod record;
mod room;
mod take_over;

use crate::api::{Host, Limit};
use crate::cell::metadata::MetadataBudget;
use crate::fence::Bounds;
use crate::memory::slot::NONE;
use crate::session::Sessions;
use crate::sync::{AtomicU32, AtomicU64, Mutex};
use crate::table::epoch::Guard;
use crate::table::{Found, Table, TableFull};
use crate::time::rest::RestsUntil;
use crate::time::tick::Tick;
use crate::time::wheel::Wheel;
use room::Room;
use std::sync::Arc;
use types::{Fence, Histogram, Key};

/// On time, then under 2, 4, 8 ... ms; the last takes everything from four minutes on.
pub const LAG_BUCKETS: usize = 20;

/// What all shards share.
pub(crate) struct Common<H: Host> {
    pub(crate) host: H,
    pub(crate) sessions: Sessions,
    pub(crate) limits: Limits,
    /// Waiters of all shards.
    pub(crate) waiters: AtomicU32,
    /// How many bytes of metadata the shards keep together.
    pub(crate) metadata: Arc<MetadataBudget>,
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
    /// Until when the home sleeps, if it does. See `inbox.rs`.
    pub(crate) rests_until: RestsUntil,
    pub(crate) home: Mutex<Home>,
    /// How late leases were expired by the wheel, in milliseconds.
    pub(crate) lag: Histogram<LAG_BUCKETS>,
}

/// What only the home core touches: the wheel, and the part of the inbox that was taken and not
/// looked at yet.
pub(crate) struct Home {
    wheel: Wheel,
    inbox_rest: u32,
}

/// A wish to wait: until when, and how to make the waiter once it is needed.
pub(crate) struct Wait<'w, W> {
    pub(crate) deadline: Tick,
    /// `None`: the caller cannot wait after all, and is answered as one that does not want to.
    pub(crate) make: &'w mut dyn FnMut() -> Option<W>,
}

/// A key, and what its caller knows of where its cell is.
#[derive(Clone, Copy)]
pub(crate) struct Target<'k> {
    pub(crate) key: Key<'k>,
    /// The cell that a caller found for this key a moment ago, or used last; `NONE` without one. It
    /// may have become another key's.
    pub(crate) near: u32,
    /// Worked out when the index is asked, if the caller has not.
    pub(crate) hash: Option<u64>,
}

/// Where a call found what it was about; the caller's seat remembers the cell.
pub(crate) struct Answer<T> {
    pub(crate) outcome: T,
    pub(crate) slot: u32,
}

impl From<TableFull> for Limit {
    fn from(full: TableFull) -> Self {
        match full {
            TableFull::Cells => Limit::Keys,
            TableFull::Blocks => Limit::Bytes,
        }
    }
}

impl<T> Answer<T> {
    fn new(outcome: T, slot: u32) -> Self {
        Answer { outcome, slot }
    }
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
            rests_until: RestsUntil::new(),
            home: Mutex::new(Home {
                wheel: Wheel::new(now),
                inbox_rest: NONE,
            }),
            lag: Histogram::default(),
        }
    }

    /// The cell of a key, if it has one.
    #[inline(always)]
    pub(crate) fn find(&self, target: Target<'_>, guard: &Guard) -> Option<Found> {
        self.recall(target)
            .or_else(|| self.table.find(target.key, self.hash(target), guard))
    }

    /// The cell of a key, made if it has none.
    fn find_or_insert(&self, target: Target<'_>, now: Tick, guard: &Guard) -> Result<Found, Limit> {
        if let Some(found) = self.recall(target) {
            return Ok(found);
        }
        let hash = self.hash(target);
        let (found, is_new) =
            self.table
                .find_or_insert(target.key, hash, &self.bounds, now, guard)?;
        if is_new {
            self.introduce(self.table.cell(found.slot), found.slot);
        }
        Ok(found)
    }

    /// The cell that the caller knows, if it is still this key's. One that has been granted under
    /// its key is in the index; one that never was need not be, and is left to the index.
    #[inline(always)]
    fn recall(&self, target: Target<'_>) -> Option<Found> {
        if target.near == NONE {
            return None;
        }
        let (_, found) = self.table.compare(target.near, target.key)?;
        (!found.word.is_unborn()).then_some(found)
    }

    #[inline(always)]
    fn hash(&self, target: Target<'_>) -> u64 {
        let known = target.hash;
        known.unwrap_or_else(|| self.table.hash(target.key))
    }

    /// Allows fences up to `to`, and serves the waiters that lacked them: in this order, so that a
    /// request which finds the old ceiling has its waiter among those that are served.
    pub(crate) fn raise_ceiling(&self, to: Fence, now: Tick) {
        let served_first = fault!(CeilingServesFirst).then(|| self.serve_starved(now));
        self.bounds.raise_ceiling(to);
        served_first.unwrap_or_else(|| self.serve_starved(now));
    }

    fn serve_starved(&self, now: Tick) {
        let mut room = self.room.lock();
        for slot in room.take_starved() {
            if self.table.cell(slot).word().belongs_to_room() {
                drop(self.contended(&mut room, slot, now));
            } else {
                // Its waiters have given up.
                room.tidy_line(slot);
            }
        }
    }

    /// Whether this fence lies within what has been made durable.
    #[inline]
    pub(crate) fn may_issue(&self, fence: Fence) -> bool {
        fence <= self.bounds.ceiling() || fault!(CeilingUnchecked)
    }

    /// Says so when fences run low.
    #[inline]
    pub(crate) fn mind_ceiling(&self, issued: Fence) {
        if self.bounds.note_issued(issued) {
            self.common.host.ceiling_low(self.number);
        }
    }
}

/// How long ago `since` was. Exact for 24 days, which no lease reaches without being renewed a good
/// many times. By the clock of another core it may lie a moment ahead: that is now.
pub(crate) fn held_ms(since_low32: u32, now: Tick) -> u64 {
    let held_ms = now.low32().wrapping_sub(since_low32);
    u64::try_from(held_ms as i32).unwrap_or(0)
}
