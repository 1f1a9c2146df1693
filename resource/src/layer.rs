//! The guard in front of an HTTP service: a tower layer for axum.
//!
//! What the layer does with a request that writes, in this order, and why in this order:
//!
//! 1. It reads key and fence from the head: 400 if there is no fence. To go on without would be to
//!    go on unguarded.
//! 2. It reads the whole body. A client that sends slowly, or goes away half-way, keeps no other
//!    client waiting and uses up nothing.
//! 3. It waits for the key's turn, compares (409), and records the fence: on the disk, if the guard
//!    has a log.
//! 4. It calls the inner service, as a task of its own. hyper drops the handler of a client that
//!    hangs up; a handler dropped half-way may have a write of its own still under way while the
//!    next one begins.
//! 5. When the inner service has answered, with whatever answer, the turn ends.
//!
//! The fence is recorded before the inner service is called and stays recorded whatever it answers,
//! since an error does not say that nothing was written. So under
//! [`Policy::FirstUse`](crate::Policy::FirstUse) a client that got a 500 must acquire the lock
//! again; under `AtLeast` it may repeat. What the service does after it has answered, in tasks of
//! its own or in a body that it streams, is not covered.

use crate::guard::FenceGuard;
use crate::http::{Complaint, json, refused};
use crate::limits::{BODY_TIMEOUT, LAYER_BODY_BYTES_DEFAULT};
use crate::token::fence_of;
use axum::body::{self, Body};
use axum::extract::{OriginalUri, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::timeout;
use tower_layer::Layer;
use tower_service::Service;

type KeyOf = Arc<dyn Fn(&Parts) -> Option<Vec<u8>> + Send + Sync>;

/// Puts a [`FenceGuard`] in front of a service: requests that write need the header
/// `X-Fence-Token`, and are refused with 409 if it runs backwards. The inner service finds the
/// [`Fence`](crate::Fence) in the request's extensions.
///
/// ```
/// use axum::{Extension, Router, body::Body, http::Request, routing::put};
/// use fencepost_resource::{Fence, FenceGuard, FenceLayer};
/// # use tower_service::Service;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// async fn book(Extension(fence): Extension<Fence>) -> String {
///     format!("booked under {fence}")
/// }
///
/// let guard = FenceGuard::builder().in_memory();
/// let layer = FenceLayer::new(guard);
/// let mut app: Router = Router::new().route("/seats/{seat}", put(book)).layer(layer);
///
/// let request = |fence| {
///     let put = Request::put("/seats/12a").header("X-Fence-Token", fence);
///     put.body(Body::empty()).unwrap()
/// };
/// assert_eq!(app.call(request("7")).await.unwrap().status(), 200);
/// assert_eq!(app.call(request("6")).await.unwrap().status(), 409);
/// # }
/// ```
///
/// # The key
///
/// It must be the same for all requests that write the same thing, or they go around each other's
/// fences. Unless told otherwise it is the path, percent-decoded, and requests with the methods
/// GET, HEAD, OPTIONS and TRACE are let through without a fence. [`key_of`](Self::key_of) changes
/// both.
#[derive(Clone)]
pub struct FenceLayer {
    guard: FenceGuard,
    key_of: KeyOf,
    body_bytes_max: usize,
}

impl FenceLayer {
    /// A layer over a guard. Layers over clones of one guard share its fences.
    pub fn new(guard: FenceGuard) -> Self {
        FenceLayer {
            guard,
            key_of: Arc::new(path_if_it_writes),
            body_bytes_max: LAYER_BODY_BYTES_DEFAULT,
        }
    }

    /// Which key a request writes; `None` lets it through without a fence.
    ///
    /// ```
    /// # use fencepost_resource::{FenceGuard, FenceLayer};
    /// # let guard = FenceGuard::builder().in_memory();
    /// // One lock for the whole account, whatever is written in it.
    /// let layer = FenceLayer::new(guard).key_of(|request| {
    ///     let account = request.uri.path().strip_prefix("/accounts/")?.split('/').next()?;
    ///     (request.method != "GET").then(|| account.as_bytes().to_vec())
    /// });
    /// ```
    pub fn key_of(
        mut self,
        key_of: impl Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        self.key_of = Arc::new(key_of);
        self
    }

    /// How many bytes the body of a guarded request may have; without this,
    /// [`LAYER_BODY_BYTES_DEFAULT`]. It is in memory before the inner service is called. Beyond,
    /// 413.
    pub fn body_bytes_max(mut self, body_bytes_max: usize) -> Self {
        self.body_bytes_max = body_bytes_max;
        self
    }
}

/// The key unless told otherwise. Decoded: two spellings of a path lead to the same handler, so
/// they must have one key. Of a nested router the whole path.
fn path_if_it_writes(request: &Parts) -> Option<Vec<u8>> {
    if request.method.is_safe() {
        return None;
    }
    let original = request.extensions.get::<OriginalUri>();
    let uri = original.map_or(&request.uri, |OriginalUri(uri)| uri);
    Some(percent_decode_str(uri.path()).collect())
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, inner: S) -> FenceService<S> {
        FenceService {
            inner,
            layer: self.clone(),
        }
    }
}

/// A service behind a [`FenceLayer`].
#[derive(Clone)]
pub struct FenceService<S> {
    inner: S,
    layer: FenceLayer,
}

impl<S> Service<Request> for FenceService<S>
where
    S: Service<Request> + Clone + Send + 'static,
    S::Response: IntoResponse + Send + 'static,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The one that said it was ready is the one to call; the clone takes its place.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(self.layer.clone().guard(inner, request))
    }
}

impl FenceLayer {
    async fn guard<S>(self, mut inner: S, request: Request) -> Result<Response, S::Error>
    where
        S: Service<Request> + Send + 'static,
        S::Response: IntoResponse + Send + 'static,
        S::Error: Send + 'static,
        S::Future: Send + 'static,
    {
        let (mut head, body) = request.into_parts();
        let Some(key) = (self.key_of)(&head) else {
            let answer = inner.call(Request::from_parts(head, body)).await;
            return answer.map(IntoResponse::into_response);
        };
        let fence = match fence_of(&head.headers) {
            Ok(fence) => fence,
            Err(error) => {
                return Ok(json(
                    StatusCode::BAD_REQUEST,
                    &Complaint::new(error.to_string()),
                ));
            }
        };
        let body_bytes_max = self.body_bytes_max;
        let body = match timeout(BODY_TIMEOUT, body::to_bytes(body, body_bytes_max)).await {
            Ok(Ok(body)) => Body::from(body),
            // Either the body was longer, or the client is gone and hears nothing of this.
            Ok(Err(_)) => {
                let complaint = format!("a body has at most {body_bytes_max} bytes");
                return Ok(json(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    &Complaint::new(complaint),
                ));
            }
            Err(_) => {
                let complaint = format!("the body did not arrive within {BODY_TIMEOUT:?}");
                return Ok(json(
                    StatusCode::REQUEST_TIMEOUT,
                    &Complaint::new(complaint),
                ));
            }
        };
        head.extensions.insert(fence);
        let request = Request::from_parts(head, body);
        match self
            .guard
            .write(key, fence, move || inner.call(request))
            .await
        {
            Ok(answer) => answer.map(IntoResponse::into_response),
            Err(refusal) => Ok(refused(&refusal)),
        }
    }
}
