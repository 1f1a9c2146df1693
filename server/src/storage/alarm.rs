//! The alarm: the engine rings it when the fences of a shard run low, and the keeper raises the
//! ceiling.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

/// Which shards run low. Rung under a shard's mutex, so it only sets a mark and unparks a thread.
pub(crate) struct Alarm {
    low: Box<[AtomicBool]>,
    keeper: OnceLock<Thread>,
}

impl Alarm {
    pub(crate) fn new(shards: usize) -> Self {
        Alarm {
            low: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            keeper: OnceLock::new(),
        }
    }

    /// Sets the thread to wake.
    pub(crate) fn set_keeper(&self, keeper: Thread) {
        let _ = self.keeper.set(keeper);
    }

    /// Fences of this shard run low. Said with every grant until they do not.
    pub(crate) fn ring(&self, shard: usize) {
        // Looked at before it is changed: once it is set, the line stays shared.
        if !self.low[shard].load(Ordering::Relaxed)
            && !self.low[shard].swap(true, Ordering::AcqRel)
            && let Some(keeper) = self.keeper.get()
        {
            keeper.unpark();
        }
    }

    /// Whether this shard ran low since the last call.
    pub(crate) fn take_low(&self, shard: usize) -> bool {
        self.low[shard].load(Ordering::Relaxed) && self.low[shard].swap(false, Ordering::AcqRel)
    }
}
