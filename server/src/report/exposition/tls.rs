//! TLS, in numbers.

use super::page::{Page, Unit};
use crate::core::shared::Shared;
use std::fmt;
use std::time::SystemTime;

/// What the ports that speak TLS have counted, at one moment.
pub(super) struct TlsNumbers {
    seconds_left: i64,
    done: u64,
    failed: u64,
}

impl TlsNumbers {
    /// `None` for a server without a certificate.
    pub(super) fn take(shared: &Shared) -> Option<Self> {
        let certificates = shared.certificates.as_ref()?;
        let (done, failed) = certificates.counts();
        Some(TlsNumbers {
            seconds_left: certificates.seconds_left(SystemTime::now()),
            done,
            failed,
        })
    }

    pub(super) fn show(&self, page: &mut Page) -> fmt::Result {
        page.gauge_in(
            Unit::Seconds,
            "tls_certificate_expires_in",
            "How long the certificate in use is still valid; negative once it has expired",
            self.seconds_left as f64,
        )?;
        page.counter(
            "tls_handshakes",
            "TLS handshakes with clients that were completed",
            self.done,
        )?;
        page.counter(
            "tls_handshakes_failed",
            "TLS handshakes with clients that failed, and clients that spoke without TLS",
            self.failed,
        )
    }
}
