//! The settings of TLS that are more than a path, and the rules about them.

use super::{Config, SettingError};
use cluster::peer::PeerFiles;
use std::fmt;

/// Which certificates clients have to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum ClientAuth {
    /// None are asked for.
    Off,
    /// A client may show one; then it must be a good one.
    Optional,
    /// Every client must show one.
    Required,
}

/// The ports that speak TLS where there is a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub struct TlsPorts {
    /// That of native clients.
    pub native: bool,
    /// That of clients of Redis. A Unix socket never speaks TLS.
    pub redis: bool,
    /// That of HTTP.
    pub http: bool,
}

impl TlsPorts {
    /// All of them.
    pub const ALL: TlsPorts = TlsPorts {
        native: true,
        redis: true,
        http: true,
    };

    /// Reads names with commas between them. The error says what would be right.
    pub(super) fn parse(text: &str) -> Result<TlsPorts, String> {
        let mut ports = TlsPorts {
            native: false,
            redis: false,
            http: false,
        };
        for name in text.split(',').map(str::trim) {
            match name {
                "native" => ports.native = true,
                "redis" => ports.redis = true,
                "http" => ports.http = true,
                _ => {
                    return Err(format!(
                        "{name:?} is no port, write some of native, redis and http with commas between them"
                    ));
                }
            }
        }
        Ok(ports)
    }
}

impl fmt::Display for TlsPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            ("native", self.native),
            ("redis", self.redis),
            ("http", self.http),
        ];
        let names: Vec<&str> = all
            .iter()
            .filter(|port| port.1)
            .map(|port| port.0)
            .collect();
        f.write_str(&names.join(","))
    }
}

impl Config {
    /// Whether any port speaks TLS.
    pub fn has_tls(&self) -> bool {
        self.tls_cert_file.is_some()
    }

    /// The rules that concern several of these settings.
    pub(super) fn check_tls(&self) -> Result<(), SettingError> {
        let refuse = |setting, problem: &str| {
            let problem = problem.to_owned();
            Err(SettingError { setting, problem })
        };
        match (&self.tls_cert_file, &self.tls_key_file) {
            (Some(_), None) => {
                return refuse(
                    "tls_key_file",
                    "there is a certificate without its private key; give the file of the key with --tls-key-file",
                );
            }
            (None, Some(_)) => {
                return refuse(
                    "tls_cert_file",
                    "there is a private key without its certificate; give the file of the certificate with --tls-cert-file",
                );
            }
            _ => {}
        }
        let asks = self.tls_client_auth != ClientAuth::Off;
        if asks && self.tls_client_ca_file.is_none() {
            return refuse(
                "tls_client_auth",
                "clients are asked for certificates, but nothing says which are good; give the authority that signs them \
                 with --tls-client-ca-file",
            );
        }
        if !asks && self.tls_client_ca_file.is_some() {
            return refuse(
                "tls_client_ca_file",
                "it says which certificates of clients are good, but none are asked for; give --tls-client-auth too, \
                 optional or required",
            );
        }
        if asks && !self.has_tls() {
            return refuse(
                "tls_client_auth",
                "clients show certificates only over TLS, and the server has no certificate of its own; \
                 give --tls-cert-file and --tls-key-file",
            );
        }
        let own = (&self.peer_tls_cert_file, &self.peer_tls_key_file);
        if self.peer_tls_ca_file.is_none() && own != (&None, &None) {
            return refuse(
                "peer_tls_ca_file",
                "there is a certificate for other nodes, but nothing says which of theirs are good; give the authority \
                 that signs them with --peer-tls-ca-file",
            );
        }
        if own.0.is_some() != own.1.is_some() {
            return refuse(
                "peer_tls_cert_file",
                "a certificate and its private key belong together; give both --peer-tls-cert-file and --peer-tls-key-file, \
                 or neither",
            );
        }
        if self.peer_tls_ca_file.is_some() && self.peer_files().is_none() {
            return refuse(
                "peer_tls_cert_file",
                "nodes show each other certificates, and this one has none; give --peer-tls-cert-file and \
                 --peer-tls-key-file, or --tls-cert-file and --tls-key-file",
            );
        }
        Ok(())
    }

    /// What this node shows to others. `None`: they do not speak TLS.
    pub(crate) fn peer_files(&self) -> Option<PeerFiles> {
        let cert = self
            .peer_tls_cert_file
            .as_ref()
            .or(self.tls_cert_file.as_ref());
        let key = self
            .peer_tls_key_file
            .as_ref()
            .or(self.tls_key_file.as_ref());
        Some(PeerFiles {
            ca: self.peer_tls_ca_file.clone()?,
            cert: cert?.clone(),
            key: key?.clone(),
            server_name: None,
        })
    }
}
