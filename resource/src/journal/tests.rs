//! The log under every kind of end: at each byte, with each byte wrong, in the middle of being
//! rewritten.

mod forgetful;

use super::file::LogFile;
use super::frame::{self, Frame, HEADER_BYTES, Header};
use crate::ledger::{Bounds, Ledger, Value, WhenFull};
use crate::refusal::JournalError;
use bytes::Bytes;
use disk::DirDisk;
use parking_lot::Mutex;
use proptest::prelude::*;
use protocol::Fence;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// Everything that a ledger knows, in its order.
type Contents = (Vec<(Vec<u8>, u64, Vec<u8>)>, Vec<(u32, u64)>);

/// Key, fence, value.
type Write<'a> = (&'a [u8], u64, &'a [u8]);

fn contents<V: Value>(ledger: &Ledger<V>) -> Contents {
    let entries = ledger
        .entries()
        .map(|(key, fence, value)| (key.to_vec(), fence.get(), value.as_bytes().to_vec()));
    let floors = ledger.floors().map(|(cell, fence)| (cell, fence.get()));
    (entries.collect(), floors.collect())
}

fn bounds(keys_max: usize) -> Bounds {
    Bounds {
        keys_max,
        bytes_max: u64::MAX,
        when_full: WhenFull::Forget,
    }
}

fn open(dir: &Path) -> Result<(LogFile, Ledger<Bytes>), JournalError> {
    open_as(dir)
}

fn open_as<V: Value>(dir: &Path) -> Result<(LogFile, Ledger<V>), JournalError> {
    let disk = DirDisk::open_or_create(dir).unwrap();
    LogFile::open(Box::new(disk), bounds(2))
}

/// One batch after another, each with a few writes. Three keys where there is room for two, so that
/// floors rise too.
fn batches() -> Vec<Vec<Write<'static>>> {
    vec![
        vec![(b"a", 1, b"first")],
        vec![(b"b", 2, b""), (b"a", 3, b"second")],
        vec![(b"c", 7, b"FMRK and other bytes that look like a frame")],
        vec![
            (b"a", 8, b"third"),
            (b"", 9, b"the key without bytes"),
            (b"c", 10, b"!"),
        ],
    ]
}

fn commit(log: &mut LogFile, ledger: &mut Ledger<Bytes>, batch: &[Write<'_>]) {
    let mut frame = Frame::new();
    for (key, fence, value) in batch {
        frame.push_write(key, Fence::new(*fence).unwrap(), value);
    }
    log.commit(&mut frame).unwrap();
    apply(ledger, batch);
}

fn apply(ledger: &mut Ledger<Bytes>, batch: &[Write<'_>]) {
    for (key, fence, value) in batch {
        let value = Bytes::copy_from_slice(value);
        ledger.restore(&Arc::from(*key), Fence::new(*fence).unwrap(), value);
    }
}

/// A log, and after each commit its length and what the ledger knew then.
fn written(dir: &Path) -> Vec<(u64, Contents)> {
    let (mut log, mut ledger) = open(dir).unwrap();
    let length = || fs::metadata(dir.join("fences.log")).unwrap().len();
    let mut history = vec![(length(), contents(&ledger))];
    for batch in batches() {
        commit(&mut log, &mut ledger, &batch);
        history.push((length(), contents(&ledger)));
    }
    history
}

#[test]
fn cut_off_at_any_byte_it_knows_exactly_what_was_acknowledged_by_then() {
    let dir = TempDir::new().unwrap();
    let history = written(dir.path());
    let path = dir.path().join("fences.log");
    let whole = fs::read(&path).unwrap();
    for length in HEADER_BYTES..=whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let (mut log, mut ledger) = open(dir.path()).unwrap();
        let acknowledged = history.iter().rev().find(|(end, _)| *end <= length as u64);
        let (end, known) = acknowledged.expect("the header is there");
        assert_eq!(contents(&ledger), *known, "cut off at {length}");
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            *end,
            "nothing is left of a torn frame"
        );

        // And it goes on from there.
        commit(&mut log, &mut ledger, &[(b"z", 99, b"afterwards")]);
        drop(log);
        let (_, again) = open(dir.path()).unwrap();
        assert_eq!(
            contents(&again),
            contents(&ledger),
            "cut off at {length} and continued"
        );
    }
}

#[test]
fn an_end_of_zeros_is_a_torn_end() {
    let dir = TempDir::new().unwrap();
    let history = written(dir.path());
    let path = dir.path().join("fences.log");
    let mut longer = fs::read(&path).unwrap();
    longer.extend([0; 5_000]);
    fs::write(&path, &longer).unwrap();
    let (_, ledger) = open(dir.path()).unwrap();
    assert_eq!(contents(&ledger), history.last().unwrap().1);
}

#[test]
fn damage_to_what_was_acknowledged_is_never_overlooked() {
    let dir = TempDir::new().unwrap();
    let history = written(dir.path());
    let path = dir.path().join("fences.log");
    let whole = fs::read(&path).unwrap();
    let last_begins = history[history.len() - 2].0 as usize;
    for offset in 0..whole.len() {
        for bit in [0x01, 0x80] {
            let mut bytes = whole.clone();
            bytes[offset] ^= bit;
            fs::write(&path, &bytes).unwrap();
            let opened = open(dir.path());
            if offset < last_begins {
                let error = opened.err();
                let error =
                    error.unwrap_or_else(|| panic!("byte {offset} was changed and believed"));
                assert!(
                    matches!(error, JournalError::Damaged { .. }),
                    "byte {offset}: {error}"
                );
                assert_eq!(
                    fs::read(&path).unwrap(),
                    bytes,
                    "nothing is changed that is not believed"
                );
            } else {
                // The last frame: cannot be told from a torn one.
                let (_, ledger) = opened.unwrap();
                assert_eq!(contents(&ledger), history[history.len() - 2].1);
            }
        }
    }
}

#[test]
fn rewriting_changes_nothing_but_the_length() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("fences.log");
    let (mut log, mut ledger) = open(dir.path()).unwrap();
    for round in 0..200_u64 {
        commit(
            &mut log,
            &mut ledger,
            &[(b"a", 10 + 3 * round, b"x"), (b"b", 11 + round, b"y")],
        );
        commit(&mut log, &mut ledger, &[(b"c", 5 + round, b"z")]);
    }
    assert!(log.wants_rewriting(1_000));
    let before = fs::metadata(&path).unwrap().len();
    let ledger = Mutex::new(ledger);
    log.rewrite(&ledger).unwrap();
    let after = fs::metadata(&path).unwrap().len();
    assert!(after < before / 10, "{before} bytes became {after}");
    assert!(!log.wants_rewriting(0));

    let mut ledger = ledger.into_inner();
    commit(&mut log, &mut ledger, &[(b"a", 10_000, b"after")]);
    drop(log);
    let (_, again) = open(dir.path()).unwrap();
    assert_eq!(contents(&again), contents(&ledger));
}

#[test]
fn a_rewrite_that_a_crash_cut_short_leaves_the_old_log() {
    let dir = TempDir::new().unwrap();
    let history = written(dir.path());
    let (path, new) = (dir.path().join("fences.log"), dir.path().join("fences.new"));
    let old = fs::read(&path).unwrap();
    let (mut log, ledger) = open(dir.path()).unwrap();
    log.rewrite(&Mutex::new(ledger)).unwrap();
    drop(log);
    let rewritten = fs::read(&path).unwrap();
    for length in 0..=rewritten.len() {
        fs::write(&path, &old).unwrap();
        fs::write(&new, &rewritten[..length]).unwrap();
        let (mut log, ledger) = open(dir.path()).unwrap();
        assert_eq!(contents(&ledger), history.last().unwrap().1);
        log.rewrite(&Mutex::new(ledger)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), rewritten);
    }
}

#[test]
fn what_cannot_be_rewritten_is_used_further() {
    let dir = TempDir::new().unwrap();
    let (mut log, mut ledger) = open(dir.path()).unwrap();
    commit(&mut log, &mut ledger, &[(b"a", 1, b"x")]);
    // A directory of that name stands for whatever may keep the new file from being made.
    fs::create_dir(dir.path().join("fences.new")).unwrap();
    let ledger = Mutex::new(ledger);
    log.rewrite(&ledger).unwrap();
    let mut ledger = ledger.into_inner();
    assert!(!log.wants_rewriting(0), "not again before it has doubled");
    commit(&mut log, &mut ledger, &[(b"a", 2, b"y")]);
    drop(log);
    let (_, again) = open(dir.path()).unwrap();
    assert_eq!(contents(&again), contents(&ledger));
}

#[test]
fn a_directory_has_one_user_and_one_kind() {
    let dir = TempDir::new().unwrap();
    let (log, _) = open(dir.path()).unwrap();
    let second = open(dir.path());
    assert!(matches!(second.err(), Some(JournalError::InUse { .. })));
    drop(log);
    let other = open_as::<()>(dir.path());
    assert!(matches!(other.err(), Some(JournalError::OtherKind { .. })));
}

proptest! {
    /// Whatever a body says, it is replayed or refused, and takes no more memory than it has bytes.
    #[test]
    fn no_body_is_too_strange(mut body in prop::collection::vec(any::<u8>(), 0..200), tag in 0_u8..4) {
        if let Some(first) = body.first_mut() {
            *first = tag;
        }
        let mut ledger = Ledger::<Bytes>::new(bounds(2), [1; 16]);
        let _ = frame::replay(&body, &mut ledger);
        let _ = frame::split(&body, &[1; 16]);
        prop_assert!(ledger.keys() <= 2);
    }
}

#[test]
fn the_bytes_are_these() {
    let header = Header {
        kind: 2,
        seed: *b"0123456789abcdef",
    };
    let bytes = header.to_bytes();
    assert_eq!(bytes[..28], *b"FPMARKS\n\x01\x02\0\x000123456789abcdef");
    assert_eq!(Header::from_bytes(&bytes), Ok(header));

    let mut frame = Frame::new();
    frame.push_write(b"key", Fence::new(0x0102).unwrap(), b"value");
    frame.push_floor(3, Fence::new(4).unwrap());
    let bytes = frame.seal(&header.seed, 1).to_vec();
    let body = b"\x01\x02\x01\0\0\0\0\0\0\x03\0\x05\0\0\0keyvalue\x02\x04\0\0\0\0\0\0\0\x03\0\0\0";
    assert_eq!(bytes[..16], *b"FMRK\x24\0\0\0\x01\0\0\0\0\0\0\0");
    assert_eq!(bytes[20..], *body);
    assert_eq!(
        bytes[16..20],
        [33, 29, 26, 5],
        "the checksum of seed, length, sequence and body"
    );
    assert_eq!(frame::split(&bytes, &header.seed), Some((1, &body[..])));
    assert_eq!(frame::split(&bytes, &[0; 16]), None, "another file's frame");
}
