//! Memory that somebody makes ready ahead of need, while others are already in need of it.

use engine::Fault;
use loom::thread;
use loom_tests::{KEY, World, at, check, check_broken};

/// The next piece of memory is made ready while somebody needs one; its first cell is put into the wheel, in front of another one.
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
        move || while world.engine().stock_up() {}
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
fn memory_is_made_ready_before_anybody_uses_it() {
    check(stock_against_use);
}

#[test]
#[should_panic(expected = "the wheel has lost")]
fn memory_that_is_made_ready_while_it_is_used_is_caught() {
    check_broken(Fault::StockedTooEarly, stock_against_use);
}

/// The next index is laid out ahead of need, while an inserter finds that it needs it now.
fn stock_against_growth() {
    let world = World::new();
    let mut a = world.client();
    let first = [KEY, "x"].map(|name| a.lock(name, 10, at(0)));

    let stocker = thread::spawn({
        let world = world.clone();
        move || while world.engine().stock_up() {}
    });
    let then = ["y", "z"].map(|name| a.lock(name, 10, at(0)));
    stocker.join().unwrap();

    for (name, fence) in [KEY, "x", "y", "z"].into_iter().zip([first, then].concat()) {
        let held = world.holder(name, at(0));
        assert_eq!(held, Some((a.session(), fence)), "{name} was lost");
    }
}

#[test]
fn an_index_laid_out_ahead_loses_nobody() {
    check(stock_against_growth);
}

#[test]
#[should_panic(expected = "was lost")]
fn an_index_laid_out_ahead_and_put_in_place_unchecked_is_caught() {
    check_broken(Fault::StockUnchecked, stock_against_growth);
}
