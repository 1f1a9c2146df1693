mod fuzzy;

use super::*;
use crate::record::Lease;
use types::Mode;

fn lease(key: &[u8], fence: u64, session: u64, until_unix_ms: u64) -> Record<'_> {
    Record::Granted(Lease {
        key,
        fence,
        session,
        mode: Mode::Exclusive,
        is_session_bound: false,
        count: 1,
        until_unix_ms,
        granted_unix_ms: 1,
        note: b"note",
    })
}

fn session(session: u64, deadline_unix_ms: u64) -> Record<'static> {
    Record::SessionOpened {
        session,
        ttl_ms: 1_000,
        deadline_unix_ms,
        name: b"client",
    }
}

fn released(key: &[u8], fence: u64) -> Record<'_> {
    Record::Released {
        key,
        fence,
        count_left: 0,
    }
}

fn ceiling(fence: u64) -> Record<'static> {
    Record::Ceiling { shard: 0, fence }
}

fn ledger(records: &[Record<'_>]) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.begin_reign();
    for record in records {
        ledger.apply(record).unwrap();
    }
    ledger
}

fn held(ledger: &mut Ledger) -> Vec<(Vec<u8>, u64)> {
    ledger.settle();
    let leases = ledger.parts().iter().flat_map(Leases::iter);
    let mut held: Vec<_> = leases
        .map(|lease| (lease.key.to_vec(), lease.fence))
        .collect();
    held.sort();
    held
}

fn image(ledger: &mut Ledger) -> Vec<u8> {
    let mut bytes = Vec::new();
    let under_way = ledger.put_image_head(&mut bytes);
    (0..PARTS).for_each(|part| ledger.put_image_part(&under_way, part, &mut bytes));
    bytes
}

fn hashes(ledger: &mut Ledger) -> Vec<u64> {
    (0..PARTS).map(|part| ledger.hash(part)).collect()
}

#[test]
fn an_image_comes_back_as_it_was() {
    let mut before = ledger(&[
        ceiling(100),
        session(7, 5_000),
        lease(b"a", 3, 7, 4_000),
        lease(b"b", 4, 7, 4_000),
        released(b"b", 4),
        // The grant of this end is yet to come.
        released(b"c", 9),
    ]);
    let mut after = Ledger::from_image(&image(&mut before)).unwrap();
    assert_eq!(held(&mut after), [(b"a".to_vec(), 3)]);
    assert_eq!(hashes(&mut after), hashes(&mut before));
    for ledger in [&mut before, &mut after] {
        ledger.apply(&lease(b"c", 9, 7, 4_000)).unwrap();
        ledger.apply(&lease(b"b", 4, 7, 4_000)).unwrap();
        assert_eq!(held(ledger), [(b"a".to_vec(), 3)], "both were over");
    }
}

#[test]
fn what_is_over_goes_and_what_is_held_stays() {
    let mut ledger = ledger(&[ceiling(1_000_000), session(7, u64::MAX)]);
    let keys: Vec<String> = (0..20_000).map(|number| format!("key{number}")).collect();
    for (key, fence) in keys.iter().zip(1..) {
        let until_ms = if fence % 10 == 0 { u64::MAX } else { 500 };
        let granted = lease(key.as_bytes(), fence, 7, until_ms);
        ledger.apply(&granted).unwrap();
    }
    let held_before = held(&mut ledger).len();
    assert_eq!(held_before, keys.len());
    for stamp_ms in [1_000, 2_000, 3_000] {
        ledger.reach(stamp_ms);
        ledger.apply(&Record::TurnsEnded).unwrap();
    }
    let before = hashes(&mut ledger);
    let gone: usize = (0..PARTS).map(|_| ledger.clear_out()).sum();
    assert_eq!(gone, keys.len() * 9 / 10);
    assert_eq!(ledger.keys(), keys.len() / 10);
    assert_eq!(held(&mut ledger).len(), keys.len() / 10);
    assert_eq!(hashes(&mut ledger), before, "what is over shows nowhere");
}

#[test]
fn a_lease_that_ended_may_still_be_renewed_by_a_turn_that_has_not() {
    let mut ledger = ledger(&[ceiling(100), session(7, u64::MAX)]);
    for number in 0..1_000 {
        let key = format!("key{number}");
        ledger
            .apply(&lease(key.as_bytes(), number + 1, 7, 1_500))
            .unwrap_or_default();
    }
    ledger.reach(1_000);
    ledger.apply(&Record::TurnsEnded).unwrap();
    ledger.reach(2_000);
    ledger.apply(&Record::TurnsEnded).unwrap();
    (0..PARTS).for_each(|_| {
        ledger.clear_out();
    });
    let renewed = Record::Renewed {
        key: b"key1",
        fence: 2,
        until_unix_ms: 9_000,
    };
    ledger.apply(&renewed).unwrap();
    ledger.reach(3_000);
    ledger.apply(&Record::TurnsEnded).unwrap();
    (0..PARTS).for_each(|_| {
        ledger.clear_out();
    });
    ledger.settle();
    let leases = ledger.parts().iter().flat_map(Leases::iter);
    let renewed: Vec<u64> = leases
        .filter(|lease| lease.key == b"key1")
        .map(|lease| lease.until_unix_ms)
        .collect();
    assert_eq!(renewed, [9_000]);
}

#[test]
fn numbers_of_sessions_are_used_again() {
    let mut ledger = ledger(&[ceiling(1_000_000)]);
    for id in 1..=10_000 {
        ledger.apply(&session(id, u64::MAX)).unwrap();
        ledger.apply(&lease(b"key", id, id, u64::MAX)).unwrap();
        ledger.apply(&Record::SessionEnded { session: id }).unwrap();
        if id % 100 == 0 {
            ledger.apply(&Record::TurnsEnded).unwrap();
            (0..PARTS).for_each(|_| {
                ledger.clear_out();
            });
        }
    }
    assert!(
        ledger.sessions.slots() < 1_000,
        "{}",
        ledger.sessions.slots()
    );
    assert!(held(&mut ledger).is_empty());
}

fn shared(fence: u64) -> Record<'static> {
    let Record::Granted(exclusive) = lease(b"key", fence, 7, u64::MAX) else {
        unreachable!("it is a grant")
    };
    Record::Granted(Lease {
        mode: Mode::Shared,
        ..exclusive
    })
}

fn end_turns(ledger: &mut Ledger) {
    ledger.apply(&Record::TurnsEnded).unwrap();
    for _ in 0..PARTS {
        ledger.clear_out();
    }
}

#[test]
fn a_key_that_is_always_shared_leaves_nothing_behind() {
    let begin = [ceiling(1_000_000), session(7, u64::MAX), shared(1)];
    let (mut cleared, mut kept) = (ledger(&begin), ledger(&begin));
    for fence in 2..=20_000 {
        for ledger in [&mut cleared, &mut kept] {
            ledger.apply(&shared(fence)).unwrap();
            ledger.apply(&released(b"key", fence)).unwrap();
        }
        if fence % 100 == 0 {
            end_turns(&mut cleared);
        }
    }
    let remembered: usize = cleared.parts.iter().map(Leases::remembered).sum();
    assert!(remembered < 1_000, "{remembered}");
    assert_eq!(hashes(&mut cleared), hashes(&mut kept));
}

/// Whatever a cluster does for long, its nodes keep in memory what is held, and little beside. Here
/// a few hundred locks are held at a time, in sessions that come and go.
#[test]
fn a_ledger_that_works_for_long_keeps_what_is_held() {
    /// Some ten times what is held at any moment. What is over is only looked for among so many.
    const KEPT_BYTES_MAX: usize = 512 << 10;
    const STEPS: u64 = 120_000;
    const STEPS_OF_GENERATION: u64 = 300;
    const STEPS_OF_SESSION: u64 = 50;
    let mut ledger = ledger(&[ceiling(u64::MAX), session(7, u64::MAX), shared(0)]);
    let mut written_bytes = 0;
    for step in 1..=STEPS {
        let mut apply = |record: &Record<'_>| {
            let mut bytes = Vec::new();
            record.append_to(&mut bytes);
            written_bytes += bytes.len();
            ledger.apply(record).unwrap();
        };
        let session_id = 1_000 + step / STEPS_OF_SESSION;
        if step.is_multiple_of(STEPS_OF_SESSION) {
            apply(&session(session_id, step + 400));
            // Every other one ends by itself.
            if session_id.is_multiple_of(2) {
                let session = session_id - 3;
                apply(&Record::SessionEnded { session });
            }
        }
        let (request, count) = (step, 1);
        apply(&Record::Answered {
            session: session_id,
            request,
            fence: step,
            count,
        });
        let once = format!("once/{step}");
        apply(&lease(once.as_bytes(), step, session_id, step + 100));
        let busy = format!("busy/{}", step % 20);
        apply(&lease(busy.as_bytes(), step, session_id, step + 100));
        apply(&released(busy.as_bytes(), step));
        // Its first holder stays, so no end of a later one makes room of those before.
        if step.is_multiple_of(7) {
            apply(&released(b"key", step));
            apply(&shared(step));
        } else {
            apply(&shared(step));
            apply(&released(b"key", step));
        }
        if step.is_multiple_of(STEPS_OF_GENERATION) {
            ledger.reach(step);
            end_turns(&mut ledger);
            let kept = ledger.kept_bytes();
            assert!(kept < KEPT_BYTES_MAX, "{kept} bytes after {step} steps");
        }
    }
    assert!(
        written_bytes > 30 * KEPT_BYTES_MAX,
        "too little to show anything: {written_bytes}"
    );
}

#[test]
fn an_end_is_remembered_until_its_grant_must_have_come() {
    let mut ledger = ledger(&[ceiling(100), session(7, u64::MAX), released(b"key", 5)]);
    end_turns(&mut ledger);
    ledger.apply(&shared(5)).unwrap();
    assert!(held(&mut ledger).is_empty());
}

#[test]
fn what_ended_stays_ended_for_the_next_leader() {
    let mut ledger = ledger(&[
        ceiling(100),
        session(7, 5_000),
        lease(b"a", 3, 7, 4_000),
        released(b"a", 3),
        lease(b"b", 4, 7, 4_000),
    ]);
    ledger.begin_reign();
    // No leader says this of a lock that it does not find in its ledger.
    ledger.apply(&lease(b"a", 3, 7, 4_000)).unwrap();
    ledger.apply(&ceiling(200)).unwrap();
    ledger.apply(&lease(b"a", 101, 7, 4_500)).unwrap();
    assert_eq!(
        held(&mut ledger),
        [(b"a".to_vec(), 101), (b"b".to_vec(), 4)]
    );
    ledger.apply(&released(b"a", 101)).unwrap();
    assert_eq!(held(&mut ledger), [(b"b".to_vec(), 4)]);
}

#[test]
fn a_fence_above_every_ceiling_is_refused() {
    let mut ledger = ledger(&[ceiling(10), session(7, 5_000)]);
    let refused = ledger.apply(&lease(b"a", 11, 7, 4_000)).unwrap_err();
    assert_eq!(
        refused,
        LedgerError::Rule(BrokenRule::FenceAboveCeilings {
            fence: 11,
            ceiling: 10
        })
    );
}

/// Grants are indexed many at a time. One whose key was known left an entry without a holder
/// behind, and images and clearings took that for another entry of the key. The next grant of the
/// key went to either of the two, and the holder in the other one was never replaced.
#[test]
fn a_key_that_was_granted_often_has_one_entry_in_an_image() {
    let other = &beside_a(1)[0];
    let mut before = ledger(&[
        ceiling(100),
        session(7, 5_000),
        lease(b"a", 3, 7, 4_000),
        lease(b"a", 4, 7, 4_000),
        lease(b"a", 5, 7, 4_000),
        lease(other.as_bytes(), 6, 7, 4_000),
    ]);
    let mut after = Ledger::from_image(&image(&mut before)).unwrap();
    assert_eq!(after.keys(), 2);
    for ledger in [&mut before, &mut after] {
        ledger.apply(&lease(b"a", 7, 7, 4_000)).unwrap();
        ledger.apply(&released(other.as_bytes(), 6)).unwrap();
        assert_eq!(held(ledger), [(b"a".to_vec(), 7)]);
    }
    assert_eq!(hashes(&mut after), hashes(&mut before));
}

#[test]
fn a_key_that_was_granted_often_has_one_entry_when_room_was_made() {
    let keys = beside_a(200);
    let (last, keys) = keys.split_last().unwrap();
    let mut ledger = ledger(&[ceiling(1_000_000), session(7, u64::MAX)]);
    for (key, fence) in keys.iter().zip(1..) {
        ledger.apply(&lease(key.as_bytes(), fence, 7, 500)).unwrap();
    }
    for stamp_ms in [1_000, 2_000, 3_000] {
        ledger.reach(stamp_ms);
        ledger.apply(&Record::TurnsEnded).unwrap();
    }
    for fence in [1_001, 1_002, 1_003] {
        ledger.apply(&lease(b"a", fence, 7, u64::MAX)).unwrap();
    }
    let granted = lease(last.as_bytes(), 1_004, 7, u64::MAX);
    ledger.apply(&granted).unwrap();
    let gone: usize = (0..PARTS).map(|_| ledger.clear_out()).sum();
    assert!(gone >= keys.len());
    assert_eq!(ledger.keys(), 2);
    ledger.apply(&lease(b"a", 1_005, 7, u64::MAX)).unwrap();
    let both = [(b"a".to_vec(), 1_005), (last.clone().into_bytes(), 1_004)];
    assert_eq!(held(&mut ledger), both);
}

/// Keys in the part of the key `a`.
fn beside_a(count: usize) -> Vec<String> {
    let keys = (0..).map(|number| format!("key{number}"));
    let keys = keys.filter(|key| part_number(key.as_bytes()) == part_number(b"a"));
    keys.take(count).collect()
}

#[test]
fn a_cut_or_changed_image_is_refused_or_read_and_never_panics() {
    let mut before = ledger(&[ceiling(100), session(7, 5_000), lease(b"a", 3, 7, 4_000)]);
    let bytes = image(&mut before);
    for cut in 0..bytes.len() {
        assert!(Ledger::from_image(&bytes[..cut]).is_err(), "{cut}");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x41;
        let _ = Ledger::from_image(&changed);
    }
}

#[test]
fn the_latest_answers_of_a_session_are_known_and_come_with_an_image() {
    let mut ledger = ledger(&[session(7, u64::MAX)]);
    for request in 1..=300 {
        let answered = Record::Answered {
            session: 7,
            request,
            fence: request + 1_000,
            count: 1,
        };
        // Twice, as a fuzzy image would have it.
        ledger.apply(&answered).unwrap();
        ledger.apply(&answered).unwrap();
    }
    let image = image(&mut ledger);
    for mut ledger in [ledger, Ledger::from_image(&image).unwrap()] {
        // Old ones may come once more, in any order, and change nothing.
        for request in [300, 299, 45] {
            let (session, fence) = (7, request + 1_000);
            let answered = Record::Answered {
                session,
                request,
                fence,
                count: 1,
            };
            ledger.apply(&answered).unwrap();
        }
        let session = ledger.sessions().remove(0);
        assert_eq!(session.answers.len(), crate::ANSWERS_MAX);
        assert_eq!(session.answers_forgotten, 44);
        let last = session.answers[255];
        assert_eq!((last.request, last.fence), (300, 1_300));
        ledger.apply(&Record::SessionEnded { session: 7 }).unwrap();
        assert!(ledger.sessions().is_empty());
    }
}
