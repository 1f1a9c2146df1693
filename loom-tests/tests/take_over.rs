//! Taking a key over, at the moment at which its holder does something with it.

use engine::Fault;
use loom::thread;
use loom_tests::{KEY, World, at, check, check_broken, is_released};

/// The holder releases and another takes the key, while a third takes it over from the first.
fn take_over_against_release() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let old = a.lock(KEY, 100, at(0));

    let taker = thread::spawn(move || (b.take_over(KEY, Some(old), at(1)), b));
    let released = is_released(a.release(KEY, old, at(1)));
    let again = released.then(|| a.try_lock(KEY, 100, at(1))).flatten();
    let (taken, b) = taker.join().unwrap();

    assert!(
        !(released && taken.is_some()),
        "what was given back was taken from its holder as well"
    );
    assert!(released || taken.is_some(), "neither was answered yes");
    let expected = taken.map(|fence| (b.session(), fence));
    let expected = expected.or(again.map(|fence| (a.session(), fence)));
    assert_eq!(
        world.holder(KEY, at(2)),
        expected,
        "the key is not whose it was said to be"
    );
}

#[test]
fn a_key_is_given_back_or_taken_over_and_not_both() {
    check(take_over_against_release);
}

#[test]
#[should_panic(expected = "as well")]
fn taking_over_from_any_holder_is_caught() {
    check_broken(Fault::TakeOverUnchecked, take_over_against_release);
}

/// A free key is granted to one by a CAS, while another session takes it from its holder.
fn take_over_against_acquire() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let first = a.lock(KEY, 100, at(0));
    assert!(is_released(a.release(KEY, first, at(0))));

    let taker = thread::spawn(move || (b.take_over(KEY, None, at(1)), b));
    let granted = a.try_lock(KEY, 100, at(1));
    let (taken, mut b) = taker.join().unwrap();

    match (granted, taken) {
        (Some(granted), Some(taken)) => {
            assert_ne!(granted, taken, "a fence was granted twice");
            assert!(taken > granted, "the key was granted while it was held");
        }
        (None, None) => panic!("neither got the key"),
        _ => {}
    }
    let last = granted.max(taken).expect("one of them has it");
    let holder = world.holder(KEY, at(2)).map(|(_, fence)| fence);
    assert_eq!(holder, Some(last), "the key is not whose it was said to be");
    // And its holder can give it back.
    let is_free = match taken == Some(last) {
        true => is_released(b.release(KEY, last, at(2))),
        false => is_released(a.release(KEY, last, at(2))),
    };
    assert!(is_free, "the holder cannot give the key back");
    assert_eq!(world.holder(KEY, at(3)), None);
}

#[test]
fn taking_over_and_a_grant_have_one_winner_or_the_one_after_the_other() {
    check(take_over_against_acquire);
}

/// The same, and then time passes: its holder loses the key when its lease ends, with no thread
/// asking.
fn expiry_of_what_was_taken_over() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let first = a.lock(KEY, 10, at(0));
    assert!(is_released(a.release(KEY, first, at(0))));

    let taker = thread::spawn(move || b.take_over(KEY, None, at(1)));
    let granted = a.try_lock(KEY, 10, at(1));
    let taken = taker.join().unwrap();

    let last = granted.max(taken).expect("one of them has it");
    [150, 160, 170]
        .into_iter()
        .for_each(|ms| world.advance(at(ms)));
    let has_lost = |fence| world.told().losses.iter().any(|(lost, _)| *lost == fence);
    assert!(
        has_lost(last),
        "the lease ended and the wheel did not see it"
    );
}

#[test]
fn what_was_taken_over_expires_on_time() {
    check(expiry_of_what_was_taken_over);
}

#[test]
#[should_panic(expected = "the wheel did not see it")]
fn taking_over_a_grant_that_is_not_published_is_caught() {
    check_broken(Fault::TakeOverRushes, expiry_of_what_was_taken_over);
}

/// The holder renews while the key is taken over: a renewal that was answered yes came first.
fn take_over_against_renewal() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let old = a.lock(KEY, 10, at(0));

    let taker = thread::spawn(move || (b.take_over(KEY, Some(old), at(1)), b));
    a.renew(KEY, old, 500, at(1));
    let (taken, b) = taker.join().unwrap();

    let taken = taken.expect("it was held under that fence all the time");
    assert!(taken > old, "a fence was granted twice");
    assert_eq!(world.holder(KEY, at(50)), Some((b.session(), taken)));
    assert_eq!(
        world.holder(KEY, at(200)),
        None,
        "the renewal of the old grant extended the new one"
    );
}

#[test]
fn a_renewal_does_not_reach_the_grant_behind_its_own() {
    check(take_over_against_renewal);
}
