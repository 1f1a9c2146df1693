//! Which peers a node takes: those of its own cluster that have not lost their disks.
//!
//! A node's data directory has a random number, its disk. The leader writes the disks of all nodes
//! into the log. A node that comes with another disk than the log says has lost its own: it may
//! have promised its vote, or confirmed entries, and does not know it any more. It must not take
//! part under its old id.

use crate::entry::Format;
use crate::ledger::SharedLedger;
use crate::peer::{Gate, Introduction, TOOL, WIRE_VERSION};
use crate::types::NodeId;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;

/// Answers questions of tools. Set once the node runs.
pub(crate) type Answer =
    Box<dyn Fn(Bytes) -> Pin<Box<dyn Future<Output = Bytes> + Send>> + Send + Sync>;

/// The gate of a node.
pub struct NodeGate {
    node: NodeId,
    disk: u64,
    ledger: SharedLedger,
    /// What this node reads.
    reads: Format,
    /// Peers that were taken.
    seen: Mutex<BTreeMap<NodeId, Seen>>,
    answer: OnceLock<Answer>,
}

/// What a peer said of itself when it was taken last.
#[derive(Clone, Copy)]
struct Seen {
    disk: u64,
    reads: Format,
}

impl NodeGate {
    pub(crate) fn new(node: NodeId, disk: u64, reads: Format, ledger: SharedLedger) -> Self {
        NodeGate {
            node,
            disk,
            ledger,
            reads,
            seen: Mutex::new(BTreeMap::from([(node, Seen { disk, reads })])),
            answer: OnceLock::new(),
        }
    }

    pub(crate) fn set_answer(&self, answer: Answer) {
        let _ = self.answer.set(answer);
    }

    /// Disks of nodes that the log does not know yet.
    pub(crate) fn unknown_disks(&self) -> Vec<(NodeId, u64)> {
        let known = self.ledger.known().disks;
        let seen = self.seen.lock();
        let unknown = seen.iter().filter(|(node, _)| !known.contains_key(node));
        unknown.map(|(node, peer)| (*node, peer.disk)).collect()
    }

    /// The format that the log can go on to: all members have said that they read it. `None`: the
    /// one that it has, or a member has not been heard of since this node started.
    pub(crate) fn next_format(&self, members: impl Iterator<Item = NodeId>) -> Option<Format> {
        let seen = self.seen.lock();
        let read = members.map(|node| seen.get(&node).map(|peer| peer.reads));
        let read_by_all = read.min().flatten()?;
        (read_by_all > self.ledger.known().format).then_some(read_by_all)
    }
}

impl Gate for NodeGate {
    fn introduce(&self) -> Introduction {
        Introduction {
            cluster_id: self.ledger.known().cluster_id,
            node: self.node,
            disk_id: self.disk,
            version: WIRE_VERSION,
            format: self.reads.0,
        }
    }

    fn admit(&self, peer: &Introduction) -> Result<(), String> {
        if peer.node == TOOL {
            return Ok(());
        }
        let node = peer.node;
        let known = self.ledger.known();
        if node == self.node {
            return Err(format!(
                "two nodes have the id {node}: give each its own --node-id"
            ));
        }
        let is_of_another =
            ![0, known.cluster_id].contains(&peer.cluster_id) && known.cluster_id != 0;
        if is_of_another {
            return Err(format!(
                "node {node} belongs to another cluster ({:032x}, this one is {:032x}): check --peers and --data-dir",
                peer.cluster_id, known.cluster_id
            ));
        }
        if Format(peer.format) < known.format {
            return Err(format!(
                "node {node} reads format {} of the log, and this cluster has gone on to format {}: \
                 start it with the version that the other nodes run",
                peer.format, known.format.0
            ));
        }
        match known.disks.get(&node) {
            Some(disk) if *disk != peer.disk_id => {
                return Err(format!(
                    "node {node} comes with another disk than it had. If its --data-dir is wrong, start it with the right one. \
                     If the old disk is gone, what it promised with it is lost: take it out with \
                     `fencepost cluster remove {node}`, empty its data directory, and add it under an id that was never used"
                ));
            }
            _ => {}
        }
        let peer = Seen {
            disk: peer.disk_id,
            reads: Format(peer.format),
        };
        self.seen.lock().insert(node, peer);
        Ok(())
    }

    async fn answer(&self, question: Bytes) -> Bytes {
        match self.answer.get() {
            Some(answer) => answer(question).await,
            None => Bytes::from_static(b"{\"error\":\"the node is starting\"}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Birth;
    use crate::ledger::LedgerState;

    /// Later than any there is.
    const NEWEST: Format = Format(3);

    fn gate(cluster_id: u128, disks: &[(NodeId, u64)]) -> NodeGate {
        let birth = Birth {
            cluster_id,
            session_key: [0; 32],
            birth_unix_ms: 0,
        };
        let mut state = LedgerState::default();
        state.birth = (cluster_id != 0).then_some(birth);
        state.disks = disks.iter().copied().collect();
        NodeGate::new(1, 11, NEWEST, SharedLedger::new(state, None, NEWEST))
    }

    fn peer(node: NodeId, cluster_id: u128, disk_id: u64) -> Introduction {
        Introduction {
            cluster_id,
            node,
            disk_id,
            version: WIRE_VERSION,
            format: NEWEST.0,
        }
    }

    #[test]
    fn a_node_that_lost_its_disk_is_told_the_way_out() {
        let gate = gate(7, &[(1, 11), (2, 22)]);
        assert_eq!(gate.admit(&peer(2, 7, 22)), Ok(()));
        let refused = gate.admit(&peer(2, 0, 23)).unwrap_err();
        assert!(refused.contains("cluster remove 2"), "{refused}");
        assert_eq!(gate.admit(&peer(3, 0, 33)), Ok(()), "a new node");
        assert_eq!(gate.unknown_disks(), [(3, 33)]);
    }

    #[test]
    fn a_node_of_another_cluster_and_a_second_one_of_the_same_id_are_refused() {
        let gate = gate(7, &[]);
        assert!(gate.admit(&peer(2, 8, 22)).is_err());
        assert!(gate.admit(&peer(1, 7, 22)).is_err());
        let new = super::tests::gate(0, &[]);
        assert_eq!(new.admit(&peer(2, 8, 22)), Ok(()), "it is about to join");
    }

    #[test]
    fn the_log_goes_on_to_a_format_that_all_members_read() {
        let gate = gate(7, &[]);
        let reads = |node, format| Introduction {
            format,
            ..peer(node, 7, node)
        };
        let next = || gate.next_format([1, 2, 3].into_iter());
        assert_eq!(gate.admit(&reads(2, 2)), Ok(()));
        assert_eq!(next(), None, "node 3 was not heard of");
        assert_eq!(gate.admit(&reads(3, 1)), Ok(()));
        assert_eq!(next(), None, "node 3 reads the first one only");
        assert_eq!(gate.admit(&reads(3, 3)), Ok(()));
        assert_eq!(next(), Some(Format(2)));
        assert_eq!(gate.admit(&reads(2, 3)), Ok(()));
        assert_eq!(next(), Some(Format(3)));
    }

    #[test]
    fn a_node_that_cannot_read_the_log_is_told_what_to_start() {
        let mut state = LedgerState::default();
        state.format = Format(2);
        let gate = NodeGate::new(1, 11, NEWEST, SharedLedger::new(state, None, NEWEST));
        let reads = |format| Introduction {
            format,
            ..peer(2, 0, 22)
        };
        let refused = gate.admit(&reads(1)).unwrap_err();
        assert!(refused.contains("reads format 1"), "{refused}");
        assert_eq!(gate.admit(&reads(2)), Ok(()));
    }
}
