//! Waiters: enqueueing, hand-off and cancellation against one another and against the fast paths.

use engine::{Acquire, Fault};
use loom::thread;
use loom_tests::{KEY, Place, World, at, check, check_broken, is_released, key};

/// A session stands in line while the holder releases without looking at the line.
fn enqueue_against_release() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let (session_b, fence) = (b.session(), a.lock(KEY, 100, at(0)));

    let waiter =
        thread::spawn(move || b.stand_in_line(&Acquire::exclusive(key(KEY), 100), "b", at(1)));
    assert!(is_released(a.release(KEY, fence, at(1))));
    let place = waiter.join().unwrap();

    // Without looking at the key, which would set it right.
    let grant = world.grant_of("b", place);
    let new = grant.expect("no waiter is left beside a free lock").fence;
    assert!(new > fence, "a fence was granted twice");
    assert_eq!(world.holder(KEY, at(1)), Some((session_b, new)));
}

#[test]
fn a_release_never_misses_a_waiter() {
    check(enqueue_against_release);
}

#[test]
#[should_panic(expected = "no waiter is left beside a free lock")]
fn a_waiter_that_does_not_mark_the_word_is_caught() {
    check_broken(Fault::WaiterUnannounced, enqueue_against_release);
}

/// Three at once: two stand in line while the holder releases.
fn two_enqueue_against_release() {
    let world = World::new();
    let (mut a, mut b, mut c) = (world.client(), world.client(), world.client());
    let fence = a.lock(KEY, 100, at(0));

    let first =
        thread::spawn(move || b.stand_in_line(&Acquire::exclusive(key(KEY), 100), "b", at(1)));
    let second =
        thread::spawn(move || c.stand_in_line(&Acquire::exclusive(key(KEY), 100), "c", at(1)));
    assert!(is_released(a.release(KEY, fence, at(1))));
    let places = [("b", first.join().unwrap()), ("c", second.join().unwrap())];

    let grants = places.map(|(waiter, place)| world.grant_of(waiter, place));
    assert!(
        grants.iter().flatten().count() == 1,
        "one of two is granted and the other waits: {grants:?}"
    );
    assert_eq!(world.engine().waiters(), 1);
}

#[test]
fn a_release_serves_one_of_two_who_come_at_once() {
    check(two_enqueue_against_release);
}

#[test]
#[should_panic(expected = "one of two is granted")]
fn two_waiters_that_do_not_mark_the_word_are_caught() {
    check_broken(Fault::WaiterUnannounced, two_enqueue_against_release);
}

/// A session stands in line, while the holder releases so late that its lease is over.
fn enqueue_against_late_release() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let fence = a.lock(KEY, 10, at(0));

    let waiter =
        thread::spawn(move || b.stand_in_line(&Acquire::exclusive(key(KEY), 10), "b", at(9)));
    a.release(KEY, fence, at(11));
    let place = waiter.join().unwrap();

    let grant = world.grant_of("b", place);
    assert!(grant.is_some(), "a waiter is left beside a free lock");
}

#[test]
fn a_release_that_comes_too_late_never_misses_a_waiter() {
    check(enqueue_against_late_release);
}

#[test]
#[should_panic(expected = "a waiter is left beside a free lock")]
fn a_waiter_that_a_late_release_cannot_see_is_caught() {
    check_broken(Fault::WaiterUnannounced, enqueue_against_late_release);
}

/// The holder releases to the first in line and another takes the place in the line that has become
/// free, while the first is cancelled.
fn cancel_against_hand_off() {
    let world = World::new();
    let (mut a, mut b, mut c) = (world.client(), world.client(), world.client());
    let fence = a.lock(KEY, 100, at(0));
    let request = Acquire::exclusive(key(KEY), 100);
    let Place::InLine(ticket) = b.stand_in_line(&request, "b", at(0)) else {
        panic!("the key is held")
    };

    let releaser = thread::spawn(move || {
        assert!(is_released(a.release(KEY, fence, at(1))));
        c.stand_in_line(&Acquire::exclusive(key(KEY), 100), "c", at(1));
        c.session()
    });
    let cancelled = world.engine().cancel(ticket, at(1));
    let session_c = releaser.join().unwrap();

    assert!(
        cancelled.is_none_or(|waiter| waiter == "b"),
        "another waiter was taken out of the line"
    );
    let is_granted = world.told().grants.iter().any(|&(waiter, _)| waiter == "b");
    assert!(
        cancelled.is_some() != is_granted,
        "cancelled and granted, or neither"
    );
    let next = if is_granted { b.session() } else { session_c };
    assert_eq!(world.holder(KEY, at(1)).map(|(owner, _)| owner), Some(next));
}

#[test]
fn a_waiter_is_cancelled_or_granted_and_never_both() {
    check(cancel_against_hand_off);
}

#[test]
#[should_panic(expected = "another waiter was taken out of the line")]
fn a_cancellation_of_the_next_waiter_is_caught() {
    check_broken(Fault::CancelUnchecked, cancel_against_hand_off);
}

/// A writer releases to a reader in line, while another reader joins.
fn readers_against_release() {
    let world = World::new();
    let (mut a, mut b, mut c) = (world.client(), world.client(), world.client());
    let fence = a.lock(KEY, 100, at(0));
    let place_b = b.stand_in_line(&Acquire::shared(key(KEY), 100), "b", at(0));

    let joiner =
        thread::spawn(move || c.stand_in_line(&Acquire::shared(key(KEY), 100), "c", at(1)));
    assert!(is_released(a.release(KEY, fence, at(1))));
    let place_c = joiner.join().unwrap();

    let grants = [world.grant_of("b", place_b), world.grant_of("c", place_c)];
    let [first, second] = grants.map(|grant| grant.expect("no reader waits beside another").fence);
    assert!(
        fence < first && first < second,
        "a fence was granted twice, or out of order"
    );
}

#[test]
fn readers_are_granted_together() {
    check(readers_against_release);
}

#[test]
#[should_panic(expected = "no reader waits beside another")]
fn a_reader_that_does_not_mark_the_word_is_caught() {
    check_broken(Fault::WaiterUnannounced, readers_against_release);
}
