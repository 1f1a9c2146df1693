//! What two cores do to one lock at once, step by step: a core is stopped between two of its steps,
//! and another one comes in between. Then the server is killed, and the next one finds what was
//! answered.

use crate::common::{
    Peer, acquire, encode, force_release, granted, hello_for, reentrant, release, start_with, until,
};
use crate::durable::wreck;
use crate::order::{Gate, GatedDisk};
use crate::redis::Redis;
use bytes::BytesMut;
use protocol::{Reply, RequestId};
use server::config::Durability;
use server::{Builder, Pause, Server};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};
use wal::Disk;

/// Of leases and sessions: in `fence`, too, they are written down one by one.
const HOUR_MS: u32 = 3_600_000;

const BOTH: [Durability; 2] = [Durability::Fence, Durability::Lease];

/// Stops one core at one moment, once.
#[derive(Default)]
struct Stop {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    armed: Option<Pause>,
    is_stopped: bool,
    /// A thread was seen that waits for a core to end its turn.
    is_awaited: bool,
    /// The core that had something to write down last.
    core: Option<ThreadId>,
}

/// Lets the core go on when it goes, so that the server can end whatever becomes of the test.
struct Stopped<'a>(&'a Stop);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap();
        state.armed = None;
        state.is_stopped = false;
        self.0.changed.notify_all();
    }
}

impl Stop {
    fn pass(&self, at: Pause) {
        let mut state = self.state.lock().unwrap();
        if at == Pause::AwaitsCores {
            state.is_awaited = true;
            return;
        }
        state.core = Some(thread::current().id());
        if state.armed == Some(at) {
            state.armed = None;
            state.is_stopped = true;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| state.is_stopped));
        }
    }

    /// Has the next core that comes there stop.
    fn arm(&self, at: Pause) -> Stopped<'_> {
        self.state.lock().unwrap().armed = Some(at);
        Stopped(self)
    }

    fn until_stopped(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !state.is_stopped));
    }

    fn forget_awaited(&self) {
        self.state.lock().unwrap().is_awaited = false;
    }

    /// Whether a thread waits for the core that is stopped, and has since that was forgotten.
    fn is_awaited(&self) -> bool {
        self.state.lock().unwrap().is_awaited
    }

    /// The core that does this, which has something to write down.
    fn core_of(&self, act: impl FnOnce()) -> ThreadId {
        act();
        self.state.lock().unwrap().core.expect("it wrote something")
    }

    fn core_of_peer(&self, peer: &mut Peer) -> ThreadId {
        self.core_of(|| {
            let fence = peer.acquire("probe", HOUR_MS);
            assert!(peer.release("probe", fence));
        })
    }
}

fn on(
    directory: &Path,
    durability: Durability,
    disk: Option<Arc<dyn Disk>>,
    stop: &Arc<Stop>,
) -> Server {
    start_with(|builder| {
        let builder = prepared(builder, directory, durability, stop);
        match disk {
            Some(disk) => builder.disk(disk),
            None => builder,
        }
    })
}

fn prepared(
    builder: Builder,
    directory: &Path,
    durability: Durability,
    stop: &Arc<Stop>,
) -> Builder {
    let stop = stop.clone();
    let builder = builder.threads(2).on_pause(move |at| stop.pass(at));
    builder.with(|config| {
        config.data_dir = directory.to_owned();
        config.durability = durability;
        config.redis_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    })
}

/// Two connections of one session on two cores. The system picks the core of a connection, so
/// several are tried.
fn pair(server: &Server, stop: &Stop) -> (Peer, Peer) {
    let mut one = Peer::open(server.local_addr(), hello_for("one", HOUR_MS));
    let core = stop.core_of_peer(&mut one);
    loop {
        let mut other = one.join("other");
        if stop.core_of_peer(&mut other) != core {
            return (one, other);
        }
    }
}

/// A client of the Redis port on another core than this one.
fn redis_elsewhere(server: &Server, stop: &Stop, core: ThreadId) -> Redis<TcpStream> {
    loop {
        let mut redis = Redis::connect(server);
        let its_core = stop.core_of(|| {
            assert_eq!(redis.say("SET probe v"), "OK");
            assert_eq!(redis.number("DEL probe"), 1);
        });
        if its_core != core {
            return redis;
        }
    }
}

/// Whether a record of any kind names this key.
fn is_in_the_log(directory: &Path, key: &str) -> bool {
    let files = std::fs::read_dir(directory).unwrap();
    let mut files = files.map(|file| std::fs::read(file.unwrap().path()).unwrap());
    files.any(|bytes| bytes.windows(key.len()).any(|part| part == key.as_bytes()))
}

/// How often the next server thinks that the session holds a lock.
fn count_after_kill(
    directory: &Path,
    durability: Durability,
    holder: &Peer,
    key: &str,
    fence: u64,
) -> u32 {
    let copy = wreck(directory);
    let server = on(copy.path(), durability, None, &Arc::default());
    let session = holder.session.unwrap();
    let mut holder = Peer::resume(server.local_addr(), "holder", session, 1_000);
    holder.ask(&release(key, fence), |reply| match reply {
        Reply::Released { remaining_count } => remaining_count + 1,
        _ => 0,
    })
}

/// One connection takes a lock once more, another gives one count back. The record of the first
/// stood behind that of the second, and the next server counted one too many.
#[test]
fn counts_stand_in_the_log_in_the_order_in_which_they_were_counted() {
    for moment in [Pause::BeforeCount, Pause::BeforeAppend] {
        for durability in BOTH {
            let directory = tempfile::tempdir().unwrap();
            let stop = Arc::new(Stop::default());
            let server = on(directory.path(), durability, None, &stop);
            let (mut one, mut other) = pair(&server, &stop);
            let fence = one.ask(&reentrant("k", HOUR_MS), granted);

            let stopped = stop.arm(moment);
            let again = one.send(&reentrant("k", HOUR_MS));
            stop.until_stopped();
            other.ask(&release("k", fence), |reply| {
                assert_eq!(reply, Reply::Released { remaining_count: 1 });
            });
            drop(stopped);
            assert_eq!(one.reply(again, granted), fence);

            let count = count_after_kill(directory.path(), durability, &one, "k", fence);
            assert_eq!(count, 1, "{durability:?}, {moment:?}");
        }
    }
}

/// The end of a lock is set on one core, and then on another before the first has appended what its
/// turn wrote down. The record of the first stood behind that of the second, and the next server
/// counted from the wrong one.
#[test]
fn the_end_that_was_set_last_is_the_end_after_a_kill() {
    for durability in BOTH {
        for first in ["SET k v PX 3600000", "PEXPIRE k 3600000"] {
            let directory = tempfile::tempdir().unwrap();
            let stop = Arc::new(Stop::default());
            let server = on(directory.path(), durability, None, &stop);
            let mut one = Redis::connect(&server);
            let core = stop.core_of(|| assert_eq!(one.say("SET k v PX 7200000"), "OK"));
            let mut other = redis_elsewhere(&server, &stop, core);

            let stopped = stop.arm(Pause::BeforeAppend);
            one.send(&first.split(' ').collect::<Vec<_>>());
            stop.until_stopped();
            assert_eq!(other.number("PEXPIRE k 600000"), 1);
            drop(stopped);
            one.read();

            let copy = wreck(directory.path());
            let server = on(copy.path(), durability, None, &Arc::default());
            let left_ms = Redis::connect(&server).number("PTTL k");
            assert!(
                (1..=600_000).contains(&left_ms),
                "{durability:?}, {first}: {left_ms} ms are left"
            );
        }
    }
}

/// A lock is taken away while the core that granted it has not written down that it did.
#[test]
fn a_lock_that_was_taken_away_while_it_was_granted_is_not_back_after_a_kill() {
    const KEY: &str = "taken away at once";
    for (durability, moment) in [
        (Durability::Lease, Pause::BeforeAppend),
        (Durability::Fence, Pause::BeforeAppend),
        (Durability::Fence, Pause::BeforeFollow),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let stop = Arc::new(Stop::default());
        let server = on(directory.path(), durability, None, &stop);
        let (mut one, mut other) = pair(&server, &stop);
        let stopped = stop.arm(moment);
        let asked = one.send(&acquire(KEY, HOUR_MS, 0));
        stop.until_stopped();
        let (fences, _) = other.query(KEY);
        other.ask(&force_release(KEY, fences[0]), |reply| {
            assert!(matches!(reply, Reply::Released { .. }), "{reply:?}");
        });
        drop(stopped);
        assert_eq!(one.reply(asked, granted), fences[0]);

        let count = count_after_kill(directory.path(), durability, &one, KEY, fences[0]);
        assert_eq!(count, 0, "{durability:?}, {moment:?}");
        if moment == Pause::BeforeFollow {
            // The operator was answered without a record of the end. So there is none of the grant,
            // or a kill between the two would bring the lock back.
            assert!(!is_in_the_log(directory.path(), KEY));
        }
    }
}

/// A release comes again on another connection while the turn of its first sending goes on. What
/// is answered there is in the log, or the lock would be back after a kill.
#[test]
fn an_outcome_is_found_when_its_record_is_in_the_log() {
    for moment in [Pause::BeforeCount, Pause::BeforeAppend] {
        let directory = tempfile::tempdir().unwrap();
        let stop = Arc::new(Stop::default());
        let server = on(directory.path(), Durability::Lease, None, &stop);
        let (mut one, mut other) = pair(&server, &stop);
        let fence = one.acquire("k", HOUR_MS);
        let counted = reentrant("counted", HOUR_MS);
        one.ask(&counted, granted);
        let give_back = release("k", fence);
        let id = one.next_id();
        one.start_ids_at(id + 2);
        let mut turn = BytesMut::from(&*encode(id, &give_back));
        if moment == Pause::BeforeCount {
            // A repeat lets others look into the memory of its connection, in the middle of a turn.
            counted.append_repeat(RequestId::new(id + 1), &mut turn);
        }

        let stopped = stop.arm(moment);
        one.send_bytes(&turn);
        stop.until_stopped();
        other.send_as(id, &give_back, true);
        if other.hears_something() {
            let copy = wreck(directory.path());
            let server = on(copy.path(), Durability::Lease, None, &Arc::default());
            let mut observer = Peer::open(server.local_addr(), hello_for("observer", HOUR_MS));
            assert!(!observer.is_held_under("k", fence), "{moment:?}");
        }
        drop(stopped);
        for peer in [&mut one, &mut other] {
            peer.reply(id, |reply| {
                assert_eq!(reply, Reply::Released { remaining_count: 0 });
            });
        }
    }
}

/// An operator takes a long lock away on one core, and a client of the Redis port takes the key on
/// another before the first has written that down. The second wrote it down in its own turn, so the
/// operator was answered before the disk had it.
#[test]
fn an_operator_is_answered_when_the_end_of_a_long_lock_is_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (stop, gate) = (Arc::new(Stop::default()), Arc::new(Gate::default()));
    let disk = GatedDisk::new(directory.path(), gate.clone());
    let server = on(
        directory.path(),
        Durability::Fence,
        Some(Arc::new(disk)),
        &stop,
    );
    let mut operator = Peer::open(server.local_addr(), hello_for("operator", HOUR_MS));
    let core = stop.core_of_peer(&mut operator);
    let [mut redis, mut observer] = [(); 2].map(|()| redis_elsewhere(&server, &stop, core));
    let fence = operator.acquire("k", HOUR_MS);

    let stopped = stop.arm(Pause::BeforeTakenAway);
    let forced = operator.send(&force_release("k", fence));
    stop.until_stopped();
    let closed = gate.close();
    // It takes effect, and is answered when the disk has it, if it has anything to write down.
    redis.send(&["SET", "k", "v", "PX", "10000"]);
    until("the key is taken", || observer.say("GET k") == "v");
    drop(stopped);
    assert!(!operator.hears_something(), "it was answered too early");
    drop(closed);
    operator.reply(forced, |reply| {
        assert!(matches!(reply, Reply::Released { .. }), "{reply:?}");
    });
    assert_eq!(redis.read(), "OK");
    let count = count_after_kill(directory.path(), Durability::Fence, &operator, "k", fence);
    assert_eq!(count, 0);
}

/// The newest snapshot that there is. Their names are in the order of their beginnings.
fn newest_snapshot(directory: &Path) -> Option<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("snapshot-")).max()
}

/// Has the server write so much that it wants snapshots, until one waits for the core that is
/// stopped, or was finished without it.
fn write_until_a_snapshot_waits(redis: &mut Redis<TcpStream>, directory: &Path, stop: &Stop) {
    stop.forget_awaited();
    // The first may have been begun before.
    for _ in 0..2 {
        let before = newest_snapshot(directory);
        until("a snapshot waits for the core, or has come", || {
            assert_eq!(redis.say("SET filler v"), "OK");
            assert_eq!(redis.number("DEL filler"), 1);
            stop.is_awaited() || newest_snapshot(directory) != before
        });
    }
}

/// A core has granted a lock and not written that down, and another core has written down its end.
/// A snapshot that did not wait for the first core forgot the end with the log before it, and the
/// grant came behind.
#[test]
fn a_snapshot_waits_for_a_core_that_has_not_written_down_what_it_decided() {
    let directory = tempfile::tempdir().unwrap();
    let stop = Arc::new(Stop::default());
    let server = start_with(|builder| {
        let builder = prepared(builder, directory.path(), Durability::Lease, &stop);
        builder.snapshot_every(1)
    });
    let mut one = Peer::open(server.local_addr(), hello_for("one", HOUR_MS));
    let core = stop.core_of_peer(&mut one);
    let mut redis = redis_elsewhere(&server, &stop, core);

    let stopped = stop.arm(Pause::BeforeAppend);
    let asked = one.send(&acquire("k", HOUR_MS, 0));
    stop.until_stopped();
    assert_eq!(redis.number("DEL k"), 1);
    write_until_a_snapshot_waits(&mut redis, directory.path(), &stop);
    drop(stopped);
    let fence = one.reply(asked, granted);

    let count = count_after_kill(directory.path(), Durability::Lease, &one, "k", fence);
    assert_eq!(count, 0);
}
