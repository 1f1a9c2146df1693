//! A socket behind TLS, whole or in two halves.
//!
//! Both halves share the state of rustls, and both belong to one task of one core, so a `RefCell`
//! is enough. Neither keeps it borrowed beyond one call.
//!
//! What was written is encrypted at once. If the socket does not take all of it, the rest stays
//! with rustls: *unsent*. Nothing more is encrypted before that is gone, so it is bounded by what
//! one write takes, [`WRITE_BYTES_MAX`].

use std::cell::RefCell;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tls::Names;
use tls::rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, tcp};

/// How much is encrypted before the socket has taken it: four records.
const WRITE_BYTES_MAX: usize = 64 * 1024;

type Session = Rc<RefCell<ServerConnection>>;

/// A connection whose handshake is done.
pub(crate) struct SecureSocket {
    reader: SecureReadHalf,
    writer: SecureWriteHalf,
}

pub(crate) struct SecureReadHalf {
    socket: tcp::OwnedReadHalf,
    session: Session,
}

pub(crate) struct SecureWriteHalf {
    socket: tcp::OwnedWriteHalf,
    session: Session,
}

impl SecureSocket {
    pub(super) fn new(stream: TcpStream, mut session: ServerConnection) -> Self {
        session.set_buffer_limit(Some(WRITE_BYTES_MAX));
        let session = Rc::new(RefCell::new(session));
        let (reader, writer) = stream.into_split();
        SecureSocket {
            reader: SecureReadHalf {
                socket: reader,
                session: session.clone(),
            },
            writer: SecureWriteHalf {
                socket: writer,
                session,
            },
        }
    }

    /// The names in the certificate that the client showed; none, if it showed none.
    pub(crate) fn certificate_names(&self) -> Names {
        let session = self.reader.session.borrow();
        let own = session.peer_certificates().and_then(|chain| chain.first());
        own.map(Names::of).unwrap_or_default()
    }

    pub(crate) fn split(self) -> (SecureReadHalf, SecureWriteHalf) {
        (self.reader, self.writer)
    }

    pub(crate) fn join(reader: SecureReadHalf, writer: SecureWriteHalf) -> SecureSocket {
        assert!(
            Rc::ptr_eq(&reader.session, &writer.session),
            "they are of one socket"
        );
        SecureSocket { reader, writer }
    }
}

impl AsyncRead for SecureReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let half = self.get_mut();
        let mut session = half.session.borrow_mut();
        loop {
            let mut plain = session.reader();
            match plain.fill_buf() {
                // Empty: the peer has said that nothing more comes.
                Ok(bytes) => {
                    let read_bytes = bytes.len().min(buffer.remaining());
                    buffer.put_slice(&bytes[..read_bytes]);
                    plain.consume(read_bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            let mut socket = Polled {
                socket: &mut half.socket,
                context,
            };
            match session.read_tls(&mut socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
            // At the end of the stream it finds nothing, and the next look at the plain bytes says
            // that the peer went without a word.
            if let Err(error) = session.process_new_packets() {
                let error = io::Error::new(io::ErrorKind::InvalidData, error);
                return Poll::Ready(Err(error));
            }
        }
    }
}

impl SecureWriteHalf {
    /// Encrypts some of the bytes and writes what the socket takes. How many were encrypted; they
    /// are on their way. `WouldBlock`: none, since the socket has not taken the last ones.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut session = self.session.borrow_mut();
        self.try_send(&mut session)?;
        if session.wants_write() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let written = session.writer().write(bytes)?;
        self.try_send(&mut session)?;
        Ok(written)
    }

    /// Writes what the socket takes of the bytes that are encrypted. `true`: it took some.
    pub(crate) fn try_flush(&self) -> io::Result<bool> {
        self.try_send(&mut self.session.borrow_mut())
    }

    /// Whether there are encrypted bytes that the socket has not taken.
    pub(crate) fn has_unsent(&self) -> bool {
        self.session.borrow().wants_write()
    }

    /// May be dropped half-way.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    fn try_send(&self, session: &mut ServerConnection) -> io::Result<bool> {
        let mut has_sent = false;
        while session.wants_write() {
            match session.write_tls(&mut Tried(&self.socket)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => has_sent = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(has_sent)
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut session = self.session.borrow_mut();
        while session.wants_write() {
            let mut socket = Polled {
                socket: &mut self.socket,
                context,
            };
            match session.write_tls(&mut socket) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for SecureSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().reader).poll_read(context, buffer)
    }
}

impl AsyncWrite for SecureSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let writer = &mut self.get_mut().writer;
        ready!(writer.poll_send(context))?;
        let written = writer.session.borrow_mut().writer().write(bytes)?;
        // What the socket does not take now goes with the next write, or with a flush.
        let _ = writer.poll_send(context)?;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writer.poll_send(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let writer = &mut self.get_mut().writer;
        // Said once, however often this is called.
        writer.session.borrow_mut().send_close_notify();
        ready!(writer.poll_send(context))?;
        Pin::new(&mut writer.socket).poll_shutdown(context)
    }
}

/// One half of a socket, as rustls reads and writes it. `WouldBlock` means that the task is woken.
struct Polled<'a, 'b, S> {
    socket: &'a mut S,
    context: &'a mut Context<'b>,
}

fn blocking<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Read for Polled<'_, '_, tcp::OwnedReadHalf> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        let poll = Pin::new(&mut *self.socket).poll_read(self.context, &mut buffer);
        blocking(poll)?;
        Ok(buffer.filled().len())
    }
}

impl Write for Polled<'_, '_, tcp::OwnedWriteHalf> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        blocking(Pin::new(&mut *self.socket).poll_write(self.context, bytes))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        blocking(Pin::new(&mut *self.socket).poll_write_vectored(self.context, parts))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The writing half, for a caller that does not wait.
struct Tried<'a>(&'a tcp::OwnedWriteHalf);

impl Write for Tried<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
