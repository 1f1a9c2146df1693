//! The envelope, byte by byte.

use super::*;

/// One record of kind 0x7f with the payload `abc`, 21 bytes behind the beginning of its write.
const PINNED: [u8; 24] = [
    0x36, 0x59, 0x4e, 0xff, // checksum
    24, 0, 0, 0, // length
    0x15, 0x10, 0, 0, 0, 0, 0, 0, // position 0x1015
    21, 0, 0, 0,    // back
    0x7f, // kind
    b'a', b'b', b'c',
];
fn two_records() -> Vec<u8> {
    let mut bytes = Vec::new();
    append(&mut bytes, 0x41, |_| {});
    append(&mut bytes, 0x7f, |out| out.extend_from_slice(b"abc"));
    bytes
}

#[test]
fn a_record_has_these_bytes() {
    let mut bytes = two_records();
    let placed = place(&mut bytes, Position::new(0x1000), usize::MAX);
    assert_eq!(placed, (45, 2));
    assert_eq!(bytes[21..], PINNED);
}

#[test]
fn a_record_is_read_back_where_it_was_put_and_nowhere_else() {
    let bytes = PINNED;
    let frame = read(&bytes, Position::new(0x1015)).unwrap();
    assert_eq!(frame.kind, 0x7f);
    assert_eq!(frame.payload, b"abc");
    assert_eq!(frame.bytes, 24);
    assert_eq!(frame.write_began, Position::new(0x1000));
    assert_eq!(read_anywhere(&bytes), Ok(frame));
    let position = Position::new(0x1015);
    assert_eq!(
        read(&bytes, Position::new(0x1016)),
        Err(Flaw::Position { position })
    );
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = PINNED;
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&flipped, Position::new(0x1015)).is_err(), "bit {bit}");
        assert!(read_anywhere(&flipped).is_err(), "bit {bit}");
    }
}

#[test]
fn every_cut_is_noticed() {
    let bytes = PINNED;
    for length in 0..bytes.len() {
        let cut = read(&bytes[..length], Position::new(0x1015));
        assert_eq!(cut, Err(Flaw::CutOff), "{length} bytes");
    }
}

#[test]
fn zeros_are_an_end() {
    assert_eq!(read(&[0; 64], Position::default()), Err(Flaw::End));
    assert_eq!(read(&END, Position::default()), Err(Flaw::End));
    assert_eq!(read(&[0; 7], Position::default()), Err(Flaw::CutOff));
}

#[test]
fn only_whole_records_are_placed() {
    let mut bytes = two_records();
    let begin = Position::new(7);
    assert_eq!(place(&mut bytes, begin, 20), (0, 0));
    assert_eq!(place(&mut bytes, begin, 44), (21, 1));
    assert_eq!(place(&mut bytes, begin, 45), (45, 2));
}

#[test]
fn a_record_is_found_behind_rubbish() {
    let mut bytes = vec![0xaa; 100];
    bytes.extend_from_slice(&PINNED);
    bytes.extend_from_slice(&[0xbb; 5]);
    let base = 0x1015 - 100;
    let (offset, frame) = find(&bytes, 3, base).unwrap();
    assert_eq!((offset, frame.kind), (100, 0x7f));
    assert!(find(&bytes, 101, base).is_none());
    assert!(find(&bytes, 3, base + 1).is_none());
    assert!(find(&bytes[..20], 3, base).is_none());
    assert!(find(&bytes[..2], 3, base).is_none());
}
