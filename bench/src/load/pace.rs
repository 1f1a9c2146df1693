//! When the next cycle starts: at once (closed loop), or when its turn in a schedule comes (open
//! loop).

/// A schedule for all lanes together. Lanes take its places in turn; one that is late starts at
/// once, and its latency counts from when it should have started. So a peer that falls behind shows
/// it, instead of being asked less.
pub(crate) struct Pace {
    interval_ns: Option<f64>,
    next_ns: f64,
}

impl Pace {
    /// So many cycles a second from `start` on; as many as there can be, without a rate.
    pub(crate) fn new(cycles_per_s: Option<f64>, start: u64) -> Self {
        Pace {
            interval_ns: cycles_per_s.map(|rate| 1e9 / rate),
            next_ns: start as f64,
        }
    }

    /// When a lane that is free now should start its next cycle.
    #[inline]
    pub(crate) fn next(&mut self, now: u64) -> u64 {
        let Some(interval_ns) = self.interval_ns else {
            return now;
        };
        let at = self.next_ns;
        self.next_ns += interval_ns;
        at as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_loop_starts_at_once() {
        let mut pace = Pace::new(None, 5);
        assert_eq!(pace.next(100), 100);
        assert_eq!(pace.next(101), 101);
    }

    #[test]
    fn an_open_loop_keeps_its_schedule_however_late_its_lanes_are() {
        let mut pace = Pace::new(Some(1_000.0), 0);
        let starts: Vec<u64> = [0, 0, 9_000_000, 9_000_000]
            .map(|now| pace.next(now))
            .to_vec();
        assert_eq!(starts, [0, 1_000_000, 2_000_000, 3_000_000]);
    }
}
