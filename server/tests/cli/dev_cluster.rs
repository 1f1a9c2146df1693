//! `fencepost dev-cluster`: it starts, shows what to try, and leaves nothing behind.

use crate::program::{PATIENCE, fencepost, run};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// One that has explained itself.
struct Running {
    child: Child,
    temp: TempDir,
    pids: Vec<Pid>,
    /// `export FENCEPOST_SERVER=..`, by name.
    exports: Vec<(String, String)>,
    lines: mpsc::Receiver<String>,
}

fn start() -> Running {
    let temp = tempfile::tempdir().unwrap();
    let mut child = fencepost(["dev-cluster"])
        .env("TMPDIR", temp.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = lines_of(child.stdout.take().unwrap());
    let (mut pids, mut exports) = (Vec::new(), Vec::new());
    loop {
        let line = lines.recv_timeout(PATIENCE).expect("it explains itself");
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["node", _, "pid", pid, ..] => {
                pids.push(Pid::from_raw(pid.parse().unwrap()).unwrap());
            }
            ["export", ..] => {
                let named = words[1..].iter().filter_map(|word| word.split_once('='));
                exports.extend(named.map(|(name, value)| (name.to_owned(), value.to_owned())));
            }
            ["Log", "lines", ..] => break,
            _ => {}
        }
    }
    assert_eq!(pids.len(), 3);
    Running {
        child,
        temp,
        pids,
        exports,
        lines,
    }
}

fn lines_of(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    lines
}

impl Running {
    /// Runs the program with what it said is to be exported.
    fn run(&self, arguments: &[&str]) -> String {
        let mut command = fencepost(arguments);
        for (name, value) in &self.exports {
            command.env(name, value);
        }
        crate::program::end(&mut command).printed()
    }

    /// Waits for a line that contains this.
    fn wait_for(&self, what: &str) {
        let heard = std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok());
        let found = heard.into_iter().any(|line| line.contains(what));
        assert!(found, "no line says {what:?}");
    }

    /// Sends a signal and waits until it and all nodes are gone.
    fn end_by(mut self, signal: Signal) -> (Option<i32>, TempDir) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let code = self.child.wait().unwrap().code();
        let deadline = Instant::now() + PATIENCE;
        while self.pids.iter().any(|pid| test_kill_process(*pid).is_ok()) {
            assert!(Instant::now() < deadline, "a node has outlived its cluster");
            std::thread::sleep(Duration::from_millis(10));
        }
        (code, self.temp)
    }
}

#[test]
fn a_dev_cluster_serves_outlives_its_leader_and_leaves_nothing_behind() {
    let cluster = start();
    let fence = cluster.run(&["lock", "jobs/a", "--", "sh", "-c", "echo $FENCEPOST_FENCE"]);
    let fence: u64 = fence.trim().parse().unwrap();

    let status = cluster.run(&["cluster", "status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let leader = status["leader"].as_u64().unwrap();
    kill_process(cluster.pids[leader as usize - 1], Signal::KILL).unwrap();
    cluster.wait_for("was ended by signal 9");
    cluster.wait_for("leads (term");
    let later = cluster.run(&["lock", "jobs/a", "--", "sh", "-c", "echo $FENCEPOST_FENCE"]);
    assert!(later.trim().parse::<u64>().unwrap() > fence);

    let (code, temp) = cluster.end_by(Signal::INT);
    assert_eq!(code, Some(0));
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn its_nodes_end_even_if_it_is_killed() {
    let (code, _) = start().end_by(Signal::KILL);
    assert_eq!(code, None);
}

#[test]
fn no_more_nodes_than_are_of_use() {
    let refused = run(["dev-cluster", "--nodes", "0"]).complained(2);
    assert!(refused.contains("1..=7"), "{refused}");
}
