//! What a server sends unasked. A client skips kinds it does not know.
//!
//! A grant is not among them: an acquire that waited is answered under its own id, like any other
//! request.

use crate::code::LostReason;
use crate::codec::{Reader, tag};
use crate::error::DecodeError;
use crate::field::{Fence, Key, NodeAddress, RequestId, read_leader};
use crate::frame::{self, Frame};
use bytes::BytesMut;

/// The numbers of the pushes.
pub mod kind {
    #![allow(
        missing_docs,
        reason = "named after the variants of Push, which say it all"
    )]
    pub const LOST: u8 = 0xc0;
    pub const SHUTDOWN: u8 = 0xc1;
    /// Reserved: news of a watched key. Unknown to version 1.
    pub const EVENT: u8 = 0xc2;
}

/// One push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push<'a> {
    /// This session no longer holds a lock that it did not release.
    Lost {
        /// Which lock.
        key: Key<'a>,
        /// Of which grant.
        fence: Fence,
        /// What happened.
        reason: LostReason,
    },
    /// The server is going away.
    Shutdown {
        /// How long it still answers.
        grace_ms: u32,
        /// Who leads its cluster from now on; mostly empty.
        leader: NodeAddress<'a>,
    },
    /// News from a later version: skip it.
    Unknown {
        /// Its number.
        kind: u8,
    },
}

impl<'a> Push<'a> {
    /// Reads the push in a frame.
    pub fn decode(frame: &Frame<'a>) -> Result<Self, DecodeError> {
        let reader = &mut Reader::new(frame.body);
        let push = match frame.kind {
            kind::LOST => Self::Lost {
                fence: reader.fence()?,
                reason: LostReason(reader.u8("reason")?),
                key: reader.key()?,
            },
            kind::SHUTDOWN => Self::Shutdown {
                grace_ms: reader.u32("grace_ms")?,
                leader: read_leader(reader)?,
            },
            kind => return Ok(Self::Unknown { kind }),
        };
        reader.skip_options()?;
        Ok(push)
    }

    /// Appends the push as one frame.
    pub fn append(&self, out: &mut BytesMut) {
        frame::append(out, self.kind(), 0, RequestId::NONE, |writer| match *self {
            Self::Lost { key, fence, reason } => {
                writer.u64(fence.get());
                writer.u8(reason.0);
                writer.bytes(key.as_bytes());
            }
            Self::Shutdown { grace_ms, leader } => {
                writer.u32(grace_ms);
                writer.option(tag::LEADER, leader.as_bytes());
            }
            Self::Unknown { .. } => {}
        });
    }

    /// The number of the push.
    pub const fn kind(&self) -> u8 {
        match *self {
            Self::Lost { .. } => kind::LOST,
            Self::Shutdown { .. } => kind::SHUTDOWN,
            Self::Unknown { kind } => kind,
        }
    }
}

#[cfg(test)]
mod tests;
