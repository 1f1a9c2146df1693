//! Takers and givers that go straight to the cell that their seat remembers, against all that can
//! become of a cell.

use engine::Fault;
use loom::thread;
use loom_tests::{IDLE_MS, KEY, World, at, check, check_broken, is_released};

/// By then the lease is over and the key idle.
const LATE_MS: u64 = 10 * IDLE_MS;

/// A lease runs out, its key is forgotten and its cell goes to another key, while the holder gives
/// it back in time by its own clock.
fn release_against_reuse() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let fence = a.lock(KEY, 10, at(0));
    world.advance(at(0));

    let home = thread::spawn({
        let world = world.clone();
        move || {
            world.advance(at(LATE_MS));
            (b.session(), b.lock("x", 10, at(LATE_MS)))
        }
    });
    let released = a.release(KEY, fence, at(5));
    let held_by_b = home.join().unwrap();

    assert_eq!(
        world.holder("x", at(LATE_MS)),
        Some(held_by_b),
        "a stranger's lock was freed"
    );
    assert_eq!(world.holder(KEY, at(LATE_MS)), None);
    let lost = world.told().losses.len();
    assert_eq!(
        usize::from(is_released(released)) + lost,
        1,
        "released or lost, and never both"
    );
}

#[test]
fn a_remembered_cell_is_freed_for_its_own_grant_only() {
    check(release_against_reuse);
}

#[test]
#[should_panic(expected = "a stranger's lock was freed")]
fn a_remembered_cell_that_is_trusted_is_caught() {
    check_broken(Fault::RememberedCellTrusted, release_against_reuse);
}

/// A key has been forgotten, and its cell lies ready for the next one. Two ask for the same key
/// again: one prepares that cell, the other a second one, and the later one gives its cell back.
/// A third remembers the first cell from before.
fn take_against_preparation() {
    let world = World::new();
    let (mut old, mut a, mut b) = (world.client(), world.client(), world.client());
    let fence = old.lock(KEY, 10, at(0));
    world.advance(at(0));
    assert!(is_released(old.release(KEY, fence, at(0))));
    world.advance(at(LATE_MS));
    assert_eq!(world.engine().keys(), 0, "it is not forgotten");

    let other = thread::spawn(move || a.try_lock(KEY, 10, at(LATE_MS)));
    let granted = [
        b.try_lock(KEY, 10, at(LATE_MS)),
        old.try_lock(KEY, 10, at(LATE_MS)),
        other.join().unwrap(),
    ];

    let holders = granted.iter().flatten().count();
    assert_eq!(holders, 1, "one holder expected: {granted:?}");
    assert_eq!(world.engine().keys(), 1);
}

#[test]
fn a_remembered_cell_is_taken_only_where_others_find_it() {
    check(take_against_preparation);
}

#[test]
#[should_panic(expected = "one holder expected")]
fn a_remembered_cell_that_is_not_in_the_index_is_caught() {
    check_broken(Fault::UnbornCellTaken, take_against_preparation);
}
