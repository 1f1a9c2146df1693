//! Every message as bytes, pinned here and in the document; and bytes of all kinds as messages.

use crate::codec::DecodeError;
use crate::peer::outbox::{Outbox, pieces};
use crate::peer::wire::*;
use crate::types::{
    Command, Entry, LeaderId, LogId, Member, Membership, Payload, SnapshotMeta, StoredMembership,
    Types, Vote,
};
use bytes::Bytes;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, TransferLeaderError, TransferLeaderRequest,
    VoteRequest, VoteResponse,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn vote(term: u64, node: u64) -> Vote {
    Vote {
        leader_id: leader(term, node),
        committed: true,
    }
}

fn leader(term: u64, node: u64) -> LeaderId {
    LeaderId {
        term,
        node_id: node,
    }
}

pub(super) fn log_id(term: u64, node: u64, index: u64) -> LogId {
    LogId::new(leader(term, node), index)
}

pub(super) fn entry(log_id: LogId, bytes: impl Into<Bytes>) -> Entry {
    Entry {
        log_id,
        payload: Payload::Normal(Command(bytes.into())),
    }
}

fn append() -> AppendEntriesRequest<Types> {
    AppendEntriesRequest {
        vote: vote(3, 1),
        prev_log_id: Some(log_id(2, 2, 8)),
        entries: vec![
            Entry {
                log_id: log_id(3, 1, 9),
                payload: Payload::Blank,
            },
            entry(log_id(3, 1, 10), &b"batch"[..]),
        ],
        leader_commit: Some(log_id(2, 2, 7)),
    }
}

fn membership() -> Membership {
    let member = |node: u64| Member {
        peer: format!("n{node}:7500"),
        ..Member::default()
    };
    let nodes: BTreeMap<u64, Member> = (1..=2).map(|node| (node, member(node))).collect();
    Membership::new(vec![BTreeSet::from([1, 2])], nodes).unwrap()
}

/// All messages, with the id that they are pinned with.
pub(super) fn messages() -> Vec<(u64, Message)> {
    let mut transfer_vote: VoteRequest<Types> =
        VoteRequest::new(vote(4, 2), Some(log_id(3, 1, 10)));
    transfer_vote.leadership_transfer = true;
    transfer_vote.vote.committed = false;
    let head = SnapshotHead {
        vote: vote(3, 1),
        meta: SnapshotMeta {
            last_log_id: Some(log_id(3, 1, 10)),
            last_membership: StoredMembership::new(Some(log_id(1, 1, 0)), membership()),
        },
        parts: 2,
        bytes: 0x0010_0007,
    };
    let transfer = TransferLeaderRequest::new(vote(3, 1), 2, Some(log_id(3, 1, 10)));
    let messages = [
        Message::Append(6, append()),
        Message::Vote(transfer_vote),
        Message::PreVote(VoteRequest::new(vote(1, 2), None)),
        Message::Transfer(transfer),
        Message::SnapshotBegin(head),
        Message::SnapshotPart(Bytes::from_static(b"part")),
        Message::Question(Bytes::from_static(b"why?")),
        Message::Appended(Ok(Some(log_id(3, 1, 10)))),
        Message::Appended(Err(StreamAppendError::Conflict(log_id(2, 2, 8)))),
        Message::Appended(Err(StreamAppendError::HigherVote(vote(5, 3)))),
        Message::Voted(VoteResponse::new(vote(4, 2), Some(log_id(3, 1, 10)), true)),
        Message::Transferred(Ok(())),
        Message::Transferred(Err(TransferLeaderError::VoteChanged {
            expected: vote(3, 1),
            actual: vote(4, 2),
        })),
        Message::Transferred(Err(TransferLeaderError::LogNotFlushed {
            expected: Some(log_id(3, 1, 10)),
            actual: None,
        })),
        Message::Installed(vote(3, 1)),
        Message::Installing,
        Message::Answer(Bytes::from_static(b"because")),
    ];
    (1..).zip(messages).collect()
}

fn encoded(id: u64, message: &Message) -> Vec<u8> {
    let mut outbox = Outbox::default();
    outbox.message(id, message);
    let slices = outbox.slices();
    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
    drop(slices);
    assert_eq!(bytes.len(), outbox.bytes());
    outbox.advance(bytes.len());
    assert!(outbox.is_empty());
    bytes
}

fn decoded(frame: &[u8]) -> Result<Frame, FrameError> {
    let (length, frame) = frame.split_first_chunk().unwrap();
    assert_eq!(u32::from_le_bytes(*length) as usize, frame.len());
    Frame::decode(Bytes::copy_from_slice(frame))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn messages_have_the_bytes_of_the_document() {
    let document = include_str!("../../../../docs/cluster-wire.md");
    for (id, message) in messages() {
        let vector = hex(&encoded(id, &message));
        assert!(
            document.contains(&format!("`{vector}`")),
            "not in the document: {message:?}\n{vector}"
        );
    }
}

#[test]
fn messages_come_back_as_they_were() {
    for (id, message) in messages() {
        let bytes = encoded(id, &message);
        let frame = decoded(&bytes).unwrap();
        assert_eq!(frame.id, id);
        assert_eq!(format!("{:?}", frame.message), format!("{message:?}"));
        assert_eq!(hex(&encoded(frame.id, &frame.message)), hex(&bytes));
    }
}

#[test]
fn cut_off_and_prolonged_messages_are_refused() {
    for (id, message) in messages() {
        let whole = Bytes::from(encoded(id, &message)).slice(LENGTH_BYTES..);
        let is_open_ended = matches!(
            message,
            Message::SnapshotPart(_) | Message::Question(_) | Message::Answer(_)
        );
        if is_open_ended {
            continue;
        }
        for end in 0..whole.len() {
            assert!(Frame::decode(whole.slice(..end)).is_err(), "{message:?}");
        }
        let longer = [&whole[..], &[0]].concat();
        assert!(Frame::decode(longer.into()).is_err(), "{message:?}");
    }
}

#[test]
fn unknown_kinds_and_impossible_numbers_are_refused() {
    let unknown = Frame::decode(Bytes::from_static(&[0x77, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(unknown.err(), Some(FrameError::UnknownKind(0x77)));
    let refused = |request: AppendEntriesRequest<Types>, field| {
        let bytes = encoded(1, &Message::Append(1, request));
        let error = FrameError::Malformed(DecodeError { field });
        assert_eq!(decoded(&bytes).err(), Some(error));
    };
    let mut gap = append();
    gap.entries.remove(0);
    refused(gap, "log id of an entry");
    let mut future = append();
    future.entries[1].log_id = log_id(4, 1, 10);
    refused(future, "log id of an entry");
    let mut backwards = append();
    backwards.entries[1].log_id = log_id(2, 1, 10);
    refused(backwards, "log id of an entry");
    let mut headless = append();
    headless.prev_log_id = None;
    refused(headless, "log id of an entry");
    let mut bytes = encoded(1, &Message::Append(1, append()));
    let count_at = bytes.len() - 2 * 28 - 1 - 6 - 4;
    bytes[count_at..count_at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = FrameError::Malformed(DecodeError {
        field: "entries of an append",
    });
    assert_eq!(decoded(&bytes).err(), Some(error));
}

#[test]
fn a_long_payload_is_chained_and_not_copied() {
    let payload = Bytes::from(vec![7; 100_000]);
    let mut request = append();
    request.entries[1] = entry(log_id(3, 1, 10), payload.clone());
    let message = Message::Append(1, request);
    let mut outbox = Outbox::default();
    outbox.message(1, &message);
    let slices = outbox.slices();
    assert!(
        slices
            .iter()
            .any(|slice| slice.as_ptr() == payload.as_ptr())
    );
    // Written a few bytes at a time, it is the same.
    let whole: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
    drop(slices);
    let mut written = Vec::new();
    while !outbox.is_empty() {
        let slices = outbox.slices();
        let some = slices[0][..slices[0].len().min(777)].to_vec();
        drop(slices);
        outbox.advance(some.len());
        written.extend(some);
    }
    assert!(written == whole);
}

#[test]
fn a_payload_is_cut_out_of_the_frame_it_came_in() {
    let bytes = Bytes::from(encoded(1, &Message::Append(1, append()))).slice(LENGTH_BYTES..);
    let frame = Frame::decode(bytes.clone()).unwrap();
    let Message::Append(_, request) = frame.message else {
        panic!("an append")
    };
    let Payload::Normal(command) = &request.entries[1].payload else {
        panic!("a command")
    };
    assert!(bytes.as_ptr_range().contains(&command.0.as_ptr()));
}

#[test]
fn long_requests_are_cut_into_pieces_that_follow_each_other() {
    let request = |count: u64, bytes: usize| AppendEntriesRequest {
        entries: (0..count)
            .map(|place| entry(log_id(3, 1, 9 + place), vec![0; bytes]))
            .collect(),
        ..append()
    };
    for (count, bytes) in [(0, 0), (1, 10), (3, 1 << 20), (20, 1 << 20), (10_000, 3)] {
        let whole = request(count, bytes);
        let cut = pieces(whole.clone()).unwrap();
        let mut prev = whole.prev_log_id;
        for piece in &cut {
            assert_eq!(piece.prev_log_id, prev);
            assert!(piece.entries.len() <= ENTRIES_MAX);
            let frame = encoded(1, &Message::Append(1, piece.clone()));
            assert!(frame.len() <= FRAME_BYTES_MAX + LENGTH_BYTES);
            assert!(decoded(&frame).is_ok());
            prev = piece.entries.last().map(|entry| entry.log_id).or(prev);
        }
        let entries: usize = cut.iter().map(|piece| piece.entries.len()).sum();
        assert_eq!(entries as u64, count);
    }
    assert!(pieces(request(1, APPEND_BYTES_MAX)).is_err());
}

proptest! {
    #[test]
    fn random_bytes_are_refused_and_nothing_panics(
        kind in prop_oneof![Just(0x10u8), Just(0x11), Just(0x13), Just(0x20), Just(0x90), any::<u8>()],
        mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        bytes.insert(0, kind);
        let _ = Frame::decode(bytes.into());
    }

    #[test]
    fn messages_with_changed_bytes_never_panic(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let messages = messages();
        let (id, message) = which.get(&messages);
        let mut bytes = encoded(*id, message)[LENGTH_BYTES..].to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        // What is still a message can be sent on.
        if let Ok(frame) = Frame::decode(bytes.into()) {
            encoded(frame.id, &frame.message);
        }
    }
}
