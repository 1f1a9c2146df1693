//! What the engine tells about itself: how long locks were held, which is the oldest, how many
//! bytes there are.

use crate::common::{
    LONG_MS, Locks, acquire, advance, at, give_back, granted, held, key, locks, locks_with, queued,
    seat, seats, share, small, take, wait,
};
use engine::{
    Acquire, Cursor, Engine, Fence, GaveUp, Grant, Hold, Host, Key, Limit, Loss, Outcome, Release,
    Renewal, Seat, SessionId, Settings,
};
use std::sync::Mutex;

#[test]
fn a_release_tells_how_long_the_lock_was_held() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let plain = take(&engine, &mut a, "plain", LONG_MS, at(100));
    assert_eq!(
        engine.release_timed(&mut a, key("plain"), plain.fence, at(130)),
        (Release::Released { count: 0 }, 30)
    );
    assert_eq!(
        engine
            .release_timed(&mut a, key("plain"), plain.fence, at(140))
            .1,
        0,
        "it was not held any more"
    );

    let waited_for = take(&engine, &mut a, "waited for", LONG_MS, at(200));
    wait(&engine, &mut b, "waited for", LONG_MS, 1, at(210));
    let released = engine.release_timed(&mut a, key("waited for"), waited_for.fence, at(250));
    assert_eq!(released, (Release::Released { count: 0 }, 50));
    let (_, handed_on) = engine.host().take_grant();
    let released = engine.release_timed(&mut b, key("waited for"), handed_on.fence, at(300));
    assert_eq!(
        released.1, 50,
        "counted from the hand-off, not from the request"
    );

    let first = granted(share(&engine, &mut a, "shared", LONG_MS, at(400)));
    let second = granted(share(&engine, &mut b, "shared", LONG_MS, at(410)));
    let released = engine.release_timed(&mut b, key("shared"), second.fence, at(450));
    assert_eq!(released.1, 40);
    let released = engine.release_timed(&mut a, key("shared"), first.fence, at(450));
    assert_eq!(released.1, 50);
}

/// Writes down how long lost locks had been held.
#[derive(Default)]
struct Losses(Mutex<Vec<(Vec<u8>, u64)>>);

impl Host for Losses {
    type Waiter = ();

    fn granted(&self, (): (), _: Grant) {}
    fn gave_up(&self, (): (), _: GaveUp) {}
    fn lost(&self, loss: &Loss<'_>) {
        let mut losses = self.0.lock().unwrap();
        losses.push((loss.key.bytes().to_vec(), loss.held_ms));
    }
    fn session_ended(&self, _: SessionId) {}
}

#[test]
fn a_loss_tells_how_long_the_lock_was_held() {
    let engine = Engine::new(small(), Losses::default());
    let session = engine.open_session(10 * LONG_MS, at(0)).unwrap();
    let mut seat = Seat::new(session);
    let plain = Acquire::exclusive(key("plain"), 100);
    let in_record = Acquire::shared(key("in a record"), 100);
    let forced = Acquire::exclusive(key("forced"), LONG_MS);
    granted(engine.acquire(&mut seat, &plain, at(10)));
    granted(engine.acquire(&mut seat, &in_record, at(20)));
    let taken = granted(engine.acquire(&mut seat, &forced, at(30)));
    assert!(engine.force_release(key("forced"), taken.fence, at(70)));
    advance(&engine, at(150));
    let mut losses = engine.host().0.lock().unwrap().clone();
    losses.sort();
    let expected: [(&[u8], u64); 3] = [(b"forced", 40), (b"in a record", 130), (b"plain", 140)];
    assert_eq!(losses, expected.map(|(key, ms)| (key.to_vec(), ms)));
}

/// The oldest hold of the whole table, looked for `cells_max` cells at a time.
fn oldest(engine: &crate::common::Locks, cells_max: u32, now_ms: u64) -> Option<(Hold, u64)> {
    let mut from = Cursor::default();
    let mut oldest: Option<(Hold, u64)> = None;
    loop {
        let survey = engine.survey(from, cells_max, at(now_ms));
        if let Some(found) = survey.oldest
            && oldest.is_none_or(|(_, most_ms)| found.1 > most_ms)
        {
            oldest = Some(found);
        }
        match survey.next {
            Some(next) => from = next,
            None => return oldest,
        }
    }
}

#[test]
fn a_survey_finds_the_oldest_hold_in_however_many_parts() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    assert_eq!(oldest(&engine, 1, 5), None);
    let shared = granted(share(&engine, &mut a, "shared", LONG_MS, at(10)));
    granted(share(&engine, &mut b, "shared", LONG_MS, at(20)));
    let plain = take(&engine, &mut a, "plain", LONG_MS, at(15));
    for number in 0..100 {
        let name = format!("younger {number}");
        take(&engine, &mut a, &name, LONG_MS, at(30 + number));
    }
    for cells_max in [1, 7, 1000] {
        let (hold, age_ms) = oldest(&engine, cells_max, 200).unwrap();
        assert_eq!(age_ms, 190, "{cells_max} at a time");
        assert_eq!(engine.held_ms(hold, at(300)), Some(290));
    }
    let (hold, _) = oldest(&engine, 1000, 200).unwrap();
    give_back(&engine, &mut a, "shared", shared.fence, at(300));
    assert_eq!(
        engine.held_ms(hold, at(300)),
        None,
        "the other reader is not it"
    );
    let (hold, age_ms) = oldest(&engine, 3, 300).unwrap();
    assert_eq!(age_ms, 285);
    give_back(&engine, &mut a, "plain", plain.fence, at(300));
    take(&engine, &mut b, "plain", LONG_MS, at(310));
    assert_eq!(
        engine.held_ms(hold, at(320)),
        None,
        "the next grant is not it"
    );
}

#[test]
fn a_survey_from_any_cursor_ends() {
    let engine = locks();
    let mut a = seat(&engine);
    take(&engine, &mut a, "k", LONG_MS, at(0));
    for bits in [1, 1 << 24, 77 << 24 | 5, u32::MAX] {
        assert_eq!(
            engine.survey(Cursor::from_bits(bits), 10, at(1)).next,
            None,
            "{bits:#x}"
        );
    }
}

/// Room for 512 KiB of long keys, 256 KiB of short metadata and as much of long metadata.
fn tight() -> Settings {
    Settings {
        bytes_max: 1 << 20,
        idle_ms: 0,
        ..small()
    }
}

#[test]
fn long_keys_are_refused_at_the_bound_and_short_ones_are_not() {
    let engine = locks_with(tight());
    let mut a = seat(&engine);
    let long = |number: u32| format!("{number:0256}");
    let mut taken = Vec::new();
    let outcome = loop {
        let name = long(taken.len() as u32);
        match acquire(&engine, &mut a, &name, LONG_MS, at(0)) {
            Outcome::Granted(grant) => taken.push((name, grant)),
            other => break other,
        }
    };
    assert_eq!(outcome, Outcome::Busy(Limit::Bytes));
    assert!(taken.len() > 1000, "only {} long keys fit", taken.len());
    assert!(engine.bytes() <= 1 << 20);
    take(&engine, &mut a, "short", LONG_MS, at(0));
    let (name, grant) = &taken[0];
    let renewal = engine.renew(&a, key(name), grant.fence, 2 * LONG_MS, at(1));
    assert!(matches!(renewal, Renewal::Renewed { .. }));
    for (name, grant) in &taken {
        give_back(&engine, &mut a, name, grant.fence, at(2));
    }
    advance(&engine, at(3 * LONG_MS));
    assert_eq!(
        engine.bytes(),
        0,
        "keys that are forgotten cost nothing more"
    );
    take(&engine, &mut a, &long(7), LONG_MS, at(3 * LONG_MS));
}

#[test]
fn metadata_is_refused_at_the_bound_and_all_else_goes_on() {
    let engine = locks_with(tight());
    let [mut a, mut b] = seats(&engine);
    fn with_metadata(name: &str) -> Acquire<'_> {
        Acquire {
            metadata: &[b'n'; 1024],
            ..Acquire::exclusive(key(name), 1000)
        }
    }
    let mut names = Vec::new();
    let outcome = loop {
        let name = format!("k{}", names.len());
        match engine.acquire(&mut a, &with_metadata(&name), at(0)) {
            Outcome::Granted(grant) => names.push((name, grant)),
            other => break other,
        }
    };
    assert_eq!(outcome, Outcome::Busy(Limit::Bytes));
    assert!(engine.bytes() <= 1 << 20);
    let (first, grant) = &names[0];
    // A waiter with metadata is one too many; without one it may wait.
    let waiting = engine.acquire_or_wait(&mut b, &with_metadata(first), LONG_MS, || Some(1), at(1));
    assert_eq!(waiting, Outcome::Busy(Limit::Bytes));
    wait(&engine, &mut b, first, LONG_MS, 2, at(1));
    let renewal = engine.renew(&a, key(first), grant.fence, 2000, at(2));
    assert!(matches!(renewal, Renewal::Renewed { .. }));
    let full_bytes = engine.bytes();
    give_back(&engine, &mut a, first, grant.fence, at(3));
    assert_eq!(engine.host().take_grant().0, 2);
    assert_eq!(engine.bytes(), full_bytes - 1024);
    granted(engine.acquire(&mut a, &with_metadata("another"), at(4)));
    advance(&engine, at(1005));
    assert_eq!(
        engine.bytes(),
        0,
        "expired holders take their metadata along"
    );
}

#[test]
fn metadata_moves_from_the_queue_to_the_hold_and_is_counted_once() {
    let engine = locks_with(tight());
    let [mut a, mut b, mut c] = seats(&engine);
    let with_metadata = Acquire {
        metadata: b"host, task",
        ..Acquire::exclusive(Key::new(b"k").unwrap(), LONG_MS)
    };
    let first = granted(engine.acquire(&mut a, &with_metadata, at(0)));
    let queued = engine.acquire_or_wait(&mut b, &with_metadata, LONG_MS, || Some(1), at(0));
    assert!(matches!(queued, Outcome::Queued { .. }));
    let Outcome::Queued { ticket, .. } =
        engine.acquire_or_wait(&mut c, &with_metadata, LONG_MS, || Some(2), at(0))
    else {
        panic!("the queue has room")
    };
    // The holder's stands in a block beside its cell.
    assert_eq!(engine.bytes(), 64 + 20);
    assert_eq!(engine.cancel(ticket, at(1)), Some(2));
    assert_eq!(engine.bytes(), 64 + 10);
    give_back(&engine, &mut a, "k", first.fence, at(1));
    let (_, second) = engine.host().take_grant();
    assert_eq!(engine.bytes(), 10);
    give_back(&engine, &mut b, "k", second.fence, at(2));
    assert_eq!(engine.bytes(), 0);
}

#[test]
fn short_metadata_take_blocks_then_records_and_are_refused_at_the_bound() {
    let engine = locks_with(tight());
    let [mut a, mut b] = seats(&engine);
    fn with_metadata(name: &str) -> Acquire<'_> {
        Acquire {
            metadata: b"2f1c9a52-7d0e-4c38-9a6e-2f0f6f1f8a11",
            ..Acquire::exclusive(key(name), 1000)
        }
    }
    let mut names = Vec::new();
    let outcome = loop {
        let name = format!("k{}", names.len());
        match engine.acquire(&mut a, &with_metadata(&name), at(0)) {
            Outcome::Granted(grant) => names.push((name, grant.fence)),
            other => break other,
        }
    };
    assert_eq!(outcome, Outcome::Busy(Limit::Bytes));
    assert!(engine.bytes() <= 1 << 20);
    // Wherever they are, they are shown, found when all holds are walked over, and given back.
    for (name, fence) in &names {
        let holder = held(acquire(&engine, &mut b, name, 10, at(1)));
        assert_eq!((*holder.metadata).len(), 36);
        assert_eq!(holder.fence, *fence);
    }
    let (mut from, mut met) = (Some(Cursor::default()), 0);
    while let Some(cursor) = from {
        from = engine.holds(
            cursor,
            1000,
            || at(1),
            |hold| {
                met += usize::from(hold.metadata.len() == 36 && hold.held_ms == 1);
            },
        );
    }
    assert_eq!(met, names.len());
    for (name, fence) in &names {
        give_back(&engine, &mut a, name, *fence, at(2));
    }
    assert_eq!(engine.bytes(), 0);
}

#[test]
fn a_short_metadata_stays_with_its_hold_through_all_that_can_happen_to_it() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let request = Acquire {
        metadata: b"me",
        ..Acquire::exclusive(key("k"), 1000)
    };
    let metadata = |now| {
        let state = engine.query(key("k"), at(now)).unwrap();
        state.holders.first().map(|holder| holder.metadata.to_vec())
    };
    let grant = granted(engine.acquire(&mut a, &request, at(0)));
    assert_eq!(metadata(0).as_deref(), Some(&b"me"[..]));
    assert!(matches!(
        engine.renew(&a, key("k"), grant.fence, 2000, at(1)),
        Renewal::Renewed { .. }
    ));
    // Waited for, and renewed while it is: that takes a record.
    wait(&engine, &mut b, "k", LONG_MS, 7, at(2));
    assert!(matches!(
        engine.renew(&a, key("k"), grant.fence, 3000, at(3)),
        Renewal::Renewed { .. }
    ));
    assert_eq!(metadata(3).as_deref(), Some(&b"me"[..]));
    give_back(&engine, &mut a, "k", grant.fence, at(4));
    let (_, second) = engine.host().take_grant();
    assert_eq!(metadata(4).as_deref(), Some(&b""[..]));
    give_back(&engine, &mut b, "k", second.fence, at(5));
    // Taken away by force, by its session's end and by time, it leaves nothing behind.
    let grant = granted(engine.acquire(&mut a, &request, at(6)));
    assert!(engine.force_release(key("k"), grant.fence, at(7)));
    assert_eq!(engine.bytes(), 0);
    granted(engine.acquire(&mut a, &request, at(8)));
    engine.end_session(a.session());
    engine.vacate(&mut a, at(9));
    assert_eq!(engine.bytes(), 0);
    granted(engine.acquire(&mut b, &request, at(10)));
    advance(&engine, at(1011));
    assert_eq!(engine.bytes(), 0);
    assert_eq!(metadata(1012), None);
}

#[test]
fn a_key_that_is_given_back_long_before_its_lease_ends_is_forgotten_in_good_time() {
    const DAY_MS: u64 = 24 * 3_600_000;
    type End = fn(&Locks, &mut Seat, Fence);
    let ways: [(&str, End); 4] = [
        ("released", |engine, a, fence| {
            give_back(engine, a, "k", fence, at(5));
        }),
        ("released with a waiter in line", |engine, a, fence| {
            let mut b = seat(engine);
            let waiting = Acquire::exclusive(key("k"), DAY_MS);
            let (ticket, _) =
                queued(engine.acquire_or_wait(&mut b, &waiting, 1_000, || Some(7), at(2)));
            engine.cancel(ticket, at(3));
            give_back(engine, a, "k", fence, at(5));
        }),
        ("taken away", |engine, _, fence| {
            assert!(engine.force_release(key("k"), fence, at(5)));
        }),
        ("left behind by its session", |engine, a, _| {
            engine.end_session(a.session());
            engine.vacate(a, at(5));
        }),
    ];
    for (way, end) in ways {
        for metadata in [&b""[..], b"short", &[b'n'; 200]] {
            let engine = locks();
            let mut a = seat(&engine);
            let request = Acquire {
                metadata,
                ..Acquire::exclusive(key("k"), DAY_MS)
            };
            let grant = granted(engine.acquire(&mut a, &request, at(0)));
            advance(&engine, at(1));
            end(&engine, &mut a, grant.fence);
            for minute in 1..=15 {
                advance(&engine, at(minute * 60_000));
            }
            assert_eq!(
                engine.keys(),
                0,
                "{way}, metadata of {} bytes",
                metadata.len()
            );
        }
    }
}
