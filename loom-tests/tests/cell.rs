//! One key, its two words, no queue: acquire, renew, release and expiry against one another.

use engine::{Acquire, Fault, Outcome};
use loom::thread;
use loom_tests::{KEY, World, at, check, check_broken, is_released};

/// The key exists and is free; two ask for it at once.
fn two_acquirers() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let first = a.lock(KEY, 10, at(0));
    assert!(is_released(a.release(KEY, first, at(0))));

    let other = thread::spawn(move || b.try_lock(KEY, 10, at(1)));
    let one = a.try_lock(KEY, 10, at(1));
    let two = other.join().unwrap();

    assert!(
        one.is_some() != two.is_some(),
        "one winner expected: {one:?} and {two:?}"
    );
    assert!(one.max(two) > Some(first), "a fence was granted twice");
}

#[test]
fn two_acquirers_have_one_winner() {
    check(two_acquirers);
}

#[test]
#[should_panic(expected = "one winner expected")]
fn a_grant_that_overwrites_the_word_is_caught() {
    check_broken(Fault::GrantOverwrites, two_acquirers);
}

/// The holder releases in time by its own clock, while by another's the lease is over and the key
/// is taken.
fn release_against_acquire() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let (session_b, old) = (b.session(), a.lock(KEY, 10, at(0)));

    let taker = thread::spawn(move || b.try_lock(KEY, 10, at(11)));
    let released = is_released(a.release(KEY, old, at(9)));
    let new = taker.join().unwrap();

    let new = new.expect("released or expired, the key is there for the taking");
    assert!(new > old, "a fence was granted twice");
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
fn a_release_frees_its_own_grant_only() {
    check(release_against_acquire);
}

#[test]
#[should_panic(expected = "released and lost, or neither")]
fn a_release_that_overwrites_the_word_is_caught() {
    check_broken(Fault::ReleaseOverwrites, release_against_acquire);
}

#[test]
#[should_panic(expected = "lost its lock to a stale release")]
fn a_release_under_any_fence_is_caught() {
    check_broken(Fault::FenceUnchecked, release_against_acquire);
}

/// The holder renews just in time by its own clock, while by another's the old lease is just over.
fn renew_against_expire() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let (session_a, old) = (a.session(), a.lock(KEY, 10, at(0)));

    let taker = thread::spawn(move || b.try_lock(KEY, 10, at(11)));
    let renewed = a.renew(KEY, old, 20, at(9));
    let new = taker.join().unwrap();

    assert!(
        !(renewed && new.is_some()),
        "renewed, and given to another before the new deadline"
    );
    assert!(
        renewed || new.is_some(),
        "refused to its holder and to the taker"
    );
    if renewed {
        assert_eq!(world.holder(KEY, at(29)), Some((session_a, old)));
        assert_eq!(world.holder(KEY, at(30)), None);
    }
}

#[test]
fn a_renewal_answered_yes_is_never_expired_early() {
    check(renew_against_expire);
}

#[test]
#[should_panic(expected = "given to another before the new deadline")]
fn an_expiry_that_leaves_the_lease_open_is_caught() {
    check_broken(Fault::ExpiryLeavesLease, renew_against_expire);
}

/// As before, and the lease is found over under the room mutex.
fn renew_against_expire_in_the_room() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let (session_a, old) = (a.session(), a.lock(KEY, 10, at(0)));

    let taker = thread::spawn(move || {
        let shared = Acquire::shared(loom_tests::key(KEY), 10);
        matches!(b.ask(&shared, at(11)), Outcome::Granted(_))
    });
    let renewed = a.renew(KEY, old, 20, at(9));
    let taken = taker.join().unwrap();

    assert!(
        !(renewed && taken),
        "renewed, and given to another before the new deadline"
    );
    assert!(renewed || taken, "refused to its holder and to the taker");
    if renewed {
        assert_eq!(world.holder(KEY, at(28)), Some((session_a, old)));
    }
}

#[test]
fn a_renewal_answered_yes_is_not_expired_by_the_room() {
    check(renew_against_expire_in_the_room);
}

#[test]
#[should_panic(expected = "given to another before the new deadline")]
fn a_room_that_leaves_the_lease_open_is_caught() {
    check_broken(Fault::ExpiryLeavesLease, renew_against_expire_in_the_room);
}

/// A stale renewal comes while the key passes to another.
fn stale_renew_against_new_holder() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let (session_b, old) = (b.session(), a.lock(KEY, 10, at(0)));

    let taker = thread::spawn(move || b.lock(KEY, 10, at(11)));
    // So late that it can only be refused, whatever the taker has come to.
    let renewed = a.renew(KEY, old, 500, at(11));
    let new = taker.join().unwrap();

    assert!(!renewed, "a lease that was over has been renewed");
    assert_eq!(world.holder(KEY, at(21)), Some((session_b, new)));
    assert!(
        world.holder(KEY, at(22)).is_none(),
        "a stale renewal has moved the new holder's deadline"
    );
}

#[test]
fn a_stale_renewal_moves_no_other_deadline() {
    check(stale_renew_against_new_holder);
}

#[test]
#[should_panic(expected = "a lease that was over has been renewed")]
fn a_renewal_under_any_fence_is_caught() {
    check_broken(Fault::FenceUnchecked, stale_renew_against_new_holder);
}

/// The wheel finds the lease over while its holder, whose clock is behind, releases.
fn expire_against_release() {
    let world = World::new();
    let mut a = world.client();
    let fence = a.lock(KEY, 10, at(0));

    let wheel = thread::spawn({
        let world = world.clone();
        move || world.advance(at(11))
    });
    let released = is_released(a.release(KEY, fence, at(9)));
    wheel.join().unwrap();

    assert!(world.holder(KEY, at(12)).is_none(), "freed by neither");
    assert!(
        world.told().losses.len() == usize::from(!released),
        "released and lost, or neither"
    );
}

#[test]
fn a_lock_is_released_or_expired_and_never_both() {
    check(expire_against_release);
}

#[test]
#[should_panic(expected = "released and lost, or neither")]
fn an_expiry_that_overwrites_the_word_is_caught() {
    check_broken(Fault::ExpiryOverwrites, expire_against_release);
}

/// One thread of a session renews just in time, another, whose clock is ahead, releases.
fn renew_against_release() {
    let world = World::new();
    let mut a = world.client();
    let fence = a.lock(KEY, 10, at(0));
    let mut elsewhere = world.seat(a.session());

    let releaser = thread::spawn(move || elsewhere.release(KEY, fence, at(11)));
    let renewed = a.renew(KEY, fence, 20, at(9));
    let release = releaser.join().unwrap();

    assert!(
        world.holder(KEY, at(12)).is_none(),
        "still held after a release was answered {release:?}, renewed: {renewed}"
    );
}

#[test]
fn a_key_is_free_after_a_release_whatever_the_answer() {
    check(renew_against_release);
}

#[test]
#[should_panic(expected = "still held after a release")]
fn an_answer_that_says_expired_without_proof_is_caught() {
    check_broken(Fault::ExpiryUnproven, renew_against_release);
}

/// One thread of a session renews while another takes the lock a second time, which moves the lease
/// into a record.
fn renew_against_reentry() {
    let world = World::new();
    let mut a = world.client();
    let (session, fence) = (a.session(), a.lock(KEY, 10, at(0)));
    let mut elsewhere = world.seat(session);

    let other = thread::spawn(move || {
        let again = Acquire {
            reentrant: true,
            ..Acquire::exclusive(loom_tests::key(KEY), 1)
        };
        elsewhere.ask(&again, at(5))
    });
    let renewed = a.renew(KEY, fence, 20, at(5));
    let outcome = other.join().unwrap();

    assert!(renewed, "a lease that lives was not renewed");
    assert!(
        matches!(outcome, Outcome::Granted(grant) if grant.fence == fence && grant.count == 2),
        "{outcome:?}"
    );
    assert!(
        world.holder(KEY, at(25)) == Some((session, fence)),
        "a renewal answered yes was lost on the way into the record"
    );
    assert!(world.holder(KEY, at(26)).is_none());
}

#[test]
fn a_renewal_survives_the_move_into_a_record() {
    check(renew_against_reentry);
}

#[test]
#[should_panic(expected = "lost on the way into the record")]
fn a_record_of_what_was_seen_before_is_caught() {
    check_broken(Fault::RecordKeepsWhatWasSeen, renew_against_reentry);
}

/// One thread of a session renews while another turns the lock into a shared one, which moves the
/// lease into a record.
fn renew_against_downgrade() {
    let world = World::new();
    let mut a = world.client();
    let (session, fence) = (a.session(), a.lock(KEY, 10, at(0)));
    let elsewhere = world.seat(session);

    let other = thread::spawn(move || elsewhere.downgrade(KEY, fence, at(5)));
    let renewed = a.renew(KEY, fence, 20, at(5));
    let downgraded = other.join().unwrap();

    assert!(renewed && downgraded, "a lease that lives was refused");
    assert!(
        world.holder(KEY, at(24)) == Some((session, fence)),
        "a renewal answered yes was lost on the way into the record"
    );
}

#[test]
fn a_renewal_survives_a_downgrade() {
    check(renew_against_downgrade);
}

#[test]
#[should_panic(expected = "lost on the way into the record")]
fn a_downgrade_to_what_was_seen_before_is_caught() {
    check_broken(Fault::RecordKeepsWhatWasSeen, renew_against_downgrade);
}
