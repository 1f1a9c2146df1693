//! Redlock: five Redis servers, and a lock is what a majority of them votes for.
//!
//! Redlock has no fence. The nearest thing is made here out of five counters: every server counts
//! its votes for a key, and a holder's number is the highest that its voters counted. It rises as
//! long as no server forgets.
//!
//! A partition is a client that does not ask some of the servers; the network itself is whole.

use crate::experiments::locks::redis::Redis;
use crate::experiments::locks::wire::{Tried, Wire};
use crate::experiments::processes::clock::FakeClock;
use crate::experiments::processes::daemon::{Daemon, RedisSettings};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SERVERS: usize = 5;
const MAJORITY: usize = 3;

/// All servers, and those on A's side of a partition.
pub(crate) const ALL: [usize; SERVERS] = [0, 1, 2, 3, 4];
pub(crate) const NEAR: [usize; MAJORITY] = [0, 1, 2];

pub(crate) const TTL: Duration = Duration::from_secs(2);

pub(crate) const KEY: &str = "redlock";

/// How long one server may take to answer before the next one is asked: short beside the lease, as
/// Redlock's text has it.
const PATIENCE: Duration = Duration::from_millis(100);

/// The counters of the servers on A's side are so many votes ahead of the others when a story
/// begins.
pub(super) const HISTORY: usize = 3;

/// Five servers.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Daemon>,
    directories: Vec<TempDir>,
    /// One for each server, or none at all.
    clocks: Vec<FakeClock>,
}

/// A lock that a majority voted for.
pub(crate) struct Grant {
    pub(crate) fence: u64,
    pub(crate) valid_until: Instant,
}

impl Cluster {
    pub(crate) fn start() -> Result<Cluster, String> {
        Cluster::start_with(|_| Ok(None))
    }

    /// With clocks that can be moved.
    pub(crate) fn start_with_clocks() -> Result<Cluster, String> {
        Cluster::start_with(|directory| FakeClock::new(directory.path()).map(Some))
    }

    fn start_with(
        clock: impl Fn(&TempDir) -> Result<Option<FakeClock>, String>,
    ) -> Result<Cluster, String> {
        let mut cluster = Cluster {
            servers: Vec::new(),
            directories: Vec::new(),
            clocks: Vec::new(),
        };
        for _ in 0..SERVERS {
            let directory =
                TempDir::with_prefix("fencepost-bench-").map_err(|error| error.to_string())?;
            let clock = clock(&directory)?;
            let settings = RedisSettings {
                clock: clock.as_ref(),
                ..RedisSettings::default()
            };
            let server = Daemon::redis(directory.path(), settings)?;
            cluster.servers.push(server);
            cluster.directories.push(directory);
            cluster.clocks.extend(clock);
        }
        Ok(cluster)
    }

    /// Kills a server and starts another one in its place, which knows nothing.
    pub(crate) fn forget(&mut self, index: usize) -> Result<(), String> {
        let fresh = Daemon::redis(self.directories[index].path(), RedisSettings::default())?;
        std::mem::replace(&mut self.servers[index], fresh).kill()
    }

    /// Sets a server's clock. By how many seconds it is off then, by its own account.
    pub(crate) fn set_clock(&self, index: usize, ahead_s: i64) -> Result<i64, String> {
        self.clocks[index].set(ahead_s)?;
        let mut redis = self.reach(index, "clock")?;
        let told = redis.command(&["EVAL", "return redis.call('TIME')[1]", "0"])?;
        let told_s: i64 = told
            .parse()
            .map_err(|_| format!("redis: {told:?} is no time"))?;
        Ok(told_s - unix_s())
    }

    /// Redlock: asks all that can be reached, and holds the lock if enough say yes soon enough.
    pub(crate) fn acquire(
        &self,
        owner: &str,
        reachable: &[usize],
    ) -> Result<Option<Grant>, String> {
        let begun = Instant::now();
        let votes: Vec<u64> = reachable
            .iter()
            .filter_map(|&index| {
                let mut redis = self.reach(index, owner).ok()?;
                redis.try_acquire(KEY, TTL).ok().flatten()
            })
            .collect();
        // What is left of the lease, minus what clocks may differ by.
        let drift = TTL / 100 + Duration::from_millis(2);
        let valid_until = begun + TTL - drift;
        if votes.len() < MAJORITY || Instant::now() >= valid_until {
            self.release(owner, reachable);
            return Ok(None);
        }
        let fence = votes.into_iter().max().ok_or("no server voted")?;
        Ok(Some(Grant { fence, valid_until }))
    }

    /// Takes the votes back, from the servers that can be reached.
    pub(crate) fn release(&self, owner: &str, reachable: &[usize]) {
        for &index in reachable {
            if let Ok(mut redis) = self.reach(index, owner) {
                let _ = redis.release_key(KEY);
            }
        }
    }

    /// Some holders come and go that only these servers hear of.
    pub(crate) fn live_through(&self, reachable: &[usize]) -> Result<(), String> {
        for turn in 0..HISTORY {
            let owner = format!("before-{turn}");
            self.acquire(&owner, reachable)?.ok_or("no majority")?;
            self.release(&owner, reachable);
        }
        Ok(())
    }

    fn reach(&self, index: usize, owner: &str) -> Result<Redis, String> {
        Redis::connect_within(self.servers[index].address, owner, PATIENCE)
    }
}

/// Asks a Fencepost for the same lock, once.
pub(crate) fn take(server: &Daemon) -> Result<Option<Grant>, String> {
    let asked_at = Instant::now();
    Ok(
        match Wire::connect(server.address)?.try_acquire(KEY, TTL)? {
            Tried::Granted { fence } => Some(Grant {
                fence,
                valid_until: asked_at + TTL,
            }),
            Tried::Held | Tried::NotNow => None,
        },
    )
}

/// The right time.
pub(crate) fn unix_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs() as i64
}
