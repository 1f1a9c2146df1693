//! std or loom, chosen here and nowhere else. Concurrent code of this crate imports from this file only, so that
//! `--cfg loom` turns every atomic and every mutex into one whose interleavings the model checker explores.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
pub(crate) use parking_lot::Mutex;

/// Many producers, one consumer, no lock: crossbeam's. The models put a mutexed list in its place, since they are about
/// what we do around it.
#[cfg(not(loom))]
pub(crate) use crossbeam_queue::SegQueue as Queue;

#[cfg(loom)]
pub(crate) use self::modelled::{AtomicU32, AtomicU64, Mutex, Ordering, Queue};

#[cfg(loom)]
mod modelled {
    use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// loom's mutex with parking_lot's face: no poisoning, guards handed out directly.
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0
                .lock()
                .expect("a model that panicked has already failed")
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    pub(crate) struct Queue<T>(Mutex<std::collections::VecDeque<T>>);

    impl<T> Queue<T> {
        pub(crate) fn new() -> Self {
            Queue(Mutex::new(std::collections::VecDeque::new()))
        }

        pub(crate) fn push(&self, value: T) {
            self.0.lock().push_back(value);
        }

        pub(crate) fn pop(&self) -> Option<T> {
            self.0.lock().pop_front()
        }
    }
}
