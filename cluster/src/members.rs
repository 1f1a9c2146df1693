//! Who belongs to the cluster: its status, and changes. Tools ask any node; the leader acts.

use crate::address::check_peer;
use crate::entry::Item;
use crate::ledger::Machine;
use crate::node::Node;
use crate::question::{Answer, MemberStatus, Question, Status};
use crate::random::random_u64;
use crate::standing::{self, GONE_AFTER, Standing, heard_ms, is_recent};
use crate::types::{Member, NodeId, Types};
use bytes::Bytes;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::{ChangeMembers, Raft};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;

/// How long a new node may take to catch up before it is refused a vote.
const CATCH_UP_MAX: Duration = Duration::from_secs(45);

/// How long a hand-over may take before the tool is told that it did not happen.
const HAND_OVER_MAX: Duration = Duration::from_secs(5);

/// How long a change of the members waits for the end of another one.
const CHANGE_MAX: Duration = Duration::from_secs(5);

/// How often a leader looks that waits for its voters, or for the end of a change.
const LOOK: Duration = Duration::from_millis(25);

/// Answers a question as bytes.
pub(crate) async fn answer(node: Option<Node>, question: Bytes) -> Bytes {
    let answer = match (node, serde_json::from_slice(&question)) {
        (Some(node), Ok(question)) => node.answer(question).await,
        (None, _) => Answer::Error("the node is stopping".to_owned()),
        (_, Err(error)) => Answer::Error(format!("this node does not know the question: {error}")),
    };
    let bytes = serde_json::to_vec(&answer);
    Bytes::from(bytes.expect("answers have no maps with strange keys"))
}

impl Node {
    /// Answers a question.
    pub async fn answer(&self, question: Question) -> Answer {
        match question {
            Question::Status => Answer::Status(self.status().await),
            Question::Image { .. } if !self.inner.raft.is_leader() => self.name_leader(),
            Question::Image { id, from } => self.image_part(id, from).await,
            change => match self.change(change).await {
                Ok(done) => Answer::Done(done),
                Err(Refusal::Said(why)) => Answer::Error(why),
                Err(Refusal::NotLeader) => self.name_leader(),
            },
        }
    }

    fn name_leader(&self) -> Answer {
        let leadership = self.leadership().borrow().clone();
        match (leadership.leader, leadership.leader_member()) {
            (Some(node), Some(member)) if node != self.id() => Answer::Leader {
                node,
                peer: member.peer.clone(),
            },
            _ => Answer::Error(
                "there is no leader now: a majority of the nodes must be up. Try again".to_owned(),
            ),
        }
    }

    /// How this node stands.
    pub async fn status(&self) -> Status {
        let metrics = self.inner.raft.metrics().borrow_watched().clone();
        let numbers = self.ledger().numbers();
        let (clock_ms, keys, cluster) = {
            let state = self.ledger().hold().await;
            let clock_ms = state.clock.now_ms(crate::host::now());
            let cluster = state.birth.as_ref();
            let cluster = cluster.map(|birth| format!("{:032x}", birth.cluster_id));
            (clock_ms, state.ledger.keys() as u64, cluster)
        };
        let index = |log_id: &Option<crate::types::LogId>| log_id.map_or(0, |id| id.index());
        let hears = self.hears_leader().await;
        Status {
            node: self.id(),
            role: format!("{:?}", metrics.state).to_lowercase(),
            role_since_unix_ms: self.inner.role.since_unix_ms(metrics.state),
            term: metrics.current_term,
            leader: metrics.current_leader.filter(|_| hears),
            cluster: cluster.unwrap_or_default(),
            last_index: metrics.last_log_index.unwrap_or(0),
            committed_index: index(&metrics.cluster_committed),
            applied_index: index(&metrics.last_applied),
            snapshot_index: index(&metrics.snapshot),
            purged_index: index(&metrics.purged),
            format: self.ledger().known().format.0,
            clock_ms,
            hash: numbers.checked().1,
            keys,
            ignored: numbers.ignored.load(Ordering::Relaxed),
            reigns: numbers.reigns.load(Ordering::Relaxed),
            members: self.members(),
        }
    }

    /// All nodes, as this one sees them.
    pub fn members(&self) -> Vec<MemberStatus> {
        let metrics = self.inner.raft.metrics().borrow_watched().clone();
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<NodeId> = membership.voter_ids().collect();
        let matched = metrics.replication.clone().unwrap_or_default();
        let heard = heard_ms(&self.inner.raft);
        let members = membership.nodes().map(|(node, member)| MemberStatus {
            node: *node,
            votes: voters.contains(node),
            peer: member.peer.clone(),
            client: member.client.clone(),
            redis: member.redis.clone(),
            matched_index: matched
                .get(node)
                .and_then(|matched| matched.as_ref().map(|matched| matched.index())),
            heard_ms: heard.get(node).copied(),
        });
        members.collect()
    }

    async fn change(&self, change: Question) -> Result<String, Refusal> {
        let raft = &self.inner.raft;
        if !raft.is_leader() {
            return Err(Refusal::NotLeader);
        }
        let leadership = self.leadership().borrow().clone();
        let said = |why: String| Err(Refusal::Said(why));
        match change {
            Question::Add {
                node,
                peer,
                client,
                redis,
            } => {
                if let Some((_, true)) = leadership.members.get(&node) {
                    return said(format!("node {node} is a member already"));
                }
                // One that did not catch up in time may be asked for again.
                let is_learner = leadership.members.contains_key(&node);
                let was_used = self.ledger().known().disks.contains_key(&node);
                if node == 0 || (was_used && !is_learner) {
                    return said(format!(
                        "the id {node} was used before: give the new node one that was not, and an empty directory"
                    ));
                }
                check_peer(node, &peer).map_err(Refusal::Said)?;
                let member = Member {
                    peer,
                    client,
                    redis,
                };
                if !self.is_announced().await {
                    return said(
                        "this node has not written down yet where it is reached: try again in a moment"
                            .to_owned(),
                    );
                }
                let known = leadership.members.get(&node);
                if known.is_some_and(|(known, _)| known.peer != member.peer) {
                    announce(raft, node, member.clone()).await;
                }
                let learns = ChangeMembers::AddNodes(BTreeMap::from([(node, member)]));
                let learns_index = self.change_members(learns, true).await?;
                // Not openraft's own wait: for that, a node is up to date that never answered and
                // is a few thousand entries behind.
                if !self.catches_up(node, learns_index).await? {
                    return said(format!(
                        "node {node} has not caught up within {CATCH_UP_MAX:?}: it has no vote yet. Is it running, with --peers \
                         naming this cluster and the same --cluster-key-file? Ask again when it is, or give it up with \
                         `fencepost cluster remove {node}`"
                    ));
                }
                let add = ChangeMembers::AddVoterIds(BTreeSet::from([node]));
                self.change_members(add, true).await?;
                let before = leadership.members.values().filter(|(_, votes)| *votes);
                Ok(format!(
                    "node {node} has caught up and has a vote: {}",
                    may_fail(before.count() + 1)
                ))
            }
            Question::Remove { node } => {
                let Some((_, votes)) = leadership.members.get(&node) else {
                    return said(not_a_member(node));
                };
                if !votes {
                    let forget = ChangeMembers::RemoveNodes(BTreeSet::from([node]));
                    self.change_members(forget, false).await?;
                    return Ok(format!(
                        "node {node}, which had no vote, is no member any more: stop it"
                    ));
                }
                let voters: BTreeSet<NodeId> = leadership
                    .members
                    .iter()
                    .filter(|(id, (_, votes))| *votes && **id != node)
                    .map(|(id, _)| *id)
                    .collect();
                let majority = voters.len() / 2 + 1;
                let up = self.wait_for_voters(&voters, majority).await;
                if voters.is_empty() || up < majority {
                    return said(too_few(node, voters.len(), up, majority));
                }
                if let (true, Some(successor)) = (node == self.id(), self.successor()) {
                    // The tool goes on at the next leader.
                    self.hand_over(successor).await?;
                    return Err(Refusal::NotLeader);
                }
                let remove = ChangeMembers::RemoveVoters(BTreeSet::from([node]));
                self.change_members(remove, false).await?;
                let is_known = self.ledger().known().disks.contains_key(&node);
                if let (Some(leader), false) = (leadership.own, is_known) {
                    // Its id must not come again, also if its disk was not written down yet.
                    let disk = random_u64();
                    let _ = self.write(leader, &Item::Joined { node, disk }).await;
                }
                Ok(format!(
                    "node {node} is no member any more, stop it: {}",
                    may_fail(voters.len())
                ))
            }
            Question::Announce {
                node,
                peer,
                client,
                redis,
            } => {
                if !leadership.members.contains_key(&node) {
                    return said(not_a_member(node));
                }
                let member = Member {
                    peer,
                    client,
                    redis,
                };
                announce(raft, node, member).await;
                Ok(format!("node {node} is known"))
            }
            Question::Transfer { to } => {
                match leadership.members.get(&to) {
                    Some(_) if to == self.id() => {
                        return Ok(format!("node {to} leads already"));
                    }
                    Some((_, true)) if self.is_up(to) => {}
                    Some((_, true)) => {
                        return said(format!(
                            "node {to} was not heard from for {GONE_AFTER:?}: start it, or name another node"
                        ));
                    }
                    Some((_, false)) => {
                        return said(format!(
                            "node {to} has no vote yet, so it cannot lead: `fencepost cluster add` gives it one"
                        ));
                    }
                    None => return said(not_a_member(to)),
                }
                self.hand_over(to).await?;
                Ok(format!("node {to} leads"))
            }
            Question::Status | Question::Image { .. } => {
                unreachable!("these change nothing")
            }
        }
    }

    /// Whether this node leads a majority, or has heard from its leader lately.
    pub async fn hears_leader(&self) -> bool {
        standing::hears_leader(&self.inner.raft, self.inner.begun).await
    }

    /// Whether this node leads, and has heard from a majority lately.
    pub fn leads_majority(&self) -> bool {
        standing::leads_majority(&self.inner.raft)
    }

    /// How this node stands to its cluster, as far as it knows. For any thread.
    pub fn standing_now(&self) -> Standing {
        let known = *self.inner.standing.borrow();
        self.inner.last_look.now(known)
    }

    /// The same, for tasks that wait for changes of it.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.inner.standing.clone()
    }

    /// Whether the leader has heard from a node lately.
    fn is_up(&self, node: NodeId) -> bool {
        is_recent(heard_ms(&self.inner.raft).get(&node))
    }

    /// How many of these voters are up. A leader that was elected a moment ago waits until it has
    /// heard from as many as are needed.
    async fn wait_for_voters(&self, voters: &BTreeSet<NodeId>, needed: usize) -> usize {
        let begin = std::time::Instant::now();
        loop {
            let up = voters.iter().filter(|node| self.is_up(**node)).count();
            if up >= needed || begin.elapsed() > GONE_AFTER {
                return up;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the membership says where this node is reached. That of a cluster which was
    /// founded a moment ago does not yet, and a node that is added could not ask for a vote.
    async fn is_announced(&self) -> bool {
        let mut leadership = self.leadership();
        let announced = leadership.wait_for(|leadership| {
            let own = leadership.members.get(&self.id());
            own.is_some_and(|(member, _)| !member.peer.is_empty())
        });
        let announced = tokio::time::timeout(CHANGE_MAX, announced).await;
        announced.is_ok_and(|announced| announced.is_ok())
    }

    /// Changes the members; the index of the entry that says so. While another change is under way,
    /// like that of a node which says where it is reached, waits for its end.
    async fn change_members(
        &self,
        change: ChangeMembers<NodeId, Member>,
        retain: bool,
    ) -> Result<u64, Refusal> {
        let begin = std::time::Instant::now();
        loop {
            let changed = self.inner.raft.change_membership(change.clone(), retain);
            match changed.await {
                Ok(changed) => return Ok(changed.log_id.index()),
                Err(error) if !is_in_progress(&error) => return Err(error.into()),
                Err(_) if begin.elapsed() > CHANGE_MAX => {
                    return Err(Refusal::Said(
                        "another change of the members is not at its end. `fencepost cluster status` shows how the nodes \
                         stand; try again"
                            .to_owned(),
                    ));
                }
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Waits until a node has confirmed the entry with this index; `false`: it did not in time.
    async fn catches_up(&self, node: NodeId, index: u64) -> Result<bool, Refusal> {
        let mut metrics = self.inner.raft.metrics();
        let confirmed = async {
            loop {
                let matched_index = {
                    let metrics = metrics.borrow_watched();
                    let matched = metrics.replication.as_ref().ok_or(Refusal::NotLeader)?;
                    let matched = matched.get(&node).and_then(|matched| matched.as_ref());
                    matched.map(|matched| matched.index())
                };
                if matched_index >= Some(index) {
                    return Ok(true);
                }
                metrics.changed().await.map_err(|_| Refusal::NotLeader)?;
            }
        };
        let confirmed = tokio::time::timeout(CATCH_UP_MAX, confirmed).await;
        confirmed.unwrap_or(Ok(false))
    }

    /// Has another node lead, and waits until it does.
    async fn hand_over(&self, to: NodeId) -> Result<(), Refusal> {
        let mut leadership = self.leadership();
        self.transfer(to).await;
        let leads = leadership.wait_for(|leadership| leadership.leader == Some(to));
        match tokio::time::timeout(HAND_OVER_MAX, leads).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Refusal::Said(format!(
                "node {to} was asked to lead and does not within {HAND_OVER_MAX:?}. `fencepost cluster status` shows how the nodes \
                 stand"
            ))),
        }
    }

    /// Asks another node to lead.
    pub async fn transfer(&self, to: NodeId) {
        let _ = self.inner.raft.trigger().transfer_leader(to).await;
    }

    /// The voter that is up and furthest with the log, apart from this node.
    pub fn successor(&self) -> Option<NodeId> {
        let metrics = self.inner.raft.metrics().borrow_watched().clone();
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<NodeId> = membership.voter_ids().collect();
        let matched = metrics.replication?;
        let others = matched
            .iter()
            .filter(|(node, _)| **node != self.id() && voters.contains(node))
            .filter(|(node, _)| self.is_up(**node));
        others
            .max_by_key(|(_, matched)| matched.as_ref().map(|id| id.index()))
            .map(|(node, _)| *node)
    }
}

fn not_a_member(node: NodeId) -> String {
    format!("node {node} is no member: `fencepost cluster status` shows the nodes that are")
}

/// Why a node is not taken out: the voters that would be left could not decide anything.
fn too_few(node: NodeId, voters: usize, up: usize, majority: usize) -> String {
    format!(
        "without node {node} too few voters would be up, {up} of {voters} where the cluster needs {majority}: \
         bring the others back first, or add a node"
    )
}

/// How many of so many voters may fail while the others go on.
fn may_fail(voters: usize) -> String {
    match (voters, (voters - 1) / 2) {
        (1, _) => "1 node votes, and may not fail".to_owned(),
        (_, 0) => format!("{voters} nodes vote, and none may fail"),
        (_, few) => format!("{voters} nodes vote, and {few} may fail"),
    }
}

/// Writes down where a member is reached.
pub(crate) async fn announce(raft: &Raft<Types, Machine>, node: NodeId, member: Member) {
    let set = ChangeMembers::SetNodes(BTreeMap::from([(node, member)]));
    if let Err(error) = raft.change_membership(set, true).await {
        tracing::debug!("where node {node} is reached could not be written down: {error}");
    }
}

fn is_in_progress(error: &RaftError<Types, ClientWriteError<Types>>) -> bool {
    let RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) = error else {
        return false;
    };
    matches!(error, ChangeMembershipError::InProgress(_))
}

enum Refusal {
    Said(String),
    NotLeader,
}

impl From<RaftError<Types, ClientWriteError<Types>>> for Refusal {
    fn from(error: RaftError<Types, ClientWriteError<Types>>) -> Self {
        match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => Refusal::NotLeader,
            error => Refusal::Said(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_that_would_stop_the_cluster_is_refused_in_whole_numbers() {
        assert_eq!(
            too_few(3, 2, 1, 2),
            "without node 3 too few voters would be up, 1 of 2 where the cluster needs 2: bring the others back first, or add \
             a node"
        );
    }
}
