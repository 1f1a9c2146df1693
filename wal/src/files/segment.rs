//! The files of a log: their names, the page they begin with, and the segments that records are
//! appended to.
//!
//! ```text
//! 0   magic     8 bytes
//! 8   checksum  u32  CRC32C of the magic and of bytes 12 to 40
//! 12  version   u32
//! 16  sequence  u64  of a segment; 0 in a snapshot
//! 24  begin     u64  position of a segment's first record; where replay begins after a snapshot
//! 32  bytes     u64  length of a segment's file; 0 in a snapshot
//! 40  zeros to the end of the page
//! ```
//!
//! The page is never written again while the file is used, so no append can tear it.
//!
//! Segments have a fixed size and are zeros from end to end before their first record is written:
//! an append changes no metadata, so a sync is one write to the disk, and a full disk is met before
//! a record depends on it. A segment that a snapshot has made unnecessary becomes a **spare**:
//! renamed, and used again as it is. A segment gets its name only when its first page is synced,
//! and a new one is begun only when everything in the one before is.

use crate::error::{Blame, IoFailure, ReplayError};
use crate::record::CONTINUED_BYTES;
use crate::record::frame::{END, Position, RECORD_BYTES_MAX};
use disk::{Disk, DiskFile};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The version of everything in the directory. What changed with each is in `docs/wal.md`.
pub const VERSION: u32 = 1;

/// Bytes of a segment, unless configured otherwise: some hundred thousand records, and written with
/// zeros in a moment.
pub const SEGMENT_BYTES: u64 = 16 << 20;

/// Bytes of the first page of a file.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Bytes that a segment keeps free at its end for the record that leads on to the next.
pub(crate) const TAIL_BYTES: u64 = (CONTINUED_BYTES + END.len()) as u64;

/// The smallest segment.
pub(crate) const SEGMENT_BYTES_MIN: u64 = PAGE_BYTES + RECORD_BYTES_MAX as u64 + TAIL_BYTES;

const HEADER_BYTES: usize = 40;
pub(crate) const SEQUENCE_AT: u64 = 16;
pub(crate) const BEGIN_AT: u64 = 24;
const CHECKSUM_AT: usize = 8;
const VERSION_AT: usize = 12;

/// What a file is, by its name. Names of one sort are ordered as what they name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Name {
    /// By the position where it begins.
    Snapshot(u64),
    /// By its sequence number.
    Segment(u64),
    /// By a number of no meaning.
    Spare(u64),
    /// Begun and not finished: worth nothing.
    Unfinished,
}

/// What a snapshot is called until it is complete.
pub(crate) const UNFINISHED: &str = "unfinished.wal";

impl Name {
    /// `None` for files that are none of ours.
    pub(crate) fn parse(name: &str) -> Option<Name> {
        if name == UNFINISHED {
            return Some(Name::Unfinished);
        }
        let (sort, digits) = name.strip_suffix(".wal")?.split_once('-')?;
        let number = u64::from_str_radix(digits, 16).ok()?;
        let parsed = match sort {
            "snapshot" => Name::Snapshot(number),
            "segment" => Name::Segment(number),
            "spare" => Name::Spare(number),
            _ => return None,
        };
        // Each file has one name only: no capitals, no missing zeros.
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Snapshot(position) => write!(f, "snapshot-{position:016x}.wal"),
            Name::Segment(sequence) => write!(f, "segment-{sequence:016x}.wal"),
            Name::Spare(number) => write!(f, "spare-{number:016x}.wal"),
            Name::Unfinished => f.write_str(UNFINISHED),
        }
    }
}

/// The two sorts of files that have a first page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    Segment,
    Snapshot,
}

impl Sort {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Sort::Segment => b"fencelog",
            Sort::Snapshot => b"fencesnp",
        }
    }
}

/// The first page of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) sort: Sort,
    pub(crate) sequence: u64,
    pub(crate) begin: Position,
    pub(crate) bytes: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE_BYTES as usize);
        page.extend_from_slice(self.sort.magic());
        page.extend_from_slice(&[0; 4]);
        page.extend_from_slice(&VERSION.to_le_bytes());
        page.extend_from_slice(&self.sequence.to_le_bytes());
        page.extend_from_slice(&self.begin.get().to_le_bytes());
        page.extend_from_slice(&self.bytes.to_le_bytes());
        assert_eq!(page.len(), HEADER_BYTES);
        let checksum = header_checksum(&page);
        page[CHECKSUM_AT..VERSION_AT].copy_from_slice(&checksum.to_le_bytes());
        page.resize(PAGE_BYTES as usize, 0);
        page
    }

    /// Reads and checks the first page of a file.
    pub(crate) fn read(
        disk: &dyn Disk,
        name: &str,
        file: &dyn DiskFile,
        sort: Sort,
    ) -> Result<Header, ReplayError> {
        let path = || disk.dir().join(name);
        let damaged = |offset: usize, expected| ReplayError::Header {
            file: path(),
            offset: offset as u64,
            expected,
        };
        let length = file.bytes().blame("read", disk, name)?;
        if length < PAGE_BYTES {
            return Err(damaged(length as usize, "the rest of its 4096 bytes"));
        }
        let mut page = [0; PAGE_BYTES as usize];
        file.read_at(&mut page, 0).blame("read", disk, name)?;
        let (page, rest) = page.split_at(HEADER_BYTES);
        if !page.starts_with(sort.magic()) {
            return Err(damaged(0, "the eight bytes that say what it is"));
        }
        let mut numbers = page[CHECKSUM_AT..].chunks_exact(4);
        let mut u32_next = || {
            let chunk = numbers.next().expect("forty bytes were read");
            u32::from_le_bytes(chunk.try_into().expect("four bytes"))
        };
        let checksum = u32_next();
        let version = u32_next();
        let mut u64_next = || u64::from(u32_next()) | u64::from(u32_next()) << 32;
        let header = Header {
            sort,
            sequence: u64_next(),
            begin: Position::new(u64_next()),
            bytes: u64_next(),
        };
        // The checksum comes first: a version may only be believed if it was written.
        if header_checksum(page) != checksum {
            return Err(damaged(CHECKSUM_AT, "the checksum of its header"));
        }
        if version != VERSION {
            return Err(ReplayError::NewerVersion {
                file: path(),
                version,
            });
        }
        // Not covered by the checksum, and never written with anything else.
        if let Some(flipped) = rest.iter().position(|&byte| byte != 0) {
            return Err(damaged(HEADER_BYTES + flipped, "a zero"));
        }
        Ok(header)
    }
}

fn header_checksum(page: &[u8]) -> u32 {
    let magic = crc32c::crc32c(&page[..CHECKSUM_AT]);
    crc32c::crc32c_append(magic, &page[VERSION_AT..HEADER_BYTES])
}

/// A segment that records are appended to.
pub(crate) struct Segment {
    pub(crate) file: Box<dyn DiskFile>,
    pub(crate) sequence: u64,
    pub(crate) begin: Position,
    pub(crate) bytes: u64,
}

impl Segment {
    pub(crate) fn name(&self) -> String {
        Name::Segment(self.sequence).to_string()
    }

    /// Where in the file a position is.
    pub(crate) fn offset(&self, position: Position) -> u64 {
        PAGE_BYTES + position.since(self.begin)
    }

    /// How many bytes of records fit in from `end` on.
    pub(crate) fn room(&self, end: Position) -> usize {
        let used = self.offset(end) + TAIL_BYTES;
        self.bytes.saturating_sub(used) as usize
    }
}

/// A segment that is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Closed {
    pub(crate) sequence: u64,
    /// Where the next one begins.
    pub(crate) end: Position,
    /// The length of its file, which may have been made with another setting.
    pub(crate) bytes: u64,
}

/// The segments that are not being written: those that are full, and the spares. Filled and emptied
/// by the writer, emptied by snapshots; neither holds a mutex while it waits for the disk.
pub(crate) struct Shelf {
    segment_bytes: u64,
    spares_max: usize,
    closed: Mutex<Vec<Closed>>,
    spares: Mutex<Vec<Name>>,
    /// The number of the next spare.
    spare_next: AtomicU64,
}

impl Shelf {
    pub(crate) fn new(segment_bytes: u64, spares_max: usize) -> Self {
        assert!(
            segment_bytes >= SEGMENT_BYTES_MIN,
            "a segment of {segment_bytes} bytes is too small for the longest record"
        );
        Shelf {
            segment_bytes,
            spares_max,
            closed: Mutex::default(),
            spares: Mutex::default(),
            spare_next: AtomicU64::new(0),
        }
    }

    /// How many segments are full and still needed.
    pub(crate) fn closed_count(&self) -> usize {
        self.closed.lock().len()
    }

    /// How many segments wait to be used again.
    pub(crate) fn spare_count(&self) -> usize {
        self.spares.lock().len()
    }

    /// Writes down a segment that is full.
    pub(crate) fn close(&self, segment: Closed) {
        self.closed.lock().push(segment);
    }

    /// Takes over a spare that was there before. Not if it is of another size or one too many, and
    /// not if it never was a segment: the sync after its making may have failed, and then only a
    /// cache shows its zeros.
    pub(crate) fn adopt(&self, disk: &dyn Disk, spare: Name) -> Result<(), IoFailure> {
        let Name::Spare(number) = spare else {
            unreachable!("{spare} is no spare");
        };
        self.number_spares_from(number + 1);
        let name = spare.to_string();
        let file = disk.open_read(&name).blame("open", disk, &name)?;
        let bytes = file.bytes().blame("read", disk, &name)?;
        let was_segment = Header::read(disk, &name, &*file, Sort::Segment).is_ok();
        let has_room = self.spare_count() < self.spares_max;
        if was_segment && has_room && bytes == self.segment_bytes {
            self.spares.lock().push(spare);
            return Ok(());
        }
        disk.remove(&name).blame("remove", disk, &name)
    }

    /// Leaves the numbers below to spares that exist.
    pub(crate) fn number_spares_from(&self, number: u64) {
        self.spare_next.fetch_max(number, Ordering::Relaxed);
    }

    /// Makes a spare if there is none, so that the writer need not. Returns whether it did.
    pub(crate) fn restock(&self, disk: &dyn Disk) -> Result<bool, IoFailure> {
        if self.spares_max == 0 || self.spare_count() > 0 {
            return Ok(false);
        }
        let spare = self.make_spare(disk)?;
        // The writer may have made one for itself meanwhile; one too many is no harm.
        self.spares.lock().push(spare);
        Ok(true)
    }

    fn make_spare(&self, disk: &dyn Disk) -> Result<Name, IoFailure> {
        let spare = self.next_spare();
        let name = spare.to_string();
        let made = disk.create(&name, self.segment_bytes);
        let made = made.blame("create", disk, &name).and_then(|file| {
            file.sync_data().blame("sync", disk, &name)?;
            Ok(spare)
        });
        if made.is_err() {
            // Half a spare is of no use and may have taken the last room. If it cannot be removed
            // now, the next start does it.
            let _ = disk.remove(&name);
        }
        made
    }

    fn next_spare(&self) -> Name {
        // Relaxed: only that no number comes twice matters.
        Name::Spare(self.spare_next.fetch_add(1, Ordering::Relaxed))
    }

    /// A segment with nothing in it, under its name and with its first page on the disk.
    pub(crate) fn begin_segment(
        &self,
        disk: &dyn Disk,
        sequence: u64,
        begin: Position,
    ) -> Result<Segment, IoFailure> {
        let spare = self.spares.lock().pop();
        let spare = match spare {
            Some(spare) => spare,
            None => self.make_spare(disk)?,
        };
        let spare = spare.to_string();
        let file = disk.open_write(&spare).blame("open", disk, &spare)?;
        let header = Header {
            sort: Sort::Segment,
            sequence,
            begin,
            bytes: self.segment_bytes,
        };
        // What is behind the first page may be anything: it says so itself that it belongs
        // elsewhere. But where the first record will be, there should be nothing.
        let mut page = header.encode();
        page.extend_from_slice(&END);
        file.write_at(&page, 0).blame("write", disk, &spare)?;
        file.sync_data().blame("sync", disk, &spare)?;
        let segment = Segment {
            file,
            sequence,
            begin,
            bytes: self.segment_bytes,
        };
        let name = segment.name();
        disk.rename(&spare, &name).blame("rename", disk, &spare)?;
        disk.sync_dir().blame("sync", disk, "")?;
        Ok(segment)
    }

    /// Makes spares of all full segments that end at or before `begin`, where a snapshot on the
    /// disk begins.
    pub(crate) fn retire(&self, disk: &dyn Disk, begin: Position) -> Result<(), IoFailure> {
        let retired: Vec<Closed> = {
            let mut closed = self.closed.lock();
            closed
                .extract_if(.., |segment| segment.end <= begin)
                .collect()
        };
        if retired.is_empty() {
            return Ok(());
        }
        let mut room = self.spares_max.saturating_sub(self.spare_count());
        let mut spares = Vec::new();
        for segment in retired {
            let name = Name::Segment(segment.sequence).to_string();
            if room == 0 || segment.bytes != self.segment_bytes {
                disk.remove(&name).blame("remove", disk, &name)?;
                continue;
            }
            room -= 1;
            let spare = self.next_spare();
            let renamed = disk.rename(&name, &spare.to_string());
            renamed.blame("rename", disk, &name)?;
            spares.push(spare);
        }
        // No sync: if the old names come back after a crash, they are obsolete and are removed, and
        // a segment that uses one of the files again syncs its new name.
        self.spares.lock().extend(spares);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
