//! Question: how many instructions does one cycle of the engine take, on one thread?
//!
//! The program runs one cycle so many times; callgrind counts. The difference between two counts,
//! divided by the difference in cycles, leaves out everything that happens once.
//!
//! ```sh
//! cargo build --release -p fencepost-engine --example instructions
//! for cycles in 10000 20000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!         target/release/examples/instructions plain $cycles 2>&1 | grep Collected
//! done
//! ```
//!
//! | cycle        | what                                                                         |
//! |--------------|------------------------------------------------------------------------------|
//! | `plain`      | acquire and release of one key                                               |
//! | `two-keys`   | the same, of two keys in turn: the fast path always misses                   |
//! | `metadata`   | the same as `plain`, with 20 bytes of metadata                               |
//! | `refused`    | acquire of a key that another session holds                                  |
//! | `query`      | a look at a key that is held, without a queue                                |
//! | `wait`       | acquire of a key with a queue, which waits; and the cancel of the wait       |
//! | `hand-off`   | the holder releases, the first in line is granted it, the old holder waits   |
//!
//! Leaves out: caches, other cores, the network. An instruction is not a nanosecond.

use fencepost_engine::{
    Acquire, Engine, Fence, GaveUp, Grant, Host, Key, Loss, Outcome, Release, Seat, SessionId,
    Settings, Tick, Ticket,
};
use std::cell::Cell;
use std::hint::black_box;
use std::process::ExitCode;

const NOW: Tick = Tick::from_ms(1_000);
const SESSION_MS: u64 = 3_600_000;
const TTL_MS: u64 = 30_000;
const WAIT_MS: u64 = 60_000;

thread_local! {
    /// The fence of the last grant that a waiter was told of.
    static TOLD: Cell<u64> = const { Cell::new(0) };
}

/// Hears of grants.
struct Ears;

impl Host for Ears {
    type Waiter = u32;

    fn granted(&self, _: u32, grant: Grant) {
        TOLD.set(grant.fence.get());
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

#[inline(always)]
fn take(engine: &Engine<Ears>, seat: &mut Seat, request: &Acquire<'_>) -> Fence {
    match engine.acquire(seat, request, NOW) {
        Outcome::Granted(grant) => grant.fence,
        other => panic!("{other:?}"),
    }
}

#[inline(always)]
fn give_back(engine: &Engine<Ears>, seat: &mut Seat, key: Key<'_>, fence: Fence) {
    let released = engine.release(seat, key, fence, NOW);
    assert!(matches!(released, Release::Released { .. }), "{released:?}");
}

#[inline(always)]
fn wait(engine: &Engine<Ears>, seat: &mut Seat, request: &Acquire<'_>) -> Ticket {
    match engine.acquire_or_wait(seat, request, WAIT_MS, || Some(7), NOW) {
        Outcome::Queued { ticket, .. } => ticket,
        other => panic!("{other:?}"),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cycle, count] = &arguments[..] else {
        eprintln!("usage: instructions CYCLE COUNT; the cycles stand in its source");
        return ExitCode::from(2);
    };
    let count: u64 = count.parse().expect("the second argument is a number");
    let settings = Settings {
        shards: 64,
        keys_max: 1_000,
        hash_seed: Some(1),
        ..Settings::default()
    };
    let engine = Engine::new(settings, Ears);
    let seat = || {
        let session = engine.open_session(SESSION_MS, NOW);
        Seat::new(session.expect("three are not too many"))
    };
    let mut seats = [seat(), seat(), seat()];
    let [first, second, third] = &mut seats;
    let keys = [b"orders/00000001", b"orders/00000002"].map(|key| Key::new(key).expect("short"));
    let [key, other_key] = keys;
    let request = Acquire::exclusive(key, TTL_MS);
    // The home core knows both keys, and looks at them when a lease like ours ends.
    for key in keys {
        let fence = take(&engine, third, &Acquire::exclusive(key, TTL_MS));
        while engine.advance(NOW, 10_000).more {}
        give_back(&engine, third, key, fence);
    }
    // As a server does for each batch of requests.
    let _batch = engine.batch();
    match cycle.as_str() {
        "plain" => {
            for _ in 0..count {
                let fence = take(&engine, first, black_box(&request));
                give_back(&engine, first, black_box(key), fence);
            }
        }
        "two-keys" => {
            for round in 0..count {
                let key = black_box([key, other_key][round as usize % 2]);
                let fence = take(&engine, first, &Acquire::exclusive(key, TTL_MS));
                give_back(&engine, first, key, fence);
            }
        }
        "metadata" => {
            let mut request = request;
            request.metadata = b"01234567890123456789";
            for _ in 0..count {
                let fence = take(&engine, first, black_box(&request));
                give_back(&engine, first, black_box(key), fence);
            }
        }
        "refused" => {
            take(&engine, first, &request);
            for _ in 0..count {
                let outcome = engine.acquire(second, black_box(&request), NOW);
                assert!(matches!(outcome, Outcome::Held(_)), "{outcome:?}");
            }
        }
        "query" => {
            take(&engine, first, &request);
            for _ in 0..count {
                let state = engine.query(black_box(key), NOW);
                assert_eq!(state.map_or(0, |state| state.holders.len()), 1);
            }
        }
        "wait" => {
            take(&engine, first, &request);
            wait(&engine, second, &request);
            for _ in 0..count {
                let ticket = wait(&engine, third, black_box(&request));
                assert!(engine.cancel(ticket, NOW).is_some());
            }
        }
        "hand-off" => {
            let mut fence = take(&engine, first, &request);
            for round in 0..count {
                let (holder, waiter) = match round % 2 {
                    0 => (&mut *first, &mut *second),
                    _ => (&mut *second, &mut *first),
                };
                wait(&engine, waiter, black_box(&request));
                give_back(&engine, holder, black_box(key), fence);
                fence = Fence::new(TOLD.get()).expect("the waiter was told");
            }
        }
        unknown => {
            eprintln!("there is no cycle {unknown}; the cycles stand in the source");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
