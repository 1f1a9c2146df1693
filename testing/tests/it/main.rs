//! What a test gets from it.

use fencepost::{Acquisition, Error, LockError, Loss};
use fencepost_testing::TestServer;
use std::time::Duration;

#[tokio::test]
async fn two_servers_know_nothing_of_each_other() {
    let (one, other) = (TestServer::start(), TestServer::start());
    assert_ne!(one.address(), other.address());
    let (ours, theirs) = (one.client().await, other.client().await);
    let _guard = ours.lock("k").acquire().await.unwrap();
    assert!(
        theirs
            .lock("k")
            .try_acquire()
            .await
            .unwrap()
            .acquired()
            .is_some()
    );
    let second = one.client().await.lock("k").try_acquire().await.unwrap();
    assert!(matches!(second, Acquisition::Held(_)));
}

#[tokio::test]
async fn a_lock_is_taken_away_from_all_its_holders() {
    let locks = TestServer::start();
    assert!(!locks.take_away("k").await, "it is free");
    let (one, other) = (locks.client().await, locks.client().await);
    let first = one.lock("k").shared().acquire().await.unwrap();
    let second = other.lock("k").shared().acquire().await.unwrap();
    assert!(locks.take_away("k").await);
    assert_eq!(first.lost().await, Loss::Forced);
    assert_eq!(second.lost().await, Loss::Forced);
}

#[tokio::test]
async fn code_without_its_server_is_told() {
    let locks = TestServer::start();
    let client = locks.client().await;
    locks.stop();
    let request = client.lock("k").wait(Duration::from_millis(10));
    let error = request.acquire().await.unwrap_err();
    assert!(
        matches!(error, LockError::Failed(Error::Disconnected { .. })),
        "{error}"
    );
}

#[test]
fn settings_and_threads_without_async() {
    let locks = TestServer::start_with(|server| {
        server.with(|config| config.lease_max = Duration::from_secs(60))
    });
    let client = locks.blocking_client();
    let request = client.lock("k").ttl(Duration::from_secs(61));
    assert!(client.acquire(request).is_err(), "longer than --lease-max");
    let request = client.lock("k").ttl(Duration::from_secs(59));
    client.acquire(request).unwrap().release().unwrap();
}
