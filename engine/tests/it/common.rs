//! What the other files share: an engine whose host writes everything down, and short words for
//! common steps.

use engine::{
    Acquire, Engine, Fence, GaveUp, Grant, Holder, Host, Key, Loss, Lost, NotHeld, Outcome,
    Release, Renewal, Seat, SessionId, Settings, Tick, Ticket,
};
use std::sync::Mutex;

/// Something the engine told its host. Waiters are numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Granted {
        waiter: u64,
        grant: Grant,
    },
    GaveUp {
        waiter: u64,
        why: GaveUp,
    },
    Lost {
        key: Vec<u8>,
        fence: Fence,
        owner: SessionId,
        why: Lost,
        held_ms: u64,
        late_ms: u64,
    },
    SessionEnded(SessionId),
}

/// A host that writes down what it is told.
#[derive(Default)]
pub(crate) struct Recorder {
    events: Mutex<Vec<Event>>,
    wakes: Mutex<Vec<usize>>,
}

impl Recorder {
    /// What was told since the last call.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    /// The shards whose homes were woken since the last call.
    pub(crate) fn take_wakes(&self) -> Vec<usize> {
        std::mem::take(&mut self.wakes.lock().unwrap())
    }

    /// The grants told since the last call, in order, and nothing else happened.
    #[track_caller]
    pub(crate) fn take_grants(&self) -> Vec<(u64, Grant)> {
        let grant = |event| match event {
            Event::Granted { waiter, grant } => (waiter, grant),
            other => panic!("not a grant: {other:?}"),
        };
        self.take().into_iter().map(grant).collect()
    }

    /// The one grant told since the last call.
    #[track_caller]
    pub(crate) fn take_grant(&self) -> (u64, Grant) {
        let grants = self.take_grants();
        assert_eq!(grants.len(), 1, "{grants:?}");
        grants[0]
    }

    fn write_down(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

impl Host for Recorder {
    type Waiter = u64;

    fn granted(&self, waiter: u64, grant: Grant) {
        self.write_down(Event::Granted { waiter, grant });
    }

    fn gave_up(&self, waiter: u64, why: GaveUp) {
        self.write_down(Event::GaveUp { waiter, why });
    }

    fn lost(&self, loss: &Loss<'_>) {
        self.write_down(Event::Lost {
            key: loss.key.bytes().into(),
            fence: loss.fence,
            owner: loss.owner,
            why: loss.why,
            held_ms: loss.held_ms,
            late_ms: loss.late_ms,
        });
    }

    fn session_ended(&self, session: SessionId) {
        self.write_down(Event::SessionEnded(session));
    }

    fn wake(&self, shard: usize) {
        self.wakes.lock().unwrap().push(shard);
    }
}

pub(crate) type Locks = Engine<Recorder>;

/// Long enough for sessions and waits that are not what a test is about.
pub(crate) const LONG_MS: u64 = 3_600_000;

pub(crate) fn at(ms: u64) -> Tick {
    Tick::from_ms(ms)
}

pub(crate) fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes()).unwrap()
}

pub(crate) fn fence(number: u64) -> Fence {
    Fence::from_number(number)
}

/// Few shards, so that what happens is easy to follow.
pub(crate) fn small() -> Settings {
    Settings {
        shards: 2,
        hash_seed: Some(7),
        ..Settings::default()
    }
}

pub(crate) fn locks() -> Locks {
    locks_with(small())
}

pub(crate) fn locks_with(settings: Settings) -> Locks {
    Engine::new(settings, Recorder::default())
}

/// A seat of a new session that outlives the test.
pub(crate) fn seat(engine: &Locks) -> Seat {
    Seat::new(engine.open_session(10 * LONG_MS, at(0)).unwrap())
}

pub(crate) fn seats<const N: usize>(engine: &Locks) -> [Seat; N] {
    std::array::from_fn(|_| seat(engine))
}

/// An exclusive lock for `ttl_ms`, now or never.
pub(crate) fn acquire(
    engine: &Locks,
    seat: &mut Seat,
    name: &str,
    ttl_ms: u64,
    now: Tick,
) -> Outcome {
    engine.acquire(seat, &Acquire::exclusive(key(name), ttl_ms), now)
}

/// A shared lock for `ttl_ms`, now or never.
pub(crate) fn share(
    engine: &Locks,
    seat: &mut Seat,
    name: &str,
    ttl_ms: u64,
    now: Tick,
) -> Outcome {
    engine.acquire(seat, &Acquire::shared(key(name), ttl_ms), now)
}

/// Asks for an exclusive lock that is free.
#[track_caller]
pub(crate) fn take(engine: &Locks, seat: &mut Seat, name: &str, ttl_ms: u64, now: Tick) -> Grant {
    granted(acquire(engine, seat, name, ttl_ms, now))
}

/// Stands in line for an exclusive lock that is held.
#[track_caller]
pub(crate) fn wait(
    engine: &Locks,
    seat: &mut Seat,
    name: &str,
    ttl_ms: u64,
    waiter: u64,
    now: Tick,
) -> Ticket {
    let request = Acquire::exclusive(key(name), ttl_ms);
    queued(engine.acquire_or_wait(seat, &request, LONG_MS, || Some(waiter), now)).0
}

/// Stands in line for a shared lock.
#[track_caller]
pub(crate) fn wait_shared(
    engine: &Locks,
    seat: &mut Seat,
    name: &str,
    ttl_ms: u64,
    waiter: u64,
    now: Tick,
) -> Ticket {
    let request = Acquire::shared(key(name), ttl_ms);
    queued(engine.acquire_or_wait(seat, &request, LONG_MS, || Some(waiter), now)).0
}

/// Gives back a lock that is held once.
#[track_caller]
pub(crate) fn give_back(engine: &Locks, seat: &mut Seat, name: &str, fence: Fence, now: Tick) {
    assert_eq!(
        engine.release(seat, key(name), fence, now),
        Release::Released { count: 0 }
    );
}

/// Does all that is due by `now`.
pub(crate) fn advance<H: Host>(engine: &Engine<H>, now: Tick) {
    while engine.advance(now, 1000).more {}
}

#[track_caller]
pub(crate) fn granted(outcome: Outcome) -> Grant {
    match outcome {
        Outcome::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn held(outcome: Outcome) -> Holder {
    match outcome {
        Outcome::Held(holder) => holder,
        other => panic!("not held: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn queued(outcome: Outcome) -> (Ticket, u32) {
    match outcome {
        Outcome::Queued { ticket, ahead } => (ticket, ahead),
        other => panic!("not queued: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn assert_not_held(release: Release, why: NotHeld) {
    assert_eq!(release, Release::NotHeld(why));
}

#[track_caller]
pub(crate) fn assert_not_renewed(renewal: Renewal, why: NotHeld) {
    assert_eq!(renewal, Renewal::NotHeld(why));
}
