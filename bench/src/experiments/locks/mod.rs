//! The locks that the experiments take: one at a time, each call waiting for its answer, as a plain
//! program would use them. Every backend is used as well as it can be: each gives a fence, and each
//! release is a compare-and-delete.

pub(crate) mod etcd;
mod fencepost;
pub(crate) mod redis;
pub(crate) mod wire;

use crate::load::peers::PeerName;
use clap::ValueEnum;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::Duration;

/// A lock server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Backend {
    Fencepost,
    Redis,
    Etcd,
}

impl Backend {
    pub(crate) const ALL: [Backend; 3] = [Backend::Fencepost, Backend::Redis, Backend::Etcd];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Backend::Fencepost => "fencepost",
            Backend::Redis => "redis",
            Backend::Etcd => "etcd",
        }
    }

    /// The peer of the bench that serves it.
    pub(crate) fn peer(self) -> PeerName {
        match self {
            Backend::Fencepost => PeerName::Fencepost,
            Backend::Redis => PeerName::Redis,
            Backend::Etcd => PeerName::Etcd,
        }
    }
}

/// How a lock is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) key: String,
    pub(crate) ttl: Duration,
    /// How long to wait for it.
    pub(crate) wait: Duration,
    /// Whether something in the background prolongs it while it is held.
    pub(crate) is_renewed: bool,
}

/// A lock on one backend, held or not.
pub(crate) trait Lock {
    /// Waits for the lock. The fence; `None`: it was not free in time.
    fn acquire(&mut self, wish: &Wish) -> Result<Option<u64>, String>;

    /// Whether this side still believes that it holds the lock, without asking the server. `None`:
    /// it has no way to tell.
    fn believes(&self) -> Option<bool>;

    /// Gives the lock back. Whether it was still held.
    fn release(&mut self) -> Result<bool, String>;
}

/// Connects to a backend. `session_ttl` is for Fencepost: a lock of etcd always lives by its lease,
/// a lock of Redis by nothing but its time.
pub(crate) fn connect(
    backend: Backend,
    address: SocketAddr,
    name: &str,
    session_ttl: Duration,
) -> Result<Box<dyn Lock>, String> {
    Ok(match backend {
        Backend::Fencepost => Box::new(fencepost::Fencepost::connect(address, name, session_ttl)?),
        Backend::Redis => Box::new(redis::Redis::connect(address, name)?),
        Backend::Etcd => Box::new(etcd::Etcd::new(address)),
    })
}
