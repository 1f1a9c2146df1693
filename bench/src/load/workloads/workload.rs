//! The workloads, the ways to wait for a lock, and one setting of a workload.

use crate::load::peers::PeerName;
use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Workload {
    HotKey,
    ManyKeys,
    Handoff,
    Expiry,
    Renew,
}

impl Workload {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Workload::HotKey => "hot-key",
            Workload::ManyKeys => "many-keys",
            Workload::Handoff => "handoff",
            Workload::Expiry => "expiry",
            Workload::Renew => "renew",
        }
    }

    /// What its latency is the latency of.
    pub(crate) fn latency(self) -> &'static str {
        match self {
            Workload::HotKey => "the wait, from asking to the grant",
            Workload::ManyKeys => "that of an acquire or a release",
            Workload::Handoff => "from a release to the next holder's grant",
            Workload::Expiry => "from a lease's end to the grant of its waiter",
            Workload::Renew => "that of a renewal",
        }
    }

    /// Whether it leaves the peer full of locks, and so needs a fresh one each time.
    pub(crate) fn fills(self) -> bool {
        matches!(self, Workload::Expiry | Workload::Renew)
    }

    /// Why a peer is left out, if it is.
    pub(crate) fn leaves_out(self, peer: PeerName) -> Option<&'static str> {
        match (self, peer) {
            (Workload::ManyKeys, _) => None,
            (_, PeerName::Echo) => Some("it grants no locks"),
            (Workload::Expiry | Workload::Renew, PeerName::Server) => {
                Some("the workload needs a server of its own, to start afresh")
            }
            (Workload::Expiry, PeerName::Etcd) => {
                Some("its leases are sessions of several seconds, not leases of a lock")
            }
            (Workload::Expiry | Workload::Renew, PeerName::Redlock) => {
                Some("five times the same Redis; see redis")
            }
            (
                Workload::Expiry | Workload::Renew,
                PeerName::FencepostCluster | PeerName::EtcdCluster | PeerName::RedisWait,
            ) => Some("a cluster is measured by what it commits; see its peer of one node"),
            _ => None,
        }
    }
}

/// What a contender does while the lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waiting {
    /// Stands in line at the server.
    InLine,
    /// Tries again after a pause.
    Retry {
        /// Its mean.
        ms: u64,
    },
    /// Listens for releases.
    Listen,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Waiting::InLine => f.pad("in line"),
            Waiting::Retry { ms } => f.pad(&format!("retry {ms} ms")),
            Waiting::Listen => f.pad("pub/sub"),
        }
    }
}

/// One thing to measure about one peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) workload: Workload,
    pub(crate) connections: u32,
    /// Requests under way per connection; 0 where it does not apply.
    pub(crate) pipeline: u32,
    /// 0 where it does not apply.
    pub(crate) contenders: u32,
    pub(crate) waiting: Waiting,
    pub(crate) work: Duration,
    pub(crate) keys: u64,
}

impl Setting {
    /// What tells it from others of its workload, as the middle of a sentence.
    pub(crate) fn load(&self) -> String {
        match (self.pipeline, self.contenders) {
            (0, 0) => String::new(),
            (pipeline, 0) => format!(", pipeline {pipeline}"),
            (_, contenders) => format!(", {contenders} contenders, {}", self.waiting),
        }
    }
}
