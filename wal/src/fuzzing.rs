//! Logs made of any bytes, for `fuzz-tests`: what must hold of them, and how bytes become files
//! that get past the checksums.

use crate::error::{ReplayError, WalError};
use crate::files::key::KEY_FILE;
use crate::files::segment::{Header, Name, PAGE_BYTES, SEGMENT_BYTES_MIN, Sort};
use crate::log::Options;
use crate::record::frame::{self, Position};
use crate::record::{Record, Scope};
use crate::replay::Tally;
use crate::replay::highest::Highest;
use crate::tools::Contents;
use crate::tools::repair::{Repair, RepairError, repair_on};
use crate::{open_on, tools};
use disk::Disk;
use disk::forgetful::ForgetfulDisk;
use std::sync::Arc;

/// The wall clock of all these servers.
const NOW_UNIX_MS: u64 = 1_700_000_000_000;

/// The longest payload that fits into a record.
const PAYLOAD_BYTES_MAX: usize = frame::RECORD_BYTES_MAX - frame::HEADER_BYTES;

/// Reads a data directory with these files as a server, a tool and a repair would.
pub fn read_log(files: Vec<(String, Vec<u8>)>) {
    check(&|| Arc::new(ForgetfulDisk::with_files(&files)));
}

/// A server, `verify`, `dump` and `repair` agree on what is in the directory, and what one of them
/// has opened or repaired the next one opens.
fn check(disk: &dyn Fn() -> Arc<dyn Disk>) {
    let report = tools::verify_on(&*disk()).expect("memory does not fail");
    let highest = Highest::read_on(&*disk());
    let damage = tools::dump_on(&*disk(), &mut |entry| {
        std::hint::black_box(entry.to_string());
        Ok(())
    });
    let damage = damage.expect("memory does not fail");
    std::hint::black_box(report.to_string());
    let opened = disk();
    match (open(&opened), &report.outcome) {
        (Ok(ceiling), Ok(Contents::Server(verified))) => {
            assert!(damage.is_none(), "dump: {damage:?}");
            assert_eq!(ceiling, verified.ceiling_max);
            let highest = highest.expect("a sound log is read").unwrap_or_default();
            assert_eq!(highest.ceiling, ceiling);
            assert_eq!(open(&opened).ok(), Some(ceiling), "opened twice");
        }
        (Err(WalError::Replay(error)), Err(_)) => {
            std::hint::black_box(error.to_string());
            repair(&opened);
        }
        (Err(WalError::Replay(ReplayError::OfACluster { .. })), Ok(Contents::Node { .. })) => {
            repair(&opened);
        }
        (Ok(_), Ok(Contents::Node { .. })) => panic!("a single server starts as a node"),
        (Ok(_), Err(error)) => panic!("a server starts, but verify says {error}"),
        (Err(error), outcome) => {
            panic!("{error}, but verify says {:?}", outcome.as_ref().err())
        }
    }
}

/// Opens the log; its highest ceiling.
fn open(disk: &Arc<dyn Disk>) -> Result<u64, WalError> {
    let options = Options {
        segment_bytes: SEGMENT_BYTES_MIN,
        ..Options::new(Scope::Leases, NOW_UNIX_MS)
    };
    let (_, recovered) = open_on(disk.clone(), &options)?;
    std::hint::black_box(recovered.leases.count());
    Ok(recovered.ceiling_max)
}

fn repair(disk: &Arc<dyn Disk>) {
    let wish = Repair {
        accept_loss: true,
        now_unix_ms: NOW_UNIX_MS,
        lease_ms_max: 1,
    };
    match repair_on(disk.clone(), SEGMENT_BYTES_MIN, &wish) {
        Ok(repaired) => {
            let ceiling = open(disk).unwrap_or_else(|error| panic!("repaired, but {error}"));
            if let Some(log) = repaired.log {
                assert_eq!(ceiling, log.ceiling);
            }
        }
        Err(
            RepairError::Newer(_)
            | RepairError::NoFencesLeft { .. }
            | RepairError::OfACluster { .. },
        ) => {}
        Err(error) => panic!("damaged, but {error}"),
    }
}

/// Files that are any bytes.
pub struct Raw;

impl Raw {
    /// A snapshot at position 0, if it has bytes, and the first segment.
    pub fn files(snapshot: &[u8], segment: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut files = vec![(Name::Segment(1).to_string(), segment.to_vec())];
        if !snapshot.is_empty() {
            files.push((Name::Snapshot(0).to_string(), snapshot.to_vec()));
        }
        files
    }
}

/// Files whose first pages and checksums are right: any records, in any order.
pub struct Framed {
    segment: Vec<u8>,
    snapshot: Option<Vec<u8>>,
    tally: Tally,
    begin: Position,
}

impl Framed {
    /// A log that begins at `begin`, with a snapshot there or without.
    pub fn new(begin: u64, has_snapshot: bool) -> Self {
        let begin = Position::new(begin);
        let page = |sort, sequence, bytes| {
            let header = Header {
                sort,
                sequence,
                begin,
                bytes,
            };
            header.encode()
        };
        Framed {
            segment: page(Sort::Segment, 1, SEGMENT_BYTES_MIN),
            snapshot: has_snapshot.then(|| page(Sort::Snapshot, 0, 0)),
            tally: Tally::default(),
            begin,
        }
    }

    /// Appends a record to the segment, if it has room.
    pub fn append(&mut self, kind: u8, payload: &[u8]) {
        let offset = self.segment.len() as u64;
        let mut record = record(kind, payload);
        if offset + record.len() as u64 > SEGMENT_BYTES_MIN {
            return;
        }
        frame::stamp(&mut record, self.begin.plus(offset - PAGE_BYTES), 0);
        self.segment.extend_from_slice(&record);
    }

    /// Appends a record to the snapshot, if there is one.
    pub fn append_to_snapshot(&mut self, kind: u8, payload: &[u8]) {
        if let Some(snapshot) = &mut self.snapshot {
            let mut record = record(kind, payload);
            let position = Position::new(snapshot.len() as u64);
            self.tally.add(frame::stamp(&mut record, position, 0));
            snapshot.extend_from_slice(&record);
        }
    }

    /// The files, with a key of the earlier sort.
    pub fn files(mut self) -> Vec<(String, Vec<u8>)> {
        self.segment.resize(SEGMENT_BYTES_MIN as usize, 0);
        let mut files = vec![
            (Name::Segment(1).to_string(), self.segment),
            (KEY_FILE.to_owned(), vec![7; crate::KEY_BYTES]),
        ];
        if let Some(mut snapshot) = self.snapshot {
            let Tally { records, chain } = self.tally;
            let end = Record::SnapshotEnd {
                records,
                log_end: self.begin.get(),
                chain,
            };
            let start = snapshot.len();
            end.append_to(&mut snapshot);
            frame::stamp(&mut snapshot[start..], Position::new(start as u64), 0);
            files.push((Name::Snapshot(self.begin.get()).to_string(), snapshot));
        }
        files
    }
}

fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
    let mut record = Vec::new();
    frame::append(&mut record, kind, |out| out.extend_from_slice(payload));
    record
}
