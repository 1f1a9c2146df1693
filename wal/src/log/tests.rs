//! The log without threads: long writes, full segments, locks. Crashes are in `tests/crash.rs`.

use super::*;
use crate::files::segment::SEGMENT_BYTES_MIN;
use crate::record::{KEY_BYTES_MAX, Lease, NOTE_BYTES_MAX};
use disk::DirDisk;
use disk::forgetful::ForgetfulDisk;

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES_MIN,
        spares_max: 2,
        ..Options::new(Scope::Leases, 5)
    }
}

fn open(disk: &ForgetfulDisk) -> (Log, Recovered) {
    Log::open(Arc::new(disk.clone()), &options()).unwrap()
}

fn setup(records: &mut Vec<u8>) {
    let ceiling = Record::Ceiling {
        shard: 0,
        fence: 1000,
    };
    let opened = Record::SessionOpened {
        session: 1,
        ttl_ms: 5,
        deadline_unix_ms: 9,
        name: b"",
    };
    ceiling.append_to(records);
    opened.append_to(records);
}

#[test]
fn the_longest_record_fits_the_smallest_segment() {
    let disk = ForgetfulDisk::new();
    let (mut log, _) = open(&disk);
    let key = [7; KEY_BYTES_MAX];
    let note = [8; NOTE_BYTES_MAX];
    let mut records = Vec::new();
    setup(&mut records);
    for fence in 1..=5 {
        let longest = Record::Granted(Lease {
            key: &key,
            fence,
            session: 1,
            mode: types::Mode::Shared,
            is_session_bound: false,
            count: 1,
            until_unix_ms: 6,
            granted_unix_ms: 5,
            note: &note,
        });
        longest.append_to(&mut records);
    }
    log.commit(&mut records).unwrap();
    drop(log);
    let (_, recovered) = open(&disk);
    let leases: Vec<Lease<'_>> = recovered.leases.iter().collect();
    assert_eq!(leases.len(), 5);
    assert!(
        leases
            .iter()
            .all(|lease| lease.key == key && lease.note == note)
    );
}

#[test]
fn one_write_may_fill_many_segments() {
    let disk = ForgetfulDisk::new();
    let (mut log, _) = open(&disk);
    let mut records = Vec::new();
    setup(&mut records);
    for unix_ms in 0..1000 {
        Record::Clock {
            unix_ms,
            wall_unix_ms: None,
        }
        .append_to(&mut records);
    }
    log.commit(&mut records).unwrap();
    assert!(log.shelf.closed_count() > 10);
    assert_eq!(
        log.metrics.segments.get(),
        log.shelf.closed_count() as u64 + 1
    );
    drop(log);
    let (_, recovered) = open(&disk);
    assert_eq!(recovered.records, 1003, "with the start");
    assert_eq!(recovered.last_clock_unix_ms, 999);
    assert!(recovered.torn.is_none());
}

#[test]
fn a_mark_is_written_once_and_gives_way_to_the_next_record() {
    let disk = ForgetfulDisk::new();
    let (mut log, _) = open(&disk);
    let end = log.end();
    log.mark().unwrap();
    let operations = disk.changes();
    log.mark().unwrap();
    assert_eq!(disk.changes(), operations);
    assert_eq!(log.end(), end);
    let mut records = Vec::new();
    Record::Clock {
        unix_ms: 77,
        wall_unix_ms: None,
    }
    .append_to(&mut records);
    log.commit(&mut records).unwrap();
    drop(log);
    assert_eq!(open(&disk).1.last_clock_unix_ms, 77);
}

#[test]
fn a_directory_that_is_in_use_is_refused_with_a_clear_word() {
    let temp = tempfile::tempdir().unwrap();
    let disk = || Arc::new(DirDisk::open_or_create(&temp.path().join("data")).unwrap());
    let (log, _) = Log::open(disk(), &options()).unwrap();
    let Err(error) = Log::open(disk(), &options()) else {
        panic!("opened twice");
    };
    let message = error.to_string();
    assert!(message.starts_with("another server is using "), "{message}");
    drop(log);
    assert!(Log::open(disk(), &options()).is_ok());
}

#[test]
fn segments_of_another_size_are_read_and_not_used_again() {
    let disk = ForgetfulDisk::new();
    let mut records = Vec::new();
    setup(&mut records);
    for unix_ms in 0..200 {
        Record::Clock {
            unix_ms,
            wall_unix_ms: None,
        }
        .append_to(&mut records);
    }
    let (mut log, _) = open(&disk);
    log.commit(&mut records.clone()).unwrap();
    drop(log);
    let larger = Options {
        segment_bytes: SEGMENT_BYTES_MIN + 1000,
        ..options()
    };
    let (log, recovered) = Log::open(Arc::new(disk.clone()), &larger).unwrap();
    assert_eq!(recovered.records, 203);
    log.shelf.retire(&disk, log.end()).unwrap();
    assert_eq!(log.shelf.spare_count(), 0);
}
