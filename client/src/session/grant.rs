//! One hold of a lease, from the reply that granted it to the release that ends it.
//!
//! A [`Grant`] is made where a reply is read, before any other code can see it. Dropping it
//! releases the hold, so a grant cannot get lost on the way to its caller.

use crate::clock::Moment;
use crate::session::lease::Lease;
use crate::session::leases::Leases;
use protocol::Fence;
use std::fmt;
use std::sync::Arc;

/// Sends the releases of dropped grants. The pool implements it; this module knows no queues.
pub(crate) trait Releaser: Send + Sync {
    /// The list that leases are struck from when their last hold ends.
    fn leases(&self) -> &Leases;

    /// Queues a release and returns at once.
    fn post_release(&self, hold: EndedHold);
}

/// A hold that has ended here and must still end on the server.
#[derive(Debug)]
pub(crate) struct EndedHold {
    pub(crate) key: Arc<[u8]>,
    pub(crate) fence: Fence,
    /// No other guard of this client has a hold under the same fence.
    pub(crate) is_last: bool,
}

/// One hold of a lease. Dropping it gives the hold back.
pub(crate) struct Grant {
    lease: Arc<Lease>,
    releaser: Arc<dyn Releaser>,
    is_given_back: bool,
}

impl Grant {
    pub(crate) fn new(lease: Arc<Lease>, releaser: Arc<dyn Releaser>) -> Self {
        Self {
            lease,
            releaser,
            is_given_back: false,
        }
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// The grant has reached its caller. From here on, dropping it does not release a detached
    /// lock.
    pub(crate) fn hand_over(&mut self) {
        self.is_given_back |= self.lease.is_detached();
    }

    /// Gives the hold back because the caller asked for it, also that of a detached lock. `Some`:
    /// the server must be told.
    pub(crate) fn give_back(&mut self) -> Option<EndedHold> {
        self.is_given_back = true;
        let leaving = self.lease.leave(Moment::now());
        if leaving.is_last {
            self.releaser.leases().forget(&self.lease);
        }
        match leaving.loss {
            Some(loss) if loss.is_known_to_server() => None,
            _ => Some(EndedHold {
                key: Arc::clone(&self.lease.key),
                fence: leaving.fence,
                is_last: leaving.is_last,
            }),
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.is_given_back
            && let Some(hold) = self.give_back()
        {
            self.releaser.post_release(hold);
        }
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}
