//! The handshake: from the first bytes of a connection to where both sides know each other.
//!
//! A handshake costs a core some tenths of a millisecond, and a crowd of clients that come back at
//! once costs it as many of those in a row. So the steps of different connections take turns: each
//! waits for the core's one permit, and gives everything else on the core a chance before it hands
//! the permit on. A request of a connection that is open waits for one step at most.
//!
//! How long a handshake may take and how many there may be is the caller's affair: the peer is a
//! stranger.

use super::halves::SecureSocket;
use std::io;
use std::sync::Arc;
use tls::rustls::{self, ServerConfig, ServerConnection};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// How much is read at once: a client's hello has a few hundred bytes, its certificates some
/// thousand.
const READ_BYTES: usize = 4096;

/// How many of a peer's first bytes are kept to guess what it speaks.
const FIRST_BYTES_MAX: usize = 16;

/// Why there is no TLS with a peer.
pub(crate) enum NotSecured {
    /// It went without a word.
    Gone,
    /// It speaks something else. It can be told so.
    Plain { stream: TcpStream, first: Vec<u8> },
    /// It went half-way, or the network did.
    Broken(io::Error),
    /// One of the two does not accept the other.
    Refused(rustls::Error),
}

impl From<io::Error> for NotSecured {
    fn from(error: io::Error) -> Self {
        NotSecured::Broken(error)
    }
}

impl From<rustls::Error> for NotSecured {
    fn from(error: rustls::Error) -> Self {
        NotSecured::Refused(error)
    }
}

/// Shakes hands. May be dropped half-way: then the connection is closed.
pub(crate) async fn shake_hands(
    mut stream: TcpStream,
    config: Arc<ServerConfig>,
    turns: &Semaphore,
) -> Result<SecureSocket, NotSecured> {
    let mut bytes = vec![0; READ_BYTES];
    let mut session: Option<ServerConnection> = None;
    loop {
        let read_bytes = match stream.read(&mut bytes).await {
            Ok(0) | Err(_) if session.is_none() => return Err(NotSecured::Gone),
            Ok(0) => return Err(NotSecured::Broken(io::ErrorKind::UnexpectedEof.into())),
            read => read?,
        };
        let mut unread = &bytes[..read_bytes];
        let session = match &mut session {
            Some(session) => session,
            None if tls::may_be_client_hello(unread) => {
                // rustls checks the rest. Nothing is made for peers that have not said anything.
                session.insert(ServerConnection::new(config.clone())?)
            }
            None => {
                let first = unread[..read_bytes.min(FIRST_BYTES_MAX)].to_vec();
                return Err(NotSecured::Plain { stream, first });
            }
        };
        let mut result = Ok(());
        while !unread.is_empty() && result.is_ok() {
            session.read_tls(&mut unread)?;
            let _turn = turns.acquire().await;
            result = session.process_new_packets().map(|_| ());
            tokio::task::yield_now().await;
        }
        while session.wants_write() {
            // The peer is told what was wrong, too.
            stream.writable().await?;
            match session.write_tls(&mut Unbuffered(&stream)) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.into()),
                _ => {}
            }
        }
        result?;
        if !session.is_handshaking() {
            break;
        }
    }
    let session = session.expect("it was made before it was completed");
    Ok(SecureSocket::new(stream, session))
}

/// Writes what the socket takes.
struct Unbuffered<'a>(&'a TcpStream);

impl io::Write for Unbuffered<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
