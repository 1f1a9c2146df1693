//! What the models share: a small engine, the clients that use it, and a host that writes down what
//! it is told.
//!
//! A model is a function. It sets the scene alone, starts one or two threads, joins them and asks
//! its one question as assertions. [`check`] runs it in every interleaving; [`check_broken`] runs
//! the same function with one mistake built into the engine, and the test that calls it expects the
//! model's own assertion to fail. A model without such a twin proves nothing.
//!
//! Ground rules. Time is whatever a thread says it is: two threads with different clocks are how a
//! model gets a renewal that comes just in time and an expiry that comes just too early. What must
//! hold in the end is asked after the join, when there is only one thread left and nothing it reads
//! can be stale.

#![cfg(loom)]

#[cfg(not(debug_assertions))]
compile_error!(
    "loom leaves checks out without debug assertions: add `-C debug-assertions` to RUSTFLAGS"
);

use engine::{
    Acquire, Claimed, Downgrade, Engine, Fault, Fence, GaveUp, Grant, Host, Key, KeyState, Loss,
    Lost, Mode, OldHold, Outcome, Release, Renewal, Seat, SessionId, Settings, Span, Tick, Ticket,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How often a thread may be interrupted against its will, if `LOOM_MAX_PREEMPTIONS` does not say.
const PREEMPTIONS_MAX: usize = 2;

/// Steps of one execution. A model that takes more has a loop that does not end.
const STEPS_MAX: usize = 20_000;

/// Runs `model` in every interleaving of its threads.
pub fn check(model: fn()) {
    check_bounded(usize::MAX, model);
}

/// The same with at most so many interruptions, for models whose threads have a long way to go.
pub fn check_bounded(preemptions_max: usize, model: fn()) {
    // std's counter, not loom's: counting is no part of the model.
    let executions = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut builder = loom::model::Builder::new();
    let preemptions = builder.preemption_bound.unwrap_or(PREEMPTIONS_MAX);
    builder.preemption_bound = Some(preemptions.min(preemptions_max));
    builder.max_branches = STEPS_MAX;
    let counter = executions.clone();
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!(
        "{} executions in {} ms",
        executions.load(Ordering::Relaxed),
        started.elapsed().as_millis()
    );
}

/// Runs `model` on an engine that makes this mistake. The caller is a test that expects the model
/// to fail.
pub fn check_broken(fault: Fault, model: fn()) {
    engine::inject(fault, || check(model));
}

/// The moment `ms` milliseconds after the engine's start.
pub fn at(ms: u64) -> Tick {
    Tick::from_ms(ms)
}

/// The key that most models are about.
pub const KEY: &str = "k";

/// A free key is forgotten so long after its last lease would have ended.
pub const IDLE_MS: u64 = 1_000;

/// Every session of a model outlives it, unless the model ends it.
const SESSION_MS: u64 = 1_000_000;

/// Time enough for every waiter.
const WAIT_MS: u64 = 100_000;

/// Steps enough for everything that can be due at once.
const BUDGET: u32 = 100;

/// One shard and a handful of everything. The seed makes a key's place in the index the same in
/// every execution, which loom needs.
pub fn small() -> Settings {
    Settings {
        shards: 1,
        keys_max: 5,
        sessions_max: 6,
        waiters_per_key_max: 8,
        waiters_max: 8,
        shared_holders_max: 8,
        idle_ms: IDLE_MS,
        hash_seed: Some(7),
        ..Settings::default()
    }
}

/// Writes down what the engine tells it. Behind std's mutex, which loom does not see: taking
/// metadata neither orders the engine's steps nor adds any.
#[derive(Default)]
pub struct Diary(Mutex<Told>);

/// Everything the engine has told, in the order of telling.
#[derive(Clone, Default, Debug)]
pub struct Told {
    /// Waiters that were granted the lock.
    pub grants: Vec<(&'static str, Grant)>,
    /// Waiters that will not be.
    pub gave_up: Vec<(&'static str, GaveUp)>,
    /// Locks that were lost.
    pub losses: Vec<(Fence, Lost)>,
    /// How often the home was woken.
    pub wakes: usize,
}

impl Diary {
    fn add(&self, metadata: impl FnOnce(&mut Told)) {
        metadata(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Host for Diary {
    type Waiter = &'static str;

    fn granted(&self, waiter: &'static str, grant: Grant) {
        self.add(|told| told.grants.push((waiter, grant)));
    }

    fn gave_up(&self, waiter: &'static str, why: GaveUp) {
        self.add(|told| told.gave_up.push((waiter, why)));
    }

    fn lost(&self, loss: &Loss<'_>) {
        self.add(|told| told.losses.push((loss.fence, loss.why)));
    }

    fn session_ended(&self, _: SessionId) {}

    fn wake(&self, _: usize) {
        self.add(|told| told.wakes += 1);
    }
}

/// An engine, and the questions a model asks about it.
#[derive(Clone)]
pub struct World(Arc<Engine<Diary>>);

impl World {
    /// A world with the settings of [`small`].
    #[expect(clippy::new_without_default, reason = "a default world means nothing")]
    pub fn new() -> Self {
        World::with(small())
    }

    /// A world with these settings.
    pub fn with(settings: Settings) -> Self {
        World(Arc::new(Engine::new(settings, Diary::default())))
    }

    /// The engine itself.
    pub fn engine(&self) -> &Engine<Diary> {
        &self.0
    }

    /// A client with a session and a seat of its own.
    pub fn client(&self) -> Client {
        let session = self.0.open_session(SESSION_MS, at(0));
        self.seat(session.expect("there is room for a handful of sessions"))
    }

    /// One more seat of a session that has one already.
    pub fn seat(&self, session: SessionId) -> Client {
        Client {
            world: self.clone(),
            seat: Seat::new(session),
        }
    }

    /// Does all that is due in all shards, of which most models have one.
    pub fn advance(&self, now: Tick) {
        for shard in 0..self.0.shard_count() {
            while self.0.advance_shard(shard, now, &mut BUDGET.clone()).more {}
        }
    }

    /// A key of this shard, the same in every execution.
    pub fn key_in_shard(&self, shard: usize) -> &'static str {
        let mut names = ["k", "x", "y", "z", "w", "v"].into_iter();
        let name = names.find(|name| self.0.shard_of(key(name)) == shard);
        name.expect("six keys do not all fall into one of two shards")
    }

    /// Does all that is due in the one shard, and goes to sleep until the next thing is. Returns
    /// that moment.
    pub fn turn_and_rest(&self, now: Tick) -> Tick {
        loop {
            let progress = self.0.advance_shard(0, now, &mut BUDGET.clone());
            let until = progress.next_due.unwrap_or(Tick::MAX);
            if !progress.more && self.0.rest_shard(0, until) {
                return until;
            }
        }
    }

    /// What has been told so far.
    pub fn told(&self) -> Told {
        let told = &self.0.host().0;
        told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a waiter was granted, at once or later.
    pub fn grant_of(&self, waiter: &str, place: Place) -> Option<Grant> {
        match place {
            Place::Granted(grant) => Some(grant),
            Place::InLine(_) => {
                let grants = self.told().grants;
                grants
                    .iter()
                    .find(|(name, _)| *name == waiter)
                    .map(|&(_, grant)| grant)
            }
        }
    }

    /// The session that holds a key at this moment, and its fence. For keys with one holder.
    pub fn holder(&self, name: &str, now: Tick) -> Option<(SessionId, Fence)> {
        let holder = self.state(name, now)?.holders.into_iter().next()?;
        Some((holder.owner?, holder.fence))
    }

    /// All that is known of a key.
    pub fn state(&self, name: &str, now: Tick) -> Option<KeyState> {
        self.0.query(key(name), now)
    }
}

/// A session and one seat of it.
pub struct Client {
    world: World,
    seat: Seat,
}

/// What came of asking for a lock and being ready to wait.
#[derive(Debug)]
pub enum Place {
    /// It was free.
    Granted(Grant),
    /// In line, under this ticket.
    InLine(Ticket),
}

impl Client {
    /// The session.
    pub fn session(&self) -> SessionId {
        self.seat.session()
    }

    /// The seat, for calls that have no short word here.
    pub fn seat(&mut self) -> &mut Seat {
        &mut self.seat
    }

    /// What the engine answers to this request.
    pub fn ask(&mut self, request: &Acquire<'_>, now: Tick) -> Outcome {
        self.world.0.acquire(&mut self.seat, request, now)
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&mut self, name: &str, ttl_ms: u64, now: Tick) -> Option<Fence> {
        match self.ask(&Acquire::exclusive(key(name), ttl_ms), now) {
            Outcome::Granted(grant) => Some(grant.fence),
            Outcome::Held(_) => None,
            other => panic!("{name} was asked for, and the answer was {other:?}"),
        }
    }

    /// Takes a lock that must be free.
    pub fn lock(&mut self, name: &str, ttl_ms: u64, now: Tick) -> Fence {
        let fence = self.try_lock(name, ttl_ms, now);
        fence.unwrap_or_else(|| panic!("{name} was free for the taking and was refused"))
    }

    /// Claims what was held under this fence before a restart.
    pub fn claim(&mut self, name: &str, fence: Fence, ttl_ms: u64, now: Tick) -> Claimed {
        let old = old_hold(name, fence, ttl_ms);
        self.world.0.claim(&mut self.seat, &old, now)
    }

    /// Gets back what the log says was held under this fence before a restart. Before all others
    /// ask.
    pub fn restore(&mut self, name: &str, fence: Fence, ttl_ms: u64, now: Tick) {
        let old = old_hold(name, fence, ttl_ms);
        let restored = self.world.0.restore(&mut self.seat, &old, now);
        assert_eq!(restored, Ok(true), "{name} was not restored");
    }

    /// Takes the lock from its holder under `from`, or from any holder. `None`: it is not held
    /// under that fence, or its holder is not known yet.
    pub fn take_over(&mut self, name: &str, from: Option<Fence>, now: Tick) -> Option<Fence> {
        let request = Acquire {
            metadata: b"taken",
            ..Acquire::exclusive(key(name), 100)
        };
        match self
            .world
            .0
            .take_over(&mut self.seat, &request, from, now)?
        {
            Outcome::Granted(grant) => Some(grant.fence),
            Outcome::Held(_) => None,
            other => panic!("{name} was taken over, and the answer was {other:?}"),
        }
    }

    /// Takes the lock or stands in line for it, under a name by which the host is told.
    pub fn stand_in_line(
        &mut self,
        request: &Acquire<'_>,
        waiter: &'static str,
        now: Tick,
    ) -> Place {
        let seat = &mut self.seat;
        match (self.world.0).acquire_or_wait(seat, request, WAIT_MS, || Some(waiter), now) {
            Outcome::Granted(grant) => Place::Granted(grant),
            Outcome::Queued { ticket, .. } => Place::InLine(ticket),
            other => panic!("{waiter} stood in line, and the answer was {other:?}"),
        }
    }

    /// Frees the lock.
    pub fn release(&mut self, name: &str, fence: Fence, now: Tick) -> Release {
        self.world.0.release(&mut self.seat, key(name), fence, now)
    }

    /// Extends the lease. `true`: until `ttl_ms` from now.
    pub fn renew(&self, name: &str, fence: Fence, ttl_ms: u64, now: Tick) -> bool {
        let renewal = (self.world.0).renew(&self.seat, key(name), fence, ttl_ms, now);
        assert!(
            !matches!(renewal, Renewal::Invalid(_)),
            "a renewal of {ttl_ms} ms was called invalid"
        );
        matches!(renewal, Renewal::Renewed { .. })
    }

    /// Turns the lock into a shared one. `true`: done.
    pub fn downgrade(&self, name: &str, fence: Fence, now: Tick) -> bool {
        let answer = (self.world.0).downgrade(&self.seat, key(name), fence, now);
        answer == Downgrade::Downgraded
    }

    /// Ends the session and frees what it has through this seat.
    pub fn leave(&mut self, now: Tick) {
        self.world.0.end_session(self.session());
        self.vacate(now);
    }

    /// Frees what an ended session has through this seat.
    pub fn vacate(&mut self, now: Tick) {
        self.world.0.vacate(&mut self.seat, now);
    }
}

/// A plain hold of an earlier life, for `ttl_ms` more.
fn old_hold(name: &str, fence: Fence, ttl_ms: u64) -> OldHold<'_> {
    OldHold {
        key: key(name),
        fence,
        mode: Mode::Exclusive,
        span: Span::Ms(ttl_ms),
        count: 1,
        held_ms: 0,
        metadata: &[],
    }
}

/// A key by its name.
pub fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes()).expect("models use short names")
}

/// Whether a release was answered yes.
pub fn is_released(release: Release) -> bool {
    matches!(release, Release::Released { .. })
}
