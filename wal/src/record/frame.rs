//! The envelope of a record: how bytes in a file prove that they are a record, that they are whole,
//! and that they are the ones that belong here.
//!
//! ```text
//! 0  checksum  u32  CRC32C of everything that follows, to the end of the payload
//! 4  length    u32  bytes of the record, this header included
//! 8  position  u64  where in the log the record stands, counted in bytes since the log began
//! 16 back      u32  how far before it the write began that it came with
//! 20 kind      u8
//! 21 payload
//! ```
//!
//! The position makes stale bytes harmless: a segment that is used a second time is full of whole
//! records, but of positions long past. `back` tells a write that a crash cut short from damage: a
//! write begins only when everything before it has been synced, so a record that is whole proves
//! that everything before the beginning of its write once was on the disk.
//!
//! Behind the last record of a write stand eight zero bytes, where the next record's checksum and
//! length will be.

use std::fmt;

/// A place in the log, in bytes since it began. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Position(u64);

impl Position {
    /// The place `bytes` after the beginning.
    pub const fn new(bytes: u64) -> Self {
        Position(bytes)
    }

    /// Bytes since the log began.
    pub const fn get(self) -> u64 {
        self.0
    }

    pub(crate) fn plus(self, bytes: u64) -> Self {
        let sum = self.0.checked_add(bytes);
        Position(sum.expect("2^64 bytes are more than any disk can take"))
    }

    /// How far this is behind `earlier`.
    pub(crate) fn since(self, earlier: Position) -> u64 {
        assert!(
            earlier <= self,
            "position {earlier} comes after position {self}"
        );
        self.0 - earlier.0
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const CHECKSUM_AT: usize = 0;
const LENGTH_AT: usize = CHECKSUM_AT + 4;
const POSITION_AT: usize = LENGTH_AT + 4;
const BACK_AT: usize = POSITION_AT + 8;
const KIND_AT: usize = BACK_AT + 4;

/// Bytes of a record without payload.
pub(crate) const HEADER_BYTES: usize = KIND_AT + 1;

/// Bytes of the longest record. `record.rs` asserts that the longest payload fits.
pub const RECORD_BYTES_MAX: usize = 2048;

/// What follows the last record of a write: no record has this checksum and this length.
pub(crate) const END: [u8; POSITION_AT] = [0; POSITION_AT];

/// A record that is whole and in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) position: Position,
    /// Everything before this was synced before any byte of this record was written.
    pub(crate) write_began: Position,
    pub(crate) kind: u8,
    pub(crate) payload: &'a [u8],
    /// Bytes of the whole record.
    pub(crate) bytes: usize,
    pub(crate) checksum: u32,
}

/// Why bytes are not the record that was looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Eight zero bytes: nothing was written here yet.
    End,
    /// The file ends before the record does.
    CutOff,
    /// No record has this length.
    Length {
        /// What the length field says.
        length: u32,
    },
    /// It is another place's record.
    Position {
        /// What the position field says.
        position: Position,
    },
    /// Its bytes are not what was written.
    Checksum,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::End => write!(f, "there are only zeros"),
            Flaw::CutOff => write!(f, "the file ends before the record does"),
            Flaw::Length { length } => write!(f, "no record is {length} bytes long"),
            Flaw::Position { position } => {
                write!(f, "the bytes there name the position {position}")
            }
            Flaw::Checksum => write!(f, "its checksum does not match its bytes"),
        }
    }
}

/// Appends a record without its place. `payload` writes the payload.
pub(crate) fn append(out: &mut Vec<u8>, kind: u8, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    payload(out);
    let length = out.len() - start;
    assert!(
        length <= RECORD_BYTES_MAX,
        "a record of {length} bytes is longer than {RECORD_BYTES_MAX}"
    );
    out[start + LENGTH_AT..start + POSITION_AT].copy_from_slice(&(length as u32).to_le_bytes());
    out[start + KIND_AT] = kind;
}

/// The length of the record at the beginning of `bytes`, which [`append`] wrote.
fn appended_length(bytes: &[u8]) -> usize {
    u32_at(bytes, LENGTH_AT) as usize
}

/// The kind and payload of the record at the beginning of `bytes`, which [`append`] wrote and which
/// has no place yet; and the bytes behind it.
pub(crate) fn split_appended(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    if bytes.len() < HEADER_BYTES {
        return None;
    }
    let length = appended_length(bytes);
    if !(HEADER_BYTES..=RECORD_BYTES_MAX).contains(&length) {
        return None;
    }
    let (record, rest) = bytes.split_at_checked(length)?;
    Some((record[KIND_AT], &record[HEADER_BYTES..], rest))
}

/// Gives as many records of `records` as fit into `room` bytes their places, the first at `begin`.
/// The bytes used, and how many records they are.
pub(crate) fn place(records: &mut [u8], begin: Position, room: usize) -> (usize, u64) {
    let mut used = 0;
    let mut count = 0;
    while used < records.len() {
        let length = appended_length(&records[used..]);
        if used + length > room {
            break;
        }
        stamp(
            &mut records[used..used + length],
            begin.plus(used as u64),
            used,
        );
        used += length;
        count += 1;
    }
    (used, count)
}

/// Gives one record its place, `back` bytes behind the beginning of its write. The checksum.
pub(crate) fn stamp(record: &mut [u8], position: Position, back: usize) -> u32 {
    let back = u32::try_from(back).expect("a write is far shorter than 4 GiB");
    record[POSITION_AT..BACK_AT].copy_from_slice(&position.get().to_le_bytes());
    record[BACK_AT..KIND_AT].copy_from_slice(&back.to_le_bytes());
    let checksum = crc32c::crc32c(&record[LENGTH_AT..]);
    record[CHECKSUM_AT..LENGTH_AT].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// The record at the beginning of `bytes`, if it is whole and belongs at `position`.
#[inline]
pub(crate) fn read(bytes: &[u8], position: Position) -> Result<Frame<'_>, Flaw> {
    if bytes.starts_with(&END) {
        return Err(Flaw::End);
    }
    if bytes.len() < HEADER_BYTES {
        return Err(Flaw::CutOff);
    }
    let length = u32_at(bytes, LENGTH_AT);
    if !(HEADER_BYTES..=RECORD_BYTES_MAX).contains(&(length as usize)) {
        return Err(Flaw::Length { length });
    }
    let named = Position(u64_at(bytes, POSITION_AT));
    if named != position {
        return Err(Flaw::Position { position: named });
    }
    whole(bytes)
}

/// The record at the beginning of `bytes`, wherever it belongs.
pub(crate) fn read_anywhere(bytes: &[u8]) -> Result<Frame<'_>, Flaw> {
    if bytes.len() < HEADER_BYTES {
        return Err(Flaw::CutOff);
    }
    whole(bytes)
}

#[inline(always)]
fn whole(bytes: &[u8]) -> Result<Frame<'_>, Flaw> {
    let length = u32_at(bytes, LENGTH_AT);
    if !(HEADER_BYTES..=RECORD_BYTES_MAX).contains(&(length as usize)) {
        return Err(Flaw::Length { length });
    }
    let Some(record) = bytes.get(..length as usize) else {
        return Err(Flaw::CutOff);
    };
    let checksum = u32_at(record, CHECKSUM_AT);
    if crc32c::crc32c(&record[LENGTH_AT..]) != checksum {
        return Err(Flaw::Checksum);
    }
    let position = u64_at(record, POSITION_AT);
    let back = u64::from(u32_at(record, BACK_AT));
    // A checksum that matches says that we wrote it, and we write no such thing.
    let Some(write_began) = position.checked_sub(back) else {
        return Err(Flaw::Checksum);
    };
    Ok(Frame {
        position: Position(position),
        write_began: Position(write_began),
        kind: record[KIND_AT],
        payload: &record[HEADER_BYTES..],
        bytes: record.len(),
        checksum,
    })
}

/// The first whole record in `bytes[from..]` that stands where it belongs, and its offset. `base`
/// is the position of offset 0; it wraps, since the header before the first record has no position.
pub(crate) fn find(bytes: &[u8], from: usize, base: u64) -> Option<(usize, Frame<'_>)> {
    let last = bytes.len().checked_sub(HEADER_BYTES)?;
    (from..=last).find_map(|offset| {
        let position = base.wrapping_add(offset as u64);
        // Cheap for all the offsets where no record begins: eight bytes are compared.
        if u64_at(bytes, offset + POSITION_AT) != position {
            return None;
        }
        let frame = read(&bytes[offset..], Position(position)).ok()?;
        Some((offset, frame))
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests;
