//! What is answered is on the disk, in an order from which the next server draws the same
//! conclusions.

use crate::common::{
    LONG_MS, Peer, acquire, encode, granted, hello_for, release, start_with, until,
};
use crate::durable::wreck;
use crate::redis::Redis;
use protocol::{Reply, Request};
use server::Server;
use server::config::Durability;
use std::collections::HashSet;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use wal::{DirDisk, Disk, DiskFile};

/// Long enough that no session of a test is kept alive by a record of its own meanwhile.
const SESSION_MS: u32 = 3_600_000;

fn on(directory: &Path, disk: Option<Arc<dyn Disk>>) -> Server {
    start_with(|builder| {
        let builder = builder.threads(2).with(|config| {
            config.data_dir = directory.to_owned();
            config.durability = Durability::Lease;
            config.redis_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        });
        match disk {
            Some(disk) => builder.disk(disk),
            None => builder,
        }
    })
}

/// A key is taken at the beginning of a long turn of one core, and deleted meanwhile through
/// another core. The record of the `DEL` stood in the log before that of the grant, was ignored by
/// replay, and the lock was back, often without an end.
#[test]
fn a_lock_whose_deletion_was_answered_is_not_back_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), None);
    let deleted = race(&server);
    assert_eq!(deleted.len(), KEYS);
    let copy = wreck(directory.path());
    drop(server);

    let server = on(copy.path(), None);
    let mut redis = Redis::connect(&server);
    let back = deleted
        .iter()
        .filter(|key| redis.number(&format!("EXISTS {key}")) == 1);
    assert_eq!(back.collect::<Vec<_>>(), Vec::<&String>::new());
}

const KEYS: usize = 60;
/// Makes a turn long.
const PINGS: usize = 1_500;
/// The system picks the core of a connection. With several of each kind, some meet on two cores.
const GRANTED: usize = 4;
const DELETERS: usize = 3;

/// Takes every key at the beginning of a long turn, half of them by each protocol, while others
/// delete it. The keys whose deletion was answered.
fn race(server: &Server) -> HashSet<String> {
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let deleted: Mutex<HashSet<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..DELETERS {
            scope.spawn(|| {
                let mut redis = Redis::connect(server);
                while !is_over.load(Ordering::Relaxed) {
                    let key = format!("k{}", next.load(Ordering::Relaxed));
                    if redis.number(&format!("DEL {key}")) == 1 {
                        deleted.lock().unwrap().insert(key);
                    }
                }
            });
        }
        let mut redis: Vec<_> = (0..GRANTED).map(|_| Redis::connect(server)).collect();
        let native = |_| Peer::open(server.local_addr(), hello_for("holder", SESSION_MS));
        let mut native: Vec<Peer> = (0..GRANTED).map(native).collect();
        for number in 0..KEYS {
            let key = format!("k{number}");
            next.store(number, Ordering::Relaxed);
            match number % 2 {
                0 => take_by_redis(&mut redis[number / 2 % GRANTED], &key),
                _ => take_by_native(&mut native[number / 2 % GRANTED], &key),
            }
            until("it is deleted", || deleted.lock().unwrap().contains(&key));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    deleted.into_inner().unwrap()
}

fn take_by_redis(redis: &mut Redis<TcpStream>, key: &str) {
    let length = key.len();
    let set = format!("*4\r\n$3\r\nSET\r\n${length}\r\n{key}\r\n$1\r\nt\r\n$2\r\nNX\r\n");
    let bytes = [set.into_bytes(), b"*1\r\n$4\r\nPING\r\n".repeat(PINGS)].concat();
    redis.stream.get_mut().write_all(&bytes).unwrap();
    assert_eq!(redis.read(), "OK");
    (0..PINGS).for_each(|_| assert_eq!(redis.read(), "PONG"));
}

fn take_by_native(peer: &mut Peer, key: &str) {
    let id = peer.next_id();
    let mut bytes = encode(id, &acquire(key, LONG_MS, 0));
    for ping in 1..=PINGS as u64 {
        bytes.extend(encode(id + ping, &Request::Ping));
    }
    peer.start_ids_at(id + PINGS as u64 + 1);
    peer.send_bytes(&bytes);
    peer.reply(id, granted);
    for ping in 1..=PINGS as u64 {
        peer.reply(id + ping, |reply| assert_eq!(reply, Reply::Pong));
    }
}

/// A request comes again on another connection of the session while the record of its first sending
/// is not on the disk. It was answered at once from memory: a kill in this moment took back a grant
/// and a release that had been acknowledged.
#[test]
fn a_repeated_answer_waits_for_the_disk_as_the_first_one_did() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let disk = GatedDisk::new(directory.path(), gate.clone());
    let server = on(directory.path(), Some(Arc::new(disk)));
    let mut peer = Peer::open(server.local_addr(), hello_for("peer", SESSION_MS));
    // One each: on one connection the second answer would leave behind the first.
    let [mut takes, mut gives] = [(); 2].map(|()| peer.join("sibling"));
    let mut observer = Peer::open(server.local_addr(), hello_for("observer", SESSION_MS));
    let given_back = peer.acquire("given back", LONG_MS);
    let (take, give) = (acquire("k", LONG_MS, 0), release("given back", given_back));

    let closed = gate.close();
    let (take_id, give_id) = (peer.send(&take), peer.send(&give));
    until("both have taken effect", || {
        let is_held = observer.is_held_under("given back", given_back);
        !is_held && !observer.query("k").0.is_empty()
    });
    takes.send_as(take_id, &take, true);
    gives.send_as(give_id, &give, true);
    until("both were decided again", || {
        observer.stat("repeats_answered_total") == 2
    });
    assert!(!takes.hears_something(), "a grant was told too early");
    assert!(!gives.hears_something(), "a release was told too early");

    drop(closed);
    let fence = takes.reply(take_id, granted);
    gives.reply(give_id, |reply| {
        assert_eq!(reply, Reply::Released { remaining_count: 0 });
    });
    let copy = wreck(directory.path());
    let server = on(copy.path(), None);
    let mut observer = Peer::connect(server.local_addr(), "observer");
    assert!(observer.is_held_under("k", fence));
    assert!(observer.query("given back").0.is_empty());
}

impl Peer {
    /// Whether something comes within a moment. That nothing does is right however long the moment
    /// is.
    pub(crate) fn hears_something(&mut self) -> bool {
        let moment = Some(Duration::from_millis(200));
        let patience = self.stream.read_timeout().unwrap();
        self.stream.set_read_timeout(moment).unwrap();
        let heard = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(patience).unwrap();
        match heard {
            Ok(_) => true,
            Err(error) => {
                assert!(matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut
                ));
                false
            }
        }
    }
}

/// Where writes and syncs of a disk wait while it is closed.
#[derive(Default)]
pub(crate) struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

/// Opens the gate when it goes, so that a server behind it can end whatever becomes of the test.
pub(crate) struct Closed(Arc<Gate>);

impl Drop for Closed {
    fn drop(&mut self) {
        *self.0.is_closed.lock().unwrap() = false;
        self.0.changed.notify_all();
    }
}

impl Gate {
    pub(crate) fn close(self: &Arc<Self>) -> Closed {
        *self.is_closed.lock().unwrap() = true;
        Closed(self.clone())
    }

    fn pass(&self) {
        let is_closed = self.is_closed.lock().unwrap();
        let passed = self.changed.wait_while(is_closed, |is_closed| *is_closed);
        drop(passed.unwrap());
    }
}

pub(crate) struct GatedDisk {
    inner: DirDisk,
    gate: Arc<Gate>,
    /// Of which files.
    is_gated: fn(&str) -> bool,
}

/// What a snapshot is called while it is written.
pub(crate) const UNFINISHED: &str = "unfinished.wal";

impl GatedDisk {
    pub(crate) fn new(directory: &Path, gate: Arc<Gate>) -> Self {
        GatedDisk {
            inner: DirDisk::open(directory).unwrap(),
            gate,
            is_gated: |_| true,
        }
    }

    /// One on which only snapshots wait.
    pub(crate) fn of_snapshots(directory: &Path, gate: Arc<Gate>) -> Self {
        GatedDisk {
            is_gated: |name| name == UNFINISHED,
            ..GatedDisk::new(directory, gate)
        }
    }

    fn gated(&self, name: &str, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        if !(self.is_gated)(name) {
            return file;
        }
        let gate = self.gate.clone();
        Box::new(GatedFile { inner: file, gate })
    }
}

impl Disk for GatedDisk {
    fn dir(&self) -> &Path {
        self.inner.dir()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.inner.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn open_read(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.inner.open_read(name)
    }

    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.gated(name, self.inner.open_write(name)?))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.gated(name, self.inner.create(name, bytes)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.inner.sync_dir()
    }
}

struct GatedFile {
    inner: Box<dyn DiskFile>,
    gate: Arc<Gate>,
}

impl DiskFile for GatedFile {
    fn bytes(&self) -> io::Result<u64> {
        self.inner.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.gate.pass();
        self.inner.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass();
        self.inner.sync_data()
    }
}
