//! Session-bound locks and keep-alives: whichever comes second asks that the session's latest end
//! be covered.

use engine::{Acquire, BoundMark, Fault, Outcome, Span, Tick};
use loom::sync::{Arc, Mutex};
use loom::thread;
use loom_tests::{KEY, World, at, check, check_broken, key};

/// How long a sign of life makes the session live.
const KEPT_MS: u64 = 2_000_000;

/// A lock is bound to a session while a keep-alive moves the session's end. `is_first`: the mark is
/// set before the grant.
fn grant_against_keep_alive(is_first: bool) {
    let world = World::new();
    let mut a = world.client();
    let session = a.session();
    let mark = Arc::new(BoundMark::new());
    // What the horizon of the server covers, as it is asked to.
    let covered = Arc::new(Mutex::new(at(0)));
    let cover = |covered: &Mutex<Tick>, until: Tick| {
        let mut covered = covered.lock().unwrap();
        *covered = until.max(*covered);
    };

    let keeper = thread::spawn({
        let (world, mark, covered) = (world.clone(), mark.clone(), covered.clone());
        move || {
            let until = world.engine().keep_alive(session, KEPT_MS, at(1));
            if mark.is_set() {
                cover(&covered, until.expect("the session lives"));
            }
        }
    });
    let request = Acquire {
        span: Span::Session,
        ..Acquire::exclusive(key(KEY), 0)
    };
    if is_first {
        mark.set();
    }
    let Outcome::Granted(grant) = a.ask(&request, at(1)) else {
        panic!("{KEY} was free for the taking");
    };
    if !is_first {
        mark.set();
    }
    cover(&covered, grant.until);
    keeper.join().unwrap();

    let end = world.engine().session_deadline(session);
    assert!(
        *covered.lock().unwrap() >= end,
        "a lock outlives what is covered"
    );
}

fn mark_before_grant() {
    grant_against_keep_alive(true);
}

fn mark_behind_grant() {
    grant_against_keep_alive(false);
}

#[test]
fn the_end_of_a_session_bound_lock_is_covered_by_its_grant_or_by_the_keep_alive() {
    check(mark_before_grant);
}

#[test]
#[should_panic(expected = "a lock outlives what is covered")]
fn a_mark_behind_the_grant_is_caught() {
    check(mark_behind_grant);
}

#[test]
#[should_panic(expected = "a lock outlives what is covered")]
fn a_grant_without_a_fence_is_caught() {
    check_broken(Fault::BoundUnfenced, mark_before_grant);
}

#[test]
#[should_panic(expected = "a lock outlives what is covered")]
fn a_keep_alive_without_a_fence_is_caught() {
    check_broken(Fault::KeptAliveUnfenced, mark_before_grant);
}
