//! What a node takes from the machine it runs on: time, threads that may wait for the disk, and the
//! thread of its log. In a simulation ([`crate::simulation`]) there are no threads, and each node's
//! clock runs at a speed of its own.

use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinError;
use wal::{Opened, Wal, WalError};

/// This node's steady clock. tokio's reading of it: the same as std's, but for runtimes whose time
/// a simulation moves.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The wall clock.
pub(crate) fn unix_now_ms() -> u64 {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_on() {
        return crate::simulation::WALL_UNIX_MS;
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Runs what may wait for the disk, off the runtime's thread.
pub(crate) async fn block<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_on() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}

/// Starts to write a log that was read.
pub(crate) fn start_log(
    opened: Opened,
    listener: impl wal::Listener,
) -> Result<Arc<Wal>, WalError> {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_on() {
        let wal = Arc::new(opened.start_stepped(listener)?);
        crate::simulation::log_started(wal.clone());
        return Ok(wal);
    }
    Ok(Arc::new(opened.start(listener)?))
}
