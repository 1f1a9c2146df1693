//! Detached locks: they outlive the process that took them, if it asked for that.
//!
//! To the engine they belong to one session of the server's own that never ends, as those of the
//! Redis port do. So a detached lock is written down, restored and shown like any other, lives by
//! its own lease only, and needs no record of its own kind. Any client that knows its key and its
//! fence may renew, downgrade and release it.
//!
//! The session is opened by the first detached lock, so a server without any does not show it.

use super::Session;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// The public id of the session that detached locks belong to. Clients' own ids are random and far
/// above it.
pub(crate) const SESSION_ID: u64 = 2;

/// What that session is called.
pub(crate) const SESSION_NAME: &str = "detached";

/// The session that detached locks belong to, once there is one.
#[derive(Default)]
pub(crate) struct Detached {
    session: OnceLock<Arc<Session>>,
    /// Held while it is opened: two cores may be asked for their first detached lock at once.
    opening: Mutex<()>,
}

impl Detached {
    #[inline]
    pub(crate) fn get(&self) -> Option<&Arc<Session>> {
        self.session.get()
    }

    /// The session, opened by `open` if there is none.
    pub(crate) fn get_or_open<E>(
        &self,
        open: impl FnOnce() -> Result<Arc<Session>, E>,
    ) -> Result<&Arc<Session>, E> {
        if self.get().is_none() {
            let _one_at_a_time = self.opening.lock();
            if self.get().is_none() {
                let is_first = self.session.set(open()?).is_ok();
                assert!(is_first, "it is opened under a mutex");
            }
        }
        Ok(self.get().expect("opened above"))
    }
}
