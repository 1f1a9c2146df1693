//! A home that goes to sleep against cores that have something for it: it knows of it, or it is
//! woken.

use engine::{Acquire, Fault, Tick};
use loom::thread;
use loom_tests::{KEY, World, at, check, check_broken, is_released, key};

/// Ends long before anything else here does.
const SOON_MS: u64 = 10;

/// Goes on for longer than any of these homes would sleep by itself.
const LATE_MS: u64 = 100_000;

/// All threads are done: what ends at `end` is not slept over, give or take the tick it ends with.
fn check_sleep(world: &World, slept_until: Tick, end: Tick) {
    assert!(
        slept_until <= end.plus_ms(1) || world.told().wakes > 0,
        "the home sleeps until {slept_until:?}, and is not woken"
    );
}

/// The home goes to sleep while a new key is taken for a moment.
fn rest_against_new_key() {
    let world = World::new();
    let mut a = world.client();
    let asker = thread::spawn(move || {
        a.lock(KEY, SOON_MS, at(0));
    });
    let slept_until = world.turn_and_rest(at(0));
    asker.join().unwrap();
    check_sleep(&world, slept_until, at(SOON_MS));
}

#[test]
fn a_new_lease_is_known_to_the_home_or_wakes_it() {
    check(rest_against_new_key);
}

#[test]
#[should_panic(expected = "and is not woken")]
fn a_home_that_looks_before_it_says_that_it_sleeps_is_caught() {
    check_broken(Fault::SleeperLooksFirst, rest_against_new_key);
}

/// The home goes to sleep while a lease that it knows is made shorter.
fn rest_against_shortening() {
    let world = World::new();
    let mut a = world.client();
    let fence = a.lock(KEY, LATE_MS, at(0));
    world.advance(at(0));
    let asker = thread::spawn(move || assert!(a.renew(KEY, fence, SOON_MS, at(0))));
    let slept_until = world.turn_and_rest(at(0));
    asker.join().unwrap();
    check_sleep(&world, slept_until, at(SOON_MS));
}

#[test]
fn a_lease_made_shorter_is_known_to_the_home_or_wakes_it() {
    check(rest_against_shortening);
}

#[test]
#[should_panic(expected = "and is not woken")]
fn a_home_that_sleeps_over_a_shorter_lease_is_caught() {
    check_broken(Fault::SleeperLooksFirst, rest_against_shortening);
}

/// The home goes to sleep while two ask for the same cell. One gives its lock back, long before its
/// time, and is in no hurry to have the key forgotten; the other takes it for a moment, and may
/// leave it to the first to put the cell into the inbox.
fn rest_against_two_askers() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let fence = a.lock(KEY, 100 * LATE_MS, at(0));
    world.advance(at(0));
    let releaser = thread::spawn(move || assert!(is_released(a.release(KEY, fence, at(0)))));
    let taker = thread::spawn(move || b.try_lock(KEY, SOON_MS, at(0)));
    let is_asleep = world.engine().rest_shard(0, at(LATE_MS));
    releaser.join().unwrap();
    let is_taken = taker.join().unwrap().is_some();
    if is_asleep && is_taken {
        check_sleep(&world, at(LATE_MS), at(SOON_MS));
    }
}

#[test]
fn the_core_that_links_a_cell_wakes_the_home_for_all_that_asked() {
    check(rest_against_two_askers);
}

#[test]
#[should_panic(expected = "and is not woken")]
fn an_asker_that_minds_its_own_lease_only_is_caught() {
    check_broken(Fault::LinkerMindsItself, rest_against_two_askers);
}

/// The home goes to sleep while a client stands in line for a moment.
fn rest_against_waiter() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    a.lock(KEY, LATE_MS, at(0));
    world.advance(at(0));
    let waiter = thread::spawn({
        let world = world.clone();
        move || {
            let request = Acquire::exclusive(key(KEY), LATE_MS);
            world
                .engine()
                .acquire_or_wait(b.seat(), &request, SOON_MS, || Some("b"), at(0));
        }
    });
    let slept_until = world.turn_and_rest(at(0));
    waiter.join().unwrap();
    check_sleep(&world, slept_until, at(SOON_MS));
}

#[test]
fn a_wait_is_known_to_the_home_or_wakes_it() {
    check(rest_against_waiter);
}

#[test]
#[should_panic(expected = "and is not woken")]
fn a_home_that_sleeps_over_a_wait_is_caught() {
    check_broken(Fault::SleeperLooksFirst, rest_against_waiter);
}
