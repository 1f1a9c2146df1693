//! The peers: which programs they are, how they are started and stopped, and what they can do.
//!
//! Every peer runs on loopback, on free ports, with its files in a temporary directory. While one
//! is measured, the others are held still (SIGSTOP), so that their timers and background threads
//! cost it nothing. A peer of several nodes is loaded at its leader, which is looked for before
//! each measurement.

pub(crate) mod child;
pub(crate) mod echo;
pub(crate) mod embedded;
pub(crate) mod etcd;
pub(crate) mod fencepost;
mod http2;
pub(crate) mod nodes;
pub(crate) mod redis;
pub(crate) mod redlock;
pub(crate) mod resp;
mod tls;

use child::{Process, Usage};
use clap::ValueEnum;
use nodes::{Kind, NODES_DEFAULT, Nodes};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use tempfile::TempDir;

/// Every peer the bench can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum PeerName {
    /// Fencepost with its default settings.
    Fencepost,
    /// Fencepost that keeps nothing on disk.
    FencepostNone,
    /// Fencepost, with every grant on disk before it is answered.
    FencepostLease,
    /// Fencepost with its default settings, over TLS.
    FencepostTls,
    /// Fencepost with its default settings, for a client whose token has one role and three
    /// prefixes.
    FencepostRights,
    /// The same, for a token that has quotas besides: locks held, waiters, operations a second.
    FencepostQuotas,
    /// Redis: SET NX PX, and a script that compares and deletes. No fence.
    Redis,
    /// The same, with every change on disk before it is answered: appendfsync always.
    RedisAlways,
    /// Redis over TLS: its own port for that, with the same certificate as fencepost-tls has.
    RedisTls,
    /// Redis with a fence: one script for the acquire as well.
    RedisFenced,
    /// Valkey, used as redis is.
    Valkey,
    /// etcd: its lock service, with a lease.
    Etcd,
    /// Five Redis servers, a majority of which must agree. No fence.
    Redlock,
    /// Three nodes of Fencepost, or as many as --cluster says; loaded at the leader. Needs the
    /// binary `fencepost` beside this one, or named in FENCEPOST_BIN.
    FencepostCluster,
    /// Three nodes of etcd, or as many as --cluster says; loaded at the leader.
    EtcdCluster,
    /// Redis with one replica, keeping nothing on disk; every write is followed by WAIT 1 0 in the
    /// same pipeline. No fence.
    RedisWait,
    /// The floor: answers frames of the same sizes and does nothing else.
    Echo,
    /// The running server of --server, which speaks Fencepost's protocol.
    #[value(skip)]
    Server,
}

impl PeerName {
    /// As it is called on the command line and in results.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            PeerName::Fencepost => "fencepost",
            PeerName::FencepostNone => "fencepost-none",
            PeerName::FencepostLease => "fencepost-lease",
            PeerName::FencepostTls => "fencepost-tls",
            PeerName::FencepostRights => "fencepost-rights",
            PeerName::FencepostQuotas => "fencepost-quotas",
            PeerName::Redis => "redis",
            PeerName::RedisTls => "redis-tls",
            PeerName::RedisAlways => "redis-always",
            PeerName::RedisFenced => "redis-fenced",
            PeerName::Valkey => "valkey",
            PeerName::Etcd => "etcd",
            PeerName::Redlock => "redlock",
            PeerName::FencepostCluster => "fencepost-cluster",
            PeerName::EtcdCluster => "etcd-cluster",
            PeerName::RedisWait => "redis-wait",
            PeerName::Echo => "echo",
            PeerName::Server => "server",
        }
    }

    /// The program that has to be installed, the Debian package that brings it, and the oldest
    /// version that will do.
    fn program(self) -> Option<Program> {
        let program = |name, package, oldest| {
            Some(Program {
                name,
                package,
                oldest,
            })
        };
        match self {
            PeerName::Redis
            | PeerName::RedisTls
            | PeerName::RedisAlways
            | PeerName::RedisFenced
            | PeerName::Redlock
            | PeerName::RedisWait => program("redis-server", "redis-server", (6, 0)),
            PeerName::Valkey => program("valkey-server", "valkey-server", (7, 2)),
            PeerName::Etcd => program("etcd", "etcd-server", (3, 3)),
            // Moving the leader and naming it is in the gateway from there on.
            PeerName::EtcdCluster => program("etcd", "etcd-server", (3, 4)),
            PeerName::Fencepost
            | PeerName::FencepostTls
            | PeerName::FencepostRights
            | PeerName::FencepostQuotas
            | PeerName::FencepostNone
            | PeerName::FencepostLease
            | PeerName::FencepostCluster
            | PeerName::Echo
            | PeerName::Server => None,
        }
    }

    /// Whether it is Fencepost: what a run that has one of them is about.
    pub(crate) fn is_ours(self) -> bool {
        matches!(
            self,
            PeerName::Fencepost
                | PeerName::FencepostNone
                | PeerName::FencepostLease
                | PeerName::FencepostTls
                | PeerName::FencepostRights
                | PeerName::FencepostQuotas
                | PeerName::FencepostCluster
                | PeerName::Server
        )
    }

    /// Whether waiters stand in line at the server.
    pub(crate) fn has_line(self) -> bool {
        !matches!(
            self,
            PeerName::Redis
                | PeerName::RedisTls
                | PeerName::RedisAlways
                | PeerName::RedisFenced
                | PeerName::Valkey
                | PeerName::Redlock
                | PeerName::RedisWait
        )
    }

    /// Whether a grant carries a fence.
    pub(crate) fn has_fence(self) -> bool {
        !matches!(
            self,
            PeerName::Redis
                | PeerName::RedisTls
                | PeerName::RedisAlways
                | PeerName::Valkey
                | PeerName::Redlock
                | PeerName::RedisWait
                | PeerName::Echo
        )
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

struct Program {
    name: &'static str,
    package: &'static str,
    oldest: (u32, u32),
}

/// A running peer. Dropping it stops it.
pub(crate) struct Peer {
    pub(crate) name: PeerName,
    pub(crate) version: String,
    /// One, or five for Redlock. Every node of a cluster.
    pub(crate) addresses: Vec<SocketAddr>,
    processes: Vec<Process>,
    /// What a cluster has instead of processes.
    nodes: Option<Nodes>,
    /// How many nodes a cluster has.
    node_count: usize,
    /// Dropped last: the processes still write to it when they stop.
    _directory: Option<TempDir>,
}

impl Peer {
    /// Starts a peer. The error is a sentence about why it is left out.
    pub(crate) fn start(name: PeerName) -> Result<Peer, String> {
        Peer::start_nodes(name, NODES_DEFAULT)
    }

    /// Starts a peer, which has so many nodes if it is a cluster.
    pub(crate) fn start_nodes(name: PeerName, node_count: usize) -> Result<Peer, String> {
        let version = match name.program() {
            Some(program) => program.version()?,
            None => env!("CARGO_PKG_VERSION").to_owned(),
        };
        let directory = TempDir::with_prefix("fencepost-bench-")
            .map_err(|error| format!("no temporary directory: {error}"))?;
        let path = directory.path();
        let started = match name {
            PeerName::FencepostCluster | PeerName::EtcdCluster => {
                return Peer::cluster(name, version, node_count, directory);
            }
            PeerName::Fencepost
            | PeerName::FencepostNone
            | PeerName::FencepostLease
            | PeerName::FencepostRights
            | PeerName::FencepostQuotas
            | PeerName::Echo => embedded::start(name.as_str(), path),
            PeerName::Redis | PeerName::RedisFenced => redis::start("redis-server", path, 1, None),
            PeerName::FencepostTls => tls::start_fencepost(path),
            PeerName::RedisTls => tls::start_redis(path),
            PeerName::RedisAlways => redis::start("redis-server", path, 1, Some("always")),
            PeerName::Valkey => redis::start("valkey-server", path, 1, None),
            PeerName::Redlock => redis::start("redis-server", path, redlock::SERVERS, None),
            PeerName::RedisWait => redis::start_with_replica("redis-server", path),
            PeerName::Etcd => etcd::start(path),
            PeerName::Server => Err(io::Error::other("it runs already")),
        };
        let (addresses, processes) =
            started.map_err(|error| format!("it does not start: {error}"))?;
        Ok(Peer {
            name,
            version,
            addresses,
            processes,
            nodes: None,
            node_count,
            _directory: Some(directory),
        })
    }

    fn cluster(
        name: PeerName,
        version: String,
        node_count: usize,
        directory: TempDir,
    ) -> Result<Peer, String> {
        let kind = match name {
            PeerName::EtcdCluster => Kind::Etcd,
            _ => Kind::Fencepost,
        };
        let nodes = Nodes::start(kind, node_count, directory.path())?;
        Ok(Peer {
            name,
            // The binary need not be as old as this program.
            version: nodes.version().unwrap_or(version),
            addresses: nodes.addresses(),
            processes: Vec::new(),
            nodes: Some(nodes),
            node_count,
            _directory: Some(directory),
        })
    }

    /// Another one like it, from scratch.
    pub(crate) fn start_another(&self) -> Result<Peer, String> {
        Peer::start_nodes(self.name, self.node_count)
    }

    /// A server that runs already. We know neither its version nor its process.
    pub(crate) fn running(address: SocketAddr) -> Peer {
        Peer {
            name: PeerName::Server,
            version: "?".to_owned(),
            addresses: vec![address],
            processes: Vec::new(),
            nodes: None,
            node_count: 1,
            _directory: None,
        }
    }

    /// Where the load goes: to all addresses, or to the leader of a cluster.
    pub(crate) fn loaded_addresses(&self) -> Result<Vec<SocketAddr>, String> {
        match &self.nodes {
            None => Ok(self.addresses.clone()),
            Some(nodes) => Ok(vec![nodes.address(nodes.settled_leader()?)]),
        }
    }

    /// The nodes, if it is a cluster.
    pub(crate) fn nodes(&mut self) -> Option<&mut Nodes> {
        self.nodes.as_mut()
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        let of_nodes = self.nodes.iter().flat_map(Nodes::processes);
        self.processes.iter().chain(of_nodes)
    }

    /// Holds it still while others are measured, or lets it go on.
    pub(crate) fn hold(&self, is_held: bool) {
        self.processes().for_each(|process| process.hold(is_held));
    }

    /// What its processes have used so far. `None`: they are not ours to look at.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let usages = self.processes().map(Process::usage);
        usages.reduce(|sum, usage| Usage {
            cpu: sum.cpu + usage.cpu,
            resident_bytes: sum.resident_bytes + usage.resident_bytes,
        })
    }
}

impl Program {
    /// Asks the program for its version. The error says what to install.
    fn version(&self) -> Result<String, String> {
        let output = Command::new(self.name).arg("--version").output();
        let output = output.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!(
                "{} is not installed; Debian's package {} brings it",
                self.name, self.package
            ),
            _ => format!("{} --version: {error}", self.name),
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (version, numbers) = find_version(&text)
            .ok_or_else(|| format!("{} --version says no version: {}", self.name, text.trim()))?;
        if numbers < self.oldest {
            let (major, minor) = self.oldest;
            return Err(format!(
                "{} is {version}, {major}.{minor} or newer is needed",
                self.name
            ));
        }
        Ok(version)
    }
}

/// The first thing like 7.0.15 in a text, and its first two numbers.
fn find_version(text: &str) -> Option<(String, (u32, u32))> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.into_iter().find_map(|word| {
        let mut numbers = word.split('.').map(str::parse);
        let (Some(Ok(major)), Some(Ok(minor)), Some(Ok::<u32, _>(_))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return None;
        };
        Some((word.to_owned(), (major, minor)))
    })
}

type Started = (Vec<SocketAddr>, Vec<Process>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        assert_eq!(find_version(redis), Some(("7.0.15".to_owned(), (7, 0))));
        let etcd = "etcd Version: 3.4.23\nGit SHA: Not provided\nGo Version: go1.19.8";
        assert_eq!(find_version(etcd), Some(("3.4.23".to_owned(), (3, 4))));
        assert_eq!(find_version("no numbers, or 1.2 only"), None);
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let program = Program {
            name: "fencepost-no-such-program",
            package: "no-such-package",
            oldest: (1, 0),
        };
        let why = program.version().unwrap_err();
        assert!(why.contains("no-such-package"), "{why}");
    }
}
