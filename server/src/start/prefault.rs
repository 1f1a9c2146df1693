//! Somebody who waits for memory so that no core has to. Fresh memory comes from the kernel, and on a virtual machine from the
//! host, which may take milliseconds for a huge page; a core that took its keys' memory as it comes would stand still for so
//! long, and all its clients with it.

use crate::core::shared::Shared;
use crate::system::standby::Standby;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A thread that keeps the engine's stock of memory. Cores wake it when the stock runs low.
pub(crate) struct Stocker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Stocker {
    pub(crate) fn start(standby: Standby, shared: Arc<Shared>) -> Self {
        let thread = standby.begin({
            let shared = shared.clone();
            move || {
                let _watch = shared.failure.watch();
                keep_stock(&shared);
            }
        });
        // Once for each server, and this is the only place.
        let _ = shared.stocker.set(thread.thread().clone());
        Stocker {
            shared,
            thread: Some(thread),
        }
    }
}

impl Drop for Stocker {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("whoever keeps the stock of memory ended with a panic");
            }
        }
    }
}

fn keep_stock(shared: &Shared) {
    // At the priority of the others, though they matter more: fetching and giving back memory takes locks of the kernel's that
    // a core's page fault waits for, and who holds them must not be kept from running.
    while !shared.stop.is_cancelled() {
        if !shared.engine.stock_up() {
            std::thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Server;

    #[test]
    fn it_ends_with_its_server() {
        let server = Server::builder().start().unwrap();
        let shared = server.shared.clone();
        assert!(shared.stocker.get().is_some());
        server.shutdown();
        // Nobody is left who has the engine: the thread had it too.
        assert_eq!(std::sync::Arc::strong_count(&shared), 1);
    }
}
