//! The HTTP side: metrics, health, a look at the locks, and the operator's page. All of it but the
//! POSTs is read only.
//!
//! It has one thread of its own, so that a slow scrape or a large listing never delays a lock
//! request. The number of connections, the life of each, the size of a request head and the time it
//! may take are bounded. The last also bounds how long a connection may idle between requests. A
//! new connection beyond the bound is served, and the oldest one is closed for it: requests that
//! never end must not keep a health check waiting. Bodies are not read. axum's own server has none
//! of these bounds, so hyper's connections serve its routes directly.
//!
//! | path               | what                                          | token |
//! |--------------------|-----------------------------------------------|-------|
//! | `/`                | the paths; sends a browser to the page        | yes   |
//! | `/ui/`             | the operator's page: `http/page.rs`           | no    |
//! | `/metrics`         | for Prometheus: `exposition.rs`               | yes   |
//! | `/healthz`         | 200 while the process works                   | no    |
//! | `/readyz`          | 200 if clients should come, else 503 and why  | no    |
//! | `/readyz?granting` | 200 if new locks are granted                  | no    |
//! | `/leader`          | 200 on the node that serves clients, else 503 | no    |
//! | `/cluster`         | how this node of a cluster stands             | yes   |
//! | `/stats`           | the numbers as JSON: `http/numbers.rs`        | yes   |
//! | `/contended`       | the most contended keys                       | yes   |
//! | `/sessions`        | sessions, in pages                            | yes   |
//! | `/locks`           | locks by prefix, in pages: `http/locks.rs`    | yes   |
//! | `/locks/{key}`     | one lock                                      | yes   |
//! | `/history?key=`    | one key in the audit log: `http/history.rs`   | yes   |
//! | `/force-release`   | POST: takes a lock away: `http/force.rs`      | yes   |
//! | `/cluster/{what}`  | POST: changes the cluster: `http/cluster.rs`  | yes   |
//!
//! Everything but the probes needs `Authorization: Bearer` and a token with the role *read*, unless
//! the server has neither `auth_file` nor `auth_token_file`. With `auth_token_file` alone, requests
//! to an address that only the own machine can reach may look without one, under a name that no web
//! site can have (`http/sender.rs`).

mod cluster;
mod contended;
mod doorway;
mod force;
mod history;
mod locks;
mod numbers;
mod page;
mod parameters;
mod readiness;
mod sender;
mod sessions;

pub(crate) use parameters::{path_bytes, prefix_of};

use crate::conn::places::Line;
use crate::core::shared::Shared;
use crate::observe::notices::{Notice, Notices};
use crate::report::exposition::{self, Format};
use crate::report::oldest::Oldest;
use crate::rights::{Entitlement, Role};
use crate::system::standby::Standby;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use doorway::{CertificateNames, Doorway, Stream};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Connections at the same time. Beyond that the oldest is closed.
pub(crate) const CONNECTIONS_MAX: u32 = 64;

/// A key in a path, percent-encoded, takes 768 bytes; the rest is for headers.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

/// After this a connection is closed once its request is answered.
const CONNECTION_LIFE_MAX: Duration = Duration::from_secs(60);

/// How long an answer in progress may go on after that, or after the server has stopped.
const LINGER: Duration = Duration::from_millis(500);

/// How long to wait after an accept failed for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The thread that serves HTTP. Dropping it ends it.
pub(crate) struct Http {
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// The server as it is now. A node of a cluster is another one in each of its offices.
#[derive(Clone)]
pub(crate) struct Current(Arc<RwLock<Arc<Shared>>>);

impl From<Arc<Shared>> for Current {
    fn from(shared: Arc<Shared>) -> Self {
        Current(Arc::new(RwLock::new(shared)))
    }
}

impl Current {
    pub(crate) fn set(&self, shared: Arc<Shared>) {
        *self.0.write() = shared;
    }

    fn get(&self) -> Arc<Shared> {
        self.0.read().clone()
    }
}

/// Where a request comes from.
#[derive(Clone, Copy)]
struct Sender(SocketAddr);

/// How much of a path an audit line shows.
const SHOWN_PATH_CHARS_MAX: usize = 256;

/// A request, as an audit line tells of it.
#[derive(Clone)]
struct Sent {
    /// Empty if it is not known.
    address: String,
    /// The method and the path.
    what: String,
}

impl Sent {
    fn of(request: &Request) -> Self {
        let sender = request.extensions().get::<Sender>();
        let path: String = (request.uri().path().chars())
            .take(SHOWN_PATH_CHARS_MAX)
            .collect();
        Sent {
            address: sender.map_or_else(String::new, |Sender(address)| address.to_string()),
            what: format!("{} {path}", request.method()),
        }
    }

    /// Counts that it was refused for want of a right, and has it in the audit log.
    fn refused(&self, shared: &Shared, token_name: Option<Arc<str>>, why: &str) {
        shared.rights.count_refused();
        if let Some(audit) = shared.audit() {
            let why = format!("{}: {why}", self.what);
            audit.refused_stranger(&self.address, token_name, "http", why);
        }
    }
}

/// What every request can see.
pub(crate) struct View {
    current: Current,
    oldest: Mutex<Oldest>,
    /// Locked while the audit log is read, which one request at a time may do.
    reading: tokio::sync::Mutex<()>,
    /// Whether what comes without a token comes from the own machine.
    is_local: bool,
}

impl View {
    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.current.get()
    }
}

/// Binds the port and returns its address.
pub(crate) fn bind(address: SocketAddr) -> io::Result<(std::net::TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl Http {
    /// Serves on a port that is bound.
    pub(crate) fn start(
        (standby, runtime): (Standby, Runtime),
        (listener, address): (std::net::TcpListener, SocketAddr),
        current: Current,
    ) -> Http {
        let view = Arc::new(View {
            is_local: address.ip().to_canonical().is_loopback(),
            current,
            oldest: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        });
        let stop = CancellationToken::new();
        let thread = standby.begin({
            let stop = stop.clone();
            move || {
                let shared = view.shared();
                let _watch = shared.failure.watch();
                runtime.block_on(serve(listener, routes(view), stop, shared));
            }
        });
        Http {
            address,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the HTTP side ended with a panic");
        }
    }
}

async fn serve(
    listener: std::net::TcpListener,
    routes: Router,
    stop: CancellationToken,
    shared: Arc<Shared>,
) {
    // What it needs of the server is the same in each office; the engine is not kept for it.
    let (config, failure) = (shared.config.clone(), shared.failure.clone());
    let doorway = Arc::new(Doorway {
        certificates: shared.certificates_of(|ports| ports.http).cloned(),
        notices: Notices::default(),
        patience: config.hello_timeout,
    });
    drop(shared);
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("HTTP is not served: {error}"),
    };
    let line = Line::new(CONNECTIONS_MAX as usize);
    // How long a request head may take, and how long a connection may idle.
    let head_timeout = config.frame_timeout;
    // Nothing is ever sent. The channel closes when the last connection ends.
    let (done, mut all_done) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, address)) => {
                let routes = routes.clone().layer(Extension(Sender(address)));
                let (stop, done) = (stop.clone(), done.clone());
                let doorway = doorway.clone();
                let (place, _) = line.enter();
                let watch = failure.watch();
                tokio::spawn(async move {
                    let _held = (done, watch);
                    let served = async {
                        if let Some(entered) = doorway.enter(stream, address).await {
                            let routes = routes.layer(Extension(entered.names));
                            converse(entered.stream, routes, stop, head_timeout).await;
                        }
                    };
                    tokio::select! {
                        () = served => {}
                        () = place.gives_way() => {}
                    }
                });
            }
            Err(error) => {
                doorway.notices.say(Notice::AcceptFailed, |unsaid| {
                    tracing::warn!(unsaid, "accept failed on the HTTP side: {error}");
                });
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(done);
    // Requests in progress are answered to the end.
    let _ = tokio::time::timeout(LINGER, all_done.recv()).await;
}

/// Serves one connection to its end. May be dropped half-way: then it is closed.
async fn converse(
    stream: Box<dyn Stream>,
    routes: Router,
    stop: CancellationToken,
    head_timeout: Duration,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = pin!(connection);
    tokio::select! {
        // An error here is the peer's.
        _ = connection.as_mut() => return,
        () = tokio::time::sleep(CONNECTION_LIFE_MAX) => {}
        () = stop.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(LINGER, connection).await;
}

fn routes(view: Arc<View>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readiness::readyz))
        .route("/leader", get(leader))
        .route("/cluster", get(cluster::status))
        .route("/cluster/{what}", post(cluster::change))
        .route("/stats", get(numbers::numbers))
        .route("/contended", get(contended::list))
        .route("/sessions", get(sessions::list))
        .route("/locks", get(locks::list))
        .route("/locks/", get(locks::one))
        .route("/locks/{*key}", get(locks::one))
        .route("/history", get(history::history))
        .route("/force-release", post(force::force))
        .merge(page::routes())
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_that_way)
        .layer(middleware::from_fn_with_state(view.clone(), admit))
        .layer(middleware::map_response(page::harden))
        .with_state(view)
}

/// Answers one request without a connection, for `fuzz-tests`.
pub(crate) async fn answer_alone(shared: Arc<Shared>, request: Request) -> Response {
    let view = Arc::new(View {
        current: shared.into(),
        oldest: Mutex::default(),
        reading: tokio::sync::Mutex::default(),
        is_local: true,
    });
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let routes = routes(view).layer(Extension(Sender(nowhere)));
    let routes = TowerToHyperService::new(routes);
    let Ok(response) = hyper::service::Service::call(&routes, request).await;
    response
}

/// Finds out what the sender of a request may do, and leaves that [`Entitlement`] among the
/// request's extensions. Looking needs the role *read*; other methods ask for what they need
/// themselves. The probes and the files of the page are open to every peer.
async fn admit(State(view): State<Arc<View>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_probe = matches!(path, "/healthz" | "/readyz" | "/leader");
    let is_page = page::is_file(path) || path == "/" && page::is_wanted(&request);
    if is_probe || is_page {
        return next.run(request).await;
    }
    let rights = view.shared().rights.clone();
    // Where no token is asked for, one that is shown proves nothing.
    let shown = request.headers().get(header::AUTHORIZATION);
    let shown = shown.filter(|_| rights.is_required());
    let is_look = matches!(*request.method(), Method::GET | Method::HEAD);
    // A browser shows its certificate with requests that pages of others have it send, so a
    // certificate is good for looking only.
    let names = request.extensions().get::<CertificateNames>();
    let names = names.filter(|names| is_look && !names.0.is_empty());
    let by_certificate = names.and_then(|names| rights.of_certificate(&names.0));
    let entitlement = match shown.and_then(bearer_token) {
        // A token that is not known is refused, though none might be needed.
        Some(token) => rights.of_token(token),
        None if by_certificate.is_some() => by_certificate,
        None if view.is_local => {
            let reader = rights.of_local_reader();
            if reader.has(Role::Read) && !sender::may_be_local(request.headers()) {
                return refuse_strange_host(&view, &request);
            }
            Some(reader.clone())
        }
        None => Some(rights.of_stranger().clone()),
    };
    let is_named = (entitlement.as_ref()).is_some_and(|one| !one.name().is_empty());
    match entitlement {
        Some(entitlement) if entitlement.has(Role::Read) || is_named && !is_look => {
            let sent = Sent::of(&request);
            request.extensions_mut().insert(entitlement);
            request.extensions_mut().insert(sent);
            next.run(request).await
        }
        Some(entitlement) if is_named => {
            let sent = Sent::of(&request);
            forbid(&view, &entitlement, Role::Read, &sent)
        }
        _ => {
            if shown.is_some() {
                Sent::of(&request).refused(&view.shared(), None, "a wrong token");
            }
            let sentence = "this needs a token: send Authorization: Bearer and one that auth_token_file or auth_file knows";
            let mut response = refuse(StatusCode::UNAUTHORIZED, sentence);
            let challenge = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
            response
        }
    }
}

/// The answer to a request without a token that a page of another site may have sent.
fn refuse_strange_host(view: &View, request: &Request) -> Response {
    let sentence = "without a token this must be asked of localhost or of a loopback address, by that name: another name may be that of a web site";
    Sent::of(request).refused(&view.shared(), None, sentence);
    refuse(StatusCode::FORBIDDEN, sentence)
}

/// The answer to a sender that may not do this. Counts it.
fn forbid(view: &View, entitlement: &Entitlement, needs: Role, sent: &Sent) -> Response {
    let (name, role) = (entitlement.name(), needs.name());
    let sentence = match entitlement.has(needs) {
        true => format!(
            "{name:?} has the role {role}, but not for this: its prefixes do not reach so far"
        ),
        false => format!("{name:?} does not have the role {role}"),
    };
    let name = Some(name.clone()).filter(|name| !name.is_empty());
    sent.refused(&view.shared(), name, &sentence);
    refuse(StatusCode::FORBIDDEN, &sentence)
}

fn bearer_token(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

async fn index(request: Request) -> Response {
    if page::is_wanted(&request) {
        return page::go_to_page().await;
    }
    let text = "\
fencepost: a lock server. This is its side for operators.

/ui/                            all of this for people, in a browser
/metrics                        for Prometheus; ?shards adds the keys of each shard
/healthz                        200 as long as the process works
/readyz                         200 if clients should come, else 503 and why
/readyz?granting                200 if new locks are granted, else 503 and until when
/leader                         200 on the node of a cluster that serves clients, else 503
/cluster                        how this node of a cluster stands
/cluster/transfer?to=           POST: another node leads; also add?node=&peer= and remove?node=
/stats                          the numbers as JSON
/contended                      the keys that most acquires wait for or are refused for
/sessions?name=&limit=&cursor=  who is connected, in pages
/locks?prefix=&limit=&cursor=   who holds and waits for what, in pages
/locks/{key}                    one lock; percent-encode what a path cannot carry
/history?key=                   what happened to one key, from the audit log
/force-release?key=&fence=      POST: takes a lock away from its holder
";
    answer(StatusCode::OK, "text/plain; charset=utf-8", text)
}

async fn healthz() -> Response {
    answer(StatusCode::OK, "text/plain; charset=utf-8", "ok\n")
}

/// For proxies that send clients to the node that serves them.
async fn leader(State(view): State<Arc<View>>) -> Response {
    let shared = view.shared();
    let text = "text/plain; charset=utf-8";
    match &shared.cluster {
        None => answer(StatusCode::OK, text, "a server by itself\n"),
        Some(cluster) if cluster.leads && !shared.stop.is_cancelled() => {
            match cluster.node.leads_majority() {
                true => answer(StatusCode::OK, text, "this node leads\n"),
                false => {
                    let sentence = "this node led, and hears from no majority of the nodes: another one may lead by now. \
                                    If none does, start those that are down";
                    refuse(StatusCode::SERVICE_UNAVAILABLE, sentence)
                }
            }
        }
        Some(cluster) => refuse(StatusCode::SERVICE_UNAVAILABLE, &cluster.not_leader()),
    }
}

/// `?shards` asks for a series for each shard as well.
async fn metrics(State(view): State<Arc<View>>, request: Request) -> Response {
    let Some(by_shard) = parameters::flag(request.uri().query(), "shards") else {
        let sentence = "there is one parameter, shards: keys for each shard as well";
        return refuse(StatusCode::BAD_REQUEST, sentence);
    };
    let shared = &view.shared();
    let now = shared.clock.now();
    let oldest_ms = view.oldest.lock().look(&shared.engine, now);
    let accepts = request.headers().get_all(header::ACCEPT);
    let accepts = accepts.iter().filter_map(|value| value.to_str().ok());
    let format = Format::wanted_by(accepts);
    let page = exposition::page(shared, oldest_ms, by_shard, format);
    let mut response = answer(StatusCode::OK, format.content_type(), page);
    let vary = HeaderValue::from_static("Accept");
    response.headers_mut().insert(header::VARY, vary);
    response
}

async fn nothing_here(request: Request) -> Response {
    let sentence = format!(
        "there is nothing at {}; / lists what there is",
        request.uri().path()
    );
    refuse(StatusCode::NOT_FOUND, &sentence)
}

async fn not_that_way() -> Response {
    refuse(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not know that method: all are read only, but POST /force-release and POST /cluster/{add,remove,transfer}",
    )
}

/// An error, as a sentence in JSON.
fn refuse(status: StatusCode, sentence: &str) -> Response {
    #[derive(Serialize)]
    struct Refusal<'a> {
        error: &'a str,
    }
    json(status, &Refusal { error: sentence })
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let mut bytes = serde_json::to_vec(value).expect("strings and numbers, written to memory");
    // So that a terminal shows it on a line of its own.
    bytes.push(b'\n');
    answer(status, "application/json", bytes)
}

fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    // The answer changes all the time.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
