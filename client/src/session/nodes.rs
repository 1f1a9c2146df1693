//! Where the server is: the addresses it has, and which of them to ask first.
//!
//! A server of its own has the addresses that the user gave, asked in that order. Of a cluster one
//! node leads and takes clients. The leader tells all nodes' addresses in its welcome, and every
//! other node names the leader it knows of, if any. So there are three sorts of addresses: those
//! given, those told, and the one that is said to lead, which is asked first.
//!
//! A node that went silent, or told that it leads no more, is *doubted* until it welcomes us again:
//! it is asked last, and gets less time to answer, whatever the others say about it. They may not
//! have noticed yet.

use crate::limits::{DOUBTED_OVERDUE, NODES_MAX, NODES_TOLD_MAX, OVERDUE};
use parking_lot::Mutex;
use protocol::NodeAddresses;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Nodes {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// All nodes, by the latest welcome of a leader. Empty for a server of its own.
    told: Vec<Arc<str>>,
    /// Which one leads, by the latest word of any of them.
    leader: Option<Arc<str>>,
    doubted: Option<Arc<str>>,
    /// Hellos without an answer in time, since the latest welcome.
    overdue_count: u32,
}

impl Nodes {
    /// Every address once, in the order in which to ask.
    pub(crate) fn in_order(&self, given: &[String]) -> VecDeque<Arc<str>> {
        let known = self.known.lock();
        let mut addresses: VecDeque<Arc<str>> = VecDeque::new();
        let given = given.iter().map(|address| Arc::from(address.as_str()));
        let told = known.told.iter().cloned();
        for address in known.leader.iter().cloned().chain(given).chain(told) {
            if !addresses.contains(&address) && addresses.len() < NODES_MAX {
                addresses.push_back(address);
            }
        }
        if let Some(doubted) = &known.doubted
            && let Some(index) = addresses.iter().position(|address| address == doubted)
        {
            let doubted = addresses.remove(index);
            addresses.extend(doubted);
        }
        addresses
    }

    /// Whether there is more than one address to ask.
    pub(crate) fn has_several(&self, given: &[String]) -> bool {
        given.len() > 1 || self.in_order(given).len() > 1
    }

    /// How long a hello may stay unanswered before another node is asked. Grows while hellos stay
    /// unanswered, so that a far-away server is reached in the end.
    pub(crate) fn overdue_after(&self, address: &str, at_most: Duration) -> Duration {
        let known = self.known.lock();
        let first = match known.is_doubted(address) {
            true => DOUBTED_OVERDUE,
            false => OVERDUE,
        };
        // 2^16 times the first is beyond every timeout.
        (first * (1 << known.overdue_count.min(16))).min(at_most)
    }

    /// The node there welcomed us, and says where the nodes of its cluster are.
    pub(crate) fn note_welcome(&self, address: &Arc<str>, nodes: NodeAddresses<'_>) {
        let mut known = self.known.lock();
        known.overdue_count = 0;
        if known.is_doubted(address) {
            known.doubted = None;
        }
        let told = nodes.iter().map(|node| Arc::from(node.as_str()));
        known.told = told.take(NODES_TOLD_MAX).collect();
        // A server of its own is asked in the order that the user gave.
        known.leader = (!known.told.is_empty()).then(|| Arc::clone(address));
    }

    /// The node there does not lead, and names the one that does, unless it knows none.
    pub(crate) fn note_not_leader(&self, address: &str, leader: Option<&str>) {
        let mut known = self.known.lock();
        match leader.filter(|leader| *leader != address) {
            Some(leader) => known.leader = Some(Arc::from(leader)),
            None => known.forget_leader(address),
        }
    }

    /// The node there gave no answer in time, or said that it leads no more.
    pub(crate) fn doubt(&self, address: &Arc<str>) {
        let mut known = self.known.lock();
        known.doubted = Some(Arc::clone(address));
        known.forget_leader(address);
    }

    /// A hello to the node there was not answered in time.
    pub(crate) fn note_overdue(&self, address: &Arc<str>) {
        self.doubt(address);
        let mut known = self.known.lock();
        known.overdue_count = known.overdue_count.saturating_add(1);
    }
}

impl Known {
    fn is_doubted(&self, address: &str) -> bool {
        self.doubted.as_deref() == Some(address)
    }

    fn forget_leader(&mut self, address: &str) {
        if self.leader.as_deref() == Some(address) {
            self.leader = None;
        }
    }
}

#[cfg(test)]
mod tests;
