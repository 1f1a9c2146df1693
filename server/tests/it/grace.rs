//! How long a crash keeps new locks from being granted: never less than unknown leases may live,
//! never more than `grace_max`, and whatever happens in between.

use crate::common::{
    Peer, acquire, force_release, granted, hello_for, not_held, reentrant, release, renew,
    session_bound, start_with, until,
};
use crate::durable::{claim, on, recovering_ms, wreck};
use crate::http::{free_port, get};
use crate::order::{Gate, GatedDisk, UNFINISHED};
use protocol::{NotHeldReason, Reply, Request};
use server::Server;
use server::config::Durability;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Longer than any grace period.
const HOUR_MS: u32 = 3_600_000;

const FENCE: Durability = Durability::Fence;
const LEASE: Durability = Durability::Lease;

/// A killed server in `fence` that has left a lease of this length to its horizon.
fn crashed_with(ttl_ms: u32) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), FENCE);
    Peer::connect(server.local_addr(), "holder").acquire("k", ttl_ms);
    wreck(directory.path())
}

fn grace_ms(server: &Server) -> Option<u32> {
    recovering_ms(&mut Peer::connect(server.local_addr(), "asks"), "anything")
}

/// Waits in line until the grace period is over.
fn outlast_grace(server: &Server) -> Peer {
    let mut peer = Peer::connect(server.local_addr(), "waits");
    peer.ask(
        &acquire("first after the grace period", 100, HOUR_MS),
        granted,
    );
    peer
}

/// A server that takes a snapshot whenever its log has grown.
fn with_snapshots(directory: &Path, durability: Durability) -> Server {
    start_with(|builder| {
        builder.snapshot_every(1).with(|config| {
            config.data_dir = directory.to_owned();
            config.durability = durability;
        })
    })
}

/// Its name. One that is not finished has another name.
fn latest_snapshot(directory: &Path) -> Option<String> {
    let names = std::fs::read_dir(directory).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("snapshot")).max()
}

fn is_held(peer: &mut Peer, key: &str) -> bool {
    peer.ask(&acquire(key, 100, 0), |reply| match reply {
        Reply::Refused(_) => true,
        Reply::Granted { .. } => false,
        other => panic!("{other:?}"),
    })
}

/// A server in `lease` took over from a killed one in `fence`, was stopped while it still waited
/// for claims, and its successor granted what was held: it thought that a server in `lease` leaves
/// nothing unknown.
#[test]
fn a_grace_period_outlives_the_servers_that_stop_in_it() {
    for (second, third) in [
        (LEASE, LEASE),
        (LEASE, FENCE),
        (FENCE, LEASE),
        (FENCE, FENCE),
    ] {
        let left = crashed_with(20_000);
        let server = on(left.path(), second);
        assert!(grace_ms(&server).is_some(), "{second:?}");
        let killed = wreck(left.path());
        server.shutdown();
        for (how, directory) in [("stopped", left.path()), ("killed", killed.path())] {
            let server = on(directory, third);
            let left_ms = grace_ms(&server);
            assert!(
                left_ms.is_some_and(|left_ms| left_ms > 10_000),
                "{second:?} was {how} in its grace period, then {third:?}: {left_ms:?}"
            );
        }
    }
}

#[test]
fn a_clean_stop_leaves_nothing_for_a_grace_period() {
    let left = crashed_with(1_500);
    let server = on(left.path(), FENCE);
    drop(outlast_grace(&server));
    server.shutdown();
    for durability in [FENCE, LEASE] {
        let server = on(left.path(), durability);
        assert_eq!(grace_ms(&server), None, "{durability:?}");
        server.shutdown();
    }
}

/// One lease of an hour, given back long ago, made the next crash an hour without locks.
#[test]
fn a_long_lease_makes_no_long_grace_period() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), FENCE);
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let fence = holder.acquire("given back", HOUR_MS);
    assert!(holder.release("given back", fence));
    holder.acquire("held", HOUR_MS);
    assert!(holder.stat("crash_grace_seconds") <= 30);
    let left = wreck(directory.path());
    drop(server);
    let server = on(left.path(), FENCE);
    assert!(grace_ms(&server).is_none_or(|left_ms| left_ms <= 30_000));
    let mut other = outlast_grace(&server);
    assert!(!is_held(&mut other, "given back"));
    assert!(is_held(&mut other, "held"));
}

/// What an operator reads before a crash is what the crash then costs, in each mode.
#[test]
fn what_a_crash_would_cost_is_told_before_it_happens() {
    for (durability, costs) in [(FENCE, true), (LEASE, false)] {
        let directory = tempfile::tempdir().unwrap();
        let server = start_with(|builder| {
            builder.http(free_port()).with(|config| {
                config.data_dir = directory.path().to_owned();
                config.durability = durability;
            })
        });
        let mut holder = Peer::connect(server.local_addr(), "holder");
        holder.acquire("k", 20_000);
        let told_s = holder.stat("crash_grace_seconds");
        assert_eq!(told_s > 10, costs, "{durability:?}: {told_s}");
        let page = get(&server, "/metrics").body;
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix("fencepost_crash_grace_seconds "));
        let metric_s: f64 = line.expect("it is there").parse().unwrap();
        assert_eq!(metric_s > 10.0, costs, "{durability:?}: {metric_s}");

        let left = wreck(directory.path());
        drop(server);
        let server = on(left.path(), durability);
        let cost_ms = grace_ms(&server);
        assert_eq!(cost_ms.is_some(), costs, "{durability:?}");
        let cost_s = u64::from(cost_ms.unwrap_or(0)).div_ceil(1_000);
        assert!(cost_s <= told_s, "{cost_s} s, and {told_s} s were told");
        // It waits for leases of the life before. Another crash would cost what is left of that.
        let mut other = Peer::connect(server.local_addr(), "other");
        assert_eq!(other.stat("crash_grace_seconds") > 5, costs);
    }
}

#[test]
fn a_grace_period_is_not_longer_than_grace_max() {
    let directory = tempfile::tempdir().unwrap();
    let short = |directory: &Path| {
        start_with(|builder| {
            builder.with(|config| {
                config.data_dir = directory.to_owned();
                config.durability = FENCE;
                config.grace_max = Duration::from_secs(1);
            })
        })
    };
    let server = short(directory.path());
    let mut holder = Peer::connect(server.local_addr(), "holder");
    holder.acquire("short", 1_000);
    let long = holder.acquire("long", 1_001);
    assert_eq!(holder.stat("long_leases"), 1);
    let left = wreck(directory.path());
    drop(server);
    let server = short(left.path());
    assert!(grace_ms(&server).is_none_or(|left_ms| left_ms <= 1_000));
    // The long one is known, and may be over by now; the short one is not.
    let mut other = Peer::connect(server.local_addr(), "other");
    let (fences, _) = other.query("long");
    assert!(fences.is_empty() || fences == [long], "{fences:?}");
}

/// What becomes of a long lease is written down in `fence`, too: each of these was answered, then
/// the server was killed.
#[test]
fn a_long_lease_survives_a_kill_as_it_was_last_answered() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), FENCE);
    let mut holder = Peer::open(server.local_addr(), hello_for("holder", HOUR_MS));
    let mut operator = Peer::connect(server.local_addr(), "operator");
    let held = holder.acquire("held", HOUR_MS);
    let bound = holder.ask(&session_bound("bound", 0), granted);
    let grown = holder.acquire("made long by a renewal", 1_000);
    let renewed = |reply: Reply<'_>| assert!(matches!(reply, Reply::Renewed { .. }), "{reply:?}");
    holder.ask(&renew("made long by a renewal", grown, HOUR_MS), renewed);
    let shrunk = holder.acquire("made short by a renewal", HOUR_MS);
    holder.ask(&renew("made short by a renewal", shrunk, 1), renewed);
    holder.ask(&reentrant("twice", HOUR_MS), granted);
    let twice = holder.ask(&reentrant("twice", HOUR_MS), granted);
    assert!(holder.release("twice", twice));
    let forced = holder.acquire("forced", HOUR_MS);
    operator.ask(&force_release("forced", forced), |reply| {
        assert!(matches!(reply, Reply::Released { .. }), "{reply:?}");
    });
    let handed = holder.acquire("handed on", HOUR_MS);
    let mut waiter = Peer::open(server.local_addr(), hello_for("waiter", HOUR_MS));
    let waits = waiter.send(&acquire("handed on", HOUR_MS, HOUR_MS));
    waiter.ping();
    assert!(holder.release("handed on", handed));
    let handed = waiter.reply(waits, granted);
    let session = holder.session.unwrap();
    let left = wreck(directory.path());
    drop(server);

    let server = on(left.path(), FENCE);
    let mut other = outlast_grace(&server);
    for (key, fence) in [
        ("held", held),
        ("bound", bound),
        ("made long by a renewal", grown),
        // Of two ends in the log the later one counts: it may be held longer than was answered,
        // never shorter.
        ("made short by a renewal", shrunk),
        ("twice", twice),
        ("handed on", handed),
    ] {
        assert!(other.is_held_under(key, fence), "{key}");
    }
    assert!(!is_held(&mut other, "forced"));
    let mut holder = Peer::resume(server.local_addr(), "holder", session, 1_000);
    assert!(holder.is_resumed);
    assert!(holder.release("twice", twice), "one count was left");
    assert!(!is_held(&mut other, "twice"));
    // And again: what this server found is as durable as what it granted.
    holder.ask(&Request::Ping, |_| ());
    let left = wreck(left.path());
    drop(server);
    let server = on(left.path(), FENCE);
    let mut other = outlast_grace(&server);
    assert!(other.is_held_under("held", held));
    assert!(!is_held(&mut other, "twice"));
}

/// Also in `fence`, and before the sync there is no answer that a kill could take back.
#[test]
fn what_becomes_of_a_long_lease_is_answered_when_the_disk_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let disk = GatedDisk::new(directory.path(), gate.clone());
    let server = start_with(|builder| {
        let builder = builder.disk(Arc::new(disk));
        builder.with(|config| {
            config.data_dir = directory.path().to_owned();
            config.durability = FENCE;
        })
    });
    let mut holder = Peer::open(server.local_addr(), hello_for("holder", HOUR_MS));
    let mut ask_behind_gate = |request: &Request<'_>| {
        let closed = gate.close();
        let id = holder.send(request);
        let is_early = holder.hears_something();
        assert!(!is_early, "{request:?} was answered too early");
        drop(closed);
        holder.reply(id, |reply| match reply {
            Reply::Granted { fence, .. } => fence.get(),
            Reply::Renewed { .. } | Reply::Released { .. } => 0,
            other => panic!("{other:?}"),
        })
    };
    let fence = ask_behind_gate(&acquire("k", HOUR_MS, 0));
    ask_behind_gate(&renew("k", fence, HOUR_MS));
    ask_behind_gate(&release("k", fence));
}

/// When the lease and its session end, as the log of a server in `fence` has it that is killed at
/// this moment.
fn ends_in_the_log(directory: &Path) -> (Option<u64>, Option<u64>) {
    let left = wreck(directory);
    let options = wal::Options::new(wal::Scope::Fences, 0);
    let (_, recovered) = wal::open(left.path(), &options).unwrap();
    let lease = recovered.leases.iter().next();
    let session = recovered.sessions.first();
    (
        lease.map(|lease| lease.until_unix_ms),
        session.map(|session| session.deadline_unix_ms),
    )
}

/// A renewal of a lease that was long before, a sign of life of its session and the session's end.
#[test]
fn a_long_lease_and_its_session_are_followed_to_their_ends() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), FENCE);
    let mut holder = Peer::open(server.local_addr(), hello_for("holder", HOUR_MS));
    let fence = holder.acquire("k", HOUR_MS);
    let (lease, session) = ends_in_the_log(directory.path());
    let (lease, session) = (lease.expect("it is long"), session.expect("the lease's"));
    holder.ask(&renew("k", fence, 2 * HOUR_MS), |reply| {
        assert!(matches!(reply, Reply::Renewed { .. }), "{reply:?}");
    });
    let (renewed, _) = ends_in_the_log(directory.path());
    assert!(renewed >= Some(lease + u64::from(HOUR_MS)), "{renewed:?}");
    until("the session ends later", || {
        holder.ask(&Request::KeepAlive, |reply| {
            assert!(matches!(reply, Reply::KeptAlive { .. }), "{reply:?}");
        });
        ends_in_the_log(directory.path()).1 > Some(session)
    });
    holder.ask(&Request::Goodbye, |reply| assert_eq!(reply, Reply::Bye));
    assert_eq!(ends_in_the_log(directory.path()), (None, None));
}

/// A lease that was found at the start, and was not a long one for the server that wrote it down.
#[test]
fn a_long_lease_that_was_found_is_followed_from_then_on() {
    for stops_cleanly in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let server = on(directory.path(), LEASE);
        let mut holder = Peer::open(server.local_addr(), hello_for("holder", HOUR_MS));
        let held = holder.acquire("held", HOUR_MS);
        let released = holder.acquire("released", HOUR_MS);
        let session = holder.session.unwrap();
        let left = wreck(directory.path());
        let found = match stops_cleanly {
            true => {
                server.shutdown();
                directory.path()
            }
            false => left.path(),
        };
        let server = on(found, FENCE);
        let mut holder = Peer::resume(server.local_addr(), "holder", session, 1_000);
        assert!(holder.release("released", released));
        let left = wreck(found);
        drop(server);
        let server = on(left.path(), FENCE);
        let mut other = outlast_grace(&server);
        assert!(other.is_held_under("held", held), "{stops_cleanly}");
        assert!(!is_held(&mut other, "released"), "{stops_cleanly}");
    }
}

/// Snapshots drop the log before them, so they must have what it said of long leases and of the
/// horizon.
#[test]
fn snapshots_in_fence_keep_long_leases_and_the_horizon() {
    let directory = tempfile::tempdir().unwrap();
    let server = with_snapshots(directory.path(), FENCE);
    let mut holder = Peer::open(server.local_addr(), hello_for("holder", HOUR_MS));
    let long = holder.acquire("long", HOUR_MS);
    holder.acquire("short", 20_000);
    let mut number = 0;
    for _ in 0..2 {
        let before = latest_snapshot(directory.path());
        until("another snapshot", || {
            number += 1;
            holder.acquire(&format!("log/{number}"), HOUR_MS);
            latest_snapshot(directory.path()) > before
        });
    }
    let left = wreck(directory.path());
    drop(server);
    let server = on(left.path(), FENCE);
    assert!(grace_ms(&server).is_some_and(|left_ms| left_ms > 10_000));
    let mut other = Peer::connect(server.local_addr(), "other");
    assert!(other.is_held_under("long", long));
}

/// One thread did both: while it wrote a snapshot of ten million leases, it raised no ceilings, and
/// the locks whose fences had reached theirs were not granted.
#[test]
fn ceilings_are_raised_while_a_snapshot_is_written() {
    let left = crashed_with(100);
    let gate = Arc::new(Gate::default());
    let closed_before = gate.close();
    let disk = GatedDisk::of_snapshots(left.path(), gate);
    let server = start_with(|builder| {
        let builder = builder.snapshot_every(1).disk(Arc::new(disk));
        builder.with(|config| {
            config.data_dir = left.path().to_owned();
            config.durability = FENCE;
        })
    });
    // Goes before the server, which waits for its snapshot when it ends.
    let closed = closed_before;
    until("a snapshot is begun", || {
        left.path().join(UNFINISHED).exists()
    });
    // The first fences lie above the first ceilings.
    until("locks are granted", || grace_ms(&server).is_none());
    assert!(
        left.path().join(UNFINISHED).exists(),
        "it waits all the time"
    );
    drop(closed);
}

/// A horizon was on the disk, a snapshot was taken before the core that had asked for it heard of
/// that, and dropped the record. The snapshot had the horizon that the core knew, a lower one.
#[test]
fn a_snapshot_has_a_horizon_that_no_core_has_heard_of_yet() {
    let directory = tempfile::tempdir().unwrap();
    let is_armed = Arc::new(AtomicBool::new(false));
    let server = start_with(|builder| {
        let (is_armed, data_dir) = (is_armed.clone(), directory.path().to_owned());
        let builder = builder.snapshot_every(1).late_acks(move || {
            if is_armed.swap(false, Ordering::SeqCst) {
                let before = latest_snapshot(&data_dir);
                until("a snapshot between a sync and its acknowledgement", || {
                    latest_snapshot(&data_dir) > before
                });
            }
        });
        builder.with(|config| {
            config.data_dir = directory.path().to_owned();
            config.durability = FENCE;
        })
    });
    let mut holder = Peer::open(server.local_addr(), hello_for("holder", HOUR_MS));
    is_armed.store(true, Ordering::SeqCst);
    holder.acquire("short", 20_000);
    assert!(!is_armed.load(Ordering::SeqCst), "it waited for a sync");
    let left = wreck(directory.path());
    drop(server);
    let server = on(left.path(), FENCE);
    let left_ms = grace_ms(&server);
    assert!(
        left_ms.is_some_and(|left_ms| left_ms > 10_000),
        "{left_ms:?}"
    );
}

/// The horizon that a grace period waits for was written by a server before. A snapshot taken
/// meanwhile drops that record, and must say the same.
#[test]
fn a_snapshot_in_a_grace_period_keeps_the_horizon_of_the_servers_before() {
    for durability in [FENCE, LEASE] {
        let left = crashed_with(20_000);
        assert_eq!(latest_snapshot(left.path()), None);
        let server = with_snapshots(left.path(), durability);
        until("a snapshot", || latest_snapshot(left.path()).is_some());
        let killed = wreck(left.path());
        drop(server);
        let server = on(killed.path(), durability);
        let left_ms = grace_ms(&server);
        assert!(
            left_ms.is_some_and(|left_ms| left_ms > 10_000),
            "{durability:?}: {left_ms:?}"
        );
    }
}

/// An operator takes a lock away that was claimed, or known from the log, before the grace period
/// is over. Its end is final, so a holder that claims it once more hears of it.
#[test]
fn what_is_taken_away_in_the_grace_period_cannot_be_claimed_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), FENCE);
    let mut holder = Peer::open(server.local_addr(), hello_for("holder", HOUR_MS));
    let locks = [("claimed", 20_000), ("known", HOUR_MS)];
    let fences = locks.map(|(key, ttl_ms)| holder.acquire(key, ttl_ms));
    let session = holder.session.unwrap();
    let left = wreck(directory.path());
    drop(server);

    let server = on(left.path(), FENCE);
    let mut holder = Peer::resume(server.local_addr(), "holder", session, 1_000);
    let mut operator = Peer::connect(server.local_addr(), "operator");
    for ((key, ttl_ms), fence) in locks.into_iter().zip(fences) {
        let claim = Request::Claim(claim(key, fence, ttl_ms));
        assert_eq!(holder.ask(&claim, granted), fence);
        operator.ask(&force_release(key, fence), |reply| {
            assert!(matches!(reply, Reply::Released { .. }), "{reply:?}");
        });
        let why = holder.ask(&claim, not_held);
        assert_eq!(why, NotHeldReason::FORCED, "{key}");
    }
    let left = wreck(left.path());
    drop(server);
    let server = on(left.path(), FENCE);
    let mut other = Peer::connect(server.local_addr(), "other");
    assert!(other.query("known").0.is_empty());
}
