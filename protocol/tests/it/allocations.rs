//! Counts what the current thread allocates, so that tests can claim that something does not.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Const-initialised and without a destructor: touching it allocates nothing, at any time of a
    // thread's life.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it came; `realloc` and `alloc_zeroed` get
// there through their default implementations, which call the two below.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps the demands of `alloc`, which are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `System` with this layout: `alloc` above has no other source.
        unsafe { System.dealloc(block, layout) }
    }
}

/// What `work` returns, and how often it allocated.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = COUNT.get();
    let result = work();
    (result, COUNT.get() - before)
}

#[test]
fn allocations_are_noticed() {
    assert_eq!(counted(|| Box::new([1_u8; 100])).1, 1);
    assert_eq!(counted(|| 1 + 1).1, 0);
}
