//! One chunk of an arena: zeroed memory for many pieces, in one block that never moves.
//!
//! Large ones come straight from the kernel. It has them zeroed page by page as they are touched,
//! where the allocator hands out what was used before and writes all of it full of zeros first:
//! tens of milliseconds, inside whatever call happened to come for it. And they begin and end where
//! huge pages do, so that all of a chunk can be on them.

use super::slot::{Piece, Slot};
use std::ops::Deref;

/// From this size on a chunk is mapped, and on huge pages: 8 MiB. An engine's first chunks are
/// needed by each of its shards with its first key, before the prefaulting thread can have touched
/// them.
#[cfg(all(target_os = "linux", not(loom), not(miri)))]
const MAPPED_BYTES_MIN: usize = 8 << 20;

pub(crate) enum Chunk<T: 'static> {
    Allocated(Box<[Piece<T>]>),
    #[cfg(all(target_os = "linux", not(loom), not(miri)))]
    Mapped(mapping::Mapping<Piece<T>>),
}

impl<T: Slot> Chunk<T> {
    /// A chunk of so many pieces.
    pub(crate) fn new(piece_count: usize) -> Self {
        #[cfg(all(target_os = "linux", not(loom), not(miri)))]
        if size_of::<Piece<T>>() * piece_count >= MAPPED_BYTES_MIN {
            return Chunk::Mapped(mapping::Mapping::new(piece_count));
        }
        Chunk::Allocated(allocate(piece_count))
    }
}

#[cfg(not(loom))]
fn allocate<T: Slot>(piece_count: usize) -> Box<[Piece<T>]> {
    bytemuck::zeroed_slice_box(piece_count)
}

#[cfg(loom)]
fn allocate<T: Slot>(piece_count: usize) -> Box<[Piece<T>]> {
    (0..piece_count)
        .map(|_| std::array::from_fn(|_| T::zeroed()))
        .collect()
}

impl<T> Deref for Chunk<T> {
    type Target = [Piece<T>];

    fn deref(&self) -> &[Piece<T>] {
        match self {
            Chunk::Allocated(pieces) => pieces,
            #[cfg(all(target_os = "linux", not(loom), not(miri)))]
            Chunk::Mapped(pieces) => pieces.get(),
        }
    }
}

#[cfg(all(target_os = "linux", not(loom), not(miri)))]
mod mapping {
    #![expect(unsafe_code, reason = "memory of our own, see the SAFETY comments")]

    use crate::memory::hint::{self, HUGE_PAGE_BYTES};
    use bytemuck::Zeroable;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use std::alloc::Layout;
    use std::ffi::c_void;
    use std::{ptr, slice};

    /// Values in memory that was mapped for them, at the beginning of a huge page.
    pub(crate) struct Mapping<T: 'static> {
        /// Not for ever, but until we are dropped: `get` lends it for no longer.
        values: &'static [T],
        /// All that was mapped: somewhat more.
        address: usize,
        bytes: usize,
    }

    impl<T: Zeroable> Mapping<T> {
        pub(crate) fn new(count: usize) -> Self {
            const {
                assert!(!std::mem::needs_drop::<T>(), "they are never dropped");
                assert!(align_of::<T>() <= HUGE_PAGE_BYTES);
            }
            let needed = size_of::<T>() * count;
            let bytes = needed + HUGE_PAGE_BYTES;
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping, wherever the kernel has room: it replaces none.
            let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
            // Ends the process, as when the allocator has none: the engine could not go on.
            let base = base.unwrap_or_else(|_| std::alloc::handle_alloc_error(Layout::new::<T>()));
            let before = base.addr().next_multiple_of(HUGE_PAGE_BYTES) - base.addr();
            let first = base.wrapping_byte_add(before).cast::<T>();
            // SAFETY: aligned to a huge page, and behind it at least `needed` bytes of the mapping
            // are left. They are zero, which is a value of `T`. No other code knows of them, and
            // they stay until `drop` takes them away, with `self` and so with all that `get` has
            // lent.
            let values = unsafe { slice::from_raw_parts(first.cast_const(), count) };
            hint::ask_for_huge(values);
            Mapping {
                values,
                address: base.expose_provenance(),
                bytes,
            }
        }
    }

    impl<T> Mapping<T> {
        pub(crate) fn get(&self) -> &[T] {
            self.values
        }
    }

    impl<T> Drop for Mapping<T> {
        fn drop(&mut self) {
            let base = ptr::with_exposed_provenance_mut::<c_void>(self.address);
            // SAFETY: exactly what `new` has mapped. What `get` has lent does not outlive `self`,
            // and `values` is not looked at again.
            let unmapped = unsafe { munmap(base, self.bytes) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::slot::Thing;
    use crate::sync::Ordering;

    #[test]
    fn small_and_large_chunks_are_zeroed_and_all_there() {
        // From a single piece to a little more than five huge pages.
        for piece_count in [1, 4, 2_047, 2_048, 2_561] {
            let chunk = Chunk::<Thing>::new(piece_count);
            assert_eq!(chunk.len(), piece_count);
            for (number, thing) in (1..).zip(chunk.iter().flatten()) {
                assert_eq!(thing.link.swap(number, Ordering::Relaxed), 0);
            }
            for (number, thing) in (1..).zip(chunk.iter().flatten()) {
                assert_eq!(thing.link.load(Ordering::Relaxed), number);
            }
        }
    }
}
