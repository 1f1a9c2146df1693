//! Claims after a restart, at the moment at which the grace period ends.

use engine::{Acquire, Claimed, Fault, Fence, Outcome, Settings};
use loom::thread;
use loom_tests::{KEY, World, at, check, check_broken, key, small};

fn fence(number: u64) -> Fence {
    Fence::new(number).expect("small numbers are fences")
}

/// A world that has forgotten its holders, and has granted nothing yet.
fn restarted() -> World {
    World::with(Settings {
        floor: fence(5),
        ceiling: fence(5),
        ..small()
    })
}

/// The grace period ends and the key is granted to a session, while its holder from before claims
/// it.
fn claim_against_grant() {
    let world = restarted();
    let (mut old, mut new) = (world.client(), world.client());

    let claims = thread::spawn(move || {
        let claimed = old.claim(KEY, fence(3), 100, at(1));
        (claimed, old)
    });
    let raises = thread::spawn({
        let world = world.clone();
        move || world.engine().raise_ceiling(0, fence(9), at(1))
    });
    let outcome = new.ask(&Acquire::exclusive(key(KEY), 100), at(1));
    let (claimed, old) = claims.join().unwrap();
    raises.join().unwrap();

    let is_granted = matches!(outcome, Outcome::Granted(_));
    let is_claimed = matches!(claimed, Claimed::Granted(_));
    assert!(!(is_granted && is_claimed), "two hold the key");
    let holder = world.holder(KEY, at(1)).map(|(owner, _)| owner);
    let expected = match (is_granted, is_claimed) {
        (true, _) => Some(new.session()),
        (_, true) => Some(old.session()),
        _ => None,
    };
    assert_eq!(holder, expected, "the key is not whose it was said to be");
}

#[test]
fn what_is_claimed_is_not_granted_and_what_is_granted_is_not_claimed() {
    check(claim_against_grant);
}

#[test]
#[should_panic(expected = "two hold the key")]
fn a_claim_that_overlooks_a_grant_is_caught() {
    check_broken(Fault::ClaimOverlooksGrant, claim_against_grant);
}

/// Two claim the same key under different fences.
fn claim_against_claim() {
    let world = restarted();
    let (mut low, mut high) = (world.client(), world.client());
    let loser = thread::spawn(move || {
        low.claim(KEY, fence(2), 100, at(1));
        low
    });
    let claimed = high.claim(KEY, fence(3), 100, at(1));
    loser.join().unwrap();
    assert!(
        matches!(claimed, Claimed::Granted(_)),
        "the higher fence was refused"
    );
    let holder = world.holder(KEY, at(1));
    assert_eq!(
        holder,
        Some((high.session(), fence(3))),
        "the lower fence won"
    );
}

#[test]
fn of_two_claims_the_higher_fence_wins() {
    check(claim_against_claim);
}

#[test]
#[should_panic(expected = "the lower fence won")]
fn a_claim_that_does_not_compare_fences_is_caught() {
    check_broken(Fault::ClaimIgnoresRivals, claim_against_claim);
}
