//! A mistake in a thread of the server, at a given moment: for `tests/panic.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The variable through which a child process is told when to panic: at the how-manyeth connection
/// that it lets in.
pub const VARIABLE: &str = "CRASH_TESTS_PANIC";

/// The same for a panic in a thread of its own, which the server knows nothing of.
pub const THREAD_VARIABLE: &str = "CRASH_TESTS_PANIC_IN_A_THREAD";

/// The name of that thread.
pub const THREAD: &str = "not-watched";

type Hook = Arc<dyn Fn() + Send + Sync>;

/// Panics at that connection.
pub(crate) fn at_connection(number: u64) -> Hook {
    once_at(number, || panic!("asked for by a test"))
}

/// Has a thread of its own panic at that connection.
pub(crate) fn in_a_thread_at_connection(number: u64) -> Hook {
    once_at(number, || {
        let thread = thread::Builder::new().name(THREAD.to_owned());
        let spawned = thread.spawn(|| panic!("asked for by a test"));
        drop(spawned.expect("there is room for a thread"));
    })
}

fn once_at(number: u64, act: impl Fn() + Send + Sync + 'static) -> Hook {
    let seen = AtomicU64::new(0);
    Arc::new(move || {
        if seen.fetch_add(1, Ordering::Relaxed) + 1 == number {
            act();
        }
    })
}
