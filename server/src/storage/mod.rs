//! What has to survive a crash, and who sees to it that it does.
//!
//! | file          | what                                                                                              |
//! |---------------|---------------------------------------------------------------------------------------------------|
//! | `mod.rs`      | the log as all cores share it: times on the wall, the horizon, the alarm for ceilings             |
//! | `opening.rs`  | at the start: read the log, decide about floor and grace; `restore.rs`: put locks back            |
//! | `keeper.rs`   | meanwhile: one thread that keeps ceilings and horizon ahead of those who need them                |
//! | `grace.rs`    | after a stop without notice: how long holders may claim what is theirs                            |
//! | `photo.rs`    | snapshots: everything that is held, written down at once                                          |
//!
//! How replies wait for the disk is in `net/holdback.rs`, what is written down for which request in `net/record.rs`.
//!
//! # What is promised
//!
//! - **A fence** is granted only below a ceiling that is on the disk. The engine checks it with every grant; the keeper raises
//!   a ceiling when half of its fences are used, so that nobody waits for it.
//! - **`fence`**: no lease that anybody was told of ends after the horizon that is on the disk. The keeper keeps it a little
//!   ahead of the latest end; a lease that would end behind it is acknowledged when a later horizon is on the disk. So after
//!   a crash it is known how long the grace period must be.
//! - **`lease`**: nothing is acknowledged before its record is on the disk.
//! - **The first error is the last.** Whatever the disk refuses ends the process at once, with [`EXIT_DISK`]: nothing is
//!   acknowledged any more, and nothing is tried again.

mod grace;
mod keeper;
mod opening;
mod photo;
mod restore;

pub(crate) use grace::Recovery;
pub(crate) use keeper::Keeper;
pub(crate) use opening::{Opening, floor_without_log};
pub(crate) use restore::{Restored, restore};

use crate::clock::Clock;
use crate::host::Post;
use crate::wal::{Listener, Record, Scope, Ticket, Wal, WalError};
use engine::{SleepFlag, Tick};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// The exit code of a server whose disk failed: EX_IOERR.
pub const EXIT_DISK: i32 = 74;

/// How far the horizon is pushed beyond the latest end of a lease. More makes the grace period after a crash longer, less
/// makes syncs more frequent.
const HORIZON_AHEAD_MS: u64 = 2_000;

/// The longest grace period that a lease can ask for: a day, which is as long as a native lease can be. Of those that last longer,
/// or for ever, which come in through the Redis port, only `durability = lease` knows after a crash.
pub(crate) const COVERED_MS_MAX: u64 = protocol::limits::TTL_MS_MAX as u64;

/// In the log: a lease that does not end.
pub(crate) const FOREVER_UNIX_MS: u64 = u64::MAX;

/// How much finer than this nobody wants to know when the latest lease ends: it saves a write for most grants.
const LATEST_END_GRAIN_MS: u64 = 64;

/// The log, as all cores share it.
pub(crate) struct Storage {
    pub(crate) wal: Wal,
    pub(crate) scope: Scope,
    /// What to add to a tick to get the time on the wall.
    wall_offset_ms: AtomicI64,
    /// The horizon on the disk, as a tick.
    horizon_ms: AtomicU64,
    /// The latest end of a lease that was promised, as a tick; up to the grain.
    latest_end_ms: AtomicU64,
}

impl Storage {
    pub(crate) fn new(wal: Wal, scope: Scope, clock: Clock) -> Self {
        Storage {
            wal,
            scope,
            wall_offset_ms: AtomicI64::new(wall_offset_ms(clock)),
            horizon_ms: AtomicU64::new(0),
            latest_end_ms: AtomicU64::new(0),
        }
    }

    /// Makes the first horizon durable, beyond all that was put back. Waits for the disk.
    pub(crate) fn begin(&self, latest_end: Tick) -> Result<(), WalError> {
        if self.scope == Scope::Leases {
            return Ok(());
        }
        let horizon = Storage::horizon_for(latest_end);
        let unix_ms = self.unix_ms(horizon);
        self.wal
            .wait(self.wal.append(&Record::Horizon { unix_ms }))?;
        self.horizon_synced(horizon);
        Ok(())
    }

    /// A tick as the time on the wall.
    pub(crate) fn unix_ms(&self, tick: Tick) -> u64 {
        if tick == Tick::NEVER {
            return FOREVER_UNIX_MS;
        }
        let offset_ms = self.wall_offset_ms.load(Ordering::Relaxed);
        tick.as_ms().saturating_add_signed(offset_ms)
    }

    /// Whether every lease that ends at `until` is covered by the horizon on the disk; and takes note of it.
    #[inline]
    pub(crate) fn covers(&self, until: Tick) -> bool {
        let until_ms = until.as_ms();
        if until_ms > self.latest_end_ms.load(Ordering::Relaxed) {
            self.latest_end_ms
                .fetch_max(until_ms + LATEST_END_GRAIN_MS, Ordering::Relaxed);
        }
        // Acquire, paired with `horizon_synced`.
        until_ms <= self.horizon_ms.load(Ordering::Acquire)
    }

    /// The horizon to ask for when this lease is not covered.
    pub(crate) fn horizon_for(until: Tick) -> Tick {
        until.plus_ms(HORIZON_AHEAD_MS)
    }

    /// This horizon is on the disk.
    pub(crate) fn horizon_synced(&self, horizon: Tick) {
        self.horizon_ms
            .fetch_max(horizon.as_ms(), Ordering::Release);
    }
}

/// Where to look when somebody says that fences run low. Rung under a shard's mutex, so it only sets a mark.
pub(crate) struct Alarm {
    low: Box<[AtomicBool]>,
    keeper: OnceLock<Thread>,
}

impl Alarm {
    pub(crate) fn new(shards: usize) -> Self {
        Alarm {
            low: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            keeper: OnceLock::new(),
        }
    }

    /// Fences of this shard run low. Said with every grant until they do not.
    pub(crate) fn ring(&self, shard: usize) {
        // Looked at before it is changed: once it is set, the line stays shared.
        if !self.low[shard].load(Ordering::Relaxed)
            && !self.low[shard].swap(true, Ordering::AcqRel)
            && let Some(keeper) = self.keeper.get()
        {
            keeper.unpark();
        }
    }

    fn take_low(&self, shard: usize) -> bool {
        self.low[shard].load(Ordering::Relaxed) && self.low[shard].swap(false, Ordering::AcqRel)
    }
}

/// Wakes the cores that wait for the disk.
pub(crate) struct Wakeup {
    pub(crate) posts: Arc<[Post]>,
}

impl Listener for Wakeup {
    fn synced(&mut self, _: Ticket) {
        // Either a core sees what is synced now, in `Core::await_sync`, or we see that it waits.
        for post in SleepFlag::to_wake(&self.posts, |post| &post.awaits_sync) {
            post.bell.notify_one();
        }
    }

    fn failed(&mut self, error: &WalError) {
        give_up(error);
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

pub(crate) fn unix_now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_millis() as u64
}

fn wall_offset_ms(clock: Clock) -> i64 {
    unix_now_ms() as i64 - clock.now().as_ms() as i64
}
