//! Stopping at every operation in turn, forgetting what was not synced, and starting again.

use super::life::{Life, Trail, live, options};
use super::model::View;
use crate::error::WalError;
use crate::files::segment::{Header, Name, PAGE_BYTES, Sort, UNFINISHED};
use crate::log::{Found, Log, Options};
use crate::record::frame;
use crate::record::{Record, Scope};
use crate::replay::recovered::Recovered;
use disk::Disk;
use disk::forgetful::{Dice, FailKind, ForgetfulDisk, Keep};
use std::sync::Arc;

const TURNS: usize = 60;

/// How many operations a life of that seed takes.
fn operations(seed: u64) -> u64 {
    let disk = ForgetfulDisk::new();
    let life = live(&disk, &mut Trail::new(), &mut Dice(seed), TURNS);
    assert!(life.unwrap().snapshots > 1, "seed {seed} writes snapshots");
    disk.operations()
}

/// What is there after a stop: the process was killed, or the power failed.
fn after(disk: &ForgetfulDisk, dice: &mut Dice) -> ForgetfulDisk {
    match dice.below(1 + Keep::ALL.len() as u64) {
        0 => disk.kill(),
        keep => disk.cut_power(Keep::ALL[keep as usize - 1], dice),
    }
}

#[test]
fn whatever_the_moment_of_a_crash_what_was_synced_is_found_and_nothing_is_invented() {
    for seed in 1..=3 {
        let mut lost = 0;
        for stop in 0..operations(seed) {
            for variant in 0..6 {
                let dice = &mut Dice(seed);
                let trail = &mut Trail::new();
                let disk = ForgetfulDisk::new();
                disk.stop_at(stop);
                assert!(live(&disk, trail, dice, TURNS).is_err());
                lost += trail.unsynced();

                // The next one is stopped too, some of them while they still read or tidy up.
                let dice = &mut Dice(stop * 1000 + variant);
                let disk = after(&disk, dice);
                disk.stop_at(dice.below(60));
                let stopped = live(&disk, trail, dice, TURNS);
                assert!(
                    stopped.is_err(),
                    "seed {seed} stop {stop} variant {variant}"
                );

                let disk = after(&disk, dice);
                let life = live(&disk, trail, dice, 5).unwrap();
                life.end().unwrap();
                Life::begin(&disk, trail).unwrap();
            }
        }
        assert!(lost > 0, "some records were lost before they were synced");
    }
}

#[test]
fn many_lives_on_one_log() {
    for seed in 100..160 {
        let dice = &mut Dice(seed);
        let trail = &mut Trail::new();
        let mut disk = ForgetfulDisk::new();
        let mut snapshots = 0;
        for _ in 0..12 {
            disk.stop_at(dice.below(200));
            if let Ok(life) = live(&disk, trail, dice, 10) {
                snapshots += life.snapshots;
            }
            disk = after(&disk, dice);
        }
        Life::begin(&disk, trail).unwrap();
        let count = disk.names().len();
        assert!(count < 12, "{count} files after {snapshots} snapshots");
    }
}

#[test]
fn after_an_error_nothing_more_is_reported_and_nothing_reported_is_lost() {
    let seed = 1;
    for fail in 0..operations(seed) {
        for kind in [FailKind::Broken, FailKind::Full, FailKind::Late] {
            let dice = &mut Dice(seed);
            let trail = &mut Trail::new();
            let disk = ForgetfulDisk::new();
            disk.fail_at(fail, kind);
            let Err(WalError::Io(failure)) = live(&disk, trail, dice, TURNS) else {
                panic!("operation {fail} failed without an error");
            };
            let code = match kind {
                FailKind::Broken | FailKind::Late => 5,
                FailKind::Full => 28,
            };
            assert_eq!(failure.source.raw_os_error(), Some(code));

            // The next server reads what the cache shows, part of which the disk never got.
            let dice = &mut Dice(fail);
            let disk = disk.kill();
            drop(Life::begin(&disk, trail).unwrap());
            let disk = disk.cut_power(Keep::Nothing, dice);
            Life::begin(&disk, trail).unwrap();
        }
    }
}

/// Opens, renames, unlinks and syncs of a start fail, one after the other. The start fails with
/// them, and the next one finds everything.
#[test]
fn a_start_that_meets_an_error_loses_nothing() {
    let trail = &mut Trail::new();
    let disk = ForgetfulDisk::new();
    drop(live(&disk, trail, &mut Dice(7), TURNS).unwrap());
    disk.create(UNFINISHED, 100).unwrap();
    disk.create(&Name::Snapshot(0).to_string(), 100).unwrap();
    let operations = {
        let disk = disk.kill();
        Life::begin(&disk, &mut trail.clone()).unwrap();
        disk.operations()
    };
    for fail in 0..operations {
        for kind in [FailKind::Broken, FailKind::Full, FailKind::Late] {
            let trail = &mut trail.clone();
            let disk = disk.kill();
            disk.fail_at(fail, kind);
            let begun = Life::begin(&disk, trail);
            assert!(disk.has_failed() && begun.is_err(), "operation {fail}");
            let disk = disk.kill();
            drop(Life::begin(&disk, trail).unwrap());
            let disk = disk.cut_power(Keep::Nothing, &mut Dice(fail));
            Life::begin(&disk, trail).unwrap();
        }
    }
}

fn open(disk: &ForgetfulDisk, now_unix_ms: u64) -> Recovered {
    let (_, recovered) = Log::open(Arc::new(disk.clone()), &options(now_unix_ms)).unwrap();
    recovered
}

#[test]
fn an_open_log_has_no_clean_stop_at_its_end() {
    let disk = ForgetfulDisk::new();
    let trail = &mut Trail::new();
    live(&disk, trail, &mut Dice(5), 20).unwrap().end().unwrap();
    assert!(open(&disk, 1).was_clean);
    assert!(
        !open(&disk, 1).was_clean,
        "the one before stopped without a word"
    );
}

#[test]
fn stale_records_of_a_segment_used_again_are_never_replayed() {
    let dice = &mut Dice(11);
    let trail = &mut Trail::new();
    let mut disk = ForgetfulDisk::new();
    let mut stale = 0;
    for _ in 0..50 {
        let turns = dice.below(6) as usize;
        drop(live(&disk, trail, dice, turns).unwrap());
        disk = disk.kill();
        stale += stale_records(&disk);
        let now = trail.last().now_unix_ms;
        assert_eq!(View::of(&open(&disk, now), now), trail.last().view());
    }
    assert!(stale > 0, "no segment was used twice");
}

/// Whole records in segments, of positions before the segment's beginning.
fn stale_records(disk: &ForgetfulDisk) -> usize {
    let mut count = 0;
    for name in disk.names() {
        let Some(Name::Segment(_)) = Name::parse(&name) else {
            continue;
        };
        let file = disk.open_read(&name).unwrap();
        let header = Header::read(disk, &name, &*file, Sort::Segment).unwrap();
        let bytes = disk.read(&name);
        for offset in PAGE_BYTES as usize..bytes.len() {
            if let Ok(frame) = frame::read_anywhere(&bytes[offset..]) {
                count += usize::from(frame.position < header.begin);
            }
        }
    }
    count
}

/// A server that wrote down leases stopped in good order, and one that writes down fences only is
/// killed while it starts. It has served no client, so the leases are still known, whether its
/// start is on the disk or not.
#[test]
fn a_start_that_is_killed_at_any_operation_loses_no_lease() {
    let start = |disk: &ForgetfulDisk| {
        let options = Options {
            scope: Scope::Fences,
            ..options(1)
        };
        let (found, _) = Found::read(Arc::new(disk.clone()), &options)?;
        found.start()
    };
    let (mut clean, mut begun) = (0, 0);
    // Records in front of the stop, so that sectors end at every place in what the start writes.
    for padding in 0..24 {
        let stopped = ForgetfulDisk::new();
        let trail = &mut Trail::new();
        let mut life = live(&stopped, trail, &mut Dice(5), 20).unwrap();
        let mut records = Vec::new();
        for _ in 0..padding {
            let (unix_ms, wall_unix_ms) = (1, None);
            let clock = Record::Clock {
                unix_ms,
                wall_unix_ms,
            };
            clock.append_to(&mut records);
        }
        life.log.commit(&mut records).unwrap();
        life.end().unwrap();
        let held = Found::read(Arc::new(stopped.clone()), &options(1));
        let held = held.unwrap().1;
        assert!(held.was_clean && !held.leases.is_empty());
        for variant in 0..8 {
            let mut stop = 0;
            loop {
                let disk = stopped.kill();
                disk.stop_at(stop);
                let is_over = start(&disk).is_ok();
                let dice = &mut Dice(stop * 1000 + padding * 10 + variant);
                let disk = after(&disk, dice);
                let (_, found) = Found::read(Arc::new(disk), &options(1)).unwrap();
                if found.was_clean {
                    clean += 1;
                    assert_eq!(found.scope, Some(Scope::Leases));
                    assert!(!is_over, "what was reported as started is");
                } else {
                    begun += 1;
                    assert_eq!(found.scope, Some(Scope::Fences));
                }
                assert_eq!(found.leases.count(), held.leases.count(), "at {stop}");
                if is_over {
                    break;
                }
                stop += 1;
            }
        }
    }
    assert!(clean > 100 && begun > 100, "{clean} and {begun}");
}

#[test]
fn reading_a_log_changes_nothing() {
    let disk = ForgetfulDisk::new();
    let trail = &mut Trail::new();
    live(&disk, trail, &mut Dice(5), 20).unwrap().end().unwrap();
    let changes = disk.changes();
    for _ in 0..2 {
        let (_, found) = Found::read(Arc::new(disk.clone()), &options(1)).unwrap();
        assert!(found.was_clean);
    }
    assert_eq!(disk.changes(), changes);
}
