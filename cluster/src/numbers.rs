//! What a node counts, for metrics. Nothing here waits for the ledger.

use crate::node::Node;
use crate::propose::COMMIT_BUCKETS;
use crate::standing::Standing;
use crate::types::NodeId;
use openraft::async_runtime::WatchReceiver;
use std::sync::atomic::Ordering;
use types::HistogramCounts;

/// The numbers of a node at about one moment.
#[derive(Clone, Debug)]
pub struct NodeNumbers {
    /// The term.
    pub term: u64,
    /// The leader, while this node hears it.
    pub leader: Option<NodeId>,
    /// This node keeps up with that leader, or is it.
    pub keeps_up: bool,
    /// Reigns of any node that this node has learned of since it started.
    pub reigns: u64,
    /// The last entry that it has applied.
    pub applied_index: u64,
    /// Batches that counted for nothing.
    pub ignored_batches: u64,
    /// How long commits of this node's reigns took, in microseconds.
    pub commit_us: HistogramCounts<COMMIT_BUCKETS>,
    /// Entries that this node proposed.
    pub entries: u64,
    /// Their bytes.
    pub entry_bytes: u64,
    /// How many entries each other node is behind, as the leader knows. Empty on followers.
    pub lags: Vec<(NodeId, u64)>,
    /// The entry at which the nodes last compared hashes of their ledgers, and the hash.
    pub checked: (u64, u64),
    /// Keys in the ledger.
    pub keys: u64,
    /// The cluster's clock, in milliseconds since 1970; 0 if nothing is known of it.
    pub clock_ms: u64,
}

impl Node {
    /// What it counts.
    pub fn numbers(&self) -> NodeNumbers {
        let metrics = self.inner.raft.metrics().borrow_watched().clone();
        let numbers = self.ledger().numbers();
        let commits = &self.inner.commits;
        let last_index = metrics.last_log_index.unwrap_or(0);
        let matched = metrics.replication.unwrap_or_default();
        let others = matched.iter().filter(|(node, _)| **node != self.id());
        let lags = others.map(|(node, matched)| {
            let matched_index = matched.as_ref().map_or(0, |matched| matched.index());
            (*node, last_index.saturating_sub(matched_index))
        });
        let standing = self.standing_now();
        let (keys, clock_ms) = self.ledger().look();
        NodeNumbers {
            term: metrics.current_term,
            leader: metrics.current_leader.filter(|_| standing.hears()),
            keeps_up: standing == Standing::Heard,
            reigns: numbers.reigns.load(Ordering::Relaxed),
            applied_index: numbers.applied_index.load(Ordering::Relaxed),
            ignored_batches: numbers.ignored.load(Ordering::Relaxed),
            commit_us: commits.us.counts(),
            entries: commits.entries.load(Ordering::Relaxed),
            entry_bytes: commits.bytes.load(Ordering::Relaxed),
            lags: lags.collect(),
            checked: numbers.checked(),
            keys,
            clock_ms,
        }
    }
}
