//! The commands on a cluster, against nodes that are processes of their own.
//!
//! Three nodes take a second to start, so what changes nothing for good shares them.

use crate::auth::hash;
use crate::program::{Ended, PATIENCE, Server, await_condition, end, fencepost};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use tempfile::TempDir;

const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Below what Linux gives to outgoing connections, and below what `dev-cluster` takes.
const PORTS: std::ops::Range<u16> = 12_000..20_000;

/// A port that is free, and that no other test of this process is given.
fn free_port() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    // Other processes that test begin elsewhere.
    let first = (std::process::id() as u16).wrapping_mul(31) % count;
    for _ in 0..count {
        let at = NEXT.fetch_add(1, Ordering::Relaxed) % count;
        let port = PORTS.start + (first + at) % count;
        let address = SocketAddr::from((LOOPBACK, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port is free");
}

/// A key of one digit. Written once: a program may be reading it.
fn key_file(dir: &Path, digit: &str) -> PathBuf {
    let path = dir.join(format!("key-{digit}"));
    if path.exists() {
        return path;
    }
    std::fs::write(&path, digit.repeat(64)).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

/// Nodes with a directory of their own each.
pub(crate) struct Cluster {
    dir: TempDir,
    pub(crate) nodes: BTreeMap<u64, Server>,
    pub(crate) peers: BTreeMap<u64, SocketAddr>,
    http: BTreeMap<u64, SocketAddr>,
}

impl Cluster {
    fn new(dir: TempDir) -> Cluster {
        Cluster {
            dir,
            nodes: BTreeMap::new(),
            peers: BTreeMap::new(),
            http: BTreeMap::new(),
        }
    }

    /// So many nodes that have ports and have not been started.
    pub(crate) fn with_ports(count: u64) -> Cluster {
        let mut cluster = Cluster::new(tempfile::tempdir().unwrap());
        cluster.peers = (1..=count).map(|id| (id, free_port())).collect();
        cluster
    }

    /// Three nodes, one of which leads.
    fn start() -> Cluster {
        let mut cluster = Cluster::with_ports(3);
        for id in 1..=3 {
            cluster.start_node(id, &["--bootstrap"]);
        }
        cluster.await_leader();
        cluster
    }

    /// One node of a cluster whose directory is there: `node-ID` in `dir`.
    fn start_alone(dir: TempDir, id: u64) -> Cluster {
        let mut cluster = Cluster::new(dir);
        cluster.peers.insert(id, free_port());
        cluster.start_node(id, &[]);
        cluster.await_leader();
        cluster
    }

    fn data_dir(&self, id: u64) -> PathBuf {
        self.dir.path().join(format!("node-{id}"))
    }

    /// Starts a node that `peers` names.
    pub(crate) fn start_node(&mut self, id: u64, more: &[&str]) {
        let peers = self.peers.iter();
        let peers: Vec<String> = peers.map(|(id, peer)| format!("{id}={peer}")).collect();
        let http = free_port();
        let mut arguments = vec![
            "--durability=lease".to_owned(),
            "--threads=1".to_owned(),
            format!("--node-id={id}"),
            format!("--peers={}", peers.join(",")),
            format!("--http={http}"),
            format!("--data-dir={}", self.data_dir(id).display()),
            format!(
                "--cluster-key-file={}",
                key_file(self.dir.path(), "a").display()
            ),
        ];
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.nodes.insert(id, Server::start(&arguments));
        self.http.insert(id, http);
    }

    pub(crate) fn stop_node(&mut self, id: u64, signal: Signal) {
        self.nodes.remove(&id).unwrap().end_by(signal);
    }

    /// `fencepost cluster` with these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let peers: Vec<String> = self.peers.values().map(SocketAddr::to_string).collect();
        let mut command = fencepost(["cluster"]);
        command
            .args(arguments)
            .env("FENCEPOST_NODE", peers.join(","));
        command.env("FENCEPOST_CLUSTER_KEY_FILE", key_file(self.dir.path(), "a"));
        command
    }

    /// Runs it to its end.
    #[track_caller]
    fn run(&self, arguments: &[&str]) -> Ended {
        end(&mut self.command(arguments))
    }

    /// Another command of the program, at the nodes that run.
    fn ask(&self, arguments: &[&str]) -> Value {
        let addresses: Vec<&str> = self.nodes.values().map(|node| &*node.address).collect();
        let mut command = fencepost(arguments);
        command
            .arg("--json")
            .arg("--server")
            .arg(addresses.join(","));
        serde_json::from_str(&end(&mut command).printed()).unwrap()
    }

    fn status(&self) -> Option<Value> {
        let ended = self.run(&["status", "--json"]);
        match ended.code {
            Some(0) => Some(serde_json::from_str(&ended.stdout).unwrap()),
            _ => None,
        }
    }

    fn leader(&self) -> Option<u64> {
        self.status()?["leader"].as_u64()
    }

    fn await_leader(&self) -> u64 {
        let mut leader = None;
        await_condition(|| {
            leader = self.leader();
            leader.is_some()
        });
        leader.unwrap()
    }

    /// Takes a lock that stays; its fence.
    pub(crate) fn detach(&self, key: &str) -> u64 {
        let taken = self.ask(&["lock", key, "--detach", "--ttl=1h", "--wait=20s"]);
        taken["fence"].as_u64().unwrap()
    }

    pub(crate) fn fence_of_holder(&self, key: &str) -> Option<u64> {
        self.ask(&["query", key])["holders"][0]["fence"].as_u64()
    }

    /// What a node says over HTTP.
    pub(crate) fn get(&self, id: u64, path: &str) -> String {
        self.send(id, "GET", path, "")
    }

    /// The answer of a node, head and body.
    fn send(&self, id: u64, method: &str, path: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(self.http[&id]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    /// What a node has logged of its cluster, from this line on. openraft must be silent.
    fn story_from(&self, id: u64, from: usize) -> Vec<String> {
        let lines = self.nodes[&id].log();
        let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
        let lines: Vec<(String, String)> = lines
            .iter()
            .map(|line| (text(line, "target"), text(line, "message")))
            .collect();
        let is_silent = |(target, _): &(String, String)| !target.starts_with("openraft");
        assert!(lines.iter().all(is_silent), "{lines:?}");
        let of_cluster = lines.into_iter().skip(from);
        let of_cluster =
            of_cluster.filter(|(target, _)| target.starts_with("fencepost_server::node"));
        of_cluster.map(|(_, message)| message).collect()
    }
}

/// A token of this name, for tests of rights.
fn token(name: &str) -> String {
    format!("the-long-token-of-{name}")
}

/// The two nodes of three that are not this one.
fn others(id: u64) -> (u64, u64) {
    (id % 3 + 1, (id + 1) % 3 + 1)
}

#[test]
fn a_token_with_the_role_operate_changes_the_cluster_over_http() {
    let mut cluster = Cluster::with_ports(3);
    let rights = cluster.dir.path().join("rights.toml");
    let entry = |name: &str, rest: &str| {
        let sha256 = hash(&token(name));
        format!("[[token]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\n{rest}\n")
    };
    let text = [
        entry("chief", "roles = [\"read\", \"operate\"]"),
        entry("reader", "roles = [\"read\", \"lock\"]"),
        entry("part", "roles = [\"operate\"]\nprefixes = [\"orders/\"]"),
    ];
    std::fs::write(&rights, text.concat()).unwrap();
    let audit_of = |id: u64, dir: &Path| dir.join(format!("audit-{id}"));
    for id in 1..=3 {
        let audit = audit_of(id, cluster.dir.path());
        let flags = [
            "--bootstrap".to_owned(),
            format!("--auth-file={}", rights.display()),
            format!("--audit-log={}", audit.display()),
        ];
        cluster.start_node(id, &flags.each_ref().map(String::as_str));
    }
    let leader = cluster.await_leader();
    let (other, third) = others(leader);
    let post = |id: u64, path: &str, name: &str| {
        let headers = format!(
            "X-Fencepost-Operator: 1\r\nAuthorization: Bearer {}\r\n",
            token(name)
        );
        cluster.send(id, "POST", path, &headers)
    };
    let transfer = format!("/cluster/transfer?to={other}");
    for name in ["reader", "part", "unknown"] {
        let answer = post(leader, &transfer, name);
        let status = answer.split(' ').nth(1);
        assert!(matches!(status, Some("401" | "403")), "{name}: {answer}");
    }
    let unmeant = format!("Authorization: Bearer {}\r\n", token("chief"));
    let unmeant = cluster.send(leader, "POST", &transfer, &unmeant);
    assert!(unmeant.starts_with("HTTP/1.1 403"), "{unmeant}");
    assert_eq!(cluster.leader(), Some(leader), "nothing has happened");

    let elsewhere = post(third, &transfer, "chief");
    assert!(elsewhere.starts_with("HTTP/1.1 503"), "{elsewhere}");
    assert!(
        elsewhere.contains(&format!("node {leader} leads")),
        "{elsewhere}"
    );
    let done = post(leader, &transfer, "chief");
    assert!(done.starts_with("HTTP/1.1 200"), "{done}");
    await_condition(|| cluster.leader() == Some(other));
    let refused = post(other, "/cluster/remove?node=9", "chief");
    assert!(refused.starts_with("HTTP/1.1 409"), "{refused}");
    assert!(refused.contains("node 9 is no member"), "{refused}");
    let wildcard = post(other, "/cluster/add?node=9&peer=0.0.0.0:7500", "chief");
    assert!(wildcard.starts_with("HTTP/1.1 409"), "{wildcard}");
    assert!(wildcard.contains("--peer-listen"), "{wildcard}");
    let unknown = post(other, "/cluster/restore?node=9", "chief");
    assert!(unknown.starts_with("HTTP/1.1 400"), "{unknown}");
    let removed = post(other, &format!("/cluster/remove?node={third}"), "chief");
    assert!(removed.starts_with("HTTP/1.1 200"), "{removed}");
    let members = cluster.status().unwrap()["nodes"].as_array().unwrap().len();
    assert_eq!(members, 2);

    let log = |id| std::fs::read_to_string(audit_of(id, cluster.dir.path())).unwrap();
    let has = |id, change: &str| {
        let line = format!("\"token_name\":\"chief\",\"change\":\"{change}\"");
        log(id).contains(&line)
    };
    await_condition(|| has(leader, &format!("have node {other} lead")));
    await_condition(|| has(other, &format!("remove node {third}")));
    assert!(
        log(leader).contains("\"event\":\"refuse\""),
        "{}",
        log(leader)
    );
}

#[test]
fn members_come_and_go_and_the_majority_is_kept() {
    let mut cluster = Cluster::start();
    let leader = cluster.await_leader();
    let (other, _) = others(leader);
    let done = cluster.run(&["transfer", &other.to_string()]).printed();
    assert_eq!(done, format!("node {other} leads\n"));
    assert_eq!(cluster.leader(), Some(other));
    let done = cluster.run(&["transfer", &other.to_string()]).printed();
    assert_eq!(done, format!("node {other} leads already\n"));
    let refused = cluster.run(&["transfer", "9"]).complained(1);
    assert!(refused.contains("node 9 is no member"), "{refused}");

    let fence = cluster.detach("jobs/a");
    let peer = free_port();
    cluster.peers.insert(4, peer);
    cluster.start_node(4, &[]);
    let waits =
        format!("node 4 belongs to no cluster yet: it waits for `fencepost cluster add 4={peer}`");
    let log = cluster.nodes[&4].log();
    assert!(log.iter().any(|line| line["message"] == *waits), "{log:?}");
    let added = cluster.run(&["add", &format!("4={peer}")]).printed();
    assert_eq!(
        added,
        "node 4 has caught up and has a vote: 4 nodes vote, and 1 may fail\n"
    );
    let again = cluster.run(&["add", &format!("4={peer}")]).complained(1);
    assert!(again.contains("a member already"), "{again}");

    a_node_that_does_not_answer_gets_no_vote(&cluster);

    // Also the leader can be taken out: another node leads first.
    let leader = cluster.await_leader();
    let removed = cluster.run(&["remove", &leader.to_string()]).printed();
    assert_eq!(
        removed,
        format!("node {leader} is no member any more, stop it: 3 nodes vote, and 1 may fail\n")
    );
    cluster.stop_node(leader, Signal::TERM);
    let peer = cluster.peers.remove(&leader).unwrap();
    let used = cluster.run(&["add", &format!("{leader}={peer}")]);
    let used = used.complained(1);
    assert!(used.contains("was used before"), "{used}");
    assert_eq!(cluster.fence_of_holder("jobs/a"), Some(fence));

    let leader = cluster.await_leader();
    let mut followers = cluster.peers.keys().filter(|id| **id != leader);
    let (down, up) = (*followers.next().unwrap(), *followers.next().unwrap());
    cluster.stop_node(down, Signal::KILL);
    let ended = cluster.run(&["status"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("no answer"), "{ended:?}");
    let silent = format!("node {down} does not answer");
    assert!(ended.stderr.contains(&silent), "{ended:?}");
    // The leader counts a node as gone when it has not heard from it for two seconds.
    await_condition(|| {
        let status = cluster.status().unwrap();
        let mut nodes = status["nodes"].as_array().unwrap().iter();
        let node = nodes.find(|node| node["node"] == down).unwrap();
        node["heard_ms"].as_u64().is_none_or(|ms| ms > 2_000)
    });
    let refused = cluster.run(&["transfer", &down.to_string()]).complained(1);
    assert!(refused.contains("was not heard from"), "{refused}");
    let refused = cluster.run(&["remove", &up.to_string()]).complained(1);
    assert!(refused.contains("bring the others back first"), "{refused}");
    let removed = cluster.run(&["remove", &down.to_string()]).printed();
    assert!(
        removed.contains("2 nodes vote, and none may fail"),
        "{removed}"
    );
}

fn a_node_that_does_not_answer_gets_no_vote(cluster: &Cluster) {
    let member = format!("5={}", free_port());
    let mut adding = cluster.command(&["add", &member]);
    let mut adding = adding.stderr(Stdio::piped()).spawn().unwrap();
    let votes = || {
        let status = cluster.status()?;
        let mut nodes = status["nodes"].as_array().unwrap().iter();
        nodes.find(|node| node["node"] == 5)?["votes"].as_bool()
    };
    await_condition(|| votes().is_some());
    assert_eq!(adding.try_wait().unwrap(), None, "it waits for the node");
    let mut told = String::new();
    let stderr = adding.stderr.take().expect("it is a pipe");
    BufReader::new(stderr).read_line(&mut told).unwrap();
    assert!(told.contains("waiting for node 5"), "{told}");
    let removed = cluster.run(&["remove", "5"]).printed();
    assert!(removed.contains("node 5, which had no vote"), "{removed}");
    assert_eq!(votes(), None);
    adding.kill().unwrap();
    adding.wait().unwrap();
}

#[test]
fn a_running_cluster_shows_itself_and_is_backed_up() {
    let mut cluster = Cluster::start();
    status_shows_every_node(&cluster);
    what_cannot_be_asked_is_told_with_its_code(&cluster);
    the_leader_counts_what_its_cluster_does(&cluster);
    a_backup_becomes_a_new_cluster(&cluster);
    an_election_is_three_lines(&mut cluster);
    one_node_becomes_a_new_cluster(cluster);
}

fn status_shows_every_node(cluster: &Cluster) {
    await_condition(|| {
        let status = cluster.status();
        let nodes = status
            .as_ref()
            .map(|status| status["nodes"].as_array().unwrap());
        nodes.is_some_and(|nodes| {
            let client = |node: &Value| node["client"].as_str() != Some("");
            nodes.iter().all(client)
        })
    });
    let leader = cluster.await_leader();
    let status_of = |id: u64, name: &str| {
        let status = cluster.status().unwrap();
        let mut nodes = status["nodes"].as_array().unwrap().iter();
        let node = nodes.find(|node| node["node"] == id).unwrap();
        node["status"][name].as_u64().unwrap()
    };
    assert!(status_of(leader, "committed_index") > 0);
    let (follower, _) = others(leader);
    await_condition(|| status_of(follower, "committed_index") > 0);
    // It has led since before this, and it still does.
    let since = status_of(leader, "role_since_unix_ms");
    assert!(since > 0);
    assert_eq!(status_of(leader, "role_since_unix_ms"), since);
    let text = cluster.run(&["status"]).printed();
    assert!(text.contains("3 voters, 3 of 3 nodes answer"), "{text}");
    assert!(text.contains("NODE  ROLE"), "{text}");
    assert_eq!(text.matches("follower").count(), 2, "{text}");
    for node in cluster.nodes.values() {
        assert!(text.contains(&node.address), "{text}");
    }
}

fn what_cannot_be_asked_is_told_with_its_code(cluster: &Cluster) {
    let node = cluster.peers[&1].to_string();
    let other_key = key_file(cluster.dir.path(), "b");
    let ask = |node: &str, key: &Path| {
        let mut command = fencepost(["cluster", "status", "--node", node]);
        end(command.arg("--cluster-key-file").arg(key))
    };
    let refused = ask(&node, &other_key).complained(77);
    assert!(refused.contains("--cluster-key-file"), "{refused}");
    let nowhere = free_port().to_string();
    let silent = ask(&nowhere, &key_file(cluster.dir.path(), "a")).complained(69);
    assert!(silent.contains("--node"), "{silent}");
    let missing = ask(&node, Path::new("/nowhere/key")).complained(2);
    let expected = "there is no cluster key file";
    assert!(missing.contains(expected), "{missing}");
    let two = cluster.run(&["add", "4=a:1,5=b:2"]).complained(2);
    assert!(two.contains("one node is added at a time"), "{two}");
    let wildcard = cluster.run(&["add", "4=0.0.0.0:7500"]).complained(2);
    assert!(wildcard.contains("--peer-listen"), "{wildcard}");
}

fn the_leader_counts_what_its_cluster_does(cluster: &Cluster) {
    cluster.detach("jobs/counted");
    let leader = cluster.await_leader();
    let page = cluster.get(leader, "/metrics");
    let value = |page: &str, name: &str| -> f64 {
        let name = format!("fencepost_cluster_{name} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&name));
        let line = line.unwrap_or_else(|| panic!("there is no {name} in {page}"));
        line.trim().parse().unwrap()
    };
    assert_eq!(value(&page, "is_leader"), 1.0);
    assert_eq!(value(&page, "keeps_up"), 1.0);
    assert_eq!(value(&page, "leader"), leader as f64);
    for counted in [
        "term",
        "reigns_total",
        "applied_index",
        "commit_seconds_count",
        "commit_seconds_sum",
        "entries_total",
        "entry_bytes_total",
        "ledger_keys",
    ] {
        assert!(value(&page, counted) > 0.0, "{counted}");
    }
    assert_eq!(value(&page, "ignored_batches_total"), 0.0);
    assert!(value(&page, "clock_seconds") > 1e9);
    // The nodes compare their ledgers for the first time at entry 4096.
    assert_eq!(value(&page, "checked_index"), 0.0);
    assert_eq!(value(&page, "ledger_hash"), 0.0);
    let (follower, _) = others(leader);
    let lag = format!("follower_lag_entries{{node=\"{follower}\"}}");
    assert!(value(&page, &lag) >= 0.0);
    let named = |kind: &str| -> Vec<String> {
        let begin = format!("# {kind} fencepost_cluster_");
        let names = page.lines().filter_map(|line| line.strip_prefix(&begin));
        let names = names.map(|line| line.split(' ').next().unwrap().to_owned());
        names.collect()
    };
    assert_eq!(named("HELP").len(), 15);
    assert_eq!(named("HELP"), named("TYPE"));

    let page = cluster.get(follower, "/metrics");
    assert_eq!(value(&page, "is_leader"), 0.0);
    assert_eq!(value(&page, "leader"), leader as f64);
    assert!(!page.contains("follower_lag"), "{page}");
}

fn a_backup_becomes_a_new_cluster(cluster: &Cluster) {
    let fence = cluster.detach("jobs/a");
    let file = cluster.dir.path().join("backup");
    let name = file.to_str().unwrap();
    cluster.run(&["backup", name]).printed();
    let later = cluster.detach("jobs/b");
    let exists = cluster.run(&["backup", name]).complained(2);
    assert!(exists.contains("give the name of a new file"), "{exists}");

    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("node-7");
    let restore = |accepted: &[&str], data_dir: &Path| {
        let mut command = fencepost(["cluster", "restore", name, "--node-id=7"]);
        end(command.args(accepted).arg("--data-dir").arg(data_dir))
    };
    let planned = restore(&[], &data_dir);
    assert_eq!(planned.code, Some(2), "{planned:?}");
    assert!(planned.stdout.contains("next fence"), "{planned:?}");
    assert!(planned.stdout.contains("a new id"), "{planned:?}");
    assert!(!data_dir.exists());
    restore(&["--accept-loss"], &data_dir).printed();
    let again = restore(&["--accept-loss"], &data_dir).complained(2);
    assert!(again.contains("is not empty"), "{again}");

    let restored = Cluster::start_alone(dir, 7);
    assert_eq!(restored.fence_of_holder("jobs/a"), Some(fence));
    assert_eq!(restored.fence_of_holder("jobs/b"), None, "it came later");
    assert!(restored.detach("jobs/b") > later + (1 << 40));
    // The lease goes on: another client does not get the lock.
    let mut command = fencepost(["lock", "jobs/a", "--detach", "--server"]);
    let refused = end(command.arg(&restored.nodes[&7].address)).complained(75);
    assert!(refused.contains("held"), "{refused}");
    let id = |cluster: &Cluster| cluster.status().unwrap()["cluster"].clone();
    assert_ne!(id(&restored), id(cluster));

    let mut damaged = std::fs::read(&file).unwrap();
    damaged[100] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let nowhere = cluster.dir.path().join("nowhere");
    let refused = restore(&["--accept-loss"], &nowhere).complained(1);
    assert!(refused.contains("damaged"), "{refused}");
    assert!(!nowhere.exists());
}

/// The leader is killed, and comes back.
fn an_election_is_three_lines(cluster: &mut Cluster) {
    let old = cluster.await_leader();
    let followers = others(old);
    let from = |id: u64| cluster.nodes[&id].log().len();
    let from = [followers.0, followers.1].map(|id| (id, from(id)));
    cluster.stop_node(old, Signal::KILL);
    let new = cluster.await_leader();
    cluster.detach("jobs/after-election");
    for (id, from) in from {
        let ends = match id == new {
            true => "this node leads and serves clients".to_owned(),
            false => format!("node {new} begins to serve clients"),
        };
        await_condition(|| cluster.story_from(id, from).contains(&ends));
        let story = cluster.story_from(id, from);
        assert_eq!(story.len(), 3, "{story:?}");
        let begins = format!("node {old} does not lead any more; an election begins");
        assert_eq!(story[0], begins, "{story:?}");
        assert!(story[1].contains("was elected in term"), "{story:?}");
        assert_eq!(story[2], ends, "{story:?}");
    }
    cluster.start_node(old, &[]);
}

/// All nodes stop, and what one of them wrote is all that is left.
fn one_node_becomes_a_new_cluster(mut cluster: Cluster) {
    let fence = cluster.detach("jobs/c");
    let leader = cluster.await_leader();
    let old_dir = cluster.data_dir(leader);
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("node-8");
    let restore = || {
        let mut command = fencepost(["cluster", "restore", "--accept-loss", "--node-id=8"]);
        let command = command.arg("--from-dir").arg(&old_dir);
        end(command.arg("--data-dir").arg(&data_dir))
    };
    let in_use = restore().complained(2);
    assert!(in_use.contains("in use"), "{in_use}");
    for id in 1..=3 {
        cluster.stop_node(id, Signal::KILL);
    }
    restore().printed();

    let mut restored = Cluster::start_alone(dir, 8);
    assert_eq!(restored.fence_of_holder("jobs/c"), Some(fence));
    let peer = free_port();
    restored.peers.insert(9, peer);
    restored.start_node(9, &[]);
    restored.run(&["add", &format!("9={peer}")]).printed();
    assert!(restored.detach("jobs/d") > fence + (1 << 40));
    assert_eq!(restored.fence_of_holder("jobs/c"), Some(fence));
    // The new node has what the first one was founded with.
    restored.run(&["transfer", "9"]).printed();
    assert_eq!(restored.fence_of_holder("jobs/c"), Some(fence));
}

#[test]
fn a_single_server_becomes_the_first_node_of_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("node-1");
    let data_flag = format!("--data-dir={}", data_dir.display());
    let start = || Server::start(&["--durability=fence", "--threads=1", &data_flag]);
    let adopt = || end(fencepost(["cluster", "adopt"]).arg(&data_dir));
    let single = start();
    let mut command = fencepost(["lock", "jobs/a", "--detach", "--ttl=1h", "--json"]);
    let taken = end(command.args(["--server", &single.address])).printed();
    let fence = serde_json::from_str::<Value>(&taken).unwrap()["fence"].as_u64();
    let in_use = adopt().complained(2);
    assert!(in_use.contains("in use"), "{in_use}");
    single.end_by(Signal::KILL);
    let killed = adopt().complained(1);
    assert!(killed.contains("Start it once more"), "{killed}");
    assert!(killed.contains("/readyz?granting"), "{killed}");
    // As it says.
    let single = start();
    let mut command = fencepost(["lock", "jobs/b", "--detach", "--ttl=1h", "--json"]);
    command.args(["--wait=20s", "--server", &single.address]);
    let taken = end(&mut command).printed();
    let fence_after = serde_json::from_str::<Value>(&taken).unwrap()["fence"].as_u64();
    assert!(fence_after > fence);
    single.end_by(Signal::TERM);

    let adopted = adopt().printed();
    assert!(adopted.contains("is node 1 of a new cluster"), "{adopted}");
    let twice = adopt();
    assert!(matches!(twice.code, Some(1 | 2)), "{twice:?}");
    let kept = adopted
        .lines()
        .find_map(|line| line.strip_prefix("kept as"))
        .expect("it says where");
    let kept = Path::new(kept.trim());
    let mut again = fencepost(["serve", "--check-config", "--listen=127.0.0.1:0"]);
    let again = again.args(["--http=off", "--data-dir"]).arg(kept);
    let refused = end(again).complained(2);
    assert!(refused.contains("adopted-by-a-cluster"), "{refused}");
    let refused = end(fencepost(["cluster", "adopt"]).arg(kept)).complained(2);
    assert!(refused.contains("adopted-by-a-cluster"), "{refused}");

    let cluster = Cluster::start_alone(dir, 1);
    assert_eq!(cluster.fence_of_holder("jobs/b"), fence_after);
    assert!(Some(cluster.detach("jobs/c")) > fence_after);
}

#[test]
fn check_config_of_a_node_looks_at_key_ports_and_directory_and_changes_nothing() {
    let mut cluster = Cluster::new(tempfile::tempdir().unwrap());
    let peer = free_port();
    cluster.peers.insert(1, peer);
    let data_dir = cluster.data_dir(1);
    let key = key_file(cluster.dir.path(), "a");
    let check_at = |key: &Path, node: u64, peer: SocketAddr| {
        let mut command = fencepost([
            "serve",
            "--check-config",
            "--durability=lease",
            "--listen=127.0.0.1:0",
            "--http=off",
            "--bootstrap",
        ]);
        command.arg(format!("--node-id={node}"));
        command.arg(format!("--peers={node}={peer}"));
        command.arg("--data-dir").arg(&data_dir);
        end(command.arg("--cluster-key-file").arg(key))
    };
    let check = |key: &Path, node: u64| check_at(key, node, peer);
    assert_eq!(check(&key, 1).printed(), "ok\n");
    assert!(!data_dir.exists());
    let wildcard = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7500));
    let refused = check_at(&key, 1, wildcard).complained(2);
    assert!(refused.contains("--peer-listen"), "{refused}");
    let missing = check(Path::new("/nowhere/key"), 1).complained(2);
    let expected = "there is no cluster key file";
    assert!(missing.contains(expected), "{missing}");
    let taken = TcpListener::bind(peer).unwrap();
    let refused = check(&key, 1).complained(71);
    let expected = format!("cannot listen on {peer}");
    assert!(refused.contains(&expected), "{refused}");
    drop(taken);

    cluster.start_node(1, &["--bootstrap"]);
    cluster.await_leader();
    let in_use = check(&key, 1);
    assert!(matches!(in_use.code, Some(2 | 71)), "{in_use:?}");
    cluster.stop_node(1, Signal::TERM);
    assert_eq!(check(&key, 1).printed(), "ok\n");
    let other = check(&key, 2).complained(1);
    assert!(other.contains("belongs to node 1"), "{other}");
}
