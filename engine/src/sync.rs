//! std or loom, chosen here and nowhere else. Concurrent code of this crate imports from this file only, so that
//! `--cfg loom` turns every atomic and every mutex into one whose interleavings the model checker explores.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
pub(crate) use parking_lot::Mutex;

#[cfg(loom)]
pub(crate) use self::modelled::{AtomicU32, AtomicU64, Mutex, Ordering};

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
}
