//! What must be true, looked at after every step.
//!
//! | check                                                     | where            |
//! |-----------------------------------------------------------|------------------|
//! | Raft's own rules                                          | `raft.rs`        |
//! | one process leads under a leader id                       | `look_at`        |
//! | an id of an entry names one entry, committed or not       | `look_at`        |
//! | all nodes apply the same entries, and stay with them      | `look_at`        |
//! | equal hashes of ledgers at equal entries                  | `look_at`        |
//! | a ledger is the sum of the log, as `Sum` adds it up       | `look_at`        |
//! | what is told is in the log, and was true when it was told | `told`           |
//! | no fence is issued twice, not even untold; they rise      | `issued`, `Sum`  |
//! | no lock is granted while an acknowledged lease lasts      | `believed`       |
//! | a reign's clock is not ahead of the clock that promised   | `check_clock`    |
//!
//! A leader id is a term and a node: openraft, as it is set here, may have a second leader in a
//! term, of a higher number.

use crate::chance::drifted_us;
use crate::client::{Belief, Client};
use crate::raft::{Log, Rules, Seen};
use crate::request::{Ask, Reply, Request, Told};
use crate::sum::Sum;
use cluster::node::Node;
use cluster::types::{Entry, LogId, NodeId, Payload};
use openraft::ServerState;
use openraft::storage::{RaftLogReader, RaftLogStorage};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// A node's clock and true time are read in steps of a millisecond, by both sides.
const CLOCK_SLACK_MS: u64 = 3;

/// What happened in a run.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Numbers {
    pub grants: u64,
    pub reigns: u64,
    pub crashes: u64,
    pub ignored: u64,
    pub images: u64,
    /// Grants that the log has behind their ends, or behind later grants of their keys.
    pub overtaken: u64,
}

#[derive(Default)]
pub(crate) struct Checks {
    pub now_us: u64,
    pub numbers: Numbers,
    pub last_grant_us: u64,
    /// A number that two runs of one seed have in common.
    pub digest: u64,
    is_traced: bool,
    broken: Option<String>,
    drifts_ppm: BTreeMap<NodeId, i64>,
    /// How often each node has started.
    lives: BTreeMap<NodeId, u64>,
    /// Which life of the node led under this term and node.
    leaders: BTreeMap<(u64, NodeId), u64>,
    /// All entries that were seen in any log.
    known: BTreeMap<LogId, u64>,
    /// Entries that a node has applied.
    log: BTreeMap<u64, (LogId, u64)>,
    hashes: BTreeMap<u64, u64>,
    applied: BTreeMap<NodeId, u64>,
    raft: Rules,
    sum: Sum,
    issued: BTreeMap<u64, (u8, u64, u64)>,
    reigns: BTreeMap<u64, ReignBegin>,
    /// Those whose clocks were not looked at yet.
    unchecked: Vec<u64>,
    /// When a client heard that it has released this fence.
    released_us: BTreeMap<u64, u64>,
    /// When a client began to believe that it has this fence.
    believed_us: BTreeMap<u64, u64>,
}

#[derive(Clone, Copy)]
struct ReignBegin {
    node: NodeId,
    begin_ms: u64,
    at_us: u64,
}

impl Checks {
    pub(crate) fn new(drifts_ppm: BTreeMap<NodeId, i64>, is_traced: bool) -> Checks {
        Checks {
            raft: Rules::new(drifts_ppm.len()),
            drifts_ppm,
            is_traced,
            ..Checks::default()
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// What is broken, if anything.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// The first one counts.
    pub(crate) fn violate(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.note(|| format!("BROKEN: {what}"));
        self.broken.get_or_insert(what);
    }

    /// Something that both runs of a seed must have.
    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        let what = what();
        for byte in what.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.digest ^= self.now_us;
        if self.is_traced {
            println!("{:>8} ms  {what}", self.now_us / 1_000);
        }
    }

    pub(crate) fn node_started(&mut self, node: NodeId) {
        self.applied.remove(&node);
        self.raft.node_started(node);
        *self.lives.entry(node).or_default() += 1;
    }

    /// A reign's office opens with this clock.
    pub(crate) fn reign_begins(&mut self, node: NodeId, index: u64, begin_ms: u64) {
        let at_us = self.now_us;
        self.note(|| format!("node {node} begins reign {index}, its clock shows {begin_ms}"));
        let begin = ReignBegin {
            node,
            begin_ms,
            at_us,
        };
        self.reigns.insert(index, begin);
        self.numbers.reigns += 1;
        self.unchecked.push(index);
    }

    /// The clock of a reign that has begun, against the log before its marker.
    fn check_clock(&mut self, index: u64) {
        let Some(&(promised, stamp_ms)) = self.sum.markers.get(&index) else {
            return self.violate(format!(
                "reign {index} begins before its marker is committed"
            ));
        };
        let ReignBegin {
            begin_ms, at_us, ..
        } = self.reigns[&index];
        if begin_ms < stamp_ms {
            self.violate(format!(
                "the clock of reign {index} begins at {begin_ms}, behind the stamp {stamp_ms}"
            ));
        }
        let Some(promised) = promised else {
            return;
        };
        let before = self.reigns[&promised];
        let elapsed_us = drifted_us(at_us - before.at_us, self.drifts_ppm[&before.node]);
        let clock_ms = before.begin_ms + elapsed_us / 1_000 + CLOCK_SLACK_MS;
        if begin_ms > clock_ms {
            self.violate(format!(
                "the clock of reign {index} begins at {begin_ms}, and that of reign {promised}, which promised, is \
                 at {clock_ms}"
            ));
        }
    }

    /// A fence is granted, and may never be told.
    pub(crate) fn issued(&mut self, fence: u64, key: u8, request: &Request) {
        let to = (key, request.client, request.id);
        if let Some(before) = self.issued.insert(fence, to) {
            self.violate(format!(
                "fence {fence} is issued to {before:?} and to {to:?}"
            ));
        }
    }

    /// A grant whose record comes late, unless it is in the log already.
    pub(crate) fn is_late(&mut self, fence: u64) -> bool {
        !self.sum.granted.contains_key(&fence) && self.sum.late.insert(fence)
    }

    /// Looks at a node after its step.
    pub(crate) fn look_at(&mut self, node: &Node) {
        let id = node.id();
        if let Some(own) = node.leadership().borrow().own {
            let life = self.lives[&id];
            let first = *self.leaders.entry((own.term, own.node_id)).or_insert(life);
            if first != life || own.node_id != id {
                self.violate(format!(
                    "node {id} leads in its life {life} as {own}, which led before"
                ));
            }
        }
        let applied = node.applied_index();
        let mut store = node.store().clone();
        let tail = now(store.try_get_log_entries(applied..));
        let tail = tail.expect("entries are in memory");
        self.follow_each_other(&tail);
        for entry in tail.iter().filter(|entry| entry.log_id.index() > applied) {
            self.entry_known(id, entry);
        }
        self.look_at_raft(node);
        let before = self.applied.insert(id, applied).unwrap_or(0);
        if applied == before || applied == 0 {
            return;
        }
        self.look_at_log(node, before, applied);
        for index in std::mem::take(&mut self.unchecked) {
            self.check_clock(index);
        }
    }

    fn follow_each_other(&mut self, entries: &[Entry]) {
        let mut before = None;
        for entry in entries {
            let is_membership = matches!(entry.payload, Payload::Membership(_));
            let followed = self.raft.entry(entry.log_id, before, is_membership);
            self.expect(followed);
            before = Some(entry.log_id);
        }
    }

    fn look_at_raft(&mut self, node: &Node) {
        let mut store = node.store().clone();
        let metrics = node.raft_metrics();
        let state = now(store.get_log_state()).expect("it is in memory");
        let vote = now(store.read_vote()).expect("it is in memory");
        // While a later vote is written, openraft has not said yet that it gives way.
        let is_own = vote.is_some_and(|vote| vote.committed && vote.leader_id.node_id == node.id());
        let seen = Seen {
            log: Log {
                vote,
                last: state.last_log_id,
            },
            purged: state.last_purged_log_id,
            leads: is_own && metrics.state == ServerState::Leader,
            committed: metrics.local_committed,
            applied: metrics.last_applied,
            snapshot: metrics.snapshot,
            membership: *metrics.membership_config.log_id(),
            appended: node.wal().barrier().get(),
            synced: node.wal().synced().get(),
        };
        let ids = |from: u64, to: u64| -> Vec<LogId> {
            let mut store = node.store().clone();
            let entries = now(store.try_get_log_entries(from..=to)).expect("they are in memory");
            entries.iter().map(|entry| entry.log_id).collect()
        };
        let looked = self.raft.look(node.id(), &seen, ids);
        self.expect(looked);
    }

    fn expect(&mut self, looked: Result<(), String>) {
        if let Err(what) = looked {
            self.violate(what);
        }
    }

    fn look_at_log(&mut self, node: &Node, before: u64, applied: u64) {
        let id = node.id();
        let mut store = node.store().clone();
        let entries = now(store.try_get_log_entries(before..=applied));
        let entries = entries.expect("entries are in memory");
        let is_image = entries
            .first()
            .is_none_or(|first| first.log_id.index() > before + 1);
        self.numbers.images += u64::from(is_image && before > 0);
        self.follow_each_other(&entries);
        for entry in &entries {
            self.entry_applied(id, entry);
        }
        self.compare(node, applied);
    }

    fn entry_known(&mut self, node: NodeId, entry: &Entry) -> u64 {
        let digest = digest(entry);
        let first = *self.known.entry(entry.log_id).or_insert(digest);
        if first != digest {
            let log_id = entry.log_id;
            self.violate(format!(
                "node {node} has another entry {log_id} than other nodes"
            ));
        }
        digest
    }

    fn entry_applied(&mut self, node: NodeId, entry: &Entry) {
        let index = entry.log_id.index();
        let digest = self.entry_known(node, entry);
        let found = (entry.log_id, digest);
        let first = *self.log.entry(index).or_insert(found);
        if first != found {
            self.violate(format!(
                "node {node} has applied {} where another node has applied {}",
                entry.log_id, first.0
            ));
        }
        if index == self.sum.index + 1 || self.sum.index == 0 && index == 0 {
            let ignored = self.sum.add(entry);
            self.numbers.ignored += u64::from(ignored.is_some_and(|ignored| ignored));
            self.numbers.overtaken = self.sum.overtaken;
            if ignored.is_none() {
                self.violate(format!("entry {index} breaks a rule of fences"));
            }
        }
    }

    /// The ledger of a node against those of others, and against the sum.
    fn compare(&mut self, node: &Node, applied: u64) {
        let id = node.id();
        let mut state = node.ledger().hold_blocking();
        match state.whole_hash() {
            Some(hash) => {
                let first = *self.hashes.entry(applied).or_insert(hash);
                if first != hash {
                    self.violate(format!(
                        "at entry {applied} the ledger of node {id} has the hash {hash:x}, another's {first:x}"
                    ));
                }
            }
            None => return,
        }
        if applied != self.sum.index {
            return;
        }
        let reign = state.reign.map(|(reign, _)| reign);
        if (reign, state.seq()) != (self.sum.reign, self.sum.seq) {
            let found = (reign, state.seq());
            let right = (self.sum.reign, self.sum.seq);
            return self.violate(format!(
                "at entry {applied} the ledger of node {id} is at {found:?}, the log at {right:?}"
            ));
        }
        state.ledger.settle();
        let held: BTreeMap<Vec<u8>, (u64, u64)> = state
            .ledger
            .parts()
            .iter()
            .flat_map(wal::Leases::iter)
            .map(|lease| (lease.key.to_vec(), (lease.fence, lease.until_unix_ms)))
            .collect();
        let mut wrong = None;
        for (key, hold) in &self.sum.holds {
            let found = held.get(key).copied();
            let right = (hold.fence, hold.until_ms);
            let must_be = !hold.is_released && hold.until_ms > self.sum.clock_ms;
            let may_be = !hold.is_released && found == Some(right);
            if !may_be && (must_be || found.is_some()) {
                wrong = Some((key.clone(), found, *hold));
            }
        }
        if let Some((key, found, hold)) = wrong {
            self.violate(format!(
                "at entry {applied} the ledger of node {id} has {found:?} for {key:?}, the log says {hold:?}"
            ));
        }
    }

    /// An office tells this to a client, whether or not it arrives.
    pub(crate) fn told(&mut self, reply: &Reply, clients: &[Client]) {
        let (told, request) = (reply.told, reply.request);
        self.note(|| format!("node {} tells {told:?} to {request:?}", reply.node));
        let in_log = |fence: u64| self.sum.granted.get(&fence).map(|(_, until_ms)| *until_ms);
        let is_true = match told {
            Told::Granted {
                fence, until_ms, ..
            }
            | Told::Renewed {
                fence, until_ms, ..
            } => in_log(fence).is_some_and(|until| until >= until_ms),
            Told::Refused { fence, .. }
            | Told::Seen {
                fence: Some(fence), ..
            } => in_log(fence).is_some() || self.sum.late.contains(&fence),
            Told::Released { key, fence } => {
                let hold = self.sum.holds.get(&vec![key]);
                hold.is_none_or(|hold| {
                    hold.fence != fence || hold.is_released || hold.until_ms <= self.sum.clock_ms
                })
            }
            _ => true,
        };
        if !is_true {
            return self.violate(format!(
                "{told:?} was told to {request:?} and is not in the log"
            ));
        }
        match told {
            Told::Granted { .. } => {
                self.numbers.grants += 1;
                self.last_grant_us = self.now_us;
            }
            Told::Refused { fence, .. } => {
                if self.issued.get(&fence) == Some(&(key_of(&request), request.client, request.id))
                {
                    self.violate(format!("{request:?} was refused because of its own grant"));
                }
                self.seen(fence, &request);
            }
            Told::Seen { key, fence } => {
                if let Some(fence) = fence {
                    self.seen(fence, &request);
                }
                let believer = clients
                    .iter()
                    .filter_map(|client| client.believes(key, self.now_us))
                    .find(|belief| self.believed_us[&belief.fence] < request.sent_us);
                if let Some(belief) = believer
                    && fence.is_none_or(|fence| fence < belief.fence)
                {
                    self.violate(format!(
                        "{request:?} was told {told:?}, though fence {} was acknowledged before",
                        belief.fence
                    ));
                }
            }
            _ => {}
        }
    }

    /// A request was told that this fence holds its key.
    fn seen(&mut self, fence: u64, request: &Request) {
        if let Some(released_us) = self.released_us.get(&fence)
            && request.sent_us > *released_us
        {
            self.violate(format!(
                "{request:?} was told of fence {fence}, which was released before it was sent"
            ));
        }
    }

    /// A client hears an answer.
    pub(crate) fn heard(&mut self, reply: &Reply) {
        if let (Told::Released { fence, .. }, Ask::Release { .. }) = (reply.told, reply.request.ask)
        {
            self.released_us.entry(fence).or_insert(self.now_us);
        }
    }

    /// A client begins to believe that it holds a lock.
    pub(crate) fn believed(&mut self, belief: &Belief, client: &Client, clients: &[Client]) {
        let now_us = self.now_us;
        self.believed_us.entry(belief.fence).or_insert(now_us);
        for other in clients.iter().filter(|other| other.id != client.id) {
            if let Some(held) = other.believes(belief.key, now_us) {
                self.violate(format!(
                    "clients {} and {} both hold key {}: fences {} and {}",
                    other.id, client.id, belief.key, held.fence, belief.fence
                ));
            }
        }
    }
}

fn key_of(request: &Request) -> u8 {
    match request.ask {
        Ask::Open => 0,
        Ask::Acquire { key, .. }
        | Ask::Renew { key, .. }
        | Ask::Release { key, .. }
        | Ask::Look { key } => key,
    }
}

fn digest(entry: &Entry) -> u64 {
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            digest = (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    match &entry.payload {
        Payload::Blank => add(b"blank"),
        Payload::Normal(command) => add(&command.0),
        Payload::Membership(membership) => add(membership.to_string().as_bytes()),
    }
    digest
}

/// What a future that waits for nothing comes to.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("entries are read from memory"),
    }
}
