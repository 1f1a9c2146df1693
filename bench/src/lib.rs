//! What the benches and the `bench` tool share: the baseline the engine has to beat, one face for
//! the two, the keys they are given, and the allocator the server runs with.

pub mod baseline;
pub mod keys;
pub mod subject;

/// Switches huge pages off, to measure what they are worth. The server leaves them on.
pub fn without_huge_pages() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// The server's allocator. Here, so that every bench and the tool run with it by linking this
/// crate.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
