//! Certificates, keys and authorities, as they are in PEM files.

use crate::error::TlsError;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};

/// A certificate with those that signed it, and its private key.
pub struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) cert_file: PathBuf,
    pub(crate) key_file: PathBuf,
}

impl Identity {
    /// Reads both files. Whether the key is the certificate's own is seen when rustls gets them.
    pub fn read(cert_file: &Path, key_file: &Path) -> Result<Identity, TlsError> {
        let chain = read_certificates(cert_file)?;
        let bytes = read(key_file)?;
        let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
            pem::Error::NoItemsFound => TlsError::NoKey {
                path: key_file.to_owned(),
            },
            error => malformed(key_file, &error),
        })?;
        Ok(Identity {
            chain,
            key,
            cert_file: cert_file.to_owned(),
            key_file: key_file.to_owned(),
        })
    }

    /// The certificates, the own one first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The file that the certificates are from.
    pub fn cert_file(&self) -> &Path {
        &self.cert_file
    }
}

/// Reads the authorities in a file. There may be several, so that one can follow another.
pub fn read_roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate).map_err(|error| TlsError::Unusable {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
    }
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates = certificates.map_err(|error| malformed(path, &error))?;
    match certificates.is_empty() {
        true => Err(TlsError::NoCertificate {
            path: path.to_owned(),
        }),
        false => Ok(certificates),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| TlsError::Unreadable {
        path: path.to_owned(),
        error,
    })
}

fn malformed(path: &Path, error: &pem::Error) -> TlsError {
    TlsError::Malformed {
        path: path.to_owned(),
        problem: error.to_string(),
    }
}
