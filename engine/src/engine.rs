//! The engine: sends each call to its key's shard, and keeps the caller's seat.

use crate::fault::{self, Fault};
use crate::fence::Fence;
use crate::home::{LAG_BUCKETS, Progress};
use crate::key::{BLOCK_MEMORY_BYTES, BLOCKS_MAX, Key};
use crate::note::NoteBudget;
use crate::request::{
    Acquire, Downgrade, GaveUp, Grant, Host, Invalid, KeyState, Limit, Loss, NOTE_BYTES_MAX,
    NotHeld, Outcome, Release, Renewal, Span, TTL_MS_MAX, Ticket, WAIT_MS_MAX,
};
use crate::seat::{CellRef, SHARDS_MAX, SWEEP_MIN, Seat, Taken};
use crate::session::{SessionId, Sessions};
use crate::shard::{Answer, Common, Limits, Shard, Wait};
use crate::slab::{NONE, SLOT_MAX};
use crate::sync::{AtomicU32, Ordering};
use crate::table::Table;
use crate::table::reclaim::{self, Guard};
use crate::tick::Tick;
use crossbeam_utils::CachePadded;
use std::sync::Arc;

mod holds;
mod survey;
mod take_over;
#[cfg(all(test, not(loom)))]
mod tests;

pub use holds::Held;
pub use survey::{Hold, Survey};

/// How an engine is laid out, and its limits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many shards, rounded up to a power of two, at most 256. Several per core.
    pub shards: usize,
    /// How many keys may have a cell at the same time.
    pub keys_max: u64,
    /// How many keys there will be soon: their index is laid out at once and need not grow. Zero if nobody knows.
    pub keys_expected: u64,
    /// How many sessions may be open at the same time.
    pub sessions_max: u32,
    /// How many may wait for one key.
    pub waiters_per_key_max: u32,
    /// How many may wait altogether.
    pub waiters_max: u32,
    /// How many may hold one key together.
    pub shared_holders_max: u32,
    /// How many bytes long keys and notes may take altogether: at most half of it goes to keys, what they cannot use to
    /// notes. The first 16 bytes of a key are in its cell and do not count; `keys_max` bounds those.
    pub bytes_max: u64,
    /// How long a free key is remembered after its last lease would have ended.
    pub idle_ms: u64,
    /// How many spin-loop hints (ten nanoseconds or so each) a caller that will not wait spends before it looks a second
    /// time at a lock that was granted within the present millisecond, and is refused if it still is. For threads that try
    /// again and again this makes a hot key several times faster. Zero, for a caller whose thread also serves the
    /// holder: refuse at once.
    pub pauses_before_refusal: u32,
    /// Every fence lies above this.
    pub floor: Fence,
    /// No fence lies above this, until the ceiling is raised.
    pub ceiling: Fence,
    /// Makes hashing repeatable, for tests and models. `None`, the default: random, so that nobody can aim at one shard.
    pub hash_seed: Option<u64>,
    /// The time at the start.
    pub now: Tick,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            shards: 64,
            keys_max: 16 << 20,
            keys_expected: 0,
            sessions_max: 1 << 20,
            waiters_per_key_max: 10_000,
            waiters_max: 1_000_000,
            shared_holders_max: 10_000,
            bytes_max: 4 << 30,
            idle_ms: 10_000,
            pauses_before_refusal: if cfg!(loom) { 0 } else { 128 },
            floor: Fence::ZERO,
            ceiling: Fence::MAX,
            hash_seed: None,
            now: Tick::default(),
        }
    }
}

/// A host for those who never wait and do not care to be told: the engine alone, as an in-process lock table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Host for Alone {
    type Waiter = ();

    fn granted(&self, (): &(), _: Grant) -> bool {
        true
    }
    fn gave_up(&self, (): (), _: GaveUp) {}
    fn lost(&self, _: &Loss<'_>) {}
    fn session_ended(&self, _: SessionId) {}
}

/// The lock machine. All methods take `&self` and may be called from any thread.
pub struct Engine<H: Host> {
    shards: Box<[CachePadded<Shard<H>>]>,
    common: Arc<Common<H>>,
    hash_key: ahash::RandomState,
}

/// While this lives, calls from the same thread save themselves some of their entry cost.
pub struct Batch(#[allow(dead_code, reason = "held, not used")] Guard);

/// Where a listing goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor(u32);

impl Cursor {
    /// The cursor with these bits, as it came over the wire. Any bits are a cursor.
    pub fn from_bits(bits: u32) -> Self {
        Cursor(bits)
    }

    /// The bits, for the wire.
    pub fn bits(self) -> u32 {
        self.0
    }
}

/// A part of a listing.
pub struct Page {
    /// Keys that are held or waited for, with their state.
    pub keys: Vec<(Box<[u8]>, KeyState)>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// How many keys one call of [`Engine::warm`] looks at.
pub const WARM_MAX: usize = 16;

/// How many cells one call of `list` looks at.
const SCAN_MAX: u32 = 10_000;

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
        let block_bytes_max = u64::from(shard_blocks_max) * BLOCK_MEMORY_BYTES * shard_count as u64;
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
            notes: NoteBudget::new(settings.bytes_max.saturating_sub(block_bytes_max)),
        });
        let shards = (0..shard_count)
            .map(|number| {
                let table = Table::new(shard_keys_max, shard_blocks_max, hash_key.clone())
                    .expecting(shard_keys_expected);
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
            hash_key,
        }
    }

    /// The host this engine was given.
    pub fn host(&self) -> &H {
        &self.common.host
    }

    /// Call this once before a batch of calls, and drop it after: they then share one entry into the table.
    pub fn batch(&self) -> Batch {
        Batch(reclaim::pin())
    }

    /// Reads what the next calls for these keys will read, all at once: memory answers many questions in the time of one, as
    /// long as none of them waits for another. Changes nothing. Looks at the first [`WARM_MAX`] keys.
    pub fn warm<'k>(&self, keys: impl Iterator<Item = Key<'k>>) {
        let guard = reclaim::pin();
        let mut places = [(0, 0); WARM_MAX];
        let mut count = 0;
        let mut seen = 0;
        for (place, key) in places.iter_mut().zip(keys) {
            *place = self.locate(key);
            seen ^= self.shards[place.0].table.touch_index(place.1, &guard);
            count += 1;
        }
        for &(shard, hash) in &places[..count] {
            seen ^= self.shards[shard].table.touch_cell(hash, &guard);
        }
        // Nobody wants the answer. The compiler must not find out.
        std::hint::black_box(seen);
    }

    // ---- sessions

    /// A session that ends `ttl_ms` from now unless it is kept alive. `Err` at the limit.
    pub fn open_session(&self, ttl_ms: u64, now: Tick) -> Result<SessionId, Limit> {
        self.common
            .sessions
            .open(now.plus_ms(ttl_ms))
            .ok_or(Limit::Sessions)
    }

    /// Extends a session and with it all its session-bound locks, in one step. `None`: it is over.
    pub fn keep_alive(&self, session: SessionId, ttl_ms: u64, now: Tick) -> Option<Tick> {
        self.common
            .sessions
            .keep_alive(session, now.plus_ms(ttl_ms), now)
    }

    /// Whether a session lives.
    pub fn is_open(&self, session: SessionId, now: Tick) -> bool {
        !self.common.sessions.is_ended(session, now)
    }

    /// When a session ends if nothing keeps it alive; in the past for one that is over.
    pub fn session_deadline(&self, session: SessionId) -> Tick {
        self.common.sessions.deadline(session)
    }

    /// Ends a session: from here on it holds nothing and waits for nothing. What is left to do is to [`Engine::vacate`] its
    /// seats, which hands its locks to those who wait for them, and to [`Engine::forget_session`]. `true` for the call
    /// that ended it.
    pub fn end_session(&self, session: SessionId) -> bool {
        self.common.sessions.end(session)
    }

    /// Frees all that an ended session took through this seat and takes it out of the queues it stands in. Costs time in
    /// proportion to that. Does nothing while the session lives.
    pub fn vacate(&self, seat: &mut Seat, now: Tick) {
        if !self.common.sessions.is_ended(seat.session(), now) {
            return;
        }
        for ticket in std::mem::take(&mut seat.waits) {
            let shard = &self.shards[ticket.cell.shard()];
            match shard.cancel(ticket, now) {
                Some(waiter) => self.common.host.gave_up(waiter, GaveUp::SessionEnded),
                None if fault::injected(Fault::VacateForgetsGranted) => {}
                // It may have been granted.
                None => shard.vacate(ticket.cell.slot(), seat.session(), now),
            }
        }
        while let Some(taken) = seat.held.pop() {
            let cell = taken.cell();
            self.shards[cell.shard()].vacate(cell.slot(), seat.session(), now);
        }
    }

    /// Gives an ended session's place to others. Its id stays ended for ever.
    pub fn forget_session(&self, session: SessionId) -> bool {
        self.common.sessions.forget(session)
    }

    // ---- locks

    /// Asks for a lock without waiting.
    #[inline]
    pub fn acquire(&self, seat: &mut Seat, request: &Acquire<'_>, now: Tick) -> Outcome {
        match self.take_free(seat, request, now) {
            Some(outcome) => outcome,
            None => self.acquire_with(seat, request, None, now),
        }
    }

    /// Asks for a lock, ready to wait `wait_ms` for it. `waiter` is how the host will reach whoever waits.
    pub fn acquire_or_wait(
        &self,
        seat: &mut Seat,
        request: &Acquire<'_>,
        wait_ms: u64,
        waiter: H::Waiter,
        now: Tick,
    ) -> Outcome {
        if wait_ms == 0 || wait_ms > WAIT_MS_MAX {
            return Outcome::Invalid(Invalid::Wait { wait_ms });
        }
        if let Some(outcome) = self.take_free(seat, request, now) {
            return outcome;
        }
        self.acquire_with(
            seat,
            request,
            Some(Wait {
                deadline: now.plus_ms(wait_ms),
                waiter,
            }),
            now,
        )
    }

    /// Takes a free key by the short way if that is possible. `None`: nothing has happened.
    #[inline]
    fn take_free(&self, seat: &mut Seat, request: &Acquire<'_>, now: Tick) -> Option<Outcome> {
        if !request.is_plain() || invalid_span(request.span).is_some() {
            return None;
        }
        let session = self.common.sessions.find(seat.session())?;
        if session.is_ended(now) {
            return None;
        }
        let (shard_number, hash) = self.locate(request.key);
        let shard = &self.shards[shard_number];
        let terms = shard.terms(seat.session(), request.span, now);
        let taken = shard.take_free(request.key, hash, &terms)?;
        let cell = CellRef::new(shard_number, taken.slot);
        self.remember(seat, Taken::new(cell, taken.outcome.fence));
        if session.is_ended(now) {
            return Some(self.refuse_late(shard, taken.slot, seat.session(), now));
        }
        Some(Outcome::Granted(taken.outcome))
    }

    /// A session may end on another core while it acquires on this one. Its seat here may have been vacated already, so the
    /// grant would stand until its lease ran out.
    #[cold]
    fn refuse_late(&self, shard: &Shard<H>, slot: u32, owner: SessionId, now: Tick) -> Outcome {
        if !fault::injected(Fault::RefusedGrantStands) {
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
        wait: Option<Wait<H::Waiter>>,
        now: Tick,
    ) -> Outcome {
        if let Some(invalid) = invalid_span(request.span) {
            return Outcome::Invalid(invalid);
        }
        if request.note.len() > NOTE_BYTES_MAX {
            return Outcome::Invalid(Invalid::Note {
                note_bytes: request.note.len(),
            });
        }
        if self.common.sessions.is_ended(seat.session(), now) {
            return Outcome::SessionEnded;
        }
        let (shard_number, hash) = self.locate(request.key);
        let shard = &self.shards[shard_number];
        let mut answer = shard.acquire(request, hash, seat.session(), wait, now);
        match &mut answer.outcome {
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
                ticket.cell = CellRef::new(shard_number, answer.slot);
                let ticket = *ticket;
                self.remember_wait(seat, ticket);
                // Likewise a wait would stand in line for nothing, up to its deadline. If it is over already, its waiter has
                // been told, and what it was granted is void.
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

    /// As [`Engine::renew`], to an end at any distance. A lease that lives as long as its session stays one.
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
        let (shard, hash) = self.locate(key);
        self.shards[shard].renew(key, hash, fence, seat.session(), span, now)
    }

    /// Frees the lock named by key and fence.
    #[inline]
    pub fn release(&self, seat: &mut Seat, key: Key<'_>, fence: Fence, now: Tick) -> Release {
        self.release_timed(seat, key, fence, now).0
    }

    /// As [`Engine::release`], and for how many milliseconds the lock had been held; zero if it was not the caller's.
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
        let (shard, hash) = self.locate(key);
        let given_back = self.shards[shard].give_back(key, hash, fence, seat.session(), now);
        if let Some(Answer {
            outcome: held_ms,
            slot,
        }) = given_back
        {
            seat.forget_last(Taken::new(CellRef::new(shard, slot), fence));
            return (Release::Released { count: 0 }, held_ms);
        }
        let answer = self.shards[shard].release(key, hash, fence, seat.session(), now);
        if answer.slot != NONE && answer.outcome.0 == (Release::Released { count: 0 }) {
            seat.forget_last(Taken::new(CellRef::new(shard, answer.slot), fence));
        }
        answer.outcome
    }

    /// Turns an exclusive lock into a shared one, under the same fence, and lets in the readers at the front of the queue.
    pub fn downgrade(&self, seat: &Seat, key: Key<'_>, fence: Fence, now: Tick) -> Downgrade {
        if self.common.sessions.is_ended(seat.session(), now) {
            return Downgrade::NotHeld(NotHeld::SessionEnded);
        }
        let (shard, hash) = self.locate(key);
        self.shards[shard].downgrade(key, hash, fence, seat.session(), now)
    }

    /// Takes a waiter out of line and gives it back. `None`: it has been granted, has given up or was never there.
    pub fn cancel(&self, ticket: Ticket, now: Tick) -> Option<H::Waiter> {
        self.shards.get(ticket.cell.shard())?.cancel(ticket, now)
    }

    /// Takes a lock away from its holder, who is told. `false`: it is not held under this fence.
    pub fn force_release(&self, key: Key<'_>, fence: Fence, now: Tick) -> bool {
        let (shard, hash) = self.locate(key);
        self.shards[shard].force(key, hash, fence, now)
    }

    /// What is known of a key; `None` for one that was never locked or is long forgotten.
    pub fn query(&self, key: Key<'_>, now: Tick) -> Option<KeyState> {
        let (shard, hash) = self.locate(key);
        self.shards[shard].query(key, hash, now)
    }

    /// Keys that begin with `prefix` and are held or waited for, at most `limit` of them, in no particular order. Looks at
    /// a bounded number of cells, so a page may be short or empty and still have a next one.
    pub fn list(&self, prefix: &[u8], cursor: Cursor, limit: usize, now: Tick) -> Page {
        let from = cursor.0;
        let (mut shard, mut slot) = ((from >> 24) as usize, from & SLOT_MAX);
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut next = None;
        if shard < self.shards.len() && limit > 0 {
            let rest = self.shards[shard].table.scan(slot, SCAN_MAX, |found, key| {
                let cell = self.shards[shard].table.cell(found.slot).word();
                if (cell.is_held() || cell.is_queued()) && key.bytes().starts_with(prefix) {
                    names.push(key.bytes().into());
                }
                names.len() < limit
            });
            match rest {
                Some(rest) => slot = rest,
                None => (shard, slot) = (shard + 1, 0),
            }
            next = (shard < self.shards.len()).then_some(Cursor((shard as u32) << 24 | slot));
        }
        let state = |name: Box<[u8]>| {
            let state = self.query(Key::new(&name).ok()?, now)?;
            (!state.holders.is_empty() || state.queue_length > 0).then_some((name, state))
        };
        Page {
            keys: names.into_iter().filter_map(state).collect(),
            next,
        }
    }

    // ---- time and fences

    /// How many shards there are. Each has a home: the one thread that calls [`Engine::advance_shard`] for it.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Expires, times out and evicts what is due in one shard, at most `budget` steps of it.
    pub fn advance_shard(&self, shard: usize, now: Tick, budget: &mut u32) -> Progress {
        self.shards[shard].advance(now, budget)
    }

    /// The part of [`Engine::advance_shard`] that somebody waits for: waits whose time is up, and leases that stand in front of
    /// a waiter. Cheap when there is nothing to do. `true`: more may be due.
    pub fn advance_waiters(&self, shard: usize, now: Tick, budget: &mut u32) -> bool {
        self.shards[shard].advance_room(now, budget)
    }

    /// Ends sessions whose time is up and tells the host, at most `budget` steps of it.
    pub fn advance_sessions(&self, now: Tick, budget: &mut u32) -> Progress {
        let mut ended = Vec::new();
        let more = self.common.sessions.advance(now, budget, &mut ended);
        for session in ended {
            self.common.host.session_ended(session);
        }
        Progress {
            more,
            next_due: self.common.sessions.next_due(),
        }
    }

    /// All of the above for all shards, for those who have one thread for it: at most `budget` steps for each.
    pub fn advance(&self, now: Tick, budget: u32) -> Progress {
        let mut all = self.advance_sessions(now, &mut budget.clone());
        for shard in &self.shards {
            let one = shard.advance(now, &mut budget.clone());
            all.more |= one.more;
            all.next_due = [all.next_due, one.next_due].into_iter().flatten().min();
        }
        all
    }

    /// Allows fences up to `ceiling` in one shard. It never falls.
    pub fn raise_ceiling(&self, shard: usize, ceiling: Fence, now: Tick) {
        self.shards[shard].raise_ceiling(ceiling, now);
    }

    /// The highest fence that may be issued in one shard.
    pub fn ceiling(&self, shard: usize) -> Fence {
        self.shards[shard].bounds.ceiling()
    }

    /// How many fences one shard can still issue for the key that has used most of them, to within a thousand.
    pub fn headroom(&self, shard: usize) -> u64 {
        self.shards[shard].bounds.headroom()
    }

    /// Which shard a key belongs to.
    pub fn shard_of(&self, key: Key<'_>) -> usize {
        self.locate(key).0
    }

    // ---- numbers

    /// How many keys have a cell in one shard: held, waited for, or remembered.
    pub fn keys_in_shard(&self, shard: usize) -> u32 {
        self.shards[shard].table.live()
    }

    /// How many keys have a cell.
    pub fn keys(&self) -> u64 {
        self.shards
            .iter()
            .map(|shard| u64::from(shard.table.live()))
            .sum()
    }

    /// What long keys and notes take, as `bytes_max` counts them.
    pub fn bytes(&self) -> u64 {
        let key_bytes: u64 = self
            .shards
            .iter()
            .map(|shard| shard.table.block_bytes())
            .sum();
        key_bytes + self.common.notes.used_bytes()
    }

    /// How many wait.
    pub fn waiters(&self) -> u32 {
        self.common.waiters.load(Ordering::Relaxed)
    }

    /// How many sessions have a place: open, or ended and not forgotten.
    pub fn sessions(&self) -> u32 {
        self.common.sessions.live()
    }

    /// How many leases the wheel has expired on time, under 2 ms late, under 4, under 8 and so on.
    pub fn expiry_lag(&self) -> [u64; LAG_BUCKETS] {
        let mut totals = [0; LAG_BUCKETS];
        for shard in &self.shards {
            shard.lag.add_to(&mut totals);
        }
        totals
    }

    /// How late they were altogether.
    pub fn expiry_lag_sum_ms(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lag.sum_ms()).sum()
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

    /// Keeps a wait's ticket, so that the end of the session can end it, and drops those that are over now and then.
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
                if seat.held.last() != Some(taken) {
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
