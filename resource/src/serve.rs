//! Connections of the service: how many, for how long, and how they end. axum's own server has no
//! such bounds, so its routes are served on hyper's connections directly.

use crate::limits::{HEAD_BYTES_MAX, HEAD_TIMEOUT, HEADERS_MAX, LINGER};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How long to wait after an accept failed for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop` is cancelled, and then until all answers in progress are given, [`LINGER`]
/// at the longest.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    connections_max: u32,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(connections_max as usize));
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place.expect("the semaphore is never closed"),
            () = stop.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let (routes, stop) = (routes.clone(), stop.clone());
                tokio::spawn(async move {
                    converse(stream, routes, stop).await;
                    drop(place);
                });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    // A connection that is still being answered gives its place back when that is done.
    let _ = timeout(LINGER, places.acquire_many(connections_max)).await;
}

async fn converse(stream: TcpStream, routes: Router, stop: CancellationToken) {
    // Answers are small, and a client waits for each. If this fails, they are late and not wrong.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = pin!(connection);
    tokio::select! {
        // How it ended is the peer's business.
        _ = connection.as_mut() => return,
        () = stop.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(LINGER, connection).await;
}
