//! Damage: every byte flipped, every cut, every file gone. Whatever is found is what was synced, or
//! there is an error.

use super::*;
use crate::error::WalError;
use crate::files::key::KEY_FILE;
use crate::log::Log;
use crate::log::snapshot::SnapshotFile;
use crate::record::Scope;
use crate::replay::recovered::Recovered;
use crate::tests::life::{Life, Trail, live, options};
use crate::tests::model::View;
use disk::forgetful::{Dice, ForgetfulDisk};
use std::sync::Arc;

/// A log of a snapshot and several segments, and what it says.
fn sound_log(seed: u64, is_marked: bool) -> (ForgetfulDisk, Trail) {
    let disk = ForgetfulDisk::new();
    let mut trail = Trail::new();
    let dice = &mut Dice(seed);
    let mut life = live(&disk, &mut trail, dice, 30).unwrap();
    while life.snapshots == 0 || chain_length(&disk) < 3 {
        life.turn(&mut trail, dice).unwrap();
    }
    life.turn(&mut trail, dice).unwrap();
    if is_marked {
        life.log.mark().unwrap();
    }
    drop(life);
    (disk.kill(), trail)
}

fn chain_length(disk: &ForgetfulDisk) -> usize {
    survey::survey(disk).unwrap().chain.len()
}

fn open(disk: &ForgetfulDisk) -> Result<Recovered, ReplayError> {
    match Log::open(Arc::new(disk.kill()), &options(1)) {
        Ok((_, recovered)) => Ok(recovered),
        Err(WalError::Replay(error)) => {
            assert!(!error.to_string().is_empty());
            Err(error)
        }
        Err(other) => panic!("{other}"),
    }
}

fn segments(disk: &ForgetfulDisk) -> Vec<String> {
    let layout = survey::survey(disk).unwrap();
    let sequences = layout.chain.iter().map(|link| link.sequence);
    sequences
        .map(|sequence| Name::Segment(sequence).to_string())
        .collect()
}

fn snapshot(disk: &ForgetfulDisk) -> String {
    survey::survey(disk).unwrap().snapshot.unwrap().to_string()
}

#[test]
fn a_flipped_byte_is_noticed_or_changes_nothing() {
    let (disk, trail) = sound_log(1, true);
    let now = trail.last().now_unix_ms;
    let truth = trail.last().view();
    let mut errors = 0;
    for name in disk.names() {
        let bytes = disk.read(&name);
        for offset in 0..bytes.len() {
            let flipped = disk.kill();
            let mut damaged = bytes.clone();
            damaged[offset] ^= [1 << (offset % 8), 0xff][offset % 2];
            flipped.tamper(&name, damaged);
            match open(&flipped) {
                Err(_) => errors += 1,
                Ok(recovered) => {
                    assert_eq!(View::of(&recovered, now), truth, "byte {offset} of {name}")
                }
            }
        }
    }
    assert!(errors > 3000, "{errors} of the flips were noticed");
}

#[test]
fn without_a_mark_a_flipped_byte_can_hide_in_the_last_write_and_nowhere_else() {
    let (disk, mut trail) = sound_log(2, false);
    let last = segments(&disk).pop().unwrap();
    let bytes = disk.read(&last);
    // What was synced before the last write is known to be by it.
    trail.synced = trail.synced_before;
    let mut dropped = 0;
    for offset in 0..bytes.len() {
        let flipped = disk.kill();
        let mut damaged = bytes.clone();
        damaged[offset] ^= 0x10;
        flipped.tamper(&last, damaged);
        if let Ok(recovered) = open(&flipped) {
            dropped += usize::from(recovered.torn.is_some());
            trail.clone().check(&recovered);
        }
    }
    assert!(dropped > 20, "{dropped} flips look like a write cut short");
}

#[test]
fn a_file_that_is_cut_is_refused_at_every_length() {
    let (disk, _) = sound_log(3, true);
    for name in segments(&disk).into_iter().chain([snapshot(&disk)]) {
        let bytes = disk.read(&name);
        for length in 0..bytes.len() {
            let cut = disk.kill();
            cut.tamper(&name, bytes[..length].to_vec());
            assert!(open(&cut).is_err(), "{name} cut to {length} bytes");
        }
        let longer = disk.kill();
        longer.tamper(&name, [&bytes[..], &[0; 9]].concat());
        assert!(open(&longer).is_err(), "{name} made longer");
    }
}

#[test]
fn zeros_instead_of_records_are_noticed_except_at_the_very_end() {
    let (disk, mut trail) = sound_log(4, true);
    let now = trail.last().now_unix_ms;
    let truth = trail.last().view();
    let all = segments(&disk);
    for (index, name) in all.iter().enumerate() {
        let is_last = index + 1 == all.len();
        let bytes = disk.read(name);
        for from in 0..bytes.len() {
            let wiped = disk.kill();
            let mut damaged = bytes.clone();
            damaged[from..].fill(0);
            wiped.tamper(name, damaged);
            match open(&wiped) {
                Err(_) => {}
                Ok(recovered) if is_last => {
                    // The end of the log is gone with its proof: what is left was true once, and no
                    // snapshot knows better.
                    trail.synced = trail.synced_by_snapshot;
                    trail.clone().check(&recovered);
                }
                Ok(recovered) => assert_eq!(View::of(&recovered, now), truth, "{name} {from}"),
            }
        }
    }
}

#[test]
fn a_file_that_is_gone_is_missed() {
    let (disk, _) = sound_log(5, true);
    let needed: Vec<String> = segments(&disk)
        .into_iter()
        .chain([snapshot(&disk), KEY_FILE.to_owned()])
        .collect();
    for name in disk.names() {
        let gone = disk.kill();
        gone.lose(&name);
        assert_eq!(open(&gone).is_err(), needed.contains(&name), "{name}");
    }
    // The last one is missed because the one before says that the log goes on.
    let last = segments(&disk).pop().unwrap();
    let gone = disk.kill();
    gone.lose(&last);
    assert!(matches!(
        open(&gone),
        Err(ReplayError::MissingSegment { .. })
    ));
}

#[test]
fn the_message_says_where_and_what_to_do() {
    let (disk, _) = sound_log(6, true);
    let name = segments(&disk).remove(1);
    let mut bytes = disk.read(&name);
    bytes[PAGE_BYTES as usize + 30] ^= 1;
    disk.tamper(&name, bytes);
    let Err(error) = open(&disk) else {
        panic!("the damage was not noticed");
    };
    let message = error.to_string();
    let start = format!("/forgetful/{name} is damaged at offset 4096: the record at position ");
    assert!(message.starts_with(&start), "{message}");
    assert!(message.contains("should be there, but its checksum does not match its bytes."));
    assert!(
        message.contains("`fencepost wal verify /forgetful`"),
        "{message}"
    );
    assert!(
        message.contains("`fencepost wal repair /forgetful --accept-loss`"),
        "{message}"
    );
}

/// Behind the forty bytes of a header nothing was looked at, so that a changed byte there went
/// unnoticed.
#[test]
fn every_byte_of_a_first_page_counts_and_the_message_says_which() {
    let (disk, _) = sound_log(6, true);
    for name in segments(&disk).into_iter().chain([snapshot(&disk)]) {
        let bytes = disk.read(&name);
        for offset in 0..PAGE_BYTES as usize {
            let flipped = disk.kill();
            let mut damaged = bytes.clone();
            damaged[offset] ^= 1;
            flipped.tamper(&name, damaged);
            let Err(error) = open(&flipped) else {
                panic!("byte {offset} of {name} was not noticed");
            };
            let message = error.to_string();
            let named = match offset {
                0..8 => 0,
                // The checksum and what it covers.
                8..40 => 8,
                offset => offset,
            };
            let start = format!("/forgetful/{name} is damaged at offset {named}: its first page");
            assert!(message.starts_with(&start), "{message}");
            assert!(message.contains("wal repair /forgetful --accept-loss"));
        }
        let cut = disk.kill();
        cut.tamper(&name, bytes[..50].to_vec());
        let message = open(&cut).err().unwrap().to_string();
        let start = format!("/forgetful/{name} is damaged at offset 50: ");
        assert!(message.starts_with(&start), "{message}");
    }
}

#[test]
fn a_wrong_length_names_the_offset_where_it_begins() {
    let (disk, _) = sound_log(6, true);
    let name = segments(&disk).pop().unwrap();
    let bytes = disk.read(&name);
    let made = bytes.len();
    for (length, what) in [(made - 7, "ends"), (made + 7, "goes on")] {
        let other = disk.kill();
        let mut damaged = bytes.clone();
        damaged.resize(length, 0);
        other.tamper(&name, damaged);
        let message = open(&other).err().unwrap().to_string();
        let offset = length.min(made);
        let start = format!(
            "/forgetful/{name} is damaged at offset {offset}: it {what} there, and was made with {made} bytes."
        );
        assert!(message.starts_with(&start), "{message}");
    }
}

#[test]
fn what_a_newer_server_wrote_is_left_to_it() {
    let (disk, _) = sound_log(7, true);
    let name = segments(&disk).pop().unwrap();
    let layout = survey::survey(&disk).unwrap();
    let begin = layout.chain.last().unwrap().begin;
    let mut record = Vec::new();
    frame::append(&mut record, 0x7e, |out| out.push(1));
    frame::stamp(&mut record, begin, 0);
    let mut bytes = disk.read(&name);
    bytes[PAGE_BYTES as usize..][..record.len()].copy_from_slice(&record);
    let newer = disk.kill();
    newer.tamper(&name, bytes);
    let Err(error) = open(&newer) else {
        panic!("it was understood");
    };
    assert!(
        error
            .to_string()
            .ends_with("Start the version that wrote it.")
    );

    let mut bytes = disk.read(&name);
    let header = Header::read(
        &disk,
        &name,
        &*disk.open_read(&name).unwrap(),
        Sort::Segment,
    );
    let mut page = header.unwrap().encode();
    page[12] = 2;
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&page[..8]), &page[12..40]);
    page[8..12].copy_from_slice(&checksum.to_le_bytes());
    bytes[..page.len()].copy_from_slice(&page);
    disk.tamper(&name, bytes);
    let Err(error) = open(&disk) else {
        panic!("it was understood");
    };
    assert!(matches!(
        error,
        ReplayError::NewerVersion { version: 2, .. }
    ));
}

#[test]
fn a_write_whose_beginning_was_lost_is_torn_and_not_damaged() {
    let disk = ForgetfulDisk::new();
    let mut trail = Trail::new();
    let dice = &mut Dice(8);
    let mut life = live(&disk, &mut trail, dice, 4).unwrap();
    life.log.mark().unwrap();
    let before = life.log.end();
    let truth = trail.last().view();
    let now = trail.last().now_unix_ms;
    let mut records = Vec::new();
    for unix_ms in 0..40 {
        Record::Clock {
            unix_ms,
            wall_unix_ms: None,
        }
        .append_to(&mut records);
    }
    life.log.commit(&mut records).unwrap();
    drop(life);
    let name = segments(&disk).pop().unwrap();
    let mut bytes = disk.read(&name);
    let offset =
        (PAGE_BYTES + before.since(survey::survey(&disk).unwrap().chain[0].begin)) as usize;
    bytes[offset..offset + 100].fill(0xee);
    disk.tamper(&name, bytes);
    let recovered = open(&disk).unwrap();
    assert_eq!(View::of(&recovered, now), truth);
    let torn = recovered.torn.unwrap();
    assert_eq!((torn.position, torn.offset), (before, offset as u64));
    // And the next server does not find it again.
    let disk = disk.kill();
    Life::begin(&disk, &mut trail).unwrap();
    assert!(open(&disk).unwrap().torn.is_none());
}

#[test]
fn stale_records_are_not_replayed_even_where_the_next_record_would_be() {
    let disk = ForgetfulDisk::new();
    let now_unix_ms = 1000;
    let (mut log, _) = Log::open(Arc::new(disk.clone()), &options(now_unix_ms)).unwrap();
    // All records have the same length, so that stale ones stand exactly where new ones will.
    let mut records = Vec::new();
    let mut commit = |log: &mut Log, unix_ms| {
        records.clear();
        Record::Clock {
            unix_ms,
            wall_unix_ms: None,
        }
        .append_to(&mut records);
        log.commit(&mut records).unwrap();
    };
    let stale_ms = 9000;
    while log.shelf.closed_count() < 3 {
        commit(&mut log, stale_ms);
    }
    let first = Name::Segment(2).to_string();
    let stale = disk.read(&first);
    let mut snapshot = SnapshotFile::create(Arc::new(disk.clone()), log.end(), 1, Scope::Leases);
    snapshot
        .as_mut()
        .unwrap()
        .add(&Record::Clock {
            unix_ms: 1,
            wall_unix_ms: None,
        })
        .unwrap();
    snapshot.unwrap().finish(log.end()).unwrap();
    log.shelf.retire(&disk, log.end()).unwrap();
    while !segments(&disk).pop().unwrap().ends_with("5.wal") {
        commit(&mut log, 2000);
    }
    commit(&mut log, 2001);
    let end = log.end();
    let link = survey::survey(&disk).unwrap().chain.pop().unwrap();
    drop(log);
    // A crash in the middle of the next write may leave anything behind the last record, so also
    // what stood there before.
    let name = Name::Segment(link.sequence).to_string();
    let mut bytes = disk.read(&name);
    let offset = (PAGE_BYTES + end.since(link.begin)) as usize;
    bytes[offset..].copy_from_slice(&stale[offset..]);
    assert!(
        frame::read_anywhere(&bytes[offset..]).is_ok(),
        "a whole record"
    );
    disk.tamper(&name, bytes);
    let recovered = open(&disk).unwrap();
    assert_eq!(recovered.last_clock_unix_ms, 2001);
    assert!(recovered.torn.is_some());
}

#[test]
fn a_log_that_ends_before_its_snapshot_does_is_damaged() {
    let disk = ForgetfulDisk::new();
    let (mut log, _) = Log::open(Arc::new(disk.clone()), &options(1)).unwrap();
    let begin = log.end();
    let file = SnapshotFile::create(Arc::new(disk.clone()), begin, 1, Scope::Leases).unwrap();
    let mut records = Vec::new();
    Record::Clock {
        unix_ms: 1,
        wall_unix_ms: None,
    }
    .append_to(&mut records);
    log.commit(&mut records).unwrap();
    file.finish(log.end()).unwrap();
    drop(log);
    assert!(open(&disk).is_ok());
    let name = segments(&disk).pop().unwrap();
    let mut bytes = disk.read(&name);
    bytes[PAGE_BYTES as usize + begin.get() as usize..].fill(0);
    disk.tamper(&name, bytes);
    assert!(matches!(
        open(&disk),
        Err(ReplayError::Damaged {
            proof: Proof::Snapshot { .. },
            flaw: Flaw::End,
            ..
        })
    ));
}

#[test]
fn an_empty_directory_is_a_new_log() {
    let recovered = open(&ForgetfulDisk::new()).unwrap();
    assert_eq!(recovered.ceiling_max, 0);
    assert_eq!(recovered.scope, None);
    assert!(!recovered.was_clean);
    assert_eq!(recovered.records, 0);
}
