//! Locks that outlive a restart: restored from a log, or claimed by their holders before anything
//! new is granted.

use crate::common::{
    Event, LONG_MS, Locks, acquire, advance, at, fence, give_back, granted, held, key, locks_with,
    seat, seats, share, small, take, wait,
};
use engine::{
    Acquire, Claimed, Cursor, Fence, Grant, Host, Invalid, Limit, Lost, Mode, NotHeld, OldHold,
    Outcome, Release, Renewal, Settings, Span,
};

const FLOOR: u64 = 1_000;

/// An engine after a restart. As long as its ceilings are not raised it grants nothing.
fn restarted() -> Locks {
    locks_with(Settings {
        floor: fence(FLOOR),
        ceiling: fence(FLOOR),
        ..small()
    })
}

fn open_up(engine: &Locks) {
    for shard in 0..engine.shard_count() {
        engine.raise_ceiling(shard, fence(FLOOR + 1_000), at(1));
    }
}

fn old(name: &str, number: u64) -> OldHold<'_> {
    OldHold {
        key: key(name),
        fence: fence(number),
        mode: Mode::Exclusive,
        span: Span::Ms(1_000),
        count: 1,
        held_ms: 50,
        metadata: b"",
    }
}

#[track_caller]
fn claimed(outcome: Claimed) -> Grant {
    match outcome {
        Claimed::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

/// Keys fall into shards by a hash that is another one after every start, and operators change
/// limits. Once a server with a small `keys_max` could not start again with what it had held.
#[test]
fn as_much_is_restored_as_was_held_whatever_the_limits_and_wherever_it_falls() {
    const HELD: u64 = 200;
    let name = |number: u64| format!("{number:0>200}");
    for hash_seed in 0..20 {
        let engine = locks_with(Settings {
            shards: 64,
            keys_max: 64,
            keys_restored: HELD,
            bytes_max: 1 << 10,
            hash_seed: Some(hash_seed),
            floor: fence(FLOOR),
            ..small()
        });
        let mut holder = seat(&engine);
        for number in 1..=HELD {
            let name = name(number);
            let old = OldHold {
                // Short metadata and long ones.
                metadata: &[b'n'; 1024][..number as usize * 5],
                ..old(&name, number)
            };
            assert_eq!(engine.restore(&mut holder, &old, at(0)), Ok(true));
        }
        engine.finish_restoring();
        assert_eq!(engine.keys(), HELD);
        for number in 1..=HELD {
            let name = name(number);
            let found = engine.query(key(&name), at(1)).unwrap();
            let found = &found.holders[0];
            let metadata_bytes = number as usize * 5;
            assert_eq!(
                (found.fence, found.metadata.len()),
                (fence(number), metadata_bytes)
            );
        }
        // For new keys the limits are what they were.
        let mut taken = 0;
        for number in 0..1_000 {
            match acquire(&engine, &mut holder, &format!("{number}"), 100, at(1)) {
                Outcome::Granted(_) => taken += 1,
                outcome => assert_eq!(outcome, Outcome::Busy(Limit::Keys)),
            }
        }
        assert!(taken <= 64, "{taken} keys beside what was restored");
    }
}

#[test]
fn what_is_restored_is_held_under_its_old_fence_and_the_next_grant_is_above_the_floor() {
    let engine = restarted();
    let [mut holder, mut other] = seats(&engine);
    assert_eq!(engine.restore(&mut holder, &old("k", 7), at(0)), Ok(true));
    open_up(&engine);
    let seen = held(acquire(&engine, &mut other, "k", 100, at(1)));
    assert_eq!((seen.fence, seen.held_ms), (fence(7), 51));
    let renewal = engine.renew(&holder, key("k"), fence(7), 2_000, at(2));
    assert_eq!(renewal, Renewal::Renewed { until: at(2_002) });
    give_back(&engine, &mut holder, "k", fence(7), at(3));
    let next = take(&engine, &mut other, "k", 100, at(4));
    assert!(next.fence > fence(FLOOR), "{next:?}");
}

#[test]
fn a_restored_lock_expires_on_time_and_goes_to_who_waits() {
    let engine = restarted();
    let [mut holder, mut other] = seats(&engine);
    engine.restore(&mut holder, &old("k", 7), at(0)).unwrap();
    open_up(&engine);
    wait(&engine, &mut other, "k", 100, 1, at(1));
    advance(&engine, at(999));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(1_001));
    let told = engine.host().take();
    assert!(
        matches!(&told[..], [Event::Lost { why: Lost::Expired, .. }, Event::Granted { waiter: 1, grant }]
            if grant.fence > fence(FLOOR)),
        "{told:?}"
    );
}

#[test]
fn the_end_of_a_session_frees_what_was_restored_for_it() {
    let engine = restarted();
    let [mut holder, mut other] = seats(&engine);
    let shared = OldHold {
        mode: Mode::Shared,
        count: 3,
        metadata: b"why",
        ..old("s", 9)
    };
    assert_eq!(engine.restore(&mut holder, &old("k", 7), at(0)), Ok(true));
    assert_eq!(engine.restore(&mut holder, &shared, at(0)), Ok(true));
    open_up(&engine);
    assert!(engine.end_session(holder.session()));
    engine.vacate(&mut holder, at(1));
    take(&engine, &mut other, "k", 100, at(2));
    take(&engine, &mut other, "s", 100, at(2));
}

#[test]
fn shared_counted_and_noted_holds_come_back_as_they_were() {
    let engine = restarted();
    let [mut one, mut two, mut three] = seats(&engine);
    let shared = |number| OldHold {
        mode: Mode::Shared,
        count: 2,
        metadata: b"why",
        ..old("s", number)
    };
    // Whatever the order in which they are read.
    engine.restore(&mut one, &shared(9), at(0)).unwrap();
    engine.restore(&mut two, &shared(8), at(0)).unwrap();
    open_up(&engine);
    let state = engine.query(key("s"), at(1)).unwrap();
    let fences: Vec<Fence> = state.holders.iter().map(|holder| holder.fence).collect();
    assert_eq!(fences, [fence(8), fence(9)]);
    assert_eq!(
        (state.holders[0].count, &*state.holders[0].metadata),
        (2, &b"why"[..])
    );
    let third = granted(share(&engine, &mut three, "s", 100, at(1)));
    assert!(third.fence > fence(FLOOR));
    assert_eq!(
        engine.release(&mut one, key("s"), fence(9), at(2)),
        Release::Released { count: 1 }
    );
}

#[test]
fn a_second_exclusive_hold_of_one_key_is_not_restored() {
    let engine = restarted();
    let [mut one, mut two] = seats(&engine);
    assert_eq!(engine.restore(&mut one, &old("k", 7), at(0)), Ok(true));
    assert_eq!(engine.restore(&mut two, &old("k", 8), at(0)), Ok(false));
    let noted = OldHold {
        metadata: b"n",
        ..old("k", 8)
    };
    assert_eq!(engine.restore(&mut two, &noted, at(0)), Ok(false));
    assert_eq!(engine.query(key("k"), at(1)).unwrap().holders.len(), 1);
}

#[test]
fn there_is_no_room_for_more_restored_keys_than_for_any() {
    let engine = locks_with(Settings {
        floor: fence(FLOOR),
        ceiling: fence(FLOOR),
        keys_max: 1,
        shards: 1,
        ..small()
    });
    let mut holder = seat(&engine);
    engine.restore(&mut holder, &old("a", 1), at(0)).unwrap();
    let full = (0..10).find_map(|number| {
        let name = format!("k{number}");
        engine.restore(&mut holder, &old(&name, 1), at(0)).err()
    });
    assert_eq!(full, Some(Limit::Keys));
}

#[test]
fn a_claim_is_believed_until_the_first_fence_may_be_issued() {
    let engine = restarted();
    let [mut holder, mut late, mut other] = seats(&engine);
    let grant = claimed(engine.claim(&mut holder, &old("k", 7), at(5)));
    assert_eq!(
        (grant.fence, grant.until, grant.count),
        (fence(7), at(1_005), 1)
    );
    // Nothing new is granted, whether it is held or not.
    held(acquire(&engine, &mut other, "k", 100, at(6)));
    assert_eq!(
        acquire(&engine, &mut other, "free", 100, at(6)),
        Outcome::AtCeiling
    );
    open_up(&engine);
    assert_eq!(
        engine.claim(&mut late, &old("late", 3), at(7)),
        Claimed::NotHeld(NotHeld::Free)
    );
    // One that came in time may come again.
    let again = claimed(engine.claim(&mut holder, &old("k", 7), at(500)));
    assert_eq!((again.fence, again.until), (fence(7), at(1_500)));
    give_back(&engine, &mut holder, "k", fence(7), at(501));
    assert_eq!(
        engine.claim(&mut holder, &old("k", 7), at(502)),
        Claimed::NotHeld(NotHeld::Free)
    );
    assert!(take(&engine, &mut other, "k", 100, at(503)).fence > fence(FLOOR));
}

#[test]
fn the_higher_fence_wins_in_any_order_of_claims() {
    let engine = restarted();
    let [mut one, mut two] = seats(&engine);
    claimed(engine.claim(&mut one, &old("a", 7), at(0)));
    claimed(engine.claim(&mut two, &old("a", 8), at(0)));
    let told = engine.host().take();
    assert!(
        matches!(&told[..], [Event::Lost { fence: number, why: Lost::Superseded, .. }] if *number == fence(7)),
        "{told:?}"
    );
    claimed(engine.claim(&mut two, &old("b", 8), at(0)));
    assert_eq!(
        engine.claim(&mut one, &old("b", 7), at(0)),
        Claimed::Superseded
    );
    // The same fence under another name was never granted to that one.
    assert_eq!(
        engine.claim(&mut one, &old("b", 8), at(0)),
        Claimed::NotHeld(NotHeld::OtherOwner)
    );
    let shared = |name, number| OldHold {
        mode: Mode::Shared,
        ..old(name, number)
    };
    assert_eq!(
        engine.claim(&mut one, &shared("b", 7), at(0)),
        Claimed::Superseded
    );
    // Readers stand beside each other, and a later one shows that the writer before them was done.
    claimed(engine.claim(&mut one, &old("c", 5), at(0)));
    claimed(engine.claim(&mut two, &shared("c", 7), at(0)));
    claimed(engine.claim(&mut one, &shared("c", 6), at(0)));
    assert_eq!(engine.query(key("c"), at(1)).unwrap().holders.len(), 2);
    assert_eq!(
        engine.claim(&mut one, &old("c", 5), at(0)),
        Claimed::Superseded
    );
}

#[test]
fn a_fence_that_no_earlier_life_can_have_issued_is_refused() {
    let engine = restarted();
    let mut holder = seat(&engine);
    assert_eq!(
        engine.claim(&mut holder, &old("k", FLOOR + 1), at(0)),
        Claimed::NotHeld(NotHeld::Free)
    );
    assert_eq!(engine.keys(), 0);
}

#[test]
fn who_waits_from_the_start_is_served_behind_who_claims() {
    let engine = restarted();
    let [mut holder, mut first, mut second] = seats(&engine);
    wait(&engine, &mut first, "k", 100, 1, at(0));
    wait(&engine, &mut second, "k", 100, 2, at(0));
    wait(&engine, &mut first, "free", 100, 3, at(0));
    claimed(engine.claim(&mut holder, &old("k", 7), at(1)));
    open_up(&engine);
    let (waiter, grant) = engine.host().take_grant();
    assert_eq!(waiter, 3);
    assert!(grant.fence > fence(FLOOR));
    give_back(&engine, &mut holder, "k", fence(7), at(2));
    let (waiter, next) = engine.host().take_grant();
    assert_eq!(waiter, 1);
    assert!(next.fence > fence(FLOOR));
}

#[test]
fn a_session_that_is_over_claims_nothing() {
    let engine = restarted();
    let mut holder = seat(&engine);
    engine.end_session(holder.session());
    assert_eq!(
        engine.claim(&mut holder, &old("k", 7), at(0)),
        Claimed::NotHeld(NotHeld::SessionEnded)
    );
}

#[test]
fn all_holds_are_met_by_a_walk_that_writes_them_down() {
    let engine = locks_with(small());
    let [mut one, mut two] = seats(&engine);
    for number in 0..500 {
        take(&engine, &mut one, &format!("k{number}"), LONG_MS, at(1));
    }
    granted(share(&engine, &mut one, "s", 900, at(1)));
    granted(share(&engine, &mut two, "s", 900, at(2)));
    let noted = Acquire {
        metadata: b"why",
        span: Span::Session,
        ..Acquire::exclusive(key("n"), 1)
    };
    granted(engine.acquire(&mut two, &noted, at(3)));
    take(&engine, &mut two, "over", 5, at(1));
    let mut met = Vec::new();
    let mut from = Some(Cursor::default());
    while let Some(cursor) = from {
        from = engine.holds(
            cursor,
            64,
            || at(10),
            |held| {
                met.push((
                    held.key.bytes().to_vec(),
                    held.owner,
                    held.is_session_bound,
                    held.metadata.to_vec(),
                    held.held_ms,
                ));
            },
        );
    }
    assert_eq!(met.len(), 503);
    let of = |name: &str| met.iter().filter(|held| held.0 == name.as_bytes()).count();
    assert_eq!((of("k0"), of("s"), of("n"), of("over")), (1, 2, 1, 0));
    let noted = met.iter().find(|held| held.0 == b"n").unwrap();
    assert_eq!(
        (noted.1, noted.2, &*noted.3, noted.4),
        (two.session(), true, &b"why"[..], 7)
    );
}

/// Counts how often it is told that fences run low.
#[derive(Default)]
struct Meter(std::sync::atomic::AtomicU32);

impl Host for Meter {
    type Waiter = ();
    fn granted(&self, (): (), _: Grant) {}
    fn gave_up(&self, (): (), _: engine::GaveUp) {}
    fn lost(&self, _: &engine::Loss<'_>) {}
    fn session_ended(&self, _: engine::SessionId) {}
    fn ceiling_low(&self, _: usize) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn the_host_hears_when_half_of_the_fences_are_used() {
    let settings = Settings {
        shards: 1,
        ceiling: fence(10),
        ..small()
    };
    let engine = engine::Engine::new(settings, Meter::default());
    let mut holder = engine::Seat::new(engine.open_session(LONG_MS, at(0)).unwrap());
    let mut cycle = || {
        let grant = granted(engine.acquire(&mut holder, &Acquire::exclusive(key("k"), 9), at(0)));
        engine.release(&mut holder, key("k"), grant.fence, at(0));
        engine.host().0.load(std::sync::atomic::Ordering::Relaxed)
    };
    let told: Vec<u32> = (0..7).map(|_| cycle()).collect();
    assert_eq!(told, [0, 0, 0, 0, 0, 1, 2]);
    engine.raise_ceiling(0, fence(20), at(0));
    let told: Vec<u32> = (0..9).map(|_| cycle()).collect();
    assert_eq!(told, [2, 2, 2, 2, 2, 2, 2, 2, 3]);
}

#[test]
fn a_claim_that_makes_no_sense_is_refused_and_changes_nothing() {
    let engine = restarted();
    let mut holder = seat(&engine);
    let metadata = [b'x'; engine::NOTE_BYTES_MAX + 1];
    for (bad, why) in [
        (
            OldHold {
                span: Span::Ms(0),
                ..old("k", 7)
            },
            Invalid::Ttl { ttl_ms: 0 },
        ),
        (
            OldHold {
                span: Span::Ms(engine::TTL_MS_MAX + 1),
                ..old("k", 7)
            },
            Invalid::Ttl {
                ttl_ms: engine::TTL_MS_MAX + 1,
            },
        ),
        (
            OldHold {
                count: 0,
                ..old("k", 7)
            },
            Invalid::Reentries,
        ),
        (
            OldHold {
                metadata: &metadata,
                ..old("k", 7)
            },
            Invalid::Metadata {
                metadata_bytes: metadata.len(),
            },
        ),
    ] {
        assert_eq!(
            engine.claim(&mut holder, &bad, at(0)),
            Claimed::Invalid(why)
        );
    }
    assert_eq!(engine.keys(), 0);
}
