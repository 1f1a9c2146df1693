//! The way into the HTTP side: a look at the first bytes, and a handshake where it speaks TLS.

use crate::conn::secure::{Certificates, Guess};
use crate::observe::notices::{Notice, Notices};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tls::Names;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

/// As much as a guess needs.
const FIRST_BYTES: usize = 16;

/// What connections that come in are measured against.
pub(super) struct Doorway {
    /// `None`: this side speaks plain HTTP.
    pub(super) certificates: Option<Arc<Certificates>>,
    pub(super) notices: Notices,
    /// How long the first bytes may take, and how long the handshake.
    pub(super) patience: Duration,
}

/// The names in the certificate that a client showed, as each of its requests carries them.
#[derive(Clone)]
pub(super) struct CertificateNames(pub(super) Arc<[String]>);

/// A connection that was let in.
pub(super) struct Entered {
    pub(super) stream: Box<dyn Stream>,
    /// Empty without a certificate.
    pub(super) names: CertificateNames,
}

impl Entered {
    fn new(stream: impl Stream + 'static, names: Vec<String>) -> Entered {
        Entered {
            stream: Box::new(stream),
            names: CertificateNames(names.into()),
        }
    }
}

/// A connection, with TLS or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Doorway {
    /// Lets a connection in. `None`: it was told why not, or went. May be dropped half-way.
    pub(super) async fn enter(
        &self,
        mut stream: TcpStream,
        address: SocketAddr,
    ) -> Option<Entered> {
        let mut first = [0; FIRST_BYTES];
        let peeked = tokio::time::timeout(self.patience, stream.peek(&mut first)).await;
        let first = match peeked {
            Ok(Ok(bytes)) if bytes > 0 => &first[..bytes],
            _ => return None,
        };
        match (&self.certificates, tls::may_be_client_hello(first)) {
            (None, false) => Some(Entered::new(stream, Vec::new())),
            (None, true) => {
                self.notices.say(Notice::OnlyPlain, |unsaid| {
                    tracing::info!(
                        %address,
                        unsaid,
                        "a client of HTTP speaks TLS, and this port does not: use http://, or give --tls-cert-file"
                    );
                });
                self.tell(&mut stream, &tls::ALERT_REFUSED).await;
                None
            }
            (Some(certificates), false) => {
                certificates.count_failed();
                let guess = Guess::of(first);
                self.notices.say(Notice::NotTls, |unsaid| {
                    tracing::info!(
                        %address,
                        unsaid,
                        "connection refused on the HTTP port, which speaks TLS only: {guess}"
                    );
                });
                self.tell(&mut stream, &guess.answer()).await;
                None
            }
            (Some(certificates), true) => self.shake_hands(certificates, stream, address).await,
        }
    }

    async fn shake_hands(
        &self,
        certificates: &Certificates,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Option<Entered> {
        let accepting = TlsAcceptor::from(certificates.config()).accept(stream);
        let error = match tokio::time::timeout(self.patience, accepting).await {
            Ok(Ok(stream)) => {
                certificates.count_done();
                let chain = stream.get_ref().1.peer_certificates();
                let own = chain.and_then(|chain| chain.first());
                let names = own.map(|own| Names::of(own).into_vec());
                return Some(Entered::new(stream, names.unwrap_or_default()));
            }
            Ok(Err(error)) => error,
            Err(_elapsed) => io::Error::new(io::ErrorKind::TimedOut, "it did not come in time"),
        };
        certificates.count_failed();
        self.notices.say(Notice::HandshakeFailed, |unsaid| {
            let reason = tls::reason_of_io(&error);
            tracing::info!(%address, unsaid, "TLS handshake failed on the HTTP port: {reason}");
        });
        None
    }

    /// Writes a last word and waits until the peer has closed: closing at once with unread input
    /// would take the word with it.
    async fn tell(&self, stream: &mut TcpStream, bytes: &[u8]) {
        let telling = async {
            stream.write_all(bytes).await?;
            stream.shutdown().await?;
            let mut ignored = [0; 1024];
            while tokio::io::AsyncReadExt::read(stream, &mut ignored).await? > 0 {}
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(super::LINGER, telling).await;
    }
}
