//! Why certificates cannot be used.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why certificates cannot be used. The operator acts on it: a server does not start, or keeps
/// those it has; a client does not connect.
#[derive(Debug)]
pub enum TlsError {
    /// A file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file has no certificate in it.
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A file has no private key in it.
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// A file has something else in it, or damaged text.
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        problem: String,
    },
    /// The private key is not that of the certificate.
    Mismatch {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The certificate has expired.
    Expired {
        /// The file.
        path: PathBuf,
        /// When, as people read it.
        at: String,
    },
    /// The certificate is not valid yet.
    NotYetValid {
        /// The file.
        path: PathBuf,
        /// From when on it is, as people read it.
        from: String,
    },
    /// rustls does not take them.
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::Unreadable { path, error } => {
                write!(f, "cannot read {}: {error}", path.display())
            }
            TlsError::NoCertificate { path } => write!(
                f,
                "{}: there is no certificate in it; it must have one in PEM, which begins with -----BEGIN CERTIFICATE-----",
                path.display()
            ),
            TlsError::NoKey { path } => write!(
                f,
                "{}: there is no private key in it; it must have one in PEM without a passphrase, which begins with \
                 -----BEGIN PRIVATE KEY-----",
                path.display()
            ),
            TlsError::Malformed { path, problem } => {
                write!(f, "{}: this is not PEM: {problem}", path.display())
            }
            TlsError::Mismatch { cert, key } => write!(
                f,
                "the private key in {} is not that of the certificate in {}; are both of the same renewal, \
                 and is the server's own certificate the first in its file?",
                key.display(),
                cert.display()
            ),
            TlsError::Expired { path, at } => write!(
                f,
                "the certificate in {} expired at {at}; renew it, or see whether this machine's clock is right",
                path.display()
            ),
            TlsError::NotYetValid { path, from } => write!(
                f,
                "the certificate in {} is valid only from {from} on; see whether this machine's clock is right",
                path.display()
            ),
            TlsError::Unusable { path, problem } => {
                write!(
                    f,
                    "the certificate in {} cannot be used: {problem}",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for TlsError {}
