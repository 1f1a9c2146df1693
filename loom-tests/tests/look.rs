//! A look at a plain key takes no lock and writes nothing: what it shows was true at one moment.

use engine::{Fault, Fence, SessionId};
use loom::thread;
use loom_tests::{IDLE_MS, KEY, World, at, check, check_broken, is_released};

/// The holder that a look shows: its session, if that is published, and its fence.
fn shown(world: &World, now: u64) -> Option<(Option<SessionId>, Fence)> {
    let state = world.state(KEY, at(now))?;
    let holder = state.holders.into_iter().next()?;
    Some((holder.owner, holder.fence))
}

/// The holder releases and another session takes the key, while a third looks.
fn look_against_release_and_acquire() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let (session_a, session_b) = (a.session(), b.session());
    let first = a.lock(KEY, 100, at(0));

    let passing_on = thread::spawn(move || {
        assert!(is_released(a.release(KEY, first, at(1))));
        b.lock(KEY, 100, at(1))
    });
    let shown = shown(&world, 1);
    let second = passing_on.join().unwrap();

    // The second grant may be so fresh that its owner is not published yet. The first one was.
    let truths = [
        None,
        Some((Some(session_a), first)),
        Some((Some(session_b), second)),
        Some((None, second)),
    ];
    assert!(
        truths.contains(&shown),
        "a look mixed two grants: {shown:?}"
    );
}

#[test]
fn a_look_shows_one_grant() {
    check(look_against_release_and_acquire);
}

#[test]
#[should_panic(expected = "a look mixed two grants")]
fn a_look_that_does_not_look_again_is_caught() {
    check_broken(Fault::LookUnchecked, look_against_release_and_acquire);
}

/// The key is released and evicted, and another key takes its slot, while a session looks.
fn look_against_eviction() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let session_a = a.session();
    let fence = a.lock(KEY, 10, at(0));
    world.advance(at(1));

    let evictor = thread::spawn({
        let world = world.clone();
        move || {
            assert!(is_released(a.release(KEY, fence, at(1))));
            world.advance(at(100 + IDLE_MS));
            b.lock("x", 10, at(100 + IDLE_MS));
        }
    });
    let shown = shown(&world, 1);
    evictor.join().unwrap();

    assert!(
        [None, Some((Some(session_a), fence))].contains(&shown),
        "a look showed another key's holder: {shown:?}"
    );
    assert!(world.state(KEY, at(200 + IDLE_MS)).is_none());
}

#[test]
fn a_look_shows_no_holder_of_another_key() {
    check(look_against_eviction);
}

#[test]
#[should_panic(expected = "a look showed another key's holder")]
fn a_look_that_trusts_an_evicted_cell_is_caught() {
    check_broken(Fault::LookUnchecked, look_against_eviction);
}

/// The holder renews just in time by its own clock, while by the looker's the lease is over.
fn look_against_renewal() {
    let world = World::new();
    let mut a = world.client();
    let (session, fence) = (a.session(), a.lock(KEY, 10, at(0)));

    let holder = thread::spawn(move || a.renew(KEY, fence, 20, at(9)));
    let shown = shown(&world, 11);
    let renewed = holder.join().unwrap();

    let is_held = shown.is_some();
    assert!(
        renewed == is_held,
        "renewed: {renewed}, and shown as held: {is_held}"
    );
    assert!(
        world.told().losses.len() == usize::from(!renewed),
        "shown as free, and not lost"
    );
    if renewed {
        assert_eq!(world.holder(KEY, at(28)), Some((session, fence)));
    }
}

#[test]
fn what_a_look_shows_as_free_is_not_renewed() {
    check(look_against_renewal);
}

#[test]
#[should_panic(expected = "renewed: true, and shown as held: false")]
fn a_look_that_leaves_the_lease_open_is_caught() {
    check_broken(Fault::ExpiryLeavesLease, look_against_renewal);
}
