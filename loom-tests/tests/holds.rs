//! The walk over all holds, which snapshots are made of: a hold that lasts is met with what it is,
//! whatever happens to it meanwhile.

use engine::{Acquire, Cursor, Fault, Outcome, Span};
use loom::thread;
use loom_tests::{KEY, World, at, check, check_broken, key};

/// A lock that lives as long as its session moves to a record while the walk comes by.
fn walk_against_downgrade() {
    let world = World::new();
    let mut a = world.client();
    let request = Acquire {
        span: Span::Session,
        ..Acquire::exclusive(key(KEY), 0)
    };
    let Outcome::Granted(grant) = a.ask(&request, at(1)) else {
        panic!("{KEY} was free for the taking");
    };

    let holder = thread::spawn(move || assert!(a.downgrade(KEY, grant.fence, at(2))));
    let mut met = Vec::new();
    let rest = world.engine().holds(
        Cursor::default(),
        100,
        || at(2),
        |held| {
            met.push((held.fence, held.is_session_bound, held.until));
        },
    );
    holder.join().unwrap();

    assert_eq!(rest, None, "one part covers a table this small");
    assert_eq!(
        met,
        [(grant.fence, true, grant.until)],
        "a hold was met as something else, or not at all"
    );
}

#[test]
fn a_hold_is_met_with_the_lease_it_has() {
    check(walk_against_downgrade);
}

#[test]
#[should_panic(expected = "a hold was met as something else")]
fn a_lease_that_is_read_twice_is_caught() {
    check_broken(Fault::WalkReadsLeaseTwice, walk_against_downgrade);
}
