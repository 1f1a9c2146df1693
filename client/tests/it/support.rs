//! A server, clients, a proxy that misbehaves on command, and waiting for conditions.

use fencepost::{Builder, Client, KeyState};
use server::Server;
use server::config::Config;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Longer than any test takes when all is well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A lease that does not end during a test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

pub(crate) fn start_server() -> Server {
    start_server_with(|_| {})
}

pub(crate) fn start_server_with(change: impl FnOnce(&mut Config)) -> Server {
    Server::builder()
        .threads(2)
        // A test that is over need not let its clients hear the last word.
        .with(|config| config.shutdown_grace = Duration::ZERO)
        .with(change)
        .start()
        .expect("an embedded server starts")
}

pub(crate) fn builder(address: SocketAddr) -> Builder {
    Client::builder()
        .address(address.to_string())
        .name("test")
        .session_ttl(LONG)
        .default_ttl(LONG)
        .default_wait(PATIENCE)
        .request_timeout(PATIENCE)
}

pub(crate) async fn connect(server: &Server) -> Client {
    builder(server.local_addr())
        .connect()
        .await
        .expect("the server welcomes a client")
}

/// Waits until `condition` holds, asking again and again.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "{what} did not come about");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until what the server says of `key` satisfies `condition`.
pub(crate) async fn eventually_key(
    client: &Client,
    key: &str,
    what: &str,
    condition: impl Fn(&KeyState) -> bool,
) {
    eventually(what, async || {
        condition(&client.query(key).await.expect("the server answers"))
    })
    .await;
}

pub(crate) async fn eventually_free(client: &Client, key: &str) {
    eventually_key(client, key, "a free key", |state| state.holder_count == 0).await;
}

/// Nothing in a test may wait for ever.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future)
        .await
        .expect("it takes no longer than a test may")
}

/// What the proxy does with bytes from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replies {
    Forward,
    /// Thrown away, so that the client never hears of what it did.
    Swallow,
}

/// Stands between clients and a server and fails on command.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: watch::Sender<SocketAddr>,
    replies: watch::Sender<Replies>,
    /// Connections of an earlier round are cut.
    round: watch::Sender<u64>,
    /// How many connections it takes at a time; others are hung up on.
    connection_max: watch::Sender<usize>,
    connection_count: watch::Sender<usize>,
    accepted_count: watch::Sender<usize>,
    swallowed_bytes: watch::Sender<usize>,
}

impl Proxy {
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: watch::Sender::new(target),
            replies: watch::Sender::new(Replies::Forward),
            round: watch::Sender::new(0),
            connection_max: watch::Sender::new(usize::MAX),
            connection_count: watch::Sender::new(0),
            accepted_count: watch::Sender::new(0),
            swallowed_bytes: watch::Sender::new(0),
        });
        tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared }
    }

    /// Cuts all connections. New ones may come.
    pub(crate) fn cut(&self) {
        self.shared.round.send_modify(|round| *round += 1);
    }

    /// From now on, what the server says gets lost.
    pub(crate) fn swallow_replies(&self) {
        self.shared.swallowed_bytes.send_replace(0);
        self.shared.replies.send_replace(Replies::Swallow);
    }

    /// Waits until something has got lost.
    pub(crate) async fn swallowed(&self) {
        let mut swallowed = self.shared.swallowed_bytes.subscribe();
        in_time(swallowed.wait_for(|bytes| *bytes > 0))
            .await
            .unwrap();
    }

    /// All is well again, for new connections; those that were there are cut.
    pub(crate) fn recover(&self) {
        self.shared.replies.send_replace(Replies::Forward);
        self.cut();
    }

    /// What the server says from now on arrives again; what got lost stays lost.
    pub(crate) fn forward_replies(&self) {
        self.shared.replies.send_replace(Replies::Forward);
    }

    /// Takes no more than `connection_max` connections at a time from now on; those there are stay.
    pub(crate) fn limit_connections(&self, connection_max: usize) {
        self.shared.connection_max.send_replace(connection_max);
    }

    /// Waits until it has accepted this many connections since it started.
    pub(crate) async fn accepted(&self, count: usize) {
        let mut accepted = self.shared.accepted_count.subscribe();
        in_time(accepted.wait_for(|accepted| *accepted >= count))
            .await
            .unwrap();
    }

    pub(crate) fn accepted_count(&self) -> usize {
        *self.shared.accepted_count.borrow()
    }

    /// Leads new connections somewhere else.
    pub(crate) fn point_to(&self, target: SocketAddr) {
        self.shared.target.send_replace(target);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        if *shared.connection_count.borrow() >= *shared.connection_max.borrow() {
            continue;
        }
        shared.connection_count.send_modify(|count| *count += 1);
        shared.accepted_count.send_modify(|count| *count += 1);
        tokio::spawn(forward(client, Arc::clone(&shared)));
    }
}

async fn forward(client: TcpStream, shared: Arc<Shared>) {
    let mut round = shared.round.subscribe();
    round.mark_unchanged();
    let target = *shared.target.borrow();
    if let Ok(server) = TcpStream::connect(target).await {
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let (mut client_in, mut client_out) = client.into_split();
        let (mut server_in, mut server_out) = server.into_split();
        let requests = async {
            tokio::io::copy(&mut client_in, &mut server_out).await.ok();
        };
        let replies = async {
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let read_bytes = server_in.read(&mut buffer).await.unwrap_or(0);
                if read_bytes == 0 {
                    return;
                }
                let mode = *shared.replies.borrow();
                if mode == Replies::Swallow {
                    shared
                        .swallowed_bytes
                        .send_modify(|bytes| *bytes += read_bytes);
                } else if client_out.write_all(&buffer[..read_bytes]).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = requests => {}
            () = replies => {}
            _ = round.changed() => {}
        }
    }
    shared.connection_count.send_modify(|count| *count -= 1);
}
