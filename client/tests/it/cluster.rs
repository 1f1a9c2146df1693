//! The client against the nodes of a cluster: finding the leader, following it, and keeping what it
//! has while there is none.
//!
//! The nodes are a model: they share one ledger, and lead, follow or fall silent on command.

use crate::support::*;
use bytes::{Buf, BytesMut};
use fencepost::{Acquisition, Builder, Client, ConnectError, Fence, Guard, Loss, Release};
use protocol::{
    ErrorCode, Frame, Message, NodeAddress, NodeAddresses, Opening, Push, Reply, Request,
    RequestId, ServerName, SessionId, SessionKey, SessionSecret, UnavailableReason, Welcome,
    limits,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The only session there is.
const SESSION: SessionKey = SessionKey {
    session_id: SessionId::new(1),
    secret: SessionSecret::new([7; 16]),
};

/// What a node does with clients.
#[derive(Clone, Debug, PartialEq)]
enum Role {
    Leads,
    /// Turns them away, and names this leader if there is one.
    Follows(Option<String>),
    /// As [`Role::Follows`], after it has said that the leadership is handed over.
    HandedOver(String),
    /// Takes everything, and says nothing.
    Stalls,
    /// Hangs up.
    Dead,
}

/// What a node heard.
#[derive(Clone, Debug, PartialEq)]
struct Heard {
    node: usize,
    id: u64,
    is_repeated: bool,
    what: What,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    Hello(Opening),
    Acquire { waited_ms: u32 },
    Renew { fence: u64 },
    Release,
    Other,
}

/// What all nodes agree on, and what was heard.
#[derive(Default)]
struct State {
    is_session_open: bool,
    /// Fences by the requests that they were granted to.
    grants: HashMap<u64, u64>,
    heard: Vec<Heard>,
}

struct Ledger {
    state: Mutex<State>,
    rule: watch::Sender<Rule>,
}

/// How leaders answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Grants,
    /// Another session holds every key: acquires wait.
    Held,
    /// A majority is out of reach.
    NoQuorum,
    /// What is done is not told.
    Mute,
}

struct Cluster {
    ledger: Arc<Ledger>,
    addresses: Vec<String>,
    roles: Vec<watch::Sender<Role>>,
}

impl Cluster {
    /// Node 0 leads, the others know it.
    async fn start(node_count: usize) -> Self {
        let mut listeners = Vec::new();
        for _ in 0..node_count {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let addresses = listeners
            .iter()
            .map(|it| it.local_addr().unwrap().to_string());
        let addresses: Vec<String> = addresses.collect();
        let ledger = Arc::new(Ledger {
            state: Mutex::default(),
            rule: watch::Sender::new(Rule::Grants),
        });
        let mut roles = Vec::new();
        for (node, listener) in listeners.into_iter().enumerate() {
            let role = watch::Sender::new(match node {
                0 => Role::Leads,
                _ => Role::Follows(Some(addresses[0].clone())),
            });
            let served = Arc::new(Node {
                node,
                addresses: addresses.join(","),
                role: role.clone(),
                ledger: Arc::clone(&ledger),
            });
            tokio::spawn(async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    tokio::spawn(Arc::clone(&served).serve(stream));
                }
            });
            roles.push(role);
        }
        Self {
            ledger,
            addresses,
            roles,
        }
    }

    /// A client that knows the addresses of these nodes.
    fn builder(&self, nodes: &[usize]) -> Builder {
        Client::builder()
            .addresses(nodes.iter().map(|node| self.addresses[*node].clone()))
            .session_ttl(LONG)
            .default_ttl(LONG)
            .default_wait(PATIENCE)
            // So long that nothing here is noticed by it.
            .request_timeout(LONG)
    }

    async fn connect(&self, nodes: &[usize]) -> Client {
        in_time(self.builder(nodes).connect()).await.unwrap()
    }

    fn set(&self, node: usize, role: Role) {
        self.roles[node].send_replace(role);
    }

    fn rule(&self, rule: Rule) {
        self.ledger.rule.send_replace(rule);
    }

    /// All follow `leader`, or no node if that is none.
    fn elect(&self, leader: Option<usize>) {
        for node in 0..self.roles.len() {
            self.set(
                node,
                match leader {
                    Some(leader) if leader == node => Role::Leads,
                    leader => Role::Follows(leader.map(|leader| self.addresses[leader].clone())),
                },
            );
        }
    }

    fn heard(&self) -> Vec<Heard> {
        self.ledger.state.lock().unwrap().heard.clone()
    }

    fn count(&self, condition: impl Fn(&Heard) -> bool) -> usize {
        self.heard().iter().filter(|heard| condition(heard)).count()
    }

    async fn eventually_heard(&self, what: &str, condition: impl Fn(&Heard) -> bool) -> Heard {
        let find = || self.heard().into_iter().find(|heard| condition(heard));
        eventually(what, async || find().is_some()).await;
        find().unwrap()
    }
}

/// One node, as its connections see it.
struct Node {
    node: usize,
    addresses: String,
    role: watch::Sender<Role>,
    ledger: Arc<Ledger>,
}

impl Node {
    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let (mut roles, mut rules) = (self.role.subscribe(), self.ledger.rule.subscribe());
        let mut input = BytesMut::new();
        // Acquires that wait.
        let mut waiting: Vec<RequestId> = Vec::new();
        let mut was_leading = false;
        loop {
            let role = roles.borrow_and_update().clone();
            let rule = *rules.borrow_and_update();
            let mut out = BytesMut::new();
            let mut is_over = false;
            match &role {
                Role::Dead => return,
                Role::Stalls => input.clear(),
                Role::Follows(_) | Role::HandedOver(_) if was_leading => {
                    last_words(&role, &mut out);
                    is_over = true;
                }
                Role::Leads => {
                    was_leading = true;
                    if rule == Rule::Grants {
                        for id in waiting.drain(..) {
                            self.grant(id).append(id, &mut out);
                        }
                    }
                }
                Role::Follows(_) | Role::HandedOver(_) => {}
            }
            is_over = is_over || self.answer(&role, rule, &mut input, &mut waiting, &mut out);
            if stream.write_all(&out).await.is_err() || is_over {
                // One that hands over goes on for a while.
                if !matches!(role, Role::HandedOver(_)) {
                    stream.shutdown().await.ok();
                }
                // Its last words must arrive: a close with unread bytes would take them back.
                while stream.read_buf(&mut input).await.unwrap_or(0) > 0 {}
                return;
            }
            tokio::select! {
                read = stream.read_buf(&mut input) => {
                    if read.unwrap_or(0) == 0 {
                        return;
                    }
                }
                _ = roles.changed() => {}
                _ = rules.changed() => {}
            }
        }
    }

    /// Says whether the connection is over.
    fn answer(
        &self,
        role: &Role,
        rule: Rule,
        input: &mut BytesMut,
        waiting: &mut Vec<RequestId>,
        out: &mut BytesMut,
    ) -> bool {
        let mut unread = &input[..];
        let mut is_over = false;
        while let Some(frame) = Frame::split(&mut unread, limits::REQUEST_FRAME_BYTES_MAX).unwrap()
        {
            let request = Request::decode(&frame).unwrap();
            let id = frame.request_id;
            self.ledger.state.lock().unwrap().heard.push(Heard {
                node: self.node,
                id: id.get(),
                is_repeated: frame.is_repeated(),
                what: match request {
                    Request::Hello(hello) => What::Hello(hello.opening),
                    Request::Acquire(acquire) => What::Acquire {
                        waited_ms: acquire.waited_ms,
                    },
                    Request::Renew { fence, .. } => What::Renew { fence: fence.get() },
                    Request::Release { .. } => What::Release,
                    _ => What::Other,
                },
            });
            if let Role::Follows(leader) = role {
                is_over = true;
                not_leader(leader.as_deref()).append(id, out);
            } else if let Role::HandedOver(leader) = role {
                is_over = true;
                not_leader(Some(leader)).append(id, out);
            } else if let Request::Acquire(_) = request
                && rule == Rule::Held
            {
                waiting.push(id);
            } else {
                let reply = self.decide(rule, id, &request);
                if rule != Rule::Mute || matches!(request, Request::Hello(_)) {
                    reply.append(id, out);
                }
            }
        }
        let read_bytes = input.len() - unread.len();
        input.advance(read_bytes);
        is_over
    }

    fn decide(&self, rule: Rule, id: RequestId, request: &Request<'_>) -> Reply<'_> {
        let ttl_ms = LONG.as_millis() as u32;
        match request {
            Request::Hello(hello) => Reply::Welcome(Welcome {
                version: 1,
                is_resumed: self.open_session(hello.opening),
                session: SESSION,
                session_ttl_ms: ttl_ms,
                frame_bytes_max: 4096,
                in_flight_max: 64,
                remembered_max: 64,
                server_name: ServerName::clipped("a model"),
                grace_ms: None,
                addresses: NodeAddresses::new(&self.addresses).unwrap(),
            }),
            Request::Acquire(_) if rule == Rule::NoQuorum => Reply::Unavailable {
                reason: UnavailableReason::NO_QUORUM,
                retry_after_ms: 20,
            },
            Request::Acquire(_) => self.grant(id),
            Request::Renew { lease, .. } => Reply::Renewed {
                ttl_ms: match lease {
                    protocol::Lease::Ttl { ttl_ms } => *ttl_ms,
                    protocol::Lease::Session => ttl_ms,
                },
            },
            Request::Release { .. } => Reply::Released { remaining_count: 0 },
            Request::Ping => Reply::Pong,
            Request::KeepAlive => Reply::KeptAlive { ttl_ms },
            _ => Reply::Bye,
        }
    }

    fn open_session(&self, opening: Opening) -> bool {
        let mut state = self.ledger.state.lock().unwrap();
        match opening {
            Opening::Resume(key) | Opening::Join(key) => key == SESSION && state.is_session_open,
            Opening::New => {
                state.is_session_open = true;
                false
            }
        }
    }

    /// The same request gets the same grant.
    fn grant(&self, id: RequestId) -> Reply<'static> {
        let mut state = self.ledger.state.lock().unwrap();
        let next = state.grants.len() as u64 + 1;
        let fence = *state.grants.entry(id.get()).or_insert(next);
        Reply::Granted {
            fence: Fence::new(fence).unwrap(),
            ttl_ms: LONG.as_millis() as u32,
            hold_count: 1,
        }
    }
}

/// To a client that was served until now.
fn last_words(role: &Role, out: &mut BytesMut) {
    match role {
        Role::Follows(leader) => Reply::Error {
            code: ErrorCode::NOT_LEADER,
            message: Message::clipped("this node leads no more"),
            leader: NodeAddress::clipped(leader.as_deref().unwrap_or_default()),
        }
        .append(RequestId::NONE, out),
        Role::HandedOver(leader) => Push::Shutdown {
            grace_ms: 5_000,
            leader: NodeAddress::clipped(leader),
        }
        .append(out),
        Role::Leads | Role::Stalls | Role::Dead => {}
    }
}

fn not_leader(leader: Option<&str>) -> Reply<'_> {
    Reply::HelloRefused {
        code: ErrorCode::NOT_LEADER,
        version_min: 1,
        version_max: 1,
        message: Message::clipped("this node does not lead"),
        leader: NodeAddress::clipped(leader.unwrap_or_default()),
    }
}

fn is_hello(heard: &Heard) -> bool {
    matches!(heard.what, What::Hello(_))
}

/// An address without a listener: it was free a moment ago.
async fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Has not fired, and does not when it is asked.
async fn is_not_lost(guard: &Guard) -> bool {
    tokio::select! {
        biased;
        _ = guard.lost() => false,
        () = std::future::ready(()) => guard.is_valid(),
    }
}

// ---- finding the leader

#[tokio::test]
async fn a_node_that_does_not_lead_names_the_one_that_does() {
    let cluster = Cluster::start(2).await;
    let client = cluster.connect(&[1]).await;
    client.ping().await.unwrap();
    let hellos: Vec<usize> = (cluster.heard().iter())
        .filter(|heard| is_hello(heard))
        .map(|heard| heard.node)
        .collect();
    // The second connection of the client asks the leader first.
    assert_eq!(hellos, [1, 0, 0]);
}

#[tokio::test]
async fn a_leader_that_is_named_and_not_there_does_not_keep_the_client_from_the_one_that_is() {
    let cluster = Cluster::start(3).await;
    let dead = nowhere().await;
    cluster.set(0, Role::Follows(Some(dead.clone())));
    cluster.set(1, Role::Follows(Some(dead)));
    cluster.set(2, Role::Leads);
    let client = cluster.connect(&[0, 1, 2]).await;
    client.ping().await.unwrap();
    assert_eq!(cluster.count(|heard| heard.node == 2 && is_hello(heard)), 2);
}

#[tokio::test]
async fn a_leader_that_takes_a_hello_and_says_nothing_is_passed_over() {
    let cluster = Cluster::start(3).await;
    cluster.set(0, Role::Stalls);
    cluster.set(2, Role::Leads);
    // Longer than the test may take: only the other nodes make the client look elsewhere.
    let client = cluster.builder(&[0, 1, 2]).connect_timeout(LONG).connect();
    in_time(client).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn a_client_that_starts_in_an_election_waits_for_its_end() {
    let cluster = Cluster::start(3).await;
    cluster.elect(None);
    let connecting = tokio::spawn(cluster.builder(&[0, 1, 2]).connect());
    eventually("three rounds", async || cluster.count(is_hello) >= 9).await;
    cluster.elect(Some(2));
    let client = in_time(connecting).await.unwrap().unwrap();
    client.ping().await.unwrap();
}

#[tokio::test]
async fn a_cluster_that_does_not_choose_a_leader_is_told() {
    let cluster = Cluster::start(2).await;
    cluster.elect(None);
    let builder = cluster.builder(&[0, 1]);
    let connecting = builder
        .request_timeout(Duration::from_millis(100))
        .connect();
    let error = in_time(connecting).await.unwrap_err();
    let ConnectError::NoneOf { failures } = &error else {
        panic!("{error}");
    };
    assert_eq!(failures.len(), 2);
    assert_eq!(
        error.to_string(),
        format!(
            "none of 2 addresses leads to a server: {}: does not lead, and knows no leader; {}: does not lead, and \
             knows no leader. Try again in a moment; if it stays so, see whether a majority of the nodes runs",
            cluster.addresses[0], cluster.addresses[1]
        )
    );
}

#[tokio::test]
async fn a_node_that_falls_silent_in_an_election_does_not_keep_the_caller_longer() {
    let cluster = Cluster::start(1).await;
    cluster.elect(None);
    let builder = cluster.builder(&[0]).connect_timeout(LONG);
    let connecting = builder
        .request_timeout(Duration::from_millis(500))
        .connect();
    let connecting = tokio::spawn(connecting);
    eventually("a second round", async || cluster.count(is_hello) >= 2).await;
    cluster.set(0, Role::Stalls);
    let error = in_time(connecting).await.unwrap().unwrap_err();
    assert!(matches!(error, ConnectError::NotLeader { .. }), "{error}");
}

#[tokio::test]
async fn addresses_that_all_lead_nowhere_are_all_named() {
    let addresses = [nowhere().await, nowhere().await, nowhere().await];
    let connecting = Client::builder().address(addresses.join(", ")).connect();
    let error = in_time(connecting).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ConnectError::NoneOf { .. }), "{text}");
    assert!(
        text.starts_with("none of 3 addresses leads to a server: "),
        "{text}"
    );
    assert!(
        text.ends_with("See whether the server runs, and whether these are its addresses"),
        "{text}"
    );
    for address in addresses {
        assert!(text.contains(&address), "{text} does not name {address}");
    }
}

#[tokio::test]
async fn a_server_of_its_own_is_found_behind_a_node_that_refuses() {
    let server = start_server();
    let real = server.local_addr().to_string();
    let cluster = Cluster::start(1).await;
    for (hint, given) in [
        (None, vec![cluster.addresses[0].clone(), real.clone()]),
        (Some(real.clone()), vec![cluster.addresses[0].clone()]),
    ] {
        cluster.set(0, Role::Follows(hint));
        let connecting = Client::builder().addresses(given).connect();
        let client = in_time(connecting).await.unwrap();
        let guard = client.lock("k").acquire().await.unwrap();
        assert_eq!(guard.release().await, Ok(Release::Released));
        client.close().await.unwrap();
    }
}

// ---- following it

#[tokio::test]
async fn a_guard_outlives_its_leader_and_is_renewed_at_the_next() {
    let ends: [fn(&Cluster); 5] = [
        |cluster| cluster.elect(Some(1)),
        |cluster| {
            cluster.elect(None);
            cluster.elect(Some(1));
        },
        |cluster| {
            cluster.set(1, Role::Leads);
            cluster.set(0, Role::HandedOver(cluster.addresses[1].clone()));
        },
        |cluster| {
            cluster.set(0, Role::Dead);
            cluster.set(1, Role::Leads);
        },
        |cluster| {
            cluster.set(0, Role::Stalls);
            cluster.set(1, Role::Leads);
        },
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let cluster = Cluster::start(2).await;
        // The other node it knows from its leader.
        let client = cluster.connect(&[0]).await;
        let guard = client.lock("k").acquire().await.unwrap();
        let session = client.session_id();
        let (fence, until) = (guard.fence().get(), guard.valid_until());
        end(&cluster);
        // Where the leader only falls silent, a request has to find out.
        in_time(client.ping()).await.unwrap();
        let what = format!("a renewal at the next leader, case {number}");
        let is_renewal = |heard: &Heard| heard.node == 1 && heard.what == What::Renew { fence };
        cluster.eventually_heard(&what, is_renewal).await;
        eventually("a later end", async || guard.valid_until() > until).await;
        assert!(is_not_lost(&guard).await, "case {number}");
        assert_eq!(client.session_id(), session, "case {number}");
        let resumed = What::Hello(Opening::Resume(SESSION));
        let resumes = cluster.count(|heard| heard.node == 1 && heard.what == resumed);
        assert!(resumes >= 1, "case {number}: {:?}", cluster.heard());
        assert_eq!(in_time(guard.release()).await, Ok(Release::Released));
    }
}

#[tokio::test]
async fn without_a_leader_a_guard_ends_by_its_own_clock_and_not_before() {
    let cluster = Cluster::start(2).await;
    let client = cluster.connect(&[0, 1]).await;
    let ttl = Duration::from_millis(700);
    let guard = client.lock("k").ttl(LONG).acquire().await.unwrap();
    let short = client.lock("short").ttl(ttl).acquire().await.unwrap();
    // The model grants all the time in the world; renewals give what is asked for.
    in_time(short.renew()).await.unwrap();
    cluster.elect(None);
    let loss = in_time(short.lost()).await;
    assert_eq!(loss, Loss::DeadlinePassed);
    assert!(std::time::Instant::now() >= short.valid_until());
    assert!(is_not_lost(&guard).await);
    cluster.elect(Some(1));
    assert!(in_time(guard.renew()).await.is_ok());
}

#[tokio::test]
async fn a_waiting_acquire_moves_with_the_leader_and_is_granted_once() {
    let cluster = Cluster::start(3).await;
    cluster.rule(Rule::Held);
    let client = cluster.connect(&[0, 1, 2]).await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.lock("k").acquire().await }
    });
    let is_acquire = |heard: &Heard| matches!(heard.what, What::Acquire { .. });
    let first = cluster.eventually_heard("an acquire", is_acquire).await;
    assert_eq!(first.what, What::Acquire { waited_ms: 0 });
    assert!(!first.is_repeated);
    for leader in [2, 1] {
        // It is to have waited for a moment that can be told.
        tokio::time::sleep(Duration::from_millis(5)).await;
        cluster.elect(None);
        cluster.elect(Some(leader));
        let is_at_leader = |heard: &Heard| heard.node == leader && is_acquire(heard);
        let again = cluster.eventually_heard("it again", is_at_leader).await;
        assert!(again.is_repeated && again.id == first.id, "{again:?}");
        assert!(
            matches!(again.what, What::Acquire { waited_ms } if waited_ms >= 5),
            "{again:?}"
        );
    }
    cluster.rule(Rule::Grants);
    let guard = in_time(waiting).await.unwrap().unwrap();
    assert!(guard.is_valid());
    assert_eq!(cluster.ledger.state.lock().unwrap().grants.len(), 1);
    assert_eq!(cluster.count(is_acquire), 3);
}

#[tokio::test]
async fn an_acquire_goes_on_while_there_is_no_leader() {
    let cluster = Cluster::start(3).await;
    let client = cluster.connect(&[0, 1, 2]).await;
    cluster.elect(None);
    let acquire = tokio::spawn({
        let client = client.clone();
        async move { client.lock("k").acquire().await }
    });
    let hellos = cluster.count(is_hello);
    // A second or so of asking who leads.
    eventually("rounds", async || cluster.count(is_hello) > hellos + 30).await;
    assert!(!acquire.is_finished());
    cluster.elect(Some(1));
    let guard = in_time(acquire).await.unwrap().unwrap();
    assert_eq!(in_time(guard.release()).await, Ok(Release::Released));
}

#[tokio::test]
async fn an_acquire_waits_for_a_majority_and_keeps_its_age() {
    let cluster = Cluster::start(2).await;
    let client = cluster.connect(&[0]).await;
    cluster.rule(Rule::NoQuorum);
    let acquire = tokio::spawn({
        let client = client.clone();
        async move { client.lock("k").acquire().await }
    });
    let is_older =
        |heard: &Heard| matches!(heard.what, What::Acquire { waited_ms } if waited_ms > 0);
    let again = cluster.eventually_heard("it again", is_older).await;
    assert!(
        !again.is_repeated,
        "it was answered, so it is a new request"
    );
    cluster.rule(Rule::Grants);
    assert!(in_time(acquire).await.unwrap().unwrap().is_valid());
    cluster.rule(Rule::NoQuorum);
    let refused = client.lock("k").try_acquire().await.unwrap_err();
    assert!(refused.to_string().contains("no_quorum"), "{refused}");
}

#[tokio::test]
async fn requests_under_way_are_repeated_under_their_ids() {
    let cluster = Cluster::start(2).await;
    let client = cluster.connect(&[0, 1]).await;
    let guard = client.lock("k").acquire().await.unwrap();
    cluster.rule(Rule::Mute);
    let release = tokio::spawn(guard.release());
    let acquire = tokio::spawn({
        let client = client.clone();
        async move { client.lock("other").try_acquire().await }
    });
    let is_release = |heard: &Heard| heard.what == What::Release;
    let first = cluster.eventually_heard("a release", is_release).await;
    let is_acquire = |heard: &Heard| matches!(heard.what, What::Acquire { .. });
    eventually("two acquires", async || cluster.count(is_acquire) == 2).await;
    cluster.elect(Some(1));
    cluster.rule(Rule::Grants);
    assert_eq!(in_time(release).await.unwrap(), Ok(Release::Released));
    let Acquisition::Acquired(guard) = in_time(acquire).await.unwrap().unwrap() else {
        panic!("the model refuses no lock");
    };
    assert_eq!(
        guard.fence().get(),
        2,
        "granted once, by the one or the other"
    );
    let at_next = |heard: &Heard| heard.node == 1 && is_release(heard);
    let again = cluster.eventually_heard("the release again", at_next).await;
    assert!(again.is_repeated && again.id == first.id, "{again:?}");
}

#[tokio::test]
async fn a_leader_that_falls_silent_is_left_for_another() {
    let cluster = Cluster::start(3).await;
    let client = cluster.connect(&[0]).await;
    cluster.set(0, Role::Stalls);
    // The third has not noticed yet.
    cluster.set(1, Role::Leads);
    in_time(client.ping()).await.unwrap();
    assert!(cluster.count(|heard| heard.node == 1) > 0);
}

#[test]
fn the_blocking_client_follows_the_leader_too() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let cluster = runtime.block_on(Cluster::start(2));
    let client = cluster.builder(&[1]).connect_blocking().unwrap();
    let guard = client.acquire(client.lock("k")).unwrap();
    cluster.elect(Some(1));
    client.ping().unwrap();
    assert!(guard.is_valid());
    assert_eq!(guard.release(), Ok(Release::Released));
}
