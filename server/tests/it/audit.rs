//! The audit log: every way a lock is granted and ends, in the file.

use crate::common::{
    OwnedPush, PATIENCE, Peer, acquire, force_release, granted, start_with, until, wire_fence,
    wire_key,
};
use crate::durable::{claim, wreck};
use crate::http::{ask, free_port, http_addr};
use crate::nodes::Nodes;
use crate::redis::Redis;
use protocol::{Acquire, Claim, ErrorCode, Lease, LostReason, Reply, Request, TraceId};
use serde_json::{Value, json};
use server::config::Durability;
use server::history::{AuditKey, holders_at};
use server::{Server, StartError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

fn start() -> (Server, TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let server = start_at(&path);
    (server, directory, path)
}

fn start_at(path: &Path) -> Server {
    start_with(|builder| builder.with(|config| config.audit_log = Some(path.to_owned())))
}

/// The lines, after a check of what all of them have: numbers without a gap, and a time.
#[track_caller]
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'), "the last line is whole");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut expected_seq = 0;
    for line in &lines {
        expected_seq += 1;
        assert_eq!(line["seq"], expected_seq, "{line}");
        let time = line["time"].as_str().expect("a time");
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    }
    lines
}

/// The lines about one key, without numbers and times, in the order of their fences and of what can
/// come first.
fn history(lines: &[Value], key: &str) -> Vec<Value> {
    let mut history: Vec<Value> = lines
        .iter()
        .filter(|line| line["key"] == key)
        .cloned()
        .collect();
    let rank = |line: &Value| line["event"] != "grant";
    history.sort_by_key(|line| (line["fence"].as_u64(), rank(line)));
    for line in &mut history {
        let line = line.as_object_mut().expect("an object");
        for name in ["seq", "time"] {
            line.remove(name);
        }
    }
    history
}

/// Where the server sees a peer.
fn address(peer: &Peer) -> String {
    peer.stream
        .local_addr()
        .expect("it is connected")
        .to_string()
}

fn session_id(peer: &Peer) -> u64 {
    peer.session.expect("it has one").session_id.get()
}

/// Takes a number that depends on the time out of a line, and returns it.
#[track_caller]
fn take(line: &mut Value, name: &str) -> u64 {
    let value = line.as_object_mut().expect("an object").remove(name);
    let value = value.unwrap_or_else(|| panic!("no {name} in {line}"));
    value.as_u64().expect("a number")
}

#[test]
fn a_grant_and_its_release_are_written_with_all_that_is_known() {
    let (server, _directory, path) = start();
    let mut a = Peer::connect(server.local_addr(), "worker-7");
    let request = Request::Acquire(Acquire {
        trace_id: TraceId::new("4bf92f3577b34da6").expect("short"),
        ..Acquire::exclusive(wire_key("orders/42"), Lease::Ttl { ttl_ms: 30_000 })
    });
    let fence = a.ask(&request, granted);
    assert!(a.release("orders/42", fence));
    server.shutdown();

    let lines = lines(&path);
    assert_eq!(lines[0]["event"], "start");
    assert_eq!(lines.last().expect("lines")["event"], "stop");
    let mut history = history(&lines, "orders/42");
    assert_eq!(history.len(), 2);
    let expected = json!({
        "event": "grant", "key": "orders/42", "fence": fence,
        "session_id": session_id(&a), "client_name": "worker-7", "address": address(&a),
        "is_shared": false, "ttl_ms": 30_000, "wait_ms": 0, "hold_count": 1,
        "trace_id": "4bf92f3577b34da6",
    });
    assert_eq!(history[0], expected);
    take(&mut history[1], "held_ms");
    let expected = json!({
        "event": "release", "key": "orders/42", "fence": fence,
        "session_id": session_id(&a), "client_name": "worker-7", "address": address(&a),
        "hold_count": 0, "ended": "released",
        "trace_id": "4bf92f3577b34da6",
    });
    assert_eq!(history[1], expected);
}

/// An acquire that names its trace.
fn acquire_traced<'a>(key: &'a str, ttl_ms: u32, trace: &'a str) -> Request<'a> {
    Request::Acquire(Acquire {
        trace_id: TraceId::new(trace).expect("short"),
        ..Acquire::exclusive(wire_key(key), Lease::Ttl { ttl_ms })
    })
}

#[test]
fn what_ends_a_hold_names_the_trace_of_its_grant_and_a_forced_release_its_own_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let server = start_with(|builder| {
        let builder = builder.http(free_port());
        builder.with(|config| config.audit_log = Some(path.clone()))
    });
    let mut a = Peer::connect(server.local_addr(), "a");
    let mut operator = Peer::connect(server.local_addr(), "operator");
    let expired = a.ask(&acquire_traced("expired", 1, "t-expired"), granted);
    assert!(matches!(a.push(), OwnedPush::Lost { fence, .. } if fence == expired));

    let forced = a.ask(&acquire_traced("forced", 60_000, "t-forced"), granted);
    let force = Request::ForceRelease {
        key: wire_key("forced"),
        fence: wire_fence(forced),
        trace_id: TraceId::new("t-operator").expect("short"),
    };
    operator.ask(&force, |reply| {
        assert!(matches!(reply, Reply::Released { .. }), "{reply:?}");
    });
    let http = a.ask(&acquire_traced("http", 60_000, "t-http"), granted);
    let headers = "X-Fencepost-Operator: 1\r\ntraceparent: t-page\r\nContent-Length: 0\r\n";
    let by_http = format!("/force-release?key=http&fence={http}");
    let answer = ask(http_addr(&server), "POST", &by_http, headers).expect("an answer");
    assert_eq!(answer.status, 200, "{answer:?}");

    // A further count of a hold stays in the trace that the hold began in.
    let twice = a.ask(&acquire_traced("twice", 60_000, "t-first"), granted);
    let again = Request::Acquire(Acquire {
        is_reentrant: true,
        trace_id: TraceId::new("t-second").expect("short"),
        ..Acquire::exclusive(wire_key("twice"), Lease::Ttl { ttl_ms: 60_000 })
    });
    assert_eq!(a.ask(&again, granted), twice);
    for _ in 0..2 {
        assert!(a.release("twice", twice));
    }
    // The same key under another fence is another hold.
    let untraced = a.acquire("twice", 60_000);
    assert!(a.release("twice", untraced));
    a.ask(&acquire_traced("session", 60_000, "t-session"), granted);
    a.ask(&Request::Goodbye, |reply| assert_eq!(reply, Reply::Bye));
    // Behind the goodbye, so the lock is free or about to be.
    operator.ask(&acquire("session", 60_000, 60_000), granted);
    server.shutdown();

    let lines = lines(&path);
    let told = |key: &str, event: &str| -> Vec<Value> {
        let history = history(&lines, key).into_iter();
        let events = history.filter(|line| line["event"] == event);
        events.map(|line| line["trace_id"].clone()).collect()
    };
    assert_eq!(told("expired", "loss"), ["t-expired"]);
    assert_eq!(told("forced", "loss"), ["t-forced"]);
    assert_eq!(told("forced", "force"), ["t-operator"]);
    assert_eq!(told("http", "loss"), ["t-http"]);
    assert_eq!(told("http", "force"), ["t-page"]);
    assert_eq!(told("session", "loss"), ["t-session"]);
    let grants = told("twice", "grant");
    assert_eq!(grants, [json!("t-first"), json!("t-second"), Value::Null]);
    let releases = told("twice", "release");
    assert_eq!(releases, [json!("t-first"), json!("t-first"), Value::Null]);
}

#[test]
fn a_grant_after_a_wait_says_how_long_and_whose_trace() {
    let (server, _directory, path) = start();
    let mut a = Peer::connect(server.local_addr(), "a");
    let mut b = Peer::connect(server.local_addr(), "b");
    let first = a.acquire("k", 60_000);
    let request = Request::Acquire(Acquire {
        trace_id: TraceId::new("trace-b").expect("short"),
        wait_ms: 60_000,
        ..Acquire::exclusive(wire_key("k"), Lease::Session)
    });
    let waiting = b.send(&request);
    // Answered behind the acquire, which waits by then.
    b.ask(&Request::Ping, |reply| assert_eq!(reply, Reply::Pong));
    assert!(a.release("k", first));
    let second = b.reply(waiting, granted);
    server.shutdown();

    let mut history = history(&lines(&path), "k");
    let grant = history
        .iter_mut()
        .find(|line| line["fence"] == second && line["event"] == "grant");
    let grant = grant.expect("the second grant");
    take(grant, "wait_ms");
    let expected = json!({
        "event": "grant", "key": "k", "fence": second,
        "session_id": session_id(&b), "client_name": "b", "address": address(&b),
        "is_shared": false, "ttl_ms": null, "hold_count": 1, "trace_id": "trace-b",
    });
    assert_eq!(*grant, expected);
}

#[test]
fn every_way_to_lose_a_lock_has_its_word() {
    let (server, _directory, path) = start();
    let mut a = Peer::connect(server.local_addr(), "a");
    let mut operator = Peer::connect(server.local_addr(), "operator");
    let expired = a.acquire("expires", 1);
    let lost = OwnedPush::Lost {
        key: b"expires".to_vec(),
        fence: expired,
        reason: LostReason::EXPIRED,
    };
    assert_eq!(a.push(), lost);
    let forced = a.acquire("forced", 60_000);
    let request = force_release("forced", forced);
    operator.ask(&request, |reply| {
        assert!(matches!(reply, Reply::Released { .. }), "{reply:?}");
    });
    let ended = a.acquire("ends with its session", 60_000);
    let a_id = session_id(&a);
    a.ask(&Request::Goodbye, |reply| assert_eq!(reply, Reply::Bye));
    // Behind the goodbye, so the lock is free or about to be.
    let next = operator.ask(&acquire("ends with its session", 60_000, 60_000), granted);
    assert!(next > ended);
    server.shutdown();

    let lines = lines(&path);
    for (key, fence, word) in [
        ("expires", expired, "expired"),
        ("forced", forced, "forced"),
        ("ends with its session", ended, "session_ended"),
    ] {
        let history = history(&lines, key);
        let mut loss = history
            .into_iter()
            .find(|line| line["event"] == "loss")
            .expect("a loss");
        take(&mut loss, "held_ms");
        take(&mut loss, "late_ms");
        let expected = json!({
            "event": "loss", "key": key, "fence": fence,
            "session_id": a_id, "client_name": "a", "ended": word,
        });
        assert_eq!(loss, expected);
    }
    let force = history(&lines, "forced")
        .into_iter()
        .find(|line| line["event"] == "force");
    let expected = json!({
        "event": "force", "key": "forced", "fence": forced,
        "session_id": session_id(&operator), "client_name": "operator",
        "address": address(&operator),
    });
    assert_eq!(force.expect("the operator's line"), expected);
}

#[test]
fn a_reentrant_hold_is_told_step_by_step() {
    let (server, _directory, path) = start();
    let mut a = Peer::connect(server.local_addr(), "a");
    let request = Request::Acquire(Acquire {
        is_reentrant: true,
        ..Acquire::exclusive(wire_key("k"), Lease::Ttl { ttl_ms: 60_000 })
    });
    let fence = a.ask(&request, granted);
    assert_eq!(a.ask(&request, granted), fence);
    assert!(a.release("k", fence));
    assert!(a.release("k", fence));
    server.shutdown();

    let lines = lines(&path);
    let steps: Vec<_> = lines
        .iter()
        .filter(|line| line["key"] == "k")
        .map(|line| {
            (
                line["event"].as_str().unwrap(),
                line["hold_count"].as_u64().unwrap(),
                line["ended"].as_str(),
            )
        })
        .collect();
    let expected = [
        ("grant", 1, None),
        ("grant", 2, None),
        ("release", 1, None),
        ("release", 0, Some("released")),
    ];
    assert_eq!(steps, expected);
}

/// Fifty holders in turn from several connections: sorted by fence, the file tells the whole story
/// of the key.
#[test]
fn the_story_of_a_key_can_be_told_from_the_file() {
    let (server, _directory, path) = start();
    let address = server.local_addr();
    let threads: Vec<_> = (0..5)
        .map(|number| {
            std::thread::spawn(move || {
                let mut peer = Peer::connect(address, &format!("worker-{number}"));
                for _ in 0..10 {
                    let fence = peer.ask(&acquire("k", 60_000, 60_000), granted);
                    assert!(peer.release("k", fence));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    server.shutdown();

    let history = history(&lines(&path), "k");
    assert_eq!(history.len(), 100, "fifty grants, fifty ends, none missing");
    let mut last_fence = 0;
    for pair in history.chunks(2) {
        let [grant, end] = pair else { panic!() };
        assert_eq!(
            (&grant["event"], &end["event"]),
            (&json!("grant"), &json!("release"))
        );
        assert_eq!(grant["fence"], end["fence"]);
        assert_eq!(grant["session_id"], end["session_id"]);
        let fence = grant["fence"].as_u64().unwrap();
        assert!(fence > last_fence);
        last_fence = fence;
    }
}

#[test]
fn lines_reach_the_file_while_the_server_runs() {
    let (server, _directory, path) = start();
    let mut a = Peer::connect(server.local_addr(), "a");
    a.acquire("k", 60_000);
    let began = Instant::now();
    while !std::fs::read_to_string(&path)
        .unwrap()
        .contains("\"grant\"")
    {
        assert!(began.elapsed() < PATIENCE, "no line came");
        std::thread::yield_now();
    }
}

#[test]
fn a_second_start_adds_to_the_file() {
    let (server, _directory, path) = start();
    let mut a = Peer::connect(server.local_addr(), "a");
    a.acquire("first", 60_000);
    server.shutdown();
    let server = start_at(&path);
    let mut a = Peer::connect(server.local_addr(), "a");
    a.acquire("second", 60_000);
    server.shutdown();
    let lines = lines(&path);
    assert_eq!(history(&lines, "first").len(), 1);
    assert_eq!(history(&lines, "second").len(), 1);
    let starts = lines.iter().filter(|line| line["event"] == "start");
    assert_eq!(starts.count(), 2);
}

#[test]
fn a_file_that_cannot_be_opened_is_said_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing").join("audit.log");
    let result = Server::builder()
        .threads(1)
        .with(|config| config.audit_log = Some(path.clone()))
        .start();
    match result.err() {
        Some(error @ StartError::Audit { .. }) => {
            let sentence = error.to_string();
            assert!(sentence.contains(&path.display().to_string()), "{sentence}");
        }
        other => panic!("not the audit log but {other:?}"),
    }
}

#[test]
fn a_leader_writes_down_only_what_is_settled() {
    let directory = tempfile::tempdir().unwrap();
    let path_of = |node_id: u64| directory.path().join(format!("{node_id}.log"));
    let mut nodes = Nodes::start_with(3, |config| {
        config.audit_log = Some(path_of(config.node_id));
    });
    let leader = nodes.leader();
    let mut peer = Peer::connect(nodes.node(leader).local_addr(), "client");
    let settled = peer.acquire("settled", 60_000);
    assert!(peer.release("settled", settled));
    let expired = peer.acquire("expired", 1);
    let path = path_of(leader as u64 + 1);
    until("the end of the short lease is written", || {
        history(&lines(&path), "expired").len() == 2
    });
    for follower in nodes.followers() {
        nodes.stop(follower);
    }
    peer.send(&acquire("unsettled", 60_000, 0));
    // It cannot be settled any more, and the leader gives up its leadership before it answers.
    peer.is_closed_with(ErrorCode::NOT_LEADER);
    nodes.stop(leader);
    let lines = lines(&path);
    let events = |key: &str| -> Vec<(String, u64)> {
        let event = |line: &Value| {
            let event = line["event"].as_str().expect("an event");
            (event.to_owned(), line["fence"].as_u64().expect("a fence"))
        };
        history(&lines, key).iter().map(event).collect()
    };
    let grant_and = |end: &str, fence| vec![("grant".to_owned(), fence), (end.to_owned(), fence)];
    assert_eq!(events("settled"), grant_and("release", settled));
    assert_eq!(events("expired"), grant_and("loss", expired));
    assert_eq!(events("unsettled"), []);
    let of_server: Vec<&str> = lines
        .iter()
        .filter(|line| line["key"].is_null())
        .filter_map(|line| line["event"].as_str())
        .collect();
    assert_eq!(of_server, ["start", "lead", "follow", "stop"]);
    assert_eq!(lines[0]["node_id"], leader as u64 + 1);
}

/// A server with a log, whose audit log lies beside its data.
fn start_on(data_dir: &Path, audit_log: &Path, durability: Durability) -> Server {
    start_with(|builder| {
        builder.with(|config| {
            config.data_dir = data_dir.to_owned();
            config.durability = durability;
            config.audit_log = Some(audit_log.to_owned());
        })
    })
}

/// The fences of a key that were held at a moment, if the files tell for certain.
#[track_caller]
fn held_at(path: &Path, key: &str, at: SystemTime) -> Vec<u64> {
    let key = AuditKey {
        key: key.as_bytes(),
        db: 0,
    };
    let answer = holders_at(path, key, at).unwrap();
    assert!(answer.is_certain, "{answer:?}");
    answer.holders.iter().map(|hold| hold.fence).collect()
}

#[test]
fn locks_that_a_start_puts_back_have_lines_and_the_start_says_how_the_last_stop_was() {
    let (data, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = logs.path().join("audit.log");
    let server = start_on(data.path(), &path, Durability::Fence);
    let mut a = Peer::connect(server.local_addr(), "a");
    let kept = a.acquire("kept", 600_000);
    a.acquire("short", 1);
    until("its end is written", || {
        history(&lines(&path), "short").len() == 2
    });
    server.shutdown();
    let stopped = SystemTime::now();
    let server = start_on(data.path(), &path, Durability::Fence);
    server.shutdown();

    let lines = lines(&path);
    let starts: Vec<&Value> = lines
        .iter()
        .filter(|line| line["event"] == "start")
        .collect();
    assert_eq!(starts[0]["last_stop"], "none");
    assert_eq!(starts[1]["last_stop"], "clean");
    assert_eq!(
        (&starts[1]["restored"], &starts[1]["untold"]),
        (&json!(1), &json!(0))
    );
    let history = history(&lines, "kept");
    assert_eq!(history.len(), 2, "{history:?}");
    assert_eq!(history[1]["event"], "restore");
    assert_eq!(history[1]["session_id"], session_id(&a));
    assert_eq!(history[1]["client_name"], "a");
    assert!(history[1]["ttl_ms"].as_u64().unwrap() <= 600_000);
    assert_eq!(held_at(&path, "kept", stopped), [kept]);
    assert_eq!(held_at(&path, "kept", SystemTime::now()), [kept]);
    assert!(held_at(&path, "short", stopped).is_empty());
}

#[test]
fn after_a_crash_claims_have_lines_and_what_was_not_claimed_is_told_apart() {
    let (data, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = logs.path().join("audit.log");
    let server = start_on(data.path(), &path, Durability::Fence);
    let mut a = Peer::connect(server.local_addr(), "a");
    let claimed = a.acquire("claimed", 4_000);
    let unclaimed = a.acquire("unclaimed", 4_000);
    let session = a.session.expect("it has one");
    until("both grants are written", || {
        let lines = lines(&path);
        history(&lines, "unclaimed").len() == 1 && history(&lines, "claimed").len() == 1
    });
    // What a kill would leave of both.
    let left = wreck(data.path());
    let left_log = logs.path().join("left.log");
    std::fs::copy(&path, &left_log).unwrap();
    let before = SystemTime::now();
    server.shutdown();

    let server = start_on(left.path(), &left_log, Durability::Fence);
    let mut a = Peer::resume(server.local_addr(), "a", session, 1_000);
    let traced = Claim {
        trace_id: TraceId::new("trace-a").expect("short"),
        ..claim("claimed", claimed, 60_000)
    };
    let back = a.ask(&Request::Claim(traced), granted);
    assert_eq!(back, claimed);
    until("the grace period is over", || {
        lines(&left_log)
            .iter()
            .any(|line| line["event"] == "grace_over")
    });
    assert!(a.release("claimed", claimed));
    server.shutdown();

    let lines = lines(&left_log);
    let start = lines.iter().rfind(|line| line["event"] == "start").unwrap();
    assert_eq!(start["last_stop"], "crash");
    assert!(start["grace_ms"].as_u64().unwrap() > 0);
    let over = lines
        .iter()
        .find(|line| line["event"] == "grace_over")
        .unwrap();
    assert_eq!(over["claimed"], 1);
    let history = history(&lines, "claimed");
    assert_eq!(history[1]["event"], "claim");
    assert_eq!(history[1]["address"], address(&a));
    assert_eq!(history[2]["event"], "release");
    for line in &history[1..] {
        assert_eq!(line["trace_id"], "trace-a", "the claim carried it");
    }
    assert_eq!(held_at(&left_log, "claimed", before), [claimed]);
    let key = AuditKey {
        key: b"unclaimed",
        db: 0,
    };
    let now = SystemTime::now() + Duration::from_secs(1);
    let answer = holders_at(&left_log, key, now).unwrap();
    assert!(
        answer.holders.is_empty() && !answer.is_certain,
        "{answer:?}"
    );
    let notes = answer.notes.join("; ");
    assert!(
        notes.contains(&format!("fence {unclaimed} of a")),
        "{notes}"
    );
    assert!(notes.contains("not claimed"), "{notes}");
}

#[test]
fn redis_clients_are_named_with_database_and_owner_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let server = start_with(|builder| {
        builder.with(|config| {
            config.audit_log = Some(path.clone());
            config.redis_listen = Some("127.0.0.1:0".parse().unwrap());
        })
    });
    let mut redis = Redis::connect(&server);
    assert_eq!(redis.say("CLIENT SETNAME billing"), "OK");
    assert_eq!(redis.say("SELECT 3"), "OK");
    assert_eq!(redis.say("SET orders/42 token-1 NX PX 60000"), "OK");
    assert_eq!(redis.say("SELECT 0"), "OK");
    assert_eq!(redis.say("SET orders/42 token-2 NX PX 60000"), "OK");
    let mut other = Redis::connect(&server);
    assert_eq!(other.say("DEL orders/42"), "1");
    let address = |redis: &Redis<std::net::TcpStream>| {
        let stream = redis.stream.get_ref();
        stream.local_addr().unwrap().to_string()
    };
    let (of_redis, of_other) = (address(&redis), address(&other));
    server.shutdown();

    let lines = lines(&path);
    let grants: Vec<&Value> = lines
        .iter()
        .filter(|line| line["event"] == "grant")
        .collect();
    let grant = grants[0];
    assert_eq!(
        (&grant["key"], &grant["db"]),
        (&json!("orders/42"), &json!(3))
    );
    assert_eq!(grant["owner_token"], "token-1");
    assert_eq!(grant["client_name"], "billing");
    assert_eq!(grant["address"], of_redis);
    assert_eq!(grants[1]["owner_token"], "token-2");
    assert!(grants[1]["db"].is_null(), "native clients share database 0");
    let force = lines.iter().find(|line| line["event"] == "force").unwrap();
    assert_eq!(force["fence"], grants[1]["fence"]);
    assert_eq!(force["address"], of_other);
    assert_eq!(
        force["client_name"], "redis",
        "it has not said another name"
    );
}

#[test]
fn a_full_file_is_renamed_and_the_reader_finds_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let server = start_with(|builder| {
        builder.with(|config| {
            config.audit_log = Some(path.clone());
            config.audit_rotate_bytes = 4_096;
        })
    });
    let mut a = Peer::connect(server.local_addr(), "a");
    let first = a.acquire("first", 600_000);
    let mut count = 0;
    until("there are three files", || {
        let fence = a.acquire("k", 60_000);
        assert!(a.release("k", fence));
        count += 1;
        std::fs::read_dir(directory.path()).unwrap().count() >= 3
    });
    server.shutdown();
    assert_eq!(held_at(&path, "first", SystemTime::now()), [first]);
    let key = AuditKey { key: b"k", db: 0 };
    let span = server::history::TimeSpan::default();
    let timeline = server::history::timeline(&path, key, span, usize::MAX).unwrap();
    let of_key = timeline
        .entries
        .iter()
        .filter(|entry| !entry.is_of_server());
    assert_eq!(of_key.count(), 2 * count);
    assert!(timeline.coverage.is_whole(), "{:?}", timeline.coverage);
    assert!(timeline.coverage.files >= 3);
}
