//! Question: what does it cost to pass a lock on through its queue?
//!
//! Unit: nanoseconds per hand-off: the holder releases, the first in line is granted the lock and
//! told, and the old holder goes to the end of the line. Queues of 1, 100 and 1,000; and two
//! threads that pass the lock to each other, each spinning until it is told.
//!
//! Leaves out: the wake-up of a sleeping task and the network, which cost a hundred times more;
//! waiters that time out, cancel or die.

use bench::baseline::{self, Map};
use bench::keys::key_bytes;
use bench::subject::{NOW, SHARDS, Subject, settings_for};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_utils::CachePadded;
use engine::{
    Acquire, Engine, Fence, GaveUp, Grant, Host, Key, Loss, Outcome, Release, Seat, SessionId,
};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TTL_MS: u64 = 30_000;
const WAIT_MS: u64 = 60_000;

/// Where each owner finds the fence it was handed. Zero: not yet. Fences start at 1.
struct Told(Box<[CachePadded<AtomicU64>]>);

impl Told {
    fn new(owners: usize) -> Self {
        Told((0..owners).map(|_| CachePadded::default()).collect())
    }

    fn tell(&self, owner: u32, fence: u64) {
        self.0[owner as usize].store(fence, Ordering::Release);
    }

    /// The fence handed to `owner`, spinning until it comes.
    fn take(&self, owner: u32) -> u64 {
        let told = &self.0[owner as usize];
        loop {
            let fence = told.load(Ordering::Acquire);
            if fence != 0 {
                told.store(0, Ordering::Relaxed);
                return fence;
            }
            std::hint::spin_loop();
        }
    }
}

impl Host for Told {
    type Waiter = u32;

    fn granted(&self, owner: u32, grant: Grant) {
        self.tell(owner, grant.fence.get());
    }
    fn gave_up(&self, owner: u32, why: GaveUp) {
        panic!("owner {owner} gave up: {why:?}");
    }
    fn lost(&self, loss: &Loss<'_>) {
        panic!("lost: {loss:?}");
    }
    fn session_ended(&self, session: SessionId) {
        panic!("{session:?} ended");
    }
}

/// A table in which owners pass one key on.
trait Line: Sync {
    const NAME: &'static str;
    type Seat: Send;

    fn new(owners: u32) -> Self;
    fn seat(&self, owner: u32) -> Self::Seat;
    fn told(&self) -> &Told;
    /// `Some`: granted at once. `None`: in line.
    fn ask(&self, seat: &mut Self::Seat, owner: u32, key: Key<'_>) -> Option<u64>;
    fn pass_on(&self, seat: &mut Self::Seat, key: Key<'_>, fence: u64);
}

impl Line for Engine<Told> {
    const NAME: &'static str = "engine";
    type Seat = Seat;

    fn new(owners: u32) -> Self {
        Engine::new(settings_for(1_000), Told::new(owners as usize))
    }

    fn seat(&self, owner: u32) -> Seat {
        Subject::seat(self, u64::from(owner))
    }

    fn told(&self) -> &Told {
        self.host()
    }

    fn ask(&self, seat: &mut Seat, owner: u32, key: Key<'_>) -> Option<u64> {
        match self.acquire_or_wait(
            seat,
            &Acquire::exclusive(key, TTL_MS),
            WAIT_MS,
            || Some(owner),
            NOW,
        ) {
            Outcome::Granted(grant) => Some(grant.fence.get()),
            Outcome::Queued { .. } => None,
            other => panic!("{other:?}"),
        }
    }

    fn pass_on(&self, seat: &mut Seat, key: Key<'_>, fence: u64) {
        let fence = Fence::new(fence).expect("it was granted");
        assert_eq!(
            self.release(seat, key, fence, NOW),
            Release::Released { count: 0 }
        );
    }
}

struct Plain {
    map: Map<u32>,
    told: Told,
}

impl Line for Plain {
    const NAME: &'static str = "mutex map";
    type Seat = u64;

    fn new(owners: u32) -> Self {
        Plain {
            map: Map::new(SHARDS, 10_000),
            told: Told::new(owners as usize),
        }
    }

    fn seat(&self, owner: u32) -> u64 {
        self.map.seat(u64::from(owner))
    }

    fn told(&self) -> &Told {
        &self.told
    }

    fn ask(&self, seat: &mut u64, owner: u32, key: Key<'_>) -> Option<u64> {
        let waiter = (NOW.plus_ms(WAIT_MS), owner);
        match self.map.acquire_or_wait(key, *seat, TTL_MS, waiter, NOW) {
            baseline::Outcome::Granted(grant) => Some(grant.fence),
            baseline::Outcome::Queued => None,
            other => panic!("{other:?}"),
        }
    }

    fn pass_on(&self, seat: &mut u64, key: Key<'_>, fence: u64) {
        let tell = |&owner: &u32, grant: baseline::Grant| self.told.tell(owner, grant.fence);
        assert!(self.map.release(key, *seat, fence, NOW, tell));
    }
}

/// One thread plays every part: the bare cost of the queue.
fn one_thread<L: Line>(queue_length: u32, handoffs: u64) -> Duration {
    let owners = queue_length + 1;
    let line = L::new(owners);
    let bytes = key_bytes(0);
    let key = Key::new(&bytes).unwrap();
    let mut seats: Vec<_> = (0..owners).map(|owner| line.seat(owner)).collect();
    let mut fence = line.ask(&mut seats[0], 0, key).expect("no seat has it yet");
    for owner in 1..owners {
        assert_eq!(line.ask(&mut seats[owner as usize], owner, key), None);
    }
    let mut holder = 0;
    let begun = Instant::now();
    for _ in 0..handoffs {
        line.pass_on(&mut seats[holder as usize], key, fence);
        let next = (holder + 1) % owners;
        let handed = line.told().take(next);
        assert!(handed > fence, "a fence that does not rise");
        assert_eq!(line.ask(&mut seats[holder as usize], holder, key), None);
        (holder, fence) = (next, handed);
    }
    begun.elapsed()
}

/// Two threads pass the lock to and fro. A thread that finds no queue is granted at once; that is
/// part of it.
fn two_threads<L: Line>(handoffs: u64) -> Duration {
    let line = L::new(2);
    let bytes = key_bytes(0);
    let key = Key::new(&bytes).unwrap();
    let start = Barrier::new(3);
    std::thread::scope(|scope| {
        let players: Vec<_> = (0..2)
            .map(|owner| {
                let (line, start) = (&line, &start);
                let mut seat = line.seat(owner);
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..handoffs / 2 {
                        let fence = line.ask(&mut seat, owner, key);
                        let fence = fence.unwrap_or_else(|| line.told().take(owner));
                        line.pass_on(&mut seat, key, fence);
                    }
                })
            })
            .collect();
        start.wait();
        let begun = Instant::now();
        for player in players {
            player.join().expect("a player panicked");
        }
        begun.elapsed()
    })
}

fn handoff(c: &mut Criterion) {
    let mut group = c.benchmark_group("handoff");
    group
        .throughput(Throughput::Elements(1))
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(15);
    for queue_length in [1, 100, 1_000] {
        group.bench_function(
            BenchmarkId::new(<Engine<Told> as Line>::NAME, queue_length),
            |b| {
                b.iter_custom(|handoffs| one_thread::<Engine<Told>>(queue_length, handoffs));
            },
        );
        group.bench_function(BenchmarkId::new(Plain::NAME, queue_length), |b| {
            b.iter_custom(|handoffs| one_thread::<Plain>(queue_length, handoffs));
        });
    }
    group.bench_function(
        BenchmarkId::new(<Engine<Told> as Line>::NAME, "2_threads"),
        |b| {
            b.iter_custom(two_threads::<Engine<Told>>);
        },
    );
    group.bench_function(BenchmarkId::new(Plain::NAME, "2_threads"), |b| {
        b.iter_custom(two_threads::<Plain>);
    });
    group.finish();
}

criterion_group!(benches, handoff);
criterion_main!(benches);
