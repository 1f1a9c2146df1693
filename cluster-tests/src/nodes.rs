//! The nodes of a cluster as child processes, and what they say of themselves over HTTP.

use crate::footprint::Footprint;
use crate::links::Links;
use crate::operator::Operator;
use crate::rates::{self, Rate};
use cluster::entry::Format;
use cluster::question::Question;
use crash_tests::checker::Kept;
use crash_tests::disk::{self, Order};
use crash_tests::history::{Life, LifeEnd, Recorder, Time};
use crash_tests::process::{Server, Site, free_address};
use crash_tests::{Program, READS_FORMAT};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many nodes are added and taken out again.
pub(crate) const ADDED: usize = 2;

/// A node that does not answer within this is not there.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often nodes are asked while the harness waits for something.
pub const LOOK: Duration = Duration::from_millis(10);

/// A cluster that is whole has a leader within this, on a busy machine.
pub const STUCK: Duration = Duration::from_secs(60);

/// How much log there is between two snapshots.
pub const SNAPSHOT_LOG_BYTES: u64 = 1 << 20;

/// In files of this length a node keeps its log, so that a run fills many of them.
pub const SEGMENT_BYTES: u64 = 256 << 10;

/// No directory of a node is larger than this, however long the cluster has worked: two snapshots
/// with the entries that are kept behind them, 5 to 8 MiB each; half as much log since the last
/// one; and as many files as that set free. A short run logs less than this in all, one of some
/// minutes logs more; `cluster/src/store/tests.rs` has the same in small.
pub const DISK_BYTES_MAX: u64 = 32 << 20;

/// After so many entries the nodes compare a part of their ledgers, and a node that differs ends
/// itself: often enough that each part has its turn in most rounds.
pub const COMPARE_ENTRIES: u64 = 8;

/// All nodes of a cluster, those that are down included. Dropping them kills those that run.
///
/// A node is named by its place, which has addresses. Places may be vacant, and a node that is
/// added there has an id that was never used and a new directory.
pub struct Nodes {
    home: PathBuf,
    build: Build,
    snapshot_log_bytes: u64,
    segment_bytes: Option<u64>,
    compare_entries: u64,
    key_file: PathBuf,
    places: Vec<Place>,
    servers: Vec<Option<Server>>,
    /// The links between them.
    pub links: Links,
    /// When each was ready last.
    ready: Vec<Time>,
    last_id: u64,
    rates: Vec<Option<Rate>>,
}

/// What a node runs.
#[derive(Clone, Debug)]
pub struct Build {
    /// The program.
    pub program: Program,
    /// Which format of the log it says that it reads, if it is to pose as another version. A build
    /// from before that setting does not know it, and says the truth.
    pub reads: Option<Format>,
}

/// How a cluster begins.
pub struct Layout {
    /// What its nodes run.
    pub build: Build,
    /// How many there are.
    pub count: usize,
    /// Vacant places besides.
    pub vacant: usize,
    /// How much log there is between two snapshots.
    pub snapshot_log_bytes: u64,
    /// How long the files of the log are, unless they are as long as usual.
    pub segment_bytes: Option<u64>,
    /// After how many entries the nodes compare a part of their ledgers.
    pub compare_entries: u64,
}

/// Where a node can be.
struct Place {
    peer: SocketAddr,
    http: SocketAddr,
    address: String,
    redis_address: String,
    /// The node that is there, and how it is run.
    node: Option<(u64, Site)>,
}

/// How a node stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// It serves clients.
    pub is_serving: bool,
    /// Clients and rollouts may count on it.
    pub is_ready: bool,
    /// Its answer at `/cluster`.
    pub status: Value,
}

impl Standing {
    /// A number of its status, 0 if it is not there.
    pub fn number(&self, name: &str) -> u64 {
        self.status[name].as_u64().unwrap_or(0)
    }
}

impl Nodes {
    /// Lays out a cluster below `home`; no node runs yet.
    pub fn lay_out(layout: Layout, home: &Path) -> Result<Nodes, String> {
        let Layout { count, vacant, .. } = layout;
        let system = |error: std::io::Error| format!("cannot write the cluster's key: {error}");
        let parse = |address: String| -> SocketAddr { address.parse().expect("made of digits") };
        // Not from the seed: the nodes of two runs with the same one must not meet.
        let random = &mut fastrand::Rng::new();
        let key_file = home.join("key");
        let key: String = (0..64)
            .map(|_| char::from_digit(random.u32(..16), 16).expect("below 16"))
            .collect();
        write_secret(&key_file, &key).map_err(system)?;
        // A port that is free now may be offered twice.
        let mut offered = BTreeSet::new();
        let mut free = || loop {
            let address = free_address(random)?;
            if offered.insert(address.clone()) {
                return Ok::<_, String>(address);
            }
        };
        let mut places = Vec::new();
        for _ in 0..count + vacant {
            places.push(Place {
                peer: parse(free()?),
                http: parse(free()?),
                address: free()?,
                redis_address: free()?,
                node: None,
            });
        }
        let peers: Vec<SocketAddr> = places.iter().map(|place| place.peer).collect();
        let mut nodes = Nodes {
            home: home.to_owned(),
            build: layout.build,
            snapshot_log_bytes: layout.snapshot_log_bytes,
            segment_bytes: layout.segment_bytes,
            compare_entries: layout.compare_entries,
            key_file,
            servers: places.iter().map(|_| None).collect(),
            ready: vec![0; places.len()],
            rates: vec![None; places.len()],
            places,
            links: Links::new(&peers)?,
            last_id: count as u64,
        };
        for node in 0..count {
            nodes.put(node, node as u64 + 1, 0..count, true);
        }
        Ok(nodes)
    }

    /// A new node at a vacant place, with an id that was never used. It is no member yet and does
    /// not run. `None`: all places are taken.
    pub fn settle(&mut self) -> Option<usize> {
        let node = self.places.iter().position(|place| place.node.is_none())?;
        self.last_id += 1;
        let others = self.members();
        let all = others.into_iter().chain([node]);
        self.put(node, self.last_id, all, false);
        Some(node)
    }

    /// A node that does not run is gone for good, and its place vacant.
    pub fn vacate(&mut self, node: usize) {
        assert!(!self.is_up(node), "a node that runs keeps its place");
        self.places[node].node = None;
        self.links.name(node, 0);
    }

    fn put(
        &mut self,
        node: usize,
        id: u64,
        peers: impl IntoIterator<Item = usize>,
        is_founder: bool,
    ) {
        let proxies = self.links.proxies();
        let named = peers.into_iter().map(|peer| {
            let its_id = match peer == node || is_founder {
                true if peer != node => peer as u64 + 1,
                true => id,
                false => self.id(peer),
            };
            format!("{its_id}={}", proxies[peer])
        });
        let named: Vec<String> = named.collect();
        let text = |text: &dyn ToString| OsString::from(text.to_string());
        let place = &self.places[node];
        let mut more = vec![
            ("FENCEPOST_NODE_ID", text(&id)),
            ("FENCEPOST_PEERS", text(&named.join(","))),
            ("FENCEPOST_PEER_LISTEN", text(&place.peer)),
            ("FENCEPOST_CLUSTER_KEY_FILE", self.key_file.clone().into()),
            ("FENCEPOST_HTTP", text(&place.http)),
            (crash_tests::SNAPSHOT_EVERY, text(&self.snapshot_log_bytes)),
            (crash_tests::COMPARE_EVERY, text(&self.compare_entries)),
            (disk::TAKES_ORDERS, text(&true)),
        ];
        if let Some(bytes) = self.segment_bytes {
            more.push((crash_tests::SEGMENTS_OF, text(&bytes)));
        }
        if is_founder {
            more.push(("FENCEPOST_BOOTSTRAP", text(&true)));
        }
        if let Some(rate) = &self.rates[node] {
            more.extend(rate.variables());
        }
        let site = Site {
            program: self.build.program.clone(),
            mode: Kept::Lease,
            data_dir: self.home.join(format!("node-{id}")),
            address: place.address.clone(),
            redis_address: place.redis_address.clone(),
            clock_ahead_ms: 0,
            more,
            log_file: Some(self.home.join(format!("node-{id}.log"))),
        };
        self.places[node].node = Some((id, site));
        self.links.name(node, id);
        let build = self.build.clone();
        self.set_build(node, &build);
    }

    /// Has a node run this from its next start on.
    pub fn set_build(&mut self, node: usize, build: &Build) {
        let (_, site) = self.places[node].node.as_mut().expect("a node is there");
        site.program = build.program.clone();
        site.more.retain(|(name, _)| *name != READS_FORMAT);
        if let Some(Format(version)) = build.reads {
            let version = OsString::from(version.to_string());
            site.more.push((READS_FORMAT, version));
        }
    }

    /// Has the clocks of a node run faster than ours, in all its lives. Before its first start.
    pub fn set_rate(&mut self, node: usize, rate: Rate) {
        let (_, site) = self.places[node].node.as_mut().expect("a node is there");
        site.more.extend(rate.variables());
        self.rates[node] = Some(rate);
    }

    /// Has a node's ledger differ from those of the others, from its next start on. If it came to
    /// lead, the others would differ from their leader, so it is slow to stand for election.
    pub fn let_differ(&mut self, node: usize) {
        let (_, site) = self.places[node].node.as_mut().expect("a node is there");
        site.more.push((crash_tests::DIFFERS, "true".into()));
        let slow = ("FENCEPOST_ELECTION_TIMEOUT", "5s".into());
        site.more.push(slow);
    }

    fn site(&self, node: usize) -> &Site {
        let (_, site) = self.places[node].node.as_ref().expect("a node is there");
        site
    }

    /// The id of a node.
    pub fn id(&self, node: usize) -> u64 {
        self.places[node].node.as_ref().map_or(0, |(id, _)| *id)
    }

    /// All nodes, by their places.
    pub fn members(&self) -> Vec<usize> {
        let all = 0..self.places.len();
        all.filter(|node| self.places[*node].node.is_some())
            .collect()
    }

    /// How many nodes there are.
    pub fn count(&self) -> usize {
        self.members().len()
    }

    /// A tool that asks the nodes for changes.
    pub fn operator(&self) -> Result<Operator, String> {
        let places = self.members().into_iter();
        Operator::new(
            &self.key_file,
            places.map(|node| self.places[node].peer).collect(),
        )
    }

    /// What the cluster is told of a node that is to be added.
    pub fn addition(&self, node: usize) -> Question {
        let place = &self.places[node];
        Question::Add {
            node: self.id(node),
            peer: self.links.proxies()[node].to_string(),
            client: place.address.clone(),
            redis: place.redis_address.clone(),
        }
    }

    /// Where native clients reach each place.
    pub fn addresses(&self) -> Vec<String> {
        let addresses = self.places.iter().map(|place| place.address.clone());
        addresses.collect()
    }

    /// Where clients of Redis reach each place.
    pub fn redis_addresses(&self) -> Vec<SocketAddr> {
        let addresses = self.places.iter().map(|place| &place.redis_address);
        addresses
            .map(|address| address.parse().expect("made of digits"))
            .collect()
    }

    /// Where a node keeps its log.
    pub fn data_dir(&self, node: usize) -> &PathBuf {
        &self.site(node).data_dir
    }

    /// What all lives of a node have said.
    pub fn lines(&self, node: usize) -> String {
        let path = self.site(node).log_file.as_ref();
        let path = path.expect("every node has one");
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// Starts a node that is down. Returns when it listens.
    pub fn start(&mut self, node: usize, recorder: &Recorder) -> Result<(), String> {
        let started = self.site(node).start_ready();
        let id = self.id(node);
        self.servers[node] = Some(started.map_err(|why| format!("node {id}: {why}"))?);
        self.ready[node] = recorder.now();
        Ok(())
    }

    /// Starts a node that is down and may end at once. Returns before it listens.
    pub fn begin(&mut self, node: usize, recorder: &Recorder) -> Result<(), String> {
        self.servers[node] = Some(self.site(node).start()?);
        self.ready[node] = recorder.now();
        Ok(())
    }

    /// Whether a node runs.
    pub fn is_up(&self, node: usize) -> bool {
        self.servers[node].is_some()
    }

    fn server(&mut self, node: usize) -> Result<&mut Server, String> {
        let server = self.servers[node].as_mut();
        server.ok_or_else(|| format!("the node at place {node} is down"))
    }

    /// What the nodes that run use, at most.
    pub fn footprint(&self) -> Footprint {
        let all = self.members().into_iter();
        let running = all.filter_map(|node| Some((self.pid(node)?, self.data_dir(node))));
        let footprints = running.map(|(pid, dir)| Footprint::of(pid, dir));
        footprints.fold(Footprint::default(), Footprint::max)
    }

    /// The process of a node that runs.
    pub fn pid(&self, node: usize) -> Option<u32> {
        self.servers[node].as_ref().map(Server::pid)
    }

    /// Ends a node by a signal, and returns when it was sent.
    pub fn end(&mut self, node: usize, end: LifeEnd, recorder: &Recorder) -> Result<Time, String> {
        self.server(node)?;
        let server = self.servers[node].take().expect("it was looked at");
        let pid = server.pid();
        let ended = recorder.now();
        match end {
            LifeEnd::Killed => server.kill(),
            LifeEnd::Stopped => server.stop(),
        }
        .map_err(|why| format!("node {}: {why}", self.id(node)))?;
        if self.rates[node].is_some() {
            rates::tidy(pid);
        }
        self.lived(node, ended, recorder);
        Ok(ended)
    }

    /// A node has just been disturbed. Whatever that was, what clients were told before must
    /// outlive it as it must outlive a kill, so the history has it as one.
    pub fn lived(&mut self, node: usize, ended: Time, recorder: &Recorder) {
        let gone = recorder.now();
        recorder.lived(Life {
            ready: Some(self.ready[node]),
            ended,
            gone,
            end: LifeEnd::Killed,
        });
        self.ready[node] = gone;
    }

    /// Stops all threads of a node, until [`Nodes::go_on`]. Returns when that began.
    pub fn pause(&mut self, node: usize, recorder: &Recorder) -> Result<Time, String> {
        let ended = recorder.now();
        self.server(node)?.pause()?;
        self.lived(node, ended, recorder);
        Ok(ended)
    }

    /// Has it go on.
    pub fn go_on(&mut self, node: usize) -> Result<(), String> {
        self.server(node)?.go_on()
    }

    /// Sets a node's wall clock, now and for its later lives.
    pub fn set_clock(&mut self, node: usize, ahead_ms: i64) -> Result<(), String> {
        let (_, site) = self.places[node].node.as_mut().expect("a node is there");
        site.clock_ahead_ms = ahead_ms;
        match &mut self.servers[node] {
            Some(server) => server.set_clock(ahead_ms),
            None => Ok(()),
        }
    }

    /// Tells the disk of a node that runs what to do, in this life.
    pub fn order_disk(&mut self, node: usize, order: Order) -> Result<(), String> {
        self.server(node)?.order_disk(order)
    }

    /// Whether a node that was started has ended by itself. It is down then.
    pub fn has_ended(&mut self, node: usize) -> bool {
        let has_ended = self.servers[node].as_mut().is_some_and(Server::has_ended);
        if has_ended {
            self.servers[node] = None;
        }
        has_ended
    }

    /// The exit code of a node that was started and has ended by itself. It is down then.
    pub fn exit_code(&mut self, node: usize) -> Option<i32> {
        let code = self.servers[node].as_mut().and_then(Server::exit_code);
        self.has_ended(node);
        code
    }

    /// No node may end by itself.
    pub fn demand_all_run(&mut self) -> Result<(), String> {
        for (server, place) in self.servers.iter_mut().zip(&self.places) {
            if let Some(server) = server
                && server.has_ended()
            {
                let id = place.node.as_ref().map_or(0, |(id, _)| *id);
                return Err(server.complain(&format!("of node {id} ended by itself")));
            }
        }
        Ok(())
    }

    /// How a node stands; `None` if it does not answer.
    pub fn ask(&self, node: usize) -> Option<Standing> {
        self.servers[node].as_ref()?;
        let (_, status) = get(self.places[node].http, "/cluster")?;
        Some(Standing {
            is_serving: get(self.places[node].http, "/leader")?.0,
            is_ready: get(self.places[node].http, "/readyz")?.0,
            status,
        })
    }

    /// The node that serves clients, if one says so.
    pub fn leader(&self) -> Option<usize> {
        self.members().into_iter().find(|&node| {
            self.is_up(node)
                && get(self.places[node].http, "/leader").is_some_and(|(is_it, _)| is_it)
        })
    }

    /// Waits for a leader that serves, and until all nodes are ready. Returns the leader.
    pub fn wait_whole(&mut self) -> Result<usize, String> {
        let begin = Instant::now();
        loop {
            self.demand_all_run()?;
            let members = self.members();
            let standings: Vec<Option<Standing>> =
                members.iter().map(|node| self.ask(*node)).collect();
            let is_ready = |standing: &Option<Standing>| {
                standing.as_ref().is_some_and(|standing| standing.is_ready)
            };
            let serves = |standing: &Option<Standing>| {
                standing
                    .as_ref()
                    .is_some_and(|standing| standing.is_serving)
            };
            let serving = standings.iter().filter(|standing| serves(standing)).count();
            if standings.iter().all(is_ready) && serving == 1 {
                let serving = standings.iter().position(serves);
                return Ok(members[serving.expect("one serves")]);
            }
            if begin.elapsed() > STUCK {
                return Err(format!("not whole after {STUCK:?}: {standings:#?}"));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until all nodes have applied the same and agree on the hash of their ledgers, now that
    /// no client asks for anything.
    pub fn wait_equal(&mut self) -> Result<Vec<Standing>, String> {
        let begin = Instant::now();
        loop {
            self.demand_all_run()?;
            let members = self.members().into_iter();
            let standings: Vec<Standing> = members.filter_map(|node| self.ask(node)).collect();
            let told = |name: &str| -> Vec<u64> {
                let mut all: Vec<u64> = standings.iter().map(|it| it.number(name)).collect();
                all.dedup();
                all
            };
            let is_equal = ["applied_index", "last_index", "term", "hash"]
                .iter()
                .all(|name| told(name).len() == 1);
            let is_compared = standings.iter().all(|it| it.number("hash") != 0);
            if standings.len() == self.count() && is_equal && is_compared {
                return Ok(standings);
            }
            if begin.elapsed() > STUCK {
                return Err(format!("not equal after {STUCK:?}: {standings:#?}"));
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// Whether the answer is 200, and what it says.
fn get(address: SocketAddr, path: &str) -> Option<(bool, Value)> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let is_ok = head.starts_with("HTTP/1.1 200");
    Some((is_ok, serde_json::from_str(body).unwrap_or(Value::Null)))
}
