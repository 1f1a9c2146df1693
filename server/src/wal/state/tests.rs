//! The rules of replay, against the miniature server: in order, with snapshots taken at no moment in particular, and with
//! the records of several threads in another order than what happened.

use super::super::file::forgetful::{Dice, ForgetfulDisk};
use super::super::key::SessionKey;
use super::super::record::Lease;
use super::super::recovered::Recovered;
use super::super::replay::Layout;
use super::super::tests::model::{View, World};
use super::*;
use proptest::prelude::*;
use std::time::Instant;

fn recovered(state: State) -> Recovered {
    let disk = ForgetfulDisk::new();
    SessionKey::replace(&disk, None).unwrap();
    Recovered::new(state, &Layout::default(), Instant::now(), &disk).unwrap()
}

fn apply_all<'a>(state: &mut State, records: impl IntoIterator<Item = &'a Record<'a>>) {
    for record in records {
        state
            .apply_log(record)
            .unwrap_or_else(|rule| panic!("{record:?}: {rule}"));
    }
}

fn lease(key: &'static [u8], fence: u64, is_shared: bool) -> Lease<'static> {
    Lease {
        key,
        fence,
        session: 1,
        is_shared,
        is_session_bound: false,
        count: 1,
        until_unix_ms: 1000,
        granted_unix_ms: 10,
        note: b"",
    }
}

const OPENED: Record<'_> = Record::SessionOpened {
    session: 1,
    ttl_ms: 5,
    deadline_unix_ms: 500,
    name: b"",
};
const CEILING: Record<'_> = Record::Ceiling {
    shard: 0,
    fence: 100,
};

#[test]
fn a_ceiling_that_falls_is_refused() {
    let mut state = State::default();
    let ceiling = |fence| Record::Ceiling { shard: 7, fence };
    apply_all(&mut state, [&ceiling(5), &ceiling(5), &ceiling(9)]);
    let broken = BrokenRule::CeilingFell {
        shard: 7,
        fence: 8,
        before: 9,
    };
    assert_eq!(state.apply_log(&ceiling(8)), Err(broken));
}

#[test]
fn a_new_server_begins_above_every_ceiling_of_the_last() {
    let mut state = State::default();
    let started = Record::Started {
        unix_ms: 1,
        scope: Scope::Leases,
    };
    apply_all(&mut state, [&CEILING, &started]);
    let ceiling = Record::Ceiling {
        shard: 1,
        fence: 99,
    };
    assert!(state.apply_log(&ceiling).is_err());
}

#[test]
fn a_fence_above_every_ceiling_is_refused() {
    let mut state = State::default();
    apply_all(
        &mut state,
        [&CEILING, &Record::Granted(lease(b"k", 100, false))],
    );
    let above = Record::Granted(lease(b"k", 101, false));
    assert!(state.apply_log(&above).is_err());

    let mut state = State::default();
    state.apply_snapshot(&above).unwrap();
    assert!(state.settle().is_err(), "no ceiling came with the log");
}

#[test]
fn changes_do_not_belong_into_snapshots_nor_marks_into_the_log() {
    let mut state = State::default();
    let ended = Record::SessionEnded { session: 1 };
    assert_eq!(state.apply_snapshot(&ended), Err(BrokenRule::OutOfPlace));
    assert_eq!(
        state.apply_log(&Record::Synced),
        Err(BrokenRule::OutOfPlace)
    );
}

#[test]
fn an_id_that_comes_back_is_another_session() {
    let mut state = State::default();
    let ended = Record::SessionEnded { session: 1 };
    let (first, second) = (lease(b"first", 1, false), lease(b"second", 2, false));
    let late = Record::Granted(lease(b"late", 3, false));
    let (first, second) = (Record::Granted(first), Record::Granted(second));
    apply_all(
        &mut state,
        [&CEILING, &OPENED, &first, &ended, &late, &OPENED, &second],
    );
    let recovered = recovered(state);
    let keys: Vec<&[u8]> = recovered.leases.iter().map(|lease| lease.key).collect();
    assert_eq!(keys, [b"second"]);
    assert_eq!(recovered.sessions.len(), 1);
}

#[test]
fn leases_of_a_server_that_wrote_down_fences_only_are_worth_something_after_a_clean_stop_only() {
    let scope = Scope::Fences;
    let begin = Record::SnapshotBegin { unix_ms: 1, scope };
    let granted = Record::Granted(lease(b"k", 1, false));
    let snapshot = [begin, CEILING, OPENED, granted];
    let stop = Record::CleanStop { unix_ms: 2 };
    let started = |scope| Record::Started { unix_ms: 3, scope };
    let leases_after = |log: &[Record<'_>]| {
        let mut state = State::default();
        for record in &snapshot {
            state.apply_snapshot(record).unwrap();
        }
        apply_all(&mut state, log);
        let recovered = recovered(state);
        assert_eq!(recovered.leases.count(), recovered.sessions.len());
        recovered.leases.count()
    };
    assert_eq!(leases_after(&[]), 0, "it was killed after the snapshot");
    assert_eq!(leases_after(&[stop]), 1);
    assert_eq!(leases_after(&[stop, started(Scope::Fences)]), 0);
    assert_eq!(leases_after(&[stop, started(Scope::Leases)]), 1);
    let killed_in_between = [stop, started(Scope::Fences), started(Scope::Leases)];
    assert_eq!(leases_after(&killed_in_between), 0);
}

#[test]
fn a_lease_of_a_session_ends_with_it() {
    let mut state = State::default();
    let bound = Record::Granted(Lease {
        is_session_bound: true,
        ..lease(b"k", 1, false)
    });
    let kept = |deadline_unix_ms| Record::SessionKept {
        session: 1,
        deadline_unix_ms,
    };
    // The later sign of life counts, though the earlier one was written last.
    apply_all(
        &mut state,
        [&CEILING, &OPENED, &bound, &kept(900), &kept(800)],
    );
    let recovered = recovered(state);
    let ends: Vec<u64> = recovered
        .leases
        .iter()
        .map(|lease| lease.until_unix_ms)
        .collect();
    assert_eq!(ends, [900]);
}

/// A history, and what was true at its end.
fn history(dice: &mut Dice, steps: usize) -> (World, Vec<Record<'static>>) {
    let mut world = World::new();
    let mut records = Vec::new();
    for _ in 0..steps {
        records.extend(world.records(dice));
    }
    (world, records)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn replay_adds_up_to_what_is_true(seed in any::<u64>(), steps in 1..300_usize) {
        let (world, records) = history(&mut Dice(seed), steps);
        let mut state = State::default();
        apply_all(&mut state, &records);
        prop_assert_eq!(View::of(&recovered(state), world.now_unix_ms), world.view());
    }

    /// Everything before the snapshot is gone; its parts were written while the log went on.
    #[test]
    fn replay_over_a_fuzzy_snapshot_adds_up_to_what_is_true(
        seed in any::<u64>(),
        steps in proptest::array::uniform3(0..100_usize),
    ) {
        let dice = &mut Dice(seed);
        let mut world = World::new();
        for _ in 0..steps[0] {
            world.records(dice);
        }
        let mut parts: Vec<usize> = (0..World::PARTS).collect();
        let mut snapshot = Vec::new();
        let mut log = Vec::new();
        for step in 0..steps[1] + World::PARTS {
            if !parts.is_empty() && (dice.below(4) == 0 || step >= steps[1]) {
                let part = parts.swap_remove(dice.below(parts.len() as u64) as usize);
                snapshot.extend(world.part(part));
            }
            log.extend(world.records(dice));
        }
        prop_assert!(parts.is_empty());
        for _ in 0..steps[2] {
            log.extend(world.records(dice));
        }
        let mut state = State::default();
        for record in &snapshot {
            state.apply_snapshot(record).unwrap();
        }
        apply_all(&mut state, &log);
        prop_assert_eq!(View::of(&recovered(state), world.now_unix_ms), world.view());
    }

    #[test]
    fn replaying_a_log_twice_changes_nothing(seed in any::<u64>(), steps in 1..200_usize) {
        let (world, records) = history(&mut Dice(seed), steps);
        let mut state = State::default();
        // As a snapshot's records would: without the check that ceilings rise.
        apply_all(&mut state, &records);
        state.life_ceilings.clear();
        apply_all(&mut state, &records);
        // Sessions that ended are opened anew the second time, and end again.
        prop_assert_eq!(View::of(&recovered(state), world.now_unix_ms), world.view());
    }

    /// What several threads wrote: nothing that is held is forgotten, and nobody holds beside an exclusive holder.
    #[test]
    fn the_order_of_threads_loses_no_lock(seed in any::<u64>(), steps in 1..300_usize) {
        let dice = &mut Dice(seed);
        let (world, records) = history(dice, steps);
        let mut state = State::default();
        apply_all(&mut state, &shuffled(records, dice));
        let found = View::of(&recovered(state), world.now_unix_ms);
        let truth = world.view();
        prop_assert_eq!(&found.sessions, &truth.sessions);
        prop_assert_eq!(&found.ceilings, &truth.ceilings);
        for (name, lease) in &truth.leases {
            prop_assert_eq!(found.leases.get(name), Some(lease));
        }
        for ((key, fence), lease) in &found.leases {
            let others = found.leases.keys().filter(|(other, at)| other == key && at != fence);
            prop_assert!(lease.is_shared || others.count() == 0);
        }
    }
}

/// The order in which several threads might have written this. A client asks for the next thing about a lock only when the
/// last is on the disk, and for a lock only when its session and the ceiling above it are; the rest may overtake by a few.
fn shuffled(records: Vec<Record<'static>>, dice: &mut Dice) -> Vec<Record<'static>> {
    let mut order: Vec<Record<'static>> = Vec::new();
    for record in records {
        let mut at = order.len();
        for _ in 0..dice.below(6) {
            if at == 0 || must_follow(&order[at - 1], &record) {
                break;
            }
            at -= 1;
        }
        order.insert(at, record);
    }
    order
}

fn must_follow(before: &Record<'_>, after: &Record<'_>) -> bool {
    let name = |record: &Record<'_>| match *record {
        Record::Granted(Lease { key, fence, .. })
        | Record::Renewed { key, fence, .. }
        | Record::Released { key, fence, .. }
        | Record::Downgraded { key, fence } => Some((key.to_vec(), fence)),
        _ => None,
    };
    let session = |record: &Record<'_>| match *record {
        Record::Granted(Lease { session, .. })
        | Record::SessionKept { session, .. }
        | Record::SessionEnded { session } => Some(session),
        _ => None,
    };
    match *before {
        Record::Ceiling { .. } | Record::Horizon { .. } => true,
        Record::SessionOpened {
            session: opened, ..
        } => session(after) == Some(opened),
        _ => name(before).is_some() && name(before) == name(after),
    }
}
