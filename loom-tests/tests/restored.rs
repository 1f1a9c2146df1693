//! Locks that were restored from a log: in the words of their cells, under a fence of an earlier
//! life.

use engine::{Fault, Fence, Lost, Settings};
use loom::thread;
use loom_tests::{Client, KEY, World, at, check, check_broken, is_released, small};

/// The fence of an earlier life under which the key is held.
const OLD: u64 = 1;

/// So far apart, two fences have leases with the same tag.
const TAGS: u64 = 1 << 24;

/// A world in which the key is held until 10 under `OLD`, while the first fence of this life is
/// `distance` further than where the tag would repeat.
fn restored(distance: u64) -> (World, Client) {
    let floor = Fence::new(OLD + TAGS - 1 + distance);
    let world = World::with(Settings {
        floor: floor.expect("small numbers are fences"),
        ..small()
    });
    let mut old = world.client();
    old.restore(KEY, old_fence(), 10, at(0));
    (world, old)
}

fn old_fence() -> Fence {
    Fence::new(OLD).expect("small numbers are fences")
}

/// The restored lease is over and two ask for the key. Then the winner releases it, or its own
/// lease ends.
fn two_acquirers(distance: u64, is_released_then: bool) {
    let (world, _old) = restored(distance);
    let (mut a, mut b) = (world.client(), world.client());

    let other = thread::spawn(move || (b.try_lock(KEY, 100, at(11)), b));
    let one = a.try_lock(KEY, 100, at(11));
    let (two, mut b) = other.join().unwrap();

    assert!(
        one.is_some() != two.is_some(),
        "one winner expected: {one:?} and {two:?}"
    );
    let (winner, fence) = match (one, two) {
        (Some(fence), _) => (&mut a, fence),
        (_, Some(fence)) => (&mut b, fence),
        _ => unreachable!("there is a winner"),
    };
    let holder = world.holder(KEY, at(12));
    assert_eq!(
        holder,
        Some((winner.session(), fence)),
        "held by no client, or by another"
    );
    assert!(fence > old_fence(), "a fence went back");
    if is_released_then {
        assert!(is_released(winner.release(KEY, fence, at(12))));
    } else {
        world.advance(at(112));
        let losses = world.told().losses;
        assert!(
            losses.contains(&(fence, Lost::Expired)),
            "a lease without an end: {losses:?}"
        );
    }
    assert!(world.client().try_lock(KEY, 10, at(112)) > Some(fence));
}

fn same_tag_then_release() {
    two_acquirers(0, true);
}

fn same_tag_then_expiry() {
    two_acquirers(0, false);
}

fn other_tag_then_release() {
    two_acquirers(5, true);
}

fn other_tag_then_expiry() {
    two_acquirers(5, false);
}

#[test]
fn a_restored_lock_has_one_next_holder_who_can_release_it() {
    check(same_tag_then_release);
    check(other_tag_then_release);
}

#[test]
fn the_lease_after_a_restored_one_ends_in_time() {
    check(same_tag_then_expiry);
    check(other_tag_then_expiry);
}

#[test]
#[should_panic(expected = "one winner expected")]
fn a_tag_that_repeats_behind_a_restored_lease_is_caught() {
    check_broken(Fault::RestoredTagRepeats, same_tag_then_release);
}

/// The holder from before the restart releases in time by its own clock, while by another's the
/// restored lease is over and the key is taken.
fn release_against_acquire() {
    let (world, mut old) = restored(0);
    let mut b = world.client();
    let session_b = b.session();

    let taker = thread::spawn(move || b.try_lock(KEY, 10, at(11)));
    let released = is_released(old.release(KEY, old_fence(), at(9)));
    let new = taker.join().unwrap();

    let new = new.expect("released or expired, the key is there for the taking");
    assert!(
        world.holder(KEY, at(12)) == Some((session_b, new)),
        "the new holder has lost its lock to a stale release"
    );
    assert!(
        world.told().losses.len() == usize::from(!released),
        "released and lost, or neither"
    );
}

#[test]
fn a_release_of_a_restored_lock_frees_no_other_grant() {
    check(release_against_acquire);
}

#[test]
#[should_panic(expected = "released and lost, or neither")]
fn a_release_of_a_restored_lock_that_overwrites_the_word_is_caught() {
    check_broken(Fault::ReleaseOverwrites, release_against_acquire);
}

/// The holder from before the restart renews just in time by its own clock, while the wheel finds
/// the restored lease over.
fn renew_against_wheel() {
    let (world, old) = restored(0);
    world.advance(at(0));

    let wheel = thread::spawn({
        let world = world.clone();
        move || world.advance(at(11))
    });
    let renewed = old.renew(KEY, old_fence(), 20, at(9));
    wheel.join().unwrap();

    let holder = world.holder(KEY, at(12));
    let expected = renewed.then_some((old.session(), old_fence()));
    assert_eq!(holder, expected, "renewed and lost, or neither");
}

#[test]
fn a_restored_lease_is_renewed_or_lost() {
    check(renew_against_wheel);
}

#[test]
#[should_panic(expected = "renewed and lost, or neither")]
fn an_expiry_that_leaves_a_restored_lease_is_caught() {
    check_broken(Fault::ExpiryLeavesLease, renew_against_wheel);
}
