//! TLS, in numbers.

use super::page::{Page, Unit};
use crate::conn::secure::seconds_until;
use crate::core::shared::Shared;
use std::fmt;
use std::time::SystemTime;

/// What the ports that speak TLS have counted, at one moment.
pub(super) struct TlsNumbers {
    /// `None` for a server without a certificate for clients.
    clients: Option<ClientNumbers>,
    /// Of the certificate between nodes, if they speak TLS.
    peer_seconds_left: Option<i64>,
}

struct ClientNumbers {
    seconds_left: i64,
    done: u64,
    failed: u64,
}

impl TlsNumbers {
    pub(super) fn take(shared: &Shared) -> Self {
        let now = SystemTime::now();
        let clients = shared.certificates.as_ref().map(|certificates| {
            let (done, failed) = certificates.counts();
            ClientNumbers {
                seconds_left: certificates.seconds_left(now),
                done,
                failed,
            }
        });
        let peer_tls = shared.cluster.as_ref();
        let peer_tls = peer_tls.and_then(|cluster| cluster.peer_tls.as_ref());
        TlsNumbers {
            clients,
            peer_seconds_left: peer_tls.map(|tls| seconds_until(tls.not_after(), now)),
        }
    }

    pub(super) fn show(&self, page: &mut Page) -> fmt::Result {
        if let Some(left) = self.peer_seconds_left {
            page.gauge_in(
                Unit::Seconds,
                "peer_tls_certificate_expires_in",
                "How long the certificate between nodes is still valid; negative once it has expired",
                left as f64,
            )?;
        }
        match &self.clients {
            None => Ok(()),
            Some(clients) => clients.show(page),
        }
    }
}

impl ClientNumbers {
    fn show(&self, page: &mut Page) -> fmt::Result {
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
