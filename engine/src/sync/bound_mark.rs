//! How a server that promises "covered until then" learns of every end of a session-bound lock.
//!
//! Such a lock ends with its session, and a keep-alive moves that end on any core. The promise is
//! asked for once per grant and, if some lock is bound, once per keep-alive. A grant marks the
//! session and then reads its deadline; a keep-alive moves the deadline and then looks for the
//! mark. Each writes one place and reads the other's, so both need a sequentially consistent fence
//! in between: without either of them both may read what was there before, and the later end is
//! promised by neither. `loom-tests/tests/bound_mark.rs` shows that the two fences are enough and
//! that neither can go, and that the mark must come first.

use crate::sync::{AtomicU32, Ordering, fence};

const NO: u32 = 0;
const MARKED: u32 = 1;
/// Every keep-alive that moves the deadline from here on sees the mark.
const SEEN: u32 = 2;

/// Whether some lock lives, or has lived, as long as a session.
pub struct BoundMark {
    /// `NO`, then `MARKED`, then `SEEN`; never `NO` again. A setter may write `MARKED` over the
    /// `SEEN` of another; that costs a later setter a fence.
    state: AtomicU32,
}

impl Default for BoundMark {
    fn default() -> Self {
        Self::new()
    }
}

impl BoundMark {
    /// Of a session that no lock is bound to.
    pub fn new() -> Self {
        BoundMark {
            state: AtomicU32::new(NO),
        }
    }

    /// A lock is about to be bound to the session. To be called *before* the engine grants it, and
    /// so before the session's deadline is read.
    pub fn set(&self) {
        // Acquire, paired with the last store below: the fence of the first caller counts for every
        // caller that finds `SEEN`.
        if self.state.load(Ordering::Acquire) == SEEN {
            return;
        }
        self.state.store(MARKED, Ordering::Relaxed);
        if !fault!(BoundUnfenced) {
            // Paired with the fence in `is_set`.
            fence(Ordering::SeqCst);
        }
        self.state.store(SEEN, Ordering::Release);
    }

    /// Whether some lock is bound to the session. To be asked *after* the session was kept alive.
    pub fn is_set(&self) -> bool {
        if !fault!(KeptAliveUnfenced) {
            // Paired with the fence in `set`.
            fence(Ordering::SeqCst);
        }
        self.state.load(Ordering::Relaxed) != NO
    }
}
