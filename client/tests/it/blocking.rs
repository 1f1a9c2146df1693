//! The client for code that is not async.

use crate::support::*;
use fencepost::blocking::{Acquisition, Client};
use fencepost::{ConnectError, Error, LockError, Loss, Release};
use std::time::{Duration, Instant};

fn connect_blocking(server: &server::Server) -> Client {
    builder(server.local_addr())
        .connect_blocking()
        .expect("the server welcomes a client")
}

#[test]
fn a_lock_is_taken_renewed_and_released_without_a_runtime() {
    let server = start_server();
    let client = connect_blocking(&server);
    let ttl = Duration::from_secs(3);
    let guard = client.acquire(client.lock("k").ttl(ttl)).unwrap();
    assert!(guard.is_valid());
    let first = guard.valid_until();
    // The calling thread is busy or asleep; the client's own thread renews meanwhile.
    while guard.valid_until() == first {
        assert!(guard.wait_lost(Duration::from_millis(50)).is_none());
    }
    assert!(guard.renew().unwrap() > Instant::now());
    assert_eq!(client.query("k").unwrap().holders[0].fence, guard.fence());
    assert_eq!(guard.release(), Ok(Release::Released));
    assert_eq!(client.query("k").unwrap().holder_count, 0);
}

#[test]
fn contention_and_work_and_the_end() {
    let server = start_server();
    let client = connect_blocking(&server);
    let fence = client.with_lock("k", |guard| guard.fence()).unwrap();
    let guard = client.acquire(client.lock("k")).unwrap();
    assert!(guard.fence() > fence);
    let refused = client.try_acquire(client.lock("k")).unwrap();
    assert!(matches!(refused, Acquisition::Held(_)));
    let refused = client.acquire(client.lock("k").wait(Duration::from_millis(10)));
    assert!(matches!(refused, Err(LockError::NotAcquired(_))));
    assert_eq!(client.list("").unwrap().len(), 1);
    assert_eq!(client.sessions().unwrap().len(), 1);
    assert!(!client.stats().unwrap().is_empty());
    client.force_release("k", guard.fence()).unwrap();
    assert_eq!(guard.wait_lost(PATIENCE), Some(Loss::Forced));
    let other = client.clone();
    client.close().unwrap();
    assert_eq!(other.ping(), Err(Error::Closed));
    assert_eq!(guard.release(), Ok(Release::AlreadyLost(Loss::Forced)));
}

#[test]
fn a_dropped_client_says_goodbye() {
    let server = start_server();
    let observer = connect_blocking(&server);
    let client = connect_blocking(&server);
    let guard = client.acquire(client.lock("k")).unwrap();
    drop(client);
    assert!(guard.is_valid(), "a guard keeps its client going");
    drop(guard);
    let deadline = Instant::now() + PATIENCE;
    while observer.sessions().unwrap().len() > 1 {
        assert!(Instant::now() < deadline, "the session did not end");
    }
    assert_eq!(observer.query("k").unwrap().holder_count, 0);
}

#[test]
fn a_connection_that_cannot_be_had_is_told() {
    let error = fencepost::Client::builder()
        .connect_blocking()
        .map(drop)
        .unwrap_err();
    assert_eq!(error, ConnectError::NoAddress);
}

/// A panic of ours says what to do; tokio's, which came before, did not.
#[test]
fn a_call_inside_a_runtime_says_where_it_belongs() {
    let server = start_server();
    let client = connect_blocking(&server);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let inside = runtime.spawn({
        let client = client.clone();
        async move { drop(client.try_acquire(client.lock("k"))) }
    });
    let panic = runtime.block_on(inside).unwrap_err().into_panic();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(
        text.contains("fencepost::blocking was called inside async code"),
        "{text}"
    );
    assert!(text.contains("spawn_blocking"), "{text}");
    // There it may block.
    let beside = runtime.spawn_blocking(move || client.try_acquire(client.lock("k")).unwrap());
    let acquired = runtime.block_on(beside).unwrap();
    assert!(matches!(acquired, Acquisition::Acquired(_)));
}
