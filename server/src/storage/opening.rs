//! The start: read the log, decide where fences go on and whether there is a grace period.

use super::{Storage, Wakeup, give_up, unix_now_ms};
use crate::clock::Clock;
use crate::config::{Config, Durability};
use crate::host::{Post, Switchboard};
use crate::secret::SessionKeys;
use crate::wal::{self, Batch, Disk, Highest, Opened, Options, Record, Recovered, Scope, WalError};
use engine::{Engine, Fence, Tick};
use std::sync::Arc;
use std::time::Duration;

/// Fences that are made ready at once, per shard.
pub(super) const CEILING_STEP: u64 = 1 << 20;

/// What was found in the data directory, before there is an engine.
pub(crate) struct Opening {
    opened: Opened,
    recovered: Recovered,
    scope: Scope,
    pub(crate) keys: SessionKeys,
    /// The time on the wall, as it is told to be: never earlier than any the log knows of.
    now_unix_ms: u64,
    /// How long holders from before may claim what is theirs; zero if everything is known.
    pub(crate) grace: Duration,
    /// Every fence lies above this.
    pub(crate) floor: Fence,
}

impl Opening {
    /// Reads the data directory. `None` if nothing is to survive: see [`floor_without_log`].
    pub(crate) fn read(
        config: &Config,
        disk: Option<Arc<dyn Disk>>,
        snapshot_log_bytes: Option<u64>,
        clock_floor: Fence,
    ) -> Result<Option<Self>, WalError> {
        let scope = match config.durability {
            Durability::None => return Ok(None),
            Durability::Fence => Scope::Fences,
            Durability::Lease => Scope::Leases,
        };
        let wall_ms = unix_now_ms();
        let mut options = Options::new(scope, wall_ms);
        options.snapshot_log_bytes = snapshot_log_bytes.unwrap_or(options.snapshot_log_bytes);
        let (opened, recovered) = match disk {
            Some(disk) => wal::open_on(disk, &options)?,
            None => wal::open(&config.data_dir, &options)?,
        };
        let keys = SessionKeys::new(recovered.session_key.bytes);
        report(&recovered);
        // A clock that was set back: of the time that has passed nothing is known but that it has. So leases run from the
        // latest moment that the log knows of, and end too late rather than too early.
        let now_unix_ms = wall_ms.max(recovered.last_clock_unix_ms);
        if now_unix_ms > wall_ms {
            tracing::warn!(
                "the wall clock shows {} ms less than the log has seen; leases are counted from what the log has seen",
                now_unix_ms - wall_ms
            );
        }
        let grace = grace(&recovered, now_unix_ms, config.grace);
        let floor = floor(&highest_of(&recovered), clock_floor);
        Ok(Some(Opening {
            opened,
            recovered,
            scope,
            keys,
            now_unix_ms,
            grace,
            floor,
        }))
    }

    /// How many locks there are to put back, at most.
    pub(crate) fn locks(&self) -> u64 {
        self.recovered.leases.keys() as u64
    }

    /// Whether fences may be issued from the start.
    pub(crate) fn ceiling(&self) -> Fence {
        if self.grace.is_zero() {
            next_ceiling(self.floor)
        } else {
            self.floor
        }
    }

    /// Starts to write, and makes the first ceilings durable. Waits for the disk.
    pub(crate) fn start(
        self,
        posts: Arc<[Post]>,
        shards: usize,
        clock: Clock,
    ) -> Result<(Storage, Recovered, u64), WalError> {
        let ceiling = self.ceiling();
        let wal = self.opened.start(Wakeup { posts })?;
        let mut batch = Batch::new();
        batch.push(&Record::Clock {
            unix_ms: self.now_unix_ms,
        });
        if ceiling > self.floor {
            push_ceilings(&mut batch, 0..shards, ceiling);
        }
        wal.wait(wal.append_batch(batch))?;
        Ok((
            Storage::new(wal, self.scope, clock),
            self.recovered,
            self.now_unix_ms,
        ))
    }
}

fn highest_of(recovered: &Recovered) -> Highest {
    Highest {
        ceiling: recovered.ceiling_max,
        clock_unix_ms: recovered.last_clock_unix_ms,
    }
}

/// The floor of a server that keeps nothing: above every fence of the servers before it that did. Reads the data directory,
/// takes no lock and changes nothing.
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
/// Above the clock: a million fences for every second since 1970, so that a server without a log rises as well. And above the
/// highest ceiling by a million for every second since it was known: a server without a log may have run here since then,
/// and it began at the ceiling as well. Ceilings can be ahead of the clock: each start raises them by about a second, and a
/// repair by half a year.
fn floor(highest: &Highest, clock_floor: Fence) -> Fence {
    if highest.ceiling == 0 {
        return clock_floor;
    }
    let known_floor = (u128::from(highest.clock_unix_ms) << 20) / 1000;
    let since = u128::from(clock_floor.get()).saturating_sub(known_floor) as u64;
    let ceiling = highest.ceiling;
    let above = Fence::new(ceiling.saturating_add(since)).or_else(|| Fence::new(ceiling));
    above.map_or(clock_floor, |above| above.max(clock_floor))
}

pub(super) fn next_ceiling(from: Fence) -> Fence {
    Fence::new(from.get() + CEILING_STEP).unwrap_or(Fence::MAX)
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

/// How long leases may still live that nobody wrote down.
fn grace(recovered: &Recovered, now_unix_ms: u64, is_on: bool) -> Duration {
    let is_unknown = recovered.scope == Some(Scope::Fences) && !recovered.was_clean;
    let left_ms = recovered.horizon_unix_ms.saturating_sub(now_unix_ms);
    if !is_unknown || left_ms == 0 {
        return Duration::ZERO;
    }
    if !is_on {
        tracing::warn!(
            "grace is off: locks are granted at once, though leases from before the stop may live for another {left_ms} ms. \
             Only resources that check fences are safe from their holders"
        );
        return Duration::ZERO;
    }
    tracing::warn!(
        "the last stop was without notice: for {left_ms} ms holders may claim what they held, and nothing new is granted"
    );
    Duration::from_millis(left_ms)
}

/// Makes a fresh ceiling durable for all shards and allows it: the grace period is over. Waits for the disk.
pub(super) fn open_up(storage: &Storage, engine: &Engine<Switchboard>, now: Tick) {
    let ceiling = next_ceiling(engine.ceiling(0));
    let mut batch = Batch::new();
    push_ceilings(&mut batch, 0..engine.shard_count(), ceiling);
    if let Err(error) = storage.wal.wait(storage.wal.append_batch(batch)) {
        give_up(&error);
    }
    for shard in 0..engine.shard_count() {
        engine.raise_ceiling(shard, ceiling, now);
    }
}
