//! Where a test may hold a core up, so that what another core does falls between two of its steps.

use std::sync::Arc;

/// Between which steps a core is.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    /// A session was found for a connection that comes to it; it is not kept alive yet.
    BeforeKeepAlive,
    /// A long lease was granted in `fence`; that it is a long one is not known to other cores yet.
    BeforeFollow,
    /// The count of a reentrant hold has changed; nothing is written down of it yet.
    BeforeCount,
    /// A lock was taken away; nothing is written down of it yet.
    BeforeTakenAway,
    /// All requests that were read are decided; what they have to write down is not appended yet.
    BeforeAppend,
    /// Not a core, but a thread that waits until each core has ended its turn: one has not yet.
    AwaitsCores,
}

/// Called by the thread that comes to one of these moments.
pub(crate) type PauseHook = Arc<dyn Fn(Pause) + Send + Sync>;
