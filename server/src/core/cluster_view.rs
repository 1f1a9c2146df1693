//! What connections and HTTP see of the cluster.

use crate::config::Config;
use cluster::node::{Leadership, Node};
use cluster::peer::PeerTls;
use cluster::standing::Standing;
use cluster::types::NodeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// What a node says that is no member any more.
pub(crate) const REMOVED: &str =
    "this node was removed from the cluster: stop it. Its id is not used again";

/// The cluster, as one office of this node sees it.
pub(crate) struct ClusterView {
    pub(crate) node: Node,
    /// This office serves clients.
    pub(crate) leads: bool,
    /// What nodes show each other; `None`: they speak without TLS.
    pub(crate) peer_tls: Option<Arc<PeerTls>>,
    leadership: watch::Receiver<Leadership>,
    is_deposed: AtomicBool,
    /// What it waits for while it belongs to no cluster.
    waits_for: String,
}

impl ClusterView {
    pub(crate) fn new(
        node: Node,
        peer_tls: Option<Arc<PeerTls>>,
        leads: bool,
        config: &Config,
    ) -> Self {
        ClusterView {
            leadership: node.leadership(),
            node,
            leads,
            peer_tls,
            is_deposed: AtomicBool::new(false),
            waits_for: waits_for(config),
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
        let standing = self.node.standing_now();
        let own = self.node.id();
        why_not_ready(&self.leadership.borrow(), standing, own, self.leads)
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
        if self.node.standing_now() == Standing::Removed {
            return REMOVED.to_owned();
        }
        if self.leadership.borrow().members.is_empty() {
            return self.waits_for.clone();
        }
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

/// What a node that belongs to no cluster waits for.
pub(crate) fn waits_for(config: &Config) -> String {
    let own = config.node_id;
    let first = config.peers.iter().next().map(|(node, _)| node);
    match first {
        Some(first) if config.bootstrap && first == own => {
            format!("node {own} is about to make the cluster: a majority of the nodes must be up")
        }
        Some(first) if config.bootstrap => {
            format!("node {own} belongs to no cluster yet: it waits for node {first} to make it")
        }
        _ => {
            let address = config.peers.address_of(own).unwrap_or("HOST:PORT");
            format!(
                "node {own} belongs to no cluster yet: it waits for `fencepost cluster add {own}={address}`"
            )
        }
    }
}

fn why_not_ready(
    leadership: &Leadership,
    standing: Standing,
    own: NodeId,
    serves: bool,
) -> Option<&'static str> {
    // The log of a node that joins tells of the members from before it, too.
    let votes = leadership
        .members
        .get(&own)
        .is_some_and(|(_, votes)| *votes);
    match (standing, leadership.leader) {
        _ if leadership.members.is_empty() => Some("joining"),
        (Standing::Removed, _) => Some("removed"),
        (Standing::Unheard, _) | (_, None) => Some("electing"),
        _ if !votes => Some("joining"),
        (Standing::CatchingUp, Some(_)) => Some("catching_up"),
        (Standing::Heard, Some(leader)) if leader == own && !serves => Some("restoring"),
        (Standing::Heard, Some(_)) => None,
    }
}

#[cfg(test)]
mod tests;
