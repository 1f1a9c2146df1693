//! A log and a state machine in memory, for nodes that live as long as a test.

use crate::peer::{Image, SNAPSHOT_PART_BYTES};
use crate::types::{Applied, Entry, LogId, Payload, SnapshotMeta, StoredMembership, Types, Vote};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::{Stream, TryStreamExt};
use openraft::storage::{
    EntryResponder, IOFlushed, LogState, RaftLogReader, RaftLogStorage, RaftSnapshotBuilder,
    RaftStateMachine,
};
use openraft::type_config::alias::SnapshotOf;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

#[derive(Default)]
struct Log {
    vote: Option<Vote>,
    entries: BTreeMap<u64, Entry>,
    purged: Option<LogId>,
}

/// The log of one node. Clones are the same log, so a node can come back with it.
#[derive(Clone, Default)]
pub(super) struct MemoryLog(Arc<Mutex<Log>>);

impl RaftLogReader<Types> for MemoryLog {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<Entry>> {
        let log = self.0.lock();
        Ok(log.entries.range(range).map(|(_, e)| e.clone()).collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.0.lock().vote)
    }
}

impl RaftLogStorage<Types> for MemoryLog {
    type LogReader = MemoryLog;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let log = self.0.lock();
        let last = log.entries.values().next_back().map(|entry| entry.log_id);
        Ok(LogState {
            last_purged_log_id: log.purged,
            last_log_id: last.or(log.purged),
        })
    }

    async fn get_log_reader(&mut self) -> MemoryLog {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.0.lock().vote = Some(*vote);
        Ok(())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let entries = entries
            .into_iter()
            .map(|entry| (entry.log_id.index(), entry));
        self.0.lock().entries.extend(entries);
        callback.io_completed(Ok(()));
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        let first = last_log_id.map_or(0, |log_id| log_id.index() + 1);
        self.0.lock().entries.split_off(&first);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        let mut log = self.0.lock();
        log.entries = log.entries.split_off(&(log_id.index() + 1));
        log.purged = Some(log_id);
        Ok(())
    }
}

#[derive(Clone, Default)]
struct State {
    applied: Option<LogId>,
    membership: StoredMembership,
    commands: Vec<Bytes>,
    snapshot: Option<(SnapshotMeta, Image)>,
    parts_installed: usize,
}

/// All commands in the order in which they were applied.
#[derive(Clone, Default)]
pub(super) struct MemoryState(Arc<Mutex<State>>);

impl MemoryState {
    pub(super) fn commands(&self) -> Vec<Bytes> {
        self.0.lock().commands.clone()
    }

    /// How many parts the last snapshot had that was installed here.
    pub(super) fn parts_installed(&self) -> usize {
        self.0.lock().parts_installed
    }
}

impl RaftSnapshotBuilder<Types> for MemoryState {
    type SnapshotData = Image;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Types, Image>> {
        let mut state = self.0.lock();
        let mut bytes = BytesMut::new();
        for command in &state.commands {
            bytes.put_u32_le(command.len() as u32);
            bytes.put_slice(command);
        }
        let bytes = bytes.freeze();
        let parts = (0..bytes.len()).step_by(SNAPSHOT_PART_BYTES);
        let parts = parts.map(|at| bytes.slice(at..bytes.len().min(at + SNAPSHOT_PART_BYTES)));
        let image: Image = Arc::new(parts.collect());
        let meta = SnapshotMeta {
            last_log_id: state.applied,
            last_membership: state.membership.clone(),
        };
        state.snapshot = Some((meta.clone(), image.clone()));
        Ok(SnapshotOf::<Types, Image> {
            meta,
            snapshot: image,
        })
    }
}

impl RaftStateMachine<Types> for MemoryState {
    type SnapshotData = Image;
    type SnapshotBuilder = MemoryState;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let state = self.0.lock();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + Send,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let mut state = self.0.lock();
            state.applied = Some(entry.log_id);
            match entry.payload {
                Payload::Blank => {}
                Payload::Normal(command) => state.commands.push(command.0),
                Payload::Membership(membership) => {
                    state.membership = StoredMembership::new(Some(entry.log_id), membership);
                }
            }
            drop(state);
            if let Some(responder) = responder {
                responder.send(Applied { counts: true });
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> MemoryState {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, image: Image) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        image.iter().for_each(|part| bytes.put_slice(part));
        let mut commands = Vec::new();
        while bytes.has_remaining() {
            let length = bytes.get_u32_le() as usize;
            commands.push(bytes.split_to(length).freeze());
        }
        let mut state = self.0.lock();
        state.applied = meta.last_log_id;
        state.membership = meta.last_membership.clone();
        state.commands = commands;
        state.parts_installed = image.len();
        state.snapshot = Some((meta.clone(), image));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<Types, Image>>> {
        let state = self.0.lock();
        let snapshot = state.snapshot.clone();
        Ok(snapshot.map(|(meta, snapshot)| SnapshotOf::<Types, Image> { meta, snapshot }))
    }
}
