//! openraft's state machine: it has entries applied, and images made, kept and installed.

use super::image::CHUNK_BYTES;
use super::{LedgerState, SharedLedger, check_format};
use crate::host;
use crate::peer::Image;
use crate::store::Store;
use crate::types::{LogId, NodeId, SnapshotMeta, StoredMembership, Types};
use bytes::{BufMut, Bytes};
use futures_util::{Stream, TryStreamExt};
use openraft::storage::{
    EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot as RaftSnapshot,
};
use parking_lot::Mutex as SyncMutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use wal::WalError;

/// How often a node without room for its first image looks for some.
const ROOM_LOOK: Duration = Duration::from_secs(1);

/// openraft's state machine.
#[derive(Clone)]
pub struct Machine {
    ledger: SharedLedger,
    store: Store,
    node: NodeId,
    disk: u64,
    current: Arc<SyncMutex<Option<(SnapshotMeta, Image)>>>,
    /// Held while one is written. This node makes images by itself, and is sent some by a leader.
    writing: Arc<Mutex<()>>,
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
            writing: Arc::default(),
            installs: Arc::default(),
        }
    }

    /// Writes an image to the disk, unless the one there shows more: of an image that is made and
    /// one that is sent, either may be ready first, and the log may have been purged up to the
    /// later one.
    async fn keep(&self, meta: SnapshotMeta, image: Image) -> Result<(), WalError> {
        let _writing = self.writing.lock().await;
        let covers = meta.last_log_id;
        let kept = self.kept().map(|(meta, _)| meta.last_log_id);
        if kept.is_some_and(|kept| kept > covers) {
            return Ok(());
        }
        let (store, node, disk) = (self.store.clone(), self.node, self.disk);
        let to_write = image.clone();
        let written = host::block(move || {
            // The time is for the header of a file, which people read.
            store.write_snapshot(node, disk, covers, &to_write, host::unix_now_ms())
        });
        written.await.map_err(|_| WalError::Closed)??;
        *self.current.lock() = Some((meta, image));
        Ok(())
    }

    fn kept(&self) -> Option<(SnapshotMeta, Image)> {
        self.current.lock().clone()
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
        // Off this thread, which goes on answering the leader and voting meanwhile.
        let to_read = image.clone();
        let read = host::block(move || LedgerState::from_image(&to_read)).await;
        let mut installed = read
            .map_err(io::Error::other)?
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        check_format(installed.format, self.ledger.numbers.reads.0).map_err(io::Error::other)?;
        // The head says what it was named after; openraft's word counts.
        installed.applied = meta.last_log_id;
        installed.membership = meta.last_membership.clone();
        let kept = self.keep(meta.clone(), image).await;
        kept.map_err(io::Error::other)?;
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
        let kept = self.kept();
        Ok(kept.map(|(meta, snapshot)| RaftSnapshot { meta, snapshot }))
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    type SnapshotData = Image;

    async fn build_snapshot(
        &mut self,
    ) -> io::Result<openraft::type_config::alias::SnapshotOf<Types, Image>> {
        loop {
            // Tried again if another leader's ledger took the place of this one meanwhile.
            let Some((meta, image)) = self.make_image().await else {
                continue;
            };
            match self.keep(meta, image).await {
                Ok(()) => {}
                // The segment in use may have room for long, so this node goes on. The log has
                // said so, and asks for a snapshot again.
                Err(error) if error.is_for_want_of_room() && self.has_log() => {}
                Err(error) => return Err(io::Error::other(error)),
            }
            // openraft takes no notice of one that it has already.
            if let Some((meta, snapshot)) = self.kept() {
                return Ok(RaftSnapshot { meta, snapshot });
            }
            tokio::time::sleep(ROOM_LOOK).await;
        }
    }
}

impl Machine {
    /// Part by part, so that entries go on being applied; see `wal/src/replay/ledger.rs` for why
    /// the parts need not be of one moment.
    async fn make_image(&self) -> Option<(SnapshotMeta, Image)> {
        let mut chunks = Vec::new();
        let (meta, mut chunk, under_way, installs) = {
            let state = self.ledger.hold().await;
            let mut chunk = Vec::new();
            let under_way = state.put_image_head(&mut chunk);
            (state.meta(), chunk, under_way, self.installs())
        };
        for part in 0..wal::LEDGER_PARTS {
            {
                let mut state = self.ledger.hold().await;
                if self.installs() != installs {
                    return None;
                }
                state.ledger.put_image_part(&under_way, part, &mut chunk);
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

    fn has_log(&self) -> bool {
        self.store.wal().failure().is_none()
    }

    fn installs(&self) -> u64 {
        self.installs.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Format;
    use crate::ledger::chunks_of;
    use crate::store::tests::{id, open};
    use wal::forgetful::{FailKind, ForgetfulDisk};

    fn machine(disk: &Arc<ForgetfulDisk>) -> Machine {
        let (store, _) = open(disk);
        let ledger = SharedLedger::new(LedgerState::default(), None, Format::NEWEST);
        Machine::new(ledger, None, store, 1, 5)
    }

    fn image(index: u64) -> (SnapshotMeta, Image) {
        let meta = SnapshotMeta {
            last_log_id: Some(id(1, index)),
            ..SnapshotMeta::default()
        };
        (meta, chunks_of(Bytes::from(vec![index as u8; 10])))
    }

    #[tokio::test]
    async fn of_two_images_the_one_that_shows_more_is_kept() {
        let disk = Arc::new(ForgetfulDisk::default());
        let machine = machine(&disk);
        let [(early, early_image), (late, late_image)] = [image(5), image(9)];
        let both = tokio::join!(
            machine.keep(early.clone(), early_image.clone()),
            machine.keep(late.clone(), late_image)
        );
        assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
        machine.keep(early, early_image).await.unwrap();
        assert_eq!(machine.kept().unwrap().0, late);
        let (_, group) = open(&Arc::new(disk.kill()));
        assert_eq!(group.image, [9; 10]);
    }

    #[tokio::test]
    async fn a_node_without_room_for_an_image_goes_on() {
        let mut at_stake = 0;
        for operation in 0..12 {
            let disk = Arc::new(ForgetfulDisk::default());
            let mut machine = machine(&disk);
            disk.fail_at(disk.operations() + operation, FailKind::Full);
            let made = machine.build_snapshot().await;
            // Otherwise it was the log that had no room, and that ends the node.
            if disk.has_failed() && machine.has_log() {
                assert!(made.is_ok(), "{:?}", made.err());
                at_stake += 1;
            }
        }
        assert!(at_stake > 0);
    }
}
