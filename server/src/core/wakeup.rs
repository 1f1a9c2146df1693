//! The log's writer wakes the cores whose replies wait for it: see `durable_replies.rs`.

use crate::core::mail::Post;
use crate::storage::give_up;
use engine::SleepFlag;
use std::sync::Arc;
use wal::{Listener, Ticket, WalError};

/// Wakes the cores that wait for the disk.
pub(crate) struct Wakeup {
    pub(crate) posts: Arc<[Post]>,
    /// Called between a sync and the cores that hear of it. For tests.
    pub(crate) late_acks: Option<SyncHook>,
}

/// A hook that holds the acknowledgement up for a moment.
pub(crate) type SyncHook = Arc<dyn Fn() + Send + Sync>;

impl Wakeup {
    /// Wakes the cores that wait.
    pub(crate) fn wake(&self) {
        if let Some(late) = &self.late_acks {
            late();
        }
        // Either a core sees what is synced now, in `DurableReplies::await_sync`, or we see that it
        // waits.
        for post in SleepFlag::to_wake(&self.posts, |post| &post.awaits_sync) {
            post.bell.notify_one();
        }
    }
}

impl Listener for Wakeup {
    fn synced(&mut self, _: Ticket) {
        self.wake();
    }

    fn failed(&mut self, error: &WalError) {
        give_up(error);
    }
}
