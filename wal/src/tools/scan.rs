//! Whole records, wherever they stand: what can still be read of a damaged log.

use crate::error::{Blame, IoFailure};
use crate::files::segment::{Header, Name, PAGE_BYTES, Sort};
use crate::record::Record;
use crate::record::frame::{self, Frame};
use crate::replay::Place;
use disk::Disk;

/// Shows every whole record in every file, damaged or not, spares included: the ceilings that a
/// lost snapshot had may stand in what it replaced. Reads a file at a time.
pub(crate) fn scan(
    disk: &dyn Disk,
    visit: &mut dyn FnMut(Place, &Frame<'_>, &Record<'_>),
) -> Result<(), IoFailure> {
    let names = disk.list().blame("list", disk, "")?;
    let mut names: Vec<Name> = names.iter().filter_map(|name| Name::parse(name)).collect();
    names.sort();
    for file in names {
        let name = file.to_string();
        let handle = disk.open_read(&name).blame("open", disk, &name)?;
        let length = handle.bytes().blame("read", disk, &name)?;
        let mut bytes = vec![0; length as usize];
        handle.read_at(&mut bytes, 0).blame("read", disk, &name)?;
        let header = Header::read(disk, &name, &*handle, Sort::Segment);
        let base = match (file, header) {
            // In a snapshot a record's position is its place in the file.
            (Name::Snapshot(_) | Name::Unfinished, _) => 0,
            (_, Ok(header)) => header.begin.get().wrapping_sub(PAGE_BYTES),
            (_, Err(_)) => match base_by_records(&bytes) {
                Some(base) => base,
                None => continue,
            },
        };
        let mut from = (PAGE_BYTES as usize).min(bytes.len());
        while let Some((offset, frame)) = frame::find(&bytes, from, base) {
            if let Ok(record) = Record::decode(frame.kind, frame.payload) {
                let place = Place {
                    file,
                    offset: offset as u64,
                };
                visit(place, &frame, &record);
            }
            from = offset + frame.bytes;
        }
    }
    Ok(())
}

/// The position of offset 0, by the first whole record there is: for a segment whose first page is
/// damaged.
fn base_by_records(bytes: &[u8]) -> Option<u64> {
    (PAGE_BYTES as usize..bytes.len()).find_map(|offset| {
        let frame = frame::read_anywhere(&bytes[offset..]).ok()?;
        Some(frame.position.get().wrapping_sub(offset as u64))
    })
}
