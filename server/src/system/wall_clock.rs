//! The wall clock, and how a test moves it.
//!
//! A process cannot set the system's clock without harm to others, and libfaketime is a package of
//! its own. So the server adds a shift to what the system says, zero unless a test has moved it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

static SHIFT_MS: AtomicI64 = AtomicI64::new(0);

/// Milliseconds since 1970.
pub(crate) fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let unix_ms = since.unwrap_or_default().as_millis() as u64;
    // Relaxed: a step of the clock is ordered with nothing.
    unix_ms.saturating_add_signed(SHIFT_MS.load(Ordering::Relaxed))
}

/// Sets how far the wall clock of all servers in this process is ahead of the system's. For tests:
/// to a server this is a clock that an operator or `ntpd` has set.
pub fn shift_wall_clock(ahead_ms: i64) {
    SHIFT_MS.store(ahead_ms, Ordering::Relaxed);
}
