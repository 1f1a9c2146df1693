//! Every kind of record, pinned to its bytes and round.

use super::*;
use crate::record::frame;
use crate::record::payload::RecordError;
use proptest::prelude::*;

fn payload(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.append_to(&mut bytes);
    assert_eq!(bytes[frame::HEADER_BYTES - 1], record.kind());
    bytes.split_off(frame::HEADER_BYTES)
}

const LEASE: Lease<'_> = Lease {
    key: b"orders/42",
    fence: 0x0102_0304_0506,
    session: 0x1122_3344_5566_7788,
    mode: types::Mode::Shared,
    is_session_bound: false,
    count: 3,
    until_unix_ms: 0x0199_aabb_ccdd,
    granted_unix_ms: 0x0199_aabb_0000,
    note: b"hi",
};

/// The payload of [`LEASE`].
const GRANTED: [u8; 50] = [
    6, 5, 4, 3, 2, 1, 0, 0, // fence
    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // session
    0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x01, 0, 0, // until
    0, 0, 0xbb, 0xaa, 0x99, 0x01, 0, 0, // granted
    3, 0, 0, 0, // count
    1, // flags
    9, 0, // bytes of the key
    b'o', b'r', b'd', b'e', b'r', b's', b'/', b'4', b'2', b'h', b'i',
];

#[test]
fn every_kind_has_these_bytes() {
    let key = b"k".as_slice();
    let pinned: &[(Record<'_>, u8, &[u8])] = &[
        (
            Record::Started {
                unix_ms: 0x0199_aabb_ccdd,
                scope: Scope::Leases,
            },
            0x01,
            &[0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x01, 0, 0, 2],
        ),
        (
            Record::CleanStop { unix_ms: 5 },
            0x02,
            &[5, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Record::Ceiling {
                shard: 0x0203,
                fence: 1_000_000,
            },
            0x03,
            &[3, 2, 0x40, 0x42, 0x0f, 0, 0, 0, 0, 0],
        ),
        (
            Record::Horizon {
                unix_ms: 6,
                lease_ms_max: None,
            },
            0x04,
            &[6, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Record::Clock {
                unix_ms: 7,
                wall_unix_ms: None,
            },
            0x05,
            &[7, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Record::Clock {
                unix_ms: 7,
                wall_unix_ms: Some(8),
            },
            0x09,
            &[7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Record::Horizon {
                unix_ms: 6,
                lease_ms_max: Some(30_000),
            },
            0x0a,
            &[6, 0, 0, 0, 0, 0, 0, 0, 0x30, 0x75, 0, 0],
        ),
        (
            Record::SessionOpened {
                session: 9,
                ttl_ms: 30_000,
                deadline_unix_ms: 8,
                name: b"app",
            },
            0x10,
            &[
                9, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0x30, 0x75, 0, 0, b'a', b'p', b'p',
            ],
        ),
        (
            Record::SessionKept {
                session: 9,
                deadline_unix_ms: 10,
            },
            0x11,
            &[9, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Record::SessionEnded { session: 9 },
            0x12,
            &[9, 0, 0, 0, 0, 0, 0, 0],
        ),
        (Record::Granted(LEASE), 0x20, &GRANTED),
        (Record::GrantedLong(LEASE), 0x25, &GRANTED),
        (
            Record::Renewed {
                key,
                fence: 2,
                until_unix_ms: 11,
            },
            0x21,
            &[2, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0, b'k'],
        ),
        (
            Record::Released {
                key,
                fence: 2,
                count_left: 1,
            },
            0x22,
            &[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'k'],
        ),
        (
            Record::Downgraded { key, fence: 2 },
            0x23,
            &[2, 0, 0, 0, 0, 0, 0, 0, b'k'],
        ),
        (
            Record::SnapshotBegin {
                unix_ms: 12,
                scope: Scope::Fences,
            },
            0x30,
            &[12, 0, 0, 0, 0, 0, 0, 0, 1],
        ),
        (
            Record::SnapshotShows { log_position: 13 },
            0x32,
            &[13, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Record::SnapshotEnd {
                records: 13,
                log_end: 14,
                chain: 0x0506_0708,
            },
            0x31,
            &[13, 0, 0, 0, 0, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5],
        ),
        (
            Record::Continued { sequence: 15 },
            0x40,
            &[15, 0, 0, 0, 0, 0, 0, 0],
        ),
        (Record::Synced, 0x41, &[]),
        (Record::TurnsEnded, 0x0b, &[]),
        (
            Record::Answered {
                session: 1,
                request: 2,
                fence: 3,
                count: 4,
            },
            0x24,
            &[
                1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0,
            ],
        ),
        (
            Record::NodeIs { node: 3, disk: 4 },
            0x56,
            &[3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Record::Vote {
                group: 1,
                term: 2,
                node: 3,
                is_committed: true,
            },
            0x50,
            &[1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1],
        ),
        (
            Record::EntryBegin {
                group: 1,
                id: ENTRY,
                bytes: 3,
                part: b"ab",
            },
            0x51,
            &[
                1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 3, 0,
                0, 0, b'a', b'b',
            ],
        ),
        (
            Record::EntryPart {
                group: 1,
                part: b"c",
            },
            0x52,
            &[1, 0, b'c'],
        ),
        (
            Record::Truncated { group: 1, from: 9 },
            0x53,
            &[1, 0, 9, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Record::Purged {
                group: 1,
                id: ENTRY,
            },
            0x54,
            &[
                1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
            ],
        ),
        (
            Record::ImagePart {
                group: 1,
                part: b"d",
            },
            0x55,
            &[1, 0, b'd'],
        ),
    ];
    for (record, kind, bytes) in pinned {
        assert_eq!(record.kind(), *kind, "{record:?}");
        assert_eq!(payload(record), *bytes, "{record:?}");
        assert_eq!(Record::decode(*kind, bytes), Ok(*record));
    }
    let known: Vec<u8> = pinned.iter().map(|(_, kind, _)| *kind).collect();
    for kind in 0..=u8::MAX {
        let decoded = Record::decode(kind, &[]);
        let is_unknown = decoded == Err(RecordError::UnknownKind { kind });
        assert_eq!(is_unknown, !known.contains(&kind), "kind {kind:#x}");
    }
}

const ENTRY: EntryId = EntryId {
    term: 2,
    node: 3,
    index: 4,
};

#[test]
fn the_lengths_that_files_rely_on_are_right() {
    let mut bytes = Vec::new();
    let end = Record::SnapshotEnd {
        records: 0,
        log_end: 0,
        chain: 0,
    };
    end.append_to(&mut bytes);
    assert_eq!(bytes.len(), SNAPSHOT_END_BYTES);
    bytes.clear();
    Record::Continued { sequence: 1 }.append_to(&mut bytes);
    assert_eq!(bytes.len(), CONTINUED_BYTES);
}

#[test]
fn what_no_server_writes_is_malformed() {
    let malformed = |kind, field| Err(RecordError::Malformed { kind, field });
    let change = |at: usize, value: u8| {
        let mut bytes = payload(&Record::Granted(LEASE));
        bytes[at] = value;
        Record::decode(0x20, &bytes).map(|_| ())
    };
    assert_eq!(change(7, 0xff), malformed(0x20, "fence"));
    assert_eq!(change(32, 0), malformed(0x20, "count"));
    assert_eq!(change(36, 4), malformed(0x20, "flags"));
    assert_eq!(change(37, 0), malformed(0x20, "length of the key"));
    assert_eq!(change(38, 9), malformed(0x20, "length of the key"));
    assert_eq!(change(37, 12), malformed(0x20, "key"));
    let started = Record::decode(0x01, &[0, 0, 0, 0, 0, 0, 0, 0, 3]);
    assert_eq!(started.map(|_| ()), malformed(0x01, "scope"));
    let longer = Record::decode(0x41, &[0]);
    assert_eq!(longer.map(|_| ()), malformed(0x41, "length"));
    let no_key = Record::decode(0x23, &[1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(no_key.map(|_| ()), malformed(0x23, "key"));
}

#[test]
fn callers_write_changes_and_the_log_writes_the_rest() {
    assert!(Record::Ceiling { shard: 0, fence: 1 }.is_callers());
    assert!(
        Record::Clock {
            unix_ms: 0,
            wall_unix_ms: None
        }
        .is_callers()
    );
    assert!(Record::Granted(LEASE).is_callers());
    let scope = Scope::Fences;
    assert!(!Record::Started { unix_ms: 0, scope }.is_callers());
    assert!(!Record::CleanStop { unix_ms: 0 }.is_callers());
    assert!(!Record::SnapshotBegin { unix_ms: 0, scope }.is_callers());
    assert!(!Record::Synced.is_callers());
}

fn bytes(length: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), length)
}

proptest! {
    #[test]
    fn leases_come_back_as_they_were(
        key in bytes(1..=KEY_BYTES_MAX),
        note in bytes(0..=NOTE_BYTES_MAX),
        fence in 1..=FENCE_MAX,
        (session, until_unix_ms, granted_unix_ms) in any::<(u64, u64, u64)>(),
        count in 1..=u32::MAX,
        (is_shared, is_session_bound) in any::<(bool, bool)>(),
    ) {
        let record = Record::Granted(Lease {
            key: &key, fence, session, mode: types::Mode::from_is_shared(is_shared), is_session_bound, count, until_unix_ms, granted_unix_ms, note: &note,
        });
        let payload = payload(&record);
        prop_assert_eq!(Record::decode(0x20, &payload), Ok(record));
    }

    #[test]
    fn other_records_come_back_as_they_were(
        key in bytes(1..=KEY_BYTES_MAX),
        name in bytes(0..=NAME_BYTES_MAX),
        fence in 0..=FENCE_MAX,
        (number, time, small, shard) in any::<(u64, u64, u32, u16)>(),
        is_leases in any::<bool>(),
    ) {
        let key = key.as_slice();
        let scope = if is_leases { Scope::Leases } else { Scope::Fences };
        for record in [
            Record::Started { unix_ms: time, scope },
            Record::CleanStop { unix_ms: time },
            Record::Ceiling { shard, fence },
            Record::Horizon { unix_ms: time, lease_ms_max: None },
            Record::Clock { unix_ms: time, wall_unix_ms: None },
            Record::SessionOpened { session: number, ttl_ms: small, deadline_unix_ms: time, name: &name },
            Record::SessionKept { session: number, deadline_unix_ms: time },
            Record::SessionEnded { session: number },
            Record::Renewed { key, fence, until_unix_ms: time },
            Record::Released { key, fence, count_left: small },
            Record::Downgraded { key, fence },
            Record::SnapshotBegin { unix_ms: time, scope },
            Record::SnapshotShows { log_position: number },
            Record::SnapshotEnd { records: number, log_end: time, chain: small },
            Record::Continued { sequence: number },
        ] {
            let payload = payload(&record);
            prop_assert_eq!(Record::decode(record.kind(), &payload), Ok(record));
        }
    }

    #[test]
    fn any_bytes_decode_or_are_refused(kind in any::<u8>(), payload in bytes(0..=300)) {
        if let Ok(record) = Record::decode(kind, &payload) {
            let mut bytes = Vec::new();
            record.append_to(&mut bytes);
            prop_assert_eq!(&bytes[frame::HEADER_BYTES..], &payload[..]);
        }
    }
}
