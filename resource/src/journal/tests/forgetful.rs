//! A disk that loses what was not synced, stopped at each of its operations in turn.
//!
//! A crash keeps all that was synced, and any part of the rest. What the log then says must be what
//! was acknowledged, or that and the one batch that was under way.

use super::{Contents, apply, batches, bounds, contents};
use crate::journal::file::LogFile;
use crate::journal::frame::Frame;
use crate::ledger::Ledger;
use bytes::Bytes;
use disk::forgetful::{Dice, ForgetfulDisk, Keep};
use parking_lot::Mutex;
use protocol::Fence;

/// Ways in which every crash is tried.
const TRIES: u64 = 40;

/// A log is written at its end only, so that a crash can damage its last frame only.
fn new_disk() -> ForgetfulDisk {
    ForgetfulDisk::new().only_grows()
}

/// What a crash leaves. Torn ends come as often as everything else.
fn after_crash(disk: &ForgetfulDisk, dice: &mut Dice) -> ForgetfulDisk {
    let keep = match dice.flip() {
        true => Keep::Torn,
        false => Keep::ALL[dice.below(Keep::ALL.len() as u64) as usize],
    };
    disk.cut_power(keep, dice)
}

fn open(disk: &ForgetfulDisk) -> Ledger<Bytes> {
    let (_, ledger) = LogFile::open(Box::new(disk.clone()), bounds(2)).unwrap();
    ledger
}

/// A life: batch after batch, with the log rewritten in between. Stops at the first failure.
/// Returns what was acknowledged, and what may be there besides.
fn live(disk: &ForgetfulDisk) -> Vec<Contents> {
    let mut ledger = Ledger::<Bytes>::new(bounds(2), [0; 16]);
    // Before the log was there, nothing was. Floors depend on the seed of the log, which is another
    // one in each life.
    let nothing = vec![contents(&ledger)];
    let Ok((mut log, opened)) = LogFile::open(Box::new(disk.clone()), bounds(2)) else {
        return nothing;
    };
    ledger = opened;
    let mut acknowledged = contents(&ledger);
    for (round, batch) in batches().iter().enumerate() {
        let mut frame = Frame::new();
        for (key, fence, value) in batch {
            frame.push_write(key, Fence::new(*fence).unwrap(), value);
        }
        let committed = log.commit(&mut frame);
        apply(&mut ledger, batch);
        if committed.is_err() {
            return vec![acknowledged, contents(&ledger)];
        }
        acknowledged = contents(&ledger);
        if round % 2 == 1 {
            let shared = Mutex::new(ledger);
            let rewritten = log.rewrite(&shared);
            ledger = shared.into_inner();
            if rewritten.is_err() {
                break;
            }
        }
    }
    vec![acknowledged]
}

#[test]
fn whatever_the_disk_forgets_it_knows_what_was_acknowledged() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let dice = &mut Dice(seed);
    let mut crashes = 0;
    for stop in 0.. {
        let disk = new_disk();
        disk.stop_at(stop);
        let expected = live(&disk);
        for _ in 0..TRIES {
            let found = contents(&open(&after_crash(&disk, dice)));
            assert!(
                expected.contains(&found),
                "stopped at {stop}: {found:?} instead of {expected:?}"
            );
        }
        if disk.operations() <= stop {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 15, "a life has more operations than {crashes}");
}

/// Cutting off a torn end is a change like any other: a crash may undo it.
#[test]
fn a_crash_during_the_start_changes_nothing() {
    let dice = &mut Dice(7);
    for stop in 0..14 {
        let disk = new_disk();
        disk.stop_at(stop);
        let expected = live(&disk);
        for _ in 0..TRIES {
            let torn = after_crash(&disk, dice);
            // The log is opened, shortened and synced, then nothing more happens.
            for start_operations in 0..4 {
                torn.stop_at(torn.operations() + start_operations);
                // It may not open; that must do no harm.
                let _ = LogFile::open::<Bytes>(Box::new(torn.clone()), bounds(2));
                let ledger = open(&after_crash(&torn, dice));
                assert!(expected.contains(&contents(&ledger)));
            }
        }
    }
}
