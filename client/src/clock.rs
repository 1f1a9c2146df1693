//! The clock that leases are counted on: it goes on while the machine is suspended.
//!
//! `Instant` is `CLOCK_MONOTONIC` on Linux, which stands still while a laptop sleeps or a virtual
//! machine is stopped with its guest's consent. The server's clock goes on, and the lease ends
//! there; a guard counted on `Instant` would be valid for as long again after waking up. So leases
//! and sessions are counted in [`Moment`]s: an `Instant` plus the time that the machine has been
//! suspended for, by `CLOCK_BOOTTIME`. Where there is no such clock, a `Moment` is an `Instant`,
//! and only the fence protects from a holder that slept.
//!
//! Sleeping and timeouts are still tokio's, which stand still as well. After a suspension they come
//! late, which costs time and never a promise: every decision about a lease looks at this clock.
//! What waits for the end of a lease looks at it once in [`LOOK_MAX`].
//!
//! When a host stops a virtual machine without telling the guest, all clocks of the guest stop.
//! Nothing here helps against that; fences do.

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A task that sleeps until a lease ends looks again after this long: the machine may have been
/// suspended, and the sleep with it.
pub(crate) const LOOK_MAX: Duration = Duration::from_secs(1);

/// The clocks are read one after the other, so they differ by some nanoseconds more or less each
/// time. Less than this is no suspension, and is within the margin of every lease.
const SUSPENSION_MIN: Duration = Duration::from_millis(1);

/// A moment on the clock that does not stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Instant);

impl Moment {
    pub(crate) fn now() -> Self {
        // In this order: a suspension between the two is seen by the next call, at the latest.
        let suspended = suspended();
        Self(Instant::now() + suspended)
    }

    /// How long after `earlier` it is; zero if it is not.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// The same moment, to compare with `Instant::now()` for as long as the machine is not
    /// suspended again. A moment before the earliest possible `Instant` is given as now: both have
    /// passed.
    pub(crate) fn into_std(self) -> std::time::Instant {
        let instant = self.0.checked_sub(suspended());
        instant.unwrap_or_else(Instant::now).into_std()
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, after: Duration) -> Self {
        Self(self.0 + after)
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, before: Duration) -> Self {
        Self(self.0 - before)
    }
}

/// Waits until then, or longer if the machine is suspended meanwhile. May be dropped at any time.
pub(crate) async fn sleep_until(moment: Moment) {
    tokio::time::sleep(moment.since(Moment::now())).await;
}

/// How long this machine has been suspended since it was started, by the latest look. Never falls.
fn suspended() -> Duration {
    static SUSPENDED_NS: AtomicU64 = AtomicU64::new(0);
    let suspended = noted(&SUSPENDED_NS, measured());
    #[cfg(test)]
    let suspended = suspended + tests::PRETENDED.get();
    suspended
}

/// Takes note of what was measured, unless the difference is within the error of measuring.
fn noted(known_ns: &AtomicU64, measured: Duration) -> Duration {
    // Relaxed: a number that rises and stands for nothing else.
    let known = Duration::from_nanos(known_ns.load(Ordering::Relaxed));
    if measured < known + SUSPENSION_MIN {
        return known;
    }
    let measured_ns = u64::try_from(measured.as_nanos()).unwrap_or(u64::MAX);
    let before_ns = known_ns.fetch_max(measured_ns, Ordering::Relaxed);
    Duration::from_nanos(before_ns.max(measured_ns))
}

/// Too little if this thread is stopped between the two clocks, and never too much: no lease ends
/// early for that.
#[cfg(target_os = "linux")]
fn measured() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let boot = clock_gettime(ClockId::Boottime);
    let monotonic = clock_gettime(ClockId::Monotonic);
    let suspended = boot.checked_sub(monotonic);
    let suspended = suspended.and_then(|suspended| Duration::try_from(suspended).ok());
    suspended.unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn measured() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    std::thread_local! {
        pub(super) static PRETENDED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// To this thread it looks as if the machine had just been suspended for so long.
    pub(crate) fn suspend_for(time: Duration) {
        PRETENDED.set(PRETENDED.get() + time);
    }

    #[test]
    fn a_suspension_is_noted_and_the_jitter_of_two_clocks_is_not() {
        let known_ns = AtomicU64::new(0);
        let ms = Duration::from_millis;
        assert_eq!(noted(&known_ns, Duration::from_micros(3)), ms(0));
        assert_eq!(noted(&known_ns, ms(5_000)), ms(5_000));
        assert_eq!(noted(&known_ns, ms(4_990)), ms(5_000), "it never falls");
        let jitter = ms(5_000) + Duration::from_micros(900);
        assert_eq!(noted(&known_ns, jitter), ms(5_000));
        assert_eq!(noted(&known_ns, ms(65_000)), ms(65_000));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_suspension_it_is_the_clock_that_sleeps_go_by() {
        let start = Moment::now();
        let instant = Instant::now();
        sleep_until(start + Duration::from_secs(7)).await;
        let passed = Moment::now().since(start);
        assert_eq!(instant.elapsed(), passed);
        assert_eq!(start.since(Moment::now()), Duration::ZERO);
        assert!((start + passed).into_std() <= Instant::now().into_std());
    }
}
