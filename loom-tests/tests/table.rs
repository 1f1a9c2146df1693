//! The table: insertion, growth, eviction and reuse of cells against one another.

use engine::{Fault, Fence};
use loom::thread;
use loom_tests::{IDLE_MS, KEY, World, at, check, check_broken, is_released};

/// Two ask at once for a key that has no cell yet.
fn two_inserters() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());

    let other = thread::spawn(move || b.try_lock(KEY, 10, at(1)));
    let one = a.try_lock(KEY, 10, at(1));
    let two = other.join().unwrap();

    assert!(
        one.is_some() != two.is_some(),
        "one winner expected: {one:?} and {two:?}"
    );
    assert_eq!(world.engine().keys(), 1);
}

#[test]
fn two_inserters_of_one_key_share_a_cell() {
    check(two_inserters);
}

#[test]
#[should_panic(expected = "one winner expected")]
fn an_insertion_that_overwrites_is_caught() {
    check_broken(Fault::OvertakenInsertCounts, two_inserters);
}

/// Two ask at once for different keys, and the table has no memory yet.
fn first_keys() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());

    let other = thread::spawn(move || (b.session(), b.lock("x", 10, at(1))));
    let one = (a.session(), a.lock(KEY, 10, at(1)));
    let two = other.join().unwrap();

    let held = [KEY, "x"].map(|name| world.holder(name, at(1)));
    assert_eq!(held, [Some(one), Some(two)], "a key was lost");
}

#[test]
fn two_who_need_memory_at_once_share_it() {
    check(first_keys);
}

#[test]
#[should_panic(expected = "a key was lost")]
fn memory_that_replaces_what_is_in_use_is_caught() {
    check_broken(Fault::PieceReplaced, first_keys);
}

/// By then every key of the beginning is idle.
const LATE_MS: u64 = 10 * IDLE_MS;

/// A key that was granted once, and that the wheel may forget.
fn idle_key(world: &World, name: &str) -> Fence {
    let mut client = world.client();
    let fence = client.lock(name, 10, at(0));
    assert!(is_released(client.release(name, fence, at(0))));
    world.advance(at(0));
    fence
}

/// An idle key is forgotten at the moment a session asks for it.
fn evict_against_acquire() {
    let world = World::new();
    let old = idle_key(&world, KEY);
    let mut a = world.client();

    let home = thread::spawn({
        let world = world.clone();
        move || world.advance(at(LATE_MS))
    });
    let new = a.lock(KEY, 10, at(LATE_MS));
    home.join().unwrap();

    assert!(new > old, "a fence went back from {old} to {new}");
}

#[test]
fn a_forgotten_key_comes_back_above_its_last_fence() {
    check(evict_against_acquire);
}

#[test]
#[should_panic(expected = "a fence went back")]
fn a_floor_raised_after_the_eviction_is_caught() {
    check_broken(Fault::FloorAfterEviction, evict_against_acquire);
}

/// An idle key is forgotten and its cell is used for another key, while a thread that has found it
/// there takes it.
fn stale_finder_against_reuse(name: &'static str, other: &'static str) {
    let world = World::new();
    let old = idle_key(&world, name);
    let (mut a, mut b) = (world.client(), world.client());

    let home = thread::spawn({
        let world = world.clone();
        move || {
            world.advance(at(LATE_MS));
            (b.session(), b.lock(other, 10, at(LATE_MS)))
        }
    });
    let new = a.lock(name, 10, at(LATE_MS));
    let held_by_b = home.join().unwrap();

    assert!(new > old, "a fence went back from {old} to {new}");
    let held = [name, other].map(|name| world.holder(name, at(LATE_MS)));
    let granted = [Some((a.session(), new)), Some(held_by_b)];
    assert_eq!(held, granted, "a cell was taken for another key's");
}

fn short_keys_against_reuse() {
    stale_finder_against_reuse(KEY, "x");
}

/// Both keys begin alike and go on in a block outside the cell, which is reused as well.
fn long_keys_against_reuse() {
    stale_finder_against_reuse("key/1", "key/2");
}

#[test]
fn a_cell_is_never_taken_for_the_key_it_had_before() {
    check(short_keys_against_reuse);
}

#[test]
fn a_long_key_is_never_taken_for_the_one_before() {
    check(long_keys_against_reuse);
}

#[test]
#[should_panic(expected = "a cell was taken for another key's")]
fn a_cell_that_starts_at_the_word_it_died_with_is_caught() {
    check_broken(Fault::ReuseRepeatsWord, short_keys_against_reuse);
}

#[test]
#[should_panic(expected = "a cell was taken for another key's")]
fn a_long_keys_cell_that_starts_as_it_died_is_caught() {
    check_broken(Fault::ReuseRepeatsWord, long_keys_against_reuse);
}

/// The index is being left for a larger one, while a key is put into it.
fn insert_against_growth() {
    let world = World::new();
    let (mut a, mut b, mut c) = (world.client(), world.client(), world.client());
    let names = ["k", "x", "y", "z"];
    a.lock(names[0], 10, at(0));
    a.lock(names[1], 10, at(0));

    // The third of four entries begins the move.
    let grower = thread::spawn(move || b.lock(names[2], 10, at(0)));
    a.lock(names[3], 10, at(0));
    grower.join().unwrap();

    // One more, to finish the move.
    c.lock("w", 10, at(0));
    for name in names {
        assert!(
            world.holder(name, at(0)).is_some(),
            "{name} was lost on the way to the new index"
        );
    }
}

#[test]
fn a_key_inserted_while_the_index_grows_is_found() {
    check(insert_against_growth);
}

#[test]
#[should_panic(expected = "lost on the way to the new index")]
fn a_migration_that_leaves_entries_open_is_caught() {
    check_broken(Fault::MigrationLeavesOpen, insert_against_growth);
}

/// The index is half-way to a larger one, and two ask at once for a key that has no cell yet.
fn two_inserters_against_growth() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    for name in ["k", "x", "y"] {
        a.lock(name, 10, at(0));
    }

    let other = thread::spawn(move || b.try_lock("z", 10, at(0)));
    let one = a.try_lock("z", 10, at(0));
    let two = other.join().unwrap();

    assert!(
        one.is_some() != two.is_some(),
        "one winner expected: {one:?} and {two:?}"
    );
    assert_eq!(world.engine().keys(), 4);
}

#[test]
fn two_inserters_share_a_cell_while_the_index_grows() {
    check(two_inserters_against_growth);
}

#[test]
#[should_panic(expected = "one winner expected")]
fn a_half_open_index_is_caught() {
    check_broken(Fault::MigrationLeavesOpen, two_inserters_against_growth);
}

/// An idle key is forgotten while the index is being left for a larger one, and then asked for
/// again.
fn evict_against_growth() {
    let world = World::new();
    let old = idle_key(&world, KEY);
    let (mut a, mut b) = (world.client(), world.client());
    a.lock("x", 10 * LATE_MS, at(0));
    a.lock("y", 10 * LATE_MS, at(0));

    let home = thread::spawn({
        let world = world.clone();
        move || world.advance(at(LATE_MS))
    });
    // It finishes the move.
    a.lock("z", 10, at(LATE_MS));
    let new = b.lock(KEY, 10, at(LATE_MS));
    home.join().unwrap();

    assert!(new > old, "a fence went back from {old} to {new}");
    assert_eq!(
        world.holder(KEY, at(LATE_MS)),
        Some((b.session(), new)),
        "what came back was forgotten instead"
    );
}

#[test]
fn a_key_forgotten_while_the_index_grows_comes_back_above_its_last_fence() {
    check(evict_against_growth);
}

#[test]
#[should_panic(expected = "a fence went back")]
fn a_floor_raised_too_late_for_the_new_index_is_caught() {
    check_broken(Fault::FloorAfterEviction, evict_against_growth);
}

/// The index is left for a larger one, and an idle key is then forgotten there, while a thread that
/// asks for it may still be in the old one.
fn stale_inserter_against_growth() {
    let world = World::new();
    let old = idle_key(&world, KEY);
    let (mut a, mut b) = (world.client(), world.client());
    a.lock("x", 10 * LATE_MS, at(0));
    a.lock("y", 10 * LATE_MS, at(0));

    let home = thread::spawn({
        let world = world.clone();
        move || {
            a.lock("z", 10, at(LATE_MS));
            world.advance(at(LATE_MS));
        }
    });
    let new = b.lock(KEY, 10, at(LATE_MS));
    home.join().unwrap();

    assert!(new > old, "a fence went back from {old} to {new}");
    assert_eq!(world.holder(KEY, at(LATE_MS)), Some((b.session(), new)));
}

#[test]
fn a_key_is_not_looked_for_in_an_index_that_was_left() {
    check(stale_inserter_against_growth);
}

#[test]
#[should_panic(expected = "a fence went back")]
fn a_floor_raised_too_late_for_the_old_index_is_caught() {
    check_broken(Fault::FloorAfterEviction, stale_inserter_against_growth);
}

/// Its place in the index is the one behind that of `KEY`, or the same.
const NEIGHBOUR: &str = "x";

/// A thread has read an index entry and not yet the cell. Meanwhile the key is forgotten, and its
/// cell is prepared for the same key again by a thread that then has to look for another place in
/// the index.
fn old_entry_against_preparation() {
    let world = World::new();
    idle_key(&world, KEY);
    let (mut a, mut b) = (world.client(), world.client());

    let home = thread::spawn({
        let world = world.clone();
        move || {
            world.advance(at(LATE_MS));
            b.try_lock(KEY, 10, at(LATE_MS))
        }
    });
    let one = a.try_lock(KEY, 10, at(LATE_MS));
    a.lock(NEIGHBOUR, 10, at(LATE_MS));
    let two = home.join().unwrap();

    assert!(
        one.is_some() != two.is_some(),
        "one holder expected: {one:?} and {two:?}"
    );
}

#[test]
fn a_cell_is_found_only_where_the_index_leads_now() {
    check(old_entry_against_preparation);
}

#[test]
#[should_panic(expected = "one holder expected")]
fn an_old_index_entry_that_is_trusted_is_caught() {
    check_broken(Fault::OldEntryTrusted, old_entry_against_preparation);
}
