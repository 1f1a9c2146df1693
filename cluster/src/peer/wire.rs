//! Frames and messages as bytes, after the hello. `docs/cluster-wire.md` is the register of kinds.
//!
//! A frame is a length u32, a kind u8, an id u64 and a body; the length counts what follows it.
//! openraft's values stand in the body as `codec.rs` writes them. The id of a request is chosen by
//! the side that connected, rises, and is repeated by the reply.

use super::{Image, SNAPSHOT_PART_BYTES};
use crate::codec::{DecodeError, Reader};
use crate::types::{Entry, LogId, SnapshotMeta, StoredMembership, Types, Vote};
use bytes::Bytes;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};

/// Bytes of the length in front of a frame.
pub(super) const LENGTH_BYTES: usize = 4;
/// Bytes of kind and id.
pub(super) const HEADER_BYTES: usize = 1 + 8;

/// The most payload that one append carries. A longer request is sent in several frames.
pub(super) const APPEND_BYTES_MAX: usize = 4 << 20;
/// The longest frame: an append of the longest payload, a part of a snapshot, or an answer.
pub(super) const FRAME_BYTES_MAX: usize = APPEND_BYTES_MAX + (64 << 10);
/// The most entries of one append.
pub(super) const ENTRIES_MAX: usize = 4096;
/// The most parts of one snapshot: 16 GiB.
pub(super) const SNAPSHOT_PARTS_MAX: usize = 16 << 10;
/// The longest question or answer.
pub(super) const ASK_BYTES_MAX: usize = FRAME_BYTES_MAX - HEADER_BYTES;

const _: () = assert!(SNAPSHOT_PART_BYTES + HEADER_BYTES <= FRAME_BYTES_MAX);
const _: () = assert!(APPEND_HEAD_BYTES_MAX + APPEND_BYTES_MAX <= FRAME_BYTES_MAX);

/// Everything of an append that is not its entries: header, stream, vote, two log ids, count.
const APPEND_HEAD_BYTES_MAX: usize = HEADER_BYTES + 8 + 17 + 25 + 25 + 4;
/// What stands in front of an entry's payload: its log id and the payload's length.
pub(super) const ENTRY_HEAD_BYTES: usize = 24 + 4;

/// Kinds of frames.
pub(super) mod kind {
    pub(in crate::peer) const HELLO: u8 = 0x01;
    pub(in crate::peer) const CHALLENGE: u8 = 0x02;
    pub(in crate::peer) const PROOF: u8 = 0x03;
    pub(in crate::peer) const WELCOME: u8 = 0x04;
    pub(in crate::peer) const REFUSED: u8 = 0x05;
    pub(in crate::peer) const APPEND: u8 = 0x10;
    pub(in crate::peer) const VOTE: u8 = 0x11;
    pub(in crate::peer) const PRE_VOTE: u8 = 0x12;
    pub(in crate::peer) const TRANSFER: u8 = 0x13;
    pub(in crate::peer) const SNAPSHOT_BEGIN: u8 = 0x20;
    pub(in crate::peer) const SNAPSHOT_PART: u8 = 0x21;
    pub(in crate::peer) const QUESTION: u8 = 0x30;
    pub(in crate::peer) const APPENDED: u8 = 0x90;
    pub(in crate::peer) const VOTED: u8 = 0x91;
    pub(in crate::peer) const TRANSFERRED: u8 = 0x93;
    pub(in crate::peer) const INSTALLED: u8 = 0xa0;
    pub(in crate::peer) const INSTALLING: u8 = 0xa1;
    pub(in crate::peer) const ANSWER: u8 = 0xb0;
}

/// Why a frame cannot be read. Ends its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameError {
    Malformed(DecodeError),
    UnknownKind(u8),
}

impl From<DecodeError> for FrameError {
    fn from(error: DecodeError) -> Self {
        FrameError::Malformed(error)
    }
}

/// One message between nodes.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// Entries, or a heartbeat. The number tells the streams of one connection apart: a stream
    /// that was answered with an error is over, and what follows of it is not answered.
    Append(u64, AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    Transfer(TransferLeaderRequest<Types>),
    SnapshotBegin(SnapshotHead),
    SnapshotPart(Bytes),
    Question(Bytes),
    Appended(StreamAppendResult<Types>),
    /// The answer to a vote and to a pre-vote.
    Voted(VoteResponse<Types>),
    Transferred(TransferLeaderResponse<Types>),
    /// With the vote of the node that was to install the snapshot.
    Installed(Vote),
    /// It is being installed: a sign of life, at least every few seconds.
    Installing,
    Answer(Bytes),
}

/// What comes before the parts of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SnapshotHead {
    pub(super) vote: Vote,
    pub(super) meta: SnapshotMeta,
    pub(super) parts: u32,
    pub(super) bytes: u64,
}

impl SnapshotHead {
    /// The parts must not be too many or too long: the peer would refuse them.
    pub(super) fn of(vote: Vote, meta: SnapshotMeta, image: &Image) -> Self {
        let part_bytes_max = image.iter().map(Bytes::len).max().unwrap_or(0);
        assert!(
            image.len() <= SNAPSHOT_PARTS_MAX && part_bytes_max <= SNAPSHOT_PART_BYTES,
            "a snapshot of {} parts, the longest of {part_bytes_max} bytes",
            image.len()
        );
        SnapshotHead {
            vote,
            meta,
            parts: image.len() as u32,
            bytes: image.iter().map(|part| part.len() as u64).sum(),
        }
    }
}

impl Message {
    pub(super) fn kind(&self) -> u8 {
        match self {
            Message::Append(..) => kind::APPEND,
            Message::Vote(_) => kind::VOTE,
            Message::PreVote(_) => kind::PRE_VOTE,
            Message::Transfer(_) => kind::TRANSFER,
            Message::SnapshotBegin(_) => kind::SNAPSHOT_BEGIN,
            Message::SnapshotPart(_) => kind::SNAPSHOT_PART,
            Message::Question(_) => kind::QUESTION,
            Message::Appended(_) => kind::APPENDED,
            Message::Voted(_) => kind::VOTED,
            Message::Transferred(_) => kind::TRANSFERRED,
            Message::Installed(_) => kind::INSTALLED,
            Message::Installing => kind::INSTALLING,
            Message::Answer(_) => kind::ANSWER,
        }
    }

    /// The node for which a request speaks; it must be the node that sends it.
    pub(super) fn speaker(&self) -> Option<u64> {
        let vote = match self {
            Message::Append(_, request) => &request.vote,
            Message::Vote(request) | Message::PreVote(request) => &request.vote,
            Message::Transfer(request) => request.from_leader(),
            Message::SnapshotBegin(head) => &head.vote,
            _ => return None,
        };
        Some(vote.leader_id.node_id)
    }
}

/// A message and the id that ties requests and replies together.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) id: u64,
    pub(super) message: Message,
}

impl Frame {
    /// Reads a frame, without its length.
    pub(super) fn decode(bytes: Bytes) -> Result<Self, FrameError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8("kind of a frame")?;
        let id = reader.u64("id of a frame")?;
        let message = match kind {
            kind::APPEND => {
                let stream = reader.u64("stream of an append")?;
                Message::Append(stream, read_append(&mut reader)?)
            }
            kind::VOTE => Message::Vote(read_vote_request(&mut reader)?),
            kind::PRE_VOTE => Message::PreVote(read_vote_request(&mut reader)?),
            kind::TRANSFER => Message::Transfer(TransferLeaderRequest::new(
                reader.vote()?,
                reader.u64("node of a transfer")?,
                reader.option("log end of a transfer", Reader::log_id)?,
            )),
            kind::SNAPSHOT_BEGIN => Message::SnapshotBegin(read_snapshot_head(&mut reader)?),
            kind::SNAPSHOT_PART => {
                let part = reader.rest();
                if part.len() > SNAPSHOT_PART_BYTES {
                    return Err(wrong("length of a snapshot's part").into());
                }
                Message::SnapshotPart(part)
            }
            kind::QUESTION => Message::Question(reader.rest()),
            kind::APPENDED => Message::Appended(match reader.u8("outcome of an append")? {
                0 => Ok(reader.option("end of an append", Reader::log_id)?),
                1 => Err(StreamAppendError::Conflict(reader.log_id()?)),
                2 => Err(StreamAppendError::HigherVote(reader.vote()?)),
                _ => return Err(wrong("outcome of an append").into()),
            }),
            kind::VOTED => Message::Voted(VoteResponse {
                vote: reader.vote()?,
                last_log_id: reader.option("log end of a voter", Reader::log_id)?,
                vote_granted: reader.flag("whether a vote is granted")?,
            }),
            kind::TRANSFERRED => Message::Transferred(read_transferred(&mut reader)?),
            kind::INSTALLED => Message::Installed(reader.vote()?),
            kind::INSTALLING => Message::Installing,
            kind::ANSWER => Message::Answer(reader.rest()),
            unknown => return Err(FrameError::UnknownKind(unknown)),
        };
        reader.end("end of a frame")?;
        Ok(Frame { id, message })
    }
}

fn wrong(field: &'static str) -> DecodeError {
    DecodeError { field }
}

/// Entries must follow each other, and none may be of a later leader than the one who sends them:
/// openraft takes both for granted.
fn read_append(reader: &mut Reader) -> Result<AppendEntriesRequest<Types>, DecodeError> {
    let vote = reader.vote()?;
    let prev_log_id = reader.option("log id before an append", Reader::log_id)?;
    let leader_commit = reader.option("commit of an append", Reader::log_id)?;
    let count = reader.u32("entries of an append")? as usize;
    if count > ENTRIES_MAX {
        return Err(wrong("entries of an append"));
    }
    let mut entries = Vec::with_capacity(count.min(ENTRIES_MAX));
    let mut before: Option<LogId> = prev_log_id;
    for _ in 0..count {
        let log_id = reader.log_id()?;
        let follows = match &before {
            None => log_id.index() == 0,
            Some(before) => {
                before.index().checked_add(1) == Some(log_id.index())
                    && before.committed_leader_id() <= log_id.committed_leader_id()
            }
        };
        if !follows || *log_id.committed_leader_id() > vote.leader_id {
            return Err(wrong("log id of an entry"));
        }
        let payload_bytes = reader.u32("length of an entry")? as usize;
        let payload = reader.take(payload_bytes, "payload of an entry")?;
        let payload = Reader::new(payload).payload()?;
        entries.push(Entry { log_id, payload });
        before = Some(log_id);
    }
    Ok(AppendEntriesRequest {
        vote,
        prev_log_id,
        entries,
        leader_commit,
    })
}

fn read_vote_request(reader: &mut Reader) -> Result<VoteRequest<Types>, DecodeError> {
    let vote = reader.vote()?;
    let last_log_id = reader.option("log end of a candidate", Reader::log_id)?;
    let mut request = VoteRequest::new(vote, last_log_id);
    request.leadership_transfer = reader.flag("whether a vote is a transfer's")?;
    Ok(request)
}

fn read_snapshot_head(reader: &mut Reader) -> Result<SnapshotHead, DecodeError> {
    let vote = reader.vote()?;
    let last_log_id = reader.option("log id of a snapshot", Reader::log_id)?;
    let membership_log_id = reader.option("log id of a membership", Reader::log_id)?;
    let last_membership = StoredMembership::new(membership_log_id, reader.membership()?);
    let parts = reader.u32("parts of a snapshot")?;
    let bytes = reader.u64("bytes of a snapshot")?;
    let is_beyond =
        last_log_id.is_some_and(|log_id| *log_id.committed_leader_id() > vote.leader_id);
    if is_beyond || membership_log_id > last_log_id {
        return Err(wrong("log id of a snapshot"));
    }
    if parts as usize > SNAPSHOT_PARTS_MAX {
        return Err(wrong("parts of a snapshot"));
    }
    if bytes > u64::from(parts) * SNAPSHOT_PART_BYTES as u64 {
        return Err(wrong("bytes of a snapshot"));
    }
    Ok(SnapshotHead {
        vote,
        meta: SnapshotMeta {
            last_log_id,
            last_membership,
        },
        parts,
        bytes,
    })
}

fn read_transferred(reader: &mut Reader) -> Result<TransferLeaderResponse<Types>, DecodeError> {
    Ok(match reader.u8("outcome of a transfer")? {
        0 => Ok(()),
        1 => Err(TransferLeaderError::VoteChanged {
            expected: reader.vote()?,
            actual: reader.vote()?,
        }),
        2 => Err(TransferLeaderError::LogNotFlushed {
            expected: reader.option("log end of a transfer", Reader::log_id)?,
            actual: reader.option("log end of a node", Reader::log_id)?,
        }),
        _ => return Err(wrong("outcome of a transfer")),
    })
}
