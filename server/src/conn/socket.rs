//! A stream socket, TCP or Unix, whole or in two halves.
//!
//! The halves read and write as tokio's own do. In particular a read that does not fill its buffer
//! ends the readiness of the socket, which saves the system call that would say so.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

pub(crate) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

pub(crate) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

impl Socket {
    pub(crate) fn split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Socket::Tcp(stream) => {
                let (reader, writer) = stream.into_split();
                (ReadHalf::Tcp(reader), WriteHalf::Tcp(writer))
            }
            Socket::Unix(stream) => {
                let (reader, writer) = stream.into_split();
                (ReadHalf::Unix(reader), WriteHalf::Unix(writer))
            }
        }
    }

    /// Puts two halves together again.
    pub(crate) fn join(reader: ReadHalf, writer: WriteHalf) -> Socket {
        let joined = match (reader, writer) {
            (ReadHalf::Tcp(reader), WriteHalf::Tcp(writer)) => {
                reader.reunite(writer).ok().map(Socket::Tcp)
            }
            (ReadHalf::Unix(reader), WriteHalf::Unix(writer)) => {
                reader.reunite(writer).ok().map(Socket::Unix)
            }
            _ => None,
        };
        joined.expect("they are of one socket")
    }
}

impl WriteHalf {
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            WriteHalf::Tcp(writer) => writer.try_write(bytes),
            WriteHalf::Unix(writer) => writer.try_write(bytes),
        }
    }

    /// May be dropped half-way.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            WriteHalf::Tcp(writer) => writer.writable().await,
            WriteHalf::Unix(writer) => writer.writable().await,
        }
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ReadHalf::Tcp(reader) => Pin::new(reader).poll_read(context, buffer),
            ReadHalf::Unix(reader) => Pin::new(reader).poll_read(context, buffer),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Socket::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
