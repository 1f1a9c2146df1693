//! `docs/wal.md` says the same as the code.

use crate::files::segment::{PAGE_BYTES, SEGMENT_BYTES, VERSION};
use crate::record::Record;
use crate::record::frame;
use crate::tools::repair::FENCES_MARGIN;
use crate::{
    EntryId, Lease, QUEUE_BYTES_MAX, RECORD_BYTES_MAX, SNAPSHOT_LOG_BYTES, SPARES_MAX, Scope,
};

const DOCUMENT: &str = include_str!("../../../docs/wal.md");

#[test]
fn every_kind_is_in_the_document() {
    let key = b"k".as_slice();
    let lease = Lease {
        key,
        fence: 1,
        session: 1,
        mode: types::Mode::Exclusive,
        is_session_bound: false,
        count: 1,
        until_unix_ms: 1,
        granted_unix_ms: 1,
        note: b"",
    };
    let (unix_ms, session, fence, scope) = (1, 1, 1, Scope::Leases);
    for record in [
        Record::Started { unix_ms, scope },
        Record::CleanStop { unix_ms },
        Record::Ceiling { shard: 1, fence },
        Record::Horizon {
            unix_ms,
            lease_ms_max: None,
        },
        Record::Clock {
            unix_ms,
            wall_unix_ms: None,
        },
        Record::Horizon {
            unix_ms,
            lease_ms_max: Some(1),
        },
        Record::Clock {
            unix_ms,
            wall_unix_ms: Some(1),
        },
        Record::SessionOpened {
            session,
            ttl_ms: 1,
            deadline_unix_ms: 1,
            name: b"",
        },
        Record::SessionKept {
            session,
            deadline_unix_ms: 1,
        },
        Record::SessionEnded { session },
        Record::Granted(lease),
        Record::GrantedLong(lease),
        Record::Renewed {
            key,
            fence,
            until_unix_ms: 1,
        },
        Record::Released {
            key,
            fence,
            count_left: 0,
        },
        Record::Downgraded { key, fence },
        Record::SnapshotBegin { unix_ms, scope },
        Record::SnapshotShows { log_position: 1 },
        Record::SnapshotEnd {
            records: 1,
            log_end: 1,
            chain: 1,
        },
        Record::Continued { sequence: 1 },
        Record::Synced,
        Record::TurnsEnded,
        Record::Answered {
            session: 1,
            request: 1,
            fence: 1,
            count: 1,
        },
        Record::NodeIs { node: 1, disk: 1 },
        Record::Vote {
            group: 1,
            term: 1,
            node: 1,
            is_committed: true,
        },
        Record::EntryBegin {
            group: 1,
            id: EntryId::default(),
            bytes: 0,
            part: b"",
        },
        Record::EntryPart {
            group: 1,
            part: b"p",
        },
        Record::Truncated { group: 1, from: 1 },
        Record::Purged {
            group: 1,
            id: EntryId::default(),
        },
        Record::ImagePart {
            group: 1,
            part: b"p",
        },
    ] {
        let debug = format!("{record:?}");
        let name = debug.split([' ', '(']).next().unwrap();
        let row = format!("| {:#04x} | `{name}` |", record.kind());
        assert!(DOCUMENT.contains(&row), "{row}");
    }
}

#[test]
fn the_example_in_the_document_is_what_is_written() {
    let mut bytes = Vec::new();
    let record = Record::Ceiling {
        shard: 5,
        fence: 1_000_000,
    };
    record.append_to(&mut bytes);
    frame::stamp(&mut bytes, frame::Position::new(30), 0);
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let example: String = DOCUMENT
        .lines()
        .skip_while(|line| *line != "```hex")
        .skip(1)
        .take_while(|line| *line != "```")
        .map(|line| line.split("  ").next().unwrap().to_owned() + " ")
        .collect();
    assert_eq!(example.trim(), hex.join(" "));
}

#[test]
fn numbers_in_the_document_are_those_in_the_code() {
    for (what, number) in [
        ("version", u64::from(VERSION)),
        ("first page", PAGE_BYTES),
        ("longest record", RECORD_BYTES_MAX as u64),
        ("segment", SEGMENT_BYTES >> 20),
        ("spares", SPARES_MAX as u64),
        ("log before a snapshot", SNAPSHOT_LOG_BYTES >> 20),
        ("queue", QUEUE_BYTES_MAX as u64 >> 20),
    ] {
        let row = format!("| {what} | {number}");
        assert!(DOCUMENT.contains(&row), "{row}");
    }
    assert_eq!(FENCES_MARGIN, 1 << 44);
    assert!(DOCUMENT.contains("2^44"));
}
