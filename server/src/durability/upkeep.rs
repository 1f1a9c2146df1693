//! Upkeep of the log's files: snapshots, and the next segment ready before the writer needs it.
//! Both may take as long as the disk does, so they have a thread of their own, and ceilings never
//! wait for them.

use super::snapshot;
use crate::core::shared::Shared;
use crate::storage::{Storage, give_up};
use crate::system::standby::Standby;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wal::WalError;

/// How often it looks whether there is something to do.
const ROUND: Duration = Duration::from_millis(250);

/// The thread. Dropping it ends it, after the snapshot that it may be writing.
pub(crate) struct Upkeep {
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Upkeep {
    pub(crate) fn start(standby: Standby, shared: Arc<Shared>, storage: Arc<Storage>) -> Upkeep {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let thread = standby.begin({
            let is_stopping = is_stopping.clone();
            move || {
                let _watch = shared.failure.watch();
                while !is_stopping.load(Ordering::Acquire) {
                    if let Err(error) = look_after(&shared, &storage) {
                        give_up(&error);
                    }
                    thread::park_timeout(ROUND);
                }
            }
        });
        Upkeep {
            is_stopping,
            thread: Some(thread),
        }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the upkeep of the log ended with a panic");
            }
        }
    }
}

fn look_after(shared: &Shared, storage: &Storage) -> Result<(), WalError> {
    let log = storage.journal.disk();
    log.restock()?;
    if log.wants_snapshot() {
        snapshot::take_if_room(shared, storage)?;
    }
    Ok(())
}
