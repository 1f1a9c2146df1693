//! What survives a stop. A clean one is a shutdown; one without notice is a copy of the data
//! directory, taken while the server runs: what a kill leaves behind is exactly the files as they
//! are at that moment.

use crate::common::{
    LONG_MS, Peer, acquire, force_release, granted, hello, hello_for, lost, plain, reentrant,
    release, session_bound, shared, start_with, until, wire_fence, wire_key, with_metadata,
};
use crate::http::{free_port, get};
use protocol::{
    Claim, Cursor, Hello, Lease, LostReason, Metadata, Mode, NotHeldReason, Opening, Prefix, Reply,
    Request, SessionKey, SessionSecret, TraceId, UnavailableReason,
};
use server::Server;
use server::config::Durability;
use std::path::Path;
use tempfile::TempDir;
use wal::Record;

pub(crate) fn on(directory: &Path, durability: Durability) -> Server {
    with_grace(directory, durability, true)
}

fn with_grace(directory: &Path, durability: Durability, grace: bool) -> Server {
    start_with(|builder| {
        builder.with(|config| {
            config.data_dir = directory.to_owned();
            config.durability = durability;
            config.grace = grace;
        })
    })
}

/// What a kill would leave at this moment. A copy is none while files come and go: then it is made
/// again.
pub(crate) fn wreck(directory: &Path) -> TempDir {
    let names = || -> Vec<_> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    for _ in 0..WRECKS_MAX {
        let copy = tempfile::tempdir().unwrap();
        let before = names();
        let is_copied = |name| std::fs::copy(directory.join(name), copy.path().join(name)).is_ok();
        if before.iter().all(is_copied) && names() == before {
            return copy;
        }
    }
    panic!("the files in {} never stay the same", directory.display());
}

/// How often a copy is tried.
const WRECKS_MAX: usize = 1_000;

pub(crate) fn claim(key: &str, fence: u64, ttl_ms: u32) -> Claim<'_> {
    Claim {
        key: wire_key(key),
        fence: wire_fence(fence),
        mode: Mode::Exclusive,
        lease: Lease::Ttl { ttl_ms },
        hold_count: 1,
        metadata: Metadata::default(),
        trace_id: TraceId::default(),
    }
}

fn comes_back(server: &Server, session: SessionKey) -> Peer {
    Peer::resume(server.local_addr(), "back", session, 1_000)
}

/// `None`: there is no grace period.
pub(crate) fn recovering_ms(peer: &mut Peer, key: &str) -> Option<u32> {
    peer.ask(&acquire(key, 100, 0), |reply| match reply {
        Reply::Unavailable {
            reason: UnavailableReason::RECOVERING,
            retry_after_ms,
        } => Some(retry_after_ms),
        _ => None,
    })
}

const BOTH: [Durability; 2] = [Durability::Fence, Durability::Lease];

#[test]
fn a_clean_stop_keeps_locks_with_what_is_left_of_their_time() {
    for durability in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let server = on(directory.path(), durability);
        let mut holder = Peer::connect(server.local_addr(), "holder");
        let fence = holder.acquire("k", LONG_MS);
        let bound = holder.ask(&session_bound("bound", 0), granted);
        let noted = holder.ask(&with_metadata("noted", LONG_MS, "why"), granted);
        holder.ask(&reentrant("twice", LONG_MS), granted);
        let twice = holder.ask(&reentrant("twice", LONG_MS), granted);
        let short = holder.acquire("given back", LONG_MS);
        assert!(holder.release("given back", short));
        let session = holder.session.unwrap();
        server.shutdown();

        let server = on(directory.path(), durability);
        let mut other = Peer::connect(server.local_addr(), "other");
        let mut holder = comes_back(&server, session);
        assert!(holder.is_resumed, "{durability:?}");
        for (key, fence) in [
            ("k", fence),
            ("bound", bound),
            ("noted", noted),
            ("twice", twice),
        ] {
            other.ask(&acquire(key, 100, 0), |reply| {
                let Reply::Refused(contention) = reply else {
                    panic!("{key} is not held: {reply:?}")
                };
                let seen = contention.holder.unwrap();
                assert_eq!(seen.fence.get(), fence, "{key}");
                assert!(seen.remaining_ms > 0 && seen.remaining_ms <= LONG_MS);
                assert_eq!(seen.session_id, session.session_id);
                assert_eq!(seen.client_name.as_str(), "holder");
            });
        }
        assert!(other.acquire("given back", 100) > short);
        // One count of two, then the other.
        assert!(holder.release("twice", twice));
        assert!(other.is_held_under("twice", twice));
        assert!(holder.release("twice", twice));
        assert!(holder.release("k", fence));
        assert!(other.acquire("k", 100) > fence);
        // The rest goes with its session.
        holder.ask(&Request::Goodbye, |reply| assert_eq!(reply, Reply::Bye));
        until("its other locks are free", || {
            other.ask(&acquire("bound", LONG_MS, 0), |reply| {
                matches!(reply, Reply::Granted { .. })
            })
        });
    }
}

#[test]
fn after_a_stop_without_notice_holders_claim_and_nothing_new_is_granted() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Fence);
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let fence = holder.acquire("k", 3_000);
    let read = holder.ask(&shared("shared", 3_000, 0), granted);
    let session = holder.session.unwrap();
    let left = wreck(directory.path());
    drop(server);

    let server = on(left.path(), Durability::Fence);
    let mut other = Peer::connect(server.local_addr(), "other");
    let left_ms = recovering_ms(&mut other, "anything").expect("there is a grace period");
    assert!(left_ms > 0);
    let waits = other.send(&acquire("free", LONG_MS, LONG_MS));
    let mut holder = comes_back(&server, session);
    assert!(holder.is_resumed);
    assert_eq!(holder.session.unwrap().session_id, session.session_id);
    holder.ask(&Request::Claim(claim("k", fence, LONG_MS)), |reply| {
        assert!(
            matches!(reply, Reply::Granted { fence: kept, ttl_ms, .. }
                if kept.get() == fence && ttl_ms <= LONG_MS),
            "{reply:?}"
        );
    });
    let shared_claim = Claim {
        mode: Mode::Shared,
        ..claim("shared", read, LONG_MS)
    };
    assert_eq!(holder.ask(&Request::Claim(shared_claim), granted), read);
    // When the time is up, the rest is free, under fences that no client has seen; what was claimed
    // is not.
    let free = other.reply(waits, granted);
    assert!(free > fence.max(read));
    other.ask(&acquire("k", 100, 0), |reply| {
        assert!(matches!(reply, Reply::Refused(_)), "{reply:?}");
    });
    assert!(other.ask(&shared("shared", 100, 0), granted) > read);
    assert!(holder.release("k", fence));
    assert!(other.acquire("k", 100) > fence);
    assert_eq!(other.stat("lost_superseded_total"), 0);
}

#[test]
fn a_server_in_its_grace_period_says_so_and_until_when() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Fence);
    Peer::connect(server.local_addr(), "holder").acquire("k", 1_000);
    let left = wreck(directory.path());
    drop(server);
    let server = start_with(|builder| {
        builder.http(free_port()).with(|config| {
            config.data_dir = left.path().to_owned();
            config.durability = Durability::Fence;
        })
    });
    // Holders are to come and claim; an orchestrator that goes by this must not keep them away.
    let ready = get(&server, "/readyz");
    assert_eq!(ready.status, 200);
    let said = ready.json();
    assert_eq!(
        (&said["ready"], &said["granting"], &said["reason"]),
        (&true.into(), &false.into(), &"recovering".into())
    );
    let granting = get(&server, "/readyz?granting");
    assert_eq!(
        (granting.status, granting.json()["reason"].as_str()),
        (503, Some("recovering"))
    );
    assert!(
        said["remaining_ms"]
            .as_u64()
            .is_some_and(|left_ms| left_ms > 0),
        "{said}"
    );
    let until_time = said["until"].as_str().expect("a time on the wall");
    humantime::parse_rfc3339(until_time).unwrap();
    let page = get(&server, "/metrics").body;
    for name in [
        "fencepost_log_sync_seconds_count",
        "fencepost_log_written_bytes_total",
        "fencepost_log_batches_total",
        "fencepost_log_segments",
        "fencepost_log_snapshot_age_seconds",
        "fencepost_log_snapshot_duration_seconds",
        "fencepost_log_recovery_duration_seconds",
        "fencepost_fence_headroom",
        "fencepost_grace_remaining_seconds",
    ] {
        assert!(
            page.contains(&format!("\n{name} ")),
            "{name} is missing:\n{page}"
        );
    }
    until("the grace period is over", || {
        get(&server, "/readyz?granting").status == 200
    });
}

/// The server does not know the holders, so "free" would be a guess: a key that is not claimed yet
/// may be held.
#[test]
fn in_the_grace_period_no_answer_says_that_a_key_is_free() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Fence);
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let fence = holder.acquire("k", 20_000);
    let session = holder.session.unwrap();
    let left = wreck(directory.path());
    drop(server);
    let server = start_with(|builder| {
        builder.http(free_port()).with(|config| {
            config.data_dir = left.path().to_owned();
            config.durability = Durability::Fence;
        })
    });
    let mut other = Peer::connect(server.local_addr(), "other");
    let query = |other: &mut Peer| {
        let request = Request::Query { key: wire_key("k") };
        other.ask(&request, |reply| match reply {
            Reply::QueryResult {
                holder_count,
                recovering_ms,
                ..
            } => (holder_count, recovering_ms.is_some_and(|ms| ms > 0)),
            other => panic!("no query result but {other:?}"),
        })
    };
    assert_eq!(query(&mut other), (0, true));
    let list = Request::List {
        prefix: Prefix::default(),
        cursor: Cursor::default(),
        limit: 0,
    };
    other.ask(&list, |reply| {
        assert!(
            matches!(reply, Reply::ListPage { recovering_ms: Some(1..), entries, .. } if entries.is_empty()),
            "{reply:?}"
        );
    });
    other.ask(&acquire("k", 100, 1), |reply| {
        assert!(
            matches!(reply, Reply::TimedOut(seen) if seen.holder_count == 0 && seen.recovering_ms > Some(0)),
            "{reply:?}"
        );
    });
    let force = force_release("k", fence);
    other.ask(&force, |reply| {
        assert!(
            matches!(
                reply,
                Reply::Unavailable {
                    reason: UnavailableReason::RECOVERING,
                    ..
                }
            ),
            "{reply:?}"
        );
    });
    let page = get(&server, "/locks");
    assert_eq!(page.status, 200);
    assert!(page.json()["recovering"]["remaining_ms"].as_u64() > Some(0));
    let one = get(&server, "/locks/never-asked-for");
    assert_eq!(one.status, 503);
    assert!(one.body.contains("recovering"), "{}", one.body);

    // One that was claimed is known to be held; and still there may be more than the server knows.
    let mut holder = comes_back(&server, session);
    holder.ask(&Request::Claim(claim("k", fence, LONG_MS)), granted);
    assert_eq!(query(&mut other), (1, true));
    let one = get(&server, "/locks/k");
    assert_eq!((one.status, &one.json()["holder_count"]), (200, &1.into()));
    assert!(one.json()["recovering"]["until"].is_string());
    other.ask(&acquire("k", 100, 1), |reply| {
        assert!(
            matches!(reply, Reply::TimedOut(seen) if seen.holder_count == 1),
            "{reply:?}"
        );
    });
}

#[test]
fn of_two_who_claim_the_higher_fence_wins_and_the_loser_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Fence);
    let mut first = Peer::connect(server.local_addr(), "first");
    let mut second = Peer::connect(server.local_addr(), "second");
    let low = first.acquire("k", 3_000);
    assert!(first.release("k", low));
    let high = second.acquire("k", 3_000);
    let (loser, winner) = (first.session.unwrap(), second.session.unwrap());
    let left = wreck(directory.path());
    drop(server);

    let server = on(left.path(), Durability::Fence);
    let mut first = comes_back(&server, loser);
    let mut second = comes_back(&server, winner);
    assert_eq!(
        first.ask(&Request::Claim(claim("k", low, 3_000)), granted),
        low
    );
    assert_eq!(
        second.ask(&Request::Claim(claim("k", high, 3_000)), granted),
        high
    );
    assert_eq!(first.push(), lost("k", low, LostReason::SUPERSEDED));
    first.ask(&Request::Claim(claim("k", low, 3_000)), |reply| {
        assert_eq!(
            reply,
            Reply::NotHeld {
                reason: NotHeldReason::OTHER_OWNER
            }
        );
    });
}

#[test]
fn nobody_claims_with_a_secret_that_is_not_the_sessions() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Fence);
    let mut holder = Peer::connect(server.local_addr(), "holder");
    holder.acquire("k", 3_000);
    let session = holder.session.unwrap();
    let left = wreck(directory.path());
    drop(server);

    let server = on(left.path(), Durability::Fence);
    let forged = SessionKey {
        secret: SessionSecret::new([7; SessionSecret::BYTES]),
        ..session
    };
    let forger = comes_back(&server, forged);
    assert!(!forger.is_resumed);
    assert_ne!(forger.session.unwrap().session_id, session.session_id);
    let join = Hello {
        opening: Opening::Join(forged),
        ..hello("forger")
    };
    assert!(Peer::knock(server.local_addr(), join).is_err());
}

#[test]
fn without_grace_locks_are_granted_at_once_above_every_fence_from_before() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Fence);
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let fence = holder.acquire("k", 20_000);
    let left = wreck(directory.path());
    drop(server);
    let server = with_grace(left.path(), Durability::Fence, false);
    let mut other = Peer::connect(server.local_addr(), "other");
    assert!(other.acquire("k", 100) > fence);
}

#[test]
fn with_lease_a_stop_without_notice_changes_nothing_but_the_time() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Lease);
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let mut waiter = Peer::connect(server.local_addr(), "waiter");
    let fence = holder.acquire("k", LONG_MS);
    let bound = holder.ask(&session_bound("bound", 0), granted);
    let handed = holder.acquire("handed over", LONG_MS);
    let waits = waiter.stand_in_line(
        "handed over",
        0,
        &mut Peer::connect(server.local_addr(), "o"),
    );
    assert!(holder.release("handed over", handed));
    let handed = waiter.reply(waits, granted);
    let renewed = holder.acquire("renewed", 300);
    let renew = Request::Renew {
        key: wire_key("renewed"),
        fence: wire_fence(renewed),
        lease: Lease::Ttl { ttl_ms: LONG_MS },
    };
    holder.ask(&renew, |reply| {
        assert!(matches!(reply, Reply::Renewed { .. }));
    });
    let downgraded = holder.acquire("downgraded", LONG_MS);
    let downgrade = Request::Downgrade {
        key: wire_key("downgraded"),
        fence: wire_fence(downgraded),
    };
    holder.ask(&downgrade, granted);
    let forced = holder.acquire("forced", LONG_MS);
    let force = force_release("forced", forced);
    waiter.ask(&force, |reply| {
        assert!(matches!(reply, Reply::Released { .. }))
    });
    let given_back = holder.acquire("given back", LONG_MS);
    assert!(holder.release("given back", given_back));
    let mut gone = Peer::connect(server.local_addr(), "gone");
    let ended = gone.acquire("ended", LONG_MS);
    gone.ask(&Request::Goodbye, |reply| assert_eq!(reply, Reply::Bye));
    let session = holder.session.unwrap();
    let left = wreck(directory.path());
    drop(server);

    let server = on(left.path(), Durability::Lease);
    let mut other = Peer::connect(server.local_addr(), "other");
    assert_eq!(recovering_ms(&mut other, "anything"), None);
    for (key, fence) in [
        ("k", fence),
        ("bound", bound),
        ("handed over", handed),
        ("renewed", renewed),
        ("downgraded", downgraded),
    ] {
        assert_eq!(other.query(key).0, [fence], "{key}");
    }
    assert!(other.ask(&shared("downgraded", 100, 0), granted) > downgraded);
    for (key, fence) in [
        ("forced", forced),
        ("given back", given_back),
        ("ended", ended),
    ] {
        assert!(other.acquire(key, 100) > fence, "{key}");
    }
    let mut holder = comes_back(&server, session);
    assert!(holder.is_resumed);
    assert!(holder.release("k", fence));
    assert!(
        !holder.release("given back", given_back),
        "released stays released"
    );
}

/// Keys fall into other shards after every start, and operators change limits. Once a server with a
/// small `keys_max` could not start again with what it had held.
#[test]
fn what_was_held_comes_back_whatever_the_limits_are_by_then() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Lease);
    let mut held = Vec::new();
    for number in 0..3 {
        let mut holder = Peer::open(server.local_addr(), hello_for("holder", LONG_MS));
        let keys = (0..40).map(|key| format!("{number}/{key}"));
        let locks: Vec<_> = keys
            .map(|key| (holder.acquire(&key, LONG_MS), key))
            .collect();
        held.push((holder.session.expect("a session"), locks));
    }
    let left = wreck(directory.path());
    drop(server);

    let server = start_with(|builder| {
        builder.with(|config| {
            config.data_dir = left.path().to_owned();
            config.durability = Durability::Lease;
            config.shards = 1;
            config.keys_max = 1;
            config.sessions_max = 1;
        })
    });
    for (session, locks) in held {
        let mut holder = comes_back(&server, session);
        assert!(holder.is_resumed);
        for (fence, key) in locks {
            assert!(holder.is_held_under(&key, fence), "{key}");
        }
    }
}

#[test]
fn a_mode_may_be_changed_between_two_lives() {
    let directory = tempfile::tempdir().unwrap();
    let mut highest = 0;
    let mut next = directory.path().to_owned();
    let mut kept = Vec::new();
    for durability in [
        Durability::Lease,
        Durability::Fence,
        Durability::Fence,
        Durability::None,
        Durability::Lease,
    ] {
        // As long as unknown leases from before may live, nothing is granted.
        let server = on(&next, durability);
        let mut peer = Peer::connect(server.local_addr(), "peer");
        let id = peer.send(&acquire("k", 200, LONG_MS));
        let fence = peer.reply(id, granted);
        assert!(fence > highest, "{durability:?}: {fence} after {highest}");
        highest = fence;
        if durability != Durability::None {
            kept.push(wreck(&next));
            next = kept.last().unwrap().path().to_owned();
        }
        drop(server);
    }
}

#[test]
fn a_lease_and_a_session_end_on_time_though_the_server_was_gone() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Lease);
    let mut holder = Peer::open(server.local_addr(), hello_for("holder", 400));
    let short = holder.acquire("short", 50);
    let bound = holder.ask(&session_bound("bound", 0), granted);
    let left = wreck(directory.path());
    drop(server);
    let server = on(left.path(), Durability::Lease);
    let mut other = Peer::connect(server.local_addr(), "other");
    for (key, fence) in [("short", short), ("bound", bound)] {
        let id = other.send(&acquire(key, LONG_MS, LONG_MS));
        assert!(other.reply(id, granted) > fence);
    }
}

#[test]
fn fences_pass_their_ceiling_without_anybody_noticing() {
    // More than a ceiling's worth of one key, in batches.
    const CYCLES: u64 = 600_000;
    const BATCH: u64 = 2_000;
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Fence);
    let mut peer = Peer::connect(server.local_addr(), "busy");
    let first = peer.acquire("k", LONG_MS);
    assert!(peer.release("k", first));
    let mut last = first;
    // A release names its fence, which is known beforehand: fences of one key follow one another.
    for _ in 0..CYCLES / BATCH {
        let mut ids = Vec::new();
        let mut out = Vec::new();
        let first_id = peer.next_id();
        for step in 0..BATCH {
            let id = first_id + 2 * step;
            out.extend(crate::common::encode(id, &acquire("k", LONG_MS, LONG_MS)));
            out.extend(crate::common::encode(
                id + 1,
                &release("k", last + 1 + step),
            ));
            ids.push(id);
        }
        peer.send_bytes(&out);
        peer.start_ids_at(first_id + 2 * BATCH);
        for id in ids {
            let fence = peer.reply(id, granted);
            assert!(fence > last, "{fence} after {last}");
            last = fence;
            peer.reply(id + 1, |reply| {
                assert!(matches!(reply, Reply::Released { .. }), "{reply:?}");
            });
        }
    }
    assert!(last - first >= CYCLES);
    let left = wreck(directory.path());
    drop(server);
    let server = with_grace(left.path(), Durability::Fence, false);
    let mut peer = Peer::connect(server.local_addr(), "next");
    assert!(peer.acquire("k", 100) > last);
}

#[test]
fn a_server_that_keeps_nothing_leaves_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let server = on(&data_dir, Durability::None);
    Peer::connect(server.local_addr(), "peer").acquire("k", 100);
    server.shutdown();
    assert!(!data_dir.exists());
}

/// Fences of a directory that had been served with `fence` fell when it was served with `none`: the
/// clock lies below the ceilings after a few quick restarts, and 2^44 below them after a repair.
/// And they fell again behind a server with `none` that began at the ceiling, as long as the next
/// one with `fence` began there, too.
#[test]
fn fences_rise_from_fence_to_none_and_back_also_after_a_repair() {
    let directory = tempfile::tempdir().unwrap();
    let mut highest = 0;
    let mut live = |durability| {
        let server = with_grace(directory.path(), durability, false);
        let mut peer = Peer::connect(server.local_addr(), "peer");
        for _ in 0..3 {
            let fence = peer.ask(&acquire("k", LONG_MS, LONG_MS), granted);
            assert!(fence > highest, "{durability:?}: {fence} after {highest}");
            highest = fence;
            assert!(peer.release("k", fence));
        }
    };
    let modes = [
        Durability::Fence,
        Durability::Fence,
        Durability::Fence,
        Durability::None,
        Durability::None,
        Durability::Fence,
        Durability::None,
        Durability::Lease,
        Durability::None,
    ];
    modes.into_iter().for_each(&mut live);
    remove_segments(directory.path());
    repair(directory.path());
    modes.into_iter().for_each(&mut live);
}

fn remove_segments(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("segment-") || name.starts_with("snapshot-") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

fn repair(directory: &Path) -> wal::Repaired {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let wish = wal::Repair {
        accept_loss: true,
        now_unix_ms: since_1970.unwrap().as_millis() as u64,
        lease_ms_max: u64::from(LONG_MS),
    };
    wal::repair(directory, &wish).unwrap()
}

fn refusal(directory: &Path, durability: Durability) -> String {
    let builder = Server::builder().threads(1).with(|config| {
        config.data_dir = directory.to_owned();
        config.durability = durability;
    });
    match builder.start() {
        Ok(_) => panic!("a server with {durability:?} starts"),
        Err(error) => error.to_string(),
    }
}

fn files(directory: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name(), std::fs::read(entry.path()).unwrap())
    });
    let mut files: Vec<_> = entries.collect();
    files.sort();
    files
}

/// A directory whose only segment had been deleted was taken for a new one, and what was held in it
/// granted to others.
#[test]
fn a_directory_without_its_log_is_not_taken_for_a_new_one() {
    for durability in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let server = on(directory.path(), durability);
        Peer::connect(server.local_addr(), "peer").acquire("k", LONG_MS);
        let left = wreck(directory.path());
        remove_segments(left.path());
        let before = files(left.path());
        for next in [Durability::None, Durability::Fence, Durability::Lease] {
            let message = refusal(left.path(), next);
            assert!(message.contains("the log is gone"), "{message}");
            assert!(message.contains("--accept-loss"), "{message}");
        }
        assert!(files(left.path()) == before, "nothing was changed");
        repair(left.path());
        let server = on(left.path(), durability);
        let mut other = Peer::connect(server.local_addr(), "other");
        assert!(
            recovering_ms(&mut other, "k").is_some(),
            "there is a grace period"
        );
    }
}

/// A key with one bit flipped, and a key that was deleted, made every session strange to its own
/// server, without a word.
#[test]
fn a_session_key_that_is_damaged_or_gone_is_noticed_and_replaced_only_by_repair() {
    for is_deleted in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let server = on(directory.path(), Durability::Lease);
        let fence = Peer::connect(server.local_addr(), "peer").acquire("k", LONG_MS);
        let left = wreck(directory.path());
        let key = left.path().join("session.key");
        if is_deleted {
            std::fs::remove_file(&key).unwrap();
        } else {
            let mut bytes = std::fs::read(&key).unwrap();
            bytes[5] ^= 1;
            std::fs::write(&key, bytes).unwrap();
        }
        let before = files(left.path());
        for next in BOTH {
            let message = refusal(left.path(), next);
            assert!(message.contains("session.key is "), "{message}");
            assert!(message.contains("--accept-loss"), "{message}");
        }
        assert!(files(left.path()) == before, "nothing was changed");
        assert_eq!(repair(left.path()).log, None);
        let server = on(left.path(), Durability::Lease);
        let mut other = Peer::connect(server.local_addr(), "other");
        assert!(other.is_held_under("k", fence), "the lease is still known");
    }
}

/// What the build before this one left behind: a key of 32 bytes.
#[test]
fn a_session_key_without_a_checksum_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Lease);
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let fence = holder.acquire("k", LONG_MS);
    let left = wreck(directory.path());
    let key = left.path().join("session.key");
    let whole = std::fs::read(&key).unwrap();
    std::fs::write(&key, &whole[..32]).unwrap();
    let server = on(left.path(), Durability::Lease);
    assert!(std::fs::read(&key).unwrap() == whole);
    let mut holder = comes_back(&server, holder.session.unwrap());
    assert!(holder.release("k", fence));
}

#[test]
fn who_waits_when_the_server_stops_without_notice_waits_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Lease);
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let mut waiter = Peer::connect(server.local_addr(), "waiter");
    let fence = holder.acquire("k", LONG_MS);
    let id = waiter.stand_in_line("k", 0, &mut holder);
    let (held, waited) = (holder.session.unwrap(), waiter.session.unwrap());
    let left = wreck(directory.path());
    drop(server);
    let server = on(left.path(), Durability::Lease);
    let mut waiter = comes_back(&server, waited);
    waiter.send_as(id, &Request::Acquire(plain("k", LONG_MS, LONG_MS)), true);
    let mut holder = comes_back(&server, held);
    assert!(holder.release("k", fence));
    assert!(waiter.reply(id, granted) > fence);
}

#[test]
fn a_hold_that_is_counted_once_more_is_still_what_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Lease);
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let fence = holder.ask(&with_metadata("k", LONG_MS, "why"), granted);
    // Shared this time, and by its session: it is exclusive and has its own time all the same.
    let again = Request::Acquire(protocol::Acquire {
        is_reentrant: true,
        mode: Mode::Shared,
        lease: Lease::Session,
        ..plain("k", LONG_MS, 0)
    });
    assert_eq!(holder.ask(&again, granted), fence);
    let left = wreck(directory.path());
    drop(server);
    let server = on(left.path(), Durability::Lease);
    let mut other = Peer::connect(server.local_addr(), "other");
    other.ask(&shared("k", 100, 0), |reply| {
        let Reply::Refused(contention) = reply else {
            panic!("an exclusive lock was shared: {reply:?}")
        };
        let seen = contention.holder.unwrap();
        assert_eq!((seen.fence.get(), seen.mode), (fence, Mode::Exclusive));
        assert!(!seen.is_session_bound);
        assert_eq!(seen.metadata.as_bytes(), b"why");
    });
}

#[test]
fn a_release_that_is_repeated_after_a_restart_takes_no_second_hold() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Lease);
    let mut holder = Peer::connect(server.local_addr(), "holder");
    holder.ask(&reentrant("k", LONG_MS), granted);
    let fence = holder.ask(&reentrant("k", LONG_MS), granted);
    let once = holder.send(&release("k", fence));
    holder.reply(once, |reply| {
        assert!(
            matches!(reply, Reply::Released { remaining_count: 1 }),
            "{reply:?}"
        );
    });
    let session = holder.session.unwrap();
    let left = wreck(directory.path());
    drop(server);
    let server = on(left.path(), Durability::Lease);
    let mut holder = comes_back(&server, session);
    holder.send_as(once, &release("k", fence), true);
    holder.reply(once, |reply| {
        assert!(
            matches!(reply, Reply::Error { code, .. } if code == protocol::ErrorCode::FORGOTTEN),
            "{reply:?}"
        );
    });
    assert!(holder.is_held_under("k", fence));
}

#[test]
fn a_renewal_that_overtakes_its_claim_is_asked_to_come_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), Durability::Fence);
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let fence = holder.acquire("k", 3_000);
    let mut other = Peer::connect(server.local_addr(), "other");
    let others = other.ask(&shared("shared", 3_000, 0), granted);
    let ours = holder.ask(&shared("shared", 3_000, 0), granted);
    let (session, other_session) = (holder.session.unwrap(), other.session.unwrap());
    let left = wreck(directory.path());
    drop(server);
    let server = on(left.path(), Durability::Fence);
    let mut first = comes_back(&server, session);
    let mut second = first.join("second");
    // Another session has claimed its share already.
    let mut other = comes_back(&server, other_session);
    let shared_claim = Claim {
        mode: Mode::Shared,
        ..claim("shared", others, 3_000)
    };
    assert_eq!(other.ask(&Request::Claim(shared_claim), granted), others);
    let renewal = |key, fence| Request::Renew {
        key: wire_key(key),
        fence: wire_fence(fence),
        lease: Lease::Ttl { ttl_ms: 3_000 },
    };
    let renew = renewal("k", fence);
    for renew in [&renew, &renewal("shared", ours)] {
        second.ask(renew, |reply| {
            let reason = UnavailableReason::RECOVERING;
            assert!(
                matches!(reply, Reply::Unavailable { reason: why, .. } if why == reason),
                "{reply:?}"
            );
        });
    }
    assert_eq!(
        first.ask(&Request::Claim(claim("k", fence, 3_000)), granted),
        fence
    );
    second.ask(&renew, |reply| {
        assert!(matches!(reply, Reply::Renewed { .. }), "{reply:?}");
    });
}

#[test]
fn a_clock_that_was_set_back_makes_no_lease_longer_than_it_was() {
    const AHEAD_MS: u64 = 3_600_000;
    const LEFT_MS: u64 = 30_000;
    let directory = tempfile::tempdir().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // The last server lived an hour ahead of today's clock, and was killed.
    let then_ms = now.unwrap().as_millis() as u64 + AHEAD_MS;
    let options = wal::Options::new(wal::Scope::Leases, then_ms);
    let (opened, _) = wal::open(directory.path(), &options).unwrap();
    let log = opened.start(()).unwrap();
    let ceiling = Record::Ceiling {
        shard: 0,
        fence: 1_000,
    };
    log.wait(log.append(&ceiling)).unwrap();
    let session = Record::SessionOpened {
        session: 77,
        ttl_ms: 60_000,
        deadline_unix_ms: then_ms + 60_000,
        name: b"holder",
    };
    let lease = Record::Granted(wal::Lease {
        key: b"k",
        fence: 41,
        session: 77,
        mode: protocol::Mode::Exclusive,
        is_session_bound: false,
        count: 1,
        until_unix_ms: then_ms + LEFT_MS,
        granted_unix_ms: then_ms,
        note: b"",
    });
    log.wait(log.append(&session)).unwrap();
    log.wait(log.append(&lease)).unwrap();
    drop(log);

    let server = on(directory.path(), Durability::Lease);
    let mut other = Peer::connect(server.local_addr(), "other");
    other.ask(&acquire("k", 100, 0), |reply| {
        let Reply::Refused(contention) = reply else {
            panic!("the lease is not there: {reply:?}")
        };
        let left_ms = u64::from(contention.holder.unwrap().remaining_ms);
        assert!(left_ms <= LEFT_MS, "{left_ms} ms are left of {LEFT_MS}");
    });
}
