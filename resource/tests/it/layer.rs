//! The layer in front of a service that knows nothing of fences, over real sockets.

use crate::support::{Running, get, in_time, put, send, until};
use axum::Router;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::routing::{get as on_get, put as on_put};
use resource::{Fence, FenceGuard, FenceLayer, Policy, Seen};
use serde_json::json;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// A service that knows nothing of guards, except that it likes to know the fence.
#[derive(Default)]
struct Seats {
    booked: Mutex<Vec<(String, u64, String)>>,
    has_begun: Notify,
    may_go_on: Notify,
}

async fn book(
    State(seats): State<Arc<Seats>>,
    Path(seat): Path<String>,
    Extension(fence): Extension<Fence>,
    name: String,
) -> Result<String, StatusCode> {
    if name == "fails" {
        return Err(StatusCode::INTERNAL_SERVER_ERROR);
    }
    if name == "slow" {
        seats.has_begun.notify_one();
        seats.may_go_on.notified().await;
    }
    let answer = format!("{seat} for {name}");
    seats.booked.lock().unwrap().push((seat, fence.get(), name));
    Ok(answer)
}

async fn count(State(seats): State<Arc<Seats>>) -> String {
    seats.booked.lock().unwrap().len().to_string()
}

fn routes(seats: &Arc<Seats>) -> Router {
    Router::new()
        .route("/seats/{seat}", on_put(book).post(book))
        .route("/count", on_get(count))
        .with_state(Arc::clone(seats))
}

#[tokio::test]
async fn one_line_guards_a_service() {
    let seats = Arc::new(Seats::default());
    let guard = FenceGuard::builder().in_memory();
    let service = Running::start(routes(&seats).layer(FenceLayer::new(guard.clone()))).await;
    let at = service.address;

    assert_eq!(put(at, "/seats/1a", 5, b"Ann").await.body, "1a for Ann");
    let reply = put(at, "/seats/1a", 4, b"Bob").await;
    assert_eq!(reply.status, 409);
    assert_eq!(
        reply.json(),
        json!({"error": "stale fencing token", "seen": 5, "got": 4})
    );
    assert_eq!(
        put(at, "/seats/2b", 4, b"Bob").await.status,
        200,
        "another key"
    );
    assert_eq!(send(at, "PUT", "/seats/1a", "", b"Cid").await.status, 400);
    assert_eq!(
        send(at, "POST", "/seats/1a", "X-Fence-Token: 5\r\n", b"Cid")
            .await
            .status,
        409
    );
    assert_eq!(
        put(at, "/seats/%31a", 5, b"Cid").await.status,
        409,
        "the same seat in other letters"
    );
    assert_eq!(get(at, "/count").await.body, "2", "reading needs no fence");
    assert_eq!(guard.seen("/seats/1a"), Seen::Fence(Fence::new(5).unwrap()));
}

#[tokio::test]
async fn a_nested_router_has_the_whole_path_as_its_key() {
    let seats = Arc::new(Seats::default());
    let guard = FenceGuard::builder().in_memory();
    let layer = FenceLayer::new(guard.clone());
    let nested = Router::new()
        .nest("/monday", routes(&seats).layer(layer.clone()))
        .nest("/tuesday", routes(&seats).layer(layer));
    let service = Running::start(nested).await;
    assert_eq!(
        put(service.address, "/monday/seats/1", 1, b"Ann")
            .await
            .status,
        200
    );
    assert_eq!(
        put(service.address, "/tuesday/seats/1", 1, b"Ann")
            .await
            .status,
        200
    );
    assert_eq!(
        put(service.address, "/monday/seats/1", 1, b"Bob")
            .await
            .status,
        409
    );
    assert_eq!(
        guard.seen("/tuesday/seats/1"),
        Seen::Fence(Fence::new(1).unwrap())
    );
}

#[tokio::test]
async fn a_failed_write_has_used_its_fence_under_first_use_only() {
    for (policy, again) in [(Policy::FirstUse, 409), (Policy::AtLeast, 200)] {
        let seats = Arc::new(Seats::default());
        let guard = FenceGuard::builder().policy(policy).in_memory();
        let service = Running::start(routes(&seats).layer(FenceLayer::new(guard))).await;
        assert_eq!(
            put(service.address, "/seats/1", 3, b"fails").await.status,
            500
        );
        assert_eq!(
            put(service.address, "/seats/1", 2, b"late").await.status,
            409
        );
        assert_eq!(
            put(service.address, "/seats/1", 3, b"Ann").await.status,
            again
        );
    }
}

#[tokio::test]
async fn a_body_that_is_too_long_uses_no_fence() {
    let seats = Arc::new(Seats::default());
    let layer = FenceLayer::new(FenceGuard::builder().in_memory()).body_bytes_max(3);
    let service = Running::start(routes(&seats).layer(layer)).await;
    let reply = put(service.address, "/seats/1", 1, b"Anna").await;
    assert_eq!(
        (reply.status, reply.body.contains("at most 3 bytes")),
        (413, true),
        "{reply:?}"
    );
    assert_eq!(
        put(service.address, "/seats/1", 1, b"Ann").await.status,
        200
    );
}

#[tokio::test]
async fn a_forgotten_key_says_that_it_is_its_floor_that_refuses() {
    let seats = Arc::new(Seats::default());
    let guard = FenceGuard::builder().keys_max(1).in_memory();
    let service = Running::start(routes(&seats).layer(FenceLayer::new(guard))).await;
    let at = service.address;
    assert_eq!(put(at, "/seats/1", 7, b"Ann").await.status, 200);
    assert_eq!(put(at, "/seats/2", 1, b"Bob").await.status, 200);
    let refused = json!({"error": "stale fencing token", "seen": 7, "got": 7, "is_floor": true});
    assert_eq!(put(at, "/seats/1", 7, b"Ann").await.json(), refused);
}

#[tokio::test]
async fn keys_can_be_wider_than_paths() {
    let seats = Arc::new(Seats::default());
    let layer = FenceLayer::new(FenceGuard::builder().in_memory()).key_of(|head| {
        let writes = head.uri.path().starts_with("/seats/");
        writes.then(|| b"the whole house".to_vec())
    });
    let service = Running::start(routes(&seats).layer(layer)).await;
    assert_eq!(
        put(service.address, "/seats/1", 2, b"Ann").await.status,
        200
    );
    assert_eq!(
        put(service.address, "/seats/2", 1, b"Bob").await.status,
        409
    );
}

/// hyper drops the handler of a client that hangs up. The write behind it must be over before the
/// next one begins all the same: what it set in motion cannot be called back.
#[tokio::test]
async fn a_client_that_hangs_up_does_not_let_the_next_write_overtake_its_own() {
    let seats = Arc::new(Seats::default());
    let guard = FenceGuard::builder().in_memory();
    let service = Running::start(routes(&seats).layer(FenceLayer::new(guard.clone()))).await;
    let at = service.address;

    let mut first = TcpStream::connect(at).await.unwrap();
    let request =
        b"PUT /seats/1 HTTP/1.1\r\nhost: test\r\nx-fence-token: 1\r\ncontent-length: 4\r\n\r\nslow";
    first.write_all(request).await.unwrap();
    in_time(seats.has_begun.notified()).await;
    drop(first);

    let second = tokio::spawn(async move { put(at, "/seats/1", 2, b"Bob").await });
    until(|| guard.writes() == 2).await;
    assert_eq!(*seats.booked.lock().unwrap(), []);
    seats.may_go_on.notify_one();
    assert_eq!(in_time(second).await.unwrap().status, 200);
    let fences: Vec<u64> = seats
        .booked
        .lock()
        .unwrap()
        .iter()
        .map(|(_, fence, _)| *fence)
        .collect();
    assert_eq!(fences, [1, 2]);
}
