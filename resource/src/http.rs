//! The service: a key-value store over HTTP that accepts a write only with a fence.
//!
//! | request                          | answer                                                 |
//! |----------------------------------|--------------------------------------------------------|
//! | `PUT /r/{key}` + `X-Fence-Token` | 200 `{"key":..,"max_fence":N}`                         |
//! |                                  | 409 `{"error":"stale fencing token","seen":N,"got":M}` |
//! |                                  | 400 no fence, 413 value too long, 414 key too long     |
//! |                                  | 503 too many writes or broken log, 507 full            |
//! | `GET /r/{key}`                   | 200 `{"key":..,"value":..,"max_fence":N}`, 404         |
//! | `GET /metrics`                   | for Prometheus                                         |
//! | `GET /healthz`                   | 200                                                    |
//!
//! Where fences are not enforced, a write needs one all the same: without it a stale write could
//! not be told from a good one.
//!
//! A key is the rest of the path, percent-decoded, slashes included. Bytes that are not UTF-8 stand
//! in JSON as text with replacement characters, and beside it in hex (`value_hex`), which is then
//! what counts.
//!
//! Reading a value, changing it and putting it back is two requests, and nothing holds the key
//! between them; see "read under the guard" at [`FenceGuard`](crate::FenceGuard).

use crate::limits::{BODY_TIMEOUT, KEY_BYTES_MAX};
use crate::metrics::{self, Metrics};
use crate::refusal::Refusal;
use crate::store::Store;
use crate::token::fence_of;
use axum::Router;
use axum::body::{self, Body};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::{any, get};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use std::sync::Arc;
use tokio::time::timeout;

const PREFIX: &str = "/r/";

struct Service {
    store: Store,
    metrics: Metrics,
    value_bytes_max: usize,
}

/// The routes over a store. `value_bytes_max` bounds the body of a request.
pub fn routes(store: Store, value_bytes_max: usize) -> Router {
    let service = Service {
        store,
        metrics: Metrics::default(),
        value_bytes_max,
    };
    Router::new()
        .route("/r/", any(resource))
        .route("/r/{*key}", any(resource))
        .route("/metrics", get(page))
        .route("/healthz", get(async || "ok\n"))
        .fallback(async || {
            json(
                StatusCode::NOT_FOUND,
                &Complaint::new("there is nothing here; try /r/{key} or /metrics"),
            )
        })
        .with_state(Arc::new(service))
}

async fn resource(State(service): State<Arc<Service>>, request: Request) -> Response {
    // From the path as it was sent: keys are bytes, and the router's own decoding wants UTF-8.
    let path = request.uri().path();
    let encoded = path.strip_prefix(PREFIX).expect("the route matched");
    let key: Vec<u8> = percent_decode_str(encoded).collect();
    match *request.method() {
        Method::GET | Method::HEAD => read(&service, &key),
        Method::PUT => write(&service, &key, request).await,
        _ => {
            let complaint = Complaint::new("GET and PUT are all there is");
            let mut response = json(StatusCode::METHOD_NOT_ALLOWED, &complaint);
            let allowed = HeaderValue::from_static("GET, HEAD, PUT");
            response.headers_mut().insert(header::ALLOW, allowed);
            response
        }
    }
}

fn read(service: &Service, key: &[u8]) -> Response {
    let Some((value, fence)) = service.store.get(key) else {
        return json(StatusCode::NOT_FOUND, &Complaint::new("no such key"));
    };
    let state = KeyState {
        key: String::from_utf8_lossy(key).into_owned(),
        key_hex: hex_unless_text(key),
        value: Some(String::from_utf8_lossy(&value).into_owned()),
        value_hex: hex_unless_text(&value),
        max_fence: fence.get(),
    };
    json(StatusCode::OK, &state)
}

async fn write(service: &Service, key: &[u8], request: Request) -> Response {
    if key.len() > KEY_BYTES_MAX {
        return refused(&Refusal::KeyTooLong {
            key_bytes: key.len(),
        });
    }
    let fence = match fence_of(request.headers()) {
        Ok(fence) => fence,
        Err(error) => {
            service.metrics.count_bad_token();
            return json(StatusCode::BAD_REQUEST, &Complaint::new(error.to_string()));
        }
    };
    // The whole value first, and only then the key's turn: a slow client keeps only itself waiting.
    let value_bytes_max = service.value_bytes_max;
    let value = match timeout(
        BODY_TIMEOUT,
        body::to_bytes(request.into_body(), value_bytes_max),
    )
    .await
    {
        Ok(Ok(value)) => value,
        // Either the body was longer, or the client is gone and hears nothing of this.
        Ok(Err(_)) => {
            let complaint = format!("a value has at most {value_bytes_max} bytes");
            return json(StatusCode::PAYLOAD_TOO_LARGE, &Complaint::new(complaint));
        }
        Err(_) => {
            let complaint = format!("the value did not arrive within {BODY_TIMEOUT:?}");
            return json(StatusCode::REQUEST_TIMEOUT, &Complaint::new(complaint));
        }
    };
    let outcome = service.store.put(key, fence, &value).await;
    service.metrics.count(&outcome);
    if let Err(refusal) = outcome {
        return refused(&refusal);
    }
    let state = KeyState {
        key: String::from_utf8_lossy(key).into_owned(),
        key_hex: hex_unless_text(key),
        value: None,
        value_hex: None,
        max_fence: service.store.get(key).map_or(fence, |(_, seen)| seen).get(),
    };
    json(StatusCode::OK, &state)
}

async fn page(State(service): State<Arc<Service>>) -> Response {
    let page = service.metrics.page(&service.store);
    response(StatusCode::OK, metrics::CONTENT_TYPE, page.into())
}

/// The answer to a write that was refused; the layer gives the same.
pub(crate) fn refused(refusal: &Refusal) -> Response {
    let status = match refusal {
        Refusal::Stale(stale) => {
            let conflict = Conflict {
                error: "stale fencing token",
                seen: stale.seen.get(),
                got: stale.got.get(),
                is_floor: stale.is_floor,
            };
            return json(StatusCode::CONFLICT, &conflict);
        }
        Refusal::KeyTooLong { .. } => StatusCode::URI_TOO_LONG,
        Refusal::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
        Refusal::Busy { .. } | Refusal::Broken(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    json(status, &Complaint::new(refusal.to_string()))
}

#[derive(Serialize)]
struct Conflict {
    error: &'static str,
    seen: u64,
    got: u64,
    /// Only said where it is so, which is never the case in the service itself: a store forgets
    /// nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_floor: bool,
}

#[derive(Serialize)]
pub(crate) struct Complaint {
    error: String,
}

impl Complaint {
    pub(crate) fn new(error: impl Into<String>) -> Self {
        Complaint {
            error: error.into(),
        }
    }
}

#[derive(Serialize)]
struct KeyState {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
    max_fence: u64,
}

fn hex_unless_text(bytes: &[u8]) -> Option<String> {
    let is_text = std::str::from_utf8(bytes).is_ok();
    (!is_text).then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut text = serde_json::to_string(body).expect("strings and numbers can be written");
    text.push('\n');
    response(status, "application/json", text.into())
}

fn response(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}
