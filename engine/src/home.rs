//! What only a shard's home core does: turn the wheel, expire what is due, evict what is idle.
//!
//! There is one wheel entry per cell, not per grant: a renewal or a new grant moves nothing. When the entry fires, the cell
//! is looked at and the entry is armed for whatever comes next. Only a lease that ends before the wheel would look needs
//! more: its core puts the cell into the shard's inbox, and so does whoever makes a new cell.
//!
//! Why no deadline is missed. The home core first writes `armed` as far away as it can, then takes its place in the lease's
//! modification order (`Cell::disarm`), and only then decides. A grant that comes before it in that order is seen; one that
//! comes after it sees `armed` as it was written, finds its own deadline earlier, and asks.

use crate::cell::ARM_AHEAD_MS_MAX;
use crate::request::Host;
use crate::shard::{REQUESTED, Shard};
use crate::slab::NONE;
use crate::sync::{AtomicU64, Ordering};
use crate::table::Table;
use crate::tick::Tick;
use crate::wheel::{Due, Links, Wheel};
use crate::word::Kind;

/// The wheel, and the part of the inbox that was taken and not looked at yet.
pub(crate) struct Home {
    wheel: Wheel,
    inbox_rest: u32,
}

impl Home {
    pub(crate) fn new(now: Tick) -> Self {
        Home {
            wheel: Wheel::new(now),
            inbox_rest: NONE,
        }
    }
}

/// How far one call of `advance` came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// More is due already: call again soon.
    pub more: bool,
    /// Nothing will be due before this tick, unless something new happens.
    pub next_due: Option<Tick>,
}

impl<H: Host> Shard<H> {
    /// Does what is due by `now`, at most `budget` steps of it. One thread at a time; a second one is sent away.
    pub(crate) fn advance(&self, now: Tick, budget: &mut u32) -> Progress {
        let Some(mut home) = self.home.try_lock() else {
            return Progress {
                more: false,
                next_due: Some(now.plus_ms(1)),
            };
        };
        let mut more = self.take_inbox(&mut home, now, budget);
        if !more {
            more = self.turn_wheel(&mut home, now, budget);
        }
        more |= self.advance_room(now, budget);
        let room_due = Tick::from_bits(self.room_due.load(Ordering::Relaxed));
        let next_due = [
            home.wheel.next_due(),
            (room_due != Tick::NEVER).then_some(room_due),
        ]
        .into_iter()
        .flatten()
        .min();
        Progress { more, next_due }
    }

    fn take_inbox(&self, home: &mut Home, now: Tick, budget: &mut u32) -> bool {
        loop {
            if home.inbox_rest == NONE {
                // Acquire, paired with the push in `ask_attention`.
                home.inbox_rest = self.inbox.swap(NONE, Ordering::AcqRel);
            }
            let slot = home.inbox_rest;
            if slot == NONE {
                return false;
            }
            if *budget == 0 {
                return true;
            }
            *budget -= 1;
            let cell = self.table.cell(slot);
            // Out of the inbox before we look: whoever asks from here on puts it in again.
            home.inbox_rest = cell.inbox.swap(0, Ordering::AcqRel) & !REQUESTED;
            if cell.word().is_dead() {
                continue;
            }
            let links = CellLinks {
                table: &self.table,
                now,
            };
            if Wheel::is_linked(&links, slot) {
                home.wheel.remove(&links, slot);
            }
            self.look(home, slot, now);
        }
    }

    fn turn_wheel(&self, home: &mut Home, now: Tick, budget: &mut u32) -> bool {
        let links = CellLinks {
            table: &self.table,
            now,
        };
        loop {
            match home.wheel.pop_due(&links, now, budget) {
                Due::Entry(slot) => self.look(home, slot, now),
                Due::Done => return false,
                Due::OutOfBudget => return true,
            }
        }
    }

    /// Looks at a cell that is in no wheel, does what is due, and arms it again unless it is gone.
    fn look(&self, home: &mut Home, slot: u32, now: Tick) {
        let cell = self.table.cell(slot);
        let lease = cell.disarm(now);
        let mut word = cell.word();
        let mut at = None;
        if word.is_held() {
            match cell.seen(word) {
                // Its grantor will see that we look late, and ask again. A record in the making is no different.
                None => at = Some(now.plus_ms(1)),
                Some(seen) if seen.lease.kind() == Kind::Record => {
                    if seen.lease.deadline() <= now {
                        self.settle_if_ours(slot, now);
                        at = Some(self.next_look(slot, now));
                    } else {
                        at = Some(seen.lease.deadline());
                    }
                }
                Some(seen) if self.is_over(&seen, now) => {
                    if seen.lease.kind() == Kind::Timed {
                        self.lag.record(seen.lease.deadline().ms_until(now));
                    }
                    // We are the home core, so the cell is not evicted under us and its key can be read.
                    self.expire(slot, word, &seen, self.table.key_of(slot).key(), now);
                    word = cell.word();
                    if !word.is_plain_free() {
                        at = Some(self.next_look(slot, now));
                    }
                }
                Some(seen) => at = Some(self.lease_end(seen.lease, seen.owner)),
            }
        }
        let at = match at {
            Some(at) => at,
            None => {
                let idle_until = lease.deadline().plus_ms(self.common.limits.idle_ms);
                if idle_until <= now && self.table.evict(slot, &self.bounds, &self.pin()) {
                    return;
                }
                idle_until
            }
        };
        let at = at.max(now.plus_ms(1)).min(now.plus_ms(ARM_AHEAD_MS_MAX));
        cell.set_armed(at);
        home.wheel.insert(
            &CellLinks {
                table: &self.table,
                now,
            },
            slot,
            at,
        );
    }

    fn settle_if_ours(&self, slot: u32, now: Tick) {
        let mut room = self.room.lock();
        if self.table.cell(slot).word().belongs_to_room() {
            self.settle(&mut room, slot, now);
        }
    }

    /// When to look again at a cell that has just changed hands or records.
    fn next_look(&self, slot: u32, now: Tick) -> Tick {
        let cell = self.table.cell(slot);
        match cell.seen(cell.word()) {
            Some(seen) if seen.lease.kind() == Kind::Record => seen.lease.deadline(),
            Some(seen) => self.lease_end(seen.lease, seen.owner),
            None => now.plus_ms(1),
        }
    }
}

/// The wheel's links, in the cells. A cell is due when it was armed for.
struct CellLinks<'a> {
    table: &'a Table,
    now: Tick,
}

impl Links for CellLinks<'_> {
    fn next(&self, entry: u32) -> u32 {
        self.table.cell(entry).wheel_next.load(Ordering::Relaxed)
    }
    fn prev(&self, entry: u32) -> u32 {
        self.table.cell(entry).wheel_prev.load(Ordering::Relaxed)
    }
    fn set_next(&self, entry: u32, next: u32) {
        self.table
            .cell(entry)
            .wheel_next
            .store(next, Ordering::Relaxed);
    }
    fn set_prev(&self, entry: u32, prev: u32) {
        self.table
            .cell(entry)
            .wheel_prev
            .store(prev, Ordering::Relaxed);
    }
    fn due(&self, entry: u32) -> Tick {
        self.table.cell(entry).armed_for(self.now)
    }
}

/// How late leases were expired by the wheel: one counter per power of two of milliseconds.
pub(crate) struct LagRecord {
    buckets: [AtomicU64; LAG_BUCKETS],
}

/// On time, then under 2, 4, 8 ... ms; the last takes everything from four minutes on.
pub const LAG_BUCKETS: usize = 20;

impl LagRecord {
    pub(crate) fn new() -> Self {
        LagRecord {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn record(&self, late_ms: u64) {
        let bucket = if late_ms == 0 {
            0
        } else {
            late_ms.ilog2() as usize + 1
        };
        self.buckets[bucket.min(LAG_BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_to(&self, totals: &mut [u64; LAG_BUCKETS]) {
        for (total, bucket) in totals.iter_mut().zip(&self.buckets) {
            *total += bucket.load(Ordering::Relaxed);
        }
    }
}
