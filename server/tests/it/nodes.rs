//! A cluster in this process: its nodes listen on loopback and keep their logs in one temporary
//! directory.

use crate::common::{Peer, hello, no_core_may_panic, until};
use crate::http::free_port;
use server::config::{Config, Durability, Peers};
use server::{Builder, NodeServer, Server, StartError};
use std::net::TcpListener;
use std::time::Duration;
use tempfile::TempDir;

/// Short, so that tests do not wait for elections. Long enough for a machine that runs all tests at
/// once.
const ELECTION_TIMEOUT: Duration = Duration::from_millis(300);

/// The nodes' ports must be known before any of them starts, so another process can take one in
/// between. Then all nodes begin again with other ports, at most so often.
const STARTS_MAX: u32 = 10;

/// The nodes of one cluster, by their place: the first has the id 1.
pub(crate) struct Nodes {
    nodes: Vec<Option<NodeServer>>,
    configs: Vec<Config>,
    _directory: TempDir,
}

impl Nodes {
    /// Starts three nodes and waits until one of them leads.
    pub(crate) fn start() -> Nodes {
        Nodes::start_with(3, |_| {})
    }

    /// Starts so many nodes, each with its settings changed.
    pub(crate) fn start_with(count: usize, change: impl Fn(&mut Config)) -> Nodes {
        no_core_may_panic();
        for _ in 0..STARTS_MAX {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let configs = configs(&directory, count, &change);
            let nodes: Result<Vec<_>, StartError> = configs.iter().map(start_node).collect();
            match nodes {
                Err(StartError::Listen { .. }) => continue,
                Err(error) => panic!("the nodes do not start: {error}"),
                Ok(nodes) => {
                    let nodes = Nodes {
                        nodes: nodes.into_iter().map(Some).collect(),
                        configs,
                        _directory: directory,
                    };
                    nodes.leader();
                    return nodes;
                }
            }
        }
        panic!("other processes took the ports of the nodes, {STARTS_MAX} times in a row");
    }

    /// A node that was not stopped.
    pub(crate) fn node(&self, place: usize) -> &NodeServer {
        self.nodes[place].as_ref().expect("the node is running")
    }

    /// The place of the node that serves clients; waits for one.
    pub(crate) fn leader(&self) -> usize {
        let mut leader = None;
        until("a node leads", || {
            leader = self.running().find(|place| self.serves(*place));
            leader.is_some()
        });
        leader.expect("one was found")
    }

    /// The places of all others that run.
    pub(crate) fn followers(&self) -> Vec<usize> {
        let leader = self.leader();
        self.running().filter(|place| *place != leader).collect()
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = usize> {
        let running = self.nodes.iter().enumerate();
        running.filter_map(|(place, node)| node.as_ref().map(|_| place))
    }

    /// Stops a node; a leader hands over first.
    pub(crate) fn stop(&mut self, place: usize) {
        let node = self.nodes[place].take().expect("the node is running");
        node.shutdown();
    }

    /// Starts a node that was stopped, on the log that it left.
    pub(crate) fn start_again(&mut self, place: usize) {
        let node = start_node(&self.configs[place]).expect("the node starts again");
        self.nodes[place] = Some(node);
    }

    fn serves(&self, place: usize) -> bool {
        Peer::knock(self.node(place).local_addr(), hello("who leads?")).is_ok()
    }
}

impl Drop for Nodes {
    /// All at once: a node that stops alone waits for another one to take over.
    fn drop(&mut self) {
        std::thread::scope(|scope| {
            for node in self.nodes.drain(..).flatten() {
                scope.spawn(|| node.shutdown());
            }
        });
    }
}

fn configs(directory: &TempDir, count: usize, change: impl Fn(&mut Config)) -> Vec<Config> {
    let key_file = directory.path().join("key");
    std::fs::write(&key_file, "5a".repeat(32)).expect("the key is written");
    // All are bound before one is given back, so that no port comes twice.
    let taken: Vec<_> = (0..count).map(|_| TcpListener::bind(free_port())).collect();
    let address = |taken: &Result<TcpListener, _>| {
        let taken = taken.as_ref().expect("there are free ports");
        taken.local_addr().expect("it is bound").to_string()
    };
    let peers = Peers::new((1..).zip(taken.iter().map(address)));
    let config = |node_id: u64| {
        let mut config = Config {
            node_id,
            peers: peers.clone(),
            cluster_key_file: Some(key_file.clone()),
            bootstrap: true,
            durability: Durability::Lease,
            election_timeout: ELECTION_TIMEOUT,
            data_dir: directory.path().join(node_id.to_string()),
            listen: free_port(),
            redis_listen: Some(free_port()),
            http: None,
            threads: 1,
            ..Config::default()
        };
        change(&mut config);
        config
    };
    (1..=count as u64).map(config).collect()
}

fn start_node(config: &Config) -> Result<NodeServer, StartError> {
    let builder: Builder = Server::builder();
    NodeServer::start(builder.config(config.clone()))
}
