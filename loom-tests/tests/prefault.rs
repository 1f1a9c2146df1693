//! Memory that is prefaulted ahead of need, while inserters are already in need of it.

use engine::Fault;
use loom::thread;
use loom_tests::{KEY, World, at, check, check_broken};

/// The next piece of memory is prefaulted while an inserter needs one; its first cell is put into
/// the wheel, in front of another one.
fn stock_against_use() {
    let world = World::new();
    let mut a = world.client();
    // As many as one piece holds.
    for name in [KEY, "x"] {
        a.lock(name, 10, at(0));
    }
    world.advance(at(0));

    let stocker = thread::spawn({
        let world = world.clone();
        move || while world.engine().prefault() {}
    });
    a.lock("y", 10, at(0));
    world.advance(at(0));
    stocker.join().unwrap();

    world.advance(at(20));
    for name in [KEY, "x", "y"] {
        let is_over = world.holder(name, at(0)).is_none();
        assert!(is_over, "the wheel has lost {name}");
    }
}

#[test]
fn memory_is_prefaulted_before_it_is_used() {
    check(stock_against_use);
}

#[test]
#[should_panic(expected = "the wheel has lost")]
fn memory_that_is_made_ready_while_it_is_used_is_caught() {
    check_broken(Fault::ReadyTooEarly, stock_against_use);
}

/// The last key there may be comes while the last pieces are being made ready.
fn last_piece() {
    let world = World::new();
    let mut a = world.client();
    for name in [KEY, "x", "y", "z"] {
        a.lock(name, 10, at(0));
    }

    let stocker = thread::spawn({
        let world = world.clone();
        move || while world.engine().prefault() {}
    });
    a.lock("w", 10, at(0));
    stocker.join().unwrap();
}

#[test]
fn the_last_piece_is_found_wherever_it_is() {
    check(last_piece);
}

#[test]
#[should_panic(expected = "there is a piece for every place")]
fn looking_for_the_last_piece_once_is_caught() {
    check_broken(Fault::ReadyLookedAtOnce, last_piece);
}
