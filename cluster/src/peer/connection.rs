//! Frames on a stream of bytes.
//!
//! Reading: bytes are read in large pieces, and a frame is cut out of them without a copy, so an
//! entry's payload is a part of the piece it came in. Writing: frames are gathered in an
//! [`Outbox`] and leave in as few system calls as the socket allows; large payloads are chained in
//! and not copied. Both keep their state here and not in a future, so that any of these futures
//! may be dropped at any time and nothing is lost or sent twice.

use super::outbox::Outbox;
use super::wire::{Frame, FrameError, HEADER_BYTES, LENGTH_BYTES};
use crate::codec::DecodeError;
use bytes::{Buf, Bytes, BytesMut};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;

/// Why a connection ended. Nothing else ends with it.
#[derive(Debug)]
pub(super) enum ConnectionError {
    /// The peer closed it.
    Closed,
    /// The network or the peer's system did.
    Io(io::Error),
    /// The peer sent what no encoder of ours writes.
    Malformed(DecodeError),
    /// The peer's frame has an impossible length.
    Length { max: usize },
    /// The peer speaks TLS, and this node does not.
    SpeaksTls,
    /// The peer sent a message that does not belong there.
    OutOfPlace { kind: u8 },
    /// The peer spoke for a node that it is not.
    SpeaksFor { node: u64 },
    /// The peer took too long.
    Late(&'static str),
    /// The peer said that it does not want to talk, and why.
    Refused(String),
    /// This node does not want to talk to it.
    Unwanted(String),
    /// This node's openraft has stopped.
    Stopped,
}

impl ConnectionError {
    /// Whether the peer did something that an operator should hear of. A broken connection is
    /// ordinary.
    pub(super) fn is_remarkable(&self) -> bool {
        !matches!(
            self,
            ConnectionError::Closed | ConnectionError::Io(_) | ConnectionError::Stopped
        ) || self.is_tls_failure()
    }

    /// Whether one side does not accept the other's certificate.
    fn is_tls_failure(&self) -> bool {
        let ConnectionError::Io(error) = self else {
            return false;
        };
        error
            .get_ref()
            .is_some_and(|inner| inner.is::<tls::rustls::Error>())
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionError::Closed => f.write_str("the peer closed the connection"),
            ConnectionError::Io(error) if self.is_tls_failure() => {
                write!(f, "no TLS with the peer: {}", tls::reason_of_io(error))
            }
            ConnectionError::Io(error) => write!(f, "the connection broke: {error}"),
            ConnectionError::SpeaksTls => f.write_str(
                "closed a connection that speaks TLS, and this port does not: give --peer-tls-ca-file to all nodes or to none",
            ),
            ConnectionError::Malformed(error) => write!(
                f,
                "closed a connection whose bytes are not of this protocol: {error}. Only nodes of \
                 the cluster should reach this port"
            ),
            // Without the length, which a stranger chooses: each would be a reason of its own.
            ConnectionError::Length { max } => write!(
                f,
                "closed a connection whose frame has an impossible length: {HEADER_BYTES} to {max} \
                 bytes are allowed. Only nodes of the cluster should reach this port"
            ),
            ConnectionError::OutOfPlace { kind } => write!(
                f,
                "closed a connection that sent a message of kind {kind:#04x} where none of that \
                 kind is expected"
            ),
            ConnectionError::SpeaksFor { node } => write!(
                f,
                "closed a connection that spoke for node {node}, which it is not: check that no \
                 two nodes have the same --node-id"
            ),
            ConnectionError::Late(what) => write!(f, "gave up a connection: no {what} in time"),
            ConnectionError::Refused(reason) => write!(f, "the peer refused: {reason}"),
            ConnectionError::Unwanted(reason) => write!(f, "refused a peer: {reason}"),
            ConnectionError::Stopped => f.write_str("this node is stopping"),
        }
    }
}

impl std::error::Error for ConnectionError {}

impl From<DecodeError> for ConnectionError {
    fn from(error: DecodeError) -> Self {
        ConnectionError::Malformed(error)
    }
}

impl From<FrameError> for ConnectionError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Malformed(error) => ConnectionError::Malformed(error),
            FrameError::UnknownKind(kind) => ConnectionError::OutOfPlace { kind },
        }
    }
}

/// A stream of bytes that carries frames.
pub(super) struct Connection<S> {
    stream: S,
    inbox: BytesMut,
    /// What is to be written.
    pub(super) outbox: Outbox,
    /// The stream took bytes that may not have left.
    is_unflushed: bool,
    frame_bytes_max: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// On a stream that has carried nothing yet.
    pub(super) fn new(stream: S, frame_bytes_max: usize) -> Self {
        Connection {
            stream,
            inbox: BytesMut::new(),
            outbox: Outbox::default(),
            is_unflushed: false,
            frame_bytes_max,
        }
    }

    /// From now on the peer may send longer frames: it has proved itself.
    pub(super) fn raise_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// The next frame as bytes, without its length. Writes what is gathered, too, before it waits.
    pub(super) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, ConnectionError>> {
        loop {
            // What has been read already comes before the next system call of either kind, so the
            // replies to all of it leave together.
            if let Some(frame) = self.cut()? {
                return Poll::Ready(Ok(frame));
            }
            if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
                return Poll::Ready(Err(error));
            }
            let read_bytes = ready!(pin!(self.stream.read_buf(&mut self.inbox)).poll(cx))
                .map_err(ConnectionError::Io)?;
            if read_bytes == 0 {
                return Poll::Ready(Err(ConnectionError::Closed));
            }
        }
    }

    /// The next frame. See [`Connection::poll_bytes`].
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Frame, ConnectionError>> {
        let bytes = ready!(self.poll_bytes(cx))?;
        Poll::Ready(Frame::decode(bytes).map_err(ConnectionError::from))
    }

    /// The next frame as bytes. Loses nothing when it is dropped.
    pub(super) async fn bytes(&mut self) -> Result<Bytes, ConnectionError> {
        poll_fn(|cx| self.poll_bytes(cx)).await
    }

    /// The next frame. Loses nothing when it is dropped.
    pub(super) async fn frame(&mut self) -> Result<Frame, ConnectionError> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }

    /// The next frame if `may_read`. Otherwise writes what is gathered, reads nothing, and returns
    /// only if that fails.
    pub(super) async fn frame_if(&mut self, may_read: bool) -> Result<Frame, ConnectionError> {
        poll_fn(|cx| match may_read {
            true => self.poll_frame(cx),
            false => match self.poll_flush(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                _ => Poll::Pending,
            },
        })
        .await
    }

    /// Writes all that is gathered.
    pub(super) async fn flush(&mut self) -> Result<(), ConnectionError> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Writes what the socket takes.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        if self.outbox.is_empty() && !self.is_unflushed {
            return Poll::Ready(Ok(()));
        }
        while !self.outbox.is_empty() {
            let slices = self.outbox.slices();
            let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &slices))
                .map_err(ConnectionError::Io)?;
            drop(slices);
            if written == 0 {
                return Poll::Ready(Err(ConnectionError::Closed));
            }
            self.outbox.advance(written);
            self.is_unflushed = true;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx)).map_err(ConnectionError::Io)?;
        self.is_unflushed = false;
        Poll::Ready(Ok(()))
    }

    /// Cuts the first frame off what was read, if all of it is there. Makes room otherwise.
    fn cut(&mut self) -> Result<Option<Bytes>, ConnectionError> {
        let Some(length) = self.inbox.first_chunk::<LENGTH_BYTES>() else {
            self.inbox.reserve(READ_BYTES.min(self.frame_bytes_max));
            return Ok(None);
        };
        let frame_bytes = u32::from_le_bytes(*length) as usize;
        if !(HEADER_BYTES..=self.frame_bytes_max).contains(&frame_bytes) {
            if tls::is_client_hello(&self.inbox) {
                return Err(ConnectionError::SpeaksTls);
            }
            return Err(ConnectionError::Length {
                max: self.frame_bytes_max,
            });
        }
        let missing = (LENGTH_BYTES + frame_bytes).saturating_sub(self.inbox.len());
        if missing > 0 {
            let room = missing.max(READ_BYTES.min(self.frame_bytes_max));
            self.inbox.reserve(room);
            return Ok(None);
        }
        self.inbox.advance(LENGTH_BYTES);
        Ok(Some(self.inbox.split_to(frame_bytes).freeze()))
    }
}
