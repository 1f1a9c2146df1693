//! std or loom, chosen here and nowhere else. Concurrent code of this crate imports from this file
//! only, so that `--cfg loom` turns every atomic and every mutex into one whose interleavings the
//! model checker explores.

pub(crate) mod bound_mark;
pub(crate) mod mailbox;
pub(crate) mod sleep;

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub(crate) use parking_lot::Mutex;

/// Many producers, one consumer, no lock: crossbeam's. The models put a mutexed list in its place,
/// since they are about what we do around it.
#[cfg(not(loom))]
pub(crate) use crossbeam_queue::SegQueue as Queue;

#[cfg(not(loom))]
pub(crate) use std::sync::OnceLock;

/// The value if it has been set, without synchronising with the setter otherwise.
#[cfg(not(loom))]
#[inline]
pub(crate) fn get<T>(lock: &OnceLock<T>) -> Option<&T> {
    lock.get()
}

#[cfg(loom)]
pub(crate) use self::modelled::{
    AtomicPtr, AtomicU32, AtomicU64, Mutex, OnceLock, Ordering, Queue, fence, get,
};

#[cfg(loom)]
mod modelled {
    use loom::sync::atomic;
    pub(crate) use loom::sync::atomic::{Ordering, fence};
    use loom::sync::{Condvar, MutexGuard};

    /// loom's atomic, with every access announced to loom first.
    ///
    /// loom 0.7 decides which orders are worth trying by looking from each access back to the last
    /// one of the same atomic. A load is no reason to try an earlier load in another order, so a
    /// thread that loads before it writes hides from loom that others have loaded too, and they are
    /// never shown what it wrote (loom's issues 166 and 392). All our code loads before it compares
    /// and swaps. So each thread that loads first touches its companion, and each that writes
    /// touches all companions: now a write meets every load, and two threads that load do not meet.
    /// The companions are condition variables that no thread waits for: a touch makes loom try more
    /// and orders nothing.
    pub(crate) struct Announced<A> {
        atomic: A,
        companions: [Condvar; COMPANION_COUNT],
    }

    /// One for each thread of a model with two. In one with three, two of them share and loom tries
    /// a little more.
    const COMPANION_COUNT: usize = 2;

    loom::thread_local! {
        /// Which of this execution's threads it is, counted from zero.
        static READER: usize = NEXT_READER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    loom::lazy_static! {
        /// loom's, so that every execution counts its threads anew: it must find again what it did
        /// before.
        static ref NEXT_READER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    }

    pub(crate) type AtomicU32 = Announced<atomic::AtomicU32>;
    pub(crate) type AtomicU64 = Announced<atomic::AtomicU64>;
    pub(crate) type AtomicPtr<T> = Announced<atomic::AtomicPtr<T>>;

    impl<A> Announced<A> {
        fn wrap(atomic: A) -> Self {
            Announced {
                atomic,
                companions: std::array::from_fn(|_| Condvar::new()),
            }
        }

        fn for_load(&self) -> &A {
            READER.with(|reader| self.companions[*reader % COMPANION_COUNT].notify_one());
            &self.atomic
        }

        fn for_write(&self) -> &A {
            for companion in &self.companions {
                companion.notify_one();
            }
            &self.atomic
        }
    }

    macro_rules! announced {
        ($atomic:ty, $value:ty, { $($method:ident($($argument:ident: $type:ty),*) -> $result:ty;)* }) => {
            #[allow(dead_code, reason = "the same methods for all widths")]
            impl Announced<$atomic> {
                pub(crate) fn new(value: $value) -> Self {
                    Announced::wrap(<$atomic>::new(value))
                }

                pub(crate) fn load(&self, order: Ordering) -> $value {
                    self.for_load().load(order)
                }

                $(pub(crate) fn $method(&self, $($argument: $type),*) -> $result {
                    self.for_write().$method($($argument),*)
                })*
            }
        };
        ($atomic:ty, $value:ty) => {
            announced!($atomic, $value, {
                store(value: $value, order: Ordering) -> ();
                swap(value: $value, order: Ordering) -> $value;
                compare_exchange(
                    old: $value, new: $value, success: Ordering, failure: Ordering
                ) -> Result<$value, $value>;
                compare_exchange_weak(
                    old: $value, new: $value, success: Ordering, failure: Ordering
                ) -> Result<$value, $value>;
                fetch_add(value: $value, order: Ordering) -> $value;
                fetch_sub(value: $value, order: Ordering) -> $value;
                fetch_or(value: $value, order: Ordering) -> $value;
                fetch_xor(value: $value, order: Ordering) -> $value;
                fetch_max(value: $value, order: Ordering) -> $value;
                fetch_min(value: $value, order: Ordering) -> $value;
            });
        };
    }

    announced!(atomic::AtomicU32, u32);
    announced!(atomic::AtomicU64, u64);

    impl<T> Announced<atomic::AtomicPtr<T>> {
        pub(crate) fn new(pointer: *mut T) -> Self {
            Announced::wrap(atomic::AtomicPtr::new(pointer))
        }

        pub(crate) fn load(&self, order: Ordering) -> *mut T {
            self.for_load().load(order)
        }

        pub(crate) fn store(&self, pointer: *mut T, order: Ordering) {
            self.for_write().store(pointer, order);
        }

        pub(crate) fn swap(&self, pointer: *mut T, order: Ordering) -> *mut T {
            self.for_write().swap(pointer, order)
        }

        pub(crate) fn with_mut<R>(&mut self, change: impl FnOnce(&mut *mut T) -> R) -> R {
            self.atomic.with_mut(change)
        }
    }

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

    /// std's, with the making of the value where loom can see it.
    pub(crate) struct OnceLock<T> {
        value: std::sync::OnceLock<T>,
        making: Mutex<()>,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            OnceLock {
                value: std::sync::OnceLock::new(),
                making: Mutex::new(()),
            }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            self.value.get()
        }

        pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            let _making = self.making.lock();
            self.value.get_or_init(make)
        }

        pub(crate) fn set(&self, value: T) -> Result<(), T> {
            let _making = self.making.lock();
            self.value.set(value)
        }
    }

    /// As in the real one, a thread that finds a value sees what was written before it was set.
    pub(crate) fn get<T>(lock: &OnceLock<T>) -> Option<&T> {
        let _making = lock.making.lock();
        lock.get()
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
