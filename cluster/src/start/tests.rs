use super::*;
use crate::peer::Tcp;
use crate::propose::Reign;
use crate::types::LeaderId;
use std::net::TcpListener as StdListener;
use wal::forgetful::ForgetfulDisk;
use wal::{Batch, Lease};

/// A busy machine must not change the leader in the middle of a test.
const PATIENT: Timing = Timing {
    heartbeat_ms: 150,
    election_ms: (1_500, 3_000),
};

/// Three nodes on loopback, each with a disk that forgets.
struct Cluster {
    members: BTreeMap<NodeId, Member>,
    disks: BTreeMap<NodeId, Arc<ForgetfulDisk>>,
    listeners: BTreeMap<NodeId, StdListener>,
    nodes: BTreeMap<NodeId, Node>,
}

impl Cluster {
    fn new() -> Cluster {
        let mut cluster = Cluster {
            members: BTreeMap::new(),
            disks: BTreeMap::new(),
            listeners: BTreeMap::new(),
            nodes: BTreeMap::new(),
        };
        for node in 1..=3 {
            let listener = StdListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let member = Member {
                peer: listener.local_addr().unwrap().to_string(),
                client: format!("client-{node}"),
                redis: String::new(),
            };
            cluster.members.insert(node, member);
            cluster.listeners.insert(node, listener);
            cluster.disks.insert(node, Arc::default());
        }
        cluster
    }

    async fn start(&mut self, id: NodeId) {
        self.start_reading(id, Format::NEWEST).await.unwrap();
    }

    /// A node whose version of Fencepost reads this.
    async fn start_reading(&mut self, id: NodeId, reads: Format) -> Result<(), NodeError> {
        let settings = || NodeSettings {
            node: id,
            member: self.members[&id].clone(),
            bootstrap: self.members.clone(),
            key: ClusterKey::new([5; 32]),
            disk: self.disks[&id].clone(),
            options: wal::Options::new(wal::Scope::Leases, 1),
            timing: PATIENT,
            reads,
            on_failure: Arc::new(|error| panic!("{error}")),
        };
        // The tasks of a node that was stopped a moment ago may still have its log.
        let found = loop {
            match FoundNode::read(settings()) {
                Err(NodeError::Log(WalError::Locked { .. })) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                found => break found?,
            }
        };
        let listener = self.listeners[&id].try_clone().unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let node = Node::start(found, Tcp, listener).await?;
        self.nodes.insert(id, node);
        Ok(())
    }

    async fn stop(&mut self, id: NodeId) {
        let node = self.nodes.remove(&id).unwrap();
        node.stop().await;
    }

    /// Waits for a leader among the nodes that run.
    async fn leader(&self) -> (Node, LeaderId) {
        loop {
            for node in self.nodes.values() {
                if let Some(own) = node.leadership().borrow().own
                    && node.leads(&own)
                {
                    return (node.clone(), own);
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn reign(&self) -> (Node, Arc<Reign>) {
        loop {
            let (node, leader) = self.leader().await;
            let Ok(index) = node.begin_reign(leader).await else {
                continue;
            };
            let mut state = node.ledger().hold().await;
            let begin_ms = state.clock.now_ms(std::time::Instant::now());
            let begin = std::time::Instant::now();
            let reign = node.reign(
                &mut state,
                index,
                leader,
                Box::new(|_| {}),
                Box::new(move || begin_ms + begin.elapsed().as_millis() as u64),
                &tokio::runtime::Handle::current(),
            );
            drop(state);
            if let Some(reign) = reign {
                return (node, reign);
            }
        }
    }
}

fn batch(records: &[Record<'_>]) -> Batch {
    let mut batch = Batch::new();
    records.iter().for_each(|record| batch.push(record));
    batch
}

async fn settle(reign: &Arc<Reign>, records: &[Record<'_>]) {
    let ticket = reign.append_batch(batch(records));
    let reign = reign.clone();
    let waited = tokio::task::spawn_blocking(move || reign.wait(ticket));
    waited.await.unwrap().unwrap();
}

fn granted(key: &[u8], fence: u64) -> Record<'_> {
    Record::Granted(Lease {
        key,
        fence,
        session: 1,
        mode: ::types::Mode::Exclusive,
        is_session_bound: false,
        count: 1,
        until_unix_ms: u64::MAX,
        granted_unix_ms: 1,
        note: b"",
    })
}

async fn held(node: &Node) -> Vec<u64> {
    let mut state = node.ledger().hold().await;
    state.ledger.settle();
    let leases = state.ledger.parts().iter().flat_map(wal::Leases::iter);
    let mut fences: Vec<u64> = leases.map(|lease| lease.fence).collect();
    fences.sort_unstable();
    fences
}

const SESSION: Record<'static> = Record::SessionOpened {
    session: 1,
    ttl_ms: u32::MAX,
    deadline_unix_ms: u64::MAX,
    name: b"",
};

#[tokio::test]
async fn what_settled_is_known_to_the_next_leader_and_to_nodes_that_come_back() {
    let mut cluster = Cluster::new();
    for id in 1..=3 {
        cluster.start(id).await;
    }
    let (first, reign) = cluster.reign().await;
    let ceiling = Record::Ceiling {
        shard: 0,
        fence: 1_000,
    };
    settle(&reign, &[ceiling, SESSION]).await;
    for fence in 1..=50 {
        let key = format!("key{fence}");
        settle(&reign, &[granted(key.as_bytes(), fence)]).await;
    }
    let clock_ms = first.status().await.clock_ms;
    let id = first.id();
    drop((first, reign));
    cluster.stop(id).await;
    let (second, reign) = cluster.reign().await;
    assert_ne!(second.id(), id);
    assert_eq!(held(&second).await, (1..=50).collect::<Vec<_>>());
    let status = second.status().await;
    assert!(status.clock_ms >= clock_ms, "the clock goes on");
    let raised = Record::Ceiling {
        shard: 0,
        fence: 2_000,
    };
    settle(&reign, &[raised, granted(b"after", 1_001)]).await;
    // The first one comes back and catches up.
    cluster.start(id).await;
    let goal = second.applied_index();
    while cluster.nodes[&id].applied_index() < goal {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(held(&cluster.nodes[&id]).await.len(), 51);
    // All of them lose their memory.
    drop((second, reign));
    for id in 1..=3 {
        cluster.stop(id).await;
    }
    for id in 1..=3 {
        cluster.start(id).await;
    }
    let (third, _reign) = cluster.reign().await;
    assert_eq!(held(&third).await.len(), 51);
    let state = third.ledger().hold().await;
    assert_eq!(state.ledger.ceiling_max(), 2_000);
}

#[tokio::test]
async fn a_reign_without_a_majority_settles_nothing_and_ends() {
    let mut cluster = Cluster::new();
    for id in 1..=3 {
        cluster.start(id).await;
    }
    let (leader, reign) = cluster.reign().await;
    settle(&reign, &[SESSION]).await;
    for id in (1..=3).filter(|id| *id != leader.id()) {
        cluster.stop(id).await;
    }
    let before = reign.settled();
    let ticket = reign.append_batch(batch(&[SESSION]));
    let why = reign.ended().await;
    assert!(reign.settled() < ticket, "{why}");
    assert_eq!(reign.settled(), before);
}

#[tokio::test]
async fn a_new_format_is_used_when_the_last_node_reads_it() {
    let newer = Format(Format::NEWEST.0 + 1);
    let mut cluster = Cluster::new();
    cluster.start_reading(1, newer).await.unwrap();
    cluster.start_reading(2, newer).await.unwrap();
    cluster.start(3).await;
    let format_of = |node: &Node| node.ledger().known().format;
    // All disks are known: the leader has looked at what each node said of itself.
    let (leader, _) = cluster.leader().await;
    while leader.ledger().known().disks.len() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(format_of(&leader), Format::FIRST, "node 3 cannot read it");
    drop(leader);

    cluster.stop(3).await;
    cluster.start_reading(3, newer).await.unwrap();
    for node in cluster.nodes.values() {
        while format_of(node) < newer {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_node_does_not_start_on_an_image_of_a_format_that_it_does_not_read() {
    let newer = Format(Format::NEWEST.0 + 1);
    let mut cluster = Cluster::new();
    for id in 1..=3 {
        cluster.start_reading(id, newer).await.unwrap();
    }
    let node = cluster.nodes[&3].clone();
    while node.ledger().known().format < newer {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    node.inner.raft.trigger().snapshot().await.unwrap();
    while node.status().await.snapshot_index == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(node.status().await.format, newer.0);
    drop(node);
    cluster.stop(3).await;
    let refused = cluster.start_reading(3, Format::FIRST).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("reads format 1 of the log"), "{refused}");
    let way_out = "Start this node with the version that the other nodes run";
    assert!(refused.contains(way_out), "{refused}");
    cluster.start_reading(3, newer).await.unwrap();
}
