//! Shared and reentrant locks, up and down between the modes, and metadata.

use crate::common::*;
use engine::{
    Acquire, Cursor, Downgrade, Fence, GaveUp, Limit, Lost, Mode, NOTE_BYTES_MAX, NotHeld, Outcome,
    Release, Renewal, Seat, Settings,
};

fn reentrant(name: &str, ttl_ms: u64) -> Acquire<'_> {
    Acquire {
        reentrant: true,
        ..Acquire::exclusive(key(name), ttl_ms)
    }
}

// ---- readers and writers

#[test]
fn readers_join_readers_each_under_its_own_fence() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    let one = granted(share(&engine, &mut a, "k", 100, at(0)));
    let two = granted(share(&engine, &mut b, "k", 200, at(10)));
    assert!(two.fence > one.fence);
    assert_eq!((one.until, two.until), (at(100), at(210)));

    let state = engine.query(key("k"), at(20)).unwrap();
    let [first, second] = &state.holders[..] else {
        panic!("{state:?}")
    };
    assert_eq!(
        (first.owner, second.owner),
        (Some(a.session()), Some(b.session()))
    );
    assert_eq!((first.fence, second.fence), (one.fence, two.fence));
    assert_eq!((first.held_ms, second.held_ms), (20, 10));
    assert_eq!((first.until, second.until), (at(100), at(210)));
    assert!(
        state
            .holders
            .iter()
            .all(|holder| holder.mode == Mode::Shared && holder.holders == 2)
    );
    assert_eq!(state.fence, two.fence);

    // A writer is refused, and told of the first of them.
    let holder = held(acquire(&engine, &mut c, "k", 10, at(20)));
    assert_eq!(
        (holder.fence, holder.mode, holder.holders),
        (one.fence, Mode::Shared, 2)
    );
}

#[test]
fn a_writer_gets_in_when_the_last_reader_is_out_above_all_their_fences() {
    let engine = locks();
    let mut readers = seats::<4>(&engine);
    let mut writer = seat(&engine);
    let fences: Vec<_> = readers
        .iter_mut()
        .map(|reader| granted(share(&engine, reader, "k", LONG_MS, at(0))).fence)
        .collect();
    wait(&engine, &mut writer, "k", 100, 1, at(1));
    // In any order, the highest fence not last.
    for index in [2, 3, 0] {
        give_back(&engine, &mut readers[index], "k", fences[index], at(2));
        assert_eq!(engine.host().take(), []);
    }
    give_back(&engine, &mut readers[1], "k", fences[1], at(3));
    let (_, grant) = engine.host().take_grant();
    assert!(fences.iter().all(|&fence| fence < grant.fence));
    held(share(&engine, &mut readers[0], "k", 10, at(4)));
}

#[test]
fn a_waiting_writer_stops_later_readers() {
    let engine = locks();
    let [mut a, mut writer, mut late] = seats(&engine);
    let reader = granted(share(&engine, &mut a, "k", LONG_MS, at(0)));
    wait(&engine, &mut writer, "k", 100, 1, at(1));
    // Neither a reader in a hurry nor one with patience passes it, not even the session that reads
    // already.
    held(share(&engine, &mut late, "k", 100, at(2)));
    held(share(&engine, &mut a, "k", 100, at(2)));
    wait_shared(&engine, &mut late, "k", 100, 2, at(2));
    give_back(&engine, &mut a, "k", reader.fence, at(3));
    let (waiter, grant) = engine.host().take_grant();
    assert_eq!(waiter, 1);
    give_back(&engine, &mut writer, "k", grant.fence, at(4));
    assert_eq!(engine.host().take_grant().0, 2);
}

#[test]
fn readers_in_line_are_let_in_together_up_to_the_next_writer() {
    let engine = locks();
    let mut line = seats::<7>(&engine);
    let first = take(&engine, &mut line[0], "k", LONG_MS, at(0));
    for (index, is_writer) in [
        (1, false),
        (2, false),
        (3, false),
        (4, true),
        (5, false),
        (6, false),
    ] {
        let stand = if is_writer { wait } else { wait_shared };
        stand(
            &engine,
            &mut line[index],
            "k",
            100,
            index as u64,
            at(index as u64),
        );
    }
    give_back(&engine, &mut line[0], "k", first.fence, at(10));
    let group = engine.host().take_grants();
    assert_eq!(
        group.iter().map(|&(waiter, _)| waiter).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert!(group.is_sorted_by_key(|(_, grant)| grant.fence));
    assert!(group.iter().all(|(_, grant)| grant.until == at(110)));

    for &(waiter, grant) in &group {
        assert_eq!(
            engine.host().take(),
            [],
            "the writer waits for the last of them"
        );
        give_back(
            &engine,
            &mut line[waiter as usize],
            "k",
            grant.fence,
            at(11),
        );
    }
    let (waiter, writer) = engine.host().take_grant();
    assert_eq!(waiter, 4);
    assert!(group.iter().all(|(_, grant)| grant.fence < writer.fence));

    give_back(&engine, &mut line[4], "k", writer.fence, at(12));
    let group = engine.host().take_grants();
    assert_eq!(
        group.iter().map(|&(waiter, _)| waiter).collect::<Vec<_>>(),
        [5, 6]
    );
}

#[test]
fn a_reader_who_is_not_there_any_more_does_not_stop_the_group() {
    let engine = locks();
    let [mut a, mut b, mut c, mut d] = seats(&engine);
    let first = take(&engine, &mut a, "k", LONG_MS, at(0));
    for (waiter, reader) in (1..).zip([&mut b, &mut c, &mut d]) {
        wait_shared(&engine, reader, "k", 100, waiter, at(1));
    }
    give_back(&engine, &mut a, "k", first.fence, at(2));
    let group = engine.host().take_grants();
    let waiters: Vec<u64> = group.iter().map(|&(waiter, _)| waiter).collect();
    assert_eq!(waiters, [1, 2, 3]);
    give_back(&engine, &mut c, "k", group[1].1.fence, at(2));
    assert_eq!(engine.query(key("k"), at(2)).unwrap().holders.len(), 2);
}

#[test]
fn a_writer_who_cancels_lets_in_the_readers_behind_it() {
    let engine = locks();
    let [mut a, mut writer, mut b, mut c] = seats(&engine);
    granted(share(&engine, &mut a, "k", LONG_MS, at(0)));
    let ticket = wait(&engine, &mut writer, "k", 100, 1, at(1));
    wait_shared(&engine, &mut b, "k", 100, 2, at(2));
    wait_shared(&engine, &mut c, "k", 100, 3, at(2));
    assert_eq!(engine.cancel(ticket, at(3)), Some(1));
    let group = engine.host().take_grants();
    assert_eq!(
        group.iter().map(|&(waiter, _)| waiter).collect::<Vec<_>>(),
        [2, 3]
    );
}

#[test]
fn a_writer_whose_time_is_up_lets_in_the_readers_behind_it() {
    let engine = locks();
    let [mut a, mut writer, mut b] = seats(&engine);
    granted(share(&engine, &mut a, "k", LONG_MS, at(0)));
    let request = Acquire::exclusive(key("k"), 100);
    queued(engine.acquire_or_wait(&mut writer, &request, 50, || Some(1), at(0)));
    wait_shared(&engine, &mut b, "k", 100, 2, at(2));
    advance(&engine, at(49));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(50));
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
fn a_writer_whose_session_ends_lets_in_the_readers_behind_it() {
    let engine = locks();
    let [mut a, mut writer, mut b] = seats(&engine);
    granted(share(&engine, &mut a, "k", LONG_MS, at(0)));
    wait(&engine, &mut writer, "k", 100, 1, at(1));
    wait_shared(&engine, &mut b, "k", 100, 2, at(2));
    engine.end_session(writer.session());
    engine.vacate(&mut writer, at(3));
    let events = engine.host().take();
    assert!(
        matches!(
            events[..],
            [
                Event::GaveUp {
                    waiter: 1,
                    why: GaveUp::SessionEnded
                },
                Event::Granted { waiter: 2, .. }
            ]
        ) || matches!(
            events[..],
            [
                Event::Granted { waiter: 2, .. },
                Event::GaveUp {
                    waiter: 1,
                    why: GaveUp::SessionEnded
                }
            ]
        ),
        "{events:?}"
    );
}

#[test]
fn each_reader_expires_by_itself_and_the_writer_comes_after_the_last() {
    let engine = locks();
    let [mut a, mut b, mut writer] = seats(&engine);
    let long = granted(share(&engine, &mut a, "k", 300, at(0)));
    let short = granted(share(&engine, &mut b, "k", 100, at(0)));
    wait(&engine, &mut writer, "k", 50, 1, at(1));
    advance(&engine, at(100));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(101));
    let lost = |fence, owner, held_ms| Event::Lost {
        key: b"k".into(),
        fence,
        owner,
        why: Lost::Expired,
        held_ms,
        late_ms: 0,
    };
    assert_eq!(engine.host().take(), [lost(short.fence, b.session(), 101)]);
    advance(&engine, at(300));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(301));
    let events = engine.host().take();
    assert_eq!(events[0], lost(long.fence, a.session(), 301));
    assert!(
        matches!(events[1..], [Event::Granted { waiter: 1, grant }] if grant.until == at(351)),
        "{events:?}"
    );
}

#[test]
fn a_reader_renews_and_releases_by_its_own_fence_only() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let one = granted(share(&engine, &mut a, "k", 100, at(0)));
    let two = granted(share(&engine, &mut b, "k", 100, at(0)));
    let before = engine.query(key("k"), at(1));
    assert_not_held(
        engine.release(&mut a, key("k"), two.fence, at(1)),
        NotHeld::OtherOwner,
    );
    assert_not_renewed(
        engine.renew(&a, key("k"), two.fence, 50, at(1)),
        NotHeld::OtherOwner,
    );
    let never = fence(two.fence.get() + 1);
    assert_not_held(
        engine.release(&mut a, key("k"), never, at(1)),
        NotHeld::OtherFence,
    );
    assert_eq!(engine.query(key("k"), at(1)), before);

    assert_eq!(
        engine.renew(&a, key("k"), one.fence, 100, at(50)),
        Renewal::Renewed { until: at(150) }
    );
    advance(&engine, at(150));
    let state = engine.query(key("k"), at(150)).unwrap();
    assert_eq!(state.holders.len(), 1);
    assert_eq!(state.holders[0].fence, one.fence);
    assert_not_renewed(
        engine.renew(&a, key("k"), one.fence, 100, at(151)),
        NotHeld::Expired,
    );
    assert_not_held(
        engine.release(&mut b, key("k"), two.fence, at(151)),
        NotHeld::Free,
    );
}

#[test]
fn a_late_release_of_a_shared_lock_says_that_it_was_late() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let one = granted(share(&engine, &mut a, "k", 100, at(0)));
    granted(share(&engine, &mut b, "k", 200, at(0)));
    assert_not_held(
        engine.release(&mut a, key("k"), one.fence, at(101)),
        NotHeld::Expired,
    );
    assert_eq!(engine.query(key("k"), at(101)).unwrap().holders.len(), 1);
}

#[test]
fn as_many_share_a_key_as_may_and_the_next_is_told_busy() {
    let engine = locks_with(Settings {
        shared_holders_max: 2,
        ..small()
    });
    let [mut a, mut b, mut c] = seats(&engine);
    let one = granted(share(&engine, &mut a, "k", LONG_MS, at(0)));
    granted(share(&engine, &mut b, "k", LONG_MS, at(0)));
    let before = engine.query(key("k"), at(1));
    assert_eq!(
        share(&engine, &mut c, "k", 100, at(1)),
        Outcome::Busy(Limit::SharedHolders)
    );
    assert_eq!(engine.query(key("k"), at(1)), before);
    give_back(&engine, &mut a, "k", one.fence, at(2));
    granted(share(&engine, &mut c, "k", 100, at(3)));
}

#[test]
fn readers_in_line_are_let_in_as_far_as_there_is_room_and_then_one_by_one() {
    let engine = locks_with(Settings {
        shared_holders_max: 2,
        ..small()
    });
    let mut line = seats::<4>(&engine);
    let first = take(&engine, &mut line[0], "k", LONG_MS, at(0));
    for (waiter, reader) in (1..).zip(&mut line[1..]) {
        wait_shared(&engine, reader, "k", LONG_MS, waiter, at(1));
    }
    give_back(&engine, &mut line[0], "k", first.fence, at(2));
    let group = engine.host().take_grants();
    assert_eq!(group.len(), 2);
    give_back(&engine, &mut line[1], "k", group[0].1.fence, at(3));
    assert_eq!(engine.host().take_grant().0, 3);
}

/// Found by reading: the bound on readers used to stop writers as well.
#[test]
fn where_sharing_is_not_allowed_writers_are_served_all_the_same() {
    let engine = locks_with(Settings {
        shared_holders_max: 0,
        ..small()
    });
    let [mut a, mut b, mut c] = seats(&engine);
    assert_eq!(
        share(&engine, &mut a, "k", 100, at(0)),
        Outcome::Busy(Limit::SharedHolders)
    );
    let metadata = Acquire {
        metadata: b"in a record",
        ..Acquire::exclusive(key("k"), 100)
    };
    let first = granted(engine.acquire(&mut a, &metadata, at(0)));
    wait(&engine, &mut b, "k", 100, 1, at(1));
    wait(&engine, &mut c, "k", 100, 2, at(1));
    give_back(&engine, &mut a, "k", first.fence, at(2));
    let (_, second) = engine.host().take_grant();
    give_back(&engine, &mut b, "k", second.fence, at(3));
    assert_eq!(engine.host().take_grant().0, 2);
}

#[test]
fn a_reader_in_line_with_itself_gets_a_second_lock_of_its_own() {
    // Two tasks of one process may both read: each has its own fence, and gives back its own.
    let engine = locks();
    let [mut a, mut writer] = seats(&engine);
    let one = granted(share(&engine, &mut a, "k", 100, at(0)));
    let two = granted(share(&engine, &mut a, "k", 100, at(0)));
    assert!(two.fence > one.fence);
    assert_eq!((one.count, two.count), (1, 1));
    give_back(&engine, &mut a, "k", one.fence, at(1));
    held(acquire(&engine, &mut writer, "k", 10, at(2)));
    give_back(&engine, &mut a, "k", two.fence, at(3));
    take(&engine, &mut writer, "k", 10, at(4));
}

/// Of so many the engine does not ask each at every turn.
/// A look at a key with ten thousand readers once copied all of them, with their metadata, while it
/// had the shard's mutex.
#[test]
fn a_look_shows_a_bounded_number_of_holders_and_the_rest_comes_by_further_looks() {
    let engine = locks();
    let [mut one, mut other] = seats(&engine);
    let fences: Vec<Fence> = (0..200)
        .map(|_| granted(share(&engine, &mut one, "k", 100, at(0))).fence)
        .collect();
    let mut found = Vec::new();
    let mut above = Fence::ZERO;
    for expected in [64, 64, 64, 8, 0] {
        let state = engine.query_above(key("k"), above, at(1)).unwrap();
        assert_eq!((state.holders.len(), state.holder_count), (expected, 200));
        found.extend(state.holders.iter().map(|holder| holder.fence));
        above = found[found.len() - 1];
    }
    assert_eq!(found, fences);
    for holders_max in [0, 1, 64, 65, 128, 200, 1_000] {
        let state = engine.query_up_to(key("k"), holders_max, at(1)).unwrap();
        let found: Vec<Fence> = state.holders.iter().map(|holder| holder.fence).collect();
        assert_eq!(found, fences[..holders_max.min(200)], "up to {holders_max}");
    }
    let mut walked = Vec::new();
    let mut from = Some(Cursor::default());
    while let Some(cursor) = from {
        from = engine.holds(cursor, 1_000, || at(1), |held| walked.push(held.fence));
    }
    assert_eq!(walked, fences);

    let last = fences[199];
    let holder = engine.holder(key("k"), last, at(1)).unwrap();
    assert_eq!((holder.fence, holder.holders), (last, 200));
    assert_eq!(engine.holder(key("k"), fence(last.get() + 1), at(1)), None);
    assert!(engine.is_held_by(key("k"), one.session(), at(100)));
    assert!(!engine.is_held_by(key("k"), other.session(), at(1)));
    assert!(!engine.is_held_by(key("k"), one.session(), at(101)), "over");
    assert_eq!(engine.holder(key("k"), last, at(101)), None);
    let plain = take(&engine, &mut other, "plain", 100, at(0));
    assert!(engine.is_held_by(key("plain"), other.session(), at(1)));
    assert_eq!(
        engine
            .holder(key("plain"), plain.fence, at(1))
            .unwrap()
            .owner,
        Some(other.session())
    );
    assert!(!engine.is_held_by(key("never"), one.session(), at(1)));
}

/// A walk that takes long finds leases over that were not when it began. By the old clock the next
/// in line was granted a lease that had ended already.
#[test]
fn a_long_walk_grants_by_the_time_it_is_and_not_by_the_time_it_began() {
    let engine = locks_with(Settings {
        shards: 1,
        ..small()
    });
    let [mut a, mut b] = seats(&engine);
    for name in ["j", "k"] {
        granted(share(&engine, &mut a, name, 100, at(0)));
        wait(&engine, &mut b, name, 50, 1, at(1));
    }
    let now_ms = std::cell::Cell::new(200);
    engine.holds(
        Cursor::default(),
        1_000,
        || at(now_ms.get()),
        |held| {
            let now = at(now_ms.get());
            assert!(!held.until.is_over(now), "granted by an old clock");
            // To write it down takes a second.
            now_ms.set(now_ms.get() + 1_000);
        },
    );
    assert_eq!(engine.host().take().len(), 4, "two lost, two granted");
}

#[test]
fn a_crowd_of_readers_expires_on_time_and_goes_with_its_sessions() {
    const READERS: u64 = 1000;
    let engine = locks();
    let mut readers: Vec<Seat> = (0..READERS).map(|_| seat(&engine)).collect();
    let mut writer = seat(&engine);
    let mut fences = Vec::new();
    for (number, reader) in (0..).zip(&mut readers) {
        // A quarter each: expires early, is renewed, ends with its session, is given back.
        let ttl_ms = if number % 4 < 2 { 100 } else { LONG_MS };
        fences.push(granted(share(&engine, reader, "k", ttl_ms, at(0))).fence);
    }
    wait(&engine, &mut writer, "k", 100, 1, at(1));
    for (number, (reader, &fence)) in readers.iter_mut().zip(&fences).enumerate() {
        match number % 4 {
            1 => assert_eq!(
                engine.renew(reader, key("k"), fence, 200, at(50)),
                Renewal::Renewed { until: at(250) }
            ),
            2 => {
                engine.end_session(reader.session());
                engine.vacate(reader, at(50));
            }
            3 => give_back(&engine, reader, "k", fence, at(50)),
            _ => {}
        }
    }
    let holders = |now| engine.query(key("k"), at(now)).unwrap().holder_count;
    assert_eq!(engine.host().take().len(), 250, "ended with their sessions");
    assert_eq!(holders(100), 500);
    advance(&engine, at(101));
    assert_eq!(engine.host().take().len(), 250, "expired");
    assert_eq!(holders(250), 250);
    advance(&engine, at(251));
    let events = engine.host().take();
    assert_eq!(events.len(), 251);
    let Event::Granted { waiter: 1, grant } = events[250] else {
        panic!("{:?}", events[250])
    };
    assert!(fences.iter().all(|&fence| fence < grant.fence));
}

// ---- reentrant locks

#[test]
fn a_reentrant_lock_counts_keeps_its_fence_and_is_free_at_zero() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let first = granted(engine.acquire(&mut a, &reentrant("k", 100), at(0)));
    assert_eq!(first.count, 1);
    for count in 2..=5 {
        let again = granted(engine.acquire(&mut a, &reentrant("k", 100), at(1)));
        assert_eq!((again.fence, again.count), (first.fence, count));
    }
    assert_eq!(held(acquire(&engine, &mut b, "k", 10, at(2))).count, 5);
    for count in (0..5).rev() {
        held(acquire(&engine, &mut b, "k", 10, at(2)));
        assert_eq!(
            engine.release(&mut a, key("k"), first.fence, at(2)),
            Release::Released { count }
        );
    }
    assert_not_held(
        engine.release(&mut a, key("k"), first.fence, at(2)),
        NotHeld::Released,
    );
    let next = take(&engine, &mut b, "k", 10, at(2));
    assert!(next.fence > first.fence);
}

#[test]
fn what_was_taken_plainly_can_be_reentered_later() {
    let engine = locks();
    let mut a = seat(&engine);
    let first = take(&engine, &mut a, "k", 100, at(0));
    let again = granted(engine.acquire(&mut a, &reentrant("k", 100), at(1)));
    assert_eq!((again.fence, again.count), (first.fence, 2));
    // And a plain request for it is refused as ever.
    assert_eq!(held(acquire(&engine, &mut a, "k", 100, at(2))).count, 2);
}

#[test]
fn re_entry_prolongs_a_lease_and_never_shortens_it() {
    let engine = locks();
    let mut a = seat(&engine);
    let first = granted(engine.acquire(&mut a, &reentrant("k", 100), at(0)));
    assert_eq!(first.until, at(100));
    let shorter = granted(engine.acquire(&mut a, &reentrant("k", 10), at(1)));
    assert_eq!(shorter.until, at(100));
    let longer = granted(engine.acquire(&mut a, &reentrant("k", 200), at(2)));
    assert_eq!(longer.until, at(202));
    advance(&engine, at(202));
    assert_eq!(engine.host().take(), []);
    // All its counts go at once.
    advance(&engine, at(203));
    assert_eq!(engine.host().take().len(), 1);
    assert_eq!(engine.query(key("k"), at(203)).unwrap().holders, []);
}

#[test]
fn what_expired_is_not_reentered_but_granted_anew() {
    let engine = locks();
    let mut a = seat(&engine);
    let first = granted(engine.acquire(&mut a, &reentrant("k", 100), at(0)));
    granted(engine.acquire(&mut a, &reentrant("k", 100), at(0)));
    let anew = granted(engine.acquire(&mut a, &reentrant("k", 100), at(101)));
    assert_eq!(anew.count, 1);
    assert!(anew.fence > first.fence);
    assert_eq!(engine.host().take().len(), 1);
}

#[test]
fn the_holder_reenters_past_those_who_wait() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let first = take(&engine, &mut a, "k", 100, at(0));
    wait(&engine, &mut b, "k", 100, 1, at(1));
    let again = granted(engine.acquire(&mut a, &reentrant("k", 100), at(2)));
    assert_eq!((again.fence, again.count), (first.fence, 2));
    assert_eq!(
        engine.release(&mut a, key("k"), first.fence, at(3)),
        Release::Released { count: 1 }
    );
    assert_eq!(engine.host().take(), []);
    give_back(&engine, &mut a, "k", first.fence, at(4));
    assert_eq!(engine.host().take_grant().0, 1);
}

#[test]
fn a_reader_reenters_its_own_shared_lock() {
    let engine = locks();
    let [mut a, mut b, mut writer] = seats(&engine);
    let shared = Acquire {
        reentrant: true,
        ..Acquire::shared(key("k"), 100)
    };
    granted(share(&engine, &mut b, "k", 100, at(0)));
    let first = granted(engine.acquire(&mut a, &shared, at(0)));
    wait(&engine, &mut writer, "k", 100, 1, at(1));
    // Not even a waiting writer stops it: it would wait for us, and we for it.
    let again = granted(engine.acquire(&mut a, &shared, at(2)));
    assert_eq!((again.fence, again.count), (first.fence, 2));
    assert_eq!(engine.query(key("k"), at(2)).unwrap().holders.len(), 2);
}

#[test]
fn a_shared_request_reenters_an_exclusive_lock() {
    let engine = locks();
    let mut a = seat(&engine);
    let first = take(&engine, &mut a, "k", 100, at(0));
    let shared = Acquire {
        reentrant: true,
        ..Acquire::shared(key("k"), 100)
    };
    let again = granted(engine.acquire(&mut a, &shared, at(1)));
    assert_eq!((again.fence, again.count), (first.fence, 2));
    let state = engine.query(key("k"), at(1)).unwrap();
    assert_eq!(state.holders[0].mode, Mode::Exclusive, "still alone");
}

#[test]
fn another_session_cannot_reenter() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    take(&engine, &mut a, "k", 100, at(0));
    let holder = held(engine.acquire(&mut b, &reentrant("k", 100), at(1)));
    assert_eq!(holder.owner, Some(a.session()));
}

#[test]
fn another_seat_of_the_same_session_reenters() {
    let engine = locks();
    let mut a = seat(&engine);
    let mut other_seat = Seat::new(a.session());
    let first = take(&engine, &mut a, "k", 100, at(0));
    let again = granted(engine.acquire(&mut other_seat, &reentrant("k", 100), at(1)));
    assert_eq!((again.fence, again.count), (first.fence, 2));
}

// ---- up and down

#[test]
fn an_upgrade_is_refused_with_a_clear_answer_and_changes_nothing() {
    let engine = locks();
    let mut a = seat(&engine);
    let shared = granted(share(&engine, &mut a, "k", 100, at(0)));
    let before = engine.query(key("k"), at(1));
    for request in [Acquire::exclusive(key("k"), 100), reentrant("k", 100)] {
        let Outcome::UpgradeRefused(holder) = engine.acquire(&mut a, &request, at(1)) else {
            panic!()
        };
        assert_eq!(holder.owner, Some(a.session()));
        assert_eq!((holder.fence, holder.mode), (shared.fence, Mode::Shared));
    }
    // A session that asks to reenter means this very lock, so waiting would be in vain.
    let outcome = engine.acquire_or_wait(&mut a, &reentrant("k", 100), 50, || Some(1), at(1));
    assert!(matches!(outcome, Outcome::UpgradeRefused(_)), "{outcome:?}");
    assert_eq!(engine.query(key("k"), at(1)), before);
    assert_eq!(engine.waiters(), 0);
}

#[test]
fn a_reader_ready_to_wait_for_the_exclusive_lock_gets_it_once_its_own_shared_one_is_gone() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let mine = granted(share(&engine, &mut a, "k", LONG_MS, at(0)));
    let other = granted(share(&engine, &mut b, "k", LONG_MS, at(0)));
    wait(&engine, &mut a, "k", 100, 1, at(1));
    give_back(&engine, &mut b, "k", other.fence, at(2));
    assert_eq!(
        engine.host().take(),
        [],
        "its own shared lock is in its way"
    );
    give_back(&engine, &mut a, "k", mine.fence, at(3));
    let (_, grant) = engine.host().take_grant();
    assert!(grant.fence > other.fence.max(mine.fence));
}

#[test]
fn a_downgrade_keeps_the_fence_and_lets_in_the_readers_at_the_front() {
    let engine = locks();
    let [mut a, mut b, mut c, mut writer, mut late] = seats(&engine);
    let first = take(&engine, &mut a, "k", LONG_MS, at(0));
    wait_shared(&engine, &mut b, "k", 100, 1, at(1));
    wait_shared(&engine, &mut c, "k", 100, 2, at(1));
    wait(&engine, &mut writer, "k", 100, 3, at(1));
    wait_shared(&engine, &mut late, "k", 100, 4, at(1));
    assert_eq!(
        engine.downgrade(&a, key("k"), first.fence, at(2)),
        Downgrade::Downgraded
    );
    let group = engine.host().take_grants();
    assert_eq!(
        group.iter().map(|&(waiter, _)| waiter).collect::<Vec<_>>(),
        [1, 2]
    );
    let state = engine.query(key("k"), at(2)).unwrap();
    assert_eq!(state.holders.len(), 3);
    assert_eq!(state.holders[0].fence, first.fence);
    assert_eq!(state.holders[0].mode, Mode::Shared);
    assert_eq!(state.queue_length, 2);
    assert_eq!(
        engine.renew(&a, key("k"), first.fence, 500, at(3)),
        Renewal::Renewed { until: at(503) }
    );
    // Again: nothing to do.
    assert_eq!(
        engine.downgrade(&a, key("k"), first.fence, at(3)),
        Downgrade::Downgraded
    );
    // And there is no way back up.
    assert!(matches!(
        engine.acquire(&mut a, &reentrant("k", 100), at(4)),
        Outcome::UpgradeRefused(_)
    ));
    give_back(&engine, &mut a, "k", first.fence, at(5));
}

#[test]
fn a_downgrade_keeps_the_count_of_a_reentrant_lock() {
    let engine = locks();
    let mut a = seat(&engine);
    let first = granted(engine.acquire(&mut a, &reentrant("k", 100), at(0)));
    granted(engine.acquire(&mut a, &reentrant("k", 100), at(0)));
    assert_eq!(
        engine.downgrade(&a, key("k"), first.fence, at(1)),
        Downgrade::Downgraded
    );
    assert_eq!(
        engine.release(&mut a, key("k"), first.fence, at(2)),
        Release::Released { count: 1 }
    );
    give_back(&engine, &mut a, "k", first.fence, at(3));
}

#[test]
fn only_the_holder_downgrades_and_only_in_time() {
    let engine = locks();
    let [mut a, b] = seats(&engine);
    assert_eq!(
        engine.downgrade(&a, key("k"), fence(1), at(0)),
        Downgrade::NotHeld(NotHeld::Free)
    );
    let grant = take(&engine, &mut a, "k", 100, at(0));
    let before = engine.query(key("k"), at(1));
    let downgrade = |seat, number| engine.downgrade(seat, key("k"), fence(number), at(1));
    assert_eq!(
        downgrade(&b, grant.fence.get()),
        Downgrade::NotHeld(NotHeld::OtherOwner)
    );
    assert_eq!(
        downgrade(&a, grant.fence.get() + 1),
        Downgrade::NotHeld(NotHeld::OtherFence)
    );
    assert_eq!(engine.query(key("k"), at(1)), before);
    assert_eq!(
        engine.downgrade(&a, key("k"), grant.fence, at(101)),
        Downgrade::NotHeld(NotHeld::Expired)
    );
}

#[test]
fn a_downgraded_lock_still_expires_on_time() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let grant = take(&engine, &mut a, "k", 100, at(0));
    advance(&engine, at(1));
    engine.downgrade(&a, key("k"), grant.fence, at(2));
    wait(&engine, &mut b, "k", 10, 1, at(3));
    advance(&engine, at(100));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(101));
    assert_eq!(engine.host().take().len(), 2, "one lost it, one got it");
}

// ---- metadata

#[test]
fn metadata_is_kept_with_the_grant_and_shown_to_every_asker() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let longest = [0xab; NOTE_BYTES_MAX];
    for metadata in [b"host-7 pid 42".as_slice(), &longest] {
        let request = Acquire {
            metadata,
            ..Acquire::exclusive(key("k"), 100)
        };
        let grant = granted(engine.acquire(&mut a, &request, at(0)));
        assert_eq!(
            *held(acquire(&engine, &mut b, "k", 10, at(1))).metadata,
            *metadata
        );
        assert_eq!(
            *engine.query(key("k"), at(1)).unwrap().holders[0].metadata,
            *metadata
        );
        assert_eq!(
            engine.renew(&a, key("k"), grant.fence, 200, at(1)),
            Renewal::Renewed { until: at(201) }
        );
        assert_eq!(
            *engine.query(key("k"), at(2)).unwrap().holders[0].metadata,
            *metadata
        );
        give_back(&engine, &mut a, "k", grant.fence, at(2));
        let plain = take(&engine, &mut b, "k", 10, at(2));
        assert_eq!(
            *held(acquire(&engine, &mut a, "k", 10, at(3))).metadata,
            *b""
        );
        give_back(&engine, &mut b, "k", plain.fence, at(3));
    }
}

#[test]
fn a_waiter_brings_its_metadata_along() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    let first = take(&engine, &mut a, "k", 100, at(0));
    let with_metadata = |mode, metadata| Acquire {
        mode,
        metadata,
        ..Acquire::exclusive(key("k"), 100)
    };
    let one = with_metadata(Mode::Shared, b"one".as_slice());
    let two = with_metadata(Mode::Shared, b"two".as_slice());
    queued(engine.acquire_or_wait(&mut b, &one, 100, || Some(1), at(1)));
    queued(engine.acquire_or_wait(&mut c, &two, 100, || Some(2), at(1)));
    give_back(&engine, &mut a, "k", first.fence, at(2));
    let state = engine.query(key("k"), at(2)).unwrap();
    let metadata: Vec<&[u8]> = state
        .holders
        .iter()
        .map(|holder| &*holder.metadata)
        .collect();
    assert_eq!(metadata, [b"one", b"two"]);
}

#[test]
fn a_lock_with_metadata_expires_on_time_and_is_handed_on() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let request = Acquire {
        metadata: b"n",
        ..Acquire::exclusive(key("k"), 100)
    };
    granted(engine.acquire(&mut a, &request, at(0)));
    queued(engine.acquire_or_wait(&mut b, &request, LONG_MS, || Some(1), at(1)));
    advance(&engine, at(100));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(101));
    let events = engine.host().take();
    assert!(
        matches!(events[..], [Event::Lost { late_ms: 0, .. }, Event::Granted { waiter: 1, grant }]
            if grant.until == at(201)),
        "{events:?}"
    );
    advance(&engine, at(202));
    assert_eq!(engine.host().take().len(), 1);
    assert_eq!(engine.query(key("k"), at(202)).unwrap().holders, []);
}
