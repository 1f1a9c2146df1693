//! Bad input: a typed refusal, no panic, and nothing has changed.

use crate::common::*;
use engine::{
    Acquire, Downgrade, Fence, Invalid, Key, Limit, LimitError, NOTE_BYTES_MAX, NotHeld, Outcome,
    Renewal, Seat, Settings, Span, TTL_MS_MAX, Tick, WAIT_MS_MAX,
};

#[test]
fn a_key_has_1_to_256_bytes() {
    assert_eq!(Key::new(b""), Err(LimitError::Empty { field: "key" }));
    assert_eq!(
        Key::new(&[0; 257]),
        Err(LimitError::TooLong {
            field: "key",
            bytes: 257,
            bytes_max: 256
        })
    );
    let engine = locks();
    let mut a = seat(&engine);
    for length in 1..=256 {
        // All zeros, which differ by their length only.
        let bytes = vec![0; length];
        let key = Key::new(&bytes).unwrap();
        granted(engine.acquire(&mut a, &Acquire::exclusive(key, 100), at(0)));
    }
    assert_eq!(engine.keys(), 256);
}

#[test]
fn a_lease_lasts_a_millisecond_to_a_day() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let grant = take(&engine, &mut a, "held", 100, at(0));
    let before = engine.query(key("held"), at(1));
    for ttl_ms in [0, TTL_MS_MAX + 1, u64::MAX] {
        let invalid = Invalid::Ttl { ttl_ms };
        for name in ["held", "free"] {
            let request = Acquire::exclusive(key(name), ttl_ms);
            assert_eq!(
                engine.acquire(&mut b, &request, at(1)),
                Outcome::Invalid(invalid)
            );
            assert_eq!(
                engine.acquire_or_wait(&mut b, &request, 10, || Some(1), at(1)),
                Outcome::Invalid(invalid)
            );
        }
        assert_eq!(
            engine.renew(&a, key("held"), grant.fence, ttl_ms, at(1)),
            Renewal::Invalid(invalid)
        );
    }
    assert_eq!(engine.query(key("held"), at(1)), before);
    assert_eq!(engine.query(key("free"), at(1)), None);
    assert_eq!(engine.waiters(), 0);

    take(&engine, &mut a, "shortest", 1, at(1));
    take(&engine, &mut a, "longest", TTL_MS_MAX, at(1));
    assert_eq!(
        engine.renew(&a, key("longest"), fence(1), TTL_MS_MAX, at(2)),
        Renewal::Renewed {
            until: at(TTL_MS_MAX + 2)
        }
    );
}

#[test]
fn a_wait_lasts_a_millisecond_to_a_day() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    take(&engine, &mut a, "held", LONG_MS, at(0));
    let before = engine.query(key("held"), at(1));
    for wait_ms in [0, WAIT_MS_MAX + 1, u64::MAX] {
        for name in ["held", "free"] {
            let request = Acquire::exclusive(key(name), 10);
            assert_eq!(
                engine.acquire_or_wait(&mut b, &request, wait_ms, || Some(1), at(1)),
                Outcome::Invalid(Invalid::Wait { wait_ms })
            );
        }
    }
    assert_eq!(engine.query(key("held"), at(1)), before);
    assert_eq!(engine.query(key("free"), at(1)), None);
    let request = Acquire::exclusive(key("held"), 10);
    queued(engine.acquire_or_wait(&mut b, &request, 1, || Some(1), at(1)));
    queued(engine.acquire_or_wait(&mut b, &request, WAIT_MS_MAX, || Some(2), at(1)));
}

#[test]
fn metadata_has_a_limit() {
    let engine = locks();
    let mut a = seat(&engine);
    let metadata = [0; NOTE_BYTES_MAX + 1];
    let request = Acquire {
        metadata: &metadata,
        ..Acquire::exclusive(key("k"), 10)
    };
    let invalid = Outcome::Invalid(Invalid::Metadata {
        metadata_bytes: NOTE_BYTES_MAX + 1,
    });
    assert_eq!(engine.acquire(&mut a, &request, at(0)), invalid);
    assert_eq!(
        engine.acquire_or_wait(&mut a, &request, 10, || Some(1), at(0)),
        invalid
    );
    assert_eq!(engine.query(key("k"), at(0)), None);
}

#[test]
fn a_fence_that_was_never_granted_opens_nothing() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    // In the words, in a record, with a line behind it, free, and not there at all.
    let plain = take(&engine, &mut a, "plain", LONG_MS, at(0));
    let shared = granted(share(&engine, &mut a, "shared", LONG_MS, at(0)));
    let queued = take(&engine, &mut a, "queued", LONG_MS, at(0));
    wait(&engine, &mut b, "queued", 100, 1, at(0));
    let free = take(&engine, &mut a, "free", LONG_MS, at(0));
    give_back(&engine, &mut a, "free", free.fence, at(0));
    for (name, last, why) in [
        ("plain", plain.fence, NotHeld::OtherFence),
        ("shared", shared.fence, NotHeld::OtherFence),
        ("queued", queued.fence, NotHeld::OtherFence),
        ("free", free.fence, NotHeld::Never),
        ("absent", Fence::ZERO, NotHeld::Free),
    ] {
        let before = engine.query(key(name), at(1));
        let never = [
            0,
            last.get() + 1,
            last.get() + (1 << 24),
            Fence::MAX.get(),
            // More than the lock word has room for.
            last.get() + (1 << 60),
            u64::MAX,
        ];
        for never in never.map(fence) {
            // What lies below the last fence may have been granted and forgotten.
            let why = match why {
                NotHeld::Never if never < last => NotHeld::Free,
                why => why,
            };
            assert_not_held(engine.release(&mut a, key(name), never, at(1)), why);
            assert_not_renewed(engine.renew(&a, key(name), never, 100, at(1)), why);
            assert_eq!(
                engine.downgrade(&a, key(name), never, at(1)),
                Downgrade::NotHeld(why)
            );
            assert_not_held(engine.release(&mut c, key(name), never, at(1)), why);
            assert!(!engine.force_release(key(name), never, at(1)));
        }
        assert_eq!(engine.query(key(name), at(1)), before, "{name}");
    }
    assert_eq!(engine.host().take(), []);
    assert_eq!(engine.waiters(), 1);
    assert_eq!(engine.keys(), 4, "asking makes no cell");
}

/// The lease is tagged with 24 bits of its fence: one that agrees in these is still another fence.
#[test]
fn a_fence_that_differs_above_24_bits_only_is_another_fence() {
    let engine = locks_with(Settings {
        floor: fence(5 << 24),
        ..small()
    });
    let mut a = seat(&engine);
    let grant = take(&engine, &mut a, "k", 100, at(0));
    for other in [
        grant.fence.get() - (1 << 24),
        grant.fence.get() + (1 << 24),
        grant.fence.get() & 0xff_ffff,
    ] {
        assert_not_renewed(
            engine.renew(&a, key("k"), fence(other), 100, at(1)),
            NotHeld::OtherFence,
        );
        assert_not_held(
            engine.release(&mut a, key("k"), fence(other), at(1)),
            NotHeld::OtherFence,
        );
    }
    assert_eq!(
        engine.query(key("k"), at(1)).unwrap().holders[0].until,
        at(100)
    );
}

#[test]
fn a_ticket_of_the_past_cancels_no_other_wait() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    let first = take(&engine, &mut a, "k", LONG_MS, at(0));
    let mut old = Vec::new();
    // Cancelled, granted and timed out: places that others will stand in.
    let ticket = wait(&engine, &mut b, "k", 100, 1, at(0));
    assert_eq!(engine.cancel(ticket, at(1)), Some(1));
    old.push(ticket);
    old.push(wait(&engine, &mut b, "k", 100, 2, at(1)));
    give_back(&engine, &mut a, "k", first.fence, at(2));
    let (_, second) = engine.host().take_grant();
    let request = Acquire::exclusive(key("k"), 100);
    old.push(queued(engine.acquire_or_wait(&mut c, &request, 10, || Some(3), at(2))).0);
    advance(&engine, at(12));
    assert_eq!(engine.host().take().len(), 1, "timed out");

    let new: Vec<_> = (10..15)
        .map(|waiter| wait(&engine, &mut c, "k", 100, waiter, at(13)))
        .collect();
    let before = engine.query(key("k"), at(13));
    for ticket in old {
        assert_eq!(engine.cancel(ticket, at(13)), None);
    }
    assert_eq!(engine.query(key("k"), at(13)), before);
    for (waiter, ticket) in (10..).zip(new) {
        assert_eq!(engine.cancel(ticket, at(14)), Some(waiter));
    }
    give_back(&engine, &mut b, "k", second.fence, at(15));
}

#[test]
fn a_ticket_of_another_engine_does_no_harm() {
    let engine = locks_with(Settings {
        shards: 256,
        ..small()
    });
    let [mut a, mut b] = seats(&engine);
    let mut tickets = Vec::new();
    for i in 0..100 {
        let name = format!("{i}");
        take(&engine, &mut a, &name, 100, at(0));
        for waiter in 0..3 {
            tickets.push(wait(&engine, &mut b, &name, 100, waiter, at(0)));
        }
    }
    let other = locks_with(Settings {
        shards: 1,
        ..small()
    });
    for ticket in tickets {
        assert_eq!(other.cancel(ticket, at(1)), None);
    }
}

#[test]
fn a_full_table_answers_busy_and_takes_keys_again_once_others_are_forgotten() {
    let engine = locks_with(Settings {
        shards: 1,
        keys_max: 8,
        idle_ms: 100,
        ..small()
    });
    let mut a = seat(&engine);
    let mut taken = 0;
    while let Outcome::Granted(_) = acquire(&engine, &mut a, &format!("{taken}"), 50, at(0)) {
        taken += 1;
    }
    // A shard may hold an eighth more than its share.
    assert_eq!(taken, 9);
    let busy = Outcome::Busy(Limit::Keys);
    for _ in 0..100 {
        assert_eq!(acquire(&engine, &mut a, "one more", 50, at(1)), busy);
        assert_eq!(share(&engine, &mut a, "one more", 50, at(1)), busy);
    }
    let request = Acquire::exclusive(key("one more"), 50);
    assert_eq!(
        engine.acquire_or_wait(&mut a, &request, 50, || Some(1), at(1)),
        busy
    );
    assert_eq!(engine.waiters(), 0);
    assert_eq!(engine.keys(), 9);
    // The keys that are in are served as ever.
    let grant = take(&engine, &mut a, "0", 50, at(51));
    give_back(&engine, &mut a, "0", grant.fence, at(52));
    for now in [53, 200, 300] {
        advance(&engine, at(now));
    }
    assert_eq!(engine.keys(), 0);
    for i in 0..9 {
        take(&engine, &mut a, &format!("new {i}"), 50, at(301));
    }
    assert_eq!(acquire(&engine, &mut a, "one more", 50, at(301)), busy);
}

#[test]
fn an_engine_with_no_room_at_all_answers_busy() {
    let engine = locks_with(Settings {
        keys_max: 0,
        sessions_max: 1,
        waiters_max: 0,
        ..small()
    });
    let mut a = seat(&engine);
    assert_eq!(
        acquire(&engine, &mut a, "k", 10, at(0)),
        Outcome::Busy(Limit::Keys)
    );
    assert_eq!(engine.open_session(10, at(0)), Err(Limit::Sessions));
    advance(&engine, at(1));
}

#[test]
fn an_odd_number_of_shards_is_rounded_and_bounded() {
    for (asked, expected) in [(0, 1), (1, 1), (3, 4), (64, 64), (1000, 256)] {
        let engine = locks_with(Settings {
            shards: asked,
            ..small()
        });
        assert_eq!(engine.shard_count(), expected);
        let mut a = seat(&engine);
        take(&engine, &mut a, "k", 10, at(0));
    }
}

#[test]
fn at_the_end_of_time_leases_end_and_nothing_wraps_round() {
    let max = Tick::MAX;
    let before = |ms| Tick::from_ms(max.as_ms() - ms);
    let engine = locks_with(Settings {
        now: before(1000),
        ..small()
    });
    let open = || Seat::new(engine.open_session(LONG_MS, before(1000)).unwrap());
    let (mut a, mut b, mut c) = (open(), open(), open());
    // All of these would end beyond the last tick; they end at it.
    let grant = take(&engine, &mut a, "k", TTL_MS_MAX, before(500));
    assert_eq!(grant.until, max);
    assert_eq!(
        granted(share(&engine, &mut a, "s", TTL_MS_MAX, before(500))).until,
        max
    );
    let bound = Acquire {
        span: Span::Session,
        ..Acquire::exclusive(key("b"), 1)
    };
    assert_eq!(
        granted(engine.acquire(&mut a, &bound, before(500))).until,
        max
    );
    wait(&engine, &mut b, "k", TTL_MS_MAX, 1, before(400));
    assert_eq!(
        engine.renew(&a, key("k"), grant.fence, TTL_MS_MAX, before(300)),
        Renewal::Renewed { until: max }
    );
    assert_eq!(
        engine.keep_alive(a.session(), LONG_MS, before(300)),
        Some(max)
    );
    advance(&engine, before(1));
    assert_eq!(engine.host().take(), []);
    held(acquire(&engine, &mut c, "k", 10, before(1)));
    // The last tick there is. Every session is over, so nothing is granted any more.
    for _ in 0..5 {
        advance(&engine, max);
    }
    assert_eq!(
        acquire(&engine, &mut c, "k", 10, max),
        Outcome::SessionEnded
    );
    let lost = engine.host().take();
    let losses = lost
        .iter()
        .filter(|event| matches!(event, Event::Lost { .. }));
    assert_eq!(losses.count(), 3, "{lost:?}");
    assert_eq!(engine.waiters(), 0);
    assert_eq!(engine.keys(), 0);
}

#[test]
fn a_session_opened_at_the_last_tick_is_over_and_advance_comes_to_an_end() {
    let engine = locks_with(Settings {
        now: Tick::MAX,
        ..small()
    });
    let mut a = Seat::new(engine.open_session(u64::MAX, Tick::MAX).unwrap());
    assert_eq!(
        acquire(&engine, &mut a, "k", 10, Tick::MAX),
        Outcome::SessionEnded
    );
    advance(&engine, Tick::MAX);
    assert_eq!(engine.host().take(), [Event::SessionEnded(a.session())]);
}

#[test]
fn an_owner_that_this_engine_does_not_know_gets_nothing_and_changes_nothing() {
    let engine = locks();
    let mut a = seat(&engine);
    let grant = take(&engine, &mut a, "k", 1000, at(0));
    // Sessions of another engine: one in a place that is taken here, one in a place that is not.
    let other = locks();
    let strangers: [Seat; 2] = seats(&other);
    let mut gone = seat(&other);
    other.end_session(gone.session());
    other.vacate(&mut gone, at(0));
    for mut stranger in strangers.into_iter().chain([gone]) {
        if stranger.session() == a.session() {
            continue;
        }
        let free = Acquire::exclusive(key("free"), 1000);
        assert_eq!(
            engine.acquire(&mut stranger, &free, at(1)),
            Outcome::SessionEnded
        );
        let waiting = Acquire::exclusive(key("k"), 1000);
        assert_eq!(
            engine.acquire_or_wait(&mut stranger, &waiting, 1000, || Some(1), at(1)),
            Outcome::SessionEnded
        );
        assert_not_renewed(
            engine.renew(&stranger, key("k"), grant.fence, 1000, at(1)),
            NotHeld::SessionEnded,
        );
        assert_not_held(
            engine.release(&mut stranger, key("k"), grant.fence, at(1)),
            NotHeld::SessionEnded,
        );
        assert_eq!(
            engine.downgrade(&stranger, key("k"), grant.fence, at(1)),
            Downgrade::NotHeld(NotHeld::SessionEnded)
        );
    }
    let state = engine.query(key("k"), at(1)).unwrap();
    assert_eq!(state.holders[0].owner, Some(a.session()));
    assert_eq!((state.queue_length, engine.keys()), (0, 1));
    give_back(&engine, &mut a, "k", grant.fence, at(2));
}
