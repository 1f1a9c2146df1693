//! Reading a log back, every byte of it checked: the newest snapshot first, then the segments from
//! where it begins.
//!
//! # Where the log ends
//!
//! The log ends at the first place in the last segment where no whole record stands. That is either
//! where nothing was written yet, or where a crash cut a write short, and it does not matter which:
//! what was not synced was not promised. What must not happen is that damage to something that
//! *was* synced is taken for such an end. So everything behind the end is searched for a whole
//! record of a later write. A write begins only when the one before it is on the disk, so such a
//! record proves damage. A record of the *same* write proves nothing: a disk may keep the end of a
//! write and lose its beginning.
//!
//! Damage within the very last write cannot be told from a crash during it, unless the log was idle
//! afterwards for a moment: then a [`Record::Synced`] stands behind it and is the proof.

pub(crate) mod highest;
pub(crate) mod leases;
pub(crate) mod ledger;
pub(crate) mod node;
pub(crate) mod recovered;
pub(crate) mod sessions;
pub(crate) mod state;
mod survey;

use crate::error::BrokenRule;
use crate::error::{Blame, Proof, ReplayError};
use crate::files::segment::{BEGIN_AT, Header, Name, PAGE_BYTES, Sort};
use crate::record::frame::{self, Flaw, Frame, Position};
use crate::record::{Record, SNAPSHOT_END_BYTES};
use crate::replay::state::State;
use disk::{Disk, DiskFile};
use std::path::PathBuf;

pub use survey::Torn;
pub(crate) use survey::{Layout, Link};

/// Bytes of a snapshot that are read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Where a record was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) file: Name,
    pub(crate) offset: u64,
}

/// Reads the records, one after the other.
pub(crate) trait Visitor {
    /// How many records the snapshot has.
    fn expect(&mut self, _records: u64) {}
    fn snapshot(&mut self, place: Place, record: &Record<'_>) -> Result<(), BrokenRule>;
    /// The next record of the log stands there.
    fn reach(&mut self, _position: Position) {}
    fn log(&mut self, place: Place, record: &Record<'_>) -> Result<(), BrokenRule>;
}

impl Visitor for State {
    fn expect(&mut self, records: u64) {
        // Each record is a lease or fewer; the file is long enough for as many as it says.
        self.leases.reserve(records as usize);
    }

    fn snapshot(&mut self, _: Place, record: &Record<'_>) -> Result<(), BrokenRule> {
        self.apply_snapshot(record)
    }

    fn reach(&mut self, position: Position) {
        State::reach(self, position);
    }

    fn log(&mut self, _: Place, record: &Record<'_>) -> Result<(), BrokenRule> {
        self.apply_log(record)
    }
}

/// Shows `visitor` every record, in order. Changes nothing.
pub(crate) fn walk(disk: &dyn Disk, visitor: &mut impl Visitor) -> Result<Layout, ReplayError> {
    let mut layout = survey::survey(disk)?;
    let mut reader = Reader {
        disk,
        visitor,
        segment: Vec::new(),
    };
    if let Some(name) = layout.snapshot {
        reader.read_snapshot(name, &mut layout)?;
    }
    for index in 0..layout.chain.len() {
        reader.read_segment(index, &mut layout)?;
    }
    Ok(layout)
}

struct Reader<'a, V> {
    disk: &'a dyn Disk,
    visitor: &'a mut V,
    /// The bytes of one segment after the other.
    segment: Vec<u8>,
}

impl<V: Visitor> Reader<'_, V> {
    /// Reads one segment of the chain.
    fn read_segment(&mut self, index: usize, layout: &mut Layout) -> Result<(), ReplayError> {
        let link = layout.chain[index];
        let file = Name::Segment(link.sequence);
        let name = file.to_string();
        let path = || self.disk.dir().join(&name);
        let handle = self.disk.open_read(&name);
        let handle = handle.blame("open", self.disk, &name)?;
        let mut bytes = std::mem::take(&mut self.segment);
        bytes.resize(link.bytes as usize, 0);
        let read = handle.read_at(&mut bytes, 0);
        read.blame("read", self.disk, &name)?;
        layout.bytes += link.bytes;

        let next = layout.chain.get(index + 1).copied();
        let mut offset = PAGE_BYTES as usize;
        let flaw = loop {
            let end = link.begin.plus(offset as u64 - PAGE_BYTES);
            layout.end = end;
            if next.is_some_and(|next| next.begin <= end) {
                break Flaw::End;
            }
            let frame = match frame::read(&bytes[offset..], end) {
                Ok(frame) => frame,
                Err(flaw) => break flaw,
            };
            let place = Place {
                file,
                offset: offset as u64,
            };
            let record = self.decode(place, &frame)?;
            match record {
                Record::Synced => break Flaw::End,
                Record::Continued { sequence } if next.is_none() => {
                    return Err(ReplayError::MissingSegment {
                        file: path(),
                        sequence,
                    });
                }
                // It comes before the beginning of the next: so that is not where the log went on.
                Record::Continued { .. } => break Flaw::End,
                record if end >= layout.begin => {
                    layout.records += 1;
                    self.visitor.reach(end);
                    let shown = self.visitor.log(place, &record);
                    shown.map_err(|rule| self.broken(place, rule))?;
                }
                // The snapshot has it already.
                _ => {}
            }
            offset += frame.bytes;
        };

        let end = layout.end;
        let damaged = |proof| ReplayError::Damaged {
            file: path(),
            offset: offset as u64,
            position: end,
            flaw,
            proof,
        };
        match next {
            Some(next) if next.begin == end => {
                self.segment = bytes;
                return Ok(());
            }
            Some(next) if next.begin < end => {
                return Err(ReplayError::Chain {
                    file: path(),
                    end,
                    next_begins: next.begin,
                });
            }
            Some(next) => {
                let sequence = next.sequence;
                return Err(damaged(Proof::LaterSegment { sequence }));
            }
            None => {}
        }
        let base = link.begin.get().wrapping_sub(PAGE_BYTES);
        let mut is_torn = flaw != Flaw::End;
        let mut from = offset + 1;
        while let Some((found, frame)) = frame::find(&bytes, from, base) {
            if frame.write_began > end {
                let offset = found as u64;
                return Err(damaged(Proof::LaterWrite { offset }));
            }
            is_torn = true;
            from = found + frame.bytes;
        }
        if end < layout.synced {
            let log_end = layout.synced;
            return Err(damaged(Proof::Snapshot { log_end }));
        }
        layout.torn = is_torn.then(|| Torn {
            file: path(),
            offset: offset as u64,
            position: end,
            flaw,
        });
        Ok(())
    }

    /// Reads the snapshot.
    fn read_snapshot(&mut self, file: Name, layout: &mut Layout) -> Result<(), ReplayError> {
        let name = file.to_string();
        let handle = self.disk.open_read(&name);
        let handle = handle.blame("open", self.disk, &name)?;
        let header = Header::read(self.disk, &name, &*handle, Sort::Snapshot)?;
        if header.begin != layout.begin {
            return Err(ReplayError::Header {
                file: self.disk.dir().join(name),
                offset: BEGIN_AT,
                expected: "the position of its name",
            });
        }
        let length = handle.bytes().blame("read", self.disk, &name)?;
        let end = self.read_snapshot_end(file, &*handle, length)?;
        layout.bytes += length;
        layout.snapshot_bytes = length;
        layout.synced = Position::new(end.log_end);
        self.visitor.expect(end.records.min(length));

        let records_end = length - SNAPSHOT_END_BYTES as u64;
        let mut tally = Tally::default();
        let mut buffer = vec![0; CHUNK_BYTES + frame::RECORD_BYTES_MAX];
        // So much of the buffer is waiting to be looked at, and stands at this offset of the file.
        let mut filled = 0;
        let mut base = PAGE_BYTES;
        while base < records_end {
            let read_at = base + filled as u64;
            let more = CHUNK_BYTES.min((records_end - read_at) as usize);
            let is_last = read_at + more as u64 == records_end;
            let read = handle.read_at(&mut buffer[filled..filled + more], read_at);
            read.blame("read", self.disk, &name)?;
            filled += more;
            let mut used = 0;
            while used < filled && (is_last || filled - used >= frame::RECORD_BYTES_MAX) {
                let place = Place {
                    file,
                    offset: base + used as u64,
                };
                let frame = frame::read(&buffer[used..filled], Position::new(place.offset));
                let frame = frame.map_err(|flaw| self.not_complete(place, flaw))?;
                tally.count(&frame);
                let record = self.decode(place, &frame)?;
                let is_first = place.offset == PAGE_BYTES;
                if is_first != matches!(record, Record::SnapshotBegin { .. }) {
                    return Err(self.broken(place, BrokenRule::OutOfPlace));
                }
                let shown = self.visitor.snapshot(place, &record);
                shown.map_err(|rule| self.broken(place, rule))?;
                used += frame.bytes;
            }
            buffer.copy_within(used..filled, 0);
            filled -= used;
            base += used as u64;
        }
        let what = if tally.records != end.records {
            "it has not as many records as its last one says"
        } else if tally.chain != end.chain {
            "the checksums of its records are not those that its last one sums up"
        } else {
            layout.records += tally.records;
            return Ok(());
        };
        Err(ReplayError::Snapshot {
            file: self.disk.dir().join(name),
            what,
        })
    }

    /// Reads the last record first: it says how much is to come.
    fn read_snapshot_end(
        &self,
        file: Name,
        handle: &dyn DiskFile,
        length: u64,
    ) -> Result<SnapshotEnd, ReplayError> {
        let name = file.to_string();
        let mut bytes = [0; SNAPSHOT_END_BYTES];
        let place = Place {
            file,
            offset: length.saturating_sub(bytes.len() as u64).max(PAGE_BYTES),
        };
        if place.offset + bytes.len() as u64 > length {
            return Err(self.not_complete(place, Flaw::CutOff));
        }
        let read = handle.read_at(&mut bytes, place.offset);
        read.blame("read", self.disk, &name)?;
        let frame = frame::read(&bytes, Position::new(place.offset));
        let frame = frame.map_err(|flaw| self.not_complete(place, flaw))?;
        match self.decode(place, &frame)? {
            Record::SnapshotEnd {
                records,
                log_end,
                chain,
            } => Ok(SnapshotEnd {
                records,
                log_end,
                chain,
            }),
            _ => Err(self.broken(place, BrokenRule::OutOfPlace)),
        }
    }

    fn decode<'f>(&self, place: Place, frame: &Frame<'f>) -> Result<Record<'f>, ReplayError> {
        Record::decode(frame.kind, frame.payload).map_err(|error| ReplayError::Record {
            file: self.path(place),
            offset: place.offset,
            error,
        })
    }

    fn broken(&self, place: Place, rule: BrokenRule) -> ReplayError {
        ReplayError::broken(self.disk.dir(), self.path(place), place.offset, rule)
    }

    fn not_complete(&self, place: Place, flaw: Flaw) -> ReplayError {
        ReplayError::Damaged {
            file: self.path(place),
            offset: place.offset,
            position: Position::new(place.offset),
            flaw,
            proof: Proof::Named,
        }
    }

    fn path(&self, place: Place) -> PathBuf {
        self.disk.dir().join(place.file.to_string())
    }
}

struct SnapshotEnd {
    records: u64,
    log_end: u64,
    chain: u32,
}

/// What a snapshot's last record says of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) records: u64,
    pub(crate) chain: u32,
}

impl Tally {
    fn count(&mut self, frame: &Frame<'_>) {
        self.add(frame.checksum);
    }

    pub(crate) fn add(&mut self, checksum: u32) {
        self.records += 1;
        self.chain = crc32c::crc32c_append(self.chain, &checksum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
