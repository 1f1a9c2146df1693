//! Names, first pages and spares.

use super::*;
use disk::forgetful::ForgetfulDisk;

#[test]
fn names_are_read_back_and_nothing_else_is() {
    for name in [
        Name::Snapshot(0x1234),
        Name::Segment(1),
        Name::Spare(u64::MAX),
        Name::Unfinished,
    ] {
        assert_eq!(Name::parse(&name.to_string()), Some(name));
    }
    for name in [
        "segment-1.wal",
        "segment-00000000000000AB.wal",
        "segment-0000000000000001.wal.bak",
        "segment-+000000000000001.wal",
        "damaged-5-segment-0000000000000001.wal",
        "other-0000000000000001.wal",
        "",
    ] {
        assert_eq!(Name::parse(name), None, "{name}");
    }
    assert!(Name::Segment(0xff).to_string() < Name::Segment(0x100).to_string());
}

#[test]
fn a_first_page_has_these_bytes() {
    let header = Header {
        sort: Sort::Segment,
        sequence: 0x0102,
        begin: Position::new(0x0304_0506),
        bytes: 0x0100_0000,
    };
    let page = header.encode();
    let pinned = [
        b'f', b'e', b'n', b'c', b'e', b'l', b'o', b'g', // magic
        0x90, 0xba, 0xee, 0xed, // checksum
        1, 0, 0, 0, // version
        2, 1, 0, 0, 0, 0, 0, 0, // sequence
        6, 5, 4, 3, 0, 0, 0, 0, // begin
        0, 0, 0, 1, 0, 0, 0, 0, // bytes
    ];
    assert_eq!(page[..HEADER_BYTES], pinned);
    assert_eq!(page.len() as u64, PAGE_BYTES);
    assert!(page[HEADER_BYTES..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_segment_is_used_again_as_it_is() {
    let disk = ForgetfulDisk::new();
    let shelf = Shelf::new(SEGMENT_BYTES_MIN, 1);
    let first = shelf.begin_segment(&disk, 1, Position::new(0)).unwrap();
    first.file.write_at(b"stale", 5000).unwrap();
    let second = shelf.begin_segment(&disk, 2, Position::new(900)).unwrap();
    for (segment, end) in [(first, 900), (second, 1800)] {
        shelf.close(Closed {
            sequence: segment.sequence,
            end: Position::new(end),
            bytes: segment.bytes,
        });
    }
    shelf.retire(&disk, Position::new(899)).unwrap();
    assert_eq!((shelf.closed_count(), shelf.spare_count()), (2, 0));
    shelf.retire(&disk, Position::new(900)).unwrap();
    assert_eq!((shelf.closed_count(), shelf.spare_count()), (1, 1));
    // There is one spare, and that is as many as it may have.
    shelf.retire(&disk, Position::new(1800)).unwrap();
    assert_eq!((shelf.closed_count(), shelf.spare_count()), (0, 1));
    assert_eq!(disk.names().len(), 1);
    let third = shelf.begin_segment(&disk, 3, Position::new(1800)).unwrap();
    assert_eq!(disk.names(), [third.name()]);
    assert_eq!(disk.read(&third.name())[5000..5005], *b"stale");
}

#[test]
fn spares_are_made_ahead_and_only_those_that_were_segments_are_kept() {
    let disk = ForgetfulDisk::new();
    let shelf = Shelf::new(SEGMENT_BYTES_MIN, 4);
    assert!(shelf.restock(&disk).unwrap());
    assert!(!shelf.restock(&disk).unwrap());
    let never_used = Name::parse(&disk.names()[0]).unwrap();
    let used = shelf.begin_segment(&disk, 1, Position::new(0)).unwrap();
    shelf.close(Closed {
        sequence: 1,
        end: Position::new(5),
        bytes: used.bytes,
    });
    shelf.restock(&disk).unwrap();
    shelf.retire(&disk, Position::new(5)).unwrap();
    assert_eq!(shelf.spare_count(), 2);

    for (bytes, kept) in [(SEGMENT_BYTES_MIN, 1), (SEGMENT_BYTES_MIN + 1, 0)] {
        let next = Shelf::new(bytes, 4);
        for name in disk.names() {
            next.adopt(&disk, Name::parse(&name).unwrap()).unwrap();
        }
        assert_eq!(next.spare_count(), kept);
        assert_eq!(disk.names().len(), kept);
        assert_ne!(next.next_spare(), never_used);
    }
}
