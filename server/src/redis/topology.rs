//! The cluster as clients of Redis see it: one master, which is the leader, and replicas, which are
//! the followers. Nodes without a Redis port do not appear.
//!
//! While there is no leader, the last one that this node knew stays the master, marked as down.
//! Redis does the same between a crash and the promotion of a replica, and drivers are built for
//! that: they try the address, fail, and ask again.

use crate::core::cluster_view::ClusterView;
use cluster::standing::GONE_AFTER;
use cluster::types::NodeId;

/// Who is who, at one moment, as one node knows it.
pub(crate) struct Topology {
    /// By id.
    pub(crate) nodes: Vec<RedisNode>,
    pub(crate) own: NodeId,
    /// The leader, or while there is none, the last one.
    master: Option<NodeId>,
    /// There is a leader that serves, as far as this node knows.
    pub(crate) is_led: bool,
    /// Each leadership has its own, and later ones higher ones.
    pub(crate) term: u64,
    /// How many nodes have a vote, those without a Redis port included.
    pub(crate) voters: usize,
    /// How far this node has applied the log.
    pub(crate) applied_index: u64,
    pub(crate) cluster_id: u128,
}

/// A node with a Redis port.
pub(crate) struct RedisNode {
    pub(crate) id: NodeId,
    /// Its name among nodes of Redis: 40 hexadecimal digits.
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// How far its log goes, as the leader knows. Others say how far their own goes.
    pub(crate) index: u64,
    pub(crate) heard_ms: u64,
    /// Only the leader knows when it heard from the others last; a follower takes them to be up.
    pub(crate) is_up: bool,
}

impl Topology {
    pub(crate) fn now(view: &ClusterView) -> Topology {
        let leadership = view.node.leadership().borrow().clone();
        let own = view.node.id();
        let leader = match leadership.leader {
            // This node has lost the leadership, or does not serve yet.
            Some(leader) if leader == own && !view.leads => None,
            leader => leader,
        };
        let master = match view.leads {
            true => Some(own),
            false => leader.or(leadership.last_leader),
        };
        let cluster_id = view.node.ledger().known().cluster_id;
        let applied_index = view.node.applied_index();
        let members = view.node.members();
        let gone_ms = GONE_AFTER.as_millis() as u64;
        let nodes = members.iter().filter_map(|member| {
            let (host, port) = host_and_port(&member.redis)?;
            let is_master = master == Some(member.node);
            let heard_ms = match view.leads {
                true if member.node == own => Some(0),
                true => member.heard_ms,
                false if is_master => leader.map(|_| 0),
                false => Some(0),
            };
            Some(RedisNode {
                id: member.node,
                name: format!("{:024x}{:016x}", cluster_id >> 32, member.node),
                host,
                port,
                index: match member.matched_index {
                    Some(index) if member.node != own => index,
                    _ => applied_index,
                },
                heard_ms: heard_ms.unwrap_or(gone_ms),
                is_up: heard_ms.is_some_and(|heard_ms| heard_ms < gone_ms),
            })
        });
        Topology {
            nodes: nodes.collect(),
            own,
            master,
            is_led: view.leads || leader.is_some(),
            term: leadership.term,
            voters: members.iter().filter(|member| member.votes).count(),
            applied_index,
            cluster_id,
        }
    }

    /// The leader, or while there is none, the last one.
    pub(crate) fn master(&self) -> Option<&RedisNode> {
        let master = self.master?;
        self.nodes.iter().find(|node| node.id == master)
    }

    /// The leader, if there is one.
    pub(crate) fn leader(&self) -> Option<&RedisNode> {
        self.master().filter(|_| self.is_led)
    }

    pub(crate) fn replicas(&self) -> impl Iterator<Item = &RedisNode> {
        self.nodes
            .iter()
            .filter(|node| Some(node.id) != self.master)
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = &RedisNode> {
        self.nodes.iter().filter(|node| node.id != self.own)
    }

    /// How many followers have everything that this node has answered: those without which there is
    /// no majority. More may have it.
    pub(crate) fn sure_copies(&self) -> usize {
        self.voters / 2
    }
}

/// The two halves of an address. A host of IPv6 loses its brackets, as Redis writes it.
fn host_and_port(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        assert_eq!(host_and_port("db-1:6380"), Some(("db-1".to_owned(), 6380)));
        assert_eq!(host_and_port("[::1]:6380"), Some(("::1".to_owned(), 6380)));
        assert_eq!(host_and_port(""), None);
    }
}
