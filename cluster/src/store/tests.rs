use super::*;
use crate::types::{Member, Membership};
use openraft::type_config::TypeConfigExt;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use wal::forgetful::ForgetfulDisk;

/// A node's log on a disk that forgets.
pub(crate) fn open(disk: &Arc<ForgetfulDisk>) -> (Store, GroupLog) {
    open_with(disk, &wal::Options::new(wal::Scope::Leases, 1))
}

fn open_with(disk: &Arc<ForgetfulDisk>, options: &wal::Options) -> (Store, GroupLog) {
    let (opened, mut found) = wal::open_node_on(disk.clone(), options).unwrap();
    let (listener, waiting) = Store::listener(Arc::new(|error| panic!("{error}")));
    let wal = Arc::new(opened.start(listener).unwrap());
    let mut group = found.groups.remove(&0).unwrap_or_default();
    let image = std::mem::take(&mut group.image);
    let store = Store::new(0, wal, waiting, &mut group).unwrap();
    group.image = image;
    (store, group)
}

pub(crate) fn id(term: u64, index: u64) -> LogId {
    LogId::new(LeaderId { term, node_id: 1 }, index)
}

fn entry(term: u64, index: u64, bytes: usize) -> Entry {
    Entry {
        log_id: id(term, index),
        payload: Payload::Normal(Command(Bytes::from(vec![index as u8; bytes]))),
    }
}

async fn append(store: &mut Store, entries: Vec<Entry>) {
    let (done, is_done) = Types::oneshot();
    store
        .append(entries, IOFlushed::signal(done))
        .await
        .unwrap();
    is_done.await.unwrap().unwrap();
}

async fn all(store: &mut Store) -> Vec<Entry> {
    store.try_get_log_entries(..).await.unwrap()
}

#[tokio::test]
async fn what_was_flushed_is_found_after_a_crash_as_it_was() {
    let disk = Arc::new(ForgetfulDisk::default());
    let vote = Vote {
        leader_id: LeaderId {
            term: 3,
            node_id: 2,
        },
        committed: true,
    };
    let voters = vec![BTreeSet::from([1])];
    let nodes = BTreeMap::from([(1, Member::default())]);
    let membership = Entry {
        log_id: id(1, 2),
        payload: Payload::Membership(Membership::new(voters, nodes).unwrap()),
    };
    let (mut store, _) = open(&disk);
    store.save_vote(&vote).await.unwrap();
    append(
        &mut store,
        vec![entry(1, 0, 10), entry(1, 1, 100_000), membership],
    )
    .await;
    append(&mut store, vec![entry(1, 3, 1), entry(1, 4, 1)]).await;
    store.truncate_after(Some(id(1, 2))).await.unwrap();
    append(&mut store, vec![entry(3, 3, 5)]).await;
    let before = all(&mut store).await;
    drop(store);
    let (mut store, _) = open(&disk);
    assert_eq!(all(&mut store).await, before);
    assert_eq!(store.read_vote().await.unwrap(), Some(vote));
    store.purge(id(1, 1)).await.unwrap();
    append(&mut store, vec![entry(3, 4, 5)]).await;
    drop(store);
    let (mut store, _) = open(&disk);
    let state = store.get_log_state().await.unwrap();
    assert_eq!(state.last_purged_log_id, Some(id(1, 1)));
    assert_eq!(state.last_log_id, Some(id(3, 4)));
    assert_eq!(all(&mut store).await.len(), 3);
}

#[tokio::test]
async fn a_snapshot_takes_the_place_of_the_log_before_it() {
    let disk = Arc::new(ForgetfulDisk::default());
    let (mut store, _) = open(&disk);
    append(
        &mut store,
        (0..50).map(|index| entry(1, index, 5_000)).collect(),
    )
    .await;
    let image = [Bytes::from(vec![7; 5_000]), Bytes::from_static(b"end")];
    store.purge(id(1, 39)).await.unwrap();
    let writer = store.clone();
    let written = tokio::task::spawn_blocking(move || {
        writer.write_snapshot(4, 5, Some(id(1, 39)), &image, 1)
    });
    written.await.unwrap().unwrap();
    append(&mut store, vec![entry(1, 50, 5_000)]).await;
    let before = all(&mut store).await;
    assert_eq!(before.len(), 11);
    drop(store);
    let (mut store, found) = open(&disk);
    assert_eq!(all(&mut store).await, before);
    assert_eq!(found.image.len(), 5_003);
    assert_eq!(found.image[5_000..], *b"end");
}

/// A follower kept 7 KiB for an entry of 800 bytes while it could not make its log shorter.
#[tokio::test]
async fn an_entry_does_not_keep_the_buffer_that_it_was_received_in() {
    let disk = Arc::new(ForgetfulDisk::default());
    let (mut store, _) = open(&disk);
    let received = Bytes::from(vec![7; 100_000]);
    let part = Entry {
        log_id: id(1, 0),
        payload: Payload::Normal(Command(received.slice(50..60))),
    };
    append(&mut store, vec![part]).await;
    assert!(received.is_unique(), "the log has a part of it");
    assert_eq!(all(&mut store).await, [entry_of(&[7; 10])]);
}

/// Counts the bytes of the buffers that are still there.
struct Received {
    bytes: Vec<u8>,
    alive: Arc<AtomicUsize>,
}

impl Received {
    fn buffer(bytes: usize, alive: &Arc<AtomicUsize>) -> Bytes {
        alive.fetch_add(bytes, Ordering::Relaxed);
        Bytes::from_owner(Received {
            bytes: vec![7; bytes],
            alive: alive.clone(),
        })
    }
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.alive.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// However entries come and go, the log has their bytes in memory and nothing else.
#[tokio::test]
async fn the_log_in_memory_is_as_large_as_its_entries() {
    const BUFFER_BYTES: usize = 64 << 10;
    let disk = Arc::new(ForgetfulDisk::default());
    let (mut store, _) = open(&disk);
    let alive = Arc::new(AtomicUsize::new(0));
    let mut next = 0;
    for round in 1..=20_u64 {
        for _ in 0..50 {
            let received = Received::buffer(BUFFER_BYTES, &alive);
            let entries = (0..4).map(|part| Entry {
                log_id: id(round, next + part),
                payload: Payload::Normal(Command(received.slice(..100 + part as usize))),
            });
            append(&mut store, entries.collect()).await;
            next += 4;
        }
        next -= 10;
        let last = id(round, next - 1);
        store.truncate_after(Some(last)).await.unwrap();
        store.purge(id(round, next - 51)).await.unwrap();
        let entries = all(&mut store).await;
        let payloads = entries.iter().map(|entry| &entry.payload);
        let bytes: usize = payloads.map(codec::payload_bytes).sum();
        assert_eq!((entries.len(), store.bytes()), (50, bytes as u64));
        assert_eq!(alive.load(Ordering::Relaxed), 0, "bytes that were received");
    }
}

/// Each snapshot makes room of the log before it, and its files are used again.
#[tokio::test]
async fn a_log_that_works_for_long_takes_little_room_on_the_disk() {
    /// The log since a snapshot, as many files that the one before it set free, and the snapshot.
    const DISK_BYTES_MAX: usize = 768 << 10;
    const SNAPSHOTS: u64 = 40;
    const ENTRIES: u64 = 100;
    const ENTRY_BYTES: usize = 1_000;
    let disk = Arc::new(ForgetfulDisk::default());
    let mut options = wal::Options::new(wal::Scope::Leases, 1);
    options.segment_bytes = 64 << 10;
    let (mut store, _) = open_with(&disk, &options);
    for round in 0..SNAPSHOTS {
        let indexes = round * ENTRIES..(round + 1) * ENTRIES;
        for index in indexes.clone() {
            append(&mut store, vec![entry(1, index, ENTRY_BYTES)]).await;
        }
        let covered = id(1, indexes.end - 11);
        store.purge(covered).await.unwrap();
        let writer = store.clone();
        let image = [Bytes::from(vec![7; 5_000])];
        let written = tokio::task::spawn_blocking(move || {
            writer.write_snapshot(4, 5, Some(covered), &image, 1)
        });
        written.await.unwrap().unwrap();
        let names = disk.names();
        let bytes: usize = names.iter().map(|name| disk.read(name).len()).sum();
        assert!(bytes < DISK_BYTES_MAX, "{bytes}: {names:?}");
    }
    let logged = (SNAPSHOTS * ENTRIES) as usize * ENTRY_BYTES;
    assert!(logged > 4 * DISK_BYTES_MAX, "too little to show anything");
}

fn entry_of(command: &'static [u8]) -> Entry {
    Entry {
        log_id: id(1, 0),
        payload: Payload::Normal(Command(Bytes::from_static(command))),
    }
}

#[tokio::test]
async fn messages_to_followers_are_bounded() {
    let disk = Arc::new(ForgetfulDisk::default());
    let (mut store, _) = open(&disk);
    append(
        &mut store,
        (0..40).map(|index| entry(1, index, 65_536)).collect(),
    )
    .await;
    let sent = store.limited_get_log_entries(0, 40).await.unwrap();
    assert_eq!(sent.len(), 16);
    assert!(
        store
            .limited_get_log_entries(5, 5)
            .await
            .unwrap()
            .is_empty()
    );
}
