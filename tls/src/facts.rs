//! What a certificate says of itself.

use crate::error::TlsError;
use crate::files::Identity;
use rustls::pki_types::CertificateDer;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// What an operator wants to know of a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The names of the own certificate.
    pub names: Names,
    /// When the first of the chain expires.
    pub not_after: SystemTime,
}

/// The names in one certificate.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Names {
    /// The subject's common name.
    pub common_name: Option<String>,
    /// Alternative names that are hosts.
    pub dns: Vec<String>,
    /// Alternative names that are URIs, as those of SPIFFE.
    pub uris: Vec<String>,
}

impl Facts {
    /// Reads a chain and refuses one that is not valid at this time.
    pub fn of(identity: &Identity, now: SystemTime) -> Result<Facts, TlsError> {
        let path = identity.cert_file();
        let mut not_after = SystemTime::UNIX_EPOCH + FOREVER;
        for certificate in identity.chain() {
            let (from, to) = validity(certificate).map_err(|problem| TlsError::Unusable {
                path: path.to_owned(),
                problem,
            })?;
            if now < from {
                return Err(TlsError::NotYetValid {
                    path: path.to_owned(),
                    from: humantime::format_rfc3339_seconds(from).to_string(),
                });
            }
            not_after = not_after.min(to);
        }
        if not_after < now {
            return Err(TlsError::Expired {
                path: path.to_owned(),
                at: humantime::format_rfc3339_seconds(not_after).to_string(),
            });
        }
        let own = identity.chain().first();
        Ok(Facts {
            names: own.map(Names::of).unwrap_or_default(),
            not_after,
        })
    }
}

/// A certificate that ends later than a calendar can show ends then.
const FOREVER: Duration = Duration::from_secs(253_402_300_799);

/// From when to when it is valid.
fn validity(certificate: &CertificateDer<'_>) -> Result<(SystemTime, SystemTime), String> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|error| error.to_string())?;
    let time = |unix_s: i64| {
        let since_epoch = Duration::from_secs(u64::try_from(unix_s).unwrap_or(0));
        UNIX_EPOCH + since_epoch.min(FOREVER)
    };
    let validity = parsed.validity();
    Ok((
        time(validity.not_before.timestamp()),
        time(validity.not_after.timestamp()),
    ))
}

impl Names {
    /// The names of a certificate that was verified; none, if it cannot be read. How many there
    /// can be is bounded by the size of a handshake.
    pub fn of(certificate: &CertificateDer<'_>) -> Names {
        let mut names = Names::default();
        let Ok((_, parsed)) = parse_x509_certificate(certificate) else {
            return names;
        };
        let common_name = parsed.subject().iter_common_name().next();
        names.common_name = common_name
            .and_then(|name| name.as_str().ok())
            .map(str::to_owned);
        if let Ok(Some(alternatives)) = parsed.subject_alternative_name() {
            for name in &alternatives.value.general_names {
                match name {
                    GeneralName::DNSName(host) => names.dns.push((*host).to_owned()),
                    GeneralName::URI(uri) => names.uris.push((*uri).to_owned()),
                    _ => {}
                }
            }
        }
        names
    }

    /// All of them, the most particular first.
    pub fn into_vec(self) -> Vec<String> {
        let mut names = self.uris;
        names.extend(self.dns);
        names.extend(self.common_name);
        names
    }

    /// The same, to look at.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let common_name = self.common_name.iter();
        let all = self.uris.iter().chain(&self.dns).chain(common_name);
        all.map(String::as_str)
    }
}
