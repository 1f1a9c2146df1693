//! The one source of time. Everything else is given `now`.

use engine::Tick;
use std::time::Instant;

/// Milliseconds since the server started, from the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock {
            start: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Tick {
        Tick::default().plus_ms(self.start.elapsed().as_millis() as u64)
    }
}
