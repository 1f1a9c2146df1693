//! openraft's state machine: the ledger of what is held, which every node keeps. It applies what is
//! committed, by the rule of the log (`entry.rs`), and nothing else changes it.
//!
//! The ledger is behind a mutex that may be held for long: a node that begins to reign restores its
//! engine from it. Applying waits for that without holding up openraft's other tasks.

use crate::clock::ClusterClock;
use crate::codec::{self, Reader};
use crate::entry::{BatchItem, Birth, Format, Item};
use crate::host;
use crate::propose::Reign;
use crate::simulation::{Mistake, planted};
use crate::store::Store;
use crate::types::{Applied, Entry, LogId, NodeId, Payload, SnapshotMeta, StoredMembership, Types};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{Stream, TryStreamExt};
use openraft::storage::{
    EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot as RaftSnapshot,
};
use parking_lot::Mutex as SyncMutex;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

pub use crate::peer::Image;

/// Bytes of a chunk of an image.
const CHUNK_BYTES: usize = 1 << 20;

/// After so many entries the nodes compare their ledgers. The same on all nodes of a cluster.
static CHECK_EVERY: AtomicU64 = AtomicU64::new(4_096);

/// Has the nodes of this process compare their ledgers after so many entries, instead of 4,096. For
/// tests, which set it before any node starts: nodes that differ in this compare nothing.
#[doc(hidden)]
pub fn compare_every(entries: u64) {
    CHECK_EVERY.store(entries.max(1), Ordering::Relaxed);
}

/// So many hashes are kept until the leader's comes.
const CHECKS_KEPT: usize = 64;

/// Marks the bytes of an image.
const IMAGE_MAGIC: &[u8; 8] = b"fenceimg";

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
    /// Reigns that began, of any node.
    pub reigns: AtomicU64,
    /// The latest hash of the leader that this node's did not contradict, behind its entry.
    checked: SyncMutex<(u64, u64)>,
    /// Keys in the ledger, and the cluster's clock, when they were last looked at.
    looked_at: SyncMutex<(u64, u64)>,
    /// What decides about peers.
    known: SyncMutex<Known>,
    reads: Reads,
    /// The index of the latest marker, and whose reign it began.
    reign: watch::Sender<Option<(u64, NodeId)>>,
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
    /// A ledger that begins with what was found on the disk. `reads`: what this node reads.
    pub fn new(state: LedgerState, reads: Format) -> Self {
        let numbers = Numbers {
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

/// An image in the chunks that it is sent in.
pub(crate) fn chunks_of(mut image: Bytes) -> Image {
    let mut chunks = Vec::new();
    while image.len() > CHUNK_BYTES {
        chunks.push(image.split_to(CHUNK_BYTES));
    }
    chunks.push(image);
    Arc::new(chunks)
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
                self.apply_item(index, item, heard, numbers)?
            }
        };
        let check_every = CHECK_EVERY.load(Ordering::Relaxed);
        if index.is_multiple_of(check_every) && index >= self.shows {
            let part = (index / check_every) as usize % wal::LEDGER_PARTS;
            let hash = self.ledger.hash(part);
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
        index: u64,
        item: Item,
        heard: Instant,
        numbers: &Numbers,
    ) -> io::Result<bool> {
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
                numbers.reigns.fetch_add(1, Ordering::Relaxed);
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
                    Some((_, own_hash)) if *own_hash != hash => Err(broken(
                        index,
                        format!(
                            "at entry {at} this node's ledger has the hash {own_hash:#x}, the leader's {hash:#x}. \
                             Remove this node from the cluster, empty its data directory and add it under a new id"
                        ),
                    )),
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

    /// What is not in [`wal::Ledger`], as bytes, and then the ledger's own head.
    fn put_image_head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_slice(IMAGE_MAGIC);
        codec::put_option(self.applied.as_ref(), &mut out, codec::put_log_id);
        let membership = &self.membership;
        codec::put_option(membership.log_id().as_ref(), &mut out, codec::put_log_id);
        codec::put_membership(membership.membership(), &mut out);
        codec::put_option(self.birth.as_ref(), &mut out, |birth, out| {
            out.put_u128_le(birth.cluster_id);
            out.put_slice(&birth.session_key);
            out.put_u64_le(birth.birth_unix_ms);
        });
        out.put_u32_le(self.disks.len() as u32);
        for (node, disk) in &self.disks {
            out.put_u64_le(*node);
            out.put_u64_le(*disk);
        }
        out.put_u16_le(self.format.0);
        codec::put_option(self.reign.as_ref(), &mut out, |(index, node), out| {
            out.put_u64_le(*index);
            out.put_u64_le(*node);
        });
        out.put_u64_le(self.seq);
        self.ledger.put_image_head(&mut out);
        out
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

    /// An image of one moment.
    pub(crate) fn make_image(&mut self) -> Vec<u8> {
        let mut out = self.put_image_head();
        for part in 0..wal::LEDGER_PARTS {
            self.ledger.put_image_part(part, &mut out);
        }
        out.put_u64_le(self.shows_up_to());
        out
    }

    /// Reads an image.
    pub fn from_image(image: &[Bytes]) -> Result<LedgerState, codec::DecodeError> {
        let not_one = codec::DecodeError {
            field: "image of a ledger",
        };
        let mut bytes = BytesMut::with_capacity(image.iter().map(Bytes::len).sum());
        image
            .iter()
            .for_each(|chunk| bytes.extend_from_slice(chunk));
        let mut reader = Reader::new(bytes.freeze());
        if reader.take(IMAGE_MAGIC.len(), "image")? != IMAGE_MAGIC[..] {
            return Err(not_one);
        }
        let applied = reader.option("applied", Reader::log_id)?;
        let membership_id = reader.option("membership", Reader::log_id)?;
        let membership = StoredMembership::new(membership_id, reader.membership()?);
        let birth = reader.option("birth", |reader| {
            let id = reader.take(16, "cluster id")?;
            let key = reader.take(32, "session key")?;
            Ok(Birth {
                cluster_id: u128::from_le_bytes(id[..].try_into().expect("16 bytes")),
                session_key: key[..].try_into().expect("32 bytes"),
                birth_unix_ms: reader.u64("birth")?,
            })
        })?;
        let disk_count = reader.u32("disks")?;
        let mut disks = BTreeMap::new();
        for _ in 0..disk_count {
            disks.insert(reader.u64("node")?, reader.u64("disk")?);
        }
        let version = reader.take(2, "format")?;
        let format = Format(u16::from_le_bytes(version[..].try_into().expect("2 bytes")));
        let reign = reader.option("reign", |reader| {
            Ok((reader.u64("reign")?, reader.u64("node")?))
        })?;
        let seq = reader.u64("seq")?;
        let mut ledger = reader.rest();
        let Some(shows_at) = ledger.len().checked_sub(8) else {
            return Err(not_one);
        };
        let shows = Reader::new(ledger.split_off(shows_at)).u64("shows")?;
        let mut ledger = wal::Ledger::from_image(&ledger).map_err(|_| not_one)?;
        if planted(Mistake::SnapshotWithoutSessions) {
            for session in ledger.sessions() {
                let session = session.session;
                let ended = ledger.apply(&wal::Record::SessionEnded { session });
                ended.map_err(|_| not_one)?;
            }
        }
        let mut clock = ClusterClock::default();
        let now = host::now();
        let reign_index = reign.map_or(0, |(index, _)| index);
        clock.hear(reign_index, ledger.clock_ms(), now, now);
        Ok(LedgerState {
            ledger,
            applied,
            membership,
            birth,
            disks,
            format,
            reign,
            seq,
            clock,
            checks: VecDeque::new(),
            shows,
            own: None,
        })
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

/// So many parts of the ledger are cleared out each time that turns have ended.
const CLEAR_OUT_PARTS: usize = 16;

/// openraft's state machine.
#[derive(Clone)]
pub struct Machine {
    ledger: SharedLedger,
    store: Store,
    node: NodeId,
    disk: u64,
    current: Arc<SyncMutex<Option<(SnapshotMeta, Image)>>>,
    /// How many images have been installed.
    installs: Arc<AtomicU64>,
}

impl Machine {
    /// A state machine over a ledger that was found on the disk, and the image that it was read
    /// from. Without that one openraft would make another at every start, of the same entries.
    pub fn new(
        ledger: SharedLedger,
        image: Option<(SnapshotMeta, Image)>,
        store: Store,
        node: NodeId,
        disk: u64,
    ) -> Self {
        Machine {
            ledger,
            store,
            node,
            disk,
            current: Arc::new(SyncMutex::new(image)),
            installs: Arc::default(),
        }
    }

    async fn keep(&self, meta: SnapshotMeta, image: Image) -> io::Result<()> {
        let (store, node, disk) = (self.store.clone(), self.node, self.disk);
        let covers = meta.last_log_id;
        let to_write = image.clone();
        let written = host::block(move || {
            // The time is for the header of a file, which people read.
            store.write_snapshot(node, disk, covers, &to_write, host::unix_now_ms())
        });
        let written = written.await.map_err(io::Error::other)?;
        written.map_err(io::Error::other)?;
        *self.current.lock() = Some((meta, image));
        Ok(())
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = Image;
    type SnapshotBuilder = Machine;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let state = self.ledger.hold().await;
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + Send,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let heard = self.store.heard_at(entry.log_id.index());
            let heard = heard.unwrap_or_else(host::now);
            let mut state = self.ledger.hold().await;
            let applied = state.apply(&entry, heard, &self.ledger.numbers)?;
            drop(state);
            let index = entry.log_id.index();
            let numbers = &self.ledger.numbers;
            numbers.applied_index.store(index, Ordering::Relaxed);
            if let Some(responder) = responder {
                responder.send(applied);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, image: Image) -> io::Result<()> {
        let mut installed = LedgerState::from_image(&image)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        check_format(installed.format, self.ledger.numbers.reads.0).map_err(io::Error::other)?;
        // The head says what it was named after; openraft's word counts.
        installed.applied = meta.last_log_id;
        installed.membership = meta.last_membership.clone();
        self.keep(meta.clone(), image).await?;
        let mut state = self.ledger.hold().await;
        if let Some(own) = state.own.take() {
            own.end("another leader has sent its ledger");
        }
        // What is known of the clock is not lost.
        let known = state.clock;
        *state = installed;
        self.ledger.numbers.show(&state);
        let now = host::now();
        state.clock.hear_of(&known, now);
        self.installs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<openraft::type_config::alias::SnapshotOf<Types, Image>>> {
        let current = self.current.lock().clone();
        Ok(current.map(|(meta, snapshot)| RaftSnapshot { meta, snapshot }))
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    type SnapshotData = Image;

    async fn build_snapshot(
        &mut self,
    ) -> io::Result<openraft::type_config::alias::SnapshotOf<Types, Image>> {
        loop {
            // Tried again if another leader's ledger took the place of this one meanwhile.
            if let Some((meta, image)) = self.make_image().await {
                self.keep(meta.clone(), image.clone()).await?;
                return Ok(RaftSnapshot {
                    meta,
                    snapshot: image,
                });
            }
        }
    }
}

impl Machine {
    /// Part by part, so that entries go on being applied; see `wal/src/replay/ledger.rs` for why
    /// the parts need not be of one moment.
    async fn make_image(&self) -> Option<(SnapshotMeta, Image)> {
        let mut chunks = Vec::new();
        let (meta, mut chunk, installs) = {
            let state = self.ledger.hold().await;
            (state.meta(), state.put_image_head(), self.installs())
        };
        for part in 0..wal::LEDGER_PARTS {
            {
                let mut state = self.ledger.hold().await;
                if self.installs() != installs {
                    return None;
                }
                state.ledger.put_image_part(part, &mut chunk);
                if part + 1 == wal::LEDGER_PARTS {
                    chunk.put_u64_le(state.shows_up_to());
                }
            }
            while chunk.len() >= CHUNK_BYTES {
                let rest = chunk.split_off(CHUNK_BYTES);
                chunks.push(Bytes::from(std::mem::replace(&mut chunk, rest)));
            }
            tokio::task::yield_now().await;
        }
        chunks.push(Bytes::from(chunk));
        Some((meta, Arc::new(chunks)))
    }

    fn installs(&self) -> u64 {
        self.installs.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
