//! How a thread goes to sleep without missing what another one leaves for it.
//!
//! The sleeper raises its flag, then looks for work once more, and sleeps only if there is none. A
//! waker leaves work, then looks at the flag, and wakes the sleeper if it is up. Each writes one
//! place and reads the other's, so both need a sequentially consistent fence in between: without
//! either of them both may read what was there before, and the sleeper sleeps on its work.
//! `loom-tests/tests/sleep.rs` shows that the two fences are enough and that neither can go.
//!
//! The flag says nothing of the work itself; the waker publishes that with Release, as ever. The
//! log's writer sleeps this way while nothing is appended, and a core while nothing that it waits
//! for is synced.

use crate::sync::{AtomicU32, Ordering, fence};

/// Whether one thread sleeps, or is about to.
pub struct SleepFlag {
    /// | 0 | the sleeper is awake         | the sleeper raises it                                |
    /// | 1 | it sleeps, or is about to    | the sleeper lowers it, or a waker that then wakes it |
    is_up: AtomicU32,
}

impl Default for SleepFlag {
    fn default() -> Self {
        Self::new()
    }
}

impl SleepFlag {
    /// Of a thread that is awake.
    pub fn new() -> Self {
        SleepFlag {
            is_up: AtomicU32::new(0),
        }
    }

    /// The sleeper is about to sleep. It must look for work after this, and before it sleeps.
    pub fn raise(&self) {
        self.is_up.store(1, Ordering::Relaxed);
        if !fault!(SleeperUnfenced) {
            // Paired with the fence of the waker: either it sees that we sleep, or we see what it
            // has left.
            fence(Ordering::SeqCst);
        }
    }

    /// The sleeper has found work and stays awake.
    pub fn lower(&self) {
        self.is_up.store(0, Ordering::Relaxed);
    }

    /// For a waker that has just left work: whether it has to wake the sleeper.
    #[must_use = "a sleeper that is not woken sleeps on its work"]
    pub fn must_wake(&self) -> bool {
        Self::fence_waker();
        self.take()
    }

    /// The same for several sleepers: those that have to be woken.
    #[must_use = "a sleeper that is not woken sleeps on its work"]
    pub fn to_wake<'a, T>(
        sleepers: &'a [T],
        flag: impl Fn(&T) -> &SleepFlag + 'a,
    ) -> impl Iterator<Item = &'a T> {
        Self::fence_waker();
        sleepers.iter().filter(move |sleeper| flag(sleeper).take())
    }

    fn fence_waker() {
        if !fault!(WakerUnfenced) {
            // Paired with the fence in `raise`.
            fence(Ordering::SeqCst);
        }
    }

    fn take(&self) -> bool {
        // Looked at before it is changed: it is mostly down, and the line then stays shared.
        self.is_up.load(Ordering::Relaxed) == 1 && self.is_up.swap(0, Ordering::Relaxed) == 1
    }
}
