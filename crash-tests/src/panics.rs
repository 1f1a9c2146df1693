//! A mistake in a thread of the server, at a given moment: for `tests/panic.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The variable through which a child process is told when to panic: at the how-manyeth connection
/// that it lets in.
pub const VARIABLE: &str = "CRASH_TESTS_PANIC";

/// Panics at that connection.
pub(crate) fn at_connection(number: u64) -> Arc<dyn Fn() + Send + Sync> {
    let seen = AtomicU64::new(0);
    Arc::new(move || {
        let is_it = seen.fetch_add(1, Ordering::Relaxed) + 1 == number;
        assert!(!is_it, "asked for by a test");
    })
}
