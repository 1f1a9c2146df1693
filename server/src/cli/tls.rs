//! Flags for TLS: which authority to trust, and what to show.

use super::failure::Failure;
use clap::Args;
use cluster::peer::{PeerFiles, PeerTls, Wire};
use fencepost::Tls;
use std::path::PathBuf;

/// How to speak TLS with a server or a node.
#[derive(Args)]
pub(super) struct TlsArgs {
    /// Speak TLS, and trust servers whose certificate was signed by an authority in this PEM file
    #[arg(
        long,
        value_name = "FILE",
        env = "FENCEPOST_TLS_CA",
        hide_env_values = true,
        help_heading = "TLS"
    )]
    tls_ca: Option<PathBuf>,
    /// The certificate to show to a server that asks for one, in PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "FENCEPOST_TLS_CERT",
        hide_env_values = true,
        help_heading = "TLS"
    )]
    tls_cert: Option<PathBuf>,
    /// The private key of that certificate, in PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "FENCEPOST_TLS_KEY",
        hide_env_values = true,
        help_heading = "TLS"
    )]
    tls_key: Option<PathBuf>,
    /// The name that the server's certificate must have, if it is not the host of its address
    #[arg(
        long,
        value_name = "NAME",
        env = "FENCEPOST_TLS_SERVER_NAME",
        hide_env_values = true,
        help_heading = "TLS"
    )]
    tls_server_name: Option<String>,
}

impl TlsArgs {
    /// `None`: without TLS.
    pub(super) fn tls(&self) -> Result<Option<Tls>, Failure> {
        let Some(ca) = &self.tls_ca else {
            return match (&self.tls_cert, &self.tls_server_name) {
                (None, None) => Ok(None),
                _ => Err(Failure::usage(
                    "there is no TLS without --tls-ca, the authority that signed the server's certificate",
                )),
            };
        };
        let mut tls = Tls::with_ca(ca);
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => tls = tls.identity(cert, key),
            (None, None) => {}
            _ => {
                return Err(Failure::usage(
                    "--tls-cert and --tls-key belong together: a certificate and its private key",
                ));
            }
        }
        if let Some(name) = &self.tls_server_name {
            tls = tls.server_name(name);
        }
        Ok(Some(tls))
    }

    /// The way to the peer ports of nodes, with TLS or without.
    pub(super) fn wire(&self) -> Result<Wire, Failure> {
        let Some(ca) = &self.tls_ca else {
            return Ok(Wire::default());
        };
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Err(Failure::usage(
                "nodes want to see a certificate of the authority that signs theirs: give --tls-cert and --tls-key too",
            ));
        };
        let files = PeerFiles {
            cert: cert.clone(),
            key: key.clone(),
            ca: ca.clone(),
            server_name: self.tls_server_name.clone(),
        };
        let tls = PeerTls::read(files).map_err(Failure::usage)?;
        Ok(Wire::new(Some(tls)))
    }
}
