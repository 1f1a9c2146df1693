use super::*;
use crate::session::lease::tests::{fence, long_life, terms};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(9);

fn at(start: Moment, seconds: u64) -> Moment {
    start + Duration::from_secs(seconds)
}

#[test]
fn leases_come_due_in_order_and_once() {
    let leases = Leases::default();
    let start = Moment::now();
    let life = long_life(start);
    let late = leases.admit(&terms("late", 1, TTL, start), 0, &life, start);
    let early = leases.admit(&terms("early", 1, TTL, start), 0, &life, start);
    leases.schedule(&late, at(start, 3));
    leases.schedule(&early, at(start, 2));
    let mut due = Vec::new();
    assert_eq!(
        leases.take_due(at(start, 1), at(start, 60), &mut due),
        at(start, 2)
    );
    assert!(due.is_empty());
    leases.take_due(at(start, 2), at(start, 60), &mut due);
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].serial, early.serial);
    assert_eq!(
        leases.take_due(at(start, 5), at(start, 60), &mut due),
        at(start, 60)
    );
    assert_eq!(due.len(), 2);
}

#[test]
fn a_lease_that_was_forgotten_or_moved_is_not_due_at_its_old_time() {
    let leases = Leases::default();
    let start = Moment::now();
    let life = long_life(start);
    let released = leases.admit(&terms("released", 1, TTL, start), 0, &life, start);
    let moved = leases.admit(&terms("moved", 1, TTL, start), 0, &life, start);
    leases.schedule(&released, at(start, 1));
    leases.schedule(&moved, at(start, 1));
    leases.forget(&released);
    leases.schedule(&moved, at(start, 8));
    let mut due = Vec::new();
    leases.take_due(at(start, 7), at(start, 60), &mut due);
    assert!(due.is_empty());
    leases.schedule(&released, at(start, 1));
    leases.take_due(at(start, 7), at(start, 60), &mut due);
    assert!(due.is_empty(), "what was forgotten cannot be scheduled");
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_is_only_woken_for_what_is_due_before_it_looks() {
    let leases = Leases::default();
    let start = Moment::now();
    let lease = leases.admit(&terms("k", 1, TTL, start), 0, &long_life(start), start);
    let woken = async || {
        tokio::time::timeout(Duration::from_millis(1), leases.woken())
            .await
            .is_ok()
    };
    leases.take_due(start, at(start, 5), &mut Vec::new());
    leases.schedule(&lease, at(start, 6));
    assert!(!woken().await);
    leases.schedule(&lease, at(start, 4));
    assert!(woken().await);
}

#[test]
fn a_lost_session_takes_every_lease_and_every_late_grant_with_it() {
    let leases = Leases::default();
    let start = Moment::now();
    let life = long_life(start);
    let held = leases.admit(&terms("held", 1, TTL, start), 0, &life, start);
    leases.schedule(&held, at(start, 1));
    leases.lose_all(0, Loss::SessionEnded, start);
    assert_eq!(held.loss(), Some(Loss::SessionEnded));
    // A grant that another connection of the dead session had read but not passed on.
    let late = leases.admit(&terms("late", 1, TTL, start), 0, &life, start);
    assert_eq!(late.loss(), Some(Loss::SessionEnded));
    // The next session starts clean.
    let next = leases.admit(&terms("held", 2, TTL, start), 1, &life, start);
    assert_eq!(next.loss(), None);
    leases.lose_all(0, Loss::SessionEnded, start);
    assert_eq!(
        next.loss(),
        None,
        "the end of an earlier session is old news"
    );
}

#[test]
fn a_push_finds_the_lease_it_names_and_no_other() {
    let leases = Leases::default();
    let start = Moment::now();
    let life = long_life(start);
    let old = leases.admit(&terms("k", 1, TTL, start), 0, &life, start);
    let new = leases.admit(&terms("k", 2, TTL, start), 0, &life, start);
    leases.lose(b"k", fence(1), Loss::Forced, start);
    leases.lose(b"other", fence(2), Loss::Forced, start);
    assert_eq!(old.loss(), Some(Loss::Forced));
    assert_eq!(new.loss(), None);
}

#[test]
fn a_second_grant_under_the_same_fence_joins_the_first() {
    let leases = Leases::default();
    let start = Moment::now();
    let life = long_life(start);
    let outer = leases.admit(&terms("k", 1, TTL, start), 0, &life, start);
    let inner = leases.admit(&terms("k", 1, TTL, start), 0, &life, start);
    assert_eq!(outer.serial, inner.serial);
    assert_eq!(outer.hold_count(), 2);
    // One that was given up locally is not revived: the new guard gets a lease of its own.
    outer.lose(Loss::DeadlinePassed, start);
    let again = leases.admit(&terms("k", 1, TTL, start), 0, &life, start);
    assert_ne!(outer.serial, again.serial);
    assert_eq!(again.loss(), None);
    leases.forget(&outer);
    leases.lose(b"k", fence(1), Loss::Forced, start);
    assert_eq!(
        again.loss(),
        Some(Loss::Forced),
        "the old one's end did not hide it"
    );
}

#[test]
fn a_downgrade_moves_the_lease_to_its_new_fence() {
    let leases = Leases::default();
    let start = Moment::now();
    let lease = leases.admit(&terms("k", 1, TTL, start), 0, &long_life(start), start);
    leases.schedule(&lease, at(start, 3));
    leases.downgrade(&lease, fence(2));
    assert_eq!(lease.fence(), fence(2));
    leases.lose(b"k", fence(1), Loss::Forced, start);
    assert_eq!(lease.loss(), None);
    let mut due = Vec::new();
    leases.take_due(at(start, 3), at(start, 60), &mut due);
    assert_eq!(due.len(), 1, "it is still renewed");
}

#[test]
fn after_a_reconnect_everything_that_renews_itself_is_due() {
    let leases = Leases::default();
    let start = Moment::now();
    let life = long_life(start);
    let renewed = leases.admit(&terms("renewed", 1, TTL, start), 0, &life, start);
    leases.schedule(&renewed, at(start, 3));
    let by_hand = Terms {
        is_auto_renewed: false,
        ..terms("by hand", 1, TTL, start)
    };
    leases.admit(&by_hand, 0, &life, start);
    let bound = Terms {
        is_session_bound: true,
        ..terms("bound", 1, TTL, start)
    };
    leases.admit(&bound, 0, &life, start);
    leases.schedule_all(start);
    let mut due = Vec::new();
    leases.take_due(start, at(start, 60), &mut due);
    let mut keys: Vec<&[u8]> = due.iter().map(|lease| &*lease.key).collect();
    keys.sort_unstable();
    assert_eq!(keys, [&b"bound"[..], b"renewed"]);
}
