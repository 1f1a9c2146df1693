//! The start: read the log, decide where fences go on and whether there is a grace period.

use super::restore::Known;
use crate::config::{Config, Durability};
use crate::core::switchboard::Switchboard;
use crate::observe::audit::LastStop;
use crate::session::secret::SessionKeys;
use crate::storage::{Horizon, Journal, LogClock, LongLeases, Storage, unix_now_ms};
use crate::system::clock::Clock;
use engine::{Engine, Fence, Tick};
use std::sync::Arc;
use std::time::Duration;
use wal::{
    Batch, Disk, Highest, Leases, Listener, Opened, Options, Record, Recovered, Scope, WalError,
};

/// Fences that are made ready at once, per shard.
pub(super) const CEILING_STEP: u64 = 1 << 20;

/// Bytes of records that are appended at once while long leases are written down.
const BATCH_BYTES: usize = 1 << 20;

/// Sizes of the log that are not the usual ones.
#[derive(Clone, Copy, Default)]
pub(crate) struct LogSizes {
    pub(crate) snapshot_log_bytes: Option<u64>,
    pub(crate) segment_bytes: Option<u64>,
}

impl LogSizes {
    pub(crate) fn set(self, options: &mut Options) {
        if let Some(bytes) = self.snapshot_log_bytes {
            options.snapshot_log_bytes = bytes;
        }
        if let Some(bytes) = self.segment_bytes {
            options.segment_bytes = bytes;
        }
    }
}

/// What was found in the data directory, before there is an engine.
pub(crate) struct Opening {
    opened: Opened,
    pub(crate) recovered: Recovered,
    pub(crate) scope: Scope,
    pub(crate) keys: SessionKeys,
    pub(crate) clock: LogClock,
    /// The longest lease that will not be written down by itself in `fence`.
    pub(crate) lease_ms_max: u32,
    /// Those that will be.
    pub(crate) long: Arc<LongLeases>,
    /// How long holders from before may claim what is theirs; zero if everything is known.
    pub(crate) grace: Duration,
    /// Every fence lies above this.
    pub(crate) floor: Fence,
}

impl Opening {
    /// Reads the data directory, and changes nothing that is in it. `None` if nothing is to
    /// survive: see [`floor_without_log`].
    pub(crate) fn read(
        config: &Config,
        disk: Option<Arc<dyn Disk>>,
        log_sizes: LogSizes,
        clock_floor: Fence,
        clock: Clock,
    ) -> Result<Option<Self>, WalError> {
        let scope = match config.durability {
            Durability::None => return Ok(None),
            Durability::Fence => Scope::Fences,
            Durability::Lease => Scope::Leases,
        };
        let mut options = Options::new(scope, unix_now_ms());
        log_sizes.set(&mut options);
        let (opened, recovered) = match disk {
            Some(disk) => wal::open_on(disk, &options)?,
            None => wal::open(&config.data_dir, &options)?,
        };
        let keys = SessionKeys::new(recovered.session_key());
        report(&recovered);
        let clock = LogClock::resume(clock, &recovered);
        let grace = grace(&recovered, clock.now_unix_ms(), config.grace);
        let highest = Highest {
            ceiling: recovered.ceiling_max,
            clock_unix_ms: recovered.last_wall_unix_ms,
        };
        let floor = floor(&highest, clock_floor);
        Ok(Some(Opening {
            opened,
            recovered,
            scope,
            keys,
            clock,
            lease_ms_max: u32::try_from(config.grace_max.as_millis()).unwrap_or(u32::MAX),
            long: Arc::new(LongLeases::new()),
            grace,
            floor,
        }))
    }

    /// How the server before this one stopped, as the log has it.
    pub(crate) fn last_stop(&self) -> LastStop {
        match (self.recovered.scope, self.recovered.was_clean) {
            (None, _) => LastStop::None,
            (_, true) => LastStop::Clean,
            (_, false) => LastStop::Crash,
        }
    }

    /// What is to be put back.
    pub(crate) fn known(&self) -> Known<'_> {
        Known {
            sessions: &self.recovered.sessions,
            leases: std::slice::from_ref(&self.recovered.leases),
            clock: &self.clock,
            scope: self.scope,
            lease_ms_max: self.lease_ms_max,
            long: &self.long,
            knows_answers: false,
        }
    }

    /// How many locks there are to put back, at most.
    pub(crate) fn locks(&self) -> u64 {
        self.recovered.leases.keys() as u64
    }

    /// How many sessions there are to put back, at most.
    pub(crate) fn sessions(&self) -> u32 {
        u32::try_from(self.recovered.sessions.len()).unwrap_or(u32::MAX - 1)
    }

    /// Whether fences may be issued from the start.
    pub(crate) fn ceiling(&self) -> Fence {
        if self.grace.is_zero() {
            next_ceiling(self.floor)
        } else {
            self.floor
        }
    }

    /// What the servers before have left to their horizon.
    pub(crate) fn horizon(&self) -> Horizon {
        Horizon {
            unix_ms: self.recovered.horizon_unix_ms,
            lease_ms_max: u32::try_from(self.recovered.horizon_lease_ms_max).ok(),
        }
    }

    /// Starts to write, and makes the first ceilings, long leases that were found and the first
    /// horizon durable. Waits for the disk.
    pub(crate) fn start(
        self,
        listener: impl Listener,
        shards: usize,
        latest_end: Tick,
    ) -> Result<Storage, WalError> {
        let ceiling = self.ceiling();
        let wal = self.opened.at(self.clock.now_unix_ms()).start(listener)?;
        let journal = Journal::Disk(wal);
        let storage = Storage::new(
            journal,
            self.scope,
            self.clock,
            self.lease_ms_max,
            self.long,
        );
        let mut batch = Batch::new();
        // Also in a grace period, in which the ceiling is the floor, and before the time: the next
        // floor counts from both. A new time beside an old ceiling would put it below what a server
        // without a log has granted in between.
        push_ceilings(&mut batch, 0..shards, ceiling);
        batch.push(&storage.clock.record());
        storage.journal.wait(storage.append(batch))?;
        if self.scope == Scope::Fences {
            write_down_long(&storage, &self.recovered.leases)?;
            storage.begin(latest_end)?;
        }
        Ok(storage)
    }
}

/// Writes down the long leases that were found, unless the server before this one already did so.
/// May wait for the disk.
fn write_down_long(storage: &Storage, leases: &Leases) -> Result<(), WalError> {
    let mut records = Batch::new();
    for (lease, is_written_down) in leases.holds() {
        if !is_written_down && storage.long.contains(lease.key, lease.fence) {
            records.push(&Record::GrantedLong(lease));
        }
        if records.bytes() >= BATCH_BYTES {
            let records = std::mem::take(&mut records);
            storage.journal.wait(storage.append(records))?;
        }
    }
    // The first horizon is appended behind this, and waited for.
    storage.append(records);
    Ok(())
}

/// The floor of a server that keeps nothing: above every fence of the servers before it that did.
/// Reads the data directory, takes no lock and changes nothing.
pub(crate) fn floor_without_log(
    config: &Config,
    disk: Option<&dyn Disk>,
    clock_floor: Fence,
) -> Result<Fence, WalError> {
    let highest = match disk {
        Some(disk) => Highest::read_on(disk)?,
        None => Highest::read(&config.data_dir)?,
    };
    if highest.is_none() {
        tracing::warn!(
            "another server is writing to {}; fences of this one begin at the clock, whatever the other one grants",
            config.data_dir.display()
        );
    }
    Ok(floor(&highest.unwrap_or_default(), clock_floor))
}

/// Every fence lies above this.
///
/// Above the clock: a million fences for every second since 1970, so that a server without a log
/// rises as well. And above the highest ceiling by a million for every second since it was known: a
/// server without a log may have run here since then, and it began at the ceiling as well. Servers
/// with and without a log count from the same time, the last that the log says of the wall clock.
/// Ceilings can be ahead of the clock: each start raises them by about a second, and a repair by
/// half a year.
fn floor(highest: &Highest, clock_floor: Fence) -> Fence {
    if highest.ceiling == 0 {
        return clock_floor;
    }
    let known_floor = (u128::from(highest.clock_unix_ms) << 20) / 1000;
    let since = u128::from(clock_floor.get()).saturating_sub(known_floor) as u64;
    let ceiling = highest.ceiling;
    let above = Fence::granted(ceiling.saturating_add(since)).or_else(|| Fence::granted(ceiling));
    above.map_or(clock_floor, |above| above.max(clock_floor))
}

pub(super) fn next_ceiling(from: Fence) -> Fence {
    from.saturating_add(CEILING_STEP)
}

pub(super) fn push_ceilings(
    batch: &mut Batch,
    shards: impl Iterator<Item = usize>,
    ceiling: Fence,
) {
    for shard in shards {
        batch.push(&Record::Ceiling {
            shard: shard as u16,
            fence: ceiling.get(),
        });
    }
}

fn report(recovered: &Recovered) {
    if let Some(torn) = &recovered.torn {
        tracing::warn!("{torn}");
    }
    tracing::info!(
        records = recovered.records,
        bytes = recovered.bytes,
        took_ms = recovered.duration.as_millis() as u64,
        stopped = match (recovered.scope, recovered.was_clean) {
            (None, _) => "never started",
            (_, true) => "in good order",
            (_, false) => "without notice",
        },
        "log read"
    );
}

/// How long leases may still live that no record names. Whatever mode the last server ran in, and
/// however it stopped: only a clean stop, or the horizon's end, means that every lease is known.
fn grace(recovered: &Recovered, now_unix_ms: u64, is_on: bool) -> Duration {
    let left_ms = recovered.horizon_unix_ms.saturating_sub(now_unix_ms);
    // Every such lease was granted before now.
    let left = Duration::from_millis(left_ms.min(recovered.horizon_lease_ms_max));
    if left.is_zero() {
        return Duration::ZERO;
    }
    let human = humantime::format_duration(left);
    if !is_on {
        tracing::warn!(
            "grace is off: locks are granted at once, though leases from before the stop may live for another {human}. \
             Only resources that check fences are safe from their holders"
        );
        return Duration::ZERO;
    }
    tracing::warn!(
        "no new locks for {human}: a server of this log was stopped without notice, or the log was repaired, and leases \
         that are not in the log may live that long. Holders may claim theirs meanwhile. --grace-max bounds this time; --durability lease needs none after a \
         crash; --grace off does without it, which is safe only where every resource checks fences"
    );
    left
}

/// Makes a fresh ceiling durable for all shards and allows it: the grace period is over, or a reign
/// begins. Waits until it is settled.
pub(crate) fn allow_first_fences(
    storage: &Storage,
    engine: &Engine<Switchboard>,
    now: Tick,
) -> Result<(), WalError> {
    let ceiling = next_ceiling(engine.ceiling(0));
    let mut batch = Batch::new();
    push_ceilings(&mut batch, 0..engine.shard_count(), ceiling);
    storage.journal.wait(storage.journal.append_batch(batch))?;
    for shard in 0..engine.shard_count() {
        engine.raise_ceiling(shard, ceiling, now);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
