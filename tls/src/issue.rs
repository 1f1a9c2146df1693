//! Authorities that live as long as a test or a measurement, and what they sign.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use std::path::{Path, PathBuf};

/// An authority whose certificate, and those that it signs, are files in one directory. All of them
/// are for `localhost` and `127.0.0.1`.
pub struct Authority {
    dir: PathBuf,
    name: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its private key, as PEM files.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl Authority {
    /// Makes one, and writes `NAME.pem`.
    pub fn new(dir: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("ring makes keys");
        let own = params.self_signed(&key).expect("it signs itself");
        let authority = Authority {
            dir: dir.to_owned(),
            name: name.to_owned(),
            issuer: Issuer::new(params, key),
        };
        std::fs::write(authority.file(), own.pem()).expect("the directory can be written to");
        authority
    }

    /// The file of its own certificate.
    pub fn file(&self) -> PathBuf {
        self.dir.join(format!("{}.pem", self.name))
    }

    /// Signs a certificate with this common name, and this name as an alternative name of the kind
    /// URI. Writes `AUTHORITY-NAME.pem` and `AUTHORITY-NAME.key`, over those that are there.
    pub fn issue(&self, name: &str) -> Issued {
        self.issue_until(name, 2100)
    }

    /// The same, but it expired long ago.
    pub fn issue_expired(&self, name: &str) -> Issued {
        self.issue_until(name, 2020)
    }

    fn issue_until(&self, name: &str, year: i32) -> Issued {
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(hosts).expect("they are names");
        let uri = format!("urn:fencepost:{name}");
        let uri = SanType::URI(uri.try_into().expect("it is ASCII"));
        params.subject_alt_names.push(uri);
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().expect("ring makes keys");
        let signed = params.signed_by(&key, &self.issuer);
        let signed = signed.expect("the authority signs");
        let file = |ending| self.dir.join(format!("{}-{name}.{ending}", self.name));
        let issued = Issued {
            cert: file("pem"),
            key: file("key"),
        };
        std::fs::write(&issued.cert, signed.pem()).expect("the directory can be written to");
        std::fs::write(&issued.key, key.serialize_pem()).expect("the directory can be written to");
        issued
    }
}
