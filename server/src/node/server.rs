//! A node from its start to its stop: one office after the other.

use super::hand_over::{hand_over, serve_until_over};
use super::member::{
    first_members, own_member, say_if_only_this_machine_has_clients, say_what_clients_are_told,
};
use super::office::{Lasting, NotBegun, Office};
use crate::config::{Config, ELECTION_TIMEOUT_MAX};
use crate::conn::places::Places;
use crate::conn::secure::{Certificates, announce};
use crate::core::cluster_view::waits_for;
use crate::core::shared::Shared;
use crate::observe::audit;
use crate::report::http::{Current, Http};
use crate::rights::Rights;
use crate::start::Builder;
use crate::start::preflight::{Purpose, audit_of, bind, check_new_dir, since_epoch};
use crate::start::start_error::StartError;
use crate::storage::{EXIT_DISK, unix_now_ms};
use crate::system::clock::Clock;
use crate::system::panics::Failure;
use crate::system::standby::Standby;
use cluster::entry::Format;
use cluster::node::{Node, WhyFailed};
use cluster::peer::{ClusterKey, PeerTls};
use cluster::standing::GONE_AFTER;
use cluster::start::{FoundNode, NodeError, NodeSettings, Timing, start_on_tcp};
use cluster::types::Member;
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use wal::{DirDisk, Disk, Scope, WalError};

/// The exit code of a node that cannot go on, as openraft failed, or an office cannot begin.
/// EX_SOFTWARE.
const EXIT_NODE: i32 = 70;

/// The exit code of a node whose ledger differs from the leader's. EX_DATAERR. A restart comes to
/// the same, so what restarts nodes must be able to tell this end from others.
pub const EXIT_DIFFERS: i32 = 65;

/// Leaders show themselves so many times in one election timeout.
const HEARTBEATS: u64 = 5;

// One heartbeat may fail to come before a leader that shows itself as rarely as a setting can ask
// for is called gone.
const _: () = {
    let heartbeat_ms_max = ELECTION_TIMEOUT_MAX.as_millis() as u64 / HEARTBEATS;
    assert!(2 * heartbeat_ms_max <= GONE_AFTER.as_millis() as u64);
};

/// A running node of a cluster. Dropping it stops it.
pub struct NodeServer {
    local_addr: SocketAddr,
    redis_addr: Option<SocketAddr>,
    redis_unix: Option<PathBuf>,
    peer_addr: SocketAddr,
    stop: CancellationToken,
    failure: Arc<Failure>,
    rights: Arc<Rights>,
    certificates: Option<Arc<Certificates>>,
    peer_tls: Option<Arc<PeerTls>>,
    config: Config,
    offices: Option<JoinHandle<()>>,
    raft: Option<JoinHandle<()>>,
    stop_raft: CancellationToken,
    http: Option<Http>,
    audit: Option<audit::Writer>,
    core_count: usize,
}

impl NodeServer {
    /// Starts the node. When this returns, clients and peers can connect; whether this node leads
    /// is another matter.
    pub fn start(builder: Builder) -> Result<NodeServer, StartError> {
        let Builder {
            config,
            disk,
            log_sizes,
            reads,
            on_panic,
            ..
        } = builder;
        config.check().map_err(StartError::Setting)?;
        let rights = Arc::new(Rights::load(&config).map_err(StartError::Auth)?);
        let certificates = Certificates::load(&config).map_err(StartError::Tls)?;
        if let Some(certificates) = &certificates {
            certificates.announce();
        }
        let key = cluster_key(&config)?;
        let peer_tls = peer_tls(&config)?;
        if let Some(tls) = &peer_tls {
            announce_peer(tls);
        }
        let stop = CancellationToken::new();
        let failure = Failure::new(on_panic, stop.clone());
        let core_count = config.thread_count() as usize;
        let (listeners, mut redis_listeners, http_listener) = bind(&config, core_count)?;
        let (peer_listener, peer_addr) = bind_peers(&config)?;
        let local_addr = listeners[0].local_addr().map_err(StartError::System)?;
        let redis_addr = redis_listeners.local_addr();
        let redis_unix = redis_listeners.unix_path();
        let clock = Clock::start();
        let mut audit = audit_of(&config, clock, Purpose::Start)?;
        if let Some(audit) = &mut audit {
            let told = audit::Start {
                node_id: config.node_id,
                ..audit::Start::default()
            };
            audit.begin(failure.watch(), told, audit::Restoration::default());
        }
        let mut options = wal::Options::new(Scope::Leases, unix_now_ms());
        log_sizes.set(&mut options);
        let disk = match disk {
            Some(disk) => disk,
            None => open_dir(&config.data_dir)?,
        };
        let member = own_member(&config, local_addr, redis_addr);
        say_what_clients_are_told(&config, &member);
        say_if_only_this_machine_has_clients(&config, &member);
        let found = FoundNode::read(NodeSettings {
            node: config.node_id,
            bootstrap: first_members(&config, &member),
            member,
            key,
            disk,
            options,
            timing: timing(config.election_timeout),
            reads: reads.unwrap_or(Format::NEWEST),
            on_failure: Arc::new(|error| {
                tracing::error!(
                    "the log cannot be written: {error}. This node stops here, and confirms nothing more; the others go on. \
                     Look after the disk and start again"
                );
                std::process::exit(EXIT_DISK);
            }),
        });
        let found = found.map_err(refused)?;
        let stop_raft = CancellationToken::new();
        let (raft, node, runtime) = start_raft(
            found,
            (peer_listener, peer_tls.clone()),
            &failure,
            stop_raft.clone(),
        )?;
        let lasting = Lasting {
            rights: rights.clone(),
            certificates: certificates.clone(),
            places: Places::new(config.connections_max as usize),
            failure: failure.clone(),
            clock,
            audit: audit.as_ref().map(audit::Writer::audit),
            listeners,
            redis_listeners,
            stop: stop.clone(),
            started_unix_ms: since_epoch().as_millis() as u64,
            node,
            peer_tls: peer_tls.clone(),
            runtime,
            config,
        };
        let config = lasting.config.clone();
        let office = lasting.follow()?;
        if lasting.node.members().is_empty() {
            tracing::info!(node = config.node_id, "{}", waits_for(&config));
        }
        let current = Current::new(office.shared.clone());
        let http = match http_listener {
            None => None,
            Some(listener) => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(StartError::System)?;
                let standby = Standby::spawn("http".to_owned()).map_err(StartError::System)?;
                Some(Http::start((standby, runtime), listener, current.clone()))
            }
        };
        let offices = thread::Builder::new().name("offices".to_owned());
        let watch = failure.watch();
        let offices = offices.spawn(move || {
            let _watch = watch;
            hold_offices(&lasting, office, &current);
        });
        Ok(NodeServer {
            local_addr,
            redis_addr,
            redis_unix,
            peer_addr,
            stop,
            failure,
            rights,
            certificates,
            peer_tls,
            config,
            offices: Some(offices.map_err(StartError::System)?),
            raft: Some(raft),
            stop_raft,
            http,
            audit,
            core_count,
        })
    }

    /// Does what a start does up to its first write, and lets go of it all: whether a node could
    /// start now. A directory that is not there is not made.
    pub fn check(builder: Builder) -> Result<(), StartError> {
        let Builder {
            config,
            disk,
            reads,
            ..
        } = builder;
        config.check().map_err(StartError::Setting)?;
        Rights::load(&config).map_err(StartError::Auth)?;
        Certificates::load(&config).map_err(StartError::Tls)?;
        let key = cluster_key(&config)?;
        peer_tls(&config)?;
        let _ports = bind(&config, config.thread_count() as usize)?;
        let _peer_port = bind_peers(&config)?;
        audit_of(&config, Clock::start(), Purpose::Check)?;
        let disk = match disk {
            Some(disk) => disk,
            None if !config.data_dir.exists() => return check_new_dir(&config.data_dir),
            None => open_dir(&config.data_dir)?,
        };
        let found = FoundNode::read(NodeSettings {
            node: config.node_id,
            member: Member::default(),
            bootstrap: BTreeMap::new(),
            key,
            disk,
            options: wal::Options::new(Scope::Leases, unix_now_ms()),
            timing: timing(config.election_timeout),
            reads: reads.unwrap_or(Format::NEWEST),
            on_failure: Arc::new(|_| {}),
        });
        found.map(drop).map_err(refused)
    }

    /// Where clients connect.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Where the other nodes connect.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }

    /// Where clients of Redis connect, if they can.
    pub fn redis_addr(&self) -> Option<SocketAddr> {
        self.redis_addr
    }

    /// Where HTTP is served, if it is.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(Http::address)
    }

    /// How many I/O threads there are.
    pub fn core_count(&self) -> usize {
        self.core_count
    }

    /// Why the node has stopped by itself: the name of the thread that panicked.
    pub fn failure(&self) -> Option<&str> {
        self.failure.thread()
    }

    /// Reads tokens and rights again and opens the audit log again.
    pub fn reload(&self) {
        let certificates = self.certificates.as_deref();
        crate::start::reload(
            &self.rights,
            &self.config,
            certificates,
            self.audit.as_ref(),
        );
        if let Some(tls) = &self.peer_tls {
            match tls.reload() {
                Ok(()) => announce_peer(tls),
                Err(error) => {
                    tracing::error!("the certificates between nodes stay as they were: {error}");
                }
            }
        }
    }

    /// Stops. A leader hands over first, so that clients go on at once.
    pub fn shutdown(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.cancel();
        if let Some(offices) = self.offices.take() {
            let _ = offices.join();
        }
        self.http = None;
        self.audit = None;
        self.stop_raft.cancel();
        if let Some(raft) = self.raft.take() {
            let _ = raft.join();
        }
        if let Some(path) = self.redis_unix.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for NodeServer {
    fn drop(&mut self) {
        self.end();
    }
}

fn cluster_key(config: &Config) -> Result<ClusterKey, StartError> {
    let file = config.cluster_key_file.as_deref();
    let file = file.expect("`Config::check` asks for it");
    ClusterKey::from_file(file).map_err(|error| StartError::ClusterKey(error.to_string()))
}

/// The certificates that nodes show each other, if they do.
fn peer_tls(config: &Config) -> Result<Option<Arc<PeerTls>>, StartError> {
    let files = config.peer_files();
    let read = files.map(PeerTls::read).transpose();
    read.map_err(StartError::Tls)
}

/// Says until when the certificate between nodes is good.
fn announce_peer(tls: &PeerTls) {
    announce(tls.cert_file(), "between nodes", tls.not_after());
}

fn open_dir(dir: &Path) -> Result<Arc<dyn Disk>, StartError> {
    let opened = DirDisk::open_or_create(dir).map_err(|error| {
        StartError::Storage(WalError::Io(wal::IoFailure {
            action: "open",
            path: dir.to_owned(),
            source: Arc::new(error),
        }))
    })?;
    Ok(Arc::new(opened))
}

/// Why the directory of a node cannot be used.
fn refused(error: NodeError) -> StartError {
    match error {
        NodeError::Log(error) => StartError::Storage(error),
        error => StartError::Node(error.to_string()),
    }
}

fn timing(election_timeout: Duration) -> Timing {
    let election_ms = election_timeout.as_millis() as u64;
    Timing {
        heartbeat_ms: (election_ms / HEARTBEATS).max(1),
        election_ms: (election_ms, election_ms * 2),
    }
}

fn bind_peers(config: &Config) -> Result<(std::net::TcpListener, SocketAddr), StartError> {
    let named = config.peers.address_of(config.node_id);
    let named = named.expect("`Config::check` asks for it");
    let address = match config.peer_listen {
        Some(address) => address,
        None => named
            .to_socket_addrs()
            .ok()
            .and_then(|mut addresses| addresses.next())
            .ok_or_else(|| {
                StartError::Node(format!(
                    "{named}, this node's own address in --peers, cannot be resolved; give --peer-listen an address of this machine"
                ))
            })?,
    };
    let cannot = |error| StartError::Listen { address, error };
    let listener = std::net::TcpListener::bind(address).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    Ok((listener, bound))
}

/// Starts openraft on a thread of its own.
fn start_raft(
    found: FoundNode,
    (listener, peer_tls): (std::net::TcpListener, Option<Arc<PeerTls>>),
    failure: &Arc<Failure>,
    stop: CancellationToken,
) -> Result<(JoinHandle<()>, Node, Handle), StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::System)?;
    let handle = runtime.handle().clone();
    let watch = failure.watch();
    let (tell, told) = mpsc::sync_channel(1);
    let thread = thread::Builder::new().name("raft".to_owned());
    let thread = thread.spawn(move || {
        let _watch = watch;
        runtime.block_on(async {
            let started = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => start_on_tcp(found, listener, peer_tls).await,
                Err(error) => Err(NodeError::Raft(error.to_string())),
            };
            match started {
                Err(error) => _ = tell.send(Err(error)),
                Ok(node) => {
                    let _ = tell.send(Ok(node.clone()));
                    tokio::spawn(super::story::tell(node.clone()));
                    tokio::select! {
                        () = stop.cancelled() => node.stop().await,
                        why = node.failed() => {
                            tracing::error!("{why}. This node stops here; the others go on");
                            std::process::exit(match why {
                                WhyFailed::Differs(_) => EXIT_DIFFERS,
                                WhyFailed::Raft(_) => EXIT_NODE,
                            });
                        }
                    }
                }
            }
        });
    });
    let thread = thread.map_err(StartError::System)?;
    let node = told
        .recv()
        .map_err(|_| StartError::Node("the raft thread ended".to_owned()))?
        .map_err(|error| StartError::Node(error.to_string()))?;
    Ok((thread, node, handle))
}

/// Leads and follows until the node stops.
fn hold_offices(lasting: &Lasting, first: Office, current: &Current) {
    let mut office = first;
    let runtime = lasting.runtime.clone();
    loop {
        let mut leadership = lasting.node.leadership();
        // Follows until this node is elected.
        let elected = runtime.block_on(async {
            tokio::select! {
                biased;
                () = lasting.stop.cancelled() => None,
                leadership = leadership.wait_for(|leadership| leadership.own.is_some()) => {
                    leadership.ok().and_then(|leadership| leadership.own)
                }
            }
        });
        let Some(leader) = elected else {
            return office.end(true);
        };
        let begun = lasting.lead(leader);
        let leading = match begun {
            Ok(leading) => leading,
            Err(NotBegun::NotLeader) => continue,
            Err(NotBegun::Failed(error)) => {
                tracing::error!("this node cannot lead: {error}");
                office.end(true);
                std::process::exit(EXIT_NODE);
            }
        };
        current.set(leading.shared.clone());
        // Its connections end only now: while the engine was restored, clients could still ask.
        office.end(false);
        let reign = leading.reign.clone().expect("this office leads");
        match serve_until_over(lasting, &reign) {
            Some(why) => tracing::warn!(node = lasting.node.id(), "this node stops serving: {why}"),
            None => {
                hand_over(lasting, &reign);
                return leading.end(reign.why_over().is_none());
            }
        }
        let follow = lasting.follow();
        leading.end(false);
        office = match follow {
            Ok(office) => office,
            Err(error) => {
                tracing::error!("this node cannot go on: {error}");
                std::process::exit(EXIT_NODE);
            }
        };
        current.set(office.shared.clone());
    }
}

impl Current {
    fn new(shared: Arc<Shared>) -> Self {
        Current::from(shared)
    }
}
