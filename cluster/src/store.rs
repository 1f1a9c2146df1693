//! openraft's log on the write-ahead log of this node, leader and follower alike: votes, entries,
//! truncations and purges are records in it (docs/wal.md, kinds 0x50 to 0x56). Entries since the
//! last purge are also in memory; the disk is read at the start only.
//!
//! One thread, that of openraft, appends; the log's writer syncs what came together and says so.
//! The callbacks of appends wait in the order of their tickets. The mutex of that queue is held
//! while records are appended, so that the writer cannot be done with them before their callback
//! stands there.

use crate::codec::{self, Reader};
use crate::host;
use crate::simulation::{Mistake, planted};
use crate::types::{Command, Entry, LeaderId, LogId, Payload, Types, Vote};
use bytes::Bytes;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;
use wal::{Batch, EntryId, GroupLog, PART_BYTES_MAX, Record, Ticket, Wal, WalError};

/// Bytes of entries that are sent to a follower in one message, but for its last entry.
const SEND_BYTES: usize = 1 << 20;

/// What ends the node when its disk fails.
pub type OnFailure = Arc<dyn Fn(&WalError) + Send + Sync>;

/// The replicated log of one group on this node. Clones share it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    group: u16,
    wal: Arc<Wal>,
    log: Mutex<Log>,
    waiting: Arc<Waiting>,
}

/// The log in memory.
#[derive(Default)]
struct Log {
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Heard>,
    bytes: u64,
}

struct Heard {
    entry: Entry,
    /// When this node heard of it, by its steady clock.
    at: Instant,
}

/// What waits for the disk.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<VecDeque<(Ticket, Waiter)>>);

enum Waiter {
    Append(IOFlushed<Types>),
    Vote(oneshot::Sender<()>),
}

/// Hears the log's writer.
pub struct SyncListener {
    waiting: Arc<Waiting>,
    on_failure: OnFailure,
}

impl wal::Listener for SyncListener {
    fn synced(&mut self, up_to: Ticket) {
        let mut waiting = self.waiting.0.lock();
        while let Some((ticket, _)) = waiting.front()
            && *ticket <= up_to
        {
            match waiting.pop_front().expect("it is the front").1 {
                Waiter::Append(flushed) => flushed.io_completed(Ok(())),
                // The receiver may have gone with a node that stops.
                Waiter::Vote(saved) => _ = saved.send(()),
            }
        }
    }

    fn failed(&mut self, error: &WalError) {
        (self.on_failure)(error);
    }
}

impl Store {
    /// The parts of a listener that must exist before the log is started.
    pub fn listener(on_failure: OnFailure) -> (SyncListener, WaitingForDisk) {
        let waiting = Arc::new(Waiting::default());
        let listener = SyncListener {
            waiting: waiting.clone(),
            on_failure,
        };
        (listener, WaitingForDisk(waiting))
    }

    /// The log as it was found.
    pub fn new(
        group: u16,
        wal: Arc<Wal>,
        waiting: WaitingForDisk,
        found: &mut GroupLog,
    ) -> Result<Store, codec::DecodeError> {
        let now = host::now();
        let mut log = Log {
            vote: found.vote.map(|(term, node_id, committed)| Vote {
                leader_id: LeaderId { term, node_id },
                committed,
            }),
            purged: found.purged.map(log_id),
            ..Log::default()
        };
        for (index, found) in std::mem::take(&mut found.entries) {
            let payload = Reader::new(found.payload.into()).payload()?;
            log.bytes += codec::payload_bytes(&payload) as u64;
            let entry = Entry {
                log_id: log_id(found.id),
                payload,
            };
            // Time stood still while the node was away.
            log.entries.insert(index, Heard { entry, at: now });
        }
        Ok(Store {
            inner: Arc::new(Inner {
                group,
                wal,
                log: Mutex::new(log),
                waiting: waiting.0,
            }),
        })
    }

    /// When this node heard of an entry that is still in memory.
    pub fn heard_at(&self, index: u64) -> Option<Instant> {
        Some(self.inner.log.lock().entries.get(&index)?.at)
    }

    /// Bytes of entries in memory.
    pub fn bytes(&self) -> u64 {
        self.inner.log.lock().bytes
    }

    /// The log underneath.
    pub fn wal(&self) -> &Arc<Wal> {
        &self.inner.wal
    }

    /// Writes a snapshot of this node's log that begins with an image of the ledger, and makes room
    /// of the log before it. Waits for the disk.
    pub fn write_snapshot(
        &self,
        node: u64,
        disk: u64,
        covers: Option<LogId>,
        image: &[bytes::Bytes],
        now_unix_ms: u64,
    ) -> Result<(), WalError> {
        let group = self.inner.group;
        let mut snapshot = self.inner.wal.begin_snapshot(now_unix_ms)?;
        snapshot.add(&Record::NodeIs { node, disk })?;
        // Collected after the snapshot was begun, so nothing that stands before it is missing. What
        // is appended meanwhile is replayed once more.
        let (vote, purged, entries) = {
            let log = self.inner.log.lock();
            let entries: Vec<Entry> = log
                .entries
                .values()
                .map(|heard| heard.entry.clone())
                .collect();
            (log.vote, log.purged, entries)
        };
        if let Some(vote) = &vote {
            snapshot.add(&vote_record(group, vote))?;
        }
        for chunk in image {
            for part in chunk.chunks(PART_BYTES_MAX) {
                snapshot.add(&Record::ImagePart { group, part })?;
            }
        }
        // An image that was received may be ahead of all entries: then openraft purges them next.
        let _ = covers;
        if let Some(purged) = purged {
            let id = entry_id(&purged);
            snapshot.add(&Record::Purged { group, id })?;
        }
        let mut payload = Vec::new();
        for entry in &entries {
            payload.clear();
            codec::put_payload(&entry.payload, &mut payload);
            let mut failed = None;
            put_entry(group, &entry.log_id, &payload, |record| {
                if failed.is_none() {
                    failed = snapshot.add(record).err();
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
        }
        snapshot.finish()
    }

    fn append_waiting(&self, records: Batch, waiter: Waiter) {
        let mut waiting = self.inner.waiting.0.lock();
        let ticket = self.inner.wal.append_batch(records);
        waiting.push_back((ticket, waiter));
    }
}

/// Callbacks that wait for the disk, between the making of a listener and that of its store.
pub struct WaitingForDisk(Arc<Waiting>);

pub(crate) fn log_id(id: EntryId) -> LogId {
    let leader_id = LeaderId {
        term: id.term,
        node_id: id.node,
    };
    LogId::new(leader_id, id.index)
}

fn entry_id(log_id: &LogId) -> EntryId {
    EntryId {
        term: log_id.committed_leader_id().term,
        node: log_id.committed_leader_id().node_id,
        index: log_id.index(),
    }
}

fn vote_record(group: u16, vote: &Vote) -> Record<'static> {
    Record::Vote {
        group,
        term: vote.leader_id.term,
        node: vote.leader_id.node_id,
        is_committed: vote.committed,
    }
}

/// Cuts an entry into records.
fn put_entry(group: u16, log_id: &LogId, payload: &[u8], mut put: impl FnMut(&Record<'_>)) {
    let (first, rest) = payload.split_at(payload.len().min(PART_BYTES_MAX));
    put(&Record::EntryBegin {
        group,
        id: entry_id(log_id),
        bytes: u32::try_from(payload.len()).expect("an entry is far shorter than 4 GiB"),
        part: first,
    });
    for part in rest.chunks(PART_BYTES_MAX) {
        put(&Record::EntryPart { group, part });
    }
}

impl RaftLogReader<Types> for Store {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let log = self.inner.log.lock();
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        if is_empty(&range) {
            return Ok(Vec::new());
        }
        let entries = log.entries.range(range);
        Ok(entries.map(|(_, heard)| heard.entry.clone()).collect())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.inner.log.lock().vote)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        let log = self.inner.log.lock();
        let mut entries = Vec::new();
        let mut bytes = 0;
        if start >= end {
            return Ok(entries);
        }
        for (_, heard) in log.entries.range(start..end) {
            bytes += codec::payload_bytes(&heard.entry.payload);
            entries.push(heard.entry.clone());
            if bytes >= SEND_BYTES {
                break;
            }
        }
        Ok(entries)
    }
}

/// `BTreeMap::range` panics at a range that is inverted.
fn is_empty((start, end): &(Bound<u64>, Bound<u64>)) -> bool {
    let first = match start {
        Bound::Included(first) => *first,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    match end {
        Bound::Included(last) => *last < first,
        Bound::Excluded(behind) => *behind <= first,
        Bound::Unbounded => false,
    }
}

impl RaftLogStorage<Types> for Store {
    type LogReader = Store;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let log = self.inner.log.lock();
        let last = log.entries.last_key_value();
        Ok(LogState {
            last_purged_log_id: log.purged,
            last_log_id: last.map(|(_, heard)| heard.entry.log_id).or(log.purged),
        })
    }

    async fn get_log_reader(&mut self) -> Store {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.inner.log.lock().vote = Some(*vote);
        let mut records = Batch::new();
        records.push(&vote_record(self.inner.group, vote));
        if planted(Mistake::VoteBeforeSync) {
            self.inner.wal.append_batch(records);
            return Ok(());
        }
        let (saved, is_saved) = oneshot::channel();
        self.append_waiting(records, Waiter::Vote(saved));
        is_saved
            .await
            .map_err(|_| io::Error::other("the log of this node has failed"))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let mut records = Batch::new();
        let mut payload = Vec::new();
        let now = host::now();
        {
            let mut log = self.inner.log.lock();
            for mut entry in entries {
                payload.clear();
                codec::put_payload(&entry.payload, &mut payload);
                if let Payload::Normal(command) = &mut entry.payload {
                    // It is a part of the buffer that it was received in. An entry that is kept
                    // for long would keep all of that.
                    *command = Command(Bytes::copy_from_slice(&command.0));
                }
                let group = self.inner.group;
                put_entry(group, &entry.log_id, &payload, |record| {
                    records.push(record)
                });
                log.bytes += payload.len() as u64;
                let index = entry.log_id.index();
                let before = log.entries.insert(index, Heard { entry, at: now });
                assert!(before.is_none(), "entry {index} is appended twice");
            }
        }
        if planted(Mistake::AckBeforeSync) {
            self.inner.wal.append_batch(records);
            callback.io_completed(Ok(()));
            return Ok(());
        }
        self.append_waiting(records, Waiter::Append(callback));
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let from = last_log_id.map_or(0, |last| last.index() + 1);
        let mut log = self.inner.log.lock();
        let gone = log.entries.split_off(&from);
        log.bytes -= bytes_of(&gone);
        self.inner.wal.append(&Record::Truncated {
            group: self.inner.group,
            from,
        });
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let mut log = self.inner.log.lock();
        if log.purged >= Some(log_id) {
            return Ok(());
        }
        log.purged = Some(log_id);
        let kept = log.entries.split_off(&(log_id.index() + 1));
        let gone = std::mem::replace(&mut log.entries, kept);
        log.bytes -= bytes_of(&gone);
        self.inner.wal.append(&Record::Purged {
            group: self.inner.group,
            id: entry_id(&log_id),
        });
        Ok(())
    }
}

fn bytes_of(entries: &BTreeMap<u64, Heard>) -> u64 {
    let payloads = entries.values().map(|heard| &heard.entry.payload);
    payloads
        .map(|payload: &Payload| codec::payload_bytes(payload) as u64)
        .sum()
}

#[cfg(test)]
pub(crate) mod tests;
