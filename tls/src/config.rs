//! What rustls is told.

use crate::error::TlsError;
use crate::files::Identity;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use std::sync::Arc;

/// The oldest version that is spoken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub enum VersionMin {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl VersionMin {
    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        static FROM_12: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        match self {
            VersionMin::Tls12 => &FROM_12,
            VersionMin::Tls13 => &FROM_12[..1],
        }
    }
}

/// Which certificates a server asks its clients for.
pub enum Clients {
    /// None.
    Unasked,
    /// One of these authorities, of clients that have one.
    MayShow(RootCertStore),
    /// One of these authorities, of every client.
    MustShow(RootCertStore),
}

/// What a server tells rustls.
pub fn server_config(
    identity: Identity,
    clients: Clients,
    version_min: VersionMin,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = provider();
    let verifier = match clients {
        Clients::Unasked => None,
        Clients::MayShow(roots) => Some((roots, true)),
        Clients::MustShow(roots) => Some((roots, false)),
    };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(version_min.versions())
        .expect("ring has suites for both versions");
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some((roots, may_be_absent)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            let verifier = match may_be_absent {
                true => verifier.allow_unauthenticated(),
                false => verifier,
            };
            // It fails only without authorities, and a file of them has one.
            let verifier = verifier.build().map_err(|error| TlsError::Unusable {
                path: identity.cert_file.clone(),
                problem: error.to_string(),
            })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let files = (identity.cert_file, identity.key_file);
    let mut config = builder
        .with_single_cert(identity.chain, identity.key)
        .map_err(|error| unusable(error, files))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// What a client tells rustls. It trusts these authorities, and shows its certificate to servers
/// that ask for one.
pub fn client_config(
    roots: RootCertStore,
    identity: Option<Identity>,
    version_min: VersionMin,
) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(version_min.versions())
        .expect("ring has suites for both versions")
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let files = (identity.cert_file, identity.key_file);
            builder
                .with_client_auth_cert(identity.chain, identity.key)
                .map_err(|error| unusable(error, files))?
        }
    };
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn unusable(error: Error, (cert, key): (std::path::PathBuf, std::path::PathBuf)) -> TlsError {
    match error {
        Error::InconsistentKeys(_) => TlsError::Mismatch { cert, key },
        error => TlsError::Unusable {
            path: cert,
            problem: error.to_string(),
        },
    }
}
