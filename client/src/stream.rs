//! A stream to the server, plain or behind TLS, whole or in two halves.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, tcp};

#[cfg(feature = "tls")]
type Secure = tokio_rustls::client::TlsStream<TcpStream>;

#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<Secure>),
}

/// The half that is read from.
pub(crate) enum Reader {
    Plain(tcp::OwnedReadHalf),
    #[cfg(feature = "tls")]
    Tls(tokio::io::ReadHalf<Secure>),
}

/// The half that is written to. Behind TLS a write may have to be followed by a flush.
pub(crate) enum Writer {
    Plain(tcp::OwnedWriteHalf),
    #[cfg(feature = "tls")]
    Tls(tokio::io::WriteHalf<Secure>),
}

impl Stream {
    pub(crate) fn split(self) -> (Reader, Writer) {
        match self {
            Stream::Plain(stream) => {
                let (reader, writer) = stream.into_split();
                (Reader::Plain(reader), Writer::Plain(writer))
            }
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => {
                let (reader, writer) = tokio::io::split(*stream);
                (Reader::Tls(reader), Writer::Tls(writer))
            }
        }
    }
}

impl Writer {
    /// Whether what was written has left with the write, so that there is nothing to flush.
    pub(crate) fn is_direct(&self) -> bool {
        matches!(self, Writer::Plain(_))
    }
}

/// Has the variant that it is do what is asked.
macro_rules! delegate {
    ($self:ident, $type:ident, $method:ident($($argument:ident),*)) => {
        match $self.get_mut() {
            $type::Plain(stream) => Pin::new(stream).$method($($argument),*),
            #[cfg(feature = "tls")]
            $type::Tls(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

macro_rules! readable {
    ($type:ident) => {
        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                delegate!(self, $type, poll_read(context, buffer))
            }
        }
    };
}

macro_rules! writable {
    ($type:ident) => {
        impl AsyncWrite for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                delegate!(self, $type, poll_write(context, bytes))
            }

            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                delegate!(self, $type, poll_flush(context))
            }

            fn poll_shutdown(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                delegate!(self, $type, poll_shutdown(context))
            }
        }
    };
}

readable!(Stream);
readable!(Reader);
writable!(Stream);
writable!(Writer);
