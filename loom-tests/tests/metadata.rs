//! Short metadata beside plain grants: a reader of one while its grant ends reads that one or none,
//! never the next user's.

use engine::{Acquire, Fault, Fence, Outcome};
use loom::thread;
use loom_tests::{Client, KEY, World, at, check, check_broken, is_released, key};

/// Another key, whose metadata takes the block that the first one has left.
const NEXT: &str = "n";

fn lock_with_metadata(client: &mut Client, name: &str, metadata: &[u8], now: u64) -> Fence {
    let request = Acquire {
        metadata,
        ..Acquire::exclusive(key(name), 100)
    };
    match client.ask(&request, at(now)) {
        Outcome::Granted(grant) => grant.fence,
        other => panic!("{name} was free for the taking, and the answer was {other:?}"),
    }
}

/// What a refused session is told about the holder under `fence`.
fn metadata_of(client: &mut Client, fence: Fence) -> Option<Box<[u8]>> {
    match client.ask(&Acquire::exclusive(key(KEY), 100), at(1)) {
        Outcome::Held(holder) if holder.fence == fence => Some(holder.metadata),
        _ => None,
    }
}

fn check_metadata(metadata: Option<&[u8]>) {
    // An empty one: it ended while it was read.
    let is_own = metadata.is_none_or(|metadata| metadata.is_empty() || metadata == b"one");
    assert!(is_own, "a holder was shown with the metadata of another");
}

/// The holder gives its key back and takes another one with another metadata, while another session
/// looks at the first.
fn asking_against_reuse() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let old = lock_with_metadata(&mut a, KEY, b"one", 0);

    let asker = thread::spawn(move || metadata_of(&mut b, old));
    assert!(is_released(a.release(KEY, old, at(1))));
    let next = lock_with_metadata(&mut a, NEXT, b"two", 1);
    check_metadata(asker.join().unwrap().as_deref());

    assert_eq!(
        &*world.state(NEXT, at(2)).unwrap().holders[0].metadata,
        b"two",
        "metadata was lost"
    );
    assert!(is_released(a.release(NEXT, next, at(2))));
    assert_eq!(world.engine().bytes(), 0, "a block was lost");
}

#[test]
fn metadata_that_is_read_while_it_goes_is_its_own_or_none() {
    check(asking_against_reuse);
}

#[test]
#[should_panic(expected = "the metadata of another")]
fn metadata_that_is_not_checked_is_caught() {
    check_broken(Fault::MetadataUnchecked, asking_against_reuse);
}

/// One gives its key back while another takes metadata's block and looks at the first key.
fn release_against_reuse() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let old = lock_with_metadata(&mut a, KEY, b"one", 0);

    let other = thread::spawn(move || {
        lock_with_metadata(&mut b, NEXT, b"two", 1);
        metadata_of(&mut b, old)
    });
    assert!(is_released(a.release(KEY, old, at(1))));
    check_metadata(other.join().unwrap().as_deref());
    assert_eq!(
        &*world.state(NEXT, at(2)).unwrap().holders[0].metadata,
        b"two",
        "metadata was lost"
    );
}

#[test]
fn metadata_is_there_as_long_as_its_grant() {
    check(release_against_reuse);
}

#[test]
#[should_panic(expected = "the metadata of another")]
fn metadata_that_goes_before_its_grant_is_caught() {
    check_broken(Fault::MetadataDroppedFirst, release_against_reuse);
}

/// The holder takes its key once more, which moves the metadata to a record, and uses the block
/// again.
fn record_against_asking() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let old = lock_with_metadata(&mut a, KEY, b"one", 0);

    let asker = thread::spawn(move || metadata_of(&mut b, old));
    let again = Acquire {
        reentrant: true,
        ..Acquire::exclusive(key(KEY), 100)
    };
    assert!(matches!(a.ask(&again, at(1)), Outcome::Granted(grant) if grant.fence == old));
    lock_with_metadata(&mut a, NEXT, b"two", 1);
    check_metadata(asker.join().unwrap().as_deref());
    assert_eq!(
        &*world.state(KEY, at(2)).unwrap().holders[0].metadata,
        b"one",
        "metadata was lost"
    );
}

#[test]
fn metadata_is_moved_to_a_record_as_it_was() {
    check(record_against_asking);
}

#[test]
#[should_panic(expected = "the metadata of another")]
fn metadata_that_is_read_while_it_is_moved_is_checked() {
    check_broken(Fault::MetadataUnchecked, record_against_asking);
}

/// By one clock the lease is renewed just in time, by another's it is over and the key is taken.
fn renewal_against_expiry() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let old = lock_with_metadata(&mut a, KEY, b"one", 0);

    let taker = thread::spawn(move || b.try_lock(KEY, 100, at(101)));
    let is_renewed = a.renew(KEY, old, 200, at(99));
    let taken = taker.join().unwrap();

    assert!(
        is_renewed != taken.is_some(),
        "both or neither have the key"
    );
    lock_with_metadata(&mut a, NEXT, b"two", 102);
    let holder = &world.state(KEY, at(103)).unwrap().holders[0];
    let expected: &[u8] = if is_renewed { b"one" } else { b"" };
    assert_eq!(
        &*holder.metadata, expected,
        "metadata was lost or left behind"
    );
}

#[test]
fn metadata_lives_as_long_as_its_lease() {
    check(renewal_against_expiry);
}

#[test]
#[should_panic(expected = "both or neither have the key")]
fn expiry_that_leaves_the_lease_of_a_noted_grant_is_caught() {
    check_broken(Fault::ExpiryLeavesLease, renewal_against_expiry);
}
