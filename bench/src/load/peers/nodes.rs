//! Clusters: several processes of one server that agree on a leader. They are started together,
//! asked which of them leads, and killed, told to stop and started again one by one.
//!
//! | kind      | a node is                           | it leads if                           |
//! |-----------|-------------------------------------|---------------------------------------|
//! | Fencepost | a process of the binary `fencepost` | `GET /leader` is answered by 200      |
//! | etcd      | a process of Debian's `etcd`        | its status names itself as the leader |

use super::child::{Process, Usage, free_addresses};
use super::{etcd, find_version};
use crate::http;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Nodes of a cluster, unless the command line says otherwise.
pub(crate) const NODES_DEFAULT: usize = 3;

/// Names another binary than the one beside this program.
const BINARY_VARIABLE: &str = "FENCEPOST_BIN";

/// The flag that only a server with a cluster mode has.
const CLUSTER_FLAG: &str = "--node-id";

/// How long a cluster may take until every node is ready, or until one leads.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long one leader must be seen before it is taken for settled: longer than an election takes.
/// Nodes that were held still may elect a new leader when they go on.
const SETTLE: Duration = Duration::from_millis(1_500);

/// How often we look.
const LOOK: Duration = Duration::from_millis(20);

/// How long one node may take to answer. A node that is held still does not answer at all.
const ANSWER: Duration = Duration::from_secs(1);

/// Bytes of a cluster key.
const KEY_BYTES: usize = 32;

/// Bytes of a log that are quoted when a node does not start.
const LOG_TAIL_BYTES: usize = 400;

/// Which server the nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Fencepost,
    Etcd,
}

/// A running cluster. Dropping it ends every node.
pub(crate) struct Nodes {
    kind: Kind,
    program: PathBuf,
    nodes: Vec<Node>,
}

struct Node {
    /// `None` while it is down.
    process: Option<Process>,
    /// Where clients connect.
    client: SocketAddr,
    /// Where it is asked whether it leads; the same for etcd.
    http: SocketAddr,
    /// For every start.
    arguments: Vec<String>,
    log: PathBuf,
}

impl Nodes {
    /// Starts a cluster with its files in `directory`, and waits until one node leads and all are
    /// ready. The error is a sentence about why there is none.
    pub(crate) fn start(kind: Kind, count: usize, directory: &Path) -> Result<Nodes, String> {
        let mut nodes = Nodes::prepare(kind, count, directory)?;
        for index in 0..count {
            // Only the first start of a node makes a cluster.
            let bootstrap: &[&str] = match kind {
                Kind::Fencepost => &["--bootstrap"],
                Kind::Etcd => &[],
            };
            nodes.spawn(index, bootstrap)?;
        }
        nodes.wait_ready()?;
        nodes.settled_leader()?;
        Ok(nodes)
    }

    fn prepare(kind: Kind, count: usize, directory: &Path) -> Result<Nodes, String> {
        let said = |error: io::Error| error.to_string();
        let program = match kind {
            Kind::Fencepost => cluster_binary()?,
            Kind::Etcd => PathBuf::from("etcd"),
        };
        let free = free_addresses(3 * count).map_err(said)?;
        let (clients, rest) = free.split_at(count);
        let (https, peers) = rest.split_at(count);
        let key_file = directory.join("cluster.key");
        if kind == Kind::Fencepost {
            write_key(&key_file).map_err(said)?;
        }
        let mut nodes = Vec::with_capacity(count);
        for index in 0..count {
            let own = directory.join(format!("node-{}", index + 1));
            std::fs::create_dir(&own).map_err(said)?;
            let (client, http) = (clients[index], https[index]);
            let arguments = match kind {
                Kind::Fencepost => fencepost_arguments(index, &own, client, http, peers, &key_file),
                Kind::Etcd => etcd::arguments_of(index, &own, client, peers),
            };
            nodes.push(Node {
                process: None,
                client,
                http: match kind {
                    Kind::Fencepost => http,
                    Kind::Etcd => client,
                },
                arguments,
                log: directory.join(format!("node-{}.log", index + 1)),
            });
        }
        Ok(Nodes {
            kind,
            program,
            nodes,
        })
    }

    fn spawn(&mut self, index: usize, more: &[&str]) -> Result<(), String> {
        let node = &mut self.nodes[index];
        let mut arguments = node.arguments.clone();
        arguments.extend(more.iter().map(|&flag| flag.to_owned()));
        let started = Process::start(&self.program, &arguments, &node.log);
        let process = started.map_err(|error| format!("node {}: {error}", index + 1))?;
        node.process = Some(process);
        Ok(())
    }

    /// The program's version, by its own word.
    pub(super) fn version(&self) -> Option<String> {
        let output = Command::new(&self.program).arg("--version").output().ok()?;
        let (version, _) = find_version(&String::from_utf8_lossy(&output.stdout))?;
        Some(version)
    }

    /// Where clients may connect: every node, in order.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.client).collect()
    }

    /// Where clients connect to this node.
    pub(crate) fn address(&self, index: usize) -> SocketAddr {
        self.nodes[index].client
    }

    /// The processes that run.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.nodes.iter().filter_map(|node| node.process.as_ref())
    }

    /// What each node has used so far, in order.
    pub(crate) fn usages(&self) -> Vec<Usage> {
        self.processes().map(Process::usage).collect()
    }

    /// Waits until all nodes serve, or follow one that does.
    pub(crate) fn wait_ready(&mut self) -> Result<(), String> {
        for index in 0..self.nodes.len() {
            let begun = Instant::now();
            while !self.is_ready(index) {
                self.check_alive(index)?;
                if begun.elapsed() > PATIENCE {
                    let (number, log) = (index + 1, self.log_tail(index));
                    return Err(format!(
                        "node {number} was not ready within {} s{log}",
                        PATIENCE.as_secs()
                    ));
                }
                std::thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    fn is_ready(&self, index: usize) -> bool {
        let (path, word) = match self.kind {
            Kind::Fencepost => ("/readyz", ""),
            // It answers 200 before it has a leader, too.
            Kind::Etcd => ("/health", "true"),
        };
        let answer = http::ask(self.nodes[index].http, "GET", path, &[], "", ANSWER);
        answer.is_ok_and(|answer| answer.status == 200 && answer.body.contains(word))
    }

    /// An error if a node that should run has ended: most likely it refused its flags.
    fn check_alive(&mut self, index: usize) -> Result<(), String> {
        let ended = self.nodes[index].process.as_mut().map(Process::ended);
        if let Some(Ok(Some(status))) = ended {
            let (program, log) = (self.program.display(), self.log_tail(index));
            let number = index + 1;
            return Err(format!(
                "{program} refused to run as node {number}: {status}{log}"
            ));
        }
        Ok(())
    }

    /// The end of what a node has written, to be quoted.
    fn log_tail(&self, index: usize) -> String {
        let text = std::fs::read(&self.nodes[index].log).unwrap_or_default();
        let tail = &text[text.len().saturating_sub(LOG_TAIL_BYTES)..];
        match String::from_utf8_lossy(tail).trim() {
            "" => String::new(),
            tail => format!("; it said: {}", tail.replace('\n', " ")),
        }
    }

    /// The node that leads at the moment, by its own word.
    pub(crate) fn leader_now(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|&index| self.leads(index))
    }

    fn leads(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        if node.process.is_none() {
            return false;
        }
        match self.kind {
            Kind::Fencepost => http::ask(node.http, "GET", "/leader", &[], "", ANSWER)
                .is_ok_and(|answer| answer.status == 200),
            Kind::Etcd => status_of(node.http).is_some_and(|status| status.leads()),
        }
    }

    /// The node that leads, once one does and has for a while.
    pub(crate) fn settled_leader(&self) -> Result<usize, String> {
        let begun = Instant::now();
        let mut seen: Option<(usize, Instant)> = None;
        loop {
            seen = match (seen, self.leader_now()) {
                (Some((leader, since)), Some(now)) if leader == now => {
                    if since.elapsed() >= SETTLE {
                        return Ok(leader);
                    }
                    seen
                }
                (_, Some(now)) => Some((now, Instant::now())),
                (_, None) => None,
            };
            if begun.elapsed() > PATIENCE {
                return Err(format!(
                    "no node led for {:.1} s on end within {} s",
                    SETTLE.as_secs_f64(),
                    PATIENCE.as_secs()
                ));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until some node leads, the first that says so.
    pub(crate) fn wait_leader(&self) -> Result<usize, String> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(leader) = self.leader_now() {
                return Ok(leader);
            }
            std::thread::sleep(LOOK);
        }
        Err(format!("no node led within {} s", PATIENCE.as_secs()))
    }

    /// Ends a node with SIGKILL. Returns when it is gone.
    pub(crate) fn kill(&mut self, index: usize) -> Result<(), String> {
        match self.nodes[index].process.take() {
            Some(process) => process.kill().map_err(|error| error.to_string()),
            None => Err(format!("node {} does not run", index + 1)),
        }
    }

    /// Has the leader give its office to another node: a Fencepost by SIGTERM, which ends it; an
    /// etcd by a request, after which it goes on as a follower. Returns once it is told to.
    pub(crate) fn hand_over(&self, leader: usize) -> Result<(), String> {
        let node = &self.nodes[leader];
        if self.kind == Kind::Fencepost {
            let process = node.process.as_ref().ok_or("the leader does not run")?;
            process.terminate();
            return Ok(());
        }
        let others = (0..self.nodes.len()).filter(|&index| index != leader);
        let target = others
            .filter_map(|index| status_of(self.nodes[index].http))
            .map(|status| status.member)
            .next()
            .ok_or("etcd: no follower answers")?;
        let question = json!({ "targetID": target }).to_string();
        let path = "/v3/maintenance/transfer-leadership";
        let answer = http::ask(node.http, "POST", path, &[], &question, PATIENCE);
        match answer {
            Ok(answer) if answer.status == 200 => Ok(()),
            Ok(answer) => Err(format!("etcd does not move its leader: {}", answer.body)),
            Err(error) => Err(format!("etcd does not move its leader: {error}")),
        }
    }

    /// Whether being told to hand over ends a node.
    pub(crate) fn hand_over_ends(&self) -> bool {
        self.kind == Kind::Fencepost
    }

    /// Starts a node again on its files, and waits until all are ready. One that was told to stop
    /// is given its time for that.
    pub(crate) fn start_again(&mut self, index: usize) -> Result<(), String> {
        // Dropping a process waits for its end.
        drop(self.nodes[index].process.take());
        self.spawn(index, &[])?;
        self.wait_ready()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // All are told before the first one is waited for: the last of them cannot do much without
        // the others.
        for process in self.processes() {
            process.terminate();
            process.hold(false);
        }
    }
}

/// What a node of etcd says about itself.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    member: String,
    leader: String,
}

impl Status {
    fn leads(&self) -> bool {
        self.leader == self.member
    }

    fn read(body: &str) -> Option<Status> {
        let value: Value = serde_json::from_str(body).ok()?;
        Some(Status {
            member: value["header"]["member_id"].as_str()?.to_owned(),
            // A leader of zero, which is none, is left out.
            leader: value["leader"].as_str().unwrap_or("0").to_owned(),
        })
    }
}

fn status_of(address: SocketAddr) -> Option<Status> {
    let path = "/v3/maintenance/status";
    let answer = http::ask(address, "POST", path, &[], "{}", ANSWER).ok()?;
    (answer.status == 200)
        .then(|| Status::read(&answer.body))
        .flatten()
}

/// What one node of Fencepost is started with, at every start.
fn fencepost_arguments(
    index: usize,
    directory: &Path,
    client: SocketAddr,
    http: SocketAddr,
    peers: &[SocketAddr],
    key_file: &Path,
) -> Vec<String> {
    let members: Vec<String> = peers
        .iter()
        .enumerate()
        .map(|(index, peer)| format!("{}={peer}", index + 1))
        .collect();
    let arguments = [
        ("--node-id", (index + 1).to_string()),
        ("--peers", members.join(",")),
        ("--advertise", client.to_string()),
        ("--listen", client.to_string()),
        ("--http", http.to_string()),
        ("--cluster-key-file", key_file.to_string_lossy().into()),
        (
            "--data-dir",
            directory.join("data").to_string_lossy().into(),
        ),
        ("--durability", "lease".to_owned()),
    ]
    .map(|(name, value)| [name.to_owned(), value]);
    let serve = std::iter::once("serve".to_owned());
    serve.chain(arguments.into_iter().flatten()).collect()
}

/// Writes a fresh key in hex, for no other user to read.
fn write_key(path: &Path) -> io::Result<()> {
    let mut key = [0; KEY_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    let mut text = String::with_capacity(2 * KEY_BYTES + 1);
    for byte in key {
        write!(text, "{byte:02x}").map_err(io::Error::other)?;
    }
    text.push('\n');
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// The server's binary: the one that is named in the environment, or the one beside this program.
fn binary() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(BINARY_VARIABLE) {
        return Ok(path.into());
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(own.with_file_name("fencepost"))
}

/// The server's binary, if it can be a node of a cluster. The error says what to do.
pub(crate) fn cluster_binary() -> Result<PathBuf, String> {
    let binary = binary()?;
    // Short where it can be: pages quote it.
    let here = std::env::current_dir().unwrap_or_default();
    let shown = binary.strip_prefix(here).unwrap_or(&binary).display();
    let output = Command::new(&binary).args(["serve", "--help"]).output();
    let output = output.map_err(|error| {
        format!(
            "{shown}: {error}; build it in the same profile (cargo build -p fencepost-server), \
             or name it in {BINARY_VARIABLE}"
        )
    })?;
    if has_cluster_mode(&String::from_utf8_lossy(&output.stdout)) {
        return Ok(binary);
    }
    Err(format!(
        "{shown} refuses {CLUSTER_FLAG}: this server has no cluster mode; build one that has, or \
         name it in {BINARY_VARIABLE}"
    ))
}

/// Whether a server with this help can be a node.
fn has_cluster_mode(help: &str) -> bool {
    help.split_whitespace().any(|word| word == CLUSTER_FLAG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_etcd_that_names_itself_leads() {
        let body =
            r#"{"header":{"member_id":"86","raft_term":"2"},"version":"3.4.23","leader":"86"}"#;
        assert!(Status::read(body).unwrap().leads());
        let body = r#"{"header":{"member_id":"69"},"leader":"86"}"#;
        let status = Status::read(body).unwrap();
        assert_eq!((status.member.as_str(), status.leads()), ("69", false));
    }

    #[test]
    fn a_node_of_etcd_without_a_leader_does_not_lead() {
        let body = r#"{"header":{"member_id":"86"},"version":"3.4.23"}"#;
        assert!(!Status::read(body).unwrap().leads());
        assert_eq!(Status::read("no json"), None);
        assert_eq!(Status::read(r#"{"error":"none"}"#), None);
    }

    #[test]
    fn a_server_with_a_cluster_mode_is_known_by_its_help() {
        let help = "Cluster:\n      --node-id <N>\n          This node's number.\n";
        assert!(has_cluster_mode(help));
        assert!(!has_cluster_mode(
            "      --listen <ADDR>\n  nothing of --node-identity\n"
        ));
    }

    #[test]
    fn every_node_of_fencepost_is_told_of_all() {
        let peers: Vec<SocketAddr> = (7501..7504)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .collect();
        let (client, http) = ("127.0.0.1:7400", "127.0.0.1:7401");
        let arguments = fencepost_arguments(
            1,
            Path::new("/d"),
            client.parse().unwrap(),
            http.parse().unwrap(),
            &peers,
            Path::new("/key"),
        );
        assert_eq!(
            arguments.join(" "),
            "serve --node-id 2 --peers 1=127.0.0.1:7501,2=127.0.0.1:7502,3=127.0.0.1:7503 \
             --advertise 127.0.0.1:7400 --listen 127.0.0.1:7400 --http 127.0.0.1:7401 \
             --cluster-key-file /key --data-dir /d/data --durability lease"
        );
    }

    #[test]
    fn a_cluster_key_is_hex_and_new_each_time() {
        let directory = tempfile::TempDir::new().unwrap();
        let keys = ["a", "b"].map(|name| {
            let path = directory.path().join(name);
            write_key(&path).unwrap();
            std::fs::read_to_string(path).unwrap()
        });
        assert_eq!(keys[0].trim().len(), 2 * KEY_BYTES);
        assert!(keys[0].trim().bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(keys[0], keys[1]);
    }
}
