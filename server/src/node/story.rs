//! The log lines of an election, on every node: who was elected in which term, when that node
//! serves, and why the one before stopped; and that this node was removed. The leader's own lines,
//! which know more, are in `office.rs` and `server.rs`.

use crate::core::cluster_view::REMOVED;
use cluster::node::{Leadership, Node};
use cluster::standing::Standing;
use cluster::types::NodeId;

/// Tells who leads, for as long as the node runs.
pub(super) async fn tell(node: Node) {
    let mut leadership = node.leadership();
    let mut reigning = node.ledger().reigning();
    let mut standing = node.standing();
    let mut story = Story::new(node.id());
    loop {
        let now = leadership.borrow_and_update().clone();
        let reign = *reigning.borrow_and_update();
        for line in story.go_on(&now, reign) {
            tracing::info!(node = node.id(), term = now.term, "{line}");
        }
        if story.is_removed_now(*standing.borrow_and_update()) {
            tracing::warn!(node = node.id(), "{REMOVED}");
        }
        let changed = tokio::select! {
            changed = standing.changed() => changed,
            changed = leadership.changed() => changed,
            changed = reigning.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// What was told so far.
struct Story {
    own: NodeId,
    /// The leader and its term.
    leader: Option<(NodeId, u64)>,
    /// The index of the last marker that was told of.
    marker: Option<u64>,
    /// The leader serves.
    is_serving: bool,
    is_removed: bool,
}

impl Story {
    fn new(own: NodeId) -> Self {
        Story {
            own,
            leader: None,
            marker: None,
            is_serving: false,
            is_removed: false,
        }
    }

    /// Whether it is news that this node was removed.
    fn is_removed_now(&mut self, standing: Standing) -> bool {
        let before = std::mem::replace(&mut self.is_removed, standing == Standing::Removed);
        self.is_removed && !before
    }

    /// The lines that are new.
    fn go_on(&mut self, now: &Leadership, reign: Option<(u64, NodeId)>) -> Vec<String> {
        let mut lines = Vec::new();
        let leader = now.leader.map(|leader| (leader, now.term));
        if leader != self.leader {
            match (self.leader, leader) {
                (_, Some((elected, term))) if elected == self.own => {
                    lines.push(format!("this node was elected in term {term}"));
                }
                (_, Some((elected, term))) => {
                    lines.push(format!("node {elected} was elected in term {term}"));
                }
                // The office's own line says why it stops serving.
                (Some((before, _)), None) if before == self.own => {}
                (Some((before, _)), None) => {
                    lines.push(format!(
                        "node {before} does not lead any more; an election begins"
                    ));
                }
                (None, None) => {}
            }
            self.leader = leader;
            self.is_serving = false;
        }
        if let (Some((leader, _)), Some((marker, node))) = (leader, reign)
            && leader == node
            && !self.is_serving
            && Some(marker) > self.marker
        {
            self.marker = Some(marker);
            self.is_serving = true;
            // The leader's own line has figures, and comes when clients can connect.
            if leader != self.own {
                lines.push(format!("node {leader} begins to serve clients"));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leadership(term: u64, leader: Option<NodeId>) -> Leadership {
        Leadership {
            term,
            leader,
            ..Leadership::default()
        }
    }

    #[test]
    fn an_election_is_three_lines_on_a_follower() {
        let mut story = Story::new(3);
        let begin = story.go_on(&leadership(1, Some(1)), Some((4, 1)));
        assert_eq!(
            begin,
            [
                "node 1 was elected in term 1",
                "node 1 begins to serve clients"
            ]
        );
        let mut lines = Vec::new();
        lines.extend(story.go_on(&leadership(1, Some(1)), Some((4, 1))));
        lines.extend(story.go_on(&leadership(2, None), Some((4, 1))));
        lines.extend(story.go_on(&leadership(3, None), Some((4, 1))));
        lines.extend(story.go_on(&leadership(3, Some(2)), Some((4, 1))));
        lines.extend(story.go_on(&leadership(3, Some(2)), Some((90, 2))));
        lines.extend(story.go_on(&leadership(3, Some(2)), Some((90, 2))));
        assert_eq!(
            lines,
            [
                "node 1 does not lead any more; an election begins",
                "node 2 was elected in term 3",
                "node 2 begins to serve clients",
            ]
        );
    }

    #[test]
    fn a_leader_that_is_elected_again_serves_with_its_next_marker() {
        let mut story = Story::new(3);
        story.go_on(&leadership(1, Some(1)), Some((4, 1)));
        let elected = story.go_on(&leadership(2, Some(1)), Some((4, 1)));
        assert_eq!(elected, ["node 1 was elected in term 2"]);
        let serves = story.go_on(&leadership(2, Some(1)), Some((9, 1)));
        assert_eq!(serves, ["node 1 begins to serve clients"]);
    }

    #[test]
    fn a_removal_is_told_once() {
        let mut story = Story::new(3);
        let told = [
            Standing::Heard,
            Standing::Removed,
            Standing::Removed,
            Standing::Unheard,
        ];
        let told = told.map(|standing| story.is_removed_now(standing));
        assert_eq!(told, [false, true, false, false]);
    }
}
