//! The HTTP side: metrics, health, and a look at the locks. Read only.
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
//! | `/`                | the paths                                     | yes   |
//! | `/metrics`         | for Prometheus: `exposition.rs`               | yes   |
//! | `/healthz`         | 200 while the process works                   | no    |
//! | `/readyz`          | 200 if clients should come, else 503 and why  | no    |
//! | `/readyz?granting` | 200 if new locks are granted                  | no    |
//! | `/locks`           | locks by prefix, in pages: `http/locks.rs`    | yes   |
//! | `/locks/{key}`     | one lock                                      | yes   |
//!
//! If tokens are configured and other machines can reach the address, everything but the probes
//! needs `Authorization: Bearer` and one of the tokens.

mod locks;
mod parameters;

pub(crate) use parameters::{path_bytes, prefix_of};

use crate::conn::places::Line;
use crate::core::shared::Shared;
use crate::observe::exposition::{self, Format};
use crate::observe::notices::Notice;
use crate::observe::oldest::Oldest;
use crate::system::standby::Standby;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tokio::net::{TcpListener, TcpStream};
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

/// What every request can see.
pub(crate) struct View {
    pub(crate) shared: Arc<Shared>,
    oldest: Mutex<Oldest>,
    needs_token: bool,
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
        shared: Arc<Shared>,
    ) -> Http {
        let view = Arc::new(View {
            needs_token: shared.tokens.is_required() && !address.ip().to_canonical().is_loopback(),
            shared,
            oldest: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let thread = standby.begin({
            let stop = stop.clone();
            move || {
                let shared = view.shared.clone();
                let _watch = shared.failure.watch();
                runtime.block_on(serve(listener, routes(view), stop, &shared));
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
    shared: &Shared,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("HTTP is not served: {error}"),
    };
    let line = Line::new(CONNECTIONS_MAX as usize);
    // How long a request head may take, and how long a connection may idle.
    let head_timeout = shared.config.frame_timeout;
    // Nothing is ever sent. The channel closes when the last connection ends.
    let (done, mut all_done) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let (routes, stop, done) = (routes.clone(), stop.clone(), done.clone());
                let (place, _) = line.enter();
                let watch = shared.failure.watch();
                tokio::spawn(async move {
                    let _held = (done, watch);
                    tokio::select! {
                        () = converse(stream, routes, stop, head_timeout) => {}
                        () = place.gives_way() => {}
                    }
                });
            }
            Err(error) => {
                shared.notices.say(Notice::AcceptFailed, |unsaid| {
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
    stream: TcpStream,
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
        .route("/readyz", get(readyz))
        .route("/locks", get(locks::list))
        .route("/locks/", get(locks::one))
        .route("/locks/{*key}", get(locks::one))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_that_way)
        .layer(middleware::from_fn_with_state(view.clone(), admit))
        .with_state(view)
}

/// Answers one request without a connection, for `fuzz-tests`.
pub(crate) async fn answer_alone(shared: Arc<Shared>, request: Request) -> Response {
    let view = Arc::new(View {
        shared,
        oldest: Mutex::default(),
        needs_token: false,
    });
    let routes = TowerToHyperService::new(routes(view));
    let Ok(response) = hyper::service::Service::call(&routes, request).await;
    response
}

/// Asks for a token where one is needed.
async fn admit(State(view): State<Arc<View>>, request: Request, next: Next) -> Response {
    let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz");
    if !view.needs_token || is_probe {
        return next.run(request).await;
    }
    let shown = request.headers().get(header::AUTHORIZATION);
    match shown.and_then(bearer_token) {
        Some(token) if view.shared.tokens.accepts(token) => next.run(request).await,
        _ => {
            let sentence = "this needs a token: send Authorization: Bearer and one of those in auth_token_file";
            let mut response = refuse(StatusCode::UNAUTHORIZED, sentence);
            let challenge = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
            response
        }
    }
}

fn bearer_token(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

async fn index() -> Response {
    let text = "\
fencepost: a lock server. This is its read-only side.

/metrics                        for Prometheus
/healthz                        200 as long as the process works
/readyz                         200 if clients should come, else 503 and why
/readyz?granting                200 if new locks are granted, else 503 and until when
/locks?prefix=&limit=&cursor=   who holds and waits for what, in pages
/locks/{key}                    one lock; percent-encode what a path cannot carry
";
    answer(StatusCode::OK, "text/plain; charset=utf-8", text)
}

async fn healthz() -> Response {
    answer(StatusCode::OK, "text/plain; charset=utf-8", "ok\n")
}

#[derive(Serialize)]
struct Readiness {
    /// Clients should come: to claim what they hold, even if nothing new is granted.
    ready: bool,
    /// New locks are granted.
    granting: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// How long until that is over, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_ms: Option<u64>,
    /// The same as a wall-clock time.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

impl Readiness {
    fn of(shared: &Shared) -> Readiness {
        let plain = Readiness {
            ready: true,
            granting: true,
            reason: None,
            remaining_ms: None,
            until: None,
        };
        if shared.stop.is_cancelled() {
            return Readiness {
                ready: false,
                granting: false,
                reason: Some("stopping"),
                ..plain
            };
        }
        if shared.recovery.is_on() {
            let left_ms = shared.recovery.remaining_ms(shared.clock.now());
            let left_ms = left_ms.unwrap_or(0);
            let until = SystemTime::now() + Duration::from_millis(left_ms);
            return Readiness {
                granting: false,
                reason: Some("recovering"),
                remaining_ms: Some(left_ms),
                until: Some(humantime::format_rfc3339_millis(until).to_string()),
                ..plain
            };
        }
        plain
    }
}

/// In the grace period the server is ready: a probe that kept clients away would keep holders from
/// claiming their locks. `?granting` asks whether new locks are granted.
async fn readyz(State(view): State<Arc<View>>, request: Request) -> Response {
    let readiness = Readiness::of(&view.shared);
    let is_yes = match request.uri().query() {
        None | Some("") => readiness.ready,
        Some("granting" | "granting=") => readiness.granting,
        Some(_) => {
            let sentence = "there is one parameter, granting: whether new locks are granted";
            return refuse(StatusCode::BAD_REQUEST, sentence);
        }
    };
    let status = match is_yes {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    json(status, &readiness)
}

async fn metrics(State(view): State<Arc<View>>, request: Request) -> Response {
    let shared = &view.shared;
    let now = shared.clock.now();
    let oldest_ms = view.oldest.lock().look(&shared.engine, now);
    let accepts = request.headers().get_all(header::ACCEPT);
    let accepts = accepts.iter().filter_map(|value| value.to_str().ok());
    let format = Format::wanted_by(accepts);
    let page = exposition::page(shared, oldest_ms, format);
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
        "this side of the server is read only: GET is all it knows",
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
