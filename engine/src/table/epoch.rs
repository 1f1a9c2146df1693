//! Freeing an index that readers may still be probing: crossbeam's epochs, or, under loom, nothing
//! before the table goes. One of the three places with unsafe code that something depends on; the
//! others are `memory/pieces.rs` and `memory/chunk.rs`.

#![expect(
    unsafe_code,
    reason = "an index is freed by hand, see the SAFETY comments"
)]

#[cfg(not(loom))]
mod imp {
    use crossbeam_epoch::{self as epoch, Atomic, Owned};
    use crossbeam_queue::SegQueue;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    /// While one of these lives, no index its thread can reach is freed. Nesting is cheap.
    pub(crate) struct Guard(epoch::Guard);

    #[inline]
    pub(crate) fn pin() -> Guard {
        Guard(epoch::pin())
    }

    /// Outgrown indexes that no reader can reach any more, kept to be freed one at a time. They are
    /// megabytes each, epochs let go of all that have gathered at once, and the shards outgrow
    /// theirs at about the same time: freed on the spot, they would be one long pause for the
    /// thread that collects them. As many as there are shards, and a few more.
    pub(crate) struct Retired<T>(Arc<SegQueue<Box<T>>>);

    /// So many are kept until the home core or the prefaulting thread has time to free one.
    const MANY: usize = 16;

    impl<T> Retired<T> {
        pub(crate) fn new() -> Self {
            Retired(Arc::new(SegQueue::new()))
        }

        /// Frees one of them. `false`: there was none.
        pub(crate) fn free_one(&self) -> bool {
            !self.is_empty() && self.0.pop().is_some()
        }

        /// Frees one if many have gathered.
        pub(crate) fn free_one_of_many(&self) {
            if !self.is_empty() && self.0.len() >= MANY {
                self.free_one();
            }
        }

        #[inline]
        pub(crate) fn is_empty(&self) -> bool {
            self.0.is_empty()
        }
    }

    impl<T> Clone for Retired<T> {
        fn clone(&self) -> Self {
            Retired(self.0.clone())
        }
    }

    /// A pointer to an index that can be replaced while other threads read through it. Does not own
    /// what it points to.
    pub(crate) struct Pointer<T>(Atomic<T>);

    impl<T: Send + Sync + 'static> Pointer<T> {
        pub(crate) fn null() -> Self {
            Pointer(Atomic::null())
        }

        pub(crate) fn new(index: T) -> Self {
            Pointer(Atomic::new(index))
        }

        #[inline]
        pub(crate) fn load<'g>(&self, guard: &'g Guard) -> Option<&'g T> {
            // Acquire, paired with the Release in `publish` and `replace`: the index is filled
            // before it is reachable.
            let shared = self.0.load(Ordering::Acquire, &guard.0);
            // SAFETY: the pointer is null or came from `publish` or `new`. An index is destroyed
            // only by `replace`, deferred until every guard that was live then, and so could have
            // loaded it, is gone; or by `Table`'s drop, which has the table to itself.
            unsafe { shared.as_ref() }
        }

        /// Sets a null pointer. One thread at a time does this: the holder of the growth mutex.
        pub(crate) fn publish(&self, index: T) {
            self.0.store(Owned::new(index), Ordering::Release);
        }

        /// Lets this pointer follow to where `successor` points, and retires what it pointed to
        /// before once no thread can be reading it. Called by the holder of the growth mutex only.
        pub(crate) fn replace(&self, successor: &Self, retired: &Retired<T>, guard: &Guard) {
            let new = successor.0.load(Ordering::Acquire, &guard.0);
            let old = self.0.swap(new, Ordering::AcqRel, &guard.0);
            assert!(
                !old.is_null() && old != new,
                "an index is replaced by another one"
            );
            let retired = retired.clone();
            // SAFETY: `old` was reachable only through `self`, which now points elsewhere, and the
            // growth mutex keeps other threads from replacing it a second time. Readers that loaded
            // it before hold a guard, so it is ours alone when this is called. It may be called on
            // any thread, and the queue may be used on any.
            unsafe {
                guard
                    .0
                    .defer_unchecked(move || retired.0.push(old.into_owned().into_box()));
            }
        }

        /// Moves the pointer out. Only when the table itself goes.
        pub(crate) fn take(&self) -> Self {
            let guard = epoch::pin();
            Pointer(Atomic::from(self.0.swap(
                epoch::Shared::null(),
                Ordering::AcqRel,
                &guard,
            )))
        }

        /// Frees what is pointed to. Only when the table itself goes.
        pub(crate) fn free(&mut self) {
            let pointer = std::mem::replace(&mut self.0, Atomic::null());
            // SAFETY: `&mut self` and the table's drop: no other thread can reach this pointer, and
            // nothing else owns the index (a successor that has taken over is reachable through the
            // table's own pointer only).
            drop(unsafe { pointer.try_into_owned() });
        }
    }
}

#[cfg(loom)]
mod imp {
    use crate::sync::{AtomicPtr, Ordering};
    use std::marker::PhantomData;

    /// Nothing to guard: under loom indexes are leaked.
    pub(crate) struct Guard;

    pub(crate) fn pin() -> Guard {
        Guard
    }

    /// Always empty.
    pub(crate) struct Retired<T>(PhantomData<fn(T)>);

    impl<T> Retired<T> {
        pub(crate) fn new() -> Self {
            Retired(PhantomData)
        }

        pub(crate) fn free_one(&self) -> bool {
            false
        }

        pub(crate) fn free_one_of_many(&self) {}

        pub(crate) fn is_empty(&self) -> bool {
            true
        }
    }

    impl<T> Clone for Retired<T> {
        fn clone(&self) -> Self {
            Retired::new()
        }
    }

    /// As the real one, without reclamation: what is replaced stays.
    pub(crate) struct Pointer<T>(AtomicPtr<T>);

    impl<T> Pointer<T> {
        pub(crate) fn null() -> Self {
            Pointer(AtomicPtr::new(std::ptr::null_mut()))
        }

        pub(crate) fn new(index: T) -> Self {
            Pointer(AtomicPtr::new(Box::into_raw(Box::new(index))))
        }

        pub(crate) fn load<'g>(&self, _: &'g Guard) -> Option<&'g T> {
            // SAFETY: null or from `Box::into_raw`, and freed only when the table goes.
            unsafe { self.0.load(Ordering::Acquire).as_ref() }
        }

        pub(crate) fn publish(&self, index: T) {
            self.0
                .store(Box::into_raw(Box::new(index)), Ordering::Release);
        }

        pub(crate) fn replace(&self, successor: &Self, _: &Retired<T>, _: &Guard) {
            self.0
                .swap(successor.0.load(Ordering::Acquire), Ordering::AcqRel);
        }

        pub(crate) fn take(&self) -> Self {
            Pointer(AtomicPtr::new(
                self.0.swap(std::ptr::null_mut(), Ordering::AcqRel),
            ))
        }

        pub(crate) fn free(&mut self) {
            let pointer = self
                .0
                .with_mut(|pointer| std::mem::replace(pointer, std::ptr::null_mut()));
            if !pointer.is_null() {
                // SAFETY: from `Box::into_raw`; `&mut self` in the table's drop.
                drop(unsafe { Box::from_raw(pointer) });
            }
        }
    }
}

pub(crate) use imp::{Guard, Pointer, Retired, pin};
