//! One face for the engine and the baseline, so that the same loop drives both. Everything is
//! resolved at compile time.

use crate::baseline::{self, Map};
use crate::keys::key_bytes;
use engine::{
    Acquire, Alone, Batch, Engine, Fence, Host, Key, Outcome, Release, Seat, Settings, Tick,
};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Shards on both sides, unless a bench says otherwise: the engine's default.
pub const SHARDS: usize = 64;

/// A lock table under test.
pub trait Subject: Sync {
    /// What it is called in results.
    const NAME: &'static str;
    /// What one thread works with.
    type Seat: Send;
    /// What a grant carries.
    type Fence: Copy + PartialOrd;

    /// A seat for an owner of its own. The same `number` must not be used twice.
    fn seat(&self, number: u64) -> Self::Seat;

    /// Tries to take a lock. `None`: it is held.
    fn acquire(
        &self,
        seat: &mut Self::Seat,
        key: Key<'_>,
        ttl_ms: u64,
        now: Tick,
    ) -> Option<Self::Fence>;

    /// Gives it back. `false`: it was not ours any more.
    fn release(&self, seat: &mut Self::Seat, key: Key<'_>, fence: Self::Fence, now: Tick) -> bool;

    /// How many keys it knows.
    fn keys(&self) -> u64;

    /// Lets the home core see what is new, as a server does every millisecond. Nothing is due yet.
    fn settle(&self, now: Tick);

    /// Does a step towards having memory ready ahead of need, as a thread of the server's does.
    /// `false`: there is enough.
    fn stock_up(&self) -> bool {
        false
    }

    /// Called before a run of calls from one thread; what it returns is dropped after them.
    fn enter(&self) -> Option<Batch> {
        None
    }
}

/// The engine as a server uses it: one entry for a run of calls.
pub struct Batched<H: Host>(pub Engine<H>);

impl<H: Host> Subject for Batched<H> {
    const NAME: &'static str = "engine in batches";
    type Seat = Seat;
    type Fence = Fence;

    fn seat(&self, number: u64) -> Seat {
        self.0.seat(number)
    }

    #[inline]
    fn acquire(&self, seat: &mut Seat, key: Key<'_>, ttl_ms: u64, now: Tick) -> Option<Fence> {
        Subject::acquire(&self.0, seat, key, ttl_ms, now)
    }

    #[inline]
    fn release(&self, seat: &mut Seat, key: Key<'_>, fence: Fence, now: Tick) -> bool {
        Subject::release(&self.0, seat, key, fence, now)
    }

    fn keys(&self) -> u64 {
        self.0.keys()
    }

    fn settle(&self, now: Tick) {
        self.0.settle(now);
    }

    fn enter(&self) -> Option<Batch> {
        Some(self.0.batch())
    }
}

/// The baseline with the engine's manners: a caller that would be refused pauses and looks a second
/// time. A control: how much of the engine's lead on a hot key is the pause, which any caller can
/// have?
pub struct Pausing<W>(pub Map<W>);

impl<W: Send> Subject for Pausing<W> {
    const NAME: &'static str = "mutex map that pauses";
    type Seat = u64;
    type Fence = u64;

    fn seat(&self, number: u64) -> u64 {
        self.0.seat(number)
    }

    #[inline]
    fn acquire(&self, seat: &mut u64, key: Key<'_>, ttl_ms: u64, now: Tick) -> Option<u64> {
        Subject::acquire(&self.0, seat, key, ttl_ms, now).or_else(|| {
            (0..Settings::default().pauses_before_refusal).for_each(|_| std::hint::spin_loop());
            Subject::acquire(&self.0, seat, key, ttl_ms, now)
        })
    }

    #[inline]
    fn release(&self, seat: &mut u64, key: Key<'_>, fence: u64, now: Tick) -> bool {
        Subject::release(&self.0, seat, key, fence, now)
    }

    fn keys(&self) -> u64 {
        Subject::keys(&self.0)
    }

    fn settle(&self, now: Tick) {
        self.0.settle(now);
    }
}

/// The longest a session of a bench lives: a day.
const SESSION_MS: u64 = 24 * 60 * 60 * 1000;

impl<H: Host> Subject for Engine<H> {
    const NAME: &'static str = "engine";
    type Seat = Seat;
    type Fence = Fence;

    fn seat(&self, _number: u64) -> Seat {
        let session = self.open_session(SESSION_MS, Tick::default());
        Seat::new(session.expect("a bench opens few sessions"))
    }

    #[inline]
    fn acquire(&self, seat: &mut Seat, key: Key<'_>, ttl_ms: u64, now: Tick) -> Option<Fence> {
        match Engine::acquire(self, seat, &Acquire::exclusive(key, ttl_ms), now) {
            Outcome::Granted(grant) => Some(grant.fence),
            Outcome::Held(holder) => {
                // The refusal names the holder. The baseline's does too.
                black_box(&holder);
                None
            }
            other => panic!("{key:?}: {other:?}"),
        }
    }

    #[inline]
    fn release(&self, seat: &mut Seat, key: Key<'_>, fence: Fence, now: Tick) -> bool {
        Engine::release(self, seat, key, fence, now) == Release::Released { count: 0 }
    }

    fn keys(&self) -> u64 {
        Engine::keys(self)
    }

    fn settle(&self, now: Tick) {
        while self.advance(now, 10_000).more {}
    }

    fn stock_up(&self) -> bool {
        Engine::prefault(self)
    }
}

impl<W: Send> Subject for Map<W> {
    const NAME: &'static str = "mutex map";
    type Seat = u64;
    type Fence = u64;

    fn seat(&self, number: u64) -> u64 {
        number + 1
    }

    #[inline]
    fn acquire(&self, seat: &mut u64, key: Key<'_>, ttl_ms: u64, now: Tick) -> Option<u64> {
        match Map::acquire(self, key, *seat, ttl_ms, now) {
            baseline::Outcome::Granted(grant) => Some(grant.fence),
            held @ baseline::Outcome::Held { .. } => {
                black_box(&held);
                None
            }
            other => panic!("{key:?}: {other:?}"),
        }
    }

    #[inline]
    fn release(&self, seat: &mut u64, key: Key<'_>, fence: u64, now: Tick) -> bool {
        Map::release(self, key, *seat, fence, now, |_, _| ())
    }

    fn keys(&self) -> u64 {
        Map::keys(self) as u64
    }

    fn settle(&self, _: Tick) {}
}

/// The engine as the benches use it: room for `keys` keys, and repeatable.
pub fn engine_for(keys: u64) -> Engine<Alone> {
    Engine::new(settings_for(keys), Alone)
}

/// Settings of the engine as the benches use it.
pub fn settings_for(keys: u64) -> Settings {
    Settings {
        shards: SHARDS,
        keys_max: keys,
        hash_seed: Some(1),
        ..Settings::default()
    }
}

/// Takes the locks `0..keys` in order, each by one of the seats in turn.
pub fn take_all<S: Subject>(
    subject: &S,
    seats: &mut [S::Seat],
    keys: u64,
    ttl_ms: u64,
    now: Tick,
    mut taken: impl FnMut(u64, S::Fence),
) {
    for number in 0..keys {
        let bytes = key_bytes(number);
        let key = Key::new(&bytes).expect("16 bytes");
        let turn = number as usize % seats.len();
        let fence = subject.acquire(&mut seats[turn], key, ttl_ms, now);
        taken(number, fence.expect("no other seat wants it"));
    }
}

/// How a contest ended.
pub struct Contest {
    /// Acquires that were granted, each with its release.
    pub cycles: u64,
    /// Acquires that were refused.
    pub refusals: u64,
    /// From the start of the first thread to the end of the last.
    pub elapsed: Duration,
    /// How long threads were ready to run and had no core, and how much later than the first the
    /// last one began. Much of it, and others were measured too.
    pub disturbed: Duration,
}

/// When a contest is over.
#[derive(Clone, Copy)]
pub enum Until {
    /// After so many cycles of all threads together.
    Cycles(u64),
    /// After so long.
    Elapsed(Duration),
}

/// How many attempts a thread makes between two looks at whether it is over.
const ATTEMPTS_PER_LOOK: u64 = 256;

/// What one thread did.
struct Score {
    cycles: u64,
    refusals: u64,
    begun: Instant,
    ended: Instant,
    waited: Duration,
}

/// `threads` threads, each for an owner of its own, want the same key: each tries, tries again at
/// once when refused, and gives the lock back at once when granted. All of them work until the last
/// moment, so that no thread runs alone.
pub fn contend<S: Subject>(subject: &S, threads: u64, until: Until) -> Contest {
    let bytes = key_bytes(0);
    let key = Key::new(&bytes).expect("16 bytes");
    let mut first = subject.seat(0);
    let fence = subject.acquire(&mut first, key, 30_000, NOW);
    subject.settle(NOW);
    let fence = fence.expect("no other thread has started");
    assert!(subject.release(&mut first, key, fence, NOW));

    let start = Barrier::new(threads as usize);
    let total = AtomicU64::new(0);
    let compete = |mut seat: S::Seat| {
        start.wait();
        let waited = waited_for_a_core();
        let begun = Instant::now();
        let (mut cycles, mut refusals, mut last) = (0, 0, None);
        loop {
            let mut granted = 0;
            let _batch = subject.enter();
            for _ in 0..ATTEMPTS_PER_LOOK {
                if let Some(fence) = subject.acquire(&mut seat, black_box(key), 30_000, NOW) {
                    assert!(Some(fence) > last, "a fence that does not rise");
                    last = Some(fence);
                    assert!(subject.release(&mut seat, black_box(key), fence, NOW));
                    granted += 1;
                }
            }
            cycles += granted;
            refusals += ATTEMPTS_PER_LOOK - granted;
            let is_over = match until {
                Until::Elapsed(time) => begun.elapsed() >= time,
                Until::Cycles(wanted) => {
                    total.fetch_add(granted, Ordering::Relaxed) + granted >= wanted
                }
            };
            if is_over {
                break;
            }
        }
        Score {
            cycles,
            refusals,
            begun,
            ended: Instant::now(),
            waited: waited_for_a_core() - waited,
        }
    };
    let scores: Vec<Score> = std::thread::scope(|scope| {
        let competitor = |number| {
            let (seat, compete) = (subject.seat(number), &compete);
            scope.spawn(move || compete(seat))
        };
        let competitors: Vec<_> = (1..=threads).map(competitor).collect();
        let score = |thread: std::thread::ScopedJoinHandle<'_, Score>| thread.join();
        let scores: Result<_, _> = competitors.into_iter().map(score).collect();
        scores.expect("a competitor panicked")
    });
    let begun = scores.iter().map(|score| score.begun);
    let (first, last) = (begun.clone().min(), begun.max());
    let (first, last) = first.zip(last).expect("at least one thread");
    let ended = scores.iter().map(|score| score.ended).max();
    let waited: Duration = scores.iter().map(|score| score.waited).sum();
    Contest {
        cycles: scores.iter().map(|score| score.cycles).sum(),
        refusals: scores.iter().map(|score| score.refusals).sum(),
        elapsed: ended.expect("at least one thread") - first,
        disturbed: waited + (last - first),
    }
}

/// How long this thread has been ready to run and had no core, so far.
fn waited_for_a_core() -> Duration {
    let path = "/proc/thread-self/schedstat";
    let stat = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let waited_ns = stat
        .split_whitespace()
        .nth(1)
        .and_then(|ns| ns.parse().ok());
    Duration::from_nanos(waited_ns.unwrap_or_else(|| panic!("{path}: {stat}")))
}

/// The time in benches where time stands still: the caller of the engine reads its clock once per
/// batch anyway.
pub const NOW: Tick = Tick::from_ms(1_000);
