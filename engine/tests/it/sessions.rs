//! Sessions: what ends with them, what lives by them, and which ids are none.

use crate::common::*;
use engine::{
    Acquire, GaveUp, Limit, Lost, Mode, NotHeld, Outcome, Renewal, Seat, SessionId, Settings, Span,
};

/// A lock that lives as long as its session.
fn session_bound(name: &str) -> Acquire<'_> {
    Acquire {
        span: Span::Session,
        ..Acquire::exclusive(key(name), 1)
    }
}

fn end(engine: &Locks, seats: &mut [&mut Seat], now: u64) {
    assert!(engine.end_session(seats[0].session()));
    for seat in seats {
        engine.vacate(seat, at(now));
    }
}

#[test]
fn ending_a_session_frees_all_it_holds_and_ends_all_its_waits() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    let metadata = Acquire {
        metadata: b"n",
        ..Acquire::exclusive(key("noted"), 500)
    };
    let reentrant = Acquire {
        reentrant: true,
        ..Acquire::exclusive(key("reentered"), 500)
    };
    take(&engine, &mut a, "plain", 500, at(0));
    granted(engine.acquire(&mut a, &metadata, at(0)));
    granted(engine.acquire(&mut a, &session_bound("bound"), at(0)));
    granted(engine.acquire(&mut a, &reentrant, at(0)));
    granted(engine.acquire(&mut a, &reentrant, at(0)));
    granted(share(&engine, &mut a, "shared", 500, at(0)));
    granted(share(&engine, &mut b, "shared", 500, at(0)));
    take(&engine, &mut b, "waited", LONG_MS, at(0));
    wait(&engine, &mut a, "waited", 100, 1, at(1));
    wait(&engine, &mut b, "plain", 100, 2, at(1));
    wait(&engine, &mut b, "noted", 100, 3, at(1));
    wait(&engine, &mut b, "bound", 100, 4, at(1));

    end(&engine, &mut [&mut a], 10);
    let events = engine.host().take();
    let mut granted: Vec<u64> = Vec::new();
    let mut lost: Vec<String> = Vec::new();
    for event in events {
        match event {
            Event::Granted { waiter, grant } => {
                assert_eq!(grant.until, at(110));
                granted.push(waiter);
            }
            Event::GaveUp { waiter, why } => {
                assert_eq!((waiter, why), (1, GaveUp::SessionEnded));
            }
            Event::Lost {
                key,
                owner,
                why,
                late_ms,
                ..
            } => {
                assert_eq!((owner, why, late_ms), (a.session(), Lost::SessionEnded, 0));
                lost.push(String::from_utf8(key).unwrap());
            }
            other => panic!("{other:?}"),
        }
    }
    granted.sort_unstable();
    lost.sort_unstable();
    assert_eq!(granted, [2, 3, 4]);
    assert_eq!(lost, ["bound", "noted", "plain", "reentered", "shared"]);

    assert_eq!(engine.waiters(), 0);
    let shared = engine.query(key("shared"), at(10)).unwrap();
    assert_eq!(shared.holders.len(), 1);
    assert_eq!(shared.holders[0].owner, Some(b.session()));
    take(&engine, &mut c, "reentered", 10, at(10));
}

#[test]
fn an_ended_session_gets_and_keeps_nothing() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let grant = take(&engine, &mut a, "k", 500, at(0));
    assert!(engine.is_open(a.session(), at(1)));
    assert!(engine.end_session(a.session()));
    assert!(!engine.end_session(a.session()), "ended once");
    assert!(!engine.is_open(a.session(), at(1)));

    assert_eq!(
        acquire(&engine, &mut a, "l", 10, at(1)),
        Outcome::SessionEnded
    );
    let request = Acquire::exclusive(key("l"), 10);
    assert_eq!(
        engine.acquire_or_wait(&mut a, &request, 10, || Some(1), at(1)),
        Outcome::SessionEnded
    );
    assert_not_renewed(
        engine.renew(&a, key("k"), grant.fence, 10, at(1)),
        NotHeld::SessionEnded,
    );
    assert_not_held(
        engine.release(&mut a, key("k"), grant.fence, at(1)),
        NotHeld::SessionEnded,
    );
    assert_eq!(
        engine.downgrade(&a, key("k"), grant.fence, at(1)),
        engine::Downgrade::NotHeld(NotHeld::SessionEnded)
    );
    assert_eq!(engine.keep_alive(a.session(), 100, at(1)), None);
    // Its seat has not been vacated: the next session that asks frees the key itself.
    take(&engine, &mut b, "k", 500, at(2));
    engine.vacate(&mut a, at(3));
    assert_eq!(engine.query(key("k"), at(3)).unwrap().holders.len(), 1);
}

#[test]
fn a_living_session_is_not_vacated() {
    let engine = locks();
    let mut a = seat(&engine);
    take(&engine, &mut a, "k", 500, at(0));
    engine.vacate(&mut a, at(1));
    assert_eq!(engine.query(key("k"), at(1)).unwrap().holders.len(), 1);
    // And what it took is not forgotten.
    end(&engine, &mut [&mut a], 2);
    assert_eq!(engine.query(key("k"), at(2)).unwrap().holders, []);
}

#[test]
fn each_seat_frees_what_was_taken_through_it() {
    let engine = locks();
    let mut first = seat(&engine);
    let mut second = Seat::new(first.session());
    take(&engine, &mut first, "one", 500, at(0));
    take(&engine, &mut second, "two", 500, at(0));
    engine.end_session(first.session());
    engine.vacate(&mut first, at(2));
    assert_eq!(lost_keys(&engine), [b"one"]);
    engine.vacate(&mut second, at(2));
    assert_eq!(lost_keys(&engine), [b"two"]);
}

/// The keys that were lost since the last call, in order.
fn lost_keys(engine: &Locks) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = engine
        .host()
        .take()
        .into_iter()
        .map(|event| match event {
            Event::Lost { key, .. } => key,
            other => panic!("{other:?}"),
        })
        .collect();
    keys.sort_unstable();
    keys
}

#[test]
fn ten_thousand_locks_of_one_session_go_with_it() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    for i in 0..10_000 {
        let name = format!("{i}");
        match i % 3 {
            0 => drop(take(&engine, &mut a, &name, LONG_MS, at(0))),
            1 => drop(granted(share(&engine, &mut a, &name, LONG_MS, at(0)))),
            _ => drop(granted(engine.acquire(
                &mut a,
                &session_bound(&name),
                at(0),
            ))),
        }
    }
    // Those of another session stay.
    take(&engine, &mut b, "mine", LONG_MS, at(0));
    end(&engine, &mut [&mut a], 1);
    assert_eq!(lost_keys(&engine).len(), 10_000);
    assert_eq!(engine.query(key("mine"), at(1)).unwrap().holders.len(), 1);
    engine.vacate(&mut a, at(2));
    assert_eq!(engine.host().take(), [], "nothing is left to do");
}

#[test]
fn what_was_handed_to_a_waiter_goes_with_its_session() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    let first = take(&engine, &mut a, "k", 500, at(0));
    wait(&engine, &mut b, "k", LONG_MS, 1, at(0));
    wait(&engine, &mut c, "k", LONG_MS, 2, at(0));
    give_back(&engine, &mut a, "k", first.fence, at(1));
    assert_eq!(engine.host().take_grant().0, 1);
    end(&engine, &mut [&mut b], 2);
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
fn a_keep_alive_extends_all_session_bound_locks_in_one_step() {
    let engine = locks();
    let session = engine.open_session(100, at(0)).unwrap();
    let mut a = Seat::new(session);
    let mut names: Vec<String> = Vec::new();
    for i in 0..1000 {
        let name = format!("{i}");
        let request = Acquire {
            mode: if i % 2 == 0 {
                Mode::Exclusive
            } else {
                Mode::Shared
            },
            ..session_bound(&name)
        };
        assert_eq!(
            granted(engine.acquire(&mut a, &request, at(0))).until,
            at(100)
        );
        names.push(name);
    }
    let mut now = 0;
    for _ in 0..10 {
        now += 90;
        assert_eq!(
            engine.keep_alive(session, 100, at(now)),
            Some(at(now + 100))
        );
        advance(&engine, at(now));
        for name in &names {
            let state = engine.query(key(name), at(now)).unwrap();
            assert_eq!(state.holders[0].until, at(now + 100), "{name} at {now}");
            assert!(state.holders[0].is_session_bound);
        }
    }
    assert_eq!(engine.host().take(), []);
    // And all end with it.
    advance(&engine, at(now + 100));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(now + 101));
    let lost = engine.host().take();
    assert_eq!(lost.len(), 1 + 1000, "the session and its locks");
    for event in lost {
        match event {
            Event::SessionEnded(ended) => assert_eq!(ended, session),
            Event::Lost { why, late_ms, .. } => {
                assert_eq!((why, late_ms), (Lost::SessionEnded, 0));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_keep_alive_never_shortens_a_session() {
    let engine = locks();
    let session = engine.open_session(1000, at(0)).unwrap();
    assert_eq!(engine.keep_alive(session, 10, at(1)), Some(at(1000)));
    assert!(engine.is_open(session, at(1000)));
    assert!(!engine.is_open(session, at(1001)));
    assert_eq!(engine.keep_alive(session, 10, at(1001)), None);
}

#[test]
fn a_renewal_of_a_session_bound_lock_says_when_the_session_ends() {
    let engine = locks();
    let mut a = Seat::new(engine.open_session(1000, at(0)).unwrap());
    let grant = granted(engine.acquire(&mut a, &session_bound("k"), at(0)));
    assert_eq!(
        engine.renew(&a, key("k"), grant.fence, 5, at(1)),
        Renewal::Renewed { until: at(1000) }
    );
    advance(&engine, at(999));
    assert_eq!(engine.query(key("k"), at(999)).unwrap().holders.len(), 1);
}

#[test]
fn a_waiter_may_ask_for_a_lock_as_long_as_its_session() {
    let engine = locks();
    let mut a = seat(&engine);
    let mut b = Seat::new(engine.open_session(1000, at(0)).unwrap());
    let first = take(&engine, &mut a, "k", 500, at(0));
    queued(engine.acquire_or_wait(&mut b, &session_bound("k"), 500, || Some(1), at(1)));
    give_back(&engine, &mut a, "k", first.fence, at(2));
    assert_eq!(engine.host().take_grant().1.until, at(1000));
    assert_eq!(
        engine.keep_alive(b.session(), 1000, at(900)),
        Some(at(1900))
    );
    advance(&engine, at(1900));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(1901));
    assert_eq!(engine.host().take().len(), 2);
}

#[test]
fn a_lock_with_its_own_ttl_does_not_outlive_its_session() {
    let engine = locks();
    let mut a = Seat::new(engine.open_session(100, at(0)).unwrap());
    let [mut b, mut c] = seats(&engine);
    take(&engine, &mut a, "k", LONG_MS, at(0));
    take(&engine, &mut a, "l", LONG_MS, at(0));
    wait(&engine, &mut b, "l", 10, 1, at(1));
    advance(&engine, at(1));
    held(acquire(&engine, &mut c, "k", 10, at(100)));
    take(&engine, &mut c, "k", 10, at(101));
    assert_eq!(lost_keys(&engine), [b"k"]);
    advance(&engine, at(101));
    assert_eq!(engine.host().take(), [Event::SessionEnded(a.session())]);
    // Told of it, the host vacates the seat, and the waiter is served.
    engine.vacate(&mut a, at(101));
    let events = engine.host().take();
    assert!(
        matches!(
            events[..],
            [
                Event::Lost {
                    why: Lost::SessionEnded,
                    ..
                },
                Event::Granted { waiter: 1, .. }
            ]
        ),
        "{events:?}"
    );
}

#[test]
fn the_wheel_ends_sessions_on_time_and_tells_the_host_once() {
    let engine = locks();
    let short = engine.open_session(50, at(0)).unwrap();
    let long = engine.open_session(100, at(0)).unwrap();
    advance(&engine, at(50));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(51));
    assert_eq!(engine.host().take(), [Event::SessionEnded(short)]);
    advance(&engine, at(100));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(101));
    assert_eq!(engine.host().take(), [Event::SessionEnded(long)]);
    assert_eq!(engine.sessions(), 2, "until they are forgotten");
    assert!(engine.forget_session(short) && engine.forget_session(long));
    assert_eq!(engine.sessions(), 0);
}

#[test]
fn ten_thousand_sessions_end_in_bounded_steps() {
    let engine = locks();
    for _ in 0..10_000 {
        engine.open_session(50, at(0)).unwrap();
    }
    let mut told = 0;
    loop {
        let more = engine.advance_sessions(at(51), &mut 100).more;
        let events = engine.host().take().len();
        assert!(events <= 100);
        told += events;
        if !more {
            break;
        }
    }
    assert_eq!(told, 10_000);
}

#[test]
fn as_many_sessions_are_open_as_may_be() {
    let engine = locks_with(Settings {
        sessions_max: 3,
        ..small()
    });
    let sessions: Vec<SessionId> = (0..3)
        .map(|_| engine.open_session(100, at(0)).unwrap())
        .collect();
    assert_eq!(engine.open_session(100, at(0)), Err(Limit::Sessions));
    assert!(!engine.forget_session(sessions[1]), "it lives");
    assert!(engine.end_session(sessions[1]));
    assert_eq!(engine.open_session(100, at(0)), Err(Limit::Sessions));
    assert!(engine.forget_session(sessions[1]));
    assert!(!engine.forget_session(sessions[1]), "once");
    let new = engine.open_session(100, at(0)).unwrap();
    assert!(!sessions.contains(&new), "an id is not given out twice");
    assert!(!engine.is_open(sessions[1], at(0)));
}

#[test]
fn locks_of_a_session_forgotten_too_early_are_void_all_the_same() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    take(&engine, &mut a, "k", 500, at(0));
    take(&engine, &mut a, "l", 500, at(0));
    engine.end_session(a.session());
    engine.forget_session(a.session());
    // Another session moves into its place, and does not own what it finds there.
    let mut next = seat(&engine);
    assert_ne!(next.session(), a.session());
    assert_eq!(
        held_by(&engine, "k"),
        None,
        "the new one holds nothing of the old"
    );
    take(&engine, &mut b, "k", 500, at(1));
    engine.vacate(&mut a, at(2));
    take(&engine, &mut next, "l", 500, at(3));
}

fn held_by(engine: &Locks, name: &str) -> Option<SessionId> {
    let state = engine.query(key(name), at(1))?;
    state.holders.first()?.owner
}

#[test]
fn ids_that_were_never_given_out_are_no_sessions() {
    let engine = locks();
    let real = engine.open_session(LONG_MS, at(0)).unwrap();
    let mut owner = Seat::new(real);
    let grant = take(&engine, &mut owner, "k", LONG_MS, at(0));
    let before = engine.query(key("k"), at(1));
    let bits = real.get();
    let forged = [
        0,
        1,
        bits + 1,
        bits - 1,
        bits + (1 << 32),
        bits - (1 << 32),
        // The generation has 24 bits inside: one that differs above them is another id and no
        // session.
        bits + (1 << 56),
        bits | (1 << 63),
        u64::MAX,
        u64::from(u32::MAX),
    ];
    for bits in forged {
        let id = SessionId::from_bits(bits);
        assert_eq!(id.get(), bits);
        assert!(!engine.is_open(id, at(1)), "{bits:#x}");
        assert_eq!(engine.keep_alive(id, 100, at(1)), None, "{bits:#x}");
        assert!(!engine.end_session(id), "{bits:#x}");
        assert!(!engine.forget_session(id), "{bits:#x}");
        let mut seat = Seat::new(id);
        assert_eq!(
            acquire(&engine, &mut seat, "l", 10, at(1)),
            Outcome::SessionEnded
        );
        let request = Acquire::exclusive(key("k"), 10);
        assert_eq!(
            engine.acquire_or_wait(&mut seat, &request, 10, || Some(1), at(1)),
            Outcome::SessionEnded
        );
        assert_not_held(
            engine.release(&mut seat, key("k"), grant.fence, at(1)),
            NotHeld::SessionEnded,
        );
        assert_not_renewed(
            engine.renew(&seat, key("k"), grant.fence, 10, at(1)),
            NotHeld::SessionEnded,
        );
        engine.vacate(&mut seat, at(1));
    }
    assert_eq!(engine.query(key("k"), at(1)), before);
    assert_eq!(engine.query(key("l"), at(1)), None);
    assert!(engine.is_open(real, at(1)));
}

#[test]
fn a_session_opened_for_no_time_at_all_is_over_with_its_first_tick() {
    let engine = locks();
    let mut a = Seat::new(engine.open_session(0, at(5)).unwrap());
    assert!(!engine.is_open(a.session(), at(6)));
    assert_eq!(
        acquire(&engine, &mut a, "k", 10, at(6)),
        Outcome::SessionEnded
    );
    advance(&engine, at(6));
    assert_eq!(engine.host().take(), [Event::SessionEnded(a.session())]);
}

#[test]
fn a_session_for_ever_lasts_to_the_end_of_time() {
    let engine = locks();
    let mut a = Seat::new(engine.open_session(u64::MAX, at(5)).unwrap());
    granted(engine.acquire(&mut a, &session_bound("k"), at(5)));
    // A year later, in steps of a day.
    for day in 1..=365 {
        advance(&engine, at(day * 86_400_000));
    }
    assert_eq!(engine.host().take(), []);
    assert_eq!(held_by(&engine, "k"), Some(a.session()));
    assert!(engine.is_open(a.session(), engine::Tick::from_ms((1 << 38) - 3)));
    assert!(!engine.is_open(a.session(), engine::Tick::MAX));
}
