//! A node: openraft with this node's log, ledger and peers around it, on one runtime of one thread.
//!
//! The server above it needs little: who leads ([`Node::leadership`]), to begin a reign when this
//! node does ([`Node::begin_reign`]), and the ledger to build its engine from.

use crate::entry::{Birth, Item};
use crate::host;
use crate::kept_image::KeptImage;
use crate::ledger::{Difference, LedgerState, Machine, SharedLedger};
use crate::propose::{CommitNumbers, OnSettled, Reign, Stamp, leads};
use crate::random::{random_key, random_u64};
use crate::standing::{LastLook, Standing};
use crate::store::Store;
use crate::types::{LeaderId, Member, NodeId, Types};
use openraft::async_runtime::WatchReceiver;
use openraft::type_config::alias::InstantOf;
use openraft::{Raft, ServerState};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// There is one replicated log so far.
pub(crate) const GROUP: u16 = 0;

/// The pause before a marker is proposed again: openraft takes no writes before a majority has
/// confirmed the new leader.
const MARKER_AGAIN: Duration = Duration::from_millis(2);

/// Who leads, as this node knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leadership {
    /// The term.
    pub term: u64,
    /// The leader, once something was heard from one since this node started.
    pub leader: Option<NodeId>,
    /// The leader, or while there is none, the last one that this node knew since it started.
    pub last_leader: Option<NodeId>,
    /// This node leads.
    pub own: Option<LeaderId>,
    /// All nodes, by id, with whether each has a vote.
    pub members: BTreeMap<NodeId, (Member, bool)>,
}

impl Leadership {
    /// Where the leader is reached.
    pub fn leader_member(&self) -> Option<&Member> {
        Some(&self.members.get(&self.leader?)?.0)
    }
}

/// Since when the node has its role.
pub(crate) struct RoleSince(Mutex<(ServerState, u64)>);

impl RoleSince {
    pub(crate) fn new() -> Self {
        RoleSince(Mutex::new((ServerState::Learner, host::unix_now_ms())))
    }

    /// Since when it has this role, which it has now, in milliseconds since 1970 by the wall clock.
    /// The first look at a new role comes as soon as openraft tells of it (`start.rs`).
    pub(crate) fn since_unix_ms(&self, role: ServerState) -> u64 {
        let mut known = self.0.lock();
        if known.0 != role {
            *known = (role, host::unix_now_ms());
        }
        known.1
    }
}

/// A running node. Clones are the same node.
#[derive(Clone)]
pub struct Node {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) id: NodeId,
    pub(crate) raft: Raft<Types, Machine>,
    pub(crate) ledger: SharedLedger,
    pub(crate) store: Store,
    pub(crate) commits: Arc<CommitNumbers>,
    pub(crate) image: KeptImage,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) standing: watch::Receiver<Standing>,
    pub(crate) last_look: Arc<LastLook>,
    pub(crate) role: Arc<RoleSince>,
    /// When openraft had read what it knew before this start.
    pub(crate) begun: InstantOf<Types>,
    pub(crate) tasks: Vec<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Why a node cannot go on. The server above ends the process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WhyFailed {
    /// Its ledger is not the leader's. It would come to the same after a restart.
    Differs(Difference),
    /// openraft says why.
    Raft(String),
}

impl fmt::Display for WhyFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyFailed::Differs(difference) => difference.fmt(f),
            WhyFailed::Raft(why) => f.write_str(why),
        }
    }
}

/// Why a reign did not begin.
#[derive(Debug)]
pub struct NotLeader;

impl Node {
    /// Its id.
    pub fn id(&self) -> NodeId {
        self.inner.id
    }

    /// The replicated log, for a simulation to look at.
    #[cfg(feature = "simulation")]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// What openraft says of itself, for a simulation to look at.
    #[cfg(feature = "simulation")]
    pub fn raft_metrics(&self) -> openraft::RaftMetrics<Types> {
        self.inner.raft.metrics().borrow_watched().clone()
    }

    /// Who leads, and changes of that.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.leadership.clone()
    }

    /// The ledger.
    pub fn ledger(&self) -> &SharedLedger {
        &self.inner.ledger
    }

    /// The log on this node's disk.
    pub fn wal(&self) -> &Arc<wal::Wal> {
        self.inner.store.wal()
    }

    /// Whether this node still leads as it did.
    pub fn leads(&self, leader: &LeaderId) -> bool {
        leads(&self.inner.raft, leader)
    }

    /// Begins a reign: proposes its marker, and returns its index when this node's ledger has
    /// applied it. The first leader of a cluster also writes down its birth.
    pub async fn begin_reign(&self, leader: LeaderId) -> Result<u64, NotLeader> {
        let birth = Item::Born(Birth {
            cluster_id: u128::from(random_u64()) << 64 | u128::from(random_u64()),
            session_key: random_key(),
            birth_unix_ms: host::unix_now_ms(),
        });
        loop {
            let is_born = self.inner.ledger.known().cluster_id != 0;
            if is_born {
                break;
            }
            self.write(leader, &birth).await?;
        }
        let node = self.inner.id;
        self.write(leader, &Item::Reign { node }).await
    }

    /// Writes until it is applied; the index of the entry.
    pub(crate) async fn write(&self, leader: LeaderId, item: &Item) -> Result<u64, NotLeader> {
        let raft = &self.inner.raft;
        loop {
            let (responder, answer) = openraft::impls::ProgressResponder::complete_only();
            let write = raft.write(item.encode()).with_leader(leader);
            if write.responder(responder).await.is_err() {
                return Err(NotLeader);
            }
            if let Ok(Ok(response)) = answer.await {
                return Ok(response.log_id.index());
            }
            if !leads(raft, &leader) {
                return Err(NotLeader);
            }
            tokio::time::sleep(MARKER_AGAIN).await;
        }
    }

    /// Has what the reign's cores append proposed, until the reign ends. `None`: another reign has
    /// begun already. The ledger must be held since its engine was built from it.
    pub fn reign(
        &self,
        state: &mut LedgerState,
        index: u64,
        leader: LeaderId,
        on_settled: OnSettled,
        stamp: Stamp,
        runtime: &tokio::runtime::Handle,
    ) -> Option<Arc<Reign>> {
        let commits = self.inner.commits.clone();
        let reign = Reign::new(index, on_settled, stamp, commits);
        if !state.begin_own(reign.clone()) {
            return None;
        }
        let proposing = reign.clone().propose_all(self.inner.raft.clone(), leader);
        runtime.spawn(proposing);
        let ending = reign.clone();
        let mut leadership = self.leadership();
        runtime.spawn(async move {
            let lost = leadership.wait_for(|leadership| leadership.own != Some(leader));
            tokio::select! {
                _ = lost => ending.end("this node does not lead any more"),
                _ = ending.ended() => {}
            }
        });
        Some(reign)
    }

    /// Waits until openraft cannot go on, and says why: the disk failed, or an entry cannot be
    /// applied.
    pub async fn failed(&self) -> WhyFailed {
        let mut metrics = self.inner.raft.server_metrics();
        while metrics.changed().await.is_ok() {}
        if let Some(difference) = self.ledger().numbers().difference() {
            return WhyFailed::Differs(difference);
        }
        WhyFailed::Raft(
            match &self.inner.raft.metrics().borrow_watched().running_state {
                Err(fatal) => fatal.to_string(),
                Ok(()) => "openraft has ended".to_owned(),
            },
        )
    }

    /// Stops taking part.
    pub async fn stop(&self) {
        let _ = self.inner.raft.shutdown().await;
        self.inner.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Node {
    /// Batches that counted for nothing, and other numbers.
    pub fn applied_index(&self) -> u64 {
        let numbers = self.inner.ledger.numbers();
        numbers.applied_index.load(Ordering::Relaxed)
    }
}
