//! Waiters: in order of arrival, by direct hand-off, and out of line without delaying others.

use crate::common::*;
use engine::{Acquire, GaveUp, Limit, NotHeld, Outcome, Renewal, Seat, Settings, Ticket};

/// A key that is held, and a queue of `count` behind it: waiters 1 to `count`, each with a session
/// of its own.
fn line_of(engine: &Locks, count: u64) -> (Seat, engine::Grant, Vec<Seat>, Vec<Ticket>) {
    let mut holder = seat(engine);
    let grant = take(engine, &mut holder, "k", LONG_MS, at(0));
    let mut seats: Vec<Seat> = (0..count).map(|_| seat(engine)).collect();
    let mut tickets = Vec::new();
    for (waiter, seat) in (1..).zip(&mut seats) {
        tickets.push(wait(engine, seat, "k", 100, waiter, at(1)));
    }
    (holder, grant, seats, tickets)
}

#[test]
fn a_thousand_waiters_are_served_in_the_order_of_their_arrival() {
    let engine = locks();
    let (mut holder, first, mut seats, _) = line_of(&engine, 1000);
    assert_eq!(engine.waiters(), 1000);
    give_back(&engine, &mut holder, "k", first.fence, at(2));
    let mut last = first.fence;
    for (waiter, seat) in (1..).zip(&mut seats) {
        let (told, grant) = engine.host().take_grant();
        assert_eq!(told, waiter);
        assert!(grant.fence > last);
        last = grant.fence;
        give_back(&engine, seat, "k", grant.fence, at(2 + waiter));
    }
    assert_eq!(engine.host().take(), []);
    assert_eq!(engine.waiters(), 0);
    assert_eq!(engine.query(key("k"), at(2000)).unwrap().holders, []);
}

#[test]
fn waiters_that_come_back_stand_in_line_by_their_age() {
    let engine = locks();
    let mut holder = seat(&engine);
    let first = take(&engine, &mut holder, "k", LONG_MS, at(0));
    // Who has waited for how long, and how many stand in front of it then. Two of an age, and two
    // that are new, stay in the order in which they come.
    let comes = [
        (1, 300, 0),
        (2, 700, 0),
        (3, 0, 2),
        (4, 500, 1),
        (5, 0, 4),
        (6, 500, 2),
        (7, 1, 4),
    ];
    let mut seats: Vec<Seat> = comes.iter().map(|_| seat(&engine)).collect();
    for ((waiter, waited_ms, ahead), seat) in comes.iter().zip(&mut seats) {
        let request = Acquire {
            waited_ms: *waited_ms,
            ..Acquire::exclusive(key("k"), LONG_MS)
        };
        let outcome = engine.acquire_or_wait(seat, &request, 1000, || Some(*waiter), at(1));
        assert_eq!(queued(outcome).1, *ahead, "waiter {waiter}");
    }
    give_back(&engine, &mut holder, "k", first.fence, at(2));
    for expected in [2, 4, 6, 1, 7, 3, 5] {
        let (told, grant) = engine.host().take_grant();
        assert_eq!(told, expected);
        let seat = &mut seats[told as usize - 1];
        give_back(&engine, seat, "k", grant.fence, at(3));
    }
    assert_eq!(engine.waiters(), 0);
}

#[test]
fn each_waiter_is_told_how_many_stand_in_front() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    take(&engine, &mut a, "k", 100, at(0));
    for ahead in 0..5 {
        let request = Acquire::exclusive(key("k"), 10);
        let outcome =
            engine.acquire_or_wait(&mut b, &request, 50, || Some(u64::from(ahead)), at(0));
        assert_eq!(queued(outcome).1, ahead);
    }
}

#[test]
fn a_caller_ready_to_wait_for_a_free_key_gets_it_at_once() {
    let engine = locks();
    let mut a = seat(&engine);
    let request = Acquire::exclusive(key("k"), 10);
    granted(engine.acquire_or_wait(&mut a, &request, 50, || Some(1), at(0)));
    assert_eq!(engine.waiters(), 0);
    assert_eq!(engine.host().take(), [], "the answer was the grant");
    // And likewise if the lease there is over.
    granted(engine.acquire_or_wait(&mut a, &request, 50, || Some(2), at(11)));
}

#[test]
fn the_lease_of_a_waiter_starts_at_the_grant_and_not_at_the_request() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let first = take(&engine, &mut a, "k", LONG_MS, at(0));
    wait(&engine, &mut b, "k", 100, 1, at(1));
    give_back(&engine, &mut a, "k", first.fence, at(5000));
    let (_, grant) = engine.host().take_grant();
    assert_eq!(grant.until, at(5100));
    let [holder] = &engine.query(key("k"), at(5099)).unwrap().holders[..] else {
        panic!()
    };
    assert_eq!(holder.owner, Some(b.session()));
    assert_eq!((holder.held_ms, holder.until), (99, at(5100)));
    // And it is a lease like any other.
    assert_eq!(
        engine.renew(&b, key("k"), grant.fence, 100, at(5099)),
        Renewal::Renewed { until: at(5199) }
    );
}

#[test]
fn no_later_caller_overtakes_the_line() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    let first = take(&engine, &mut a, "k", 1000, at(0));
    wait(&engine, &mut b, "k", 1000, 1, at(1));
    wait(&engine, &mut b, "k", 1000, 2, at(1));
    // Freed: it is the first waiter's within the same call, so there is no moment to barge in.
    give_back(&engine, &mut a, "k", first.fence, at(2));
    let holder = held(acquire(&engine, &mut c, "k", 1000, at(2)));
    assert_eq!(holder.owner, Some(b.session()));
    assert_eq!(holder.queue_length, 1);
    wait(&engine, &mut c, "k", 1000, 3, at(2));
    let (waiter, grant) = engine.host().take_grant();
    assert_eq!(waiter, 1);
    // The session that just gave it back gets in line as well.
    give_back(&engine, &mut b, "k", grant.fence, at(3));
    held(acquire(&engine, &mut a, "k", 1000, at(3)));
    assert_eq!(engine.host().take_grant().0, 2);
}

#[test]
fn the_finder_of_an_expired_lease_with_a_line_behind_it_does_not_get_it() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    take(&engine, &mut a, "k", 100, at(0));
    wait(&engine, &mut b, "k", 50, 1, at(1));
    let holder = held(acquire(&engine, &mut c, "k", 50, at(101)));
    assert_eq!(holder.owner, Some(b.session()));
    assert_eq!(holder.until, at(151), "the lock was handed on right there");
}

#[test]
fn a_lease_is_handed_on_at_the_first_tick_behind_its_end() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    take(&engine, &mut a, "k", 100, at(0));
    wait(&engine, &mut b, "k", 50, 1, at(1));
    wait(&engine, &mut c, "k", 50, 2, at(2));
    advance(&engine, at(100));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(101));
    let events = engine.host().take();
    assert!(
        matches!(events[..], [Event::Lost { late_ms: 0, .. }, Event::Granted { waiter: 1, grant }]
            if grant.until == at(151)),
        "{events:?}"
    );
    advance(&engine, at(151));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(152));
    let events = engine.host().take();
    assert!(
        matches!(
            events[..],
            [Event::Lost { .. }, Event::Granted { waiter: 2, .. }]
        ),
        "{events:?}"
    );
}

#[test]
fn a_holder_with_a_line_behind_it_can_still_renew() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let grant = take(&engine, &mut a, "k", 100, at(0));
    wait(&engine, &mut b, "k", 50, 1, at(1));
    assert_eq!(
        engine.renew(&a, key("k"), grant.fence, 100, at(90)),
        Renewal::Renewed { until: at(190) }
    );
    advance(&engine, at(190));
    assert_eq!(engine.host().take(), []);
    assert_not_renewed(
        engine.renew(&a, key("k"), grant.fence, 100, at(191)),
        NotHeld::Expired,
    );
    let events = engine.host().take();
    assert!(
        matches!(
            events[..],
            [Event::Lost { .. }, Event::Granted { waiter: 1, .. }]
        ),
        "{events:?}"
    );
}

#[test]
fn a_late_release_with_a_line_behind_it_hands_on_and_says_that_it_was_late() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let grant = take(&engine, &mut a, "k", 100, at(0));
    wait(&engine, &mut b, "k", 50, 1, at(1));
    assert_not_held(
        engine.release(&mut a, key("k"), grant.fence, at(102)),
        NotHeld::Expired,
    );
    let events = engine.host().take();
    assert!(
        matches!(
            events[..],
            [
                Event::Lost { late_ms: 1, .. },
                Event::Granted { waiter: 1, .. }
            ]
        ),
        "{events:?}"
    );
}

#[test]
fn a_cancelled_waiter_is_out_of_line_wherever_it_stood() {
    for cancelled in [1, 3, 5] {
        let engine = locks();
        let (mut holder, grant, mut seats, tickets) = line_of(&engine, 5);
        let ticket = tickets[cancelled as usize - 1];
        assert_eq!(engine.cancel(ticket, at(2)), Some(cancelled));
        assert_eq!(engine.cancel(ticket, at(2)), None, "once");
        assert_eq!(engine.query(key("k"), at(2)).unwrap().queue_length, 4);
        give_back(&engine, &mut holder, "k", grant.fence, at(3));
        for waiter in (1..=5).filter(|&waiter| waiter != cancelled) {
            let (told, grant) = engine.host().take_grant();
            assert_eq!(told, waiter);
            give_back(
                &engine,
                &mut seats[waiter as usize - 1],
                "k",
                grant.fence,
                at(4),
            );
        }
        assert_eq!(engine.host().take(), []);
    }
}

#[test]
fn cancelling_the_whole_line_leaves_an_ordinary_lock() {
    let engine = locks();
    let (mut holder, grant, _, tickets) = line_of(&engine, 10);
    for ticket in tickets {
        assert!(engine.cancel(ticket, at(2)).is_some());
    }
    assert_eq!(engine.waiters(), 0);
    give_back(&engine, &mut holder, "k", grant.fence, at(3));
    assert_eq!(engine.host().take(), []);
    take(&engine, &mut holder, "k", 10, at(4));
}

#[test]
fn a_granted_waiter_cannot_cancel_any_more() {
    let engine = locks();
    let (mut holder, grant, mut seats, tickets) = line_of(&engine, 1);
    give_back(&engine, &mut holder, "k", grant.fence, at(2));
    let (_, grant) = engine.host().take_grant();
    assert_eq!(engine.cancel(tickets[0], at(3)), None);
    give_back(&engine, &mut seats[0], "k", grant.fence, at(4));
}

#[test]
fn a_wait_ends_at_its_deadline_and_not_before() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    take(&engine, &mut a, "k", LONG_MS, at(0));
    let request = Acquire::exclusive(key("k"), 10);
    for (waiter, wait_ms) in [(1, 70), (2, 50), (3, 60)] {
        queued(engine.acquire_or_wait(&mut b, &request, wait_ms, || Some(waiter), at(0)));
    }
    let mut gave_up = Vec::new();
    for now in 0..=70 {
        advance(&engine, at(now));
        for event in engine.host().take() {
            let Event::GaveUp {
                waiter,
                why: GaveUp::TimedOut,
            } = event
            else {
                panic!("{event:?}")
            };
            gave_up.push((waiter, now));
        }
    }
    assert_eq!(gave_up, [(2, 50), (3, 60), (1, 70)]);
    assert_eq!(engine.waiters(), 0);
}

#[test]
fn a_waiter_whose_time_is_up_is_not_granted_though_the_wheel_has_not_turned() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    let grant = take(&engine, &mut a, "k", LONG_MS, at(0));
    let request = Acquire::exclusive(key("k"), 10);
    queued(engine.acquire_or_wait(&mut b, &request, 50, || Some(1), at(0)));
    wait(&engine, &mut c, "k", 10, 2, at(0));
    give_back(&engine, &mut a, "k", grant.fence, at(50));
    let events = engine.host().take();
    assert!(
        matches!(
            events[..],
            [
                Event::GaveUp {
                    waiter: 1,
                    why: GaveUp::TimedOut
                },
                Event::Granted { waiter: 2, .. }
            ]
        ),
        "{events:?}"
    );
}

#[test]
fn ten_thousand_waiters_time_out_in_bounded_steps() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    take(&engine, &mut a, "k", LONG_MS, at(0));
    let request = Acquire::exclusive(key("k"), 10);
    for waiter in 0..10_000 {
        queued(engine.acquire_or_wait(&mut b, &request, 50, || Some(waiter), at(0)));
    }
    let (mut calls, mut told) = (0, 0);
    loop {
        let more = engine.advance(at(50), 100).more;
        let events = engine.host().take().len();
        assert!(events <= 100, "{events} in one call");
        (calls, told) = (calls + 1, told + events);
        if !more {
            break;
        }
    }
    assert_eq!(told, 10_000);
    assert!(calls >= 100);
    assert_eq!(engine.waiters(), 0);
}

#[test]
fn a_waiter_whose_session_ended_is_passed_over() {
    let engine = locks();
    let (mut holder, grant, mut seats, _) = line_of(&engine, 3);
    assert!(engine.end_session(seats[0].session()));
    // Its seat has not been vacated yet.
    give_back(&engine, &mut holder, "k", grant.fence, at(2));
    let events = engine.host().take();
    let gave_up = Event::GaveUp {
        waiter: 1,
        why: GaveUp::SessionEnded,
    };
    assert_eq!(events[0], gave_up);
    assert!(
        matches!(events[1..], [Event::Granted { waiter: 2, .. }]),
        "{events:?}"
    );
    engine.vacate(&mut seats[0], at(3));
    assert_eq!(engine.host().take(), [], "said once");
}

#[test]
fn a_waiter_whose_session_expired_is_passed_over() {
    let engine = locks();
    let [mut a, mut c] = seats(&engine);
    let mut b = Seat::new(engine.open_session(100, at(0)).unwrap());
    let grant = take(&engine, &mut a, "k", LONG_MS, at(0));
    wait(&engine, &mut b, "k", 10, 1, at(1));
    wait(&engine, &mut c, "k", 10, 2, at(1));
    give_back(&engine, &mut a, "k", grant.fence, at(101));
    let events = engine.host().take();
    let gave_up = Event::GaveUp {
        waiter: 1,
        why: GaveUp::SessionEnded,
    };
    assert_eq!(events[0], gave_up);
    assert!(
        matches!(events[1..], [Event::Granted { waiter: 2, .. }]),
        "{events:?}"
    );
}

#[test]
fn a_session_that_ends_is_out_of_every_line_it_stood_in() {
    let engine = locks();
    let (_holder, _, mut seats, tickets) = line_of(&engine, 3);
    engine.end_session(seats[1].session());
    engine.vacate(&mut seats[1], at(2));
    let gave_up = Event::GaveUp {
        waiter: 2,
        why: GaveUp::SessionEnded,
    };
    assert_eq!(engine.host().take(), [gave_up]);
    assert_eq!(engine.waiters(), 2);
    assert_eq!(engine.cancel(tickets[1], at(2)), None);
    assert_eq!(engine.cancel(tickets[2], at(2)), Some(3));
}

/// A host that finds its client gone gives the lock back, as the server's cores do.
#[test]
fn a_waiter_who_is_not_there_any_more_strands_nothing() {
    let engine = locks();
    let (mut holder, first, mut seats, _) = line_of(&engine, 4);
    let mut last = first.fence;
    give_back(&engine, &mut holder, "k", last, at(2));
    for (gone, seat) in (1..).zip(&mut seats[..2]) {
        let (waiter, grant) = engine.host().take_grant();
        assert_eq!(waiter, gone);
        assert!(grant.fence > last);
        last = grant.fence;
        give_back(&engine, seat, "k", last, at(2));
    }
    let (waiter, three) = engine.host().take_grant();
    assert_eq!(waiter, 3);
    assert!(three.fence > last);
    // The last in line has gone too: then the key is free.
    give_back(&engine, &mut seats[2], "k", three.fence, at(3));
    let (waiter, four) = engine.host().take_grant();
    assert_eq!(waiter, 4);
    give_back(&engine, &mut seats[3], "k", four.fence, at(3));
    assert_eq!(engine.host().take(), []);
    assert_eq!(engine.query(key("k"), at(3)).unwrap().holders, []);
    let next = take(&engine, &mut holder, "k", 10, at(4));
    assert!(
        next.fence > four.fence,
        "a fence that was given back unused is not used again"
    );
}

#[test]
fn a_waiter_who_vanished_at_expiry_strands_nothing() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    take(&engine, &mut a, "k", 100, at(0));
    wait(&engine, &mut b, "k", 10, 1, at(0));
    wait(&engine, &mut c, "k", 10, 2, at(0));
    advance(&engine, at(101));
    let events = engine.host().take();
    let [Event::Lost { .. }, Event::Granted { waiter: 1, grant }] = events[..] else {
        panic!("{events:?}")
    };
    give_back(&engine, &mut b, "k", grant.fence, at(101));
    assert_eq!(engine.host().take_grant().0, 2);
}

#[test]
fn a_full_line_answers_busy_and_loses_nothing() {
    let engine = locks_with(Settings {
        waiters_per_key_max: 3,
        ..small()
    });
    let (mut holder, grant, mut seats, tickets) = line_of(&engine, 3);
    let request = Acquire::exclusive(key("k"), 10);
    let before = engine.query(key("k"), at(2));
    assert_eq!(
        engine.acquire_or_wait(&mut holder, &request, 10, || Some(4), at(2)),
        Outcome::Busy(Limit::WaitersPerKey)
    );
    assert_eq!(engine.query(key("k"), at(2)), before);
    assert_eq!(engine.waiters(), 3);
    // A place that is left is a place to take.
    assert_eq!(engine.cancel(tickets[1], at(2)), Some(2));
    wait(&engine, &mut seats[1], "k", 10, 5, at(3));
    give_back(&engine, &mut holder, "k", grant.fence, at(4));
    for (waiter, seat_index) in [(1, 0), (3, 2), (5, 1)] {
        let (told, grant) = engine.host().take_grant();
        assert_eq!(told, waiter);
        give_back(&engine, &mut seats[seat_index], "k", grant.fence, at(5));
    }
}

#[test]
fn as_many_wait_altogether_as_may_and_the_next_is_told_busy() {
    let engine = locks_with(Settings {
        waiters_max: 4,
        ..small()
    });
    let [mut a, mut b] = seats(&engine);
    let mut tickets = Vec::new();
    for name in ["k", "l"] {
        take(&engine, &mut a, name, LONG_MS, at(0));
        tickets.push(wait(&engine, &mut b, name, 10, 1, at(0)));
        tickets.push(wait(&engine, &mut b, name, 10, 2, at(0)));
    }
    take(&engine, &mut a, "m", LONG_MS, at(0));
    let request = Acquire::exclusive(key("m"), 10);
    for _ in 0..3 {
        assert_eq!(
            engine.acquire_or_wait(&mut b, &request, 10, || Some(9), at(1)),
            Outcome::Busy(Limit::Waiters)
        );
    }
    assert_eq!(engine.waiters(), 4);
    assert_eq!(engine.query(key("m"), at(1)).unwrap().queue_length, 0);
    assert!(engine.cancel(tickets[0], at(1)).is_some());
    queued(engine.acquire_or_wait(&mut b, &request, 10, || Some(9), at(1)));
}

#[test]
fn one_who_holds_a_key_may_wait_for_it_behind_itself() {
    // A session is a whole process: another task of it may be about to give the key back.
    let engine = locks();
    let mut a = seat(&engine);
    let first = take(&engine, &mut a, "k", 100, at(0));
    wait(&engine, &mut a, "k", 100, 1, at(1));
    give_back(&engine, &mut a, "k", first.fence, at(2));
    let (waiter, second) = engine.host().take_grant();
    assert_eq!(waiter, 1);
    assert!(second.fence > first.fence);
}

#[test]
fn a_line_survives_a_thousand_changes_of_hands() {
    // Eight in a ring: each gives the key back and stands in line again. The order never changes.
    let engine = locks();
    let mut holder = seat(&engine);
    let first = take(&engine, &mut holder, "k", LONG_MS, at(0));
    let mut ring: Vec<Seat> = (0..8).map(|_| seat(&engine)).collect();
    for (waiter, seat) in (0..).zip(&mut ring) {
        wait(&engine, seat, "k", LONG_MS, waiter, at(0));
    }
    give_back(&engine, &mut holder, "k", first.fence, at(0));
    let mut last = first.fence;
    for round in 0..1000 {
        let (waiter, grant) = engine.host().take_grant();
        assert_eq!(waiter, round % 8);
        assert!(grant.fence > last);
        last = grant.fence;
        let seat = &mut ring[waiter as usize];
        wait(&engine, seat, "k", LONG_MS, waiter, at(round));
        give_back(&engine, seat, "k", grant.fence, at(round));
    }
}
