//! Many threads at once: a writer holds its key alone, fences rise, and every waiter
//! hears of it exactly once.
//!
//! Time is a counter that one of the threads pushes on. No thread sleeps, and nothing depends on
//! how fast anything is.

use crate::common::{advance, at, granted, small};
use engine::{
    Acquire, Engine, Fence, GaveUp, Grant, Host, Key, Loss, Mode, Outcome, Release, Renewal, Seat,
    SessionId, Settings, Span, Tick,
};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

/// A host whose waiters are channels. A grant to a waiter that has gone is an orphan, which another
/// thread gives back.
struct Post {
    orphans: Sender<Option<Orphan>>,
}

/// A grant that no client wants any more.
struct Orphan {
    session: SessionId,
    key: Box<[u8]>,
    fence: Fence,
}

impl Post {
    fn new() -> (Post, Receiver<Option<Orphan>>) {
        let (orphans, found) = mpsc::channel();
        (Post { orphans }, found)
    }
}

impl Orphan {
    fn give_back(&self, engine: &Engine<Post>, now: Tick) -> Release {
        let key = Key::new(&self.key).unwrap();
        engine.release(&mut Seat::new(self.session), key, self.fence, now)
    }
}

/// How a waiter is reached, as long as it is there.
#[derive(Clone)]
struct Waiter {
    session: SessionId,
    key: Box<[u8]>,
    post: Arc<Mutex<Option<Sender<Told>>>>,
}

impl Waiter {
    fn new(seat: &Seat, key: Key<'_>) -> (Waiter, Receiver<Told>) {
        let (post, told) = mpsc::channel();
        let waiter = Waiter {
            session: seat.session(),
            key: key.as_bytes().into(),
            post: Arc::new(Mutex::new(Some(post))),
        };
        (waiter, told)
    }

    /// From here on the waiter has gone: a lock that comes later is given back. What came before is
    /// in the channel.
    fn vanish(&self) {
        self.post.lock().unwrap().take();
    }

    /// `false`: it has gone.
    fn tell(&self, what: Told) -> bool {
        let post = self.post.lock().unwrap();
        post.as_ref().is_some_and(|post| post.send(what).is_ok())
    }
}

#[derive(Debug)]
enum Told {
    Granted(Grant),
    GaveUp,
}

impl Host for Post {
    type Waiter = Waiter;

    fn granted(&self, waiter: Waiter, grant: Grant) {
        if !waiter.tell(Told::Granted(grant)) {
            let orphan = Orphan {
                session: waiter.session,
                key: waiter.key,
                fence: grant.fence,
            };
            self.orphans.send(Some(orphan)).unwrap();
        }
    }
    fn gave_up(&self, waiter: Waiter, _: GaveUp) {
        waiter.tell(Told::GaveUp);
    }
    fn lost(&self, _: &Loss<'_>) {}
    fn session_ended(&self, _: SessionId) {}
}

/// Numbers that are the same in every run, as far as the threads are.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

/// What a wait came to.
#[track_caller]
fn hear(told: &Receiver<Told>) -> Option<Grant> {
    match told.recv().expect("a waiter is told") {
        Told::Granted(grant) => Some(grant),
        Told::GaveUp => None,
    }
}

/// What had been said by the time one asked, for a wait that is over one way or another.
fn heard(told: &Receiver<Told>) -> Option<Grant> {
    match told.try_recv() {
        Ok(Told::Granted(grant)) => Some(grant),
        Ok(Told::GaveUp) | Err(_) => None,
    }
}

/// Nothing more is said after the one answer.
#[track_caller]
fn assert_silent(told: &Receiver<Told>) {
    if let Ok(more) = told.try_recv() {
        panic!("told once more: {more:?}");
    }
}

/// Counts a thread out, even one that fails. It then does what it takes for the others to come to
/// an end, for a test that fails should say so and not hang.
struct Running<'a> {
    running: &'a AtomicU64,
    on_failure: &'a dyn Fn(),
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
        while std::thread::panicking() && self.running.load(Ordering::Acquire) > 0 {
            (self.on_failure)();
            std::thread::yield_now();
        }
    }
}

/// Leases outlast the test here, so only the holder ends them.
#[test]
fn writers_are_alone_and_readers_among_themselves() {
    const THREADS: u64 = 4;
    const STEPS: u64 = 50_000;
    const KEYS: usize = 2;
    #[derive(Default)]
    struct Truth {
        readers: AtomicU32,
        has_writer: AtomicBool,
        fence_max: AtomicU64,
    }
    let (post, orphans) = Post::new();
    let engine = Engine::new(small(), post);
    let truth: [Truth; KEYS] = Default::default();
    let names = [b"hot".as_slice(), b"not so hot"];
    let running = AtomicU64::new(THREADS);
    let worker = |seed: u64| {
        let _running = Running {
            running: &running,
            on_failure: &|| advance(&engine, at(3_000_000)),
        };
        let mut dice = Dice(seed);
        let mut seat = Seat::new(engine.open_session(u64::MAX, at(0)).unwrap());
        let mut told_of = 0;
        for _ in 0..STEPS {
            let number = usize::from(dice.roll(4) == 0);
            let (key, truth) = (Key::new(names[number]).unwrap(), &truth[number]);
            let request = match dice.roll(3) {
                0 => Acquire::shared(key, 1_000_000),
                _ => Acquire::exclusive(key, 1_000_000),
            };
            let (waiter, told) = Waiter::new(&seat, key);
            let grant = match engine.acquire_or_wait(
                &mut seat,
                &request,
                1_000_000,
                || Some(waiter.clone()),
                at(1),
            ) {
                Outcome::Granted(grant) => Some(grant),
                Outcome::Queued { ticket, .. } => match dice.roll(8) {
                    // Gone when the lock comes, unless it has come already.
                    0 => {
                        waiter.vanish();
                        heard(&told)
                    }
                    1 => match engine.cancel(ticket, at(1)) {
                        Some(_) => None,
                        None => hear(&told),
                    },
                    _ => {
                        told_of += 1;
                        hear(&told)
                    }
                },
                other => panic!("{other:?}"),
            };
            let Some(grant) = grant else { continue };
            assert_silent(&told);
            let fence_max = truth
                .fence_max
                .fetch_max(grant.fence.get(), Ordering::AcqRel);
            if request.mode == Mode::Exclusive {
                assert!(
                    !truth.has_writer.swap(true, Ordering::AcqRel),
                    "two writers"
                );
                assert_eq!(
                    truth.readers.load(Ordering::Acquire),
                    0,
                    "a writer among readers"
                );
                assert!(
                    fence_max < grant.fence.get(),
                    "{fence_max} before {}",
                    grant.fence
                );
                truth.has_writer.store(false, Ordering::Release);
            } else {
                truth.readers.fetch_add(1, Ordering::AcqRel);
                assert!(
                    !truth.has_writer.load(Ordering::Acquire),
                    "a reader beside a writer"
                );
                truth.readers.fetch_sub(1, Ordering::AcqRel);
            }
            let released = engine.release(&mut seat, key, grant.fence, at(1));
            assert_eq!(released, Release::Released { count: 0 });
        }
        told_of
    };
    let told_of: u64 = std::thread::scope(|scope| {
        let worker = &worker;
        let engine = &engine;
        let threads: Vec<_> = (0..THREADS)
            .map(|seed| scope.spawn(move || worker(seed)))
            .collect();
        scope.spawn(move || {
            let found = std::iter::from_fn(|| orphans.recv().unwrap());
            // What it hands on after the last worker has gone is already here.
            for orphan in found.chain(std::iter::from_fn(|| orphans.try_recv().ok()?)) {
                let released = orphan.give_back(engine, at(1));
                assert_eq!(released, Release::Released { count: 0 });
            }
        });
        let threads: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        engine.host().orphans.send(None).unwrap();
        threads.into_iter().map(|thread| thread.unwrap()).sum()
    });
    assert!(told_of > 0, "there was a queue now and then");
    assert_eq!(engine.waiters(), 0);
    for name in names {
        let state = engine.query(Key::new(name).unwrap(), at(1)).unwrap();
        assert_eq!(state.holders, []);
    }
}

/// Everything that can end a lease or a wait, at once: releases, expiry, the wheel, cancels,
/// deadlines, sessions that end on another thread, eviction, and a ceiling that is raised just in
/// time.
#[test]
fn fences_rise_and_no_waiter_is_forgotten_whatever_ends_leases_and_waits() {
    const WORKERS: u64 = 4;
    const STEPS: u64 = 40_000;
    const KEYS: u64 = 3;
    struct World {
        engine: Engine<Post>,
        clock: AtomicU64,
        running: AtomicU64,
        /// The present session of each pair of workers.
        sessions: [AtomicU64; 2],
        /// The highest fence that a worker knows of, for each key.
        fence_max: [AtomicU64; KEYS as usize],
    }
    impl World {
        fn now(&self) -> Tick {
            at(self.clock.load(Ordering::Relaxed))
        }

        fn open(&self) -> SessionId {
            self.engine.open_session(u64::MAX, self.now()).unwrap()
        }
    }

    let (post, orphans) = Post::new();
    let engine = Engine::new(
        Settings {
            idle_ms: 5,
            ceiling: Fence::new(100).unwrap(),
            ..small()
        },
        post,
    );
    let sessions = std::array::from_fn(|_| {
        let session = engine.open_session(u64::MAX, at(0)).unwrap();
        AtomicU64::new(session.get())
    });
    let world = World {
        engine,
        clock: AtomicU64::new(0),
        running: AtomicU64::new(WORKERS),
        sessions,
        fence_max: Default::default(),
    };

    // Pushes the clock on, does what is due, raises ceilings, and now and then ends a
    // session.
    let world = &world;
    let timekeeper = move || {
        let mut dice = Dice(77);
        let mut ended = 0;
        while world.running.load(Ordering::Acquire) > 0 {
            let now = at(world.clock.fetch_add(1, Ordering::Relaxed) + 1);
            world.engine.advance(now, 50);
            for orphan in orphans.try_iter().flatten() {
                // It may have ended by itself.
                orphan.give_back(&world.engine, now);
            }
            for shard in 0..world.engine.shard_count() {
                if dice.roll(20) == 0 {
                    let ceiling = world.engine.ceiling(shard).get() + 100;
                    world
                        .engine
                        .raise_ceiling(shard, Fence::new(ceiling).unwrap(), now);
                }
            }
            if dice.roll(500) == 0 {
                let pair = &world.sessions[dice.roll(2) as usize];
                let old = SessionId::from_bits(pair.swap(world.open().get(), Ordering::AcqRel));
                assert!(world.engine.end_session(old));
                ended += 1;
            }
            std::thread::yield_now();
        }
        ended
    };

    let worker = |number: u64| {
        let _running = Running {
            running: &world.running,
            on_failure: &|| (),
        };
        let engine = &world.engine;
        let mut dice = Dice(number);
        let current = || {
            let bits = world.sessions[number as usize % 2].load(Ordering::Acquire);
            Seat::new(SessionId::from_bits(bits))
        };
        let mut seat = current();
        let mut fences: Vec<(u64, u64)> = Vec::new();
        for _ in 0..STEPS {
            let which = dice.roll(KEYS);
            let name = [b'k', which as u8];
            let key = Key::new(&name).unwrap();
            let request = Acquire {
                mode: match dice.roll(4) {
                    0 => Mode::Shared,
                    _ => Mode::Exclusive,
                },
                span: match dice.roll(4) {
                    0 => Span::Session,
                    _ => Span::Ms(1 + dice.roll(5)),
                },
                ..Acquire::exclusive(key, 1)
            };
            let (waiter, told) = Waiter::new(&seat, key);
            let wait_ms = 1 + dice.roll(20);
            let outcome = engine.acquire_or_wait(
                &mut seat,
                &request,
                wait_ms,
                || Some(waiter.clone()),
                world.now(),
            );
            let grant = match outcome {
                Outcome::Granted(grant) => Some(grant),
                Outcome::Queued { ticket, .. } => match dice.roll(6) {
                    0 => {
                        waiter.vanish();
                        heard(&told)
                    }
                    1 => match engine.cancel(ticket, world.now()) {
                        Some(_) => None,
                        None => match told.try_recv() {
                            Ok(Told::Granted(grant)) => Some(grant),
                            Ok(Told::GaveUp) => None,
                            Err(_) => panic!("neither cancelled nor told"),
                        },
                    },
                    _ => hear(&told),
                },
                Outcome::SessionEnded => {
                    engine.vacate(&mut seat, world.now());
                    seat = current();
                    None
                }
                other => panic!("{other:?}"),
            };
            let Some(grant) = grant else { continue };
            assert_silent(&told);
            fences.push((which, grant.fence.get()));
            let fence_max = &world.fence_max[which as usize];
            fence_max.fetch_max(grant.fence.get(), Ordering::AcqRel);
            if dice.roll(4) == 0 {
                // Left to expire.
                continue;
            }
            if dice.roll(4) == 0 {
                let renewal = engine.renew(&seat, key, grant.fence, 3, world.now());
                assert!(!matches!(renewal, Renewal::Invalid(_)));
            }
            // A worker that can still give back an exclusive lock had it to itself all the time:
            // none knew of a higher fence.
            let known = fence_max.load(Ordering::Acquire);
            let released = engine.release(&mut seat, key, grant.fence, world.now());
            if released == (Release::Released { count: 0 }) && request.mode == Mode::Exclusive {
                assert!(
                    known <= grant.fence.get(),
                    "{known} while {} was held",
                    grant.fence
                );
            }
        }
        (seat, fences)
    };

    let (ended, done) = std::thread::scope(|scope| {
        let worker = &worker;
        let time = scope.spawn(timekeeper);
        let threads: Vec<_> = (0..WORKERS)
            .map(|number| scope.spawn(move || worker(number)))
            .collect();
        let done: Vec<(Seat, Vec<(u64, u64)>)> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        (time.join().unwrap(), done)
    });
    let (mut seats, fences): (Vec<Seat>, Vec<Vec<(u64, u64)>>) = done.into_iter().unzip();
    assert!(ended > 0, "sessions ended under their users' hands");
    let all: usize = fences.iter().map(Vec::len).sum();
    let distinct: BTreeSet<(u64, u64)> = fences.iter().flatten().copied().collect();
    assert_eq!(distinct.len(), all, "a fence was given out twice");

    // All workers have gone. What was left to expire does so, and nothing remains.
    let mut now = world.clock.load(Ordering::Relaxed);
    for shard in 0..world.engine.shard_count() {
        world.engine.raise_ceiling(shard, Fence::MAX, at(now));
    }
    for seat in &mut seats {
        world.engine.end_session(seat.session());
        world.engine.vacate(seat, at(now));
    }
    assert_eq!(
        world.engine.waiters(),
        0,
        "with the sessions the waits ended"
    );
    for _ in 0..5 {
        // A key that was bound to a session for ever is looked at after twelve days.
        now += 13 * 86_400_000;
        advance(&world.engine, at(now));
    }
    assert_eq!(world.engine.keys(), 0);
    let mut seat = Seat::new(world.open());
    for which in 0..KEYS {
        let name = [b'k', which as u8];
        let request = Acquire::exclusive(Key::new(&name).unwrap(), 1);
        let last = granted(world.engine.acquire(&mut seat, &request, at(now)));
        let known = world.fence_max[which as usize].load(Ordering::Acquire);
        assert!(last.fence.get() > known);
    }
}
