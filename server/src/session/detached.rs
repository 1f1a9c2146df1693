//! Detached locks: they outlive the process that took them, if it asked for that.
//!
//! To the engine they belong to one session of the server's own that never ends, as those of the Redis port do. So a
//! detached lock is written down, restored and shown like any other, lives by its own lease only, and needs no record of
//! its own kind. Whose it is, nothing says: whoever knows its key and its fence may renew, downgrade and release it.
//!
//! The session is opened by the first detached lock, so a server without any does not show it.

use crate::core::Core;
use crate::core::shared::Shared;
use crate::session::registry::Session;
use engine::{Limit, Seat};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// The public id of the session that detached locks belong to. Clients' own ids are random and far above it.
pub(crate) const SESSION_ID: u64 = 2;

/// What that session is called.
const SESSION_NAME: &str = "detached";

/// The session that detached locks belong to, once there is one.
#[derive(Default)]
pub(crate) struct Detached {
    session: OnceLock<Arc<Session>>,
    /// Held while it is opened: two cores may be asked for their first detached lock at once.
    opening: Mutex<()>,
}

impl Shared {
    /// The session of detached locks; `None` if there has been none.
    pub(crate) fn detached(&self) -> Option<&Arc<Session>> {
        self.detached.session.get()
    }

    /// The same, opened if there is none.
    pub(crate) fn open_detached(&self) -> Result<&Arc<Session>, Limit> {
        if self.detached().is_none() {
            let _one_at_a_time = self.detached.opening.lock();
            if self.detached().is_none() {
                // Its record is in the log before anything can be granted to it.
                let session = self.open_lasting(SESSION_ID, SESSION_NAME)?;
                let is_first = self.detached.session.set(session).is_ok();
                assert!(is_first, "it is opened under a mutex");
            }
        }
        Ok(self.detached().expect("opened above"))
    }

    /// Goes on with the detached locks that were put back.
    pub(crate) fn resume_detached(&self) -> Result<(), Limit> {
        match self.registry().find_public(SESSION_ID) {
            Some(_) => self.open_detached().map(|_| ()),
            None => Ok(()),
        }
    }
}

impl Core {
    /// Asks the engine as the owner of all detached locks would. `None`: there are none.
    #[cold]
    pub(crate) fn ask_as_detached<T>(&self, ask: impl FnOnce(&mut Seat) -> T) -> Option<T> {
        let session = self.shared.detached()?;
        let seat = self.seat(session.id);
        let mut seat = seat.borrow_mut();
        // The session lasts as long as the server, so there is nothing to sweep at its end.
        seat.stop_remembering();
        Some(ask(&mut seat))
    }
}
