//! The keeper: one thread that raises ceilings before they are reached, pushes the horizon before
//! leases get there, ends the grace period and tells the log when the wall clock was set. In normal
//! running no core waits for it. It does nothing that takes longer than a sync: see `upkeep.rs`.

use super::opening::{allow_first_fences, next_ceiling, push_ceilings};
use super::snapshot;
use super::turns::Turns;
use crate::core::shared::Shared;
use crate::storage::{Alarm, HORIZON_AHEAD_MS, Storage, give_up};
use crate::system::standby::Standby;
use engine::{Fence, Tick};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wal::{Batch, Record, Scope, WalError};

/// How often it looks without being called.
const ROUND: Duration = Duration::from_millis(100);

/// How often the time is written down, so that a restart notices a clock that was set back.
const CLOCK_EVERY_MS: u64 = 10_000;

/// The keeper's thread. Dropping it ends it.
pub(crate) struct Keeper {
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Rounds {
    shared: Arc<Shared>,
    storage: Arc<Storage>,
    alarm: Arc<Alarm>,
    /// When the time was last written down.
    clock_written: Tick,
    turns: Turns,
}

impl Keeper {
    pub(crate) fn start(
        standby: Standby,
        shared: Arc<Shared>,
        storage: Arc<Storage>,
        alarm: Arc<Alarm>,
    ) -> Keeper {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let mut rounds = Rounds {
            clock_written: shared.clock.now(),
            turns: Turns::new(shared.clock.now()),
            shared,
            storage,
            alarm: alarm.clone(),
        };
        let thread = standby.begin({
            let is_stopping = is_stopping.clone();
            let watch = rounds.shared.failure.watch();
            move || {
                let _watch = watch;
                while !is_stopping.load(Ordering::Acquire) {
                    match rounds.go() {
                        Ok(()) => {}
                        // The leadership is over, and with it all that there is to keep.
                        Err(_) if rounds.storage.journal.holds_all_replies() => return,
                        Err(error) => give_up(&error),
                    }
                    thread::park_timeout(rounds.pause());
                }
            }
        });
        // The alarm is not rung before clients are let in, and an earlier ring is found in the
        // first round.
        alarm.set_keeper(thread.thread().clone());
        Keeper {
            is_stopping,
            thread: Some(thread),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the keeper ended with a panic");
            }
        }
    }
}

impl Rounds {
    fn go(&mut self) -> Result<(), WalError> {
        let now = self.shared.clock.now();
        self.raise_ceilings(now)?;
        self.look_at_clock(now);
        if self.storage.scope == Scope::Fences {
            self.push_horizon()?;
        }
        if self.storage.journal.holds_all_replies() {
            self.end_turns(now);
        }
        self.end_grace(now)
    }

    /// In a cluster: says now and then that each core has ended a turn.
    fn end_turns(&mut self, now: Tick) {
        let journal = &self.storage.journal;
        if self.turns.are_due(now, journal.settled()) && snapshot::have_cores_append(&self.shared) {
            self.turns.ended(journal.append(&Record::TurnsEnded));
        }
    }

    /// Until the next round: shorter if the grace period ends before.
    fn pause(&self) -> Duration {
        let left_ms = self.shared.recovery.remaining_ms(self.shared.clock.now());
        left_ms.map_or(ROUND, |left_ms| Duration::from_millis(left_ms).min(ROUND))
    }

    fn raise_ceilings(&self, now: Tick) -> Result<(), WalError> {
        let engine = &self.shared.engine;
        let low = (0..engine.shard_count()).filter(|shard| self.alarm.take_low(*shard));
        let raised: Vec<(usize, Fence)> = low
            .map(|shard| (shard, next_ceiling(engine.ceiling(shard))))
            .collect();
        if raised.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        for &(shard, ceiling) in &raised {
            push_ceilings(&mut batch, std::iter::once(shard), ceiling);
        }
        let journal = &self.storage.journal;
        journal.wait(journal.append_batch(batch))?;
        for (shard, ceiling) in raised {
            engine.raise_ceiling(shard, ceiling, now);
        }
        Ok(())
    }

    /// Keeps the horizon ahead of the latest end of a lease.
    fn push_horizon(&self) -> Result<(), WalError> {
        let (latest_ms, horizon_ms) = self.storage.latest_end_and_horizon_ms();
        // Half of the way ahead is used up. An engine in which nothing is granted any more needs no
        // further horizon.
        if latest_ms + HORIZON_AHEAD_MS / 2 <= horizon_ms {
            return Ok(());
        }
        self.storage
            .write_horizon(Tick::from_ms(latest_ms + HORIZON_AHEAD_MS))
    }

    /// Writes the time down now and then, and at once when the wall clock was set.
    fn look_at_clock(&mut self, now: Tick) {
        let storage = &self.storage;
        if let Some(step) = storage.clock.step() {
            storage.journal.append(&step.record);
        } else if self.clock_written.ms_until(now) >= CLOCK_EVERY_MS {
            storage.journal.append(&storage.clock.record());
        } else {
            return;
        }
        self.clock_written = now;
    }

    fn end_grace(&self, now: Tick) -> Result<(), WalError> {
        let recovery = &self.shared.recovery;
        if recovery.is_on() && recovery.remaining_ms(now).is_none() {
            allow_first_fences(&self.storage, &self.shared.engine, now)?;
            recovery.end();
            if let Some(audit) = self.shared.audit() {
                audit.grace_over(recovery.claimed());
            }
            tracing::info!(
                claimed = recovery.claimed(),
                "the grace period is over; locks are granted again"
            );
        }
        Ok(())
    }
}
