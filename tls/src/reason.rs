//! Why a handshake failed, in words that say what to do.

use rustls::{AlertDescription, CertificateError, Error};
use std::io;

/// What went wrong with the other side, as the second half of a sentence: "the handshake failed:
/// ..".
pub fn reason(error: &Error) -> String {
    let sentence = match error {
        Error::NoCertificatesPresented => "it showed no certificate, and one is required",
        Error::InvalidCertificate(problem) => match problem {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet; see whether both clocks are right"
            }
            CertificateError::UnknownIssuer => {
                "its certificate was signed by no authority that is trusted here"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                return format!("its certificate is for another name: {problem}");
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                "its certificate is not for this purpose; see its extended key usage"
            }
            problem => return format!("its certificate is not accepted: {problem}"),
        },
        Error::AlertReceived(alert) => match alert {
            AlertDescription::UnknownCA => {
                "it says that the certificate of this side was signed by no authority that it trusts"
            }
            AlertDescription::CertificateExpired => {
                "it says that the certificate of this side has expired"
            }
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate => {
                "it does not accept the certificate of this side"
            }
            AlertDescription::CertificateRequired => {
                "it requires a certificate, and this side showed none"
            }
            AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion => {
                "it found no version and cipher in common, or does not speak TLS"
            }
            alert => return format!("it refused with the alert {alert:?}"),
        },
        Error::PeerIncompatible(problem) => {
            return format!("there is no version and cipher in common: {problem:?}");
        }
        Error::InvalidMessage(_) => "it sent something that is not TLS",
        error => return error.to_string(),
    };
    sentence.to_owned()
}

/// The same for an error that came through a stream: rustls's own is inside.
pub fn reason_of_io(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(error) => reason(error),
        None => error.to_string(),
    }
}
