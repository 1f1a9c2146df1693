//! What a guard's rule for forgotten keys costs, by the lock server that it stands behind. The
//! question is how many keys that are new, and under a lock that is really held, are refused
//! because of keys that were forgotten.

use engine::{Acquire, Alone, Engine, Key, Outcome, Seat, Settings, Tick};
use resource::{Fence, FenceGuard, Refusal, WhenFull};

/// A small guard, so that it soon has forgotten many times what it remembers.
const KEYS_MAX: usize = 10_000;

/// Keys that are used once. Behind so many, all floors have been raised.
const KEYS: u64 = 200_000;

/// Between two grants: a key is remembered by the guard for much longer than by the server.
const STEP_MS: u64 = 5;

const TTL_MS: u64 = 1_000;

/// Which share of the new keys is refused, the later half of them counted. `fence_of` is the lock
/// server.
fn refused_share(guard: &FenceGuard, mut fence_of: impl FnMut(u64, &str) -> Fence) -> f64 {
    let mut refused = 0;
    for number in 0..KEYS {
        let key = format!("orders/{number}");
        let written = guard.write_blocking(&key, fence_of(number, &key), || ());
        refused += u64::from(written.is_err() && number >= KEYS / 2);
    }
    refused as f64 / (KEYS / 2) as f64
}

/// Fencepost's engine, with its defaults. Keys that it has no more use for, it forgets as well, and
/// raises its own floors.
struct Server {
    engine: Engine<Alone>,
    seat: Seat,
    now: Tick,
}

impl Server {
    fn start() -> Server {
        let engine = Engine::new(Settings::default(), Alone);
        let session = engine.open_session(KEYS * STEP_MS * 10, Tick::default());
        let seat = Seat::new(session.unwrap());
        let now = Tick::default();
        Server { engine, seat, now }
    }

    fn fence_of(&mut self, key: &str) -> Fence {
        self.now = self.now.plus_ms(STEP_MS);
        while self.engine.advance(self.now, 10_000).more {}
        let key = Key::new(key.as_bytes()).unwrap();
        let acquire = Acquire::exclusive(key, TTL_MS);
        let outcome = self.engine.acquire(&mut self.seat, &acquire, self.now);
        let Outcome::Granted(grant) = outcome else {
            panic!("no other client wants it: {outcome:?}");
        };
        self.engine
            .release(&mut self.seat, key, grant.fence, self.now);
        Fence::new(grant.fence.get()).unwrap()
    }
}

#[test]
fn behind_fencepost_forgetting_costs_new_keys_nothing() {
    let guard = FenceGuard::builder().keys_max(KEYS_MAX).in_memory();
    let mut server = Server::start();
    let share = refused_share(&guard, |_, key| server.fence_of(key));
    assert_eq!(share, 0.0);
    assert_eq!(guard.keys(), KEYS_MAX);
}

#[test]
fn behind_fencepost_forgetting_costs_next_to_nothing_where_busy_keys_come_and_go() {
    let guard = FenceGuard::builder().keys_max(KEYS_MAX).in_memory();
    let mut server = Server::start();
    let share = refused_share(&guard, |number, key| {
        // Fifty keys take half of all grants, for a minute; then they are never heard of again, and
        // leave high floors in some of the shards.
        let busy = format!("busy/{}/{}", number / 6_000, number * 7 % 50);
        let fence = server.fence_of(&busy);
        let _ = guard.write_blocking(&busy, fence, || ());
        server.fence_of(key)
    });
    assert!(share < 0.01, "{share}");
}

#[test]
fn where_every_key_counts_from_one_forgetting_costs_most_new_keys_and_refusing_says_so() {
    let one = |_: u64, _: &str| Fence::new(1).unwrap();
    let guard = FenceGuard::builder().keys_max(KEYS_MAX).in_memory();
    let share = refused_share(&guard, one);
    assert!(share > 0.5, "the documentation warns of it: {share}");

    let guard = FenceGuard::builder()
        .keys_max(KEYS_MAX)
        .when_full(WhenFull::Refuse)
        .in_memory();
    assert_eq!(refused_share(&guard, one), 1.0);
    let why = guard.write_blocking("another", Fence::new(1).unwrap(), || ());
    assert!(matches!(why, Err(Refusal::Full(_))), "{why:?}");
    let known = guard.write_blocking("orders/7", Fence::new(2).unwrap(), || ());
    known.unwrap();
}
