//! Sessions: their end against hand-off, acquire and renewal, and a keep-alive against their end.

use engine::{Acquire, Fault, Fence, Lost, Outcome, Span};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use loom_tests::{KEY, Place, World, at, check, check_broken, is_released, key};
use std::sync::Arc;

/// The session of the first in line ends while the holder releases to it.
fn end_against_hand_off() {
    let world = World::new();
    let (mut a, mut b, mut c) = (world.client(), world.client(), world.client());
    let fence = a.lock(KEY, 100, at(0));
    let request = Acquire::exclusive(key(KEY), 100);
    b.stand_in_line(&request, "b", at(0));
    c.stand_in_line(&request, "c", at(0));

    let leaver = thread::spawn(move || b.leave(at(1)));
    assert!(is_released(a.release(KEY, fence, at(1))));
    leaver.join().unwrap();

    // Without looking at the key, which would set it right.
    let told = world.told();
    assert!(
        told.grants.last().is_some_and(|&(waiter, _)| waiter == "c"),
        "the lock stays with a session that has ended"
    );
    assert_eq!(
        world.holder(KEY, at(1)).map(|(owner, _)| owner),
        Some(c.session())
    );
    let is_granted = told.grants.iter().any(|&(waiter, _)| waiter == "b");
    let gave_up = told.gave_up.iter().any(|&(waiter, _)| waiter == "b");
    assert!(is_granted != gave_up, "granted and gave up, or neither");
}

#[test]
fn the_lock_goes_on_when_its_next_holder_vanishes() {
    check(end_against_hand_off);
}

#[test]
#[should_panic(expected = "stays with a session that has ended")]
fn a_vacated_seat_that_forgets_a_fresh_grant_is_caught() {
    check_broken(Fault::VacateForgetsGranted, end_against_hand_off);
}

/// Three at once: the holder releases, the session of the first in line ends and the second in line
/// is cancelled.
fn end_and_cancel_against_hand_off() {
    let world = World::new();
    let (mut a, mut b, mut c) = (world.client(), world.client(), world.client());
    let fence = a.lock(KEY, 100, at(0));
    let request = Acquire::exclusive(key(KEY), 100);
    b.stand_in_line(&request, "b", at(0));
    let Place::InLine(ticket) = c.stand_in_line(&request, "c", at(0)) else {
        panic!("the key is held")
    };

    let leaver = thread::spawn(move || b.leave(at(1)));
    let canceller = thread::spawn({
        let world = world.clone();
        move || world.engine().cancel(ticket, at(1))
    });
    assert!(is_released(a.release(KEY, fence, at(1))));
    leaver.join().unwrap();
    let cancelled = canceller.join().unwrap();

    let told = world.told();
    let [to_b, to_c] = ["b", "c"].map(|waiter| told.grants.iter().any(|&(name, _)| name == waiter));
    assert!(
        told.losses.len() == usize::from(to_b),
        "the lock stays with a session that has ended"
    );
    assert!(
        cancelled.is_some() != to_c,
        "cancelled and granted, or left standing"
    );
    let holder = world.holder(KEY, at(1)).map(|(owner, _)| owner);
    assert_eq!(holder, to_c.then_some(c.session()));
}

#[test]
fn nothing_is_stranded_when_the_first_dies_and_the_second_gives_up() {
    check(end_and_cancel_against_hand_off);
}

#[test]
#[should_panic(expected = "stays with a session that has ended")]
fn a_fresh_grant_that_is_not_taken_back_is_caught() {
    check_broken(Fault::VacateForgetsGranted, end_and_cancel_against_hand_off);
}

/// The session of the one in line ends. If the holder knows it before it releases, no waiter is to
/// be granted.
fn hand_off_after_end() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let fence = a.lock(KEY, 100, at(0));
    b.stand_in_line(&Acquire::exclusive(key(KEY), 100), "b", at(0));

    let is_over = Arc::new(AtomicBool::new(false));
    let leaver = thread::spawn({
        let (world, is_over) = (world.clone(), is_over.clone());
        move || {
            world.engine().end_session(b.session());
            is_over.store(true, Ordering::Release);
            b.vacate(at(1));
        }
    });
    let knew = is_over.load(Ordering::Acquire);
    assert!(is_released(a.release(KEY, fence, at(1))));
    leaver.join().unwrap();

    assert!(
        !knew || world.told().grants.is_empty(),
        "the lock was handed to a session that had ended"
    );
    assert_eq!(world.holder(KEY, at(1)), None);
}

#[test]
fn a_waiter_whose_session_has_ended_is_never_granted() {
    check(hand_off_after_end);
}

#[test]
#[should_panic(expected = "handed to a session that had ended")]
fn a_hand_off_to_the_dead_is_caught() {
    check_broken(Fault::HandoffToTheDead, hand_off_after_end);
}

/// A session renews through one seat while it ends, and the other seat, which took the lock, is
/// vacated. A session waits.
fn end_against_renew() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let fence = a.lock(KEY, 100, at(0));
    b.stand_in_line(&Acquire::exclusive(key(KEY), 100), "b", at(0));
    let elsewhere = world.seat(a.session());

    let renewer = thread::spawn(move || elsewhere.renew(KEY, fence, 1_000, at(1)));
    a.leave(at(1));
    renewer.join().unwrap();

    let told = world.told();
    assert!(
        told.grants
            .first()
            .is_some_and(|&(waiter, _)| waiter == "b"),
        "the lock stays with a session that has ended"
    );
}

#[test]
fn a_renewal_keeps_no_lock_for_a_session_that_has_ended() {
    check(end_against_renew);
}

#[test]
#[should_panic(expected = "stays with a session that has ended")]
fn a_room_that_gives_up_before_a_renewal_is_caught() {
    check_broken(Fault::RoomGivesUp, end_against_renew);
}

/// A session acquires through one seat while it ends and its other seat is vacated. If that acquire
/// was answered yes, the first seat is vacated, too.
fn end_against_acquire() {
    let world = World::new();
    let mut a = world.client();
    let mut elsewhere = world.seat(a.session());
    a.lock("x", 100, at(0));

    let acquirer = thread::spawn(move || {
        let outcome = elsewhere.ask(&Acquire::exclusive(key(KEY), 100), at(1));
        (elsewhere, outcome)
    });
    a.leave(at(1));
    let (mut elsewhere, outcome) = acquirer.join().unwrap();
    match outcome {
        Outcome::Granted(_) => elsewhere.vacate(at(1)),
        Outcome::SessionEnded => {}
        other => panic!("granted or refused, and not {other:?}"),
    }

    // Before looking at the key, which would set it right: every grant there has been is lost.
    let lost = world.told().losses.len();
    let state = world.state(KEY, at(1));
    let is_granted = state.is_some_and(|state| state.fence > Fence::ZERO);
    assert!(
        lost == 1 + usize::from(is_granted),
        "an acquire was refused and left a lock behind"
    );
}

#[test]
fn nothing_stays_held_when_a_session_has_ended() {
    check(end_against_acquire);
}

#[test]
#[should_panic(expected = "refused and left a lock behind")]
fn a_grant_that_outlives_its_refusal_is_caught() {
    check_broken(Fault::RefusedGrantStands, end_against_acquire);
}

/// A session ends and what it held is taken by another at the same moment.
fn end_against_taker() {
    let world = World::new();
    let (mut a, mut b) = (world.client(), world.client());
    let session_b = b.session();
    let old = a.lock(KEY, 100, at(0));

    let taker = thread::spawn(move || b.try_lock(KEY, 100, at(1)));
    a.leave(at(1));
    let new = taker.join().unwrap();

    let losses = world.told().losses;
    assert!(
        losses == [(old, Lost::SessionEnded)],
        "told once, and why: {losses:?}"
    );
    assert_eq!(
        world.holder(KEY, at(1)),
        new.map(|new| (session_b, new)),
        "the end of a session took a lock from another"
    );
}

#[test]
fn the_end_of_a_session_takes_only_what_is_its_own() {
    check(end_against_taker);
}

#[test]
#[should_panic(expected = "told once")]
fn an_end_that_overwrites_the_word_is_caught() {
    check_broken(Fault::ExpiryOverwrites, end_against_taker);
}

/// A session is kept alive just in time by one clock, while by another it is just over.
fn keep_alive_against_end() {
    let world = World::new();
    let engine = world.engine();
    let session = engine.open_session(10, at(0)).expect("there is room");
    let mut a = world.seat(session);
    let bound = Acquire {
        span: Span::Session,
        ..Acquire::exclusive(key(KEY), 1)
    };
    assert!(matches!(a.ask(&bound, at(0)), Outcome::Granted(_)));
    let mut b = world.client();

    let taker = thread::spawn(move || b.try_lock(KEY, 10, at(11)));
    let kept = engine.keep_alive(session, 20, at(9));
    let taken = taker.join().unwrap();

    assert!(
        kept.is_some() != taken.is_some(),
        "kept alive, and its lock given to another: {kept:?} and {taken:?}"
    );
    assert!(engine.is_open(session, at(28)) == kept.is_some());
}

#[test]
fn a_session_kept_alive_is_never_ended_early() {
    check(keep_alive_against_end);
}

#[test]
#[should_panic(expected = "kept alive, and its lock given to another")]
fn an_end_that_overwrites_a_keep_alive_is_caught() {
    check_broken(Fault::SessionEndOverwrites, keep_alive_against_end);
}

/// Two places are free. One thread opens a session; the other opens two and gives the first one's
/// place back, so that the list of free places begins as it did and goes on differently.
fn open_against_forget() {
    let world = World::new();
    let engine = world.engine();
    let open = |world: &World| {
        world
            .engine()
            .open_session(100, at(0))
            .expect("there is room")
    };
    let (a, b) = (open(&world), open(&world));
    for session in [a, b] {
        assert!(engine.end_session(session) && engine.forget_session(session));
    }

    let other = thread::spawn({
        let world = world.clone();
        move || {
            let (first, second) = (open(&world), open(&world));
            assert!(world.engine().end_session(first) && world.engine().forget_session(first));
            second
        }
    });
    let one = open(&world);
    let two = other.join().unwrap();
    let three = open(&world);

    assert!(
        [one, two, three]
            .iter()
            .all(|&session| engine.is_open(session, at(1))),
        "two sessions were given one place"
    );
}

#[test]
fn no_place_is_given_to_two_sessions() {
    check(open_against_forget);
}

#[test]
#[should_panic(expected = "is armed already")]
fn a_list_of_free_places_without_a_version_is_caught() {
    check_broken(Fault::FreeListUnversioned, open_against_forget);
}
