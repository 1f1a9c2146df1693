//! Snapshots of a running log: when they are wanted, what they make room of, and that half of one
//! is none.

use super::*;
use crate::files::segment::SEGMENT_BYTES_MIN;
use crate::record::{Lease, Record, Scope};
use crate::{Options, Wal, WalError, open_on};
use disk::forgetful::{FailKind, ForgetfulDisk};

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES_MIN,
        spares_max: 3,
        snapshot_log_bytes: 20_000,
        ..Options::new(Scope::Leases, 5)
    }
}

fn start(disk: &ForgetfulDisk) -> Wal {
    let (opened, _) = open_on(Arc::new(disk.clone()), &options()).unwrap();
    opened.start(()).unwrap()
}

const CEILING: Record<'_> = Record::Ceiling {
    shard: 0,
    fence: 1 << 40,
};
const OPENED: Record<'_> = Record::SessionOpened {
    session: 1,
    ttl_ms: 1,
    deadline_unix_ms: 2,
    name: b"",
};

fn granted(key: &[u8], fence: u64) -> Record<'_> {
    Record::Granted(Lease {
        key,
        fence,
        session: 1,
        mode: types::Mode::Exclusive,
        is_session_bound: false,
        count: 1,
        until_unix_ms: 9,
        granted_unix_ms: 5,
        note: b"",
    })
}

/// Grants and releases until a snapshot is wanted. The next fence.
fn work(wal: &Wal, mut fence: u64) -> u64 {
    wal.wait(wal.append(&CEILING)).unwrap();
    wal.append(&OPENED);
    while !wal.wants_snapshot() {
        wal.append(&granted(b"busy", fence));
        let released = Record::Released {
            key: b"busy",
            fence,
            count_left: 0,
        };
        wal.wait(wal.append(&released)).unwrap();
        fence += 1;
    }
    wal.wait(wal.append(&granted(b"held", fence))).unwrap();
    fence + 1
}

fn take(wal: &Wal, fence: u64) -> Result<(), WalError> {
    let mut snapshot = wal.begin_snapshot(1234)?;
    for record in [CEILING, OPENED, granted(b"held", fence)] {
        snapshot.add(&record)?;
    }
    snapshot.finish()
}

#[test]
fn a_snapshot_makes_room_and_the_room_is_used_again() {
    let disk = ForgetfulDisk::new();
    let wal = start(&disk);
    let mut fence = 1;
    let mut files = Vec::new();
    for _ in 0..5 {
        fence = work(&wal, fence);
        assert!(wal.metrics().segments.get() > 5);
        take(&wal, fence - 1).unwrap();
        assert!(!wal.wants_snapshot());
        assert_eq!(wal.metrics().segments.get(), 1);
        files.push(disk.names().len());
    }
    assert_eq!(files, [6; 5], "a key, a snapshot, a segment, three spares");
    assert_eq!(wal.metrics().snapshots.get(), 5);
    assert_eq!(wal.metrics().snapshot_unix_ms.get(), 1234);
    drop(wal);
    let (_, recovered) = open_on(Arc::new(disk), &options()).unwrap();
    let held: Vec<(&[u8], u64)> = recovered
        .leases
        .iter()
        .map(|lease| (lease.key, lease.fence))
        .collect();
    assert_eq!(held, [(b"held".as_slice(), fence - 1)]);
    assert!(recovered.records < 20, "{} records", recovered.records);
    assert_eq!(recovered.snapshot_unix_ms, 1234);
}

#[test]
fn a_large_snapshot_puts_off_the_next() {
    let disk = ForgetfulDisk::new();
    let wal = start(&disk);
    let fence = work(&wal, 1);
    let mut snapshot = wal.begin_snapshot(1).unwrap();
    for record in [CEILING, OPENED] {
        snapshot.add(&record).unwrap();
    }
    for number in 1..=20_000_u64 {
        snapshot
            .add(&granted(&number.to_le_bytes(), number))
            .unwrap();
    }
    snapshot.finish().unwrap();
    let bytes = wal.metrics().snapshot_bytes.get();
    assert!(bytes > 1_300_000, "{bytes} bytes");
    let before = wal.metrics().bytes_written.get();
    work(&wal, fence);
    let log_bytes = wal.metrics().bytes_written.get() - before;
    assert!(log_bytes >= bytes / 2, "{log_bytes} bytes of log");
    drop(wal);
    let (_, recovered) = open_on(Arc::new(disk), &options()).unwrap();
    assert_eq!(recovered.leases.count(), 20_001);
}

#[test]
fn there_is_one_snapshot_at_a_time_and_half_of_one_is_none() {
    let disk = ForgetfulDisk::new();
    let wal = start(&disk);
    let mut first = wal.begin_snapshot(1).unwrap();
    assert!(matches!(
        wal.begin_snapshot(1),
        Err(WalError::SnapshotUnderWay)
    ));
    first.add(&CEILING).unwrap();
    assert_eq!(disk.names().len(), 3);
    drop(first);
    assert_eq!(disk.names().len(), 2);
    take(&wal, 1).unwrap();
    assert_eq!(disk.names().len(), 3);
}

#[test]
fn the_beginning_of_a_snapshot_is_removed_by_the_next_start() {
    let disk = ForgetfulDisk::new();
    drop(start(&disk));
    disk.create(UNFINISHED, 100).unwrap();
    drop(start(&disk));
    assert!(!disk.names().contains(&UNFINISHED.to_owned()));
}

#[test]
fn a_snapshot_that_fails_fails_the_log() {
    for later in 0..6 {
        let disk = ForgetfulDisk::new();
        let wal = start(&disk);
        work(&wal, 1);
        wal.wait(wal.append_batch(crate::Batch::new())).unwrap();
        disk.fail_at(disk.operations() + later, FailKind::Broken);
        // The mark that the log writes when it has nothing to do may be what fails.
        let error = loop {
            if let Err(error) = take(&wal, 1) {
                break error;
            }
        };
        assert!(matches!(error, WalError::Io(_)), "{error}");
        assert!(wal.wait(wal.append(&CEILING)).is_err());
    }
}

#[test]
#[should_panic(expected = "is a change and no state")]
fn changes_are_not_for_snapshots() {
    let disk = ForgetfulDisk::new();
    let wal = start(&disk);
    let ended = Record::SessionEnded { session: 1 };
    let _ = wal.begin_snapshot(1).unwrap().add(&ended);
}
