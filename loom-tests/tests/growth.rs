//! The move from one index to a larger one, on a table without an engine around it: its mover may
//! stop anywhere while several inserters go on.

use engine::{BareTable, Fault};
use loom::sync::Arc;
use loom::thread;
use loom_tests::{check, check_broken, key};

const NAMES: [&str; 6] = ["k", "x", "y", "z", "v", "w"];

/// The mover stops somewhere. Meanwhile two threads insert more keys than there are places left in
/// the old index.
fn stalled_mover_against_two_inserters() {
    let table = Arc::new(BareTable::new(9));
    let [first, second, third, one, other, last] = NAMES.map(|name| table.prepare(key(name)));
    // With the third of four entries the index is crowded, and the move is due.
    for prepared in [&first, &second, &third] {
        table.place(prepared);
    }

    let mover = thread::spawn({
        let table = table.clone();
        move || table.help_growth()
    });
    let inserter = thread::spawn({
        let table = table.clone();
        move || {
            table.place(&one);
            table.help_growth();
        }
    });
    table.place(&other);
    table.help_growth();
    mover.join().unwrap();
    inserter.join().unwrap();

    // One more, to finish the move.
    table.place(&last);
    table.help_growth();
    for name in NAMES {
        assert!(
            table.contains(key(name)),
            "{name} was lost on the way to the new index"
        );
    }
}

#[test]
fn a_stalled_mover_finds_room_for_all_that_came_meanwhile() {
    check(stalled_mover_against_two_inserters);
}

#[test]
#[should_panic(expected = "the index being filled has room for all")]
fn a_new_index_without_room_for_inserters_is_caught() {
    check_broken(
        Fault::SuccessorForgetsInserters,
        stalled_mover_against_two_inserters,
    );
}
