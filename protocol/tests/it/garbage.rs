//! No bytes make a decoder panic or allocate.

use crate::allocations::counted;
use crate::messages::parts;
use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use protocol::limits::FRAME_BYTES_MAX;
use protocol::{Frame, Push, Records, Reply, Request, RequestId};

/// Decodes everything in `bytes` as everything it could be, down to the last record. Returns how
/// much was decoded.
fn decode_all(bytes: &[u8]) -> usize {
    let mut decoded = 0;
    let mut unread = bytes;
    while let Ok(Some(frame)) = Frame::split(&mut unread, FRAME_BYTES_MAX) {
        decoded += usize::from(Request::decode(&frame).is_ok());
        decoded += usize::from(Push::decode(&frame).is_ok());
        decoded += Reply::decode(&frame).map_or(0, |reply| 1 + record_count(&reply));
    }
    decoded
}

fn record_count(reply: &Reply<'_>) -> usize {
    fn read<'a, T: protocol::Record<'a>>(records: &Records<'a, T>) -> usize {
        let count = records.iter().count();
        assert_eq!(count, records.len());
        count
    }
    match reply {
        Reply::QueryResult { holders, .. } => read(holders),
        Reply::ListPage { entries, .. } => read(entries),
        Reply::SessionsPage { entries, .. } => read(entries),
        Reply::Stats { entries } => read(entries),
        _ => 0,
    }
}

fn assert_harmless(bytes: &[u8]) {
    let (_, allocation_count) = counted(|| decode_all(bytes));
    assert_eq!(allocation_count, 0, "decoding {bytes:02x?} allocated");
}

proptest! {
    #![proptest_config(crate::config())]

    #[test]
    fn arbitrary_bytes_are_harmless(bytes in vec(any::<u8>(), 0..300)) {
        assert_harmless(&bytes);
    }

    /// Arbitrary bodies behind a sound header get past the framing, for each kind there can be.
    #[test]
    fn arbitrary_bodies_are_harmless(flags: u8, body in vec(any::<u8>(), 0..120), zeros: bool) {
        for kind in 0..=u8::MAX {
            let mut bytes = (10 + body.len() as u32).to_le_bytes().to_vec();
            bytes.extend([kind, flags, 1, 0, 0, 0, 0, 0, 0, 0]);
            // Mostly zeros: lengths and counts then are plausible, and more of the decoder is
            // reached.
            bytes.extend(body.iter().map(|&byte| if zeros && byte > 20 { 0 } else { byte }));
            assert_harmless(&bytes);
        }
    }

    #[test]
    fn damaged_messages_are_harmless(
        parts in parts(),
        damage in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let lists = parts.lists();
        let mut messages = Vec::new();
        for request in parts.requests() {
            messages.push(BytesMut::new());
            request.append(parts.request_id(), messages.last_mut().unwrap());
        }
        for reply in parts.replies(&lists) {
            messages.push(BytesMut::new());
            reply.append(parts.request_id(), messages.last_mut().unwrap());
        }
        for push in parts.pushes() {
            messages.push(BytesMut::new());
            push.append(messages.last_mut().unwrap());
        }
        for mut bytes in messages {
            for (index, byte) in &damage {
                let at = index.index(bytes.len());
                bytes[at] = *byte;
            }
            assert_harmless(&bytes);
        }
    }
}

#[test]
fn sound_messages_are_decoded_without_allocating() {
    let stats = [protocol::StatEntry {
        name: protocol::StatName::new("grants_total").unwrap(),
        value: 1,
    }; 3];
    let mut out = BytesMut::new();
    let entries = Records::new(&stats).unwrap();
    Reply::Stats { entries }.append(RequestId::new(1), &mut out);
    // Once as a reply with its three records; requests and pushes see an unknown kind, which is a
    // value too.
    assert_eq!(counted(|| decode_all(&out)), (6, 0));
}
