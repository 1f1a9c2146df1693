//! Whether this node hears its cluster, keeps up with it, and belongs to it.
//!
//! openraft does not say that: it knows a leader from before a restart, goes on to name one from
//! which nothing comes any more, and lets a leader that is cut off from the others believe that it
//! leads. A node that was removed is sent nothing any more, so one that hears nothing asks the
//! others.
//!
//! A node that hears its leader may be far behind it all the same (`standing/progress.rs`). A
//! rolling restart that counted on such a node would stop the next one too early, and the cluster
//! would wait without a majority until the laggard has been sent the rest.

mod progress;

use self::progress::Progress;
use crate::gate::NodeGate;
use crate::host;
use crate::ledger::Machine;
use crate::peer::{self, ClusterKey, Gate, Transport};
use crate::question::{Answer, Question};
use crate::types::{LogId, NodeId, Types};
use openraft::async_runtime::WatchReceiver;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::InstantOf;
use openraft::{Instant as _, Raft, RaftState};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A node that was not heard from for so long is counted as gone.
pub const GONE_AFTER: Duration = Duration::from_secs(2);

/// How often a node looks whether it hears its cluster.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often one looks that has yet to catch up.
const CATCH_UP_LOOK_EVERY: Duration = Duration::from_millis(50);

/// A node that hears nothing asks another one, after so many looks.
const LOOKS_PER_QUESTION: usize = 10;

/// How long that one may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// A look takes no longer than this: openraft is asked twice, and another node once.
const LOOK_MAX: Duration = Duration::from_secs(5);

const _: () = assert!(2 * GONE_AFTER.as_millis() + ANSWER_MAX.as_millis() <= LOOK_MAX.as_millis());

/// How a node stands to its cluster.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Standing {
    /// It hears no leader, and leads no majority.
    #[default]
    Unheard,
    /// It hears its leader, and has yet to apply what that had committed a moment ago.
    CatchingUp,
    /// It hears its leader and keeps up with it, or leads a majority.
    Heard,
    /// It hears nothing, and the leader has no such member.
    Removed,
}

impl Standing {
    /// Whether the node hears its leader, or leads a majority.
    pub fn hears(self) -> bool {
        matches!(self, Standing::CatchingUp | Standing::Heard)
    }

    /// What a look from then says now. The looks are made on openraft's thread: if they have
    /// stopped, so has that, and what it heard last says nothing any more.
    fn seen_at(self, looked: Instant, now: Instant) -> Standing {
        match now.saturating_duration_since(looked) <= LOOK_MAX + LOOK_EVERY {
            true => self,
            false => Standing::Unheard,
        }
    }
}

/// When this node looked last.
pub(crate) struct LastLook(Mutex<Instant>);

impl LastLook {
    pub(crate) fn new() -> Self {
        LastLook(Mutex::new(host::now()))
    }

    fn look(&self) {
        *self.0.lock() = host::now();
    }

    /// What the last look says now, from any thread.
    pub(crate) fn now(&self, standing: Standing) -> Standing {
        standing.seen_at(*self.0.lock(), host::now())
    }
}

/// What a node needs for asking the others.
pub(crate) struct Asker<T> {
    pub(crate) raft: Raft<Types, Machine>,
    pub(crate) transport: T,
    pub(crate) key: ClusterKey,
    pub(crate) gate: Arc<NodeGate>,
}

/// Looks, for as long as the node runs.
pub(crate) async fn watch_standing<T: Transport>(
    asker: Asker<T>,
    begun: InstantOf<Types>,
    last_look: Arc<LastLook>,
    announce: watch::Sender<Standing>,
) {
    let mut metrics = asker.raft.server_metrics();
    let mut silent_looks = 0;
    let mut progress = Progress::default();
    loop {
        let before = *announce.borrow();
        let standing = if hears_leader(&asker.raft, begun).await {
            silent_looks = 0;
            match asker.keeps_up(&mut progress).await {
                true => Standing::Heard,
                false => Standing::CatchingUp,
            }
        } else {
            silent_looks += 1;
            progress = Progress::default();
            let is_removed = match silent_looks % LOOKS_PER_QUESTION {
                0 => asker.is_removed(silent_looks / LOOKS_PER_QUESTION).await,
                _ => None,
            };
            match is_removed.unwrap_or(before == Standing::Removed) {
                true => Standing::Removed,
                false => Standing::Unheard,
            }
        };
        last_look.look();
        announce.send_if_modified(|known| std::mem::replace(known, standing) != standing);
        let pause = match standing {
            Standing::CatchingUp => CATCH_UP_LOOK_EVERY,
            _ => LOOK_EVERY,
        };
        tokio::select! {
            changed = metrics.changed() => if changed.is_err() {
                return;
            },
            () = tokio::time::sleep(pause) => {}
        }
    }
}

impl<T: Transport> Asker<T> {
    /// Whether a node that hears its leader has applied what that had committed lately. A leader's
    /// readiness is whether it serves.
    async fn keeps_up(&self, progress: &mut Progress) -> bool {
        if self.raft.is_leader() {
            *progress = Progress::default();
            return true;
        }
        let applied = self.raft.metrics().borrow_watched().last_applied;
        let applied_index = applied.map(|applied| applied.index());
        progress.look(told_index(&self.raft).await, applied_index, Types::now())
    }

    /// Asks one of the others, each in its turn. `None`: it does not lead, or does not answer.
    async fn is_removed(&self, turn: usize) -> Option<bool> {
        let own = *self.raft.node_id();
        let metrics = self.raft.metrics().borrow_watched().clone();
        let members = metrics.membership_config.nodes();
        let others = members.filter(|(node, _)| **node != own);
        let others: Vec<String> = others.map(|(_, other)| other.peer.clone()).collect();
        let address = others.get(turn.checked_rem(others.len())?)?;
        let question = serde_json::to_vec(&Question::Status).ok()?;
        let who = self.gate.introduce();
        let asked = peer::ask(&self.transport, address, &self.key, who, question.into());
        let answer = tokio::time::timeout(ANSWER_MAX, asked).await.ok()?.ok()?;
        match serde_json::from_slice(&answer).ok()? {
            Answer::Status(status) if status.leads() => {
                Some(status.members.iter().all(|member| member.node != own))
            }
            _ => None,
        }
    }
}

/// Whether this node leads a majority, or has heard from its leader lately.
pub(crate) async fn hears_leader(raft: &Raft<Types, Machine>, begun: InstantOf<Types>) -> bool {
    let is_lately = |heard: InstantOf<Types>| heard > begun && heard.elapsed() < GONE_AFTER;
    let heard = heard_at(raft).await.is_some_and(is_lately);
    // A leader that was elected a moment ago had a majority then, which need not have answered it
    // since. Nothing renews its own vote afterwards.
    heard || leads_majority(raft)
}

/// When this node was elected, or heard from its leader last. It may have been before its start.
pub(crate) async fn heard_at(raft: &Raft<Types, Machine>) -> Option<InstantOf<Types>> {
    // openraft's own measure: a leader's message renews the vote that it was given. A vote for
    // a candidate, this node among them, is not committed, and says nothing of a leader.
    let heard = raft.with_raft_state(|state: &RaftState<Types>| {
        let is_leaders = state.vote_ref().committed;
        state.vote_last_modified().filter(|_| is_leaders)
    });
    let heard = tokio::time::timeout(GONE_AFTER, heard).await;
    heard.ok()?.ok()?
}

/// The last entry that is committed as the present leader tells it. `None`: it has not told yet. A
/// leader that was elected a moment ago may tell less than is committed, until an entry of its own
/// is.
async fn told_index(raft: &Raft<Types, Machine>) -> Option<u64> {
    let told = raft.with_raft_state(|state: &RaftState<Types>| {
        let leader = state.vote_ref().leader_id;
        let is_its_own = |told: &&LogId| *told.committed_leader_id() == leader;
        let told = state.cluster_committed().filter(is_its_own);
        told.map(|told| told.index())
    });
    let told = tokio::time::timeout(GONE_AFTER, told).await;
    told.ok()?.ok()?
}

/// Whether this node leads, and has heard from a majority lately.
pub(crate) fn leads_majority(raft: &Raft<Types, Machine>) -> bool {
    let heard = heard_ms(raft);
    let metrics = raft.metrics().borrow_watched().clone();
    let voters = metrics.membership_config.membership().voter_ids();
    let voters: Vec<NodeId> = voters.collect();
    let up = voters.iter().filter(|node| is_recent(heard.get(node)));
    raft.is_leader() && up.count() * 2 > voters.len()
}

/// How long ago the leader heard from each node. Empty on followers.
pub(crate) fn heard_ms(raft: &Raft<Types, Machine>) -> BTreeMap<NodeId, u64> {
    let metrics = raft.metrics().borrow_watched().clone();
    let heartbeat = metrics.heartbeat.unwrap_or_default();
    let heard = heartbeat.iter().filter_map(|(node, heard)| {
        let ms = heard.as_ref()?.elapsed().as_millis() as u64;
        Some((*node, ms))
    });
    let mut heard: BTreeMap<NodeId, u64> = heard.collect();
    if raft.is_leader() {
        heard.insert(*raft.node_id(), 0);
    }
    heard
}

/// Whether a node is up that was heard from so long ago.
pub(crate) fn is_recent(heard_ms: Option<&u64>) -> bool {
    heard_ms.is_some_and(|ms| u128::from(*ms) < GONE_AFTER.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_stopped_looking_hears_no_leader() {
        let looked = Instant::now();
        let at = |after: Duration| Standing::Heard.seen_at(looked, looked + after);
        assert_eq!(at(Duration::ZERO), Standing::Heard);
        assert_eq!(at(LOOK_MAX), Standing::Heard);
        assert_eq!(at(LOOK_MAX * 2), Standing::Unheard);
    }
}
