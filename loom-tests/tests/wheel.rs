//! The home core's look at a cell against grants, renewals and the reuse of cells: no deadline is
//! missed.

use engine::{Acquire, Fault, Lost};
use loom::thread;
use loom_tests::{Client, IDLE_MS, KEY, World, at, check, check_broken, is_released, key};

/// The wheel looks at an idle key and puts off its next look, while the key is granted for less
/// long than that.
fn arming_against_grant() {
    let world = World::new();
    let mut a = world.client();
    // The wheel knows the key, and looks at it next at 11.
    let first = a.lock(KEY, 10, at(0));
    world.advance(at(0));
    assert!(is_released(a.release(KEY, first, at(0))));

    let wheel = thread::spawn({
        let world = world.clone();
        move || world.advance(at(11))
    });
    let fence = a.lock(KEY, 30, at(11));
    wheel.join().unwrap();

    assert!(world.told().losses.is_empty(), "lost before its time");
    world.advance(at(42));
    assert!(
        world.told().losses == [(fence, Lost::Expired)],
        "the wheel did not come by at the deadline"
    );
}

#[test]
fn a_grant_that_ends_before_the_next_look_is_seen_or_asks() {
    check(arming_against_grant);
}

#[test]
#[should_panic(expected = "the wheel did not come by at the deadline")]
fn a_look_that_takes_no_place_in_the_leases_order_is_caught() {
    check_broken(Fault::ArmingReadsOnly, arming_against_grant);
}

/// As before, with a renewal to an earlier deadline in the place of the grant.
fn arming_against_shortening() {
    let world = World::new();
    let mut a = world.client();
    let fence = a.lock(KEY, 10, at(0));
    world.advance(at(0));
    assert!(a.renew(KEY, fence, 500, at(5)));

    let wheel = thread::spawn({
        let world = world.clone();
        move || world.advance(at(11))
    });
    assert!(a.renew(KEY, fence, 30, at(11)));
    wheel.join().unwrap();

    world.advance(at(42));
    assert!(
        world.told().losses == [(fence, Lost::Expired)],
        "the wheel did not come by at the deadline"
    );
}

#[test]
fn a_lease_made_shorter_is_seen_or_asks() {
    check(arming_against_shortening);
}

#[test]
#[should_panic(expected = "the wheel did not come by at the deadline")]
fn a_look_that_misses_a_shorter_lease_is_caught() {
    check_broken(Fault::ArmingReadsOnly, arming_against_shortening);
}

/// A session waits, while the wheel expires the lease it waits for.
fn waiting_against_expiry() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    a.lock(KEY, 10, at(0));
    world.advance(at(0));

    let wheel = thread::spawn({
        let world = world.clone();
        move || world.advance(at(11))
    });
    // By its own clock the lease still runs.
    let place = b.stand_in_line(&Acquire::exclusive(key(KEY), 10), "b", at(9));
    wheel.join().unwrap();

    world.advance(at(12));
    let grant = world.grant_of("b", place);
    assert!(grant.is_some(), "the lease is over and the waiter waits on");
}

#[test]
fn a_waiter_is_granted_when_the_lease_before_it_expires() {
    check(waiting_against_expiry);
}

#[test]
#[should_panic(expected = "the lease is over and the waiter waits on")]
fn a_wheel_that_forgets_waiters_is_caught() {
    check_broken(Fault::ExpiryForgetsWaiters, waiting_against_expiry);
}

/// By then every key of the beginning is idle.
const LATE_MS: u64 = 10 * IDLE_MS;

/// The key's cell is known to the wheel and free. The thread that is started evicts it, much later,
/// and uses it for another key, `x`. The client, whose clock has stopped, is about to take the old
/// key for so short a time that it asks for the wheel's attention.
fn evict_and_reuse(world: &World) -> (thread::JoinHandle<()>, Client) {
    let (mut a, mut b) = (world.client(), world.client());
    let first = a.lock(KEY, 10, at(0));
    world.advance(at(0));
    assert!(is_released(a.release(KEY, first, at(0))));
    let world = world.clone();
    let home = thread::spawn(move || {
        world.advance(at(LATE_MS));
        b.lock("x", 10, at(LATE_MS));
    });
    (home, a)
}

/// A cell is prepared for a new key, while the wheel is asked to look at what it was before.
fn late_asker_against_preparation() {
    let world = World::new();
    let (home, mut a) = evict_and_reuse(&world);
    a.lock(KEY, 5, at(0));
    // So late that whatever the wheel finds is idle. It asserts that what it evicts is in the
    // index.
    world.advance(at(10 * LATE_MS));
    home.join().unwrap();
}

#[test]
fn the_wheel_leaves_a_cell_alone_until_it_is_introduced() {
    check(late_asker_against_preparation);
}

#[test]
#[should_panic(expected = "was live and in no index")]
fn a_wheel_that_takes_any_cell_is_caught() {
    check_broken(Fault::WheelTakesAnyCell, late_asker_against_preparation);
}

/// A cell is introduced to the wheel under its new key, while it is being put into the inbox for
/// its old one.
fn late_asker_against_introduction() {
    let world = World::new();
    let (home, mut a) = evict_and_reuse(&world);
    a.lock(KEY, 5, at(0));
    home.join().unwrap();

    world.advance(at(LATE_MS + 11));
    assert!(
        world.told().losses.len() == 2,
        "the wheel was never told of the new key"
    );
}

#[test]
fn a_new_cell_is_introduced_whatever_else_is_asked() {
    check(late_asker_against_introduction);
}

#[test]
#[should_panic(expected = "the wheel was never told of the new key")]
fn a_link_that_overwrites_an_introduction_is_caught() {
    check_broken(Fault::LinkOverwritesFlags, late_asker_against_introduction);
}
