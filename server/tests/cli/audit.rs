//! `fencepost audit`: who held a key, from the files that a real server has written.

use crate::program::{Held, Server, await_condition, run};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;

/// A server with an audit log, and the log's name.
fn start(dir: &Path) -> (Server, String) {
    let log = dir.join("audit.log").display().to_string();
    (Server::start(&[&format!("--audit-log={log}")]), log)
}

fn text(log: &str) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

#[test]
fn the_holder_of_a_moment_is_named_and_the_span_of_the_files_told() {
    let dir = tempfile::tempdir().unwrap();
    let (server, log) = start(dir.path());
    let held = Held::key(&server, "orders/42");
    await_condition(|| text(&log).contains("\"grant\""));
    let then = {
        let text = text(&log);
        let line = text
            .lines()
            .find(|line| line.contains("\"grant\""))
            .unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        line["time"].as_str().unwrap().to_owned()
    };
    let fence = held.fence;
    assert_eq!(held.release(), Some(0));
    await_condition(|| text(&log).contains("\"release\""));
    assert_eq!(server.end_by(Signal::TERM).code(), Some(0));

    let told = run(["audit", "orders/42", "--at", &then, "--log", &log]).printed();
    assert!(told.contains("orders/42 was held at "), "{told}");
    assert!(told.contains(&format!("fence    {fence}\n")), "{told}");
    assert!(told.contains("(released)"), "{told}");
    assert!(told.contains("from 127.0.0.1:"), "{told}");
    assert!(told.contains("none is missing"), "{told}");

    let json = run(["audit", "orders/42", "--at", &then, "--log", &log, "--json"]).printed();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["is_certain"], true);
    assert_eq!(json["holders"][0]["fence"], fence);
    assert_eq!(json["coverage"]["missing"], 0);

    let told = run(["audit", "orders/42", "--at", "now", "--log", &log]).printed();
    assert!(told.contains("orders/42 was free at "), "{told}");
    let told = run(["audit", "orders/41", "--at", &then, "--log", &log]).printed();
    assert!(told.contains("orders/41 was free at "), "{told}");
}

#[test]
fn what_happened_is_told_line_by_line_and_missing_lines_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (server, log) = start(dir.path());
    assert_eq!(Held::key(&server, "k").release(), Some(0));
    await_condition(|| text(&log).contains("\"release\""));
    assert_eq!(server.end_by(Signal::TERM).code(), Some(0));
    let first = text(&log).lines().next().unwrap().to_owned();
    let first: Value = serde_json::from_str(&first).unwrap();
    let since = first["time"].as_str().unwrap();

    let told = run(["audit", "k", "--since", since, "--log", &log]).printed();
    let events: Vec<&str> = told
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(events[..4], ["start", "grant", "release", "stop"], "{told}");

    // The line of the release gets lost.
    let kept: String = text(&log)
        .lines()
        .filter(|line| !line.contains("\"release\""))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&log, kept).unwrap();
    let ended = run(["audit", "k", "--since", since, "--log", &log, "--json"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let coverage: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(coverage["coverage"]["missing"], 1);
    let ended = run(["audit", "k", "--at", "now", "--log", &log]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("1 line is missing"), "{ended:?}");
}

#[test]
fn a_log_that_is_not_there_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("none.log").display().to_string();
    let complaint = run(["audit", "k", "--at", "now", "--log", &log]).complained(2);
    assert!(complaint.contains("there is no audit log"), "{complaint}");
    assert!(complaint.contains("audit_log"), "{complaint}");
}
