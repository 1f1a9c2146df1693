//! Two shards: what they share is memory, and the sessions that use both.

use engine::{Acquire, Fault, Settings};
use loom::thread;
use loom_tests::{World, at, check, check_broken, is_released, key, small};

fn two_shards() -> (World, [&'static str; 2]) {
    let world = World::with(Settings {
        shards: 2,
        ..small()
    });
    let names = [0, 1].map(|shard| world.key_in_shard(shard));
    (world, names)
}

/// The first keys of both shards come at once; each shard needs a piece of the memory that they
/// share.
fn first_keys() {
    let (world, [here, there]) = two_shards();
    let (mut a, mut b) = (world.client(), world.client());

    let other = thread::spawn(move || (b.session(), b.lock(there, 10, at(1))));
    let one = (a.session(), a.lock(here, 10, at(1)));
    let two = other.join().unwrap();

    let held = [here, there].map(|name| world.holder(name, at(1)));
    assert_eq!(held, [Some(one), Some(two)], "two shards use the same cell");
}

#[test]
fn each_shard_has_its_own_piece_of_the_memory() {
    check(first_keys);
}

#[test]
#[should_panic(expected = "two shards use the same cell")]
fn a_piece_that_is_handed_out_twice_is_caught() {
    check_broken(Fault::PieceTakenTwice, first_keys);
}

/// A session that is first in line in both shards ends, while both keys are released to it.
fn end_against_hand_offs() {
    let (world, names) = two_shards();
    let (mut a, mut b, mut c) = (world.client(), world.client(), world.client());
    let fences = names.map(|name| a.lock(name, 100, at(0)));
    for name in names {
        b.stand_in_line(&Acquire::exclusive(key(name), 100), "b", at(0));
        c.stand_in_line(&Acquire::exclusive(key(name), 100), "c", at(0));
    }

    let leaver = thread::spawn(move || b.leave(at(1)));
    for (name, fence) in names.into_iter().zip(fences) {
        assert!(is_released(a.release(name, fence, at(1))));
    }
    leaver.join().unwrap();

    // Without looking at the keys, which would set them right.
    let told = world.told();
    let grants = told.grants.iter().filter(|&&(waiter, _)| waiter == "c");
    assert!(
        grants.count() == 2,
        "a lock stays with a session that has ended: {told:?}"
    );
    let owners = names.map(|name| world.holder(name, at(1)).map(|(owner, _)| owner));
    assert_eq!(owners, [Some(c.session()); 2]);
}

#[test]
fn a_session_that_ends_leaves_both_shards() {
    check(end_against_hand_offs);
}

#[test]
#[should_panic(expected = "stays with a session that has ended")]
fn a_session_that_forgets_a_fresh_grant_in_one_of_two_shards_is_caught() {
    check_broken(Fault::VacateForgetsGranted, end_against_hand_offs);
}
