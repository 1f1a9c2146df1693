//! A stream socket, TCP, TCP behind TLS or Unix, whole or in two halves.
//!
//! The halves read and write as tokio's own do. In particular a read that does not fill its buffer
//! ends the readiness of the socket, which saves the system call that would say so.

use super::secure::{SecureReadHalf, SecureSocket, SecureWriteHalf};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

pub(crate) enum Socket {
    Tcp(TcpStream),
    Tls(Box<SecureSocket>),
    Unix(UnixStream),
}

pub(crate) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Tls(SecureReadHalf),
    Unix(unix::OwnedReadHalf),
}

pub(crate) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Tls(SecureWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

impl Socket {
    pub(crate) fn split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Socket::Tcp(stream) => {
                let (reader, writer) = stream.into_split();
                (ReadHalf::Tcp(reader), WriteHalf::Tcp(writer))
            }
            Socket::Tls(socket) => {
                let (reader, writer) = socket.split();
                (ReadHalf::Tls(reader), WriteHalf::Tls(writer))
            }
            Socket::Unix(stream) => {
                let (reader, writer) = stream.into_split();
                (ReadHalf::Unix(reader), WriteHalf::Unix(writer))
            }
        }
    }

    /// The names in the certificate that the peer showed, the most particular first. None without
    /// TLS, or without a certificate.
    pub(crate) fn certificate_names(&self) -> Vec<String> {
        match self {
            Socket::Tls(socket) => socket.certificate_names().into_vec(),
            Socket::Tcp(_) | Socket::Unix(_) => Vec::new(),
        }
    }

    /// Puts two halves together again.
    pub(crate) fn join(reader: ReadHalf, writer: WriteHalf) -> Socket {
        let joined = match (reader, writer) {
            (ReadHalf::Tcp(reader), WriteHalf::Tcp(writer)) => {
                reader.reunite(writer).ok().map(Socket::Tcp)
            }
            (ReadHalf::Tls(reader), WriteHalf::Tls(writer)) => {
                Some(Socket::Tls(Box::new(SecureSocket::join(reader, writer))))
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
            WriteHalf::Tls(writer) => writer.try_write(bytes),
            WriteHalf::Unix(writer) => writer.try_write(bytes),
        }
    }

    /// May be dropped half-way.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            WriteHalf::Tcp(writer) => writer.writable().await,
            WriteHalf::Tls(writer) => writer.writable().await,
            WriteHalf::Unix(writer) => writer.writable().await,
        }
    }

    /// Whether bytes that were taken have not left: only behind TLS, where taking and sending are
    /// two things.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            WriteHalf::Tls(writer) => writer.has_unsent(),
            WriteHalf::Tcp(_) | WriteHalf::Unix(_) => false,
        }
    }

    /// Sends such bytes, as far as the socket takes them. `true`: it took some.
    #[inline]
    pub(crate) fn try_flush(&self) -> io::Result<bool> {
        match self {
            WriteHalf::Tls(writer) => writer.try_flush(),
            WriteHalf::Tcp(_) | WriteHalf::Unix(_) => Ok(false),
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
            ReadHalf::Tls(reader) => Pin::new(reader).poll_read(context, buffer),
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
            Socket::Tls(socket) => Pin::new(socket).poll_read(context, buffer),
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
            Socket::Tls(socket) => Pin::new(socket).poll_write(context, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Socket::Tls(socket) => Pin::new(socket).poll_flush(context),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Tls(socket) => Pin::new(socket).poll_shutdown(context),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
