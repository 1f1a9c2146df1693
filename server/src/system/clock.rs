//! The one source of time. Everything else is given `now`.

use engine::Tick;
use std::time::{Duration, Instant};

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
        self.at(Instant::now())
    }

    /// The tick of a moment since the start.
    pub(crate) fn at(&self, instant: Instant) -> Tick {
        let since = instant.saturating_duration_since(self.start);
        Tick::default().plus_ms(since.as_millis() as u64)
    }

    /// How long it is until then; nothing if that has passed.
    pub(crate) fn left_until(&self, then: Tick) -> Duration {
        Duration::from_millis(then.as_ms()).saturating_sub(self.start.elapsed())
    }
}
