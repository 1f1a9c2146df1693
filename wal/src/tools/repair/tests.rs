//! Repair: only when it is needed and wanted, always above every fence, and whole at every moment.

use super::*;
use crate::log::Log;
use crate::replay::recovered::Recovered;
use crate::tests::life::{Trail, live, options};
use disk::forgetful::{Dice, ForgetfulDisk, Keep};

const WISH: Repair = Repair {
    accept_loss: true,
    now_unix_ms: 1_700_000_500_000,
    lease_ms_max: 86_400_000,
};

fn repair(disk: &ForgetfulDisk) -> Result<Repaired, RepairError> {
    repair_on(Arc::new(disk.clone()), options(0).segment_bytes, &WISH)
}

fn open(disk: &ForgetfulDisk) -> Result<Recovered, WalError> {
    Log::open(Arc::new(disk.clone()), &options(WISH.now_unix_ms)).map(|(_, recovered)| recovered)
}

/// A log, and its highest ceiling.
fn log(seed: u64) -> (ForgetfulDisk, u64) {
    let disk = ForgetfulDisk::new();
    let mut trail = Trail::new();
    drop(live(&disk, &mut trail, &mut Dice(seed), 80).unwrap());
    let ceilings = trail.last().view().ceilings;
    (disk.kill(), ceilings.values().copied().max().unwrap())
}

fn segments(disk: &ForgetfulDisk) -> Vec<String> {
    let mut names = disk.names();
    names.retain(|name| name.starts_with("segment-"));
    names
}

fn damage(disk: &ForgetfulDisk) {
    let name = &segments(disk)[0];
    let mut bytes = disk.read(name);
    bytes[4200] ^= 0x55;
    disk.tamper(name, bytes);
    assert!(open(&disk.kill()).is_err());
}

#[test]
fn a_repaired_log_begins_above_every_fence_and_knows_no_lease() {
    let (disk, ceiling) = log(1);
    damage(&disk);
    let repaired = repair(&disk).unwrap();
    let new_log = repaired.log.unwrap();
    assert!(new_log.fence_found >= ceiling);
    assert!(new_log.ceiling >= new_log.fence_found + FENCES_MARGIN);
    assert_eq!(new_log.horizon_unix_ms, 1_700_086_900_000);
    assert!(!repaired.is_key_new, "the key was sound");
    for name in &repaired.moved {
        assert!(disk.names().contains(name), "{name} is kept");
    }
    let recovered = open(&disk).unwrap();
    assert_eq!(recovered.ceiling_max, new_log.ceiling);
    assert_eq!(recovered.horizon_unix_ms, new_log.horizon_unix_ms);
    assert!(!recovered.was_clean);
    assert_eq!(recovered.scope, Some(Scope::Fences));
    assert!(recovered.leases.is_empty());
    assert!(recovered.sessions.is_empty());
    assert!(matches!(repair(&disk), Err(RepairError::Sound)));
}

#[test]
fn repair_wants_damage_and_consent() {
    let (disk, _) = log(2);
    assert!(matches!(repair(&disk), Err(RepairError::Sound)));
    damage(&disk);
    let wish = Repair {
        accept_loss: false,
        ..WISH
    };
    let before = disk.names();
    let refused = repair_on(Arc::new(disk.clone()), options(0).segment_bytes, &wish);
    let Err(RepairError::LossNotAccepted { plan, .. }) = refused else {
        panic!("the loss was not accepted");
    };
    assert_eq!(disk.names(), before);
    assert_eq!(*plan, repair(&disk.kill()).unwrap(), "what it says it does");
    let lock = disk.lock().unwrap();
    assert!(matches!(
        repair(&disk),
        Err(RepairError::Wal(WalError::Locked { .. }))
    ));
    drop(lock);
}

#[test]
fn whatever_is_lost_the_new_ceiling_is_above_the_old_one() {
    let (disk, ceiling) = log(3);
    // Each file alone, damaged from end to end or gone; all first pages; everything.
    for name in log_files(&disk) {
        let wiped = disk.kill();
        let length = disk.read(&name).len();
        wiped.tamper(&name, vec![0xa5; length]);
        check(&wiped, ceiling);
        let gone = disk.kill();
        gone.lose(&name);
        check(&gone, ceiling);
    }
    let headless = disk.kill();
    for name in log_files(&disk) {
        let mut bytes = headless.read(&name);
        bytes[..40].fill(0);
        headless.tamper(&name, bytes);
    }
    assert!(repair(&headless.kill()).unwrap().log.unwrap().fence_found > 0);
    check(&headless, ceiling);
    let wiped = disk.kill();
    for name in disk.names() {
        wiped.tamper(&name, vec![0xa5; 5000]);
    }
    let repaired = repair(&wiped.kill()).unwrap();
    assert!(repaired.is_key_new);
    let new_log = repaired.log.unwrap();
    assert_eq!(new_log.fence_found, 0);
    assert_eq!(new_log.ceiling, (1_700_000_500 << 20) + FENCES_MARGIN);
    check(&wiped, ceiling);
}

/// All files but the key, which is not part of the log.
fn log_files(disk: &ForgetfulDisk) -> Vec<String> {
    let mut names = disk.names();
    names.retain(|name| name != KEY_FILE);
    names
}

/// The only segment of a directory was deleted: it was taken for a new one, with fences from the
/// clock and no grace period.
#[test]
fn a_log_that_is_gone_begins_above_the_clock_and_with_a_grace_period() {
    let (disk, _) = log(5);
    for name in log_files(&disk) {
        disk.lose(&name);
    }
    let Err(WalError::Replay(error)) = open(&disk.kill()) else {
        panic!("a directory with a key was taken for a new one");
    };
    let message = error.to_string();
    assert!(message.starts_with("the log is gone: "), "{message}");
    assert!(message.contains("wal repair /forgetful --accept-loss"));
    let repaired = repair(&disk).unwrap();
    assert!(!repaired.is_key_new);
    let ceiling = repaired.log.unwrap().ceiling;
    assert_eq!(ceiling, (1_700_000_500 << 20) + FENCES_MARGIN);
    let recovered = open(&disk).unwrap();
    assert_eq!(recovered.scope, Some(Scope::Fences));
    assert_eq!(recovered.horizon_unix_ms, 1_700_086_900_000);
    assert!(!recovered.was_clean);
}

/// A repair raises fences far above the clock. If the log is lost after that, only what the repair
/// has put aside tells of it.
#[test]
fn a_log_that_is_gone_after_a_repair_begins_above_that_repair() {
    let (disk, _) = log(5);
    damage(&disk);
    let ceiling = repair(&disk).unwrap().log.unwrap().ceiling;
    drop(open(&disk).unwrap());
    for name in log_files(&disk) {
        if !name.starts_with("damaged-") {
            disk.lose(&name);
        }
    }
    let again = repair(&disk).unwrap().log.unwrap();
    assert!(again.ceiling > ceiling, "{} after {ceiling}", again.ceiling);
}

#[test]
fn a_lost_key_is_replaced_and_the_log_stays_as_it_is() {
    let (disk, ceiling) = log(6);
    let leases = open(&disk.kill()).unwrap().leases.count();
    assert!(leases > 0);
    let missing = disk.kill();
    missing.lose(KEY_FILE);
    let damaged = disk.kill();
    damaged.tamper(KEY_FILE, vec![1; 36]);
    for (lost, moved) in [(missing, 0), (damaged, 1)] {
        assert!(open(&lost.kill()).is_err());
        let operations = {
            let again = lost.kill();
            let repaired = repair(&again).unwrap();
            let operations = again.operations();
            assert!(repaired.is_key_new && repaired.log.is_none());
            assert_eq!(repaired.moved.len(), moved);
            assert!(
                repaired
                    .moved
                    .iter()
                    .all(|name| again.names().contains(name))
            );
            assert!(matches!(repair(&again), Err(RepairError::Sound)));
            operations
        };
        // And after a crash at every point of it.
        for stop in 0..operations {
            for keep in Keep::ALL {
                let stopped = lost.kill();
                stopped.stop_at(stop);
                assert!(repair(&stopped).is_err());
                let after = stopped.cut_power(keep, &mut Dice(stop));
                if open(&after.kill()).is_err() {
                    repair(&after).unwrap();
                }
                let recovered = open(&after).unwrap();
                assert_eq!(recovered.ceiling_max, ceiling);
                assert_eq!(recovered.leases.count(), leases);
            }
        }
    }
}

fn check(disk: &ForgetfulDisk, ceiling: u64) {
    if open(&disk.kill()).is_ok() {
        return;
    }
    repair(disk).unwrap();
    assert!(open(disk).unwrap().ceiling_max > ceiling);
}

#[test]
fn a_crash_during_repair_leaves_the_damage_or_the_repair() {
    let (disk, _) = log(4);
    damage(&disk);
    let operations = {
        let disk = disk.kill();
        repair(&disk).unwrap();
        disk.operations()
    };
    let dice = &mut Dice(9);
    let mut repaired = 0;
    for stop in 0..operations {
        for keep in Keep::ALL {
            let stopped = disk.kill();
            stopped.stop_at(stop);
            assert!(repair(&stopped).is_err());
            let after = stopped.cut_power(keep, dice);
            let recovered = match open(&after.kill()) {
                Ok(recovered) => {
                    repaired += 1;
                    recovered
                }
                Err(_) => {
                    repair(&after).unwrap();
                    open(&after).unwrap()
                }
            };
            assert!(recovered.ceiling_max >= FENCES_MARGIN);
            assert!(recovered.leases.is_empty());
        }
    }
    assert!(repaired > 0);
}

#[test]
fn a_log_without_fences_left_is_not_repaired() {
    let disk = ForgetfulDisk::new();
    let (mut log, _) = Log::open(Arc::new(disk.clone()), &options(1)).unwrap();
    let mut records = Vec::new();
    for fence in [1, FENCE_MAX] {
        Record::Ceiling { shard: 0, fence }.append_to(&mut records);
    }
    log.commit(&mut records).unwrap();
    log.mark().unwrap();
    drop(log);
    let name = &segments(&disk)[0];
    let mut bytes = disk.read(name);
    bytes[4096 + 21] ^= 1;
    disk.tamper(name, bytes);
    assert!(matches!(
        repair(&disk),
        Err(RepairError::NoFencesLeft { .. })
    ));
}
