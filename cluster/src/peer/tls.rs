//! TLS between nodes: each shows its certificate, and each wants to see one of the same authority.
//!
//! The cluster's key still has to be proved (`hello.rs`). TLS adds that no other machine reads or
//! changes what goes between nodes, and that an address is the node it should be: a certificate
//! must name the host by which its node is reached.

use super::transport::{Transport, no_delay};
use parking_lot::RwLock;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;
use tls::rustls::{ClientConfig, ServerConfig};
use tls::{
    Clients, Facts, Identity, TlsError, VersionMin, client_config, read_roots, server_config,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{Accept, TlsAcceptor, TlsConnector, TlsStream};

/// The files of a node, or of a tool that asks nodes. All are PEM.
#[derive(Clone, Debug)]
pub struct PeerFiles {
    /// Its certificate, which must be good for both sides of a connection.
    pub cert: PathBuf,
    /// The private key of that certificate.
    pub key: PathBuf,
    /// The authorities that sign the certificates of all nodes.
    pub ca: PathBuf,
    /// The name that every node's certificate has; `None`: the host of its address.
    pub server_name: Option<String>,
}

/// What a node shows to others and asks of them, exchanged at a reload.
#[derive(Debug)]
pub struct PeerTls {
    files: PeerFiles,
    current: RwLock<Current>,
}

#[derive(Debug)]
struct Current {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    not_after: SystemTime,
}

impl PeerTls {
    /// Reads the files for the first time.
    pub fn read(files: PeerFiles) -> Result<Arc<Self>, TlsError> {
        let current = RwLock::new(Current::read(&files)?);
        Ok(Arc::new(PeerTls { files, current }))
    }

    /// Reads them again. Connections that are open go on with what they have; what cannot be used
    /// changes nothing.
    pub fn reload(&self) -> Result<(), TlsError> {
        let current = Current::read(&self.files)?;
        *self.current.write() = current;
        Ok(())
    }

    /// The file of the certificate.
    pub fn cert_file(&self) -> &Path {
        &self.files.cert
    }

    /// When the certificate expires.
    pub fn not_after(&self) -> SystemTime {
        self.current.read().not_after
    }
}

impl Current {
    fn read(files: &PeerFiles) -> Result<Self, TlsError> {
        let identity = || Identity::read(&files.cert, &files.key);
        let facts = Facts::of(&identity()?, SystemTime::now())?;
        let roots = read_roots(&files.ca)?;
        let clients = Clients::MustShow(roots.clone());
        Ok(Current {
            server: server_config(identity()?, clients, VersionMin::Tls13)?,
            client: client_config(roots, Some(identity()?), VersionMin::Tls13)?,
            not_after: facts.not_after,
        })
    }
}

/// TCP, with TLS or without: what nodes and tools use.
#[derive(Clone, Default, Debug)]
pub struct Wire {
    tls: Option<Arc<PeerTls>>,
}

impl Wire {
    /// `None`: without TLS.
    pub fn new(tls: Option<Arc<PeerTls>>) -> Self {
        Wire { tls }
    }
}

/// A connection of a [`Wire`].
pub struct WireStream(State);

enum State {
    Plain(TcpStream),
    /// Accepted; the handshake is done by the first read or write, so that accepting never waits
    /// for a peer.
    Accepted(Box<Accept<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport for Wire {
    type Stream = WireStream;
    type Listener = TcpListener;

    async fn connect(&self, address: &str) -> io::Result<WireStream> {
        let stream = no_delay(TcpStream::connect(address).await?);
        let Some(tls) = &self.tls else {
            return Ok(WireStream(State::Plain(stream)));
        };
        let name = tls.files.server_name.as_deref();
        let name = name.unwrap_or_else(|| tls::host_of(address));
        let name = tls::server_name(name).ok_or_else(|| {
            let message = format!("{name:?} is no name that a certificate can have");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        let config = tls.current.read().client.clone();
        let stream = TlsConnector::from(config).connect(name, stream).await?;
        Ok(WireStream(State::Tls(Box::new(stream.into()))))
    }

    async fn accept(&self, listener: &mut TcpListener) -> io::Result<(WireStream, String)> {
        let (stream, address) = listener.accept().await?;
        let stream = no_delay(stream);
        let state = match &self.tls {
            None => State::Plain(stream),
            Some(tls) => {
                let config = tls.current.read().server.clone();
                State::Accepted(Box::new(TlsAcceptor::from(config).accept(stream)))
            }
        };
        Ok((WireStream(state), address.to_string()))
    }
}

impl State {
    /// Completes the handshake of a connection that was accepted.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let State::Accepted(accept) = self {
            let stream = ready!(Pin::new(accept).poll(context))?;
            *self = State::Tls(Box::new(stream.into()));
        }
        Poll::Ready(Ok(()))
    }
}

/// Has the stream that it is do what is asked, once there is one.
macro_rules! delegate {
    ($self:ident, $context:ident, $method:ident($($argument:ident),*)) => {{
        let state = &mut $self.get_mut().0;
        ready!(state.poll_ready($context))?;
        match state {
            State::Plain(stream) => Pin::new(stream).$method($context $(, $argument)*),
            State::Tls(stream) => Pin::new(stream).$method($context $(, $argument)*),
            State::Accepted(_) => unreachable!("the handshake is done"),
        }
    }};
}

impl AsyncRead for WireStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        delegate!(self, context, poll_read(buffer))
    }
}

impl AsyncWrite for WireStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, context, poll_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, context, poll_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, context, poll_flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, context, poll_shutdown())
    }
}
