//! Real nodes of openraft on loopback TCP, in one process and on one thread.

mod cluster;
mod document;
mod hostile;
mod lines;
mod store;
mod vectors;

use super::*;
use crate::types::{Applied, Command, Member, Types};
use openraft::async_runtime::WatchReceiver;
use openraft::raft::ClientWriteResponse;
use openraft::{Config, Raft, ServerState, SnapshotPolicy};
use std::collections::BTreeMap;
use std::time::Duration;
use store::{MemoryLog, MemoryState};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long anything in these tests may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(30);

const CLUSTER: u128 = 0xc0ffee;

fn key() -> ClusterKey {
    ClusterKey::new([7; 32])
}

/// Lets in whoever has the same cluster id, and answers with the question reversed.
struct TestGate {
    cluster_id: u128,
    node: NodeId,
}

fn introduction(cluster_id: u128, node: NodeId) -> Introduction {
    Introduction {
        cluster_id,
        node,
        disk_id: 100 + node,
        version: WIRE_VERSION,
        format: 1,
    }
}

impl Gate for TestGate {
    fn introduce(&self) -> Introduction {
        introduction(self.cluster_id, self.node)
    }

    fn admit(&self, peer: &Introduction) -> Result<(), String> {
        match peer.cluster_id == self.cluster_id {
            true => Ok(()),
            false => Err(format!("{peer} is of another cluster")),
        }
    }

    async fn answer(&self, question: Bytes) -> Bytes {
        question.iter().rev().copied().collect()
    }
}

type TestRaft = Raft<Types, MemoryState>;

/// One node; its listener can be stopped and started again.
struct Node {
    id: NodeId,
    address: String,
    gate: Arc<TestGate>,
    raft: TestRaft,
    state: MemoryState,
    listening: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

fn config() -> Arc<Config> {
    let config = Config {
        heartbeat_interval: 100,
        election_timeout_min: 600,
        election_timeout_max: 1200,
        enable_pre_vote: Some(true),
        snapshot_policy: SnapshotPolicy::Never,
        install_snapshot_timeout: 60_000,
        max_in_snapshot_log_to_keep: 0,
        ..Config::default()
    };
    Arc::new(config.validate().unwrap())
}

impl Node {
    async fn start(id: NodeId) -> Self {
        Self::start_in(id, CLUSTER, key()).await
    }

    async fn start_in(id: NodeId, cluster_id: u128, key: ClusterKey) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gate = Arc::new(TestGate {
            cluster_id,
            node: id,
        });
        let peers = Peers::new(Tcp, key.clone(), gate.clone());
        let state = MemoryState::default();
        let log = MemoryLog::default();
        let raft = Raft::new(id, config(), peers, log, state.clone()).await;
        let mut node = Node {
            id,
            address,
            gate,
            raft: raft.unwrap(),
            state,
            listening: None,
        };
        node.listen(listener, key);
        node
    }

    fn listen(&mut self, listener: TcpListener, key: ClusterKey) {
        let gate = self.gate.clone();
        let raft = self.raft.clone();
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let listening = listen(listener, Tcp, key, gate, raft, stopped);
        self.listening = Some((stop, tokio::spawn(listening)));
    }

    /// Ends all incoming connections and refuses new ones.
    async fn stop_listening(&mut self) {
        let (stop, listening) = self.listening.take().unwrap();
        stop.send(()).unwrap();
        listening.await.unwrap();
    }

    async fn listen_again(&mut self) {
        let listener = TcpListener::bind(&self.address).await.unwrap();
        self.listen(listener, key());
    }

    fn member(&self) -> Member {
        Member {
            peer: self.address.clone(),
            ..Member::default()
        }
    }
}

/// Three nodes that have elected a leader; it is returned as a place among them.
async fn three() -> (Vec<Node>, usize) {
    let mut nodes = Vec::new();
    for id in 1..=3 {
        nodes.push(Node::start(id).await);
    }
    initialize(&nodes).await;
    let leader = leader(&nodes).await;
    (nodes, leader)
}

async fn initialize(nodes: &[Node]) {
    let members = nodes.iter().map(|node| (node.id, node.member()));
    let members: BTreeMap<NodeId, Member> = members.collect();
    nodes[0].raft.initialize(members).await.unwrap();
}

/// The node that all others say is the leader, and that serves.
async fn leader(nodes: &[Node]) -> usize {
    until("a leader", || {
        let place = nodes.iter().position(|node| {
            let metrics = node.raft.metrics();
            let metrics = metrics.borrow_watched().clone();
            metrics.state == ServerState::Leader && metrics.current_leader == Some(node.id)
        })?;
        let id = nodes[place].id;
        let agreed = nodes.iter().all(|node| {
            let metrics = node.raft.metrics();
            metrics.borrow_watched().current_leader == Some(id)
        });
        agreed.then_some(place)
    })
    .await
}

async fn until<T>(what: &str, mut reached: impl FnMut() -> Option<T>) -> T {
    let reached = async {
        loop {
            if let Some(reached) = reached() {
                return reached;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    match timeout(PATIENCE, reached).await {
        Ok(reached) => reached,
        Err(_) => panic!("no {what} within {PATIENCE:?}"),
    }
}

/// A new leader refuses writes until a quorum has acknowledged it.
async fn write(raft: &TestRaft, command: Bytes) -> ClientWriteResponse<Types> {
    let written = async {
        loop {
            match raft.client_write(Command(command.clone())).await {
                Ok(written) => return written,
                Err(error) => {
                    tracing::debug!("written again: {error}");
                    sleep(Duration::from_millis(5)).await;
                }
            }
        }
    };
    timeout(PATIENCE, written).await.expect("a write hangs")
}

async fn all_have(nodes: &[Node], count: usize) {
    until("agreement of all nodes", || {
        let agreed = nodes
            .iter()
            .all(|node| node.state.commands().len() == count);
        agreed.then_some(())
    })
    .await;
    let expected = nodes[0].state.commands();
    for node in nodes {
        assert_eq!(node.state.commands(), expected, "node {}", node.id);
    }
}

const COUNTS: Applied = Applied { counts: true };
