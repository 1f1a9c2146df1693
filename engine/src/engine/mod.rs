//! The engine: sends each call to its key's shard, and keeps the caller's seat.

use crate::api::Settings;
use crate::api::{
    Acquire, Downgrade, Host, Invalid, NOTE_BYTES_MAX, NotHeld, Outcome, Release, Renewal,
    TTL_MS_MAX, WAIT_MS_MAX,
};
use crate::cell::key::{BLOCK_MEMORY_BYTES, BLOCKS_MAX};
use crate::cell::metadata::MetadataBudget;
use crate::memory::slot::{NONE, SLOT_MAX};
use crate::session::seat::{CellRef, SHARDS_MAX, SWEEP_MIN, Seat, Taken, Ticket};
use crate::session::{SessionId, Sessions};
use crate::shard::{Common, Limits, Shard, Target, Wait};
use crate::sync::AtomicU32;
use crate::table::epoch::{self, Guard};
use crate::table::{Memory, Table, TableSize};
use crate::time::tick::Tick;
use crossbeam_utils::CachePadded;
use std::sync::Arc;
use types::Fence;
use types::Key;
use types::Span;

mod claims;
mod drive;
mod fast_path;
mod numbers;
mod query;
mod sessions;
mod take_over;
#[cfg(all(test, not(loom)))]
mod tests;
pub(crate) mod walk;

/// The lock machine. All methods take `&self` and may be called from any thread.
pub struct Engine<H: Host> {
    shards: Box<[CachePadded<Shard<H>>]>,
    common: Arc<Common<H>>,
    memory: Memory,
    hash_key: ahash::RandomState,
}

/// The fast path does not decide this call. Nothing has happened; this cell was found for the key.
struct Missed(Option<CellRef>);

/// While this lives, calls from the same thread save themselves some of their entry cost.
pub struct Batch(#[allow(dead_code, reason = "held, not used")] Guard);

/// How many keys one call of [`Engine::warm`] looks at.
pub const WARM_MAX: usize = 32;

impl<H: Host> Engine<H> {
    /// An engine with nothing in it.
    pub fn new(settings: Settings, host: H) -> Self {
        let shard_count = settings.shards.clamp(1, SHARDS_MAX).next_power_of_two();
        let hash_key = match settings.hash_seed {
            Some(seed) => ahash::RandomState::with_seeds(seed, 1, 2, 3),
            None => ahash::RandomState::new(),
        };
        // Keys do not fall evenly: a shard may hold an eighth more than its share.
        let share = settings.keys_max.div_ceil(shard_count as u64);
        let shard_keys_max = (share + share / 8).min(u64::from(SLOT_MAX)) as u32;
        let share_expected = settings.keys_expected.div_ceil(shard_count as u64);
        let shard_keys_expected =
            (share_expected + share_expected / 8).min(u64::from(shard_keys_max)) as usize;
        let share = settings.bytes_max / 2 / BLOCK_MEMORY_BYTES / shard_count as u64;
        // No more than one for every key, so that 72 bytes are room for the average key.
        let shard_blocks_max = (share + share / 8)
            .min(u64::from(shard_keys_max))
            .max(BLOCKS_MAX as u64) as u32;
        // A quarter for short metadata: without a block it is kept as long metadata is.
        let shard_metadata_max = (settings.bytes_max / 4 / BLOCK_MEMORY_BYTES / shard_count as u64)
            .min(u64::from(shard_keys_max)) as u32;
        let block_count = u64::from(shard_blocks_max) + u64::from(shard_metadata_max);
        let block_bytes_max = block_count * BLOCK_MEMORY_BYTES * shard_count as u64;
        let common = Arc::new(Common {
            host,
            sessions: Sessions::new(settings.sessions_max, settings.now),
            limits: Limits {
                waiters_per_key_max: settings.waiters_per_key_max,
                waiters_max: settings.waiters_max,
                shared_holders_max: settings.shared_holders_max,
                idle_ms: settings.idle_ms,
                pauses_before_refusal: settings.pauses_before_refusal,
            },
            waiters: AtomicU32::new(0),
            metadata: MetadataBudget::new(settings.bytes_max.saturating_sub(block_bytes_max)),
        });
        let size = TableSize {
            keys_max: shard_keys_max,
            blocks_max: shard_blocks_max,
            metadata_blocks_max: shard_metadata_max,
            keys_restored_max: settings.keys_restored.min(u64::from(SLOT_MAX)) as u32,
        };
        let memory = Memory::new(shard_count, size);
        let shards = (0..shard_count)
            .map(|number| {
                let table =
                    Table::new(&memory, size, hash_key.clone()).expecting(shard_keys_expected);
                CachePadded::new(Shard::new(
                    number,
                    common.clone(),
                    table,
                    settings.floor,
                    settings.ceiling,
                    settings.now,
                ))
            })
            .collect();
        Engine {
            shards,
            common,
            memory,
            hash_key,
        }
    }

    /// The host this engine was given.
    pub fn host(&self) -> &H {
        &self.common.host
    }

    /// Call this once before a batch of calls, and drop it after: they then share one entry into
    /// the table.
    pub fn batch(&self) -> Batch {
        Batch(epoch::pin())
    }

    /// Has fetched from memory what the next calls for these keys will read: many lines come in the
    /// time of one, as long as none of them waits for another. Changes nothing. Looks at the first
    /// [`WARM_MAX`] keys.
    pub fn warm<'k>(&self, keys: impl Iterator<Item = Key<'k>>) {
        let guard = epoch::pin();
        let mut places = [(0, 0); WARM_MAX];
        let mut count = 0;
        for (place, key) in places.iter_mut().zip(keys) {
            *place = self.locate(key);
            let (shard, hash) = *place;
            self.shards[shard].table.prefetch_index(hash, &guard);
            count += 1;
        }
        // In a loop of its own: by now the first entries of the indexes are there.
        for &(shard, hash) in &places[..count] {
            self.shards[shard].table.prefetch_cell(hash, &guard);
        }
    }

    // ---- locks

    /// Asks for a lock without waiting.
    #[inline]
    pub fn acquire(&self, seat: &mut Seat, request: &Acquire<'_>, now: Tick) -> Outcome {
        match self.take_free(seat, request, now) {
            Ok(outcome) => outcome,
            Err(missed) => self.acquire_with(seat, request, missed, None, now),
        }
    }

    /// Asks for a lock, ready to wait `wait_ms` for it. `waiter` is called once the caller has to
    /// wait, and makes the handle by which the host will reach it; or `None`, if the caller cannot
    /// wait after all, and is then answered as by [`Engine::acquire`]. It is called while the
    /// engine holds a shard's mutex: it must be quick, must not wait and must not call the engine.
    pub fn acquire_or_wait(
        &self,
        seat: &mut Seat,
        request: &Acquire<'_>,
        wait_ms: u64,
        waiter: impl FnOnce() -> Option<H::Waiter>,
        now: Tick,
    ) -> Outcome {
        if wait_ms == 0 || wait_ms > WAIT_MS_MAX {
            return Outcome::Invalid(Invalid::Wait { wait_ms });
        }
        match self.take_free(seat, request, now) {
            Ok(outcome) => outcome,
            Err(missed) => {
                let mut waiter = Some(waiter);
                let wait = Wait {
                    deadline: now.plus_ms(wait_ms),
                    make: &mut || waiter.take().and_then(|make| make()),
                };
                self.acquire_with(seat, request, missed, Some(wait), now)
            }
        }
    }

    /// A session may end on another core while it acquires on this one. Its seat here may have been
    /// vacated already, so the grant would stand until its lease ran out.
    #[cold]
    fn refuse_late(&self, shard: &Shard<H>, slot: u32, owner: SessionId, now: Tick) -> Outcome {
        if !fault!(RefusedGrantStands) {
            shard.vacate(slot, owner, now);
        }
        Outcome::SessionEnded
    }

    /// Any acquire, whatever it takes.
    #[inline(never)]
    fn acquire_with(
        &self,
        seat: &mut Seat,
        request: &Acquire<'_>,
        Missed(near): Missed,
        wait: Option<Wait<'_, H::Waiter>>,
        now: Tick,
    ) -> Outcome {
        if let Some(invalid) = invalid_span(request.span) {
            return Outcome::Invalid(invalid);
        }
        if request.metadata.len() > NOTE_BYTES_MAX {
            return Outcome::Invalid(Invalid::Metadata {
                metadata_bytes: request.metadata.len(),
            });
        }
        if self.common.sessions.is_ended(seat.session(), now) {
            return Outcome::SessionEnded;
        }
        let (shard_number, target) = self.target(request.key, near);
        let shard = &self.shards[shard_number];
        let answer = shard.acquire(target, request, seat.session(), wait, now);
        match &answer.outcome {
            Outcome::Granted(grant) => {
                if grant.count == 1 {
                    let cell = CellRef::new(shard_number, answer.slot);
                    self.remember(seat, Taken::new(cell, grant.fence));
                }
                if self.common.sessions.is_ended(seat.session(), now) {
                    return self.refuse_late(shard, answer.slot, seat.session(), now);
                }
            }
            Outcome::Queued { ticket, .. } => {
                let ticket = *ticket;
                self.remember_wait(seat, ticket);
                // Likewise a wait would stand in line for nothing, up to its deadline. If it is
                // over already, its waiter has been told, and what it was granted is void.
                if self.common.sessions.is_ended(seat.session(), now) {
                    match shard.cancel(ticket, now) {
                        Some(_) => return Outcome::SessionEnded,
                        None => shard.vacate(ticket.cell.slot(), seat.session(), now),
                    }
                }
            }
            _ => {}
        }
        answer.outcome
    }

    /// Extends the lease of the lock named by key and fence.
    pub fn renew(
        &self,
        seat: &Seat,
        key: Key<'_>,
        fence: Fence,
        ttl_ms: u64,
        now: Tick,
    ) -> Renewal {
        self.renew_for(seat, key, fence, Span::Ms(ttl_ms), now)
    }

    /// As [`Engine::renew`], to an end at any distance. A lease that lives as long as its session
    /// stays one.
    pub fn renew_for(
        &self,
        seat: &Seat,
        key: Key<'_>,
        fence: Fence,
        span: Span,
        now: Tick,
    ) -> Renewal {
        if let Some(invalid) = invalid_span(span) {
            return Renewal::Invalid(invalid);
        }
        if self.common.sessions.is_ended(seat.session(), now) {
            return Renewal::NotHeld(NotHeld::SessionEnded);
        }
        let (shard, target) = self.target(key, None);
        self.shards[shard].renew(target, fence, seat.session(), span, now)
    }

    /// Frees the lock named by key and fence.
    #[inline]
    pub fn release(&self, seat: &mut Seat, key: Key<'_>, fence: Fence, now: Tick) -> Release {
        self.release_timed(seat, key, fence, now).0
    }

    /// As [`Engine::release`], and for how many milliseconds the lock had been held; zero if it was
    /// not the caller's.
    #[inline]
    pub fn release_timed(
        &self,
        seat: &mut Seat,
        key: Key<'_>,
        fence: Fence,
        now: Tick,
    ) -> (Release, u64) {
        if self.common.sessions.is_ended(seat.session(), now) {
            return (Release::NotHeld(NotHeld::SessionEnded), 0);
        }
        match self.give_back(seat, key, fence, now) {
            Ok(held_ms) => (Release::Released { count: 0 }, held_ms),
            Err(missed) => self.release_with(seat, key, fence, missed, now),
        }
    }

    /// Any release, whatever it takes.
    #[inline(never)]
    fn release_with(
        &self,
        seat: &mut Seat,
        key: Key<'_>,
        fence: Fence,
        Missed(near): Missed,
        now: Tick,
    ) -> (Release, u64) {
        let (shard, target) = self.target(key, near);
        let answer = self.shards[shard].release(target, fence, seat.session(), now);
        if answer.slot != NONE && answer.outcome.0 == (Release::Released { count: 0 }) {
            seat.forget(Taken::new(CellRef::new(shard, answer.slot), fence));
        }
        answer.outcome
    }

    /// Turns an exclusive lock into a shared one, under the same fence, and lets in the readers at
    /// the front of the queue.
    pub fn downgrade(&self, seat: &Seat, key: Key<'_>, fence: Fence, now: Tick) -> Downgrade {
        if self.common.sessions.is_ended(seat.session(), now) {
            return Downgrade::NotHeld(NotHeld::SessionEnded);
        }
        let (shard, target) = self.target(key, None);
        self.shards[shard].downgrade(target, fence, seat.session(), now)
    }

    /// Takes a waiter out of line and gives it back. `None`: it has been granted, has given up or
    /// was never there.
    pub fn cancel(&self, ticket: Ticket, now: Tick) -> Option<H::Waiter> {
        self.shards.get(ticket.cell.shard())?.cancel(ticket, now)
    }

    /// Takes a lock away from its holder, and tells it. `false`: it is not held under this fence.
    pub fn force_release(&self, key: Key<'_>, fence: Fence, now: Tick) -> bool {
        let (shard, target) = self.target(key, None);
        self.shards[shard].force(target, fence, now)
    }

    /// Why a key is not held under `fence`, for a caller that has just been told that it is not.
    pub fn why_not_held(&self, key: Key<'_>, fence: Fence) -> NotHeld {
        let (shard, target) = self.target(key, None);
        self.shards[shard].why_not_held(target, fence)
    }

    pub(crate) fn shard(&self, number: usize) -> &Shard<H> {
        &self.shards[number]
    }

    #[inline]
    pub(crate) fn locate(&self, key: Key<'_>) -> (usize, u64) {
        let hash = self.hash_key.hash_one(key.bytes());
        // Bits that the index uses neither for positions nor for tags.
        ((hash >> 40) as usize & (self.shards.len() - 1), hash)
    }

    /// Where to look for a key: in the cell that was found for it a moment ago, else in the index.
    #[inline]
    pub(crate) fn target<'k>(&self, key: Key<'k>, near: Option<CellRef>) -> (usize, Target<'k>) {
        if let Some(near) = near {
            let target = Target {
                key,
                near: near.slot(),
                hash: None,
            };
            return (near.shard(), target);
        }
        let (shard, hash) = self.locate(key);
        let target = Target {
            key,
            near: NONE,
            hash: Some(hash),
        };
        (shard, target)
    }

    #[inline]
    pub(crate) fn remember(&self, seat: &mut Seat, taken: Taken) {
        let session = seat.session();
        seat.remember(taken, |old| {
            let cell = old.cell();
            let mut is_held = false;
            self.shards[cell.shard()].each_hold(cell.slot(), session, |fence| {
                is_held |= old.is_under(fence);
            });
            is_held
        });
    }

    /// Keeps a wait's ticket, so that the end of the session can end it, and drops those that are
    /// over now and then.
    fn remember_wait(&self, seat: &mut Seat, ticket: Ticket) {
        seat.waits.push(ticket);
        if seat.waits.len() < seat.waits_sweep_at {
            return;
        }
        let session = seat.session();
        for ticket in std::mem::take(&mut seat.waits) {
            let shard = &self.shards[ticket.cell.shard()];
            if shard.is_waiting(ticket) {
                seat.waits.push(ticket);
                continue;
            }
            let mut fences = Vec::new();
            shard.each_hold(ticket.cell.slot(), session, |fence| fences.push(fence));
            for fence in fences {
                let taken = Taken::new(ticket.cell, fence);
                if seat.last() != Some(taken) {
                    self.remember(seat, taken);
                }
            }
        }
        seat.waits_sweep_at = (seat.waits.len() * 2).max(SWEEP_MIN);
    }
}

pub(crate) fn invalid_span(span: Span) -> Option<Invalid> {
    match span {
        Span::Ms(ttl_ms) if ttl_ms == 0 || ttl_ms > TTL_MS_MAX => Some(Invalid::Ttl { ttl_ms }),
        _ => None,
    }
}
