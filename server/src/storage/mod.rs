//! What has to survive a crash, and which part of the server sees to it.
//!
//! | file             | what                                                                     |
//! |------------------|--------------------------------------------------------------------------|
//! | `mod.rs`         | the log as all cores share it, and the horizon                           |
//! | `journal.rs`     | the seam: where records go, and when they are safe there                 |
//! | `log_clock.rs`   | the time in which everything is written                                  |
//! | `long_leases.rs` | which leases are written down one by one in `fence`                      |
//! | `alarm.rs`       | the engine says that fences run low                                      |
//! | `grace.rs`       | after a crash: how long holders may claim their locks                    |
//!
//! None of them knows cores or sessions. What reads the log at the start, raises ceilings and takes
//! snapshots is in `durability/`. How replies wait for the disk is in `core/durable_replies.rs`,
//! what is written down for which request in `core/books/record.rs`.
//!
//! # What is promised
//!
//! - **A fence** is granted only below a ceiling that is on the disk. The engine checks it with
//!   every grant; the keeper raises a ceiling when half of its fences are used, so that no acquirer
//!   waits for it.
//! - **`fence`**: no lease of up to `--grace-max` that was acknowledged ends after the horizon that
//!   is on the disk. The keeper keeps it a little ahead of the latest end; a lease that would end
//!   behind it is acknowledged when a later horizon is on the disk. So after a crash it is known
//!   how long the grace period must be, and it is never longer than `--grace-max`. Longer leases
//!   are written down one by one.
//! - **`lease`**: nothing is acknowledged before its record is on the disk.
//! - **The first error is the last.** Whatever the disk refuses ends the process at once, with
//!   [`EXIT_DISK`]: nothing that waits for a record is acknowledged any more, and nothing is tried
//!   again. In `fence` a reply that needs no record may leave in the moment between the error and
//!   the end: a ceiling and a horizon on the disk cover it, so it holds whatever the disk does
//!   next. Looking for an error before each such reply would cost every request and close only part
//!   of that moment. Room for a spare segment or a snapshot is the one thing that may be refused:
//!   see `wal/src/log/room.rs`.

mod alarm;
mod grace;
mod journal;
mod log_clock;
mod long_leases;

#[cfg(test)]
mod lives;

pub(crate) use alarm::Alarm;
pub(crate) use grace::{Horizon, Recovery};
pub(crate) use journal::Journal;
pub(crate) use log_clock::{FOREVER_UNIX_MS, LogClock, unix_now_ms};
pub(crate) use long_leases::LongLeases;

use engine::Tick;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wal::{Batch, Record, Scope, Ticket, WalError};

/// The exit code of a server whose disk failed: EX_IOERR.
pub const EXIT_DISK: i32 = 74;

/// How far the horizon is pushed beyond the latest end of a lease. More makes the grace period
/// after a crash longer, less makes syncs more frequent.
pub(crate) const HORIZON_AHEAD_MS: u64 = 2_000;

/// The latest end of a lease is kept this much too late: most grants then need not write it.
const LATEST_END_GRAIN_MS: u64 = 64;

/// The log, as all cores share it.
pub(crate) struct Storage {
    pub(crate) journal: Journal,
    pub(crate) scope: Scope,
    pub(crate) clock: LogClock,
    /// The longest lease that the horizon covers; longer ones are written down.
    pub(crate) lease_ms_max: u32,
    pub(crate) long: Arc<LongLeases>,
    /// The horizon on the disk, as a tick.
    horizon_ms: AtomicU64,
    /// The highest horizon that was asked for, as a tick. It may be on the disk before the core
    /// that asked for it hears so: what a snapshot says must not be lower.
    horizon_asked_ms: AtomicU64,
    /// The latest end of a lease that was promised, as a tick; up to the grain.
    latest_end_ms: AtomicU64,
    /// Held while a count is read and appended: see `core/books/record.rs`.
    pub(crate) counts: Mutex<()>,
}

impl Storage {
    pub(crate) fn new(
        journal: Journal,
        scope: Scope,
        clock: LogClock,
        lease_ms_max: u32,
        long: Arc<LongLeases>,
    ) -> Self {
        Storage {
            journal,
            scope,
            clock,
            lease_ms_max,
            long,
            horizon_ms: AtomicU64::new(0),
            horizon_asked_ms: AtomicU64::new(0),
            latest_end_ms: AtomicU64::new(0),
            counts: Mutex::new(()),
        }
    }

    /// Makes the first horizon durable, beyond all short leases that were put back. From that
    /// record on, what becomes of them is not written down any more. Waits for the disk.
    pub(crate) fn begin(&self, latest_end: Tick) -> Result<(), WalError> {
        self.write_horizon(Storage::horizon_for(latest_end))
    }

    /// Makes a horizon durable. Waits for the disk.
    pub(crate) fn write_horizon(&self, horizon: Tick) -> Result<(), WalError> {
        let ticket = self.journal.append(&self.ask_horizon(horizon));
        self.journal.wait(ticket)?;
        self.horizon_synced(horizon);
        Ok(())
    }

    /// The record that asks for a horizon. It is to be appended.
    pub(crate) fn ask_horizon(&self, horizon: Tick) -> Record<'static> {
        // Before the record is appended. A snapshot that leaves the record behind was begun after
        // its sync, and so finds this.
        self.horizon_asked_ms
            .fetch_max(horizon.as_ms(), Ordering::SeqCst);
        self.horizon_at(horizon).record()
    }

    /// The highest horizon that was asked for, on the disk or not.
    pub(crate) fn horizon_asked(&self) -> Horizon {
        match self.horizon_asked_ms.load(Ordering::SeqCst) {
            0 => Horizon::default(),
            asked_ms => self.horizon_at(Tick::from_ms(asked_ms)),
        }
    }

    fn horizon_at(&self, horizon: Tick) -> Horizon {
        Horizon {
            unix_ms: self.unix_ms(horizon),
            lease_ms_max: Some(self.lease_ms_max),
        }
    }

    /// A tick in the log's time.
    pub(crate) fn unix_ms(&self, tick: Tick) -> u64 {
        self.clock.unix_ms(tick)
    }

    /// Appends records. If the wall clock was set forward, the log hears of it with them.
    pub(crate) fn append(&self, mut records: Batch) -> Ticket {
        match self.clock.step_ahead() {
            None => self.journal.append_batch(records),
            Some(step) => {
                records.push(&step.record);
                self.journal.append_batch(records)
            }
        }
    }

    /// Whether a lease this long is written down, also by a server that writes down fences only.
    #[inline]
    pub(crate) fn is_long(&self, lease_ms: u64) -> bool {
        lease_ms > u64::from(self.lease_ms_max)
    }

    /// How long a grace period would be after a crash at this moment.
    pub(crate) fn crash_grace_ms(&self, now: Tick) -> u64 {
        if self.scope == Scope::Leases {
            return 0;
        }
        let horizon_ms = self.horizon_asked_ms.load(Ordering::Relaxed);
        let left_ms = horizon_ms.saturating_sub(now.as_ms());
        left_ms.min(u64::from(self.lease_ms_max))
    }

    /// Whether every lease that ends at `until` is covered by the horizon on the disk; and takes
    /// note of it.
    #[inline]
    pub(crate) fn covers(&self, until: Tick) -> bool {
        let until_ms = until.as_ms();
        if until_ms > self.latest_end_ms.load(Ordering::Relaxed) {
            self.latest_end_ms
                .fetch_max(until_ms + LATEST_END_GRAIN_MS, Ordering::Relaxed);
        }
        // Acquire, paired with `horizon_synced`.
        until_ms < self.horizon_ms.load(Ordering::Acquire)
    }

    /// The horizon to ask for when this lease is not covered.
    pub(crate) fn horizon_for(until: Tick) -> Tick {
        until.plus_ms(HORIZON_AHEAD_MS)
    }

    /// The latest end of a lease that was promised, and the horizon on the disk, as ticks.
    pub(crate) fn latest_end_and_horizon_ms(&self) -> (u64, u64) {
        let latest_ms = self.latest_end_ms.load(Ordering::Relaxed);
        (latest_ms, self.horizon_ms.load(Ordering::Relaxed))
    }

    /// This horizon is on the disk.
    pub(crate) fn horizon_synced(&self, horizon: Tick) {
        self.horizon_ms
            .fetch_max(horizon.as_ms(), Ordering::Release);
    }
}

/// Ends the process: the disk has failed, and whatever was not acknowledged by now must never be.
pub(crate) fn give_up(error: &WalError) -> ! {
    tracing::error!(
        "the log cannot be written: {error}. The server stops here, and acknowledges nothing more. What was acknowledged is \
         on the disk; look after the disk and start again"
    );
    std::process::exit(EXIT_DISK);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::clock::Clock;
    use wal::forgetful::ForgetfulDisk;

    /// A horizon may be on the disk before the core that asked for it hears so. A snapshot that was
    /// taken in between had the one before, and dropped the record.
    #[test]
    fn snapshots_have_a_horizon_as_soon_as_it_is_appended() {
        let options = wal::Options::new(Scope::Fences, unix_now_ms());
        let disk = Arc::new(ForgetfulDisk::new());
        let (opened, recovered) = wal::open_on(disk, &options).unwrap();
        let clock = LogClock::resume(Clock::start(), &recovered);
        let journal = Journal::Disk(opened.start(()).unwrap());
        let long = Arc::new(LongLeases::new());
        let storage = Storage::new(journal, Scope::Fences, clock, 30_000, long);
        storage.begin(Tick::from_ms(0)).unwrap();
        let asked = Tick::from_ms(60_000);
        let ticket = storage.journal.append(&storage.ask_horizon(asked));
        storage.journal.wait(ticket).unwrap();
        assert_eq!(storage.horizon_asked().unix_ms, storage.unix_ms(asked));
    }
}
