//! A home that sleeps until something is due: woken for what comes earlier, left alone by all else.

use crate::common::{
    Event, LONG_MS, Locks, acquire, advance, at, give_back, granted, key, locks, locks_with,
    queued, seat, seats, share, small, take, wait,
};
use engine::{Acquire, Key, Outcome, Release, Renewal, Seat, Settings, Tick};

/// When the homes of these tests mean to wake.
const MORNING_MS: u64 = 1_000;

/// All homes go to sleep. What they knew of has been looked at.
#[track_caller]
fn rest(engine: &Locks, now: Tick) {
    advance(engine, now);
    assert!(try_rest(engine, at(MORNING_MS)), "something has come");
    assert_eq!(engine.host().take_wakes(), []);
}

fn try_rest(engine: &Locks, until: Tick) -> bool {
    (0..engine.shard_count()).all(|shard| engine.rest_shard(shard, until))
        && engine.rest_sessions(until)
}

/// One shard, so that it is always the same home.
fn one_shard() -> Locks {
    locks_with(Settings {
        shards: 1,
        ..small()
    })
}

#[test]
fn a_lease_on_a_new_key_wakes_the_home_if_it_ends_first() {
    let engine = locks();
    let mut a = seat(&engine);
    rest(&engine, at(0));
    take(&engine, &mut a, "later", MORNING_MS, at(0));
    take(&engine, &mut a, "much later", LONG_MS, at(0));
    assert_eq!(engine.host().take_wakes(), [], "it wakes in time by itself");
    take(&engine, &mut a, "sooner", MORNING_MS / 2, at(0));
    let home = engine.shard_of(key("sooner"));
    assert_eq!(engine.host().take_wakes(), [home]);
}

#[test]
fn a_home_is_woken_once() {
    let engine = one_shard();
    let mut a = seat(&engine);
    rest(&engine, at(0));
    for name in ["x", "y", "z"] {
        take(&engine, &mut a, name, 10, at(0));
    }
    assert_eq!(engine.host().take_wakes(), [0]);
    // It looks, and sleeps again: now it knows of all three.
    advance(&engine, at(0));
    assert!(try_rest(&engine, at(10)));
    take(&engine, &mut a, "sooner", 5, at(0));
    assert_eq!(engine.host().take_wakes(), [0]);
}

#[test]
fn a_home_does_not_sleep_on_what_lies_in_its_inbox() {
    let engine = one_shard();
    let mut a = seat(&engine);
    advance(&engine, at(0));
    take(&engine, &mut a, "k", LONG_MS, at(0));
    assert!(!try_rest(&engine, at(MORNING_MS)));
    rest(&engine, at(0));
}

#[test]
fn a_known_key_taken_for_less_long_wakes_the_home() {
    let engine = one_shard();
    let mut a = seat(&engine);
    let long = take(&engine, &mut a, "k", LONG_MS, at(0));
    advance(&engine, at(0));
    give_back(&engine, &mut a, "k", long.fence, at(0));
    rest(&engine, at(0));
    take(&engine, &mut a, "k", 20, at(1));
    assert_eq!(engine.host().take_wakes(), [0]);
}

#[test]
fn a_renewal_that_shortens_a_lease_wakes_the_home() {
    let engine = one_shard();
    let mut a = seat(&engine);
    let grant = take(&engine, &mut a, "k", LONG_MS, at(0));
    rest(&engine, at(0));
    let renew = |ttl_ms| engine.renew(&a, key("k"), grant.fence, ttl_ms, at(1));
    assert!(matches!(renew(2 * LONG_MS), Renewal::Renewed { .. }));
    assert_eq!(engine.host().take_wakes(), []);
    assert!(matches!(renew(20), Renewal::Renewed { .. }));
    assert_eq!(engine.host().take_wakes(), [0]);
}

#[test]
fn a_shared_lease_and_one_with_a_long_metadata_wake_the_home() {
    let engine = one_shard();
    let mut a = seat(&engine);
    rest(&engine, at(0));
    granted(share(&engine, &mut a, "shared", 20, at(0)));
    assert_eq!(engine.host().take_wakes(), [0]);
    rest(&engine, at(0));
    let noted = Acquire {
        metadata: &[7; 500],
        ..Acquire::exclusive(key("noted"), 10)
    };
    granted(engine.acquire(&mut a, &noted, at(0)));
    assert_eq!(engine.host().take_wakes(), [0]);
}

#[test]
fn a_wait_wakes_the_home_if_it_ends_first() {
    let engine = one_shard();
    let [mut a, mut b, mut c] = seats(&engine);
    take(&engine, &mut a, "k", LONG_MS, at(0));
    rest(&engine, at(0));
    wait(&engine, &mut b, "k", 10, 1, at(0));
    assert_eq!(engine.host().take_wakes(), [], "it waits for an hour");
    let request = Acquire::exclusive(key("k"), 10);
    queued(engine.acquire_or_wait(&mut c, &request, 30, || Some(2), at(0)));
    assert_eq!(engine.host().take_wakes(), [0]);
}

#[test]
fn a_session_wakes_the_home_of_shard_0_if_it_ends_first() {
    let engine = locks();
    rest(&engine, at(0));
    engine.open_session(MORNING_MS, at(0)).unwrap();
    assert_eq!(engine.host().take_wakes(), []);
    engine.open_session(50, at(0)).unwrap();
    assert_eq!(engine.host().take_wakes(), [0]);
    assert!(!engine.rest_sessions(at(MORNING_MS)));
}

/// A home that turns its wheels only when something it knows of is due, or when it is woken.
struct Sleeper {
    wakes_at: Tick,
}

impl Sleeper {
    fn pass_time(&mut self, engine: &Locks, now: Tick) {
        let is_woken = !engine.host().take_wakes().is_empty();
        if now < self.wakes_at && !is_woken {
            return;
        }
        loop {
            let progress = engine.advance(now, 1000);
            self.wakes_at = progress.next_due.unwrap_or(Tick::MAX).max(now.plus_ms(1));
            if !progress.more && try_rest(engine, self.wakes_at) {
                return;
            }
        }
    }
}

/// Small steps of a linear congruential generator: the same every time.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn a_home_that_sleeps_until_something_is_due_is_never_late() {
    for seed in 0..20 {
        let engine = locks();
        let mut seats: [Seat; 4] = seats(&engine);
        let mut dice = Dice(seed);
        let mut sleeper = Sleeper {
            wakes_at: Tick::default(),
        };
        let (mut losses, mut turns) = (0, 0);
        for ms in 0..20_000 {
            let now = at(ms);
            let slept_until = sleeper.wakes_at;
            sleeper.pass_time(&engine, now);
            turns += u32::from(sleeper.wakes_at != slept_until);
            for event in engine.host().take() {
                if let Event::Lost { key, late_ms, .. } = event {
                    assert_eq!(late_ms, 0, "seed {seed}: {key:?} ended late at {ms}");
                    losses += 1;
                }
            }
            if dice.throw(40) == 0 {
                let name = format!("key {}", dice.throw(30));
                let seat = &mut seats[dice.throw(4) as usize];
                play(&engine, seat, key(&name), &mut dice, now);
            }
        }
        assert!(losses > 50, "seed {seed}: only {losses} leases ended");
        assert!(turns < 5_000, "seed {seed}: awake {turns} times");
    }
}

/// Does one thing with a key.
fn play(engine: &Locks, seat: &mut Seat, key: Key<'_>, dice: &mut Dice, now: Tick) {
    let ttl_ms = [5, 70, 900, 30_000][dice.throw(4) as usize];
    let fence = engine.query(key, now).map(|state| state.fence);
    match (dice.throw(4), fence) {
        (0, Some(fence)) => {
            let _: Release = engine.release(seat, key, fence, now);
        }
        (1, Some(fence)) => {
            let _: Renewal = engine.renew(seat, key, fence, ttl_ms, now);
        }
        (2, _) => {
            let request = Acquire::shared(key, ttl_ms);
            let wait_ms = 1 + dice.throw(500);
            let _: Outcome = engine.acquire_or_wait(seat, &request, wait_ms, || Some(1), now);
        }
        _ => {
            let name = str::from_utf8(key.bytes()).unwrap();
            let _: Outcome = acquire(engine, seat, name, ttl_ms, now);
        }
    }
}
