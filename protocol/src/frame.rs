//! The frame: what all messages have in common.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 4 | length | how many bytes follow this field, 10 at least |
//! | 4 | 1 | kind | 0x00 to 0x7f a request, 0x80 to 0xbf a reply, 0xc0 to 0xff a push |
//! | 5 | 1 | flags | by kind |
//! | 6 | 8 | request id | a reply repeats its request's; 0 when there is none |
//! | 14 | | body | fixed fields, then optional fields |
//!
//! The request id has 64 bits because it must never come twice in a session, and a session may live
//! for years: 32 bits last an hour at a million requests a second. The length comes first, so that
//! four bytes tell a reader whether to go on, and it never buffers a frame that it will refuse.

use crate::codec::Writer;
use crate::error::DecodeError;
use crate::field::RequestId;
use bytes::{BufMut, BytesMut};

/// Bytes of the length field.
pub const LENGTH_BYTES: usize = 4;

/// Bytes before the body.
pub const HEADER_BYTES: usize = LENGTH_BYTES + 1 + 1 + 8;

/// The first kind that is a reply.
pub const KIND_REPLY_MIN: u8 = 0x80;

/// The first kind that is a push.
pub const KIND_PUSH_MIN: u8 = 0xc0;

/// On any request: it may have been sent before, on a connection that broke. The server looks for
/// the earlier outcome only then, so a request sent once pays for remembering and not for
/// searching.
pub const FLAG_REPEATED: u8 = 0x80;

/// Which peer sends a frame, and whether it answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Client to server.
    Request,
    /// Server to client, answering one request, or the connection under [`RequestId::NONE`].
    Reply,
    /// Server to client, unasked.
    Push,
}

/// One frame, taken apart as far as its header. Borrows from the buffer it was split off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Which message it is: [`crate::request::op`], [`crate::reply::kind`] or
    /// [`crate::push::kind`].
    pub kind: u8,
    /// Bits whose meaning depends on the kind.
    pub flags: u8,
    /// The request that this frame is or answers; [`RequestId::NONE`] on pushes.
    pub request_id: RequestId,
    /// Everything after the header.
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Splits one frame off the front of `buffer`. `None` means that more bytes are needed, and
    /// leaves `buffer` alone.
    ///
    /// A length outside the limits is refused as soon as its four bytes are there.
    /// `frame_bytes_max` counts the whole frame: [`crate::limits`] has one limit for strangers, one
    /// for requests and one for what a client receives.
    #[inline]
    pub fn split(
        buffer: &mut &'a [u8],
        frame_bytes_max: u32,
    ) -> Result<Option<Frame<'a>>, DecodeError> {
        let Some((length, rest)) = buffer.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length);
        let frame_bytes = u64::from(length) + LENGTH_BYTES as u64;
        if frame_bytes > u64::from(frame_bytes_max) {
            return Err(DecodeError::FrameTooLong {
                frame_bytes,
                frame_bytes_max,
            });
        }
        if frame_bytes < HEADER_BYTES as u64 {
            return Err(DecodeError::FrameTooShort { frame_bytes });
        }
        let Some((content, rest)) = rest.split_at_checked(length as usize) else {
            return Ok(None);
        };
        let Some((&[kind, flags, ref id @ ..], body)) =
            content.split_first_chunk::<{ HEADER_BYTES - LENGTH_BYTES }>()
        else {
            return Err(DecodeError::FrameTooShort { frame_bytes });
        };
        *buffer = rest;
        Ok(Some(Frame {
            kind,
            flags,
            request_id: RequestId::new(u64::from_le_bytes(*id)),
            body,
        }))
    }

    /// Bytes of the whole frame, the length field included.
    pub fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }

    /// Whether its sender says that it may have sent this request before ([`FLAG_REPEATED`]).
    pub fn is_repeated(&self) -> bool {
        self.flags & FLAG_REPEATED != 0
    }

    /// Which way it travels, known even for an unknown kind.
    pub fn direction(&self) -> Direction {
        match self.kind {
            ..KIND_REPLY_MIN => Direction::Request,
            KIND_REPLY_MIN..KIND_PUSH_MIN => Direction::Reply,
            KIND_PUSH_MIN.. => Direction::Push,
        }
    }
}

/// Appends one frame; `write_body` appends its body. The length is filled in afterwards, so no
/// message computes its own.
#[inline]
pub(crate) fn append(
    out: &mut BytesMut,
    kind: u8,
    flags: u8,
    request_id: RequestId,
    write_body: impl FnOnce(&mut Writer<'_>),
) {
    let start = out.len();
    let mut header = [0; HEADER_BYTES];
    header[4] = kind;
    header[5] = flags;
    header[6..].copy_from_slice(&request_id.get().to_le_bytes());
    out.put_slice(&header);
    write_body(&mut Writer::new(out));

    let length = u32::try_from(out.len() - start - LENGTH_BYTES)
        .expect("the largest message is asserted to fit FRAME_BYTES_MAX");
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
mod tests;
