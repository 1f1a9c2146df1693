//! The Redis port while the server recovers from a crash with `--durability fence`. Short leases
//! from before are not in the log, so a key without a lock may be held. No answer says that it is
//! free. Long leases are in the log: their keys are answered as always.

use crate::peer::Peer;
use crate::reply::{Reply, bulk, ok, simple};
use crate::servers::Fencepost;
use server::config::Durability;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// Leases up to this are not in the log. The grace period outlasts every test.
const GRACE_MAX: Duration = Duration::from_secs(3_600);

/// Longer than [`GRACE_MAX`], in milliseconds: restored after a crash.
const LONG: &str = "7200000";

/// Shorter than [`GRACE_MAX`], in milliseconds: not known after a crash.
const SHORT: &str = "1800000";

/// Redisson's lock, its lock with a token, and its unlocks without and with a latch.
const REDISSON_LOCK: &str = "dad0f8d619e548e04f21fb48d50be5034df3adae";
const REDISSON_LOCK_AND_TOKEN: &str = "49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45";
const REDISSON_UNLOCK: &str = "3ffe249c16dee540ac8ab32e39bd408626b9aff7";
const REDISSON_UNLOCK_LATCHED: &str = "6866459238a13a701d42f4971f12d9f3a50e2442";

/// python-redis-lock: release with a signal, and reset of all locks.
const SIGNAL_UNLOCK: &str = "dc1e6ea4fc20d70a60aa3ab10780c696e74d541e";
const SIGNAL_RESET_ALL: &str = "b121d3548d693116c3851b63befe947e49f28c7c";

/// Compare-and-delete.
const RELEASE: &str = "c3f8721cbb97f72bc19e972846bd7aaf91901658";

/// How often a copy of a directory is tried whose files change meanwhile.
const COPIES_MAX: usize = 1_000;

fn start(directory: &Path) -> Fencepost {
    Fencepost::start_with(|builder| {
        builder.with(|config| {
            config.data_dir = directory.to_owned();
            config.durability = Durability::Fence;
            config.grace_max = GRACE_MAX;
        })
    })
}

/// A copy of a running server's directory: what a crash at this moment would leave.
fn copy_of(directory: &Path) -> TempDir {
    let names = || {
        let entries = std::fs::read_dir(directory).expect("the server's directory");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        names
    };
    for _ in 0..COPIES_MAX {
        let copy = TempDir::new().expect("a temporary directory");
        let before = names();
        let is_copied = |name| std::fs::copy(directory.join(name), copy.path().join(name)).is_ok();
        if before.iter().all(is_copied) && names() == before {
            return copy;
        }
    }
    panic!("the files in {} never stay the same", directory.display());
}

/// A server that recovers, and a client of it.
struct Recovering {
    peer: Peer,
    // Both live as long as the test.
    _server: Fencepost,
    _directory: TempDir,
}

/// A server after a crash. Before it, two strings were locked, and `take` took more locks.
fn crash_after(take: impl FnOnce(&mut Peer)) -> Recovering {
    let directory = TempDir::new().expect("a temporary directory");
    let before = start(directory.path());
    let mut peer = Peer::connect(&before.address());
    for (key, ttl_ms) in [("long", LONG), ("short", SHORT)] {
        let set = ["SET", key, "token", "NX", "PX", ttl_ms];
        assert_eq!(peer.call(set), ok());
    }
    take(&mut peer);
    let left = copy_of(directory.path());
    let server = start(left.path());
    Recovering {
        peer: Peer::connect(&server.address()),
        _server: server,
        _directory: left,
    }
}

fn is_loading(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with(b"LOADING "))
}

#[test]
fn a_key_that_is_not_known_is_never_called_free() {
    let mut test = crash_after(|_| {});
    for question in [
        "GET short",
        "GET never-taken",
        "EXISTS short",
        "EXISTS long short",
        "MGET long short",
        "TTL short",
        "PTTL short",
        "EXPIRETIME short",
        "PEXPIRETIME short",
        "TYPE short",
        "HGET short token",
        "HEXISTS short token",
        "LLEN short",
        "WATCH short",
        "LOCK.FENCE short",
        "LOCK.INFO short",
        "LOCK.RENEW short token 1000",
        "LOCK.RELEASE short token",
        "LOCK.FORCE short",
        "LOCK.ACQUIRE short other 1000 WAIT 1000",
        "SET short other NX PX 1000",
        "SET short other XX",
        "DEL short",
        "DELEX short IFEQ token",
        "PEXPIRE short 1000",
        "PERSIST short",
        "BLPOP short 1",
        "LPUSH short 1",
    ] {
        let answer = test.peer.say(question);
        assert!(is_loading(&answer), "{question}: {answer:?}");
    }
    let release = ["EVALSHA", RELEASE, "1", "short", "token"];
    let answer = test.peer.call(release);
    assert!(is_loading(&answer), "{answer:?}");
}

#[test]
fn no_list_and_no_count_of_all_keys_is_given() {
    let mut test = crash_after(|_| {});
    for question in [
        "KEYS *",
        "KEYS long",
        "SCAN 0",
        "SCAN 0 MATCH long",
        "DBSIZE",
        "LOCK.LS",
        "LOCK.LS long",
        "FLUSHDB",
        "FLUSHALL",
    ] {
        let answer = test.peer.say(question);
        assert!(is_loading(&answer), "{question}: {answer:?}");
    }
    let answer = test.peer.call(["EVALSHA", SIGNAL_RESET_ALL, "0"]);
    assert!(is_loading(&answer), "{answer:?}");
    assert_eq!(
        test.peer.say("GET long"),
        bulk("token"),
        "nothing was flushed"
    );
    let Reply::Bulk(info) = test.peer.say("INFO persistence") else {
        panic!("INFO is answered");
    };
    assert!(String::from_utf8_lossy(&info).contains("loading:1"));
}

#[test]
fn a_key_that_is_known_is_answered_as_always() {
    let mut test = crash_after(|_| {});
    let peer = &mut test.peer;
    assert_eq!(peer.say("GET long"), bulk("token"));
    assert_eq!(peer.say("MGET long"), Reply::Array(vec![bulk("token")]));
    assert_eq!(peer.say("EXISTS long"), Reply::Integer(1));
    assert_eq!(peer.say("TYPE long"), simple("string"));
    assert!(matches!(peer.say("PTTL long"), Reply::Integer(1..)));
    assert!(matches!(peer.say("LOCK.FENCE long"), Reply::Integer(1..)));
    assert_eq!(
        peer.say("SET long other NX"),
        Reply::NullBulk,
        "another has it"
    );
    assert_eq!(peer.say("PEXPIRE long 8000000"), Reply::Integer(1));
    assert_eq!(peer.say("MULTI"), ok());
    assert_eq!(peer.say("GET long"), simple("QUEUED"));
    assert_eq!(peer.say("GET short"), simple("QUEUED"));
    let Reply::Array(replies) = peer.say("EXEC") else {
        panic!("the transaction is carried out");
    };
    assert_eq!(replies[0], bulk("token"));
    assert!(is_loading(&replies[1]), "{replies:?}");
    let release = ["EVALSHA", RELEASE, "1", "long", "token"];
    assert_eq!(peer.call(release), Reply::Integer(1));
    assert!(is_loading(&peer.call(release)), "it is free or held again");
}

/// A channel or a signal list among a script's keys is never a lock, and stops no release.
#[test]
fn a_known_lock_is_released_though_its_channel_or_list_is_not_there() {
    let mut test = crash_after(|peer| {
        let lock = ["EVALSHA", REDISSON_LOCK, "1", "simple", LONG, "me"];
        assert_eq!(peer.call(lock), Reply::NullBulk);
        let lock = [
            "EVALSHA",
            REDISSON_LOCK_AND_TOKEN,
            "2",
            "fenced",
            "redisson_lock_token:{fenced}",
            LONG,
            "me",
        ];
        let Reply::Array(replies) = peer.call(lock) else {
            panic!("it is granted");
        };
        assert_eq!(replies[0], Reply::Integer(-1));
        assert_eq!(peer.call(["SET", "lock:a", "me", "NX", "PX", LONG]), ok());
    });
    let peer = &mut test.peer;
    let token = peer.say("GET redisson_lock_token:{fenced}");
    assert!(matches!(token, Reply::Bulk(_)), "{token:?}");
    let unlock = |key, sha, keys: &str| {
        let mut call = vec!["EVALSHA", sha, keys, key, "channel"];
        if keys == "3" {
            call.push("latch");
        }
        call.extend(["0", "30000", "me", "publish", "10000"]);
        call.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    // Whether the answer of an earlier unlock is kept in the latch is not known.
    let latched = peer.call(unlock("fenced", REDISSON_UNLOCK_LATCHED, "3"));
    assert!(is_loading(&latched), "{latched:?}");
    for key in ["simple", "fenced"] {
        let unlocked = peer.call(unlock(key, REDISSON_UNLOCK, "2"));
        assert_eq!(unlocked, Reply::Integer(1), "{key}");
    }
    let release = [
        "EVALSHA",
        SIGNAL_UNLOCK,
        "2",
        "lock:a",
        "lock-signal:a",
        "me",
    ];
    assert_eq!(
        peer.call(release),
        Reply::Integer(0),
        "0 says that it is done"
    );
    assert_eq!(peer.say("LLEN lock-signal:a"), Reply::Integer(1));
}
