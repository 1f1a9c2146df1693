//! The ledger of what is held, which every node keeps. It applies what is committed, by the rule of
//! the log (`entry.rs`), and nothing else changes it. openraft sees it as its state machine
//! (`ledger/machine.rs`); what it sends and keeps of it is an image (`ledger/image.rs`).
//!
//! The ledger is behind a mutex that may be held for long: a node that begins to reign restores its
//! engine from it. Applying waits for that without holding up openraft's other tasks.

mod image;
mod machine;

use crate::clock::ClusterClock;
use crate::entry::{BatchItem, Birth, Format, Item};
use crate::host;
use crate::propose::Reign;
use crate::simulation::{Mistake, planted};
use crate::types::{Applied, Entry, LogId, NodeId, Payload, SnapshotMeta, StoredMembership};
use parking_lot::Mutex as SyncMutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use std::{fmt, io};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

pub use crate::peer::Image;
pub(crate) use image::chunks_of;
pub use machine::Machine;

/// After so many entries the nodes compare their ledgers. The same on all nodes of a cluster.
static CHECK_EVERY: AtomicU64 = AtomicU64::new(4_096);

/// Has the nodes of this process compare their ledgers after so many entries, instead of 4,096. For
/// tests, which set it before any node starts: nodes that differ in this compare nothing.
#[doc(hidden)]
pub fn compare_every(entries: u64) {
    CHECK_EVERY.store(entries.max(1), Ordering::Relaxed);
}

/// Whether the hashes of this process are made to differ from those of other nodes.
static DIFFERS: AtomicBool = AtomicBool::new(false);

/// Has the ledgers of this process's nodes differ from those of other nodes, as far as hashes tell.
/// For tests, which set it before any node starts.
#[doc(hidden)]
pub fn let_hashes_differ() {
    DIFFERS.store(true, Ordering::Relaxed);
}

/// So many parts of the ledger are cleared out each time that turns have ended.
const CLEAR_OUT_PARTS: usize = 16;

/// So many hashes are kept until the leader's comes.
const CHECKS_KEPT: usize = 64;

/// What a node has applied.
#[derive(Default)]
pub struct LedgerState {
    /// What is held.
    pub ledger: wal::Ledger,
    /// The last entry that was applied.
    pub applied: Option<LogId>,
    /// The latest membership that was applied.
    pub membership: StoredMembership,
    /// What the cluster began with.
    pub birth: Option<Birth>,
    /// The disks of nodes.
    pub disks: BTreeMap<NodeId, u64>,
    /// Which entries may stand in the log.
    pub format: Format,
    /// The index of the latest marker, and whose reign it began.
    pub reign: Option<(u64, NodeId)>,
    /// The last batch of that reign.
    seq: u64,
    /// What is known of the cluster's clock.
    pub clock: ClusterClock,
    /// Hashes of this ledger at some entries.
    checks: VecDeque<(u64, u64)>,
    /// An image shows effects of entries up to this one; before it no hash can be compared.
    shows: u64,
    /// The reign of this node, while it has one.
    own: Option<Arc<Reign>>,
}

/// The ledger as several tasks share it.
#[derive(Clone)]
pub struct SharedLedger {
    state: Arc<Mutex<LedgerState>>,
    numbers: Arc<Numbers>,
}

/// What is known of the ledger without waiting for it.
#[derive(Default)]
pub struct Numbers {
    /// The last entry that was applied; 0 also if there was none.
    pub applied_index: AtomicU64,
    /// Batches that the rule of the log ignored.
    pub ignored: AtomicU64,
    /// Reigns of any node that began behind `found`.
    pub reigns: AtomicU64,
    /// The last entry of the log that this node found when it started, committed or not. Those that
    /// it applies up to there are of the past.
    found: Option<LogId>,
    /// The latest hash of the leader that this node's did not contradict, behind its entry.
    checked: SyncMutex<(u64, u64)>,
    /// Keys in the ledger, and the cluster's clock, when they were last looked at.
    looked_at: SyncMutex<(u64, u64)>,
    /// What decides about peers.
    known: SyncMutex<Known>,
    reads: Reads,
    /// The first difference from the leader's ledger. The node stops there.
    difference: OnceLock<Difference>,
    /// The index of the latest marker, and whose reign it began.
    reign: watch::Sender<Option<(u64, NodeId)>>,
}

/// A node's ledger is another one than the leader's, although both have applied the same entries.
/// One of them has a fault, and the node cannot know that it is the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The entry behind which they were compared.
    pub index: u64,
    /// This node's hash.
    pub own_hash: u64,
    /// The leader's.
    pub leader_hash: u64,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference {
            index,
            own_hash,
            leader_hash,
        } = self;
        write!(
            f,
            "at entry {index} this node's ledger has the hash {own_hash:#x}, the leader's {leader_hash:#x}. \
             Remove this node from the cluster, empty its data directory and add it under a new id"
        )
    }
}

/// The newest format that this node reads.
#[derive(Clone, Copy)]
struct Reads(Format);

impl Default for Reads {
    fn default() -> Self {
        Reads(Format::NEWEST)
    }
}

impl Numbers {
    /// The entry at which the nodes last compared hashes of their ledgers, and the hash.
    pub fn checked(&self) -> (u64, u64) {
        *self.checked.lock()
    }

    /// Where this node's ledger differs from the leader's, if it does.
    pub(crate) fn difference(&self) -> Option<Difference> {
        self.difference.get().copied()
    }

    /// The whole ledger is another one: what was found on the disk, or came from the leader.
    fn show(&self, state: &LedgerState) {
        *self.known.lock() = state.known();
        self.reign.send_replace(state.reign);
        let applied_index = state.applied.map_or(0, |applied| applied.index());
        self.applied_index.store(applied_index, Ordering::Relaxed);
    }
}

/// What a node knows of its cluster, for its gate.
#[derive(Clone, Default, Debug)]
pub struct Known {
    /// 0: it is in no cluster yet.
    pub cluster_id: u128,
    /// The disks of nodes.
    pub disks: BTreeMap<NodeId, u64>,
    /// Which entries may stand in the log.
    pub format: Format,
}

impl SharedLedger {
    /// A ledger that begins with what was found on the disk. `found`: the last entry that was found
    /// with it. `reads`: what this node reads.
    pub fn new(state: LedgerState, found: Option<LogId>, reads: Format) -> Self {
        let numbers = Numbers {
            found,
            reads: Reads(reads),
            ..Numbers::default()
        };
        numbers.show(&state);
        SharedLedger {
            state: Arc::new(Mutex::new(state)),
            numbers: Arc::new(numbers),
        }
    }

    /// What is known of the cluster.
    pub fn known(&self) -> Known {
        self.numbers.known.lock().clone()
    }

    /// What is known without waiting.
    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Whose reign has begun last, by the index of its marker.
    pub fn reigning(&self) -> watch::Receiver<Option<(u64, NodeId)>> {
        self.numbers.reign.subscribe()
    }

    /// How many keys are in the ledger, and the cluster's clock as this node knows it. While a
    /// leader restores its engine from the ledger: what they were before.
    pub fn look(&self) -> (u64, u64) {
        let mut looked_at = self.numbers.looked_at.lock();
        if let Ok(state) = self.state.try_lock() {
            let keys = state.ledger.keys() as u64;
            *looked_at = (keys, state.clock.now_ms(host::now()));
        }
        *looked_at
    }

    /// Holds the ledger still. Applying waits meanwhile, openraft's other tasks do not.
    pub async fn hold(&self) -> OwnedMutexGuard<LedgerState> {
        self.state.clone().lock_owned().await
    }

    /// The same for a thread that has no runtime.
    pub fn hold_blocking(&self) -> OwnedMutexGuard<LedgerState> {
        self.state.clone().blocking_lock_owned()
    }
}

/// An entry that this version cannot have been given, or that contradicts the ones before. The node
/// stops: it must not guess.
fn broken(index: u64, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("entry {index} cannot be applied: {what}"),
    )
}

/// A log in this format is not for a node that `reads` less.
pub(crate) fn check_format(format: Format, reads: Format) -> Result<(), String> {
    match format <= reads {
        true => Ok(()),
        false => Err(format!(
            "this version of Fencepost reads format {} of the log, and the cluster has gone on to format {}. \
             Start this node with the version that the other nodes run",
            reads.0, format.0
        )),
    }
}

impl LedgerState {
    fn known(&self) -> Known {
        Known {
            cluster_id: self.birth.as_ref().map_or(0, |birth| birth.cluster_id),
            disks: self.disks.clone(),
            format: self.format,
        }
    }

    /// This node begins to reign, if its marker is the latest.
    pub fn begin_own(&mut self, reign: Arc<Reign>) -> bool {
        let is_latest = self.reign.is_some_and(|(index, _)| index == reign.index());
        if is_latest {
            self.own = Some(reign);
        }
        is_latest
    }

    pub(crate) fn apply(
        &mut self,
        entry: &Entry,
        heard: Instant,
        numbers: &Numbers,
    ) -> io::Result<Applied> {
        let index = entry.log_id.index();
        let expected = self.applied.map_or(0, |applied| applied.index() + 1);
        if index != expected {
            return Err(broken(index, format!("entry {expected} is next")));
        }
        self.applied = Some(entry.log_id);
        let counts = match &entry.payload {
            Payload::Blank => true,
            Payload::Membership(membership) => {
                let log_id = Some(entry.log_id);
                self.membership = StoredMembership::new(log_id, membership.clone());
                true
            }
            Payload::Normal(command) => {
                let item = Item::decode(command).map_err(|error| broken(index, error))?;
                self.apply_item(entry.log_id, item, heard, numbers)?
            }
        };
        let check_every = CHECK_EVERY.load(Ordering::Relaxed);
        if index.is_multiple_of(check_every) && index >= self.shows {
            let part = (index / check_every) as usize % wal::LEDGER_PARTS;
            let hash = self.ledger.hash(part) ^ u64::from(DIFFERS.load(Ordering::Relaxed));
            self.checks.push_back((index, hash));
            if self.checks.len() > CHECKS_KEPT {
                self.checks.pop_front();
            }
            if let Some(own) = &self.own {
                own.propose_check(index, hash);
            }
        }
        Ok(Applied { counts })
    }

    fn apply_item(
        &mut self,
        log_id: LogId,
        item: Item,
        heard: Instant,
        numbers: &Numbers,
    ) -> io::Result<bool> {
        let index = log_id.index();
        match item {
            Item::Born(birth) => {
                let is_first = self.birth.is_none();
                if is_first {
                    self.clock.hear(0, birth.birth_unix_ms, heard, host::now());
                    self.ledger.reach(birth.birth_unix_ms);
                    self.birth = Some(birth);
                    *numbers.known.lock() = self.known();
                }
                Ok(is_first)
            }
            Item::Reign { node } => {
                if let Some(own) = self.own.take() {
                    own.end("another leader's reign has begun");
                }
                self.reign = Some((index, node));
                numbers.reign.send_replace(self.reign);
                self.seq = 0;
                self.ledger.begin_reign();
                if Some(log_id) > numbers.found {
                    numbers.reigns.fetch_add(1, Ordering::Relaxed);
                }
                Ok(true)
            }
            Item::Batch(batch) => self.apply_batch(index, &batch, heard, numbers),
            Item::Joined { node, disk } => {
                let known = *self.disks.entry(node).or_insert(disk);
                *numbers.known.lock() = self.known();
                Ok(known == disk)
            }
            Item::Format(format) => {
                let reads = numbers.reads.0;
                check_format(format, reads).map_err(|error| broken(index, error))?;
                let is_later = format > self.format;
                if is_later {
                    self.format = format;
                    *numbers.known.lock() = self.known();
                }
                Ok(is_later)
            }
            Item::Checked { index: at, hash } => {
                let own = self.checks.iter().find(|(index, _)| *index == at);
                match own {
                    Some((_, own_hash)) if *own_hash != hash => {
                        let difference = Difference {
                            index: at,
                            own_hash: *own_hash,
                            leader_hash: hash,
                        };
                        let _ = numbers.difference.set(difference);
                        Err(broken(index, difference))
                    }
                    _ => {
                        *numbers.checked.lock() = (at, hash);
                        Ok(true)
                    }
                }
            }
        }
    }

    fn apply_batch(
        &mut self,
        index: u64,
        batch: &BatchItem,
        heard: Instant,
        numbers: &Numbers,
    ) -> io::Result<bool> {
        let is_of_reign = self.reign.is_some_and(|(reign, _)| reign == batch.reign);
        let is_next = batch.seq == self.seq + 1;
        let is_taken_though_old = !is_of_reign && planted(Mistake::StaleReignCounted);
        let is_next = is_next || planted(Mistake::SeqUnchecked);
        let counts = (is_of_reign && is_next || is_taken_though_old)
            && batch.stamp_ms >= self.ledger.clock_ms();
        if !counts {
            numbers.ignored.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        self.seq = batch.seq;
        self.ledger.reach(batch.stamp_ms);
        self.clock
            .hear(batch.reign, batch.stamp_ms, heard, host::now());
        // It is committed and it counts: replies may leave while this thread sums it up. The ledger
        // is held until that is done, so no later reign begins without it.
        if let Some(own) = &self.own {
            own.settle(batch.seq);
        }
        for record in wal::records(&batch.records) {
            let record = record.map_err(|error| broken(index, error))?;
            let applied = self.ledger.apply(&record);
            applied.map_err(|error| broken(index, error))?;
            if record == wal::Record::TurnsEnded {
                for _ in 0..CLEAR_OUT_PARTS {
                    self.ledger.clear_out();
                }
            }
        }
        Ok(true)
    }

    /// What a ledger that comes from elsewhere begins with.
    pub(crate) fn with_ledger(ledger: wal::Ledger) -> LedgerState {
        LedgerState {
            ledger,
            ..LedgerState::default()
        }
    }

    /// Becomes the beginning of a new cluster's log: nothing of an earlier log is left but what is
    /// held.
    pub(crate) fn begin_anew(
        &mut self,
        applied: LogId,
        membership: StoredMembership,
        node: NodeId,
        disk: u64,
    ) {
        self.applied = Some(applied);
        self.membership = membership;
        self.disks = BTreeMap::from([(node, disk)]);
        self.reign = None;
        self.seq = 0;
        self.shows = applied.index();
        self.checks.clear();
    }

    /// The last batch of the reign that counted.
    #[cfg(feature = "simulation")]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// A number that is the same on all nodes that have applied the same entries. `None`: this
    /// ledger comes from an image and shows some entries that it has not applied yet.
    #[cfg(feature = "simulation")]
    pub fn whole_hash(&mut self) -> Option<u64> {
        let applied = self.applied.map_or(0, |applied| applied.index());
        let parts = 0..wal::LEDGER_PARTS;
        (applied >= self.shows).then(|| {
            let hashes = parts.map(|part| self.ledger.hash(part));
            hashes.fold(self.seq, |all, hash| all.rotate_left(5) ^ hash)
        })
    }

    /// The last entry whose effects this ledger may show: also one that it has yet to apply, if it
    /// was read from an image a moment ago.
    fn shows_up_to(&self) -> u64 {
        let applied = self.applied.map_or(0, |applied| applied.index());
        applied.max(self.shows)
    }

    pub(crate) fn meta(&self) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: self.applied,
            last_membership: self.membership.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
