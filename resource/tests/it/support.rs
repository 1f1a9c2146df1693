//! The service on a free port, and as little of an HTTP client as it takes to talk to it.

use axum::Router;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longer than any test takes when all is well.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is to come about, or the test fails: without this, what never comes would be a test that
/// never ends.
pub(crate) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what)
        .await
        .expect("it should have come about long ago")
}

/// Waits until `condition` holds.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    in_time(waiting).await;
}

/// Routes served over a real socket. Dropping it stops it.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn start(routes: Router) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(resource::serve(listener, routes, 64, stop.clone()));
        Running {
            address,
            stop,
            task,
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Sends one request on a connection of its own. `None`: it ended without an answer.
pub(crate) async fn try_send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> Option<Reply> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    // A server that refuses a long body may close before it has read all of it; its answer is there
    // nevertheless.
    let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).expect("answers are text");
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Some(Reply {
        status: status.expect("a status line"),
        body: body.to_owned(),
    })
}

pub(crate) async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> Reply {
    let reply = try_send(address, method, path, headers, body).await;
    reply.expect("an answer")
}

pub(crate) async fn put(address: SocketAddr, path: &str, fence: u64, value: &[u8]) -> Reply {
    send(
        address,
        "PUT",
        path,
        &format!("X-Fence-Token: {fence}\r\n"),
        value,
    )
    .await
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Reply {
    send(address, "GET", path, "", b"").await
}

/// One number from the metrics page.
pub(crate) async fn metric(address: SocketAddr, name: &str) -> u64 {
    let page = get(address, "/metrics").await.body;
    let mut lines = page.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = lines
        .find(|(found, _)| *found == name)
        .unwrap_or_else(|| panic!("no {name} in\n{page}"));
    value.parse().unwrap()
}
