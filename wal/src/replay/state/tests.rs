//! The rules of replay, against the miniature server: in order, with snapshots taken at no moment
//! in particular, and with the records of several threads in another order than what happened.

use super::*;
use crate::files::key::SessionKey;
use crate::record::Lease;
use crate::replay::Layout;
use crate::replay::recovered::Recovered;
use crate::tests::model::{View, World};
use disk::forgetful::{Dice, ForgetfulDisk};
use proptest::prelude::*;
use std::time::Instant;
use types::Mode;

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

fn lease(key: &'static [u8], fence: u64, mode: Mode) -> Lease<'static> {
    Lease {
        key,
        fence,
        session: 1,
        mode,
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
const HORIZON: Record<'_> = Record::Horizon {
    unix_ms: 4,
    lease_ms_max: Some(1),
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
        [
            &CEILING,
            &Record::Granted(lease(b"k", 100, Mode::Exclusive)),
        ],
    );
    let above = Record::Granted(lease(b"k", 101, Mode::Exclusive));
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
    let (first, second) = (
        lease(b"first", 1, Mode::Exclusive),
        lease(b"second", 2, Mode::Exclusive),
    );
    let late = Record::Granted(lease(b"late", 3, Mode::Exclusive));
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

/// What is left of a lease that was held at a clean stop, after these records.
fn leases_after(held: &Record<'_>, log: &[Record<'_>]) -> usize {
    let scope = Scope::Fences;
    let begin = Record::SnapshotBegin { unix_ms: 1, scope };
    let mut state = State::default();
    for record in [&begin, &CEILING, &OPENED, held] {
        state.apply_snapshot(record).unwrap();
    }
    apply_all(&mut state, log);
    let recovered = recovered(state);
    assert_eq!(recovered.leases.count(), recovered.sessions.len());
    recovered.leases.count()
}

#[test]
fn a_lease_is_known_until_a_server_serves_that_does_not_follow_it() {
    let stop = Record::CleanStop { unix_ms: 2 };
    let started = |scope| Record::Started { unix_ms: 3, scope };
    let short = Record::Granted(lease(b"k", 1, Mode::Exclusive));
    let killed_at_start = [stop, started(Scope::Fences)];
    let killed_twice = [stop, started(Scope::Fences), started(Scope::Leases)];
    assert_eq!(leases_after(&short, &[]), 1, "killed behind the snapshot");
    assert_eq!(leases_after(&short, &[stop]), 1);
    assert_eq!(leases_after(&short, &killed_at_start), 1);
    assert_eq!(leases_after(&short, &killed_twice), 1);
    let served = [stop, started(Scope::Fences), HORIZON];
    assert_eq!(leases_after(&short, &served), 0);
    let served_both = [
        stop,
        started(Scope::Fences),
        HORIZON,
        started(Scope::Leases),
    ];
    assert_eq!(leases_after(&short, &served_both), 0);
    let served_leases = [stop, started(Scope::Leases), HORIZON];
    assert_eq!(leases_after(&short, &served_leases), 1);
}

#[test]
fn a_long_lease_outlives_any_number_of_servers_until_it_is_released() {
    let stop = Record::CleanStop { unix_ms: 2 };
    let scope = Scope::Fences;
    let started = Record::Started { unix_ms: 3, scope };
    let held = lease(b"k", 1, Mode::Exclusive);
    let long = Record::GrantedLong(held);
    let released = Record::Released {
        key: b"k",
        fence: 1,
        count_left: 0,
    };
    assert_eq!(leases_after(&long, &[stop, started, HORIZON]), 1);
    // Written down again by a server for which it has become a long one.
    let short = Record::Granted(held);
    let again = [stop, started, long, HORIZON, started, HORIZON, HORIZON];
    assert_eq!(leases_after(&short, &again), 1);
    let given_back = [stop, started, HORIZON, released, started, HORIZON];
    assert_eq!(leases_after(&long, &given_back), 0);
}

#[test]
fn a_horizon_counts_until_a_clean_stop_whatever_is_started_in_between() {
    let scope = Scope::Fences;
    let started = |scope| Record::Started { unix_ms: 3, scope };
    let horizon_after = |log: &[Record<'_>]| {
        let mut state = State::default();
        apply_all(&mut state, log);
        let recovered = recovered(state);
        (recovered.horizon_unix_ms, recovered.horizon_lease_ms_max)
    };
    let horizon = |unix_ms, lease_ms_max| Record::Horizon {
        unix_ms,
        lease_ms_max,
    };
    let (near, far) = (horizon(9, Some(5)), horizon(90, Some(50)));
    let stop = Record::CleanStop { unix_ms: 4 };
    let lease = started(Scope::Leases);
    assert_eq!(horizon_after(&[started(scope), near, lease, lease]), (9, 5));
    assert_eq!(horizon_after(&[started(scope), far, near]), (90, 50));
    assert_eq!(horizon_after(&[started(scope), near, stop]).0, 0);
    assert_eq!(horizon_after(&[started(scope), near, stop, lease]).0, 0);
    // A horizon that has passed bounds nothing any more.
    let clock = Record::Clock {
        unix_ms: 10,
        wall_unix_ms: None,
    };
    assert_eq!(
        horizon_after(&[started(scope), horizon(9, None)]),
        (9, u64::MAX)
    );
    let later = [started(scope), horizon(9, None), clock, far];
    assert_eq!(horizon_after(&later), (90, 50));
}

#[test]
fn the_latest_word_about_the_wall_clock_counts() {
    let clock = |unix_ms, wall_unix_ms| Record::Clock {
        unix_ms,
        wall_unix_ms,
    };
    let ahead_after = |log: &[Record<'_>]| {
        let mut state = State::default();
        apply_all(&mut state, log);
        let recovered = recovered(state);
        (recovered.last_clock_unix_ms, recovered.wall_ahead_ms)
    };
    assert_eq!(ahead_after(&[clock(100, None)]), (100, 0));
    assert_eq!(ahead_after(&[clock(100, Some(150))]), (100, 50));
    let back = [clock(100, Some(150)), clock(101, Some(41))];
    assert_eq!(ahead_after(&back), (101, -60));
}

#[test]
fn a_lease_of_a_session_ends_with_it() {
    let mut state = State::default();
    let bound = Record::Granted(Lease {
        is_session_bound: true,
        ..lease(b"k", 1, Mode::Exclusive)
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

    /// What several threads wrote, in every order that `leases.rs` allows.
    #[test]
    fn the_order_of_threads_changes_nothing(seed in any::<u64>(), steps in 1..300_usize) {
        let dice = &mut Dice(seed);
        let mut world = World::new();
        let mut threads = Threads::new(RenewalWaits::Never);
        for _ in 0..steps {
            threads.step(&mut world, dice);
        }
        threads.append_all();
        let mut state = State::default();
        apply_all(&mut state, &threads.log);
        prop_assert_eq!(View::of(&recovered(state), world.now_unix_ms), world.view());
    }

    /// The same, with a snapshot taken meanwhile. See `snapshot.rs` for its steps.
    #[test]
    fn the_order_of_threads_changes_nothing_over_a_snapshot(
        seed in any::<u64>(),
        steps in proptest::array::uniform4(0..60_usize),
    ) {
        let dice = &mut Dice(seed);
        let mut world = World::new();
        // A grant that stands behind its renewal and behind the snapshot is in the next test.
        let mut threads = Threads::new(RenewalWaits::ForGrant);
        for _ in 0..steps[0] {
            threads.step(&mut world, dice);
        }
        let begin = threads.log.len();
        for thread in 0..THREADS {
            for _ in 0..dice.below(1 + steps[1] as u64) {
                threads.step(&mut world, dice);
            }
            threads.append(thread);
        }
        let log_position = threads.log.len() as u64;
        let mut snapshot = vec![Record::SnapshotShows { log_position }];
        let mut parts: Vec<usize> = (0..World::PARTS).collect();
        while !parts.is_empty() {
            for _ in 0..dice.below(1 + steps[2] as u64 / 4) {
                threads.step(&mut world, dice);
            }
            let part = parts.swap_remove(dice.below(parts.len() as u64) as usize);
            snapshot.extend(world.part(part));
        }
        for _ in 0..steps[3] {
            threads.step(&mut world, dice);
        }
        threads.append_all();
        let mut state = State::default();
        for record in &snapshot {
            state.apply_snapshot(record).unwrap();
        }
        for (position, record) in threads.log.iter().enumerate().skip(begin) {
            state.reach(Position::new(position as u64));
            apply_all(&mut state, [record]);
        }
        prop_assert_eq!(View::of(&recovered(state), world.now_unix_ms), world.view());
    }
}

const THREADS: usize = 3;

/// Several threads that append what they decided when their turns end, which is at no moment in
/// particular.
struct Threads {
    log: Vec<Record<'static>>,
    pending: [Vec<Record<'static>>; THREADS],
    renewal_waits: RenewalWaits,
}

#[derive(PartialEq)]
enum RenewalWaits {
    Never,
    ForGrant,
}

impl Threads {
    fn new(renewal_waits: RenewalWaits) -> Self {
        Threads {
            log: Vec::new(),
            pending: Default::default(),
            renewal_waits,
        }
    }

    /// Something happens, on one of them.
    fn step(&mut self, world: &mut World, dice: &mut Dice) {
        if dice.below(4) == 0 {
            self.append(dice.below(THREADS as u64) as usize);
        }
        let thread = dice.below(THREADS as u64) as usize;
        for record in world.records(dice) {
            match name(&record) {
                Some(name) => {
                    self.append_first(thread, &record, name);
                    self.pending[thread].push(record);
                }
                // A client has been answered before it opens a lock, and a fence is below its
                // ceiling: not of interest here.
                None => {
                    if matches!(record, Record::SessionEnded { .. }) {
                        self.append_all();
                    }
                    self.log.push(record);
                }
            }
        }
    }

    /// Has the other threads append first that have something which must stand in front of this.
    fn append_first(&mut self, thread: usize, record: &Record<'_>, of: (&[u8], u64)) {
        for other in 0..THREADS {
            let mut theirs = self.pending[other].iter();
            if other != thread && theirs.any(|before| self.must_follow(before, record, of)) {
                self.append(other);
            }
        }
    }

    /// Whether these two stand in the log in the order of their effect, whichever threads they are
    /// of.
    fn must_follow(&self, before: &Record<'_>, after: &Record<'_>, of: (&[u8], u64)) -> bool {
        let is_free = |record: &Record<'_>| match *record {
            Record::Granted(lease) => lease.count == 1,
            Record::Released { count_left, .. } => count_left == 0,
            Record::Downgraded { .. } => true,
            _ => false,
        };
        let grant_first = self.renewal_waits == RenewalWaits::ForGrant
            && matches!(after, Record::Renewed { .. })
            && matches!(before, Record::Granted(_));
        name(before) == Some(of) && (grant_first || !is_free(before) && !is_free(after))
    }

    fn append(&mut self, thread: usize) {
        self.log.append(&mut self.pending[thread]);
    }

    fn append_all(&mut self) {
        (0..THREADS).for_each(|thread| self.append(thread));
    }
}

fn name<'a>(record: &Record<'a>) -> Option<(&'a [u8], u64)> {
    match *record {
        Record::Granted(Lease { key, fence, .. })
        | Record::GrantedLong(Lease { key, fence, .. })
        | Record::Renewed { key, fence, .. }
        | Record::Released { key, fence, .. }
        | Record::Downgraded { key, fence } => Some((key, fence)),
        _ => None,
    }
}

/// A lock is handed to a client whose thread is busy, and another client shortens its lease. The
/// snapshot shows that; then the record of the grant comes. The lease may be found as long as it
/// was granted, not longer, and it is not lost.
#[test]
fn a_grant_behind_its_renewal_and_behind_the_snapshot_is_not_lost() {
    let renewed = Record::Renewed {
        key: b"k",
        fence: 1,
        until_unix_ms: 500,
    };
    let shown = Record::Granted(Lease {
        until_unix_ms: 500,
        ..lease(b"k", 1, Mode::Exclusive)
    });
    let mut state = State::default();
    for record in [
        Record::SnapshotShows { log_position: 0 },
        CEILING,
        OPENED,
        shown,
    ] {
        state.apply_snapshot(&record).unwrap();
    }
    apply_all(
        &mut state,
        [&renewed, &Record::Granted(lease(b"k", 1, Mode::Exclusive))],
    );
    let recovered = recovered(state);
    let ends = recovered.leases.iter().map(|lease| lease.until_unix_ms);
    assert_eq!(ends.collect::<Vec<_>>(), [1000]);
}

/// The end of a lock stands in the log before its snapshot, the grant behind it. What the snapshot
/// says of itself decides whether the grant counts.
#[test]
fn a_grant_that_the_snapshot_must_have_shown_is_over() {
    for (log_position, is_held) in [(5, true), (6, false)] {
        let mut state = State::default();
        for record in [Record::SnapshotShows { log_position }, CEILING, OPENED] {
            state.apply_snapshot(&record).unwrap();
        }
        state.reach(Position::new(5));
        apply_all(
            &mut state,
            [&Record::Granted(lease(b"k", 1, Mode::Exclusive))],
        );
        assert_eq!(recovered(state).leases.count() == 1, is_held);
    }
}

/// In the grace period a holder claims what it held, under its old fence. That a server before
/// wrote down its end, because an operator took it away and the holder did not hear of it, does not
/// undo the claim that was granted.
#[test]
fn a_claim_counts_though_a_life_before_wrote_down_the_end() {
    let scope = Scope::Leases;
    let granted = Record::Granted(lease(b"k", 7, Mode::Exclusive));
    let ended = Record::Released {
        key: b"k",
        fence: 7,
        count_left: 0,
    };
    let started = Record::Started { unix_ms: 3, scope };
    let mut state = State::default();
    apply_all(&mut state, [&CEILING, &OPENED, &granted, &ended]);
    apply_all(&mut state, [&started, &granted]);
    assert_eq!(recovered(state).leases.count(), 1);
}
