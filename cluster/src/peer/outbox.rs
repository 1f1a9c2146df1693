//! Frames that are to be written, gathered until the socket takes them. Large payloads are chained
//! in as they are; everything else is copied into one growing piece.

use super::wire::{
    APPEND_BYTES_MAX, ENTRIES_MAX, ENTRY_HEAD_BYTES, FRAME_BYTES_MAX, LENGTH_BYTES, Message,
    SnapshotHead, kind,
};
use crate::codec;
use crate::types::{Command, Entry, LogId, Payload, Types};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderError,
    TransferLeaderResponse,
};
use std::collections::VecDeque;
use std::io::IoSlice;

/// A payload of at least so many bytes is chained in; a shorter one is cheaper to copy.
const CHAINED_BYTES_MIN: usize = 2048;
/// How many pieces one system call writes.
const SLICES_MAX: usize = 64;

/// Frames that are to be written, in order.
#[derive(Default)]
pub(super) struct Outbox {
    /// Complete pieces, in front of the tail.
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// How much is gathered.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a frame whose body is what `put` writes and then `payload`.
    pub(super) fn put(
        &mut self,
        kind: u8,
        id: u64,
        put: impl FnOnce(&mut BytesMut),
        payload: &Bytes,
    ) {
        self.begin(kind, id, put, payload.len());
        self.chain(payload);
    }

    /// Adds a message.
    pub(super) fn message(&mut self, id: u64, message: &Message) {
        let kind = message.kind();
        let nothing = Bytes::new();
        match message {
            Message::Append(stream, request) => self.append(id, *stream, request),
            Message::Vote(request) | Message::PreVote(request) => self.put(
                kind,
                id,
                |out| {
                    codec::put_vote(&request.vote, out);
                    codec::put_option(request.last_log_id.as_ref(), out, codec::put_log_id);
                    out.put_u8(u8::from(request.leadership_transfer));
                },
                &nothing,
            ),
            Message::Transfer(request) => self.put(
                kind,
                id,
                |out| {
                    codec::put_vote(request.from_leader(), out);
                    out.put_u64_le(*request.to_node_id());
                    codec::put_option(request.last_log_id(), out, codec::put_log_id);
                },
                &nothing,
            ),
            Message::SnapshotBegin(head) => {
                self.put(kind, id, |out| put_snapshot_head(head, out), &nothing);
            }
            Message::SnapshotPart(bytes) | Message::Question(bytes) | Message::Answer(bytes) => {
                self.put(kind, id, |_| {}, bytes);
            }
            Message::Appended(result) => {
                self.put(kind, id, |out| put_appended(result, out), &nothing);
            }
            Message::Voted(response) => self.put(
                kind,
                id,
                |out| {
                    codec::put_vote(&response.vote, out);
                    codec::put_option(response.last_log_id.as_ref(), out, codec::put_log_id);
                    out.put_u8(u8::from(response.vote_granted));
                },
                &nothing,
            ),
            Message::Transferred(response) => {
                self.put(kind, id, |out| put_transferred(response, out), &nothing);
            }
            Message::Installing => self.put(kind, id, |_| {}, &nothing),
            Message::Installed(vote) => {
                self.put(kind, id, |out| codec::put_vote(vote, out), &nothing);
            }
        }
    }

    /// Adds an append. The caller has made sure that it is not too long (see [`pieces`]).
    fn append(&mut self, id: u64, stream: u64, request: &AppendEntriesRequest<Types>) {
        let entries_bytes = request.entries.iter().map(entry_bytes).sum();
        assert!(
            entries_bytes <= APPEND_BYTES_MAX && request.entries.len() <= ENTRIES_MAX,
            "an append of {} entries and {entries_bytes} bytes",
            request.entries.len()
        );
        let head = |out: &mut BytesMut| {
            out.put_u64_le(stream);
            codec::put_vote(&request.vote, out);
            codec::put_option(request.prev_log_id.as_ref(), out, codec::put_log_id);
            codec::put_option(request.leader_commit.as_ref(), out, codec::put_log_id);
            out.put_u32_le(request.entries.len() as u32);
        };
        self.begin(kind::APPEND, id, head, entries_bytes);
        for entry in &request.entries {
            let before = self.tail.len();
            codec::put_log_id(&entry.log_id, &mut self.tail);
            self.tail
                .put_u32_le(codec::payload_bytes(&entry.payload) as u32);
            let chained = match &entry.payload {
                // A command without its bytes is its kind alone.
                Payload::Normal(command) => {
                    let kind = Payload::Normal(Command::default());
                    codec::put_payload(&kind, &mut self.tail);
                    Some(&command.0)
                }
                other => {
                    codec::put_payload(other, &mut self.tail);
                    None
                }
            };
            self.bytes += self.tail.len() - before;
            if let Some(bytes) = chained {
                self.chain(bytes);
            }
        }
    }

    /// Begins a frame to which so many bytes will be added.
    fn begin(&mut self, kind: u8, id: u64, put: impl FnOnce(&mut BytesMut), to_come: usize) {
        let start = self.tail.len();
        self.tail.put_u32_le(0);
        self.tail.put_u8(kind);
        self.tail.put_u64_le(id);
        put(&mut self.tail);
        let put_bytes = self.tail.len() - start;
        let frame_bytes = put_bytes - LENGTH_BYTES + to_come;
        assert!(
            frame_bytes <= FRAME_BYTES_MAX,
            "a frame of {frame_bytes} bytes"
        );
        self.tail[start..start + LENGTH_BYTES].copy_from_slice(&(frame_bytes as u32).to_le_bytes());
        self.bytes += put_bytes;
    }

    fn chain(&mut self, bytes: &Bytes) {
        self.bytes += bytes.len();
        if bytes.len() < CHAINED_BYTES_MIN {
            self.tail.put_slice(bytes);
            return;
        }
        self.close_tail();
        self.pieces.push_back(bytes.clone());
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push_back(self.tail.split().freeze());
        }
    }

    /// What the next system call writes.
    pub(super) fn slices(&mut self) -> Vec<IoSlice<'_>> {
        self.close_tail();
        let pieces = self.pieces.iter().take(SLICES_MAX);
        pieces.map(|piece| IoSlice::new(piece)).collect()
    }

    /// So much was written.
    pub(super) fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(piece) = self.pieces.front_mut() {
            if piece.len() > written {
                piece.advance(written);
                return;
            }
            written -= piece.len();
            self.pieces.pop_front();
        }
        assert_eq!(written, 0, "more was written than there was");
    }
}

fn entry_bytes(entry: &Entry) -> usize {
    ENTRY_HEAD_BYTES + codec::payload_bytes(&entry.payload)
}

fn put_snapshot_head(head: &SnapshotHead, out: &mut BytesMut) {
    codec::put_vote(&head.vote, out);
    codec::put_option(head.meta.last_log_id.as_ref(), out, codec::put_log_id);
    let membership = &head.meta.last_membership;
    codec::put_option(membership.log_id().as_ref(), out, codec::put_log_id);
    codec::put_membership(membership.membership(), out);
    out.put_u32_le(head.parts);
    out.put_u64_le(head.bytes);
}

fn put_appended(result: &StreamAppendResult<Types>, out: &mut BytesMut) {
    match result {
        Ok(log_id) => {
            out.put_u8(0);
            codec::put_option(log_id.as_ref(), out, codec::put_log_id);
        }
        Err(StreamAppendError::Conflict(log_id)) => {
            out.put_u8(1);
            codec::put_log_id(log_id, out);
        }
        Err(StreamAppendError::HigherVote(vote)) => {
            out.put_u8(2);
            codec::put_vote(vote, out);
        }
    }
}

fn put_transferred(response: &TransferLeaderResponse<Types>, out: &mut BytesMut) {
    match response {
        Ok(()) => out.put_u8(0),
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            out.put_u8(1);
            codec::put_vote(expected, out);
            codec::put_vote(actual, out);
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            out.put_u8(2);
            codec::put_option(expected.as_ref(), out, codec::put_log_id);
            codec::put_option(actual.as_ref(), out, codec::put_log_id);
        }
    }
}

/// Cuts a request into requests that fit into a frame each. Usually it is one. `Err`: an entry is
/// longer than a frame can be, and has so many bytes.
pub(super) fn pieces(
    request: AppendEntriesRequest<Types>,
) -> Result<Vec<AppendEntriesRequest<Types>>, usize> {
    let sizes: Vec<usize> = request.entries.iter().map(entry_bytes).collect();
    if let Some(bytes) = sizes.iter().find(|bytes| **bytes > APPEND_BYTES_MAX) {
        return Err(*bytes);
    }
    if sizes.len() <= ENTRIES_MAX && sizes.iter().sum::<usize>() <= APPEND_BYTES_MAX {
        return Ok(vec![request]);
    }
    let empty = |prev_log_id: Option<LogId>| AppendEntriesRequest {
        vote: request.vote,
        prev_log_id,
        entries: Vec::new(),
        leader_commit: request.leader_commit,
    };
    let mut pieces: Vec<AppendEntriesRequest<Types>> = vec![empty(request.prev_log_id)];
    let mut bytes = 0;
    for (entry, entry_bytes) in request.entries.into_iter().zip(sizes) {
        let piece = pieces.last().expect("there is one from the start");
        if bytes + entry_bytes > APPEND_BYTES_MAX || piece.entries.len() == ENTRIES_MAX {
            let last = piece.entries.last().expect("it is full").log_id;
            pieces.push(empty(Some(last)));
            bytes = 0;
        }
        bytes += entry_bytes;
        let piece = pieces.last_mut().expect("there is one from the start");
        piece.entries.push(entry);
    }
    Ok(pieces)
}
