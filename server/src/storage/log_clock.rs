//! The log's clock: the one time in which everything on the disk is written.
//!
//! It runs with the steady clock and never steps while a server runs, so the ends of leases in the
//! log stay right whatever happens to the wall clock. The wall clock has one use: it tells the next
//! server how much time has passed since this one stopped. So the log also says how far the wall
//! clock is ahead of the log's clock ([`Record::Clock`]), and says so again whenever that changes.
//!
//! A new server goes on from `wall - ahead`, and never from before the latest time in the log:
//!
//! | the wall clock was set | what becomes of leases after a crash |
//! |---|---|
//! | while the server ran, in either direction | they end on time: the log knows of the step |
//! | back, while no server ran | they end late, by the step |
//! | forward, while no server ran | they end early: it cannot be told from time that has passed |
//!
//! `ahead` is written as an upper bound. Being too high by a moment makes leases end late by that
//! moment; being too low would make them end early.
//!
//! A step becomes known with the next records that are appended, and within a round of the keeper
//! otherwise. A crash in that tenth of a second is the one case that is not covered.

use crate::system::clock::Clock;
use engine::Tick;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicI64, Ordering};
use wal::{Record, Recovered};

/// In the log: a lease that does not end.
pub(crate) const FOREVER_UNIX_MS: u64 = u64::MAX;

/// A wall clock that falls behind by less than this was not set, but read at a bad moment.
const BACK_MS_MIN: i64 = 10;

/// Steps from this size on are worth a line in the server's own log.
const SAID_MS_MIN: i64 = 100;

/// How often a reading is tried again if the thread was interrupted during it.
const TRIES_MAX: u32 = 3;

pub(crate) struct LogClock {
    clock: Clock,
    wall: fn() -> u64,
    /// What to add to a tick to get the log's time.
    base_ms: u64,
    /// How far the wall clock is ahead, as the log knows it or is about to.
    wall_ahead_ms: AtomicI64,
    /// Held from reading the wall clock to appending what it showed: the last such record counts.
    following: Mutex<()>,
    /// In a cluster the next leader hears the clock from its own log, and no wall clock counts.
    follows_wall: bool,
}

/// The wall clock was set. Holds other threads back from saying so until this is dropped.
pub(crate) struct Step<'a> {
    /// What to append.
    pub(crate) record: Record<'static>,
    _following: MutexGuard<'a, ()>,
}

impl LogClock {
    /// Goes on where the log ends.
    pub(crate) fn resume(clock: Clock, recovered: &Recovered) -> LogClock {
        let Recovered {
            last_clock_unix_ms,
            wall_ahead_ms,
            ..
        } = *recovered;
        LogClock::begin(clock, unix_now_ms, last_clock_unix_ms, wall_ahead_ms)
    }

    /// The cluster's clock, which is at `now_ms` at least and has nothing to do with wall clocks.
    pub(crate) fn of_cluster(clock: Clock, now_ms: u64) -> LogClock {
        LogClock {
            clock,
            wall: unix_now_ms,
            base_ms: now_ms.saturating_sub(clock.now().as_ms()),
            wall_ahead_ms: AtomicI64::new(i64::MAX),
            following: Mutex::new(()),
            follows_wall: false,
        }
    }

    fn begin(
        clock: Clock,
        wall: fn() -> u64,
        last_clock_unix_ms: u64,
        wall_ahead_ms: i64,
    ) -> LogClock {
        let tick = clock.now();
        let by_wall_ms = wall().saturating_add_signed(wall_ahead_ms.saturating_neg());
        let now_ms = by_wall_ms.max(last_clock_unix_ms);
        if now_ms > by_wall_ms {
            tracing::warn!(
                "the wall clock was set back by {} or more while no server ran; leases are counted \
                 from the latest time in the log, and end late rather than early",
                humantime::format_duration(std::time::Duration::from_millis(now_ms - by_wall_ms))
            );
        }
        let log_clock = LogClock {
            clock,
            wall,
            base_ms: now_ms.saturating_sub(tick.as_ms()),
            wall_ahead_ms: AtomicI64::new(0),
            following: Mutex::new(()),
            follows_wall: true,
        };
        let ahead_ms = log_clock.measure();
        log_clock.wall_ahead_ms.store(ahead_ms, Ordering::Relaxed);
        log_clock
    }

    /// A tick in the log's time.
    pub(crate) fn unix_ms(&self, tick: Tick) -> u64 {
        if tick == Tick::NEVER {
            return FOREVER_UNIX_MS;
        }
        tick.as_ms() + self.base_ms
    }

    /// Reads the present in the log's time, for a thread that has nothing else of this clock.
    pub(crate) fn reader(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let (clock, base_ms) = (self.clock, self.base_ms);
        move || clock.now().as_ms() + base_ms
    }

    /// The present in the log's time.
    pub(crate) fn now_unix_ms(&self) -> u64 {
        self.unix_ms(self.clock.now())
    }

    /// What both clocks show.
    pub(crate) fn record(&self) -> Record<'static> {
        self.record_with(self.wall_ahead_ms.load(Ordering::Relaxed))
    }

    fn record_with(&self, ahead_ms: i64) -> Record<'static> {
        let unix_ms = self.now_unix_ms();
        let wall_unix_ms = unix_ms.saturating_add_signed(ahead_ms);
        Record::Clock {
            unix_ms,
            wall_unix_ms: self.follows_wall.then_some(wall_unix_ms),
        }
    }

    /// Whether the wall clock has gone ahead of what the log knows. That must not wait: a lease
    /// would end early.
    #[inline]
    pub(crate) fn step_ahead(&self) -> Option<Step<'_>> {
        if !self.follows_wall || self.measure() <= self.wall_ahead_ms.load(Ordering::Relaxed) {
            return None;
        }
        self.follow()
    }

    /// Whether the wall clock was set, in either direction.
    pub(crate) fn step(&self) -> Option<Step<'_>> {
        if !self.follows_wall {
            return None;
        }
        let known_ms = self.wall_ahead_ms.load(Ordering::Relaxed);
        let seen_ms = self.measure();
        if seen_ms <= known_ms && seen_ms > known_ms - BACK_MS_MIN {
            return None;
        }
        self.follow()
    }

    #[cold]
    fn follow(&self) -> Option<Step<'_>> {
        let following = self.following.lock();
        let known_ms = self.wall_ahead_ms.load(Ordering::Relaxed);
        let seen_ms = self.measure();
        if seen_ms <= known_ms && seen_ms > known_ms - BACK_MS_MIN {
            // Another thread has said so meanwhile.
            return None;
        }
        self.wall_ahead_ms.store(seen_ms, Ordering::Relaxed);
        let moved_ms = seen_ms - known_ms;
        if moved_ms.abs() >= SAID_MS_MIN {
            tracing::warn!(
                "the wall clock was set by {moved_ms} ms; leases go on by the steady clock"
            );
        }
        Some(Step {
            record: self.record_with(seen_ms),
            _following: following,
        })
    }

    /// How far the wall clock is ahead, at most.
    fn measure(&self) -> i64 {
        let mut before = self.clock.now();
        for _ in 1..TRIES_MAX {
            let wall_ms = (self.wall)();
            let after = self.clock.now();
            if before.ms_until(after) <= 1 {
                return self.ahead_ms(wall_ms, before);
            }
            before = after;
        }
        self.ahead_ms((self.wall)(), before)
    }

    /// Both clocks cut off what is left of a millisecond; one more makes up for that.
    fn ahead_ms(&self, wall_ms: u64, tick: Tick) -> i64 {
        (wall_ms + 1).wrapping_sub(tick.as_ms() + self.base_ms) as i64
    }
}

/// The wall clock. Outside of this file it is for people only.
pub(crate) fn unix_now_ms() -> u64 {
    crate::system::wall_clock::now_unix_ms()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Journal, LongLeases, Storage};
    use std::cell::Cell;
    use std::sync::Arc;
    use wal::forgetful::ForgetfulDisk;
    use wal::{Batch, Options, Scope};

    const HOUR_MS: i64 = 3_600_000;

    /// How much later than it was meant to be a test may find the time.
    const SLACK_MS: u64 = 60_000;

    thread_local! {
        /// How far this test's wall clock is ahead of the system's.
        static SHIFT_MS: Cell<i64> = const { Cell::new(0) };
    }

    fn wall() -> u64 {
        unix_now_ms().saturating_add_signed(SHIFT_MS.get())
    }

    /// A server that found nothing.
    fn new_log() -> LogClock {
        LogClock::begin(Clock::start(), wall, 0, 0)
    }

    /// The next server, after what the log says of its clocks.
    fn next(record: Record<'_>) -> LogClock {
        let Record::Clock {
            unix_ms,
            wall_unix_ms,
        } = record
        else {
            panic!("{record:?} is about no clock");
        };
        let ahead_ms = wall_unix_ms.unwrap().wrapping_sub(unix_ms) as i64;
        LogClock::begin(Clock::start(), wall, unix_ms, ahead_ms)
    }

    /// Time goes on from the first server to the second: not back, and not by a step of the wall
    /// clock.
    fn assert_goes_on(first: &LogClock, second: &LogClock) {
        let (before, after) = (first.now_unix_ms(), second.now_unix_ms());
        // Both cut off what is left of a millisecond.
        assert!(after <= before + 1, "{after} is ahead of {before}");
        assert!(before <= after + SLACK_MS, "{after} is far behind {before}");
    }

    #[test]
    fn a_new_log_begins_with_the_wall_clock() {
        let log = new_log();
        assert!(log.now_unix_ms().abs_diff(wall()) < SLACK_MS);
        assert_goes_on(&log, &next(log.record()));
    }

    #[test]
    fn steps_of_any_size_while_a_server_runs_move_no_lease() {
        for step_ms in [HOUR_MS, -HOUR_MS, 450, -450, 20] {
            SHIFT_MS.set(0);
            let log = new_log();
            let end = Tick::from_ms(60_000);
            let end_ms = log.unix_ms(end);
            SHIFT_MS.set(step_ms);
            let step = log.step().expect("the step is seen");
            assert_eq!(log.unix_ms(end), end_ms);
            assert_goes_on(&log, &next(step.record));
        }
    }

    #[test]
    fn a_step_ahead_is_said_once_and_with_the_next_records() {
        let log = new_log();
        SHIFT_MS.set(450);
        assert!(log.step_ahead().is_some());
        // Read at another part of a millisecond it may be one more, once.
        drop(log.step_ahead());
        assert!(log.step_ahead().is_none());
        SHIFT_MS.set(0);
        assert!(log.step_ahead().is_none(), "backwards has time");
        assert!(log.step().is_some());
    }

    /// A lease that is granted in that moment would end early, or the keeper would have to be very
    /// quick.
    #[test]
    fn what_is_appended_after_a_step_ahead_says_so() {
        let disk = ForgetfulDisk::new();
        let open = |disk| wal::open_on(Arc::new(disk), &Options::new(Scope::Leases, wall()));
        let (opened, _) = open(disk.clone()).unwrap();
        let journal = Journal::Disk(opened.start(()).unwrap());
        let long = Arc::new(LongLeases::new());
        let storage = Storage::new(journal, Scope::Leases, new_log(), 0, long);
        SHIFT_MS.set(450);
        let mut records = Batch::new();
        records.push(&Record::Ceiling { shard: 0, fence: 1 });
        storage.journal.wait(storage.append(records)).unwrap();
        let (_, recovered) = open(disk.kill()).unwrap();
        assert!(recovered.wall_ahead_ms >= 450);
    }

    #[test]
    fn a_clock_that_is_set_back_while_no_server_runs_does_not_set_the_log_back() {
        let log = new_log();
        let record = log.record();
        SHIFT_MS.set(-HOUR_MS);
        let second = next(record);
        let before = log.now_unix_ms();
        assert!(second.now_unix_ms() + SLACK_MS >= before);
        // What the second server writes is as right as if the clock had never been ahead.
        assert_goes_on(&second, &next(second.record()));
    }
}
