//! The audit log: every way a lock is granted and ends, in the file.

use crate::common::{
    OwnedPush, PATIENCE, Peer, acquire, granted, start_with, wire_fence, wire_key,
};
use protocol::{Acquire, Lease, LostReason, Reply, Request, TraceId};
use serde_json::{Value, json};
use server::{Server, StartError};
use std::path::{Path, PathBuf};
use std::time::Instant;
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
        expected_seq = match line["event"].as_str() {
            Some("start") => 1,
            _ => expected_seq + 1,
        };
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
        "session_id": session_id(&a), "client_name": "worker-7",
        "is_shared": false, "ttl_ms": 30_000, "wait_ms": 0, "hold_count": 1,
        "trace_id": "4bf92f3577b34da6",
    });
    assert_eq!(history[0], expected);
    take(&mut history[1], "held_ms");
    let expected = json!({
        "event": "release", "key": "orders/42", "fence": fence,
        "session_id": session_id(&a), "client_name": "worker-7",
        "hold_count": 0, "ended": "released",
    });
    assert_eq!(history[1], expected);
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
        "session_id": session_id(&b), "client_name": "b",
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
    let request = Request::ForceRelease {
        key: wire_key("forced"),
        fence: wire_fence(forced),
    };
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
