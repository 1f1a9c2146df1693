use super::*;
use crate::peer::Tcp;
use crate::propose::Reign;
use crate::question::Answer;
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

/// The log says it too, but what stands there may not be committed.
#[tokio::test]
async fn a_node_that_comes_back_knows_its_cluster_before_it_hears_of_any() {
    let mut cluster = Cluster::new();
    for node in 1..=3 {
        cluster.start(node).await;
    }
    let (node, reign) = cluster.reign().await;
    let known = node.ledger().known().cluster_id;
    assert_ne!(known, 0);
    drop((node, reign));
    for node in cluster.nodes.values() {
        let has_snapshot = || {
            node.inner
                .raft
                .metrics()
                .borrow_watched()
                .snapshot
                .is_some()
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), async {
            while !has_snapshot() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        waited.await.expect("every node makes a first snapshot");
    }
    for node in 1..=3 {
        cluster.stop(node).await;
    }
    cluster.start(2).await;
    assert_eq!(cluster.nodes[&2].ledger().known().cluster_id, known);
}

/// Waits for what `/readyz` would say of a node.
async fn wait_until_ready(node: &Node, wanted: bool) {
    let waited = tokio::time::timeout(Duration::from_secs(60), async {
        while node.hears_leader().await != wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let said = || panic!("node {} does not say that ready is {wanted}", node.id());
    waited.await.unwrap_or_else(|_| said());
}

/// openraft goes on to name the leader that it knew last.
#[tokio::test]
async fn a_follower_is_ready_while_it_hears_its_leader() {
    let mut cluster = Cluster::new();
    cluster.start(1).await;
    cluster.start(2).await;
    let (leader, _) = cluster.leader().await;
    cluster.start(3).await;
    let follower = cluster.nodes[&3].clone();
    wait_until_ready(&follower, true).await;
    let other = 3 - leader.id();
    cluster.stop(leader.id()).await;
    cluster.stop(other).await;
    wait_until_ready(&follower, false).await;
    assert_eq!(follower.status().await.leader, None);

    cluster.start(other).await;
    wait_until_ready(&follower, true).await;
}

/// openraft lets it believe that it leads.
#[tokio::test]
async fn a_leader_without_a_majority_is_not_ready() {
    let mut cluster = Cluster::new();
    cluster.start(1).await;
    cluster.start(2).await;
    let (leader, _) = cluster.leader().await;
    wait_until_ready(&leader, true).await;
    // It was elected, and then hears the other one.
    while !leader.leads_majority() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let other = 3 - leader.id();
    cluster.stop(other).await;
    wait_until_ready(&leader, false).await;
    assert!(!leader.leads_majority());
    let status = leader.status().await;
    assert_eq!((&*status.role, status.leader), ("leader", None));
    wait_until_standing(&leader, Standing::Unheard).await;
    assert_eq!(leader.numbers().leader, None);

    cluster.start(other).await;
    wait_until_ready(&leader, true).await;
    assert_eq!(leader.status().await.leader, Some(leader.id()));
}

async fn wait_until_standing(node: &Node, wanted: Standing) {
    let mut standing = node.standing();
    let waited = standing.wait_for(|standing| *standing == wanted);
    let waited = tokio::time::timeout(Duration::from_secs(60), waited).await;
    let is_so = waited.is_ok_and(|waited| waited.is_ok());
    assert!(is_so, "node {} is not {wanted:?}", node.id());
}

/// It said that it was ready as soon as it heard its leader, and a rolling restart went on.
#[tokio::test]
async fn a_follower_that_has_yet_to_apply_what_is_committed_is_catching_up() {
    let mut cluster = Cluster::new();
    for id in 1..=3 {
        cluster.start(id).await;
    }
    let (leader, reign) = cluster.reign().await;
    let follower = leader.id() % 3 + 1;
    wait_until_standing(&cluster.nodes[&follower], Standing::Heard).await;
    cluster.stop(follower).await;
    settle(&reign, &[SESSION]).await;
    cluster.start(follower).await;
    let node = cluster.nodes[&follower].clone();
    // It hears its leader and stores entries, and applies none.
    let held = node.ledger().hold().await;
    settle(&reign, &[SESSION]).await;
    wait_until_standing(&node, Standing::CatchingUp).await;
    let numbers = node.numbers();
    assert_eq!(numbers.leader, Some(leader.id()));
    assert!(!numbers.keeps_up);
    drop(held);
    wait_until_standing(&node, Standing::Heard).await;
    assert!(node.numbers().keeps_up);
}

/// Its vote names the leader of before, which may be dead, or removed from the cluster.
#[tokio::test]
async fn a_node_that_started_names_no_leader_before_it_has_heard_one() {
    let mut cluster = Cluster::new();
    cluster.start(1).await;
    cluster.start(2).await;
    let (leader, _) = cluster.leader().await;
    let other = 3 - leader.id();
    let follower = cluster.nodes[&other].clone();
    let knows = |leadership: &Leadership| leadership.leader.is_some();
    follower.leadership().wait_for(knows).await.unwrap();
    for id in 1..=2 {
        cluster.stop(id).await;
    }
    drop((leader, follower));
    cluster.start(other).await;
    let follower = cluster.nodes[&other].clone();
    let mut leadership = follower.leadership();
    let found = leadership.wait_for(|leadership| !leadership.members.is_empty());
    assert_eq!(found.await.unwrap().leader, None);
    assert_eq!(follower.status().await.leader, None);

    cluster.start(3 - other).await;
    leadership.wait_for(knows).await.unwrap();
}

/// Its log and its `/readyz` said nothing of it: no leader sends anything to a node that is no
/// member.
#[tokio::test]
async fn a_node_that_was_removed_while_it_was_down_learns_it() {
    let mut cluster = Cluster::new();
    for id in 1..=3 {
        cluster.start(id).await;
    }
    let (leader, _) = cluster.leader().await;
    let removed = leader.id() % 3 + 1;
    wait_until_standing(&cluster.nodes[&removed], Standing::Heard).await;
    // Otherwise its disk would be another one than the leader writes down.
    while !leader.ledger().known().disks.contains_key(&removed) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cluster.stop(removed).await;
    let answer = leader.answer(Question::Remove { node: removed }).await;
    assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    cluster.start(removed).await;
    wait_until_standing(&cluster.nodes[&removed], Standing::Removed).await;
}

async fn wait_until_applied(node: &Node, index: u64) {
    while node.applied_index() < index {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A follower that was restarted counted the reigns in its log, as if there had been elections.
#[tokio::test]
async fn reigns_from_before_the_start_are_not_counted() {
    let mut cluster = Cluster::new();
    for id in 1..=3 {
        cluster.start(id).await;
    }
    let (leader, reign) = cluster.reign().await;
    settle(&reign, &[SESSION]).await;
    assert!(leader.numbers().reigns > 0);
    let follower = leader.id() % 3 + 1;
    let index = leader.applied_index();
    wait_until_applied(&cluster.nodes[&follower], index).await;
    cluster.stop(follower).await;
    cluster.start(follower).await;
    let node = cluster.nodes[&follower].clone();
    wait_until_applied(&node, index).await;
    assert_eq!(node.numbers().reigns, 0);

    let _later = cluster.reign().await;
    while node.numbers().reigns == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn the_last_entry_that_was_found_is_that_of_the_log_or_of_the_image() {
    let id = |term, index| wal::EntryId {
        term,
        node: 1,
        index,
    };
    let mut log = GroupLog::default();
    assert_eq!(last_found(&log, None), None);
    log.purged = Some(id(1, 4));
    assert_eq!(last_found(&log, None), Some(log_id(id(1, 4))));
    log.entries.entry(5).or_default().id = id(2, 5);
    assert_eq!(last_found(&log, None), Some(log_id(id(2, 5))));
    for (image, last) in [(id(1, 4), id(2, 5)), (id(2, 9), id(2, 9))] {
        assert_eq!(last_found(&log, Some(log_id(image))), Some(log_id(last)));
    }
}
