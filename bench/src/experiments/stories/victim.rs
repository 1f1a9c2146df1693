//! What an experiment kills, and what serves afterwards: a server on its files again, another node
//! of three, or a replica that was promoted. And a client that asks any of them without waiting.

use crate::experiments::locks::Backend;
use crate::experiments::locks::etcd::Keys;
use crate::experiments::locks::redis::Redis;
use crate::experiments::locks::wire::{Tried, Wire};
use crate::experiments::processes::daemon::{Daemon, RedisSettings};
use crate::experiments::processes::sentinel::Watched;
use crate::load::peers::nodes::{Kind, NODES_DEFAULT, Nodes, cluster_binary};
use std::net::SocketAddr;
use std::time::Duration;
use tempfile::TempDir;

/// How a server is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// One of the servers that are part of this program.
    Fencepost(&'static str),
    /// One Redis; how often its log is forced to the disk, if it has one.
    Redis(Option<&'static str>),
    /// One etcd.
    Etcd,
    /// Three nodes. The leader is killed.
    Nodes(Kind),
    /// Redis with a replica and three Sentinels. The master is killed.
    Sentinels,
}

impl How {
    pub(super) fn backend(self) -> Backend {
        match self {
            How::Fencepost(_) | How::Nodes(Kind::Fencepost) => Backend::Fencepost,
            How::Redis(_) | How::Sentinels => Backend::Redis,
            How::Etcd | How::Nodes(Kind::Etcd) => Backend::Etcd,
        }
    }

    /// Whether another process goes on when one is killed.
    pub(super) fn has_others(self) -> bool {
        matches!(self, How::Nodes(_) | How::Sentinels)
    }

    /// Why it cannot be run here, if it cannot. Whether the backend is installed was asked before.
    pub(super) fn missing(self) -> Option<String> {
        match self {
            How::Nodes(Kind::Fencepost) => cluster_binary().err(),
            _ => None,
        }
    }
}

/// Something that runs and is killed. Dropping it ends what is left of it.
pub(super) struct Victim {
    how: How,
    running: Running,
    /// Where it serves, or did until it was killed.
    pub(super) address: SocketAddr,
    /// Dropped last: the servers write to it.
    directory: TempDir,
}

enum Running {
    Nothing,
    One(Daemon),
    Nodes { nodes: Nodes, leader: usize },
    Sentinels(Watched),
}

impl Victim {
    pub(super) fn start(how: How) -> Result<Victim, String> {
        let directory =
            TempDir::with_prefix("fencepost-bench-").map_err(|error| error.to_string())?;
        let path = directory.path();
        let (running, address) = match how {
            How::Nodes(kind) => {
                let nodes = Nodes::start(kind, NODES_DEFAULT, path)?;
                let leader = nodes.settled_leader()?;
                let address = nodes.address(leader);
                (Running::Nodes { nodes, leader }, address)
            }
            How::Sentinels => {
                let watched = Watched::start(path)?;
                let address = watched.master()?;
                (Running::Sentinels(watched), address)
            }
            _ => {
                let daemon = start_one(how, path)?;
                let address = daemon.address;
                (Running::One(daemon), address)
            }
        };
        Ok(Victim {
            how,
            running,
            address,
            directory,
        })
    }

    /// What is granted from now on is known to the master of a replica only. Nothing to the others.
    pub(super) fn fall_behind(&self) -> Result<(), String> {
        match &self.running {
            Running::Sentinels(watched) => watched.stall_replication(),
            _ => Ok(()),
        }
    }

    /// Kills what serves.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        match &mut self.running {
            Running::Nothing => Err("it is dead already".to_owned()),
            Running::Nodes { nodes, leader } => nodes.kill(*leader),
            Running::Sentinels(watched) => watched.kill_master(),
            Running::One(_) => match std::mem::replace(&mut self.running, Running::Nothing) {
                Running::One(daemon) => daemon.kill(),
                _ => Ok(()),
            },
        }
    }

    /// Waits until something serves again: the same server, started again on its files, or what
    /// takes its place by itself.
    pub(super) fn recover(&mut self) -> Result<(), String> {
        match &mut self.running {
            Running::Nodes { nodes, leader } => {
                *leader = nodes.wait_leader()?;
                self.address = nodes.address(*leader);
            }
            Running::Sentinels(watched) => self.address = watched.promoted()?,
            Running::One(_) | Running::Nothing => {
                let daemon = start_one(self.how, self.directory.path())?;
                self.address = daemon.address;
                self.running = Running::One(daemon);
            }
        }
        Ok(())
    }

    /// A client of what serves at the moment. `name` must be unique.
    pub(super) fn connect(&self, name: &str) -> Result<Asker, String> {
        Ok(match self.how.backend() {
            Backend::Redis => Asker::Redis(Redis::connect(self.address, name)?),
            Backend::Etcd => Asker::Etcd(Keys::new(self.address)),
            Backend::Fencepost => Asker::Fencepost(Wire::connect(self.address)?),
        })
    }
}

fn start_one(how: How, directory: &std::path::Path) -> Result<Daemon, String> {
    match how {
        How::Fencepost(name) => Daemon::fencepost(name, directory, None),
        How::Redis(appendfsync) => {
            let settings = RedisSettings {
                appendfsync,
                ..RedisSettings::default()
            };
            Daemon::redis(directory, settings)
        }
        How::Etcd => Daemon::etcd(directory),
        How::Nodes(_) | How::Sentinels => Err("it is more than one server".to_owned()),
    }
}

/// A client that asks for locks without waiting.
pub(super) enum Asker {
    Fencepost(Wire),
    Redis(Redis),
    Etcd(Keys),
}

impl Asker {
    pub(super) fn try_acquire(&mut self, key: &str, ttl: Duration) -> Result<Tried, String> {
        match self {
            Asker::Fencepost(wire) => wire.try_acquire(key, ttl),
            Asker::Redis(redis) => Ok(tried(redis.try_acquire(key, ttl)?)),
            Asker::Etcd(keys) => Ok(tried(keys.try_acquire(key, ttl)?)),
        }
    }

    pub(super) fn release(&mut self, key: &str, fence: u64) -> Result<bool, String> {
        match self {
            Asker::Fencepost(wire) => wire.release(key, fence),
            Asker::Redis(redis) => redis.release_key(key),
            Asker::Etcd(keys) => keys.release(key, fence),
        }
    }
}

fn tried(fence: Option<u64>) -> Tried {
    fence.map_or(Tried::Held, |fence| Tried::Granted { fence })
}
