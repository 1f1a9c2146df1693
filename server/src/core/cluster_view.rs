//! What connections and HTTP see of the cluster.

use cluster::node::{Leadership, Node};
use cluster::peer::PeerTls;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Why a node without a leader is not ready.
pub(crate) const ELECTING: &str = "electing";

/// The cluster, as one office of this node sees it.
pub(crate) struct ClusterView {
    pub(crate) node: Node,
    /// This office serves clients.
    pub(crate) leads: bool,
    /// What nodes show each other; `None`: they speak without TLS.
    pub(crate) peer_tls: Option<Arc<PeerTls>>,
    leadership: watch::Receiver<Leadership>,
    is_deposed: AtomicBool,
}

impl ClusterView {
    pub(crate) fn new(node: Node, peer_tls: Option<Arc<PeerTls>>, leads: bool) -> Self {
        ClusterView {
            leadership: node.leadership(),
            node,
            leads,
            peer_tls,
            is_deposed: AtomicBool::new(false),
        }
    }

    /// Where native clients find the leader. Empty: that is not known.
    pub(crate) fn leader_client(&self) -> String {
        self.of_leader(|member| member.client.clone())
    }

    fn of_leader(&self, get: impl FnOnce(&cluster::types::Member) -> String) -> String {
        let leadership = self.leadership.borrow();
        match leadership.leader {
            // This node is not serving: it has just lost the leadership, or is about to begin.
            Some(leader) if leader == self.node.id() && !self.leads => String::new(),
            _ => leadership.leader_member().map(get).unwrap_or_default(),
        }
    }

    /// Where native clients reach the nodes, with commas between them.
    pub(crate) fn addresses(&self) -> String {
        let leadership = self.leadership.borrow();
        let members = leadership.members.values();
        let addresses: Vec<&str> = members
            .map(|(member, _)| member.client.as_str())
            .filter(|address| !address.is_empty())
            .collect();
        addresses.join(",")
    }

    /// Why clients and rollouts should not count on this node now.
    pub(crate) fn why_not_ready(&self) -> Option<&'static str> {
        let leadership = self.leadership.borrow();
        match leadership.leader {
            _ if leadership.members.is_empty() => Some("joining"),
            None => Some(ELECTING),
            Some(leader) if leader == self.node.id() && !self.leads => Some("restoring"),
            Some(_) => None,
        }
    }

    /// The leadership was lost: nothing more is answered.
    pub(crate) fn depose(&self) {
        self.is_deposed.store(true, Ordering::Release);
    }

    pub(crate) fn is_deposed(&self) -> bool {
        self.is_deposed.load(Ordering::Acquire)
    }

    /// What a peer of a node that does not serve hears.
    pub(crate) fn not_leader(&self) -> String {
        let leader = self.leadership.borrow().leader;
        match leader {
            Some(leader) if leader != self.node.id() => {
                format!("node {} does not lead, node {leader} does", self.node.id())
            }
            _ => format!(
                "node {} does not lead, and no leader is known yet: a majority of the nodes must be up",
                self.node.id()
            ),
        }
    }
}
