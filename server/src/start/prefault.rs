//! The prefault thread: it touches fresh memory ahead of need, so that no core waits for it. Memory
//! comes from the kernel, and on a virtual machine from the host, which may take milliseconds for a
//! huge page. A core that fetched it itself would stand still for so long, and its clients with it.

use crate::core::shared::Shared;
use crate::system::standby::Standby;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A thread that prefaults memory for the engine. Cores wake it when little is left.
pub(crate) struct Prefaulter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Prefaulter {
    pub(crate) fn start(standby: Standby, shared: Arc<Shared>) -> Self {
        let thread = standby.begin({
            let shared = shared.clone();
            move || {
                let _watch = shared.failure.watch();
                prefault(&shared);
            }
        });
        // Once for each server, and this is the only place.
        let _ = shared.prefaulter.set(thread.thread().clone());
        Prefaulter {
            shared,
            thread: Some(thread),
        }
    }
}

impl Drop for Prefaulter {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the prefault thread ended with a panic");
            }
        }
    }
}

fn prefault(shared: &Shared) {
    // At the priority of the cores, though they matter more: fetching and giving back memory takes
    // locks of the kernel that a core's page fault waits for, and their holder must keep running.
    while !shared.stop.is_cancelled() {
        if !shared.engine.prefault() {
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
        assert!(shared.prefaulter.get().is_some());
        server.shutdown();
        // The thread had the engine too, and has let go of it.
        assert_eq!(std::sync::Arc::strong_count(&shared), 1);
    }
}
