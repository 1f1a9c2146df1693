//! A starting server's view of its data directory: any bytes as snapshot and segment. Few mutations
//! get past checksums, so most inputs are a list of records, which are given their checksums here.
//!
//! ```text
//! 0  RAW     u32 length of the snapshot, the snapshot, the segment
//! 0  other   bit 1: there is a snapshot. u64 where the log begins, then records:
//!            u8 where (bit 0: the snapshot), u8 kind, u8 length of the payload, payload
//! ```

use wal::fuzzing::{Framed, Raw, read_log};

/// The first byte of an input that is taken as it is.
const RAW: u8 = 0;

/// See the module.
pub fn run(data: &[u8]) {
    let Some((&sort, data)) = data.split_first() else {
        return;
    };
    let files = match sort {
        RAW => raw(data),
        sort => framed(sort & 2 != 0, data),
    };
    if let Some(files) = files {
        read_log(files);
    }
}

fn raw(data: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let (length, data) = data.split_first_chunk()?;
    let length = u32::from_le_bytes(*length) as usize;
    let (snapshot, segment) = data.split_at(length.min(data.len()));
    Some(Raw::files(snapshot, segment))
}

fn framed(has_snapshot: bool, data: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let (begin, mut data) = data.split_first_chunk()?;
    // Positions are bytes since the log began; no disk has written a quarter of all there are.
    let begin = u64::from_le_bytes(*begin) >> 2;
    let mut files = Framed::new(begin, has_snapshot);
    while let [place, kind, length, rest @ ..] = data {
        let (payload, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        match place & 1 {
            0 => files.append(*kind, payload),
            _ => files.append_to_snapshot(*kind, payload),
        }
        data = rest;
    }
    Some(files.files())
}
