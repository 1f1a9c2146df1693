//! Starting a node: openraft, the log and the peers are put together, and a few tasks look after
//! them for as long as the node runs.

use crate::codec::DecodeError;
use crate::entry::{Format, Item};
use crate::gate::NodeGate;
use crate::host;
use crate::kept_image::KeptImage;
use crate::ledger::{LedgerState, Machine, SharedLedger, check_format, chunks_of};
use crate::members;
use crate::node::{GROUP, Inner, Leadership, Node, RoleSince};
use crate::peer::{self, ClusterKey, Gate, PeerTls, Peers, Transport, Wire};
use crate::question::Question;
use crate::random::random_u64;
use crate::standing::{Asker, LastLook, Standing, heard_at, watch_standing};
use crate::store::{OnFailure, Store, log_id};
use crate::types::{LogId, Member, NodeId, Types};
use bytes::Bytes;
use disk::Disk;
use openraft::async_runtime::WatchReceiver;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::InstantOf;
use openraft::{Config, Raft, ServerState, SnapshotPolicy};
use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use wal::{GroupLog, NodeLog, Record, WalError};

/// How often the leader looks whether the log knows the disks of all nodes.
const DISKS_EVERY: Duration = Duration::from_millis(500);

/// How often a node looks whether the others know where it is reached.
const ANNOUNCE_EVERY: Duration = Duration::from_millis(200);

/// How often a node that started looks whether it has heard from a leader.
const HEARD_EVERY: Duration = Duration::from_millis(50);

/// How often the log's files are looked after.
const UPKEEP_EVERY: Duration = Duration::from_millis(250);

/// Entries that are kept behind a snapshot, for followers that are a little late.
const KEPT_ENTRIES: u64 = 4_096;

/// How long sending an image may take.
const IMAGE_TIMEOUT_MS: u64 = 600_000;

/// How long a leader goes on without a majority before it probes for one.
const QUORUM_PROBE_MS: u64 = 2_000;

/// A snapshot is asked for again after so many looks.
const SNAPSHOT_LOOKS: u32 = 240;

/// What a node is started with.
pub struct NodeSettings {
    /// Its id.
    pub node: NodeId,
    /// Where it is reached.
    pub member: Member,
    /// The voters of a new cluster, this node among them. Empty: the node waits to be added.
    pub bootstrap: BTreeMap<NodeId, Member>,
    /// What peers prove themselves with.
    pub key: ClusterKey,
    /// Where its log is.
    pub disk: Arc<dyn Disk>,
    /// How the log is laid out.
    pub options: wal::Options,
    /// How soon a silent leader is replaced.
    pub timing: Timing,
    /// What it reads: [`Format::NEWEST`], but for tests of upgrades.
    pub reads: Format,
    /// What ends the process when the disk fails.
    pub on_failure: OnFailure,
}

/// How soon a silent leader is replaced.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How often a leader shows that it is there.
    pub heartbeat_ms: u64,
    /// A follower that hears nothing for a random time between these stands for election.
    pub election_ms: (u64, u64),
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            heartbeat_ms: 75,
            election_ms: (400, 800),
        }
    }
}

/// Why a node cannot start.
#[derive(Debug)]
pub enum NodeError {
    /// The log cannot be read or written.
    Log(WalError),
    /// The log says something that this version cannot have written.
    Entry(DecodeError),
    /// The directory belongs to another node.
    OtherNode {
        /// That one.
        found: NodeId,
        /// The one that was to be started.
        node: NodeId,
    },
    /// openraft did not start.
    Raft(String),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Log(error) => error.fmt(f),
            NodeError::Entry(error) => write!(f, "the log of this node is damaged: {error}"),
            NodeError::OtherNode { found, node } => write!(
                f,
                "this data directory belongs to node {found}, not to node {node}: check --node-id and --data-dir"
            ),
            NodeError::Raft(error) => write!(f, "the node cannot start: {error}"),
        }
    }
}

impl std::error::Error for NodeError {}

impl From<WalError> for NodeError {
    fn from(error: WalError) -> Self {
        NodeError::Log(error)
    }
}

/// A node's log that was read, and not changed.
pub struct FoundNode {
    opened: wal::Opened,
    log: NodeLog,
    settings: NodeSettings,
}

impl FoundNode {
    /// Reads the log.
    pub fn read(settings: NodeSettings) -> Result<FoundNode, NodeError> {
        let (opened, log) = wal::open_node_on(settings.disk.clone(), &settings.options)?;
        if let Some((found, _)) = log.node
            && found != settings.node
        {
            let node = settings.node;
            return Err(NodeError::OtherNode { found, node });
        }
        Ok(FoundNode {
            opened,
            log,
            settings,
        })
    }
}

impl Node {
    /// Starts the node on the current runtime, which must go on running.
    pub async fn start<T: Transport>(
        found: FoundNode,
        transport: T,
        listener: T::Listener,
    ) -> Result<Node, NodeError> {
        let FoundNode {
            opened,
            mut log,
            settings,
        } = found;
        let id = settings.node;
        let mut group = log.groups.remove(&GROUP).unwrap_or_default();
        let (state, image) = match group.image.is_empty() {
            true => (LedgerState::default(), None),
            false => {
                let image = chunks_of(Bytes::from(std::mem::take(&mut group.image)));
                let state = LedgerState::from_image(&image).map_err(NodeError::Entry)?;
                let meta = state.meta();
                (state, Some((meta, image)))
            }
        };
        check_format(state.format, settings.reads).map_err(NodeError::Raft)?;
        let (sync_listener, waiting) = Store::listener(settings.on_failure.clone());
        let wal = host::start_log(opened, sync_listener)?;
        let disk = match log.node {
            Some((_, disk)) => disk,
            None => {
                let disk = random_u64();
                let ticket = wal.append(&Record::NodeIs { node: id, disk });
                wal.wait(ticket)?;
                disk
            }
        };
        let found = last_found(&group, state.applied);
        let ledger = SharedLedger::new(state, found, settings.reads);
        let store = Store::new(GROUP, wal, waiting, &mut group).map_err(NodeError::Entry)?;
        let gate = Arc::new(NodeGate::new(id, disk, settings.reads, ledger.clone()));
        let machine = Machine::new(ledger.clone(), image, store.clone(), id, disk);
        let peers = Peers::new(transport.clone(), settings.key.clone(), gate.clone());
        let config = Arc::new(config(settings.timing));
        let raft = Raft::new(id, config, peers, store.clone(), machine).await;
        let raft = raft.map_err(|error| NodeError::Raft(error.to_string()))?;
        let begun = Types::now();
        let dialer = transport.clone();
        let asker = Asker {
            raft: raft.clone(),
            transport: transport.clone(),
            key: settings.key.clone(),
            gate: gate.clone(),
        };
        let listening = peer::listen(
            listener,
            transport,
            settings.key.clone(),
            gate.clone(),
            raft.clone(),
            std::future::pending(),
        );
        let is_new = !raft.is_initialized().await.unwrap_or(true);
        if is_new && !settings.bootstrap.is_empty() {
            // Every node of a new cluster does the same, and comes to the same first entry.
            let initialized = raft.initialize(settings.bootstrap.clone()).await;
            initialized.map_err(|error| NodeError::Raft(error.to_string()))?;
        }
        let (announce, leadership) = watch::channel(Leadership::default());
        let (announce_standing, standing) = watch::channel(Standing::default());
        let role = Arc::new(RoleSince::new());
        let last_look = Arc::new(LastLook::new());
        let tasks = vec![
            tokio::spawn(listening),
            tokio::spawn(watch_leadership(
                raft.clone(),
                begun,
                role.clone(),
                announce,
            )),
            tokio::spawn(watch_standing(
                asker,
                begun,
                last_look.clone(),
                announce_standing,
            )),
            tokio::spawn(write_down_nodes(raft.clone(), gate.clone())),
            tokio::spawn(look_after_log(raft.clone(), store.clone(), ledger.clone())),
            tokio::spawn(announce_self(
                raft.clone(),
                dialer,
                settings.key.clone(),
                gate.clone(),
                settings.member.clone(),
            )),
        ];
        let node = Node {
            inner: Arc::new(Inner {
                id,
                raft,
                ledger,
                store,
                commits: Arc::default(),
                image: KeptImage::default(),
                leadership,
                standing,
                last_look,
                role,
                begun,
                tasks,
            }),
        };
        let weak = Arc::downgrade(&node.inner);
        gate.set_answer(Box::new(move |question| {
            let node = weak.upgrade().map(|inner| Node { inner });
            Box::pin(members::answer(node, question))
        }));
        Ok(node)
    }
}

/// Starts a node on TCP, with TLS between nodes or without. What openraft is made of with these
/// types is compiled here, once, and not again in each crate that starts nodes.
pub fn start_on_tcp(
    found: FoundNode,
    listener: tokio::net::TcpListener,
    tls: Option<Arc<PeerTls>>,
) -> Pin<Box<dyn Future<Output = Result<Node, NodeError>> + Send>> {
    Box::pin(Node::start(found, Wire::new(tls), listener))
}

/// The last entry that this node had when it stopped. `applied`: that of its image, which may be
/// ahead of all entries.
fn last_found(log: &GroupLog, applied: Option<LogId>) -> Option<LogId> {
    let last = log.entries.values().next_back().map(|entry| entry.id);
    last.or(log.purged).map(log_id).max(applied)
}

fn config(timing: Timing) -> Config {
    Config {
        cluster_name: "fencepost".to_owned(),
        heartbeat_interval: timing.heartbeat_ms,
        election_timeout_min: timing.election_ms.0,
        election_timeout_max: timing.election_ms.1,
        enable_pre_vote: Some(true),
        // A restarted leader must not believe that it still leads.
        enable_leader_restore: Some(false),
        quorum_loss_probe_interval: Some(QUORUM_PROBE_MS),
        snapshot_policy: SnapshotPolicy::Never,
        install_snapshot_timeout: IMAGE_TIMEOUT_MS,
        max_in_snapshot_log_to_keep: kept_entries(),
        ..Config::default()
    }
}

fn kept_entries() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(settings) = crate::simulation::settings() {
        return settings.kept_entries;
    }
    KEPT_ENTRIES
}

async fn watch_leadership(
    raft: Raft<Types, Machine>,
    begun: InstantOf<Types>,
    role: Arc<RoleSince>,
    announce: watch::Sender<Leadership>,
) {
    // The other metrics change with every entry, and would wake this task for nothing.
    let mut metrics = raft.server_metrics();
    let mut last_leader = None;
    let mut is_heard = false;
    loop {
        // The vote on the disk names a leader from before the start, which may be long gone.
        is_heard = is_heard || heard_at(&raft).await > Some(begun);
        let leadership = {
            let metrics = metrics.borrow_watched();
            role.since_unix_ms(metrics.state);
            let leader = metrics.current_leader.filter(|_| is_heard);
            last_leader = leader.or(last_leader);
            let membership = metrics.membership_config.membership();
            let voters: Vec<NodeId> = membership.voter_ids().collect();
            let members = membership.nodes();
            // The state is ahead of the vote, which is the one on the disk: it may still be that
            // for another leader.
            let leads = metrics.state == ServerState::Leader
                && metrics.vote.committed
                && metrics.vote.leader_id.node_id == metrics.id;
            Leadership {
                term: metrics.vote.leader_id.term,
                leader,
                last_leader,
                own: leads.then_some(metrics.vote.leader_id),
                members: members
                    .map(|(node, member)| (*node, (member.clone(), voters.contains(node))))
                    .collect(),
            }
        };
        announce.send_if_modified(|known| {
            let is_new = *known != leadership;
            *known = leadership;
            is_new
        });
        let changed = tokio::select! {
            changed = metrics.changed() => changed,
            () = tokio::time::sleep(HEARD_EVERY), if !is_heard => continue,
        };
        if changed.is_err() {
            // openraft has ended, and nothing that it said last holds.
            announce.send_modify(|known| known.own = None);
            return;
        }
    }
}

/// While this node leads: sees to it that the log knows the disks of all nodes, and goes on to the
/// newest format that all of them read.
async fn write_down_nodes(raft: Raft<Types, Machine>, gate: Arc<NodeGate>) {
    loop {
        tokio::time::sleep(DISKS_EVERY).await;
        let Ok(leader) = raft.as_leader() else {
            continue;
        };
        let leader = *leader.leader_id();
        let disks = gate.unknown_disks().into_iter();
        let joined = disks.map(|(node, disk)| Item::Joined { node, disk });
        let format = {
            let metrics = raft.metrics().borrow_watched().clone();
            let members = metrics.membership_config.nodes().map(|(node, _)| *node);
            gate.next_format(members).map(Item::Format)
        };
        for item in joined.chain(format) {
            let (responder, answer) = openraft::impls::ProgressResponder::complete_only();
            let item = item.encode();
            let write = raft.write(item).with_leader(leader).responder(responder);
            if write.await.is_err() || !matches!(answer.await, Ok(Ok(_))) {
                break;
            }
        }
    }
}

/// Sees to it that the membership says where this node is reached, which only the node knows.
async fn announce_self<T: Transport>(
    raft: Raft<Types, Machine>,
    transport: T,
    key: ClusterKey,
    gate: Arc<NodeGate>,
    own: Member,
) {
    let id = *raft.node_id();
    loop {
        tokio::time::sleep(ANNOUNCE_EVERY).await;
        let (known, leader) = {
            let metrics = raft.metrics().borrow_watched().clone();
            let membership = metrics.membership_config.membership();
            let leader = metrics.current_leader;
            let leader = leader.and_then(|leader| membership.get_node(&leader));
            (membership.get_node(&id).cloned(), leader.cloned())
        };
        if known.is_none_or(|known| known == own) {
            continue;
        }
        let question = Question::Announce {
            node: id,
            peer: own.peer.clone(),
            client: own.client.clone(),
            redis: own.redis.clone(),
        };
        if raft.is_leader() {
            members::announce(&raft, id, own.clone()).await;
        } else if let Some(leader) = leader
            && let Ok(question) = serde_json::to_vec(&question)
        {
            let who = gate.introduce();
            // If it is not heard, the next round asks again.
            let _ = peer::ask(&transport, &leader.peer, &key, who, question.into()).await;
        }
    }
}

/// Keeps a segment ready for the log's writer, and has snapshots made when the log has grown. The
/// first is made as soon as this node has heard of which cluster it is: when it starts again it
/// must know that before it speaks to anybody. The log alone does not tell, as what stands there
/// may not be committed.
async fn look_after_log(raft: Raft<Types, Machine>, store: Store, ledger: SharedLedger) {
    loop {
        tokio::time::sleep(UPKEEP_EVERY).await;
        let wal = store.wal().clone();
        let looked_after = host::block(move || {
            // A failure reaches the log's listener, which ends the process.
            let _ = wal.restock();
            wal.wants_snapshot()
        });
        let Ok(wants_snapshot) = looked_after.await else {
            continue;
        };
        let has_snapshot = raft.metrics().borrow_watched().snapshot.is_some();
        let is_first = !has_snapshot && ledger.known().cluster_id != 0;
        if wants_snapshot || is_first {
            let _ = raft.trigger().snapshot().await;
            wait_for_snapshot(&store).await;
        }
    }
}

/// Waits until a snapshot has made the log shorter, for a while.
async fn wait_for_snapshot(store: &Store) {
    for _ in 0..SNAPSHOT_LOOKS {
        tokio::time::sleep(UPKEEP_EVERY).await;
        if !store.wal().wants_snapshot() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
