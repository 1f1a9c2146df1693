//! A node of a cluster, in numbers.

use super::log::microseconds;
use super::page::{HistogramData, Page, Unit};
use crate::core::shared::Shared;
use cluster::numbers::NodeNumbers;
use std::fmt;

/// Prometheus keeps numbers as floats, which hold so many bits exactly.
const HASH_MASK: u64 = (1 << 48) - 1;

/// What a node counts, at one moment.
pub(super) struct ClusterNumbers {
    node: NodeNumbers,
    is_leader: bool,
    commits: HistogramData,
}

impl ClusterNumbers {
    /// `None` for a server by itself.
    pub(super) fn take(shared: &Shared) -> Option<Self> {
        let view = shared.cluster.as_ref()?;
        let node = view.node.numbers();
        Some(ClusterNumbers {
            is_leader: view.leads && !view.is_deposed(),
            commits: microseconds(&node.commit_us),
            node,
        })
    }

    pub(super) fn show(&self, page: &mut Page) -> fmt::Result {
        let node = &self.node;
        page.gauge(
            "cluster_term",
            "The term of the cluster's leader",
            node.term,
        )?;
        page.gauge(
            "cluster_is_leader",
            "1 on the node that leads and serves clients, 0 on the others",
            u64::from(self.is_leader),
        )?;
        page.gauge(
            "cluster_leader",
            "The id of the node that leads; 0 while this node hears no leader, or no majority",
            node.leader.unwrap_or(0),
        )?;
        page.gauge(
            "cluster_keeps_up",
            "1 while this node keeps up with the leader that it hears, or leads a majority",
            u64::from(node.keeps_up),
        )?;
        page.counter(
            "cluster_reigns",
            "Leaderships of any node that this node has learned of since it started",
            node.reigns,
        )?;
        page.gauge(
            "cluster_applied_index",
            "The last entry of the replicated log that this node has applied",
            node.applied_index,
        )?;
        page.histogram(
            "cluster_commit",
            "How long a majority took to confirm an entry, on the leader; replies wait for it",
            &[(None, self.commits.clone())],
        )?;
        page.counter(
            "cluster_entries",
            "Entries that this node has proposed as leader",
            node.entries,
        )?;
        page.counter_in(
            Unit::Bytes,
            "cluster_entry",
            "Bytes of those entries",
            node.entry_bytes,
        )?;
        let lags: Vec<(String, u64)> = node
            .lags
            .iter()
            .map(|(node, lag)| (node.to_string(), *lag))
            .collect();
        let lags: Vec<(&str, u64)> = lags.iter().map(|(node, lag)| (&**node, *lag)).collect();
        if !lags.is_empty() {
            page.gauges(
                "cluster_follower_lag_entries",
                "Entries that a node has not confirmed yet; only the leader knows",
                "node",
                &lags,
            )?;
        }
        page.counter(
            "cluster_ignored_batches",
            "Batches of an earlier leader, or repeated ones, that counted for nothing",
            node.ignored_batches,
        )?;
        let (checked_index, hash) = node.checked;
        page.gauge(
            "cluster_checked_index",
            "The entry at which a part of this node's ledger was last compared with the leader's",
            checked_index,
        )?;
        page.gauge(
            "cluster_ledger_hash",
            "The lowest 48 bits of the hash it had there; nodes with the same entry show the same",
            hash & HASH_MASK,
        )?;
        page.gauge(
            "cluster_ledger_keys",
            "Keys in this node's ledger, those that are over and not forgotten yet included",
            node.keys,
        )?;
        page.gauge_in(
            Unit::Seconds,
            "cluster_clock",
            "The cluster's clock as this node knows it, since the epoch; 0 before the first entry",
            node.clock_ms as f64 / 1e3,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::Format;
    use super::*;
    use std::collections::BTreeSet;

    const DOCUMENT: &str = include_str!("../../../../docs/cluster-operations.md");

    fn numbers() -> ClusterNumbers {
        let node = NodeNumbers {
            term: 1,
            leader: Some(1),
            keeps_up: true,
            reigns: 1,
            applied_index: 1,
            ignored_batches: 1,
            commit_us: types::Histogram::default().counts(),
            entries: 1,
            entry_bytes: 1,
            lags: vec![(2, 1)],
            checked: (1, 1),
            keys: 1,
            clock_ms: 1,
        };
        ClusterNumbers {
            is_leader: true,
            commits: microseconds(&node.commit_us),
            node,
        }
    }

    #[test]
    fn the_metrics_are_those_of_the_document() {
        let mut page = Page::new(Format::Classic);
        numbers().show(&mut page).unwrap();
        let page = page.finish();
        let shown = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let shown: BTreeSet<&str> = shown.filter_map(|line| line.split(' ').next()).collect();

        let section = DOCUMENT
            .lines()
            .skip_while(|line| *line != "## Metrics of a node");
        let section = section.skip(1).take_while(|line| !line.starts_with("## "));
        let rows = section.filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
        let documented = rows
            .flat_map(|names| names.split('`').step_by(2))
            .map(|name| name.split('{').next().unwrap_or(name))
            .filter(|name| !name.is_empty());
        assert_eq!(documented.collect::<BTreeSet<_>>(), shown);
    }
}
