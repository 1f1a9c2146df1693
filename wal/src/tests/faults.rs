//! Every call to the disk fails in turn, under a log with its writer thread, its keeper and its
//! snapshots: opens, creations, writes, syncs of files and of the directory, renames, unlinks. From
//! then on nothing is acknowledged, and everything that was is found by the next server.

use crate::files::segment::SEGMENT_BYTES_MIN;
use crate::record::{Lease, Record, Scope};
use crate::{Batch, Options, Wal, WalError, open_on};
use disk::forgetful::{Dice, FailKind, ForgetfulDisk, Keep};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Grants that are appended together.
const BATCH: u64 = 8;
const BATCHES: u64 = 15;
/// A snapshot is taken after so many batches.
const SNAPSHOT_EVERY: u64 = 4;

const FOREVER: u64 = u64::MAX;

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES_MIN,
        spares_max: 2,
        ..Options::new(Scope::Leases, 5)
    }
}

const CEILING: Record<'_> = Record::Ceiling {
    shard: 0,
    fence: BATCH * BATCHES,
};
const OPENED: Record<'_> = Record::SessionOpened {
    session: 1,
    ttl_ms: 1,
    deadline_unix_ms: FOREVER,
    name: b"",
};

fn granted<'a>(key: &'a [u8; 8], fence: u64) -> Record<'a> {
    Record::Granted(Lease {
        key,
        fence,
        session: 1,
        mode: types::Mode::Exclusive,
        is_session_bound: false,
        count: 1,
        until_unix_ms: FOREVER,
        granted_unix_ms: 5,
        note: b"",
    })
}

/// A server that grants, takes snapshots and keeps spares. `acknowledged` is what its clients have
/// been told.
fn serve(disk: &ForgetfulDisk, acknowledged: &mut BTreeSet<u64>) -> Result<Wal, WalError> {
    let (opened, _) = open_on(Arc::new(disk.clone()), &options())?;
    let wal = opened.start(())?;
    let told = work(&wal, acknowledged);
    match told {
        Ok(()) => Ok(wal),
        Err(error) => {
            // The first error is the last, whichever call it was.
            assert!(wal.failure().is_some(), "{error}");
            assert!(
                wal.wait(wal.append(&CEILING)).is_err(),
                "told after {error}"
            );
            assert!(wal.close(9).is_err());
            Err(error)
        }
    }
}

fn work(wal: &Wal, acknowledged: &mut BTreeSet<u64>) -> Result<(), WalError> {
    wal.wait(wal.append(&CEILING))?;
    wal.append(&OPENED);
    for number in 0..BATCHES {
        let fences = number * BATCH + 1..=(number + 1) * BATCH;
        let mut batch = Batch::new();
        for fence in fences.clone() {
            batch.push(&granted(&fence.to_le_bytes(), fence));
        }
        wal.wait(wal.append_batch(batch))?;
        acknowledged.extend(fences);
        if number % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1 {
            match snapshot(wal, acknowledged) {
                // No room for a snapshot: the log goes on without one.
                Err(error) if error.is_for_want_of_room() && wal.failure().is_none() => {}
                taken => taken?,
            }
        }
        wal.restock()?;
    }
    Ok(())
}

fn snapshot(wal: &Wal, acknowledged: &BTreeSet<u64>) -> Result<(), WalError> {
    let mut snapshot = wal.begin_snapshot(7)?;
    snapshot.add(&CEILING)?;
    snapshot.add(&OPENED)?;
    for &fence in acknowledged {
        snapshot.add(&granted(&fence.to_le_bytes(), fence))?;
    }
    snapshot.finish()
}

fn found(disk: &ForgetfulDisk) -> BTreeSet<u64> {
    let (_, recovered) = open_on(Arc::new(disk.clone()), &options()).unwrap();
    recovered.leases.iter().map(|lease| lease.fence).collect()
}

#[test]
fn whatever_call_fails_nothing_is_acknowledged_afterwards_and_nothing_acknowledged_is_lost() {
    for kind in [FailKind::Broken, FailKind::Full, FailKind::Late] {
        let mut refused = 0;
        for fail in 0.. {
            let disk = ForgetfulDisk::new();
            disk.fail_at(fail, kind);
            let mut acknowledged = BTreeSet::new();
            let served = serve(&disk, &mut acknowledged);
            refused += u64::from(served.is_err());
            drop(served);
            let is_over = !disk.has_failed();

            // The next server reads what the cache shows, part of which the disk never got; then
            // the power fails, too.
            let disk = disk.kill();
            let told = |disk: &ForgetfulDisk| found(disk).is_superset(&acknowledged);
            assert!(told(&disk), "operation {fail}, {kind:?}");
            let disk = disk.cut_power(Keep::Nothing, &mut Dice(fail));
            assert!(told(&disk), "operation {fail}, {kind:?}, and a power cut");
            if is_over {
                assert_eq!(acknowledged.len() as u64, BATCH * BATCHES);
                break;
            }
        }
        assert!(refused > 20, "{refused} operations, {kind:?}");
    }
}
