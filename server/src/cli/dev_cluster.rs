//! `dev-cluster`: a cluster on this machine, to see what one does. Its nodes are child processes of
//! this program, with directories of their own that are removed at the end.
//!
//! A node that is killed starts again after a while, so that the next one can be killed.
//!
//! The nodes never outlive this program, not even if it is killed: each of them has the reading end
//! of a pipe as its standard input, and ends when the pipe does ([`end_with_stdin`]).

use super::connect::run_async;
use super::failure::{Code, Failure, print};
use super::nodes::Asker;
use super::text::{pairs, time};
use clap::Args;
use cluster::peer::ClusterKey;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// As many as are of use on one machine.
const NODES_MAX: u64 = 7;

/// How often the nodes are asked who leads.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a node may take to say how it stands.
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// How long the first election may take, on a busy machine.
const FIRST_LEADER_MAX: Duration = Duration::from_secs(60);

/// How long a node that ended stays away.
const START_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Ports are looked for here: below those that Linux gives to outgoing connections, so that no
/// connection takes one before its node does.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Start three nodes on this machine, with directories that are removed at the end
#[derive(Args)]
#[command(after_help = "\
It prints what to try, and one line whenever another node leads. Ctrl-C ends all nodes and removes what they wrote. A node \
that is killed starts again after five seconds. If this program itself is killed, its nodes end too, but what they wrote and their \
key stay in fencepost-dev-PID in the directory for temporary files: remove that yourself.

Exit codes: 0 ended by a signal; 1 a node could not be started; 2 a flag is wrong.")]
pub(super) struct DevClusterArgs {
    /// How many nodes
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u64).range(1..=NODES_MAX))]
    nodes: u64,
}

pub(super) fn run(args: &DevClusterArgs) -> Result<ExitCode, Failure> {
    let mut cluster = DevCluster::start(args.nodes).map_err(|error| {
        let message = format_args!("cannot start the nodes: {error}");
        Failure::new(Code::No, message)
    })?;
    run_async(async move {
        let cannot = |error| {
            let message = format_args!("the system refused to tell of signals: {error}");
            Failure::new(Code::Internal, message)
        };
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
        let mut hang_up = signal(SignalKind::hangup()).map_err(cannot)?;
        tokio::select! {
            failed = cluster.watch() => failed?,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
        print("all nodes end; their directories are removed\n")?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Ends this process when its standard input ends.
pub(crate) fn end_with_stdin() {
    let thread = std::thread::Builder::new().name("stdin".to_owned());
    let watching = thread.spawn(|| {
        let mut byte = [0];
        // Nothing is ever written: this returns when the other end of the pipe is closed.
        while io::stdin().read(&mut byte).is_ok_and(|bytes| bytes > 0) {}
        std::process::exit(0);
    });
    if let Err(error) = watching {
        tracing::warn!("this node may outlive its dev-cluster: {error}");
    }
}

/// The nodes. Dropping it ends them and removes what they wrote.
struct DevCluster {
    dir: PathBuf,
    key_file: PathBuf,
    asker: Asker,
    nodes: Vec<DevNode>,
    leader: Option<(u64, u64)>,
    /// Since when there is none.
    leaderless: Instant,
    is_explained: bool,
}

struct DevNode {
    id: u64,
    arguments: Vec<String>,
    log: PathBuf,
    ports: Ports,
    /// `None`: it starts again then.
    child: Result<Child, Instant>,
}

/// Where one node listens.
#[derive(Clone, Copy)]
struct Ports {
    peers: SocketAddr,
    clients: SocketAddr,
    redis: SocketAddr,
    http: SocketAddr,
}

impl DevCluster {
    fn start(count: u64) -> io::Result<DevCluster> {
        let dir = std::env::temp_dir().join(format!("fencepost-dev-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&dir)?;
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        // From here on dropping it removes the directory.
        let mut cluster = DevCluster {
            key_file: dir.join("cluster.key"),
            asker: Asker::new(ClusterKey::new(key), ANSWER_MAX),
            dir,
            nodes: Vec::new(),
            leader: None,
            leaderless: Instant::now(),
            is_explained: false,
        };
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&cluster.key_file)?;
        writeln!(file, "{key}")?;
        let ports = free_ports(count)?;
        let peers: Vec<String> = (1..)
            .zip(&ports)
            .map(|(id, ports)| format!("{id}={}", ports.peers))
            .collect();
        for (id, ports) in (1..).zip(ports) {
            let node = DevNode::start(&cluster.dir, id, ports, &peers.join(","))?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    /// Tells of every change, until a node cannot be started.
    async fn watch(&mut self) -> Result<(), Failure> {
        for node in &self.nodes {
            print(&node.line())?;
        }
        loop {
            self.look_after_nodes()?;
            self.look_for_leader().await?;
            if !self.is_explained && self.leaderless.elapsed() > FIRST_LEADER_MAX {
                let message = format_args!(
                    "the nodes have elected no leader within {}. Is the machine very busy?",
                    time(FIRST_LEADER_MAX)
                );
                return Err(Failure::new(Code::No, message));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn look_after_nodes(&mut self) -> Result<(), Failure> {
        for node in &mut self.nodes {
            match &mut node.child {
                Ok(child) => {
                    let Ok(Some(status)) = child.try_wait() else {
                        continue;
                    };
                    let (id, pid) = (node.id, child.id());
                    if !self.is_explained {
                        let why = last_line(&node.log);
                        let message = format_args!("node {id} {}: {why}", how_ended(status));
                        return Err(Failure::new(Code::No, message));
                    }
                    node.child = Err(Instant::now() + START_AGAIN_AFTER);
                    print(&format!(
                        "node {id} (pid {pid}) {}; it starts again in {}\n",
                        how_ended(status),
                        time(START_AGAIN_AFTER)
                    ))?;
                }
                Err(again_at) if Instant::now() >= *again_at => {
                    let child = spawn(&node.arguments, &node.log).map_err(|error| {
                        let message = format_args!("node {} cannot be started: {error}", node.id);
                        Failure::new(Code::No, message)
                    })?;
                    print(&format!(
                        "node {} starts again (pid {})\n",
                        node.id,
                        child.id()
                    ))?;
                    node.child = Ok(child);
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    async fn look_for_leader(&mut self) -> Result<(), Failure> {
        let mut leader = None;
        for node in self.nodes.iter().filter(|node| node.child.is_ok()) {
            let status = self.asker.status(&node.ports.peers.to_string()).await;
            if let Ok(status) = status
                && status.leader == Some(status.node)
            {
                leader = leader.max(Some((status.term, status.node)));
            }
        }
        let before = self.leader;
        if leader == before {
            return Ok(());
        }
        self.leader = leader;
        let Some((term, id)) = leader else {
            self.leaderless = Instant::now();
            return print("no node leads: an election is under way\n");
        };
        let without = match before {
            None if self.is_explained => {
                format!(", {} after the last one", time(self.leaderless.elapsed()))
            }
            _ => String::new(),
        };
        let node = &self.nodes[id as usize - 1];
        let pid = node.child.as_ref().map_or(0, Child::id);
        print(&format!(
            "node {id} leads (term {term}, pid {pid}){without}\n"
        ))?;
        if !self.is_explained {
            self.is_explained = true;
            print(&self.explanation(node))?;
        }
        Ok(())
    }

    /// What to try.
    fn explanation(&self, leader: &DevNode) -> String {
        let all = |address: fn(&Ports) -> SocketAddr| {
            let addresses = self.nodes.iter().map(|node| address(&node.ports));
            let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
            addresses.join(",")
        };
        let program = std::env::args().next().unwrap_or_default();
        let program = match program.as_str() {
            "" => "fencepost",
            program => program,
        };
        let pid = leader.child.as_ref().map_or(0, Child::id);
        let tries = [
            (
                format!(
                    "{program} lock deploy/prod -- sh -c 'echo \"fence $FENCEPOST_FENCE\"; sleep 60'"
                ),
                "# take a lock",
            ),
            (
                format!("{program} query deploy/prod"),
                "# look at it, from a third terminal",
            ),
            (
                format!("kill -9 {pid}"),
                "# kill the leader: the lock stays held",
            ),
            (
                format!(
                    "redis-cli -p {} SET orders/42 me NX PX 30000",
                    leader.ports.redis.port()
                ),
                "# a lock of a Redis client, at the leader",
            ),
            (format!("{program} cluster status"), "# how the nodes stand"),
            (
                format!("curl http://{}/metrics", leader.ports.http),
                "# what they count",
            ),
        ];
        format!(
            "\nTry, in another terminal:\n\n\
             export FENCEPOST_SERVER={}\n\
             export FENCEPOST_NODE={} FENCEPOST_CLUSTER_KEY_FILE={}\n{}\n\
             Log lines are in {}. Ctrl-C ends all nodes and removes everything.\n\n",
            all(|ports| ports.clients),
            all(|ports| ports.peers),
            self.key_file.display(),
            pairs(&tries),
            self.dir.join("node-*.log").display(),
        )
    }
}

impl Drop for DevCluster {
    fn drop(&mut self) {
        let children = || self.nodes.iter();
        for child in children().filter_map(|node| node.child.as_ref().ok()) {
            // What they have written is removed: they need not stop in order. One that has ended
            // already is not an error.
            let _ = kill_process(Pid::from_child(child), Signal::KILL);
        }
        for node in &mut self.nodes {
            if let Ok(child) = &mut node.child {
                let _ = child.wait();
            }
        }
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            super::failure::complain(&format!("cannot remove {}: {error}", self.dir.display()));
        }
    }
}

impl DevNode {
    fn start(dir: &Path, id: u64, ports: Ports, peers: &str) -> io::Result<DevNode> {
        let data_dir = dir.join(format!("node-{id}"));
        let arguments = [
            "serve".to_owned(),
            "--end-with-stdin".to_owned(),
            "--bootstrap".to_owned(),
            "--durability=lease".to_owned(),
            format!("--node-id={id}"),
            format!("--peers={peers}"),
            format!("--listen={}", ports.clients),
            format!("--redis-listen={}", ports.redis),
            format!("--http={}", ports.http),
            format!("--data-dir={}", data_dir.display()),
            format!("--cluster-key-file={}", dir.join("cluster.key").display()),
        ];
        let log = dir.join(format!("node-{id}.log"));
        let child = spawn(&arguments, &log)?;
        Ok(DevNode {
            id,
            arguments: arguments.to_vec(),
            log,
            ports,
            child: Ok(child),
        })
    }

    fn line(&self) -> String {
        let Ports {
            clients,
            redis,
            http,
            ..
        } = self.ports;
        let pid = self.child.as_ref().map_or(0, Child::id);
        format!(
            "node {}  pid {pid}  clients {clients}  Redis {redis}  http://{http}\n",
            self.id
        )
    }
}

/// Starts a node in a process group of its own: Ctrl-C is for this program, which then ends it.
fn spawn(arguments: &[String], log: &Path) -> io::Result<Child> {
    let log = File::options().create(true).append(true).open(log)?;
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"FENCEPOST_") {
            command.env_remove(name);
        }
    }
    let command = command.args(arguments).process_group(0);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null());
    command.stderr(log).spawn()
}

/// Ports for so many nodes. All are taken before any is let go, so none is given twice.
fn free_ports(count: u64) -> io::Result<Vec<Ports>> {
    let mut random = [0; 2];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let first = PORTS.start + u16::from_le_bytes(random) % (PORTS.end - PORTS.start);
    let candidates = (first..PORTS.end).chain(PORTS.start..first);
    let listeners = candidates.filter_map(|port| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        let address = listener.local_addr().ok()?;
        Some((listener, address))
    });
    let taken: Vec<(TcpListener, SocketAddr)> = listeners.take(4 * count as usize).collect();
    let ports: Vec<Ports> = taken
        .chunks_exact(4)
        .map(|four| Ports {
            clients: four[0].1,
            redis: four[1].1,
            http: four[2].1,
            peers: four[3].1,
        })
        .collect();
    match ports.len() as u64 == count {
        true => Ok(ports),
        false => Err(io::Error::other(format!(
            "there are not enough free ports from {} to {}",
            PORTS.start, PORTS.end
        ))),
    }
}

fn how_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().next_back();
    last.unwrap_or("its log says nothing").to_owned()
}
