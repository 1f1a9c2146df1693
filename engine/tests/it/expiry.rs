//! The wheel at work in the engine: on time, in bounded steps, and every key forgotten in the end.

use crate::common::*;
use engine::{Acquire, Key, LAG_BUCKETS, Seat, Settings, Span, TTL_MS_MAX, Tick};

/// Works off one shard in calls of `budget` steps; says how many steps that took and the most
/// events of one call.
fn drain_in_steps(engine: &Locks, shard: usize, now: Tick, budget: u32) -> (u64, usize) {
    let (mut steps, mut events_max) = (0, 0);
    loop {
        let mut left = budget;
        let progress = engine.advance_shard(shard, now, &mut left);
        let events = engine.host().take().len();
        steps += u64::from(budget - left);
        events_max = events_max.max(events);
        if !progress.more {
            assert!(progress.next_due.is_none_or(|due| due > now));
            return (steps, events_max);
        }
        assert_eq!(left, 0, "it stopped early though there was more to do");
    }
}

#[test]
fn two_hundred_thousand_leases_of_one_second_expire_and_go_in_bounded_steps() {
    const LEASES: u64 = 200_000;
    const BUDGET: u32 = 500;
    let engine = locks_with(Settings {
        shards: 1,
        idle_ms: 1000,
        ..small()
    });
    let mut a = seat(&engine);
    for i in 0..LEASES {
        let name = i.to_le_bytes();
        let request = Acquire::exclusive(Key::new(&name).unwrap(), 10_000 + i % 1000);
        granted(engine.acquire(&mut a, &request, at(0)));
    }
    let (mut steps, _) = drain_in_steps(&engine, 0, at(1), BUDGET);
    let (more_steps, events) = drain_in_steps(&engine, 0, at(9_999), BUDGET);
    assert_eq!(events, 0, "not one expired early");
    steps += more_steps;
    let (more_steps, events) = drain_in_steps(&engine, 0, at(11_000), BUDGET);
    assert!(events <= BUDGET as usize, "{events} losses in one call");
    steps += more_steps;
    let lag = engine.expiry_lag().count();
    assert_eq!(lag, LEASES, "all of them expired");
    let (more_steps, _) = drain_in_steps(&engine, 0, at(13_000), BUDGET);
    steps += more_steps;
    assert_eq!(engine.keys(), 0, "and forgotten");
    // In the inbox once, cascaded twice or three times, expired, evicted.
    assert!(steps < 8 * LEASES, "{steps} steps");
}

#[test]
fn keys_with_waiters_expire_on_time_in_the_middle_of_a_burst() {
    let engine = locks_with(Settings {
        shards: 1,
        ..small()
    });
    let [mut a, mut b] = seats(&engine);
    for i in 0..1000u64 {
        let name = i.to_le_bytes();
        let key = Key::new(&name).unwrap();
        granted(engine.acquire(&mut a, &Acquire::exclusive(key, 100 + i), at(0)));
        if i % 10 == 0 {
            let request = Acquire::exclusive(key, 5000);
            queued(engine.acquire_or_wait(&mut b, &request, LONG_MS, || Some(i), at(0)));
        }
    }
    for now in 0..1100 {
        advance(&engine, at(now));
        let events = engine.host().take();
        // Through the tick it ends with, and not one longer.
        let due = now.checked_sub(101);
        let granted: Vec<u64> = events
            .iter()
            .filter_map(|event| match event {
                Event::Granted { waiter, grant } => {
                    assert_eq!(grant.until, at(now + 5000));
                    Some(*waiter)
                }
                _ => None,
            })
            .collect();
        let expected: Vec<u64> = due.into_iter().filter(|due| due % 10 == 0).collect();
        assert_eq!(granted, expected, "at {now}");
        assert_eq!(events.len() - granted.len(), usize::from(due.is_some()));
    }
}

#[test]
fn the_wheel_writes_down_how_late_it_was() {
    let engine = locks();
    let mut a = seat(&engine);
    assert_eq!(engine.expiry_lag().buckets, [0; LAG_BUCKETS]);
    // On time, 1 ms, 2 ms, 3 ms, 4 ms, 100 ms late, and a day late.
    let lags = [0, 1, 2, 3, 4, 100, 86_400_000];
    let mut now = 0;
    for late_ms in lags {
        take(&engine, &mut a, "k", 10, at(now));
        advance(&engine, at(now));
        now += 11 + late_ms;
        advance(&engine, at(now));
        a = Seat::new(engine.open_session(LONG_MS, at(now)).unwrap());
    }
    let mut expected = [0; LAG_BUCKETS];
    for (bucket, count) in [(0, 1), (1, 1), (2, 2), (3, 1), (7, 1), (LAG_BUCKETS - 1, 1)] {
        expected[bucket] = count;
    }
    assert_eq!(engine.expiry_lag().buckets, expected);
}

#[test]
fn the_lag_of_shared_leases_is_written_down_as_well() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    granted(share(&engine, &mut a, "k", 10, at(0)));
    granted(share(&engine, &mut b, "k", 20, at(0)));
    advance(&engine, at(11));
    advance(&engine, at(25));
    let lag = engine.expiry_lag().buckets;
    assert_eq!((lag[0], lag[3]), (1, 1), "{lag:?}");
    assert_eq!(lag.iter().sum::<u64>(), 2);
}

#[test]
fn a_new_grant_with_a_shorter_lease_than_the_wheel_is_armed_for_expires_on_time() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let long = take(&engine, &mut a, "k", LONG_MS, at(0));
    advance(&engine, at(1));
    give_back(&engine, &mut a, "k", long.fence, at(2));
    take(&engine, &mut b, "k", 50, at(3));
    advance(&engine, at(53));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(54));
    let events = engine.host().take();
    assert!(
        matches!(events[..], [Event::Lost { late_ms: 0, .. }]),
        "{events:?}"
    );
}

#[test]
fn a_waiter_with_a_shorter_lease_than_the_wheel_is_armed_for_expires_on_time() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let long = take(&engine, &mut a, "k", LONG_MS, at(0));
    wait(&engine, &mut b, "k", 50, 1, at(0));
    advance(&engine, at(1));
    give_back(&engine, &mut a, "k", long.fence, at(2));
    engine.host().take_grant();
    advance(&engine, at(52));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(53));
    assert_eq!(engine.host().take().len(), 1);
}

#[test]
fn an_idle_key_taken_again_for_a_moment_expires_on_time() {
    let engine = locks();
    let mut a = seat(&engine);
    let first = take(&engine, &mut a, "k", 100, at(0));
    advance(&engine, at(1));
    give_back(&engine, &mut a, "k", first.fence, at(2));
    // Long after its lease would have ended, and not yet forgotten.
    advance(&engine, at(5000));
    assert_eq!(engine.keys(), 1);
    take(&engine, &mut a, "k", 7, at(5001));
    advance(&engine, at(5008));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(5009));
    assert_eq!(engine.host().take().len(), 1);
}

#[test]
fn a_reader_who_joins_for_a_shorter_time_expires_on_time() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    granted(share(&engine, &mut a, "k", LONG_MS, at(0)));
    advance(&engine, at(1));
    granted(share(&engine, &mut b, "k", 50, at(2)));
    advance(&engine, at(52));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(53));
    assert_eq!(engine.host().take().len(), 1);
    assert_eq!(engine.query(key("k"), at(53)).unwrap().holders.len(), 1);
}

#[test]
fn a_free_key_is_forgotten_once_it_has_been_idle_for_long_enough() {
    let engine = locks_with(Settings {
        idle_ms: 500,
        ..small()
    });
    let mut a = seat(&engine);
    let released = take(&engine, &mut a, "released", 100, at(0));
    give_back(&engine, &mut a, "released", released.fence, at(1));
    take(&engine, &mut a, "expired", 100, at(0));
    take(&engine, &mut a, "held", LONG_MS, at(0));
    advance(&engine, at(100));
    advance(&engine, at(599));
    assert_eq!(engine.keys(), 3);
    advance(&engine, at(600));
    assert_eq!(engine.keys(), 1);
    assert_eq!(engine.query(key("released"), at(600)), None);
    assert_eq!(engine.query(key("expired"), at(600)), None);
    assert_eq!(engine.query(key("held"), at(600)).unwrap().holders.len(), 1);
}

#[test]
fn a_key_that_is_used_again_is_not_forgotten_before_its_time() {
    let engine = locks_with(Settings {
        idle_ms: 500,
        ..small()
    });
    let mut a = seat(&engine);
    for round in 0..20 {
        let grant = take(&engine, &mut a, "k", 100, at(round * 300));
        give_back(&engine, &mut a, "k", grant.fence, at(round * 300 + 1));
        advance(&engine, at(round * 300 + 299));
        assert_eq!(engine.keys(), 1);
    }
    advance(&engine, at(20 * 300 + 600));
    assert_eq!(engine.keys(), 0);
}

#[test]
fn keys_that_were_only_shared_or_waited_for_are_forgotten_too() {
    let engine = locks_with(Settings {
        idle_ms: 500,
        ..small()
    });
    let [mut a, mut b] = seats(&engine);
    granted(share(&engine, &mut a, "k", 100, at(0)));
    let request = Acquire::exclusive(key("k"), 100);
    queued(engine.acquire_or_wait(&mut b, &request, 50, || Some(1), at(0)));
    for now in [50, 100, 101, 102, 700] {
        advance(&engine, at(now));
    }
    assert_eq!(engine.keys(), 0);
    assert_eq!(engine.waiters(), 0);
}

#[test]
fn with_no_idle_time_a_key_goes_with_its_lease() {
    let engine = locks_with(Settings {
        idle_ms: 0,
        ..small()
    });
    let mut a = seat(&engine);
    take(&engine, &mut a, "k", 100, at(0));
    advance(&engine, at(100));
    assert_eq!(engine.keys(), 1);
    advance(&engine, at(101));
    assert_eq!(engine.keys(), 0);
}

#[test]
fn a_month_without_a_turn_of_the_wheel_is_made_up_for_at_once() {
    // The wheel compares ticks by 32 bits, which is 24 days to either side.
    const DAY_MS: u64 = 86_400_000;
    for days in [20, 24, 25, 30, 49, 50, 75, 400] {
        let engine = locks();
        let [mut a, mut b] = seats(&engine);
        take(&engine, &mut a, "timed", 100, at(0));
        granted(share(&engine, &mut b, "shared", 200, at(0)));
        advance(&engine, at(1));
        let now = at(days * DAY_MS);
        advance(&engine, now);
        assert_eq!(engine.query(key("timed"), now), None, "after {days} days");
        assert_eq!(engine.keys(), 1, "after {days} days");
        advance(&engine, now.plus_ms(1));
        advance(&engine, now.plus_ms(20_000));
        assert_eq!(engine.keys(), 0, "after {days} days");
    }
}

#[test]
fn next_due_is_never_later_than_what_is_due() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    take(&engine, &mut a, "k", 1000, at(0));
    let request = Acquire::exclusive(key("k"), 100);
    queued(engine.acquire_or_wait(&mut b, &request, 300, || Some(1), at(0)));
    // Go from one promised moment to the next: nothing comes late.
    let mut now = at(0);
    let mut seen = Vec::new();
    for _ in 0..100 {
        let progress = engine.advance(now, 1000);
        for event in engine.host().take() {
            seen.push((now.as_ms(), event));
        }
        if !progress.more {
            now = progress.next_due.unwrap().max(now.plus_ms(1));
        }
        if now > at(2000) {
            break;
        }
    }
    let when: Vec<u64> = seen.iter().map(|&(now, _)| now).collect();
    assert_eq!(when, [300, 1001], "{seen:?}");
}

/// A client is granted a lease somewhere within a tick, and ticks are cut to whole milliseconds.
/// Once a lease ended with the first moment of its last tick, up to a millisecond before its time.
#[test]
fn leases_and_sessions_last_through_their_last_tick_and_the_wheel_does_not_spin_meanwhile() {
    let engine = locks_with(Settings {
        shards: 1,
        ..small()
    });
    let [mut a, mut b, mut c] = seats(&engine);
    let short = engine.open_session(20, at(0)).unwrap();
    let plain = take(&engine, &mut a, "plain", 20, at(0));
    let shared = granted(share(&engine, &mut b, "shared", 20, at(0)));
    let wanted = take(&engine, &mut a, "wanted", 20, at(0));
    wait(&engine, &mut c, "wanted", 20, 1, at(1));
    let bound = Acquire {
        span: Span::Session,
        ..Acquire::exclusive(key("bound"), 1)
    };
    granted(engine.acquire(&mut Seat::new(short), &bound, at(0)));
    for grant in [plain, shared, wanted] {
        assert_eq!(at(0).ms_until(grant.until), 20, "shown as it was asked for");
    }
    advance(&engine, at(19));
    for _ in 0..3 {
        let mut left = 100;
        let progress = engine.advance_shard(0, at(20), &mut left);
        assert!(!progress.more && left >= 98, "{} steps", 100 - left);
        assert_eq!(progress.next_due, Some(at(21)));
        assert_eq!(
            engine.advance_sessions(at(20), &mut 100).next_due,
            Some(at(21))
        );
    }
    assert_eq!(engine.host().take(), [], "all of them last through 20");
    assert!(engine.is_open(short, at(20)));
    advance(&engine, at(21));
    let told = engine.host().take();
    let losses = told
        .iter()
        .filter(|event| matches!(event, Event::Lost { late_ms: 0, .. }));
    assert_eq!(losses.count(), 4, "{told:?}");
    assert!(told.contains(&Event::SessionEnded(short)), "{told:?}");
}

/// Found by reading: the record kept the session's first deadline, and the wheel came back for it
/// every millisecond.
#[test]
fn a_shared_lock_of_a_session_kept_alive_does_not_keep_the_wheel_busy() {
    let engine = locks_with(Settings {
        shards: 1,
        ..small()
    });
    let session = engine.open_session(100, at(0)).unwrap();
    let mut a = Seat::new(session);
    let request = Acquire {
        span: Span::Session,
        ..Acquire::shared(key("k"), 1)
    };
    granted(engine.acquire(&mut a, &request, at(0)));
    advance(&engine, at(1));
    assert_eq!(
        engine.keep_alive(session, 100_000, at(50)),
        Some(at(100_050))
    );
    let mut steps = 0;
    for now in 100..10_000 {
        let mut left = 1000;
        assert!(!engine.advance_shard(0, at(now), &mut left).more);
        steps += 1000 - left;
    }
    assert!(steps < 50, "{steps} steps for one lock that did not change");
    assert_eq!(engine.query(key("k"), at(10_000)).unwrap().holders.len(), 1);
    advance(&engine, at(100_050));
    assert_eq!(
        engine.query(key("k"), at(100_050)).unwrap().holders.len(),
        1
    );
}

#[test]
fn a_shard_belongs_to_one_thread_at_a_time_and_a_second_one_is_sent_away() {
    let engine = locks();
    let mut a = seat(&engine);
    for i in 0..1000 {
        take(&engine, &mut a, &i.to_string(), 10, at(0));
    }
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for now in 0..30 {
                    for shard in 0..engine.shard_count() {
                        while engine.advance_shard(shard, at(now), &mut 10).more {}
                    }
                }
            });
        }
    });
    advance(&engine, at(30));
    assert_eq!(engine.host().take().len(), 1000, "each was lost once");
}

#[test]
fn a_lease_that_is_waited_for_ends_on_time_however_many_others_are_due() {
    let engine = locks();
    let [mut holder, mut waiter] = seats(&engine);
    for number in 0..20_000 {
        take(&engine, &mut holder, &format!("k{number}"), 100, at(0));
    }
    take(&engine, &mut holder, "wanted", 100, at(0));
    advance(&engine, at(0));
    wait(&engine, &mut waiter, "wanted", 1_000, 1, at(1));
    let wake = |now| {
        for shard in 0..engine.shard_count() {
            engine.advance_waiters(shard, now, &mut 100);
        }
    };
    wake(at(100));
    assert_eq!(engine.host().take(), []);
    // The wheels were not turned.
    wake(at(101));
    let told = engine.host().take();
    assert!(
        matches!(
            &told[..],
            [Event::Lost { .. }, Event::Granted { waiter: 1, .. }]
        ),
        "{told:?}"
    );
}

#[test]
fn who_waits_behind_a_renewed_lease_goes_on_waiting_until_that_ends() {
    let engine = locks();
    let [mut holder, mut waiter] = seats(&engine);
    let grant = take(&engine, &mut holder, "k", 100, at(0));
    wait(&engine, &mut waiter, "k", 1_000, 1, at(1));
    engine.renew(&holder, key("k"), grant.fence, 500, at(50));
    for ms in [101, 300, 550] {
        advance(&engine, at(ms));
        assert_eq!(engine.host().take(), [], "at {ms}");
    }
    advance(&engine, at(551));
    assert_eq!(engine.host().take().len(), 2);
}

/// A lock without an end was shown with 2^32 ms left, or 2^38. It ends at neither, nor does a
/// longer one with an end: the wheel goes by low 32 bits, and only looks at it in vain.
#[test]
fn no_lease_ends_because_a_number_of_milliseconds_is_full() {
    const YEAR_MS: u64 = 365 * 24 * 3_600_000;
    let engine = locks();
    let session = engine.open_session(u64::MAX, at(0)).unwrap();
    let mut seat = Seat::new(session);
    let mut take = |name, span| {
        let request = Acquire {
            span,
            ..Acquire::exclusive(key(name), 1)
        };
        granted(engine.acquire(&mut seat, &request, at(0))).until
    };
    take("endless", Span::Forever);
    let long_end = take("long", Span::Ms(TTL_MS_MAX));
    let cut_end = take("cut", Span::Ms((1 << 32) + 1_000));
    let full = (1..=3).flat_map(|full| [(full << 32) - 1, full << 32, (full << 32) + 1]);
    let years = (1..8).map(|years| years * YEAR_MS);
    let mut moments: Vec<u64> = full
        .chain([cut_end.as_ms() - 1, long_end.as_ms() - 1])
        .chain(years)
        .chain([Tick::MAX.as_ms() - 1])
        .collect();
    moments.sort_unstable();
    for now in moments.into_iter().map(at) {
        advance(&engine, now);
        for (name, end) in [("endless", Tick::MAX), ("long", long_end), ("cut", cut_end)] {
            let state = engine.query(key(name), now);
            let is_held = state.is_some_and(|state| !state.holders.is_empty());
            assert_eq!(is_held, now < end, "{name} at {now:?}");
        }
    }
    let state = engine.query(key("endless"), at(YEAR_MS)).unwrap();
    assert_eq!(state.holders[0].end(), None);
    assert!(!state.holders[0].ends_with_session());
}
