//! Where a connection enters: plain ones at once, others after a handshake.

use super::conversation::finish;
use crate::conn::places::{Overdue, Stranger};
use crate::conn::secure::{Certificates, Guess, NotSecured, shake_hands};
use crate::conn::socket::Socket;
use crate::core::Core;
use crate::observe::notices::Notice;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Lets a connection in that was accepted. `certificates`: the port speaks TLS. `None`: the peer
/// was told why not, or had to go. May be dropped half-way.
pub(crate) async fn enter(
    core: &Core,
    stream: TcpStream,
    address: SocketAddr,
    stranger: &Stranger,
    certificates: Option<&Arc<Certificates>>,
) -> Option<Socket> {
    let Some(certificates) = certificates else {
        return Some(Socket::Tcp(stream));
    };
    let shaken = tokio::select! {
        biased;
        () = core.shared.stop.cancelled() => return None,
        overdue = stranger.must_go() => Err(overdue),
        shaken = shake_hands(stream, certificates.config(), &core.handshake_turns) => Ok(shaken),
    };
    let notices = &core.shared.notices;
    match shaken {
        Ok(Ok(socket)) => {
            certificates.count_done();
            return Some(Socket::Tls(Box::new(socket)));
        }
        Ok(Err(NotSecured::Gone)) => {}
        Ok(Err(NotSecured::Plain { mut stream, first })) => {
            certificates.count_failed();
            let guess = Guess::of(&first);
            notices.say(Notice::NotTls, |unsaid| {
                tracing::info!(
                    %address,
                    unsaid,
                    "connection refused on a port that speaks TLS only: {guess}"
                );
            });
            finish(&mut stream, &guess.answer()).await;
        }
        Ok(Err(NotSecured::Refused(error))) => {
            certificates.count_failed();
            notices.say(Notice::HandshakeFailed, |unsaid| {
                let reason = tls::reason(&error);
                tracing::info!(%address, unsaid, "TLS handshake failed: {reason}");
            });
        }
        Ok(Err(NotSecured::Broken(error))) => {
            certificates.count_failed();
            notices.say(Notice::HandshakeFailed, |unsaid| {
                tracing::info!(%address, unsaid, "TLS handshake broken off: {error}");
            });
        }
        // Where one gives way, `listener::admit` has said so.
        Err(Overdue::GaveWay) => {}
        Err(Overdue::TooLate) => {
            certificates.count_failed();
            core.metrics().connections_too_slow.bump();
            notices.say(Notice::TooSlow, |unsaid| {
                tracing::info!(%address, unsaid, "connection cut off: no TLS handshake came in time");
            });
        }
    }
    None
}
