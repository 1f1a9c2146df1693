//! The ceiling of fences: never overtaken, and raising it serves its waiters.

use engine::{Acquire, Fault, Fence, Outcome, Settings};
use loom::thread;
use loom_tests::{KEY, World, at, check, check_broken, is_released, key, small};

/// A world in which one fence may be issued, and has been.
fn at_the_ceiling() -> World {
    let world = World::with(Settings {
        ceiling: fence(1),
        ..small()
    });
    let mut a = world.client();
    let first = a.lock(KEY, 100, at(0));
    assert!(is_released(a.release(KEY, first, at(0))));
    world
}

fn fence(number: u64) -> Fence {
    Fence::new(number).expect("small numbers are fences")
}

/// The ceiling is raised while a session asks that will not wait.
fn raise_against_acquire() {
    let world = at_the_ceiling();
    let mut b = world.client();

    let asker = thread::spawn({
        let world = world.clone();
        move || {
            let outcome = b.ask(&Acquire::exclusive(key(KEY), 100), at(1));
            // Read after the answer: it may be higher than it was then, and never lower.
            (outcome, world.engine().ceiling(0))
        }
    });
    world.engine().raise_ceiling(0, fence(2), at(1));
    let (outcome, ceiling) = asker.join().unwrap();

    match outcome {
        Outcome::Granted(grant) => {
            assert!(grant.fence <= ceiling, "a fence overtook the ceiling")
        }
        Outcome::AtCeiling => {}
        other => panic!("granted or at the ceiling, and not {other:?}"),
    }
}

#[test]
fn no_fence_overtakes_the_ceiling() {
    check(raise_against_acquire);
}

#[test]
#[should_panic(expected = "a fence overtook the ceiling")]
fn a_grant_that_does_not_look_at_the_ceiling_is_caught() {
    check_broken(Fault::CeilingUnchecked, raise_against_acquire);
}

/// The ceiling is raised while a session asks that will wait for it.
fn raise_against_wait() {
    let world = at_the_ceiling();
    let mut b = world.client();

    let waiter =
        thread::spawn(move || b.stand_in_line(&Acquire::exclusive(key(KEY), 100), "b", at(1)));
    world.engine().raise_ceiling(0, fence(2), at(1));
    let place = waiter.join().unwrap();

    let grant = world.grant_of("b", place);
    assert!(grant.is_some(), "a waiter is left below the ceiling");
}

#[test]
fn a_higher_ceiling_serves_its_waiters() {
    check(raise_against_wait);
}

#[test]
#[should_panic(expected = "a waiter is left below the ceiling")]
fn serving_before_the_ceiling_is_raised_is_caught() {
    check_broken(Fault::CeilingServesFirst, raise_against_wait);
}
