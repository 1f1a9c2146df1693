//! Fences rise for ever: across release, expiry, eviction and restart, and never past the ceiling.

use crate::common::*;
use engine::{Acquire, Fence, Mode, Outcome, Seat, Settings, Ticket};

fn bounded(floor: u64, ceiling: u64) -> Settings {
    Settings {
        shards: 1,
        floor: fence(floor),
        ceiling: fence(ceiling),
        idle_ms: 100,
        ..small()
    }
}

#[test]
fn every_fence_lies_above_the_floor() {
    let engine = locks_with(bounded(1_000_000, 2_000_000));
    let mut a = seat(&engine);
    for name in ["k", "l", "m"] {
        assert!(take(&engine, &mut a, name, 100, at(0)).fence > fence(1_000_000));
    }
    let shared = granted(share(&engine, &mut a, "s", 100, at(0)));
    assert!(shared.fence > fence(1_000_000));
}

#[test]
fn fences_of_one_key_rise_whatever_ends_its_leases() {
    let engine = locks();
    let mut last = Fence::ZERO;
    let mut now = 0;
    for round in 0..100 {
        let mut seat = Seat::new(engine.open_session(LONG_MS, at(now)).unwrap());
        let mode = if round % 3 == 0 {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        let request = Acquire {
            mode,
            ..Acquire::exclusive(key("k"), 10)
        };
        let grant = granted(engine.acquire(&mut seat, &request, at(now)));
        assert!(grant.fence > last, "round {round}");
        last = grant.fence;
        match round % 5 {
            0 => give_back(&engine, &mut seat, "k", grant.fence, at(now)),
            1 => advance(&engine, at(now + 11)),
            2 => assert!(engine.force_release(key("k"), grant.fence, at(now))),
            3 => {
                engine.end_session(seat.session());
                engine.vacate(&mut seat, at(now));
            }
            // Forgotten altogether.
            _ => {
                advance(&engine, at(now + 11));
                advance(&engine, at(now + 12));
                advance(&engine, at(now + 30_000));
                assert_eq!(engine.query(key("k"), at(now + 30_000)), None);
                now += 30_000;
            }
        }
        now += 11;
    }
}

#[test]
fn a_forgotten_key_comes_back_above_everything_it_ever_had() {
    let engine = locks_with(bounded(0, 1_000_000));
    let mut a = seat(&engine);
    // One key that has seen much, and others that have not.
    let mut last = Fence::ZERO;
    for _ in 0..1000 {
        last = take(&engine, &mut a, "old", 10, at(0)).fence;
        give_back(&engine, &mut a, "old", last, at(0));
    }
    advance(&engine, at(0));
    advance(&engine, at(110));
    assert_eq!(engine.keys(), 0);
    assert!(take(&engine, &mut a, "old", 10, at(111)).fence > last);
    // The floor is the shard's: it has risen for all keys that come.
    assert!(take(&engine, &mut a, "new", 10, at(111)).fence > last);
}

#[test]
fn the_floor_rises_with_the_highest_of_many_forgotten_keys() {
    let engine = locks_with(bounded(0, 1_000_000));
    let mut a = seat(&engine);
    let mut last = Vec::new();
    for i in 0..50 {
        let name = format!("{i}");
        for _ in 0..=(i * 7 % 50) {
            let grant = take(&engine, &mut a, &name, 10, at(0));
            give_back(&engine, &mut a, &name, grant.fence, at(0));
        }
        last.push(engine.query(key(&name), at(0)).unwrap().fence);
    }
    advance(&engine, at(0));
    advance(&engine, at(110));
    assert_eq!(engine.keys(), 0);
    for (i, &last) in last.iter().enumerate() {
        assert!(take(&engine, &mut a, &format!("{i}"), 10, at(200)).fence > last);
    }
}

#[test]
fn at_the_ceiling_nothing_is_granted_and_above_it_again() {
    let engine = locks_with(bounded(10, 13));
    let mut a = seat(&engine);
    for expected in 11..=13 {
        let grant = take(&engine, &mut a, "k", 100, at(0));
        assert_eq!(grant.fence, fence(expected));
        give_back(&engine, &mut a, "k", grant.fence, at(0));
    }
    let before = engine.query(key("k"), at(1));
    assert_eq!(
        acquire(&engine, &mut a, "k", 100, at(1)),
        Outcome::AtCeiling
    );
    assert_eq!(share(&engine, &mut a, "k", 100, at(1)), Outcome::AtCeiling);
    assert_eq!(engine.query(key("k"), at(1)), before);
    // Every key has its own count.
    assert_eq!(take(&engine, &mut a, "l", 100, at(1)).fence, fence(11));

    engine.raise_ceiling(0, fence(14), at(2));
    assert_eq!(engine.ceiling(0), fence(14));
    let grant = take(&engine, &mut a, "k", 100, at(2));
    assert_eq!(grant.fence, fence(14));
    give_back(&engine, &mut a, "k", grant.fence, at(2));
    assert_eq!(
        acquire(&engine, &mut a, "k", 100, at(3)),
        Outcome::AtCeiling
    );
}

#[test]
fn the_ceiling_never_falls() {
    let engine = locks_with(bounded(10, 20));
    engine.raise_ceiling(0, fence(15), at(0));
    assert_eq!(engine.ceiling(0), fence(20));
}

#[test]
fn each_shard_has_its_own_ceiling() {
    let engine = locks_with(Settings {
        shards: 8,
        ..bounded(0, 0)
    });
    let mut a = seat(&engine);
    let names: Vec<String> = (0..100).map(|i| format!("{i}")).collect();
    engine.raise_ceiling(3, fence(1), at(0));
    for name in &names {
        let outcome = acquire(&engine, &mut a, name, 100, at(0));
        if engine.shard_of(key(name)) == 3 {
            granted(outcome);
        } else {
            assert_eq!(outcome, Outcome::AtCeiling);
        }
    }
}

/// A key at the ceiling with waiters 1 to `count` in line, some of them shared.
fn starving(engine: &Locks, modes: &[Mode]) -> (Vec<Seat>, Vec<Ticket>) {
    let mut seats: Vec<Seat> = modes.iter().map(|_| seat(engine)).collect();
    let mut tickets = Vec::new();
    for ((waiter, &mode), seat) in (1..).zip(modes).zip(&mut seats) {
        let request = Acquire {
            mode,
            ..Acquire::exclusive(key("k"), 100)
        };
        let outcome = engine.acquire_or_wait(seat, &request, LONG_MS, || Some(waiter), at(0));
        tickets.push(queued(outcome).0);
    }
    (seats, tickets)
}

#[test]
fn those_who_wait_at_the_ceiling_are_served_in_order_when_it_rises() {
    use Mode::{Exclusive, Shared};
    let engine = locks_with(bounded(10, 10));
    let (mut seats, _) = starving(&engine, &[Exclusive, Shared, Shared, Exclusive]);
    assert_eq!(engine.waiters(), 4);
    // A caller that will not wait is told the truth: it is free, there are no fences.
    let mut other = seat(&engine);
    assert_eq!(
        acquire(&engine, &mut other, "k", 100, at(1)),
        Outcome::AtCeiling
    );
    assert_eq!(engine.query(key("k"), at(1)).unwrap().holders, []);

    engine.raise_ceiling(0, fence(12), at(500));
    let (waiter, first) = engine.host().take_grant();
    assert_eq!((waiter, first.fence, first.until), (1, fence(11), at(600)));
    give_back(&engine, &mut seats[0], "k", first.fence, at(501));
    // Fences for one reader only; the other one goes on waiting, and no caller passes it.
    let (waiter, second) = engine.host().take_grant();
    assert_eq!((waiter, second.fence), (2, fence(12)));
    let outcome = share(&engine, &mut other, "k", 100, at(502));
    assert!(matches!(outcome, Outcome::Held(_)), "{outcome:?}");

    engine.raise_ceiling(0, fence(100), at(503));
    let (waiter, third) = engine.host().take_grant();
    assert_eq!((waiter, third.fence), (3, fence(13)));
    give_back(&engine, &mut seats[1], "k", second.fence, at(504));
    give_back(&engine, &mut seats[2], "k", third.fence, at(504));
    assert_eq!(engine.host().take_grant().0, 4);
}

#[test]
fn a_waiter_at_the_ceiling_can_cancel_and_times_out() {
    use Mode::Exclusive;
    let engine = locks_with(bounded(10, 10));
    let (_seats, tickets) = starving(&engine, &[Exclusive, Exclusive, Exclusive]);
    assert_eq!(engine.cancel(tickets[0], at(1)), Some(1));
    advance(&engine, at(LONG_MS));
    assert_eq!(engine.host().take().len(), 2, "both gave up");
    assert_eq!(engine.waiters(), 0);
    engine.raise_ceiling(0, fence(100), at(LONG_MS));
    assert_eq!(engine.host().take(), []);
    take(&engine, &mut seat(&engine), "k", 10, at(LONG_MS));
}

#[test]
fn many_keys_wait_at_the_ceiling_and_all_are_served() {
    let engine = locks_with(bounded(10, 10));
    let mut a = seat(&engine);
    for waiter in 0..100 {
        let name = format!("{waiter}");
        let request = Acquire::exclusive(key(&name), 100);
        // Cancelled once, and back again.
        let (ticket, _) =
            queued(engine.acquire_or_wait(&mut a, &request, LONG_MS, || Some(waiter), at(0)));
        engine.cancel(ticket, at(0));
        queued(engine.acquire_or_wait(&mut a, &request, LONG_MS, || Some(waiter), at(0)));
    }
    engine.raise_ceiling(0, fence(11), at(1));
    let mut served: Vec<u64> = engine
        .host()
        .take_grants()
        .into_iter()
        .map(|(w, _)| w)
        .collect();
    served.sort_unstable();
    assert_eq!(served, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_holder_at_the_ceiling_renews_reenters_and_downgrades_without_a_fence() {
    let engine = locks_with(bounded(10, 11));
    let mut a = seat(&engine);
    let grant = take(&engine, &mut a, "k", 100, at(0));
    assert_eq!(
        engine.renew(&a, key("k"), grant.fence, 100, at(1)),
        engine::Renewal::Renewed { until: at(101) }
    );
    let request = Acquire {
        reentrant: true,
        ..Acquire::exclusive(key("k"), 100)
    };
    assert_eq!(
        granted(engine.acquire(&mut a, &request, at(2))).fence,
        grant.fence
    );
    assert_eq!(
        engine.downgrade(&a, key("k"), grant.fence, at(3)),
        engine::Downgrade::Downgraded
    );
}

#[test]
fn after_a_restart_every_fence_lies_above_every_fence_before_it() {
    let mut ceiling = 50;
    let mut last = [Fence::ZERO; 10];
    for _ in 0..20 {
        let engine = locks_with(bounded(ceiling - 50, ceiling));
        let mut a = seat(&engine);
        let mut is_at_ceiling = false;
        for round in 0..70 {
            let index = round * round % 10;
            let name = format!("{index}");
            match acquire(&engine, &mut a, &name, 100, at(0)) {
                Outcome::Granted(grant) => {
                    assert!(grant.fence > last[index]);
                    assert!(grant.fence <= fence(ceiling));
                    last[index] = grant.fence;
                    give_back(&engine, &mut a, &name, grant.fence, at(0));
                }
                Outcome::AtCeiling => is_at_ceiling = true,
                other => panic!("{other:?}"),
            }
        }
        assert!(!is_at_ceiling, "no key had more than fifty grants");
        ceiling += 50;
    }
}

#[test]
fn fences_end_at_two_to_the_53_and_do_not_overflow() {
    let max = Fence::MAX.get();
    let engine = locks_with(bounded(max - 2, max));
    let mut a = seat(&engine);
    for expected in [max - 1, max] {
        let grant = take(&engine, &mut a, "k", 10, at(0));
        assert_eq!(grant.fence, fence(expected));
        give_back(&engine, &mut a, "k", grant.fence, at(0));
    }
    assert_eq!(acquire(&engine, &mut a, "k", 10, at(0)), Outcome::AtCeiling);
    engine.raise_ceiling(0, Fence::MAX, at(0));
    assert_eq!(acquire(&engine, &mut a, "k", 10, at(0)), Outcome::AtCeiling);
    // Forgotten and found again, over and over: still nothing, and still no overflow.
    let mut now = 0;
    for _ in 0..100 {
        for _ in 0..3 {
            now += 200;
            advance(&engine, at(now));
        }
        assert_eq!(engine.keys(), 0);
        assert_eq!(
            acquire(&engine, &mut a, "k", 10, at(now)),
            Outcome::AtCeiling
        );
        assert_eq!(share(&engine, &mut a, "l", 10, at(now)), Outcome::AtCeiling);
    }
}

#[test]
fn a_floor_at_the_end_of_all_fences_grants_nothing() {
    let engine = locks_with(Settings {
        floor: Fence::MAX,
        ceiling: Fence::MAX,
        ..bounded(0, 0)
    });
    let mut a = seat(&engine);
    assert_eq!(acquire(&engine, &mut a, "k", 10, at(0)), Outcome::AtCeiling);
    let request = Acquire::exclusive(key("k"), 10);
    let (ticket, _) = queued(engine.acquire_or_wait(&mut a, &request, 10, || Some(1), at(0)));
    assert_eq!(engine.cancel(ticket, at(1)), Some(1));
}

#[test]
fn no_fence_is_granted_above_the_last() {
    assert_eq!(Fence::granted(Fence::MAX.get()), Some(Fence::MAX));
    assert_eq!(Fence::granted(Fence::MAX.get() + 1), None);
    assert_eq!(Fence::granted(u64::MAX), None);
}
