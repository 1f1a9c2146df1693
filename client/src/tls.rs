//! TLS to the server: which authority to trust, and what to show.

use crate::error::ConnectError;
use crate::stream::Stream;
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tls::rustls::ClientConfig;
use tls::rustls::pki_types::ServerName;
use tls::{Identity, VersionMin, client_config, read_roots};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How to speak TLS with the server: see [`Builder::tls`](crate::Builder::tls).
///
/// The files are PEM. They are read at [`connect`](crate::Builder::connect), and again for each
/// connection that is opened later, so a renewed certificate needs no restart; if they cannot be
/// read then, those from before are used.
///
/// ```
/// use fencepost::Tls;
///
/// let tls = Tls::with_ca("/etc/fencepost/ca.pem")
///     .identity("/etc/billing/cert.pem", "/etc/billing/key.pem");
/// let builder = fencepost::Client::builder().address("locks.internal:7400").tls(tls);
/// ```
#[derive(Clone, Debug)]
#[must_use = "has no effect until it is given to a builder"]
pub struct Tls {
    ca_file: PathBuf,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

impl Tls {
    /// Trusts servers whose certificate was signed by an authority in this file. Those that come
    /// with the operating system are not trusted.
    pub fn with_ca(ca_file: impl Into<PathBuf>) -> Self {
        Tls {
            ca_file: ca_file.into(),
            identity: None,
            server_name: None,
        }
    }

    /// Shows this certificate to a server that asks for one.
    pub fn identity(mut self, cert_file: impl Into<PathBuf>, key_file: impl Into<PathBuf>) -> Self {
        self.identity = Some((cert_file.into(), key_file.into()));
        self
    }

    /// The name that the server's certificate must have. Without this, the host of the address
    /// that was connected to, be it a name or a number.
    pub fn server_name(mut self, server_name: impl Into<String>) -> Self {
        self.server_name = Some(server_name.into());
        self
    }
}

/// What connections are secured with.
pub(crate) struct Connector {
    tls: Tls,
    server_name: Option<ServerName<'static>>,
    config: Mutex<Arc<ClientConfig>>,
}

impl Connector {
    /// Reads the files for the first time.
    pub(crate) fn new(tls: Tls) -> Result<Self, ConnectError> {
        let server_name = match &tls.server_name {
            Some(name) => Some(parse_name(name)?),
            None => None,
        };
        let config = Mutex::new(read(&tls)?);
        Ok(Connector {
            tls,
            server_name,
            config,
        })
    }

    /// Shakes hands on a stream that is open.
    pub(crate) async fn secure(
        &self,
        address: &str,
        stream: TcpStream,
    ) -> Result<Stream, ConnectError> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => parse_name(tls::host_of(address))?,
        };
        let config = self.fresh_config();
        match TlsConnector::from(config).connect(name, stream).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
            Err(error) => Err(failure(address, &error)),
        }
    }

    fn fresh_config(&self) -> Arc<ClientConfig> {
        let mut config = self.config.lock();
        if let Ok(fresh) = read(&self.tls) {
            *config = fresh;
        }
        Arc::clone(&config)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tls.fmt(f)
    }
}

fn read(tls: &Tls) -> Result<Arc<ClientConfig>, ConnectError> {
    let config = || {
        let roots = read_roots(&tls.ca_file)?;
        let identity = match &tls.identity {
            Some((cert, key)) => Some(Identity::read(cert, key)?),
            None => None,
        };
        client_config(roots, identity, VersionMin::Tls12)
    };
    config().map_err(|error| ConnectError::Certificates {
        message: error.to_string(),
    })
}

fn parse_name(name: &str) -> Result<ServerName<'static>, ConnectError> {
    tls::server_name(name).ok_or_else(|| ConnectError::Certificates {
        message: format!("{name:?} is no name that a certificate can have"),
    })
}

/// What an error on a stream behind TLS means. One side's refusal of the other's certificate may
/// come with the first bytes that are read, after the handshake.
pub(crate) fn failure(address: &str, error: &io::Error) -> ConnectError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(error) => ConnectError::Handshake {
            address: address.to_owned(),
            message: tls::reason(error),
        },
        None => ConnectError::Unreachable {
            address: address.to_owned(),
            kind: error.kind(),
            message: error.to_string(),
        },
    }
}
