//! The client that the others are to be like.

use crate::common::{LONG_MS, Peer, hello, start_with};
use protocol::Hello;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A client that behaves, beside all that do not: takes and releases locks of its own on several
/// connections, and asserts every answer.
pub(crate) struct Healthy {
    thread: std::thread::JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

impl Healthy {
    pub(crate) fn start(address: SocketAddr) -> Healthy {
        Healthy::start_with(address, hello("healthy"))
    }

    pub(crate) fn start_with(address: SocketAddr, hello: Hello<'_>) -> Healthy {
        let mut peers: Vec<Peer> = (0..4).map(|_| Peer::open(address, hello)).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut last_fence = 0;
            loop {
                // Asked before the round: the last one comes after all that the others did.
                let is_last = is_over.load(Ordering::Acquire);
                for peer in &mut peers {
                    let fence = peer.acquire("healthy", LONG_MS);
                    assert!(fence > last_fence, "fences rise");
                    last_fence = fence;
                    peer.ping();
                    assert!(peer.release("healthy", fence), "its own to release");
                }
                if is_last {
                    break;
                }
                // Others want to run as well.
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Healthy { thread, stop }
    }

    /// Asserts that it was served well all the time.
    pub(crate) fn finish(self) {
        self.stop.store(true, Ordering::Release);
        self.thread
            .join()
            .expect("the healthy client was served well");
    }
}

/// Runs `misbehave` against a server while a healthy client is at work.
pub(crate) fn beside_a_healthy_client(
    change: impl FnOnce(&mut server::Config),
    misbehave: impl FnOnce(SocketAddr),
) {
    let server = start_with(|builder| builder.with(change));
    let healthy = Healthy::start(server.local_addr());
    misbehave(server.local_addr());
    healthy.finish();
    server.shutdown();
}
