//! The journal of one leadership: what the cores append becomes entries, and a ticket is settled
//! when its entry is committed and counts in this node's own ledger.
//!
//! ```text
//! cores --append_batch--> pending --proposer--> entries under way --openraft--> ledger --settle-->
//! cores
//! ```
//!
//! A batch carries what all cores have appended meanwhile, up to [`BATCH_BYTES`]; at most
//! [`WINDOW`] are under way, and beside others only one of at least [`COMPANION_BYTES`]: what a
//! commit costs the nodes hardly depends on what it carries. A batch without records is proposed
//! too: a core that only looked, and tells what it saw, waits for an entry that was proposed after
//! its look. Only then is it certain that no other leader had taken over by then. So one rule is
//! both output commit and read barrier.
//!
//! openraft may refuse a write (no majority was heard from for a while) though the leadership goes
//! on. Then everything that is not settled is proposed again, in order and under the same numbers;
//! by the rule of the log what comes twice, or behind a gap, does nothing.

use crate::entry::{BATCH_BYTES, Item, begin_batch};
use crate::host;
use crate::simulation::{Mistake, planted, refuses};
use crate::types::{Command, LeaderId, Types};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use openraft::Raft;
use openraft::impls::ProgressResponder;
use openraft::storage::RaftStateMachine;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use wal::{Batch, QUEUE_BYTES_MAX, Ticket};

/// Entries under way. More would only wait for each other: a commit takes the same time for a
/// small and for a large one.
const WINDOW: usize = 4;

/// A batch of fewer bytes waits until no other is under way.
pub const COMPANION_BYTES: usize = 16 << 10;

/// A reign in which nothing is settled for so long, though something is under way, is over.
const STALLED_MAX: Duration = Duration::from_secs(2);

/// How long the proposer waits before it proposes again what was refused.
const AGAIN_AFTER: Duration = Duration::from_millis(5);

/// How often the planted mistake proposes what is left over.
const HAUNTS: u32 = 1_000;

/// Buckets of how long commits take: up to half a minute, by powers of two of microseconds.
pub const COMMIT_BUCKETS: usize = 26;

/// Hears what is settled, on openraft's thread.
pub type OnSettled = Box<dyn Fn(Ticket) + Send + Sync>;

/// The cluster's clock, as the leader keeps it.
pub type Stamp = Box<dyn Fn() -> u64 + Send + Sync>;

/// One leadership of this node.
pub struct Reign {
    index: u64,
    pending: Mutex<Pending>,
    waiting_bytes: AtomicUsize,
    issued: AtomicU64,
    settled: AtomicU64,
    /// Entries that are under way, by their numbers.
    under_way: Mutex<VecDeque<UnderWay>>,
    wake: Notify,
    over: OnceLock<&'static str>,
    is_over: Notify,
    on_settled: OnSettled,
    stamp: Stamp,
    news: Mutex<()>,
    heard: Condvar,
    /// What its commits cost, added to those of this node's earlier reigns.
    commits: Arc<CommitNumbers>,
}

/// What the commits of this node's reigns cost, since the node started.
#[derive(Default)]
pub struct CommitNumbers {
    /// How long they took, by powers of two of microseconds.
    pub us: types::Histogram<COMMIT_BUCKETS>,
    /// Bytes of entries.
    pub bytes: AtomicU64,
    /// Entries.
    pub entries: AtomicU64,
}

#[derive(Default)]
struct Pending {
    batches: VecDeque<(Ticket, Batch)>,
    /// Their bytes.
    bytes: usize,
    /// Entries under way.
    under_way: usize,
    checks: Vec<(u64, u64)>,
    /// No more is taken.
    is_closed: bool,
}

impl Pending {
    /// Whether another entry may leave now.
    fn may_propose(&self) -> bool {
        match self.under_way {
            0 => true,
            count => count < WINDOW && self.bytes >= companion_bytes(),
        }
    }
}

fn companion_bytes() -> usize {
    #[cfg(feature = "simulation")]
    if let Some(settings) = crate::simulation::settings() {
        return settings.companion_bytes;
    }
    COMPANION_BYTES
}

struct UnderWay {
    seq: u64,
    ticket: Ticket,
    command: Bytes,
    since: Instant,
}

impl Reign {
    /// The reign whose marker has this index.
    pub fn new(
        index: u64,
        on_settled: OnSettled,
        stamp: Stamp,
        commits: Arc<CommitNumbers>,
    ) -> Arc<Reign> {
        Arc::new(Reign {
            index,
            pending: Mutex::default(),
            waiting_bytes: AtomicUsize::new(0),
            issued: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            under_way: Mutex::default(),
            wake: Notify::new(),
            over: OnceLock::new(),
            is_over: Notify::new(),
            on_settled,
            stamp,
            news: Mutex::new(()),
            heard: Condvar::new(),
            commits,
        })
    }

    /// The index of its marker.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Appends what a core's turn has recorded, which may be nothing. Never waits, never refuses.
    /// When the reign is over, the ticket never comes up.
    pub fn append_batch(&self, batch: Batch) -> Ticket {
        let bytes = batch.bytes();
        let mut pending = self.pending.lock();
        // Under the mutex, so tickets are in the order of the queue.
        let ticket = Ticket::from_bits(self.issued.load(Ordering::Relaxed) + 1);
        self.issued.store(ticket.get(), Ordering::Relaxed);
        if pending.is_closed {
            return ticket;
        }
        pending.batches.push_back((ticket, batch));
        pending.bytes += bytes;
        // Otherwise the proposer looks again when something under way is settled.
        let may_propose = pending.may_propose();
        // Before the proposer can take the batch, and subtract its bytes.
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        drop(pending);
        if may_propose {
            self.wake.notify_one();
        }
        ticket
    }

    /// The last ticket that was given out.
    pub fn issued(&self) -> Ticket {
        Ticket::from_bits(self.issued.load(Ordering::Relaxed))
    }

    /// Everything up to this ticket is committed, and counts.
    pub fn settled(&self) -> Ticket {
        // Acquire, paired with `settle`.
        Ticket::from_bits(self.settled.load(Ordering::Acquire))
    }

    /// Whether more waits than should: callers read no further requests until less does.
    pub fn is_congested(&self) -> bool {
        self.waiting_bytes.load(Ordering::Relaxed) > QUEUE_BYTES_MAX
    }

    /// Blocks until everything up to `ticket` is settled; `Err` says why it never will be.
    pub fn wait(&self, ticket: Ticket) -> Result<(), &'static str> {
        let mut news = self.news.lock();
        loop {
            if self.settled() >= ticket {
                return Ok(());
            }
            if let Some(why) = self.over.get() {
                return Err(why);
            }
            self.heard.wait(&mut news);
        }
    }

    /// Ends the reign. The first to say so decides why.
    pub fn end(&self, why: &'static str) {
        if self.over.set(why).is_ok() {
            let mut pending = self.pending.lock();
            pending.is_closed = true;
            pending.batches.clear();
            pending.bytes = 0;
        }
        self.announce();
        self.wake.notify_one();
        self.is_over.notify_waiters();
    }

    /// Why it is over, if it is.
    pub fn why_over(&self) -> Option<&'static str> {
        self.over.get().copied()
    }

    /// Waits for its end.
    pub async fn ended(&self) -> &'static str {
        loop {
            let ended = self.is_over.notified();
            if let Some(why) = self.why_over() {
                return why;
            }
            ended.await;
        }
    }

    /// The batch with this number is committed, and the ledger counts it.
    pub(crate) fn settle(&self, seq: u64) {
        let now = host::now();
        let mut under_way = self.under_way.lock();
        let mut settled = None;
        let mut count = 0;
        while let Some(first) = under_way.front()
            && first.seq <= seq
        {
            let first = under_way.pop_front().expect("it is the front");
            settled = Some(first.ticket);
            count += 1;
            self.commits
                .us
                .record((now - first.since).as_micros() as u64);
        }
        drop(under_way);
        self.pending.lock().under_way -= count;
        if let Some(ticket) = settled {
            // Release, paired with `settled`.
            self.settled.store(ticket.get(), Ordering::Release);
            self.announce();
            (self.on_settled)(ticket);
        }
    }

    /// The ledger's hash at this entry is to be compared by all nodes.
    pub(crate) fn propose_check(&self, index: u64, hash: u64) {
        self.pending.lock().checks.push((index, hash));
        self.wake.notify_one();
    }

    fn announce(&self) {
        // The mutex is taken so that no thread is between looking and waiting.
        drop(self.news.lock());
        self.heard.notify_all();
    }

    /// Takes what is pending as the next entry, which is under way then. `None`: nothing is, or it
    /// has to wait.
    fn gather(&self, seq: u64) -> Option<Bytes> {
        let mut pending = self.pending.lock();
        if !pending.may_propose() {
            return None;
        }
        let mut bytes = 0;
        let mut count = 0_usize;
        for (_, batch) in &pending.batches {
            bytes += batch.bytes();
            count += 1;
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        let ticket = pending.batches.get(count.checked_sub(1)?)?.0;
        let taken: Vec<_> = pending.batches.drain(..count).collect();
        pending.bytes -= bytes;
        pending.under_way += 1;
        drop(pending);
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        // After the last turn that it carries has appended: an end that turn knew of is not behind
        // the stamp.
        let mut command = begin_batch(self.index, seq, (self.stamp)(), bytes);
        for (_, batch) in &taken {
            command.extend_from_slice(batch.as_bytes());
        }
        self.commits
            .bytes
            .fetch_add(command.len() as u64, Ordering::Relaxed);
        self.commits.entries.fetch_add(1, Ordering::Relaxed);
        let command = command.freeze();
        self.under_way.lock().push_back(UnderWay {
            seq,
            ticket,
            command: command.clone(),
            since: host::now(),
        });
        Some(command)
    }

    /// Proposes what is appended, until the reign is over. On openraft's runtime.
    pub async fn propose_all<SM>(self: Arc<Self>, raft: Raft<Types, SM>, leader: LeaderId)
    where
        SM: RaftStateMachine<Types>,
    {
        self.propose_until_over(&raft, leader).await;
        if planted(Mistake::StaleReignCounted) {
            self.haunt(&raft).await;
        }
    }

    /// Only for the planted mistake: proposes what is left over, whoever leads. Otherwise
    /// openraft's own condition would keep batches of an old reign out of the log, and the rule of
    /// the log would never be needed.
    async fn haunt<SM>(&self, raft: &Raft<Types, SM>)
    where
        SM: RaftStateMachine<Types>,
    {
        for _ in 0..HAUNTS {
            tokio::time::sleep(AGAIN_AFTER).await;
            let left: Vec<Bytes> = {
                let under_way = self.under_way.lock();
                let commands = under_way.iter().map(|entry| entry.command.clone());
                commands.collect()
            };
            for command in left {
                let (responder, _answer) = ProgressResponder::complete_only();
                drop(raft.write(Command(command)).responder(responder).await);
            }
        }
    }

    async fn propose_until_over<SM>(&self, raft: &Raft<Types, SM>, leader: LeaderId)
    where
        SM: RaftStateMachine<Types>,
    {
        let mut next_seq = 1;
        let mut answers = FuturesOrdered::new();
        let mut must_repeat = false;
        while self.why_over().is_none() {
            if must_repeat && answers.is_empty() {
                tokio::time::sleep(AGAIN_AFTER).await;
                if !leads(raft, &leader) {
                    return self.end("this node does not lead any more");
                }
                let again: Vec<Bytes> = {
                    let under_way = self.under_way.lock();
                    let commands = under_way.iter().map(|entry| entry.command.clone());
                    commands.collect()
                };
                must_repeat = false;
                for command in again {
                    answers.push_back(self.write(raft, leader, command).await);
                }
            }
            let is_stalled = || {
                let under_way = self.under_way.lock();
                let first = under_way.front();
                first.is_some_and(|first| host::now() - first.since >= STALLED_MAX)
            };
            if is_stalled() {
                return self.end("no majority has confirmed anything for two seconds");
            }
            let checks = std::mem::take(&mut self.pending.lock().checks);
            for (index, hash) in checks {
                let command = Item::Checked { index, hash }.encode().0;
                // If it is refused, the next one will do.
                drop(self.write(raft, leader, command).await);
            }
            while !must_repeat && let Some(command) = self.gather(next_seq) {
                next_seq += 1;
                answers.push_back(self.write(raft, leader, command).await);
            }
            tokio::select! {
                biased;
                Some(counts) = answers.next(), if !answers.is_empty() => must_repeat |= !counts,
                () = self.wake.notified() => {}
                () = tokio::time::sleep(STALLED_MAX / 4) => {}
            }
        }
    }

    /// Hands an entry to openraft. The future says whether it counts.
    async fn write<SM>(
        &self,
        raft: &Raft<Types, SM>,
        leader: LeaderId,
        command: Bytes,
    ) -> impl Future<Output = bool> + use<SM>
    where
        SM: RaftStateMachine<Types>,
    {
        let (responder, answer) = ProgressResponder::complete_only();
        let is_sent = !refuses() && {
            let write = raft.write(Command(command));
            let sent = write.with_leader(leader).responder(responder).await;
            sent.is_ok()
        };
        async move {
            if !is_sent {
                return false;
            }
            match answer.await {
                Ok(Ok(response)) => response.data.counts,
                Ok(Err(_)) | Err(_) => false,
            }
        }
    }
}

/// Whether this node still leads as it did.
pub(crate) fn leads<SM>(raft: &Raft<Types, SM>, leader: &LeaderId) -> bool
where
    SM: RaftStateMachine<Types>,
{
    raft.as_leader()
        .is_ok_and(|current| current.leader_id() == leader)
}
