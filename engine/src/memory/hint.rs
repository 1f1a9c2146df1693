//! Hints to the processor and to the kernel. Nothing depends on them: where they are not
//! understood, nothing happens.
//!
//! **Prefetches**, for a caller that knows what will be read in a moment.
//!
//! **Huge pages**, for the memory in which millions of keys are looked up and for no other. A
//! lookup misses the cache anyway; with small pages it misses the processor's own list of pages as
//! well, and then several reads decide where to read. But the thread that is the first to touch a
//! huge page waits until the kernel has two megabytes ready: they are for memory that is touched
//! ahead of need (`Engine::prefault`).

/// Has the processor fetch the line that `place` begins in, and does not wait for it.
#[inline(always)]
pub(crate) fn prefetch<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    #[expect(
        unsafe_code,
        reason = "the stable form of a prefetch asks for a promise about the processor"
    )]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it asks for SSE, which every x86_64 has. It reads nothing that the program could
        // see, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    let _ = place;
}

/// The smallest pages there are.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The size of a huge page where they are used.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Asks the kernel for huge pages behind these slots. A wish: where there are none nothing changes.
/// At the ends others may be on the same huge page. Their memory is then backed by it too, and
/// nothing else happens to them.
pub(crate) fn ask_for_huge<T>(slots: &[T]) {
    advise(slots, Advice::Huge);
}

/// Takes the wish back, before the memory goes to a caller that does not expect to wait for it.
pub(crate) fn ask_for_small<T>(slots: &[T]) {
    advise(slots, Advice::Small);
}

#[derive(Clone, Copy)]
enum Advice {
    Huge,
    Small,
}

fn advise<T>(slots: &[T], advice: Advice) {
    let start = slots.as_ptr().addr();
    let end = start + size_of_val(slots);
    let first = start & !(HUGE_PAGE_BYTES - 1);
    tell_kernel(first, end.next_multiple_of(HUGE_PAGE_BYTES) - first, advice);
}

#[cfg(all(target_os = "linux", not(loom), not(miri)))]
#[expect(
    unsafe_code,
    reason = "most advice changes what is in memory, this does not"
)]
fn tell_kernel(address: usize, bytes: usize, advice: Advice) {
    let memory = std::ptr::without_provenance_mut(address);
    let advice = match advice {
        Advice::Huge => rustix::mm::Advice::LinuxHugepage,
        Advice::Small => rustix::mm::Advice::LinuxNoHugepage,
    };
    // SAFETY: this advice is about how memory is backed. It changes nothing that is in it, and is
    // an error where nothing is mapped.
    let _ = unsafe { rustix::mm::madvise(memory, bytes, advice) };
}

#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
fn tell_kernel(_address: usize, _bytes: usize, _advice: Advice) {}
