//! Losing a lock.

use crate::support::*;
use fencepost::{Error, ForceRelease, LockError, Loss, Release};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_forced_release_is_told_at_once() {
    let server = start_server();
    let operator = connect(&server).await;
    let client = connect(&server).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let lost = guard.lost();
    let wrong = fencepost::Fence::new(guard.fence().get() + 1).unwrap();
    let missed = operator.force_release("k", wrong).await.unwrap();
    assert!(matches!(missed, ForceRelease::NotHeld(_)));
    assert!(guard.is_valid());
    let taken = operator.force_release("k", guard.fence()).await.unwrap();
    assert_eq!(taken, ForceRelease::Released);
    assert_eq!(in_time(lost).await, Loss::Forced);
    assert!(!guard.is_valid());
    assert!(guard.valid_until() <= Instant::now());
    assert_eq!(guard.renew().await, Err(Error::Lost(Loss::Forced)));

    // The next holder is not disturbed by what is left of the last one.
    let next = operator.lock("k").acquire().await.unwrap();
    assert_eq!(
        guard.release().await,
        Ok(Release::AlreadyLost(Loss::Forced))
    );
    assert_eq!(
        client.query("k").await.unwrap().holders[0].fence,
        next.fence()
    );
}

#[tokio::test]
async fn an_unrenewed_lock_is_given_up_before_the_server_takes_it() {
    let server = start_server();
    let client = connect(&server).await;
    let other = connect(&server).await;
    let guard = client
        .lock("k")
        .ttl(Duration::from_millis(300))
        .no_renew()
        .acquire()
        .await
        .unwrap();
    let fence = guard.fence();
    let waiting = tokio::spawn(async move { other.lock("k").acquire().await });
    // By its own clock, unless this machine was so busy that the server's word was there first.
    let loss = in_time(guard.lost()).await;
    assert!(
        matches!(loss, Loss::DeadlinePassed | Loss::Expired),
        "{loss}"
    );
    let next = in_time(waiting).await.unwrap().unwrap();
    assert!(next.fence() > fence);
    // Late, and harmless to the next holder.
    let release = guard.release().await.unwrap();
    assert_eq!(release, Release::AlreadyLost(loss));
    assert!(next.is_valid());
    assert_eq!(next.release().await, Ok(Release::Released));
}

#[tokio::test]
async fn work_is_dropped_when_its_lock_is_lost() {
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let server = start_server();
    let operator = connect(&server).await;
    let client = connect(&server).await;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&is_stopped));
    let work = tokio::spawn(async move {
        client
            .with_lock("k", |_| async move {
                let _flag = flag;
                std::future::pending::<()>().await;
            })
            .await
    });
    eventually_key(&operator, "k", "a holder", |state| state.holder_count == 1).await;
    let fence = operator.query("k").await.unwrap().holders[0].fence;
    operator.force_release("k", fence).await.unwrap();
    assert_eq!(
        in_time(work).await.unwrap(),
        Err(LockError::Lost(Loss::Forced))
    );
    assert!(is_stopped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn without_a_server_the_client_fails_closed() {
    let server = start_server();
    let client = builder(server.local_addr())
        .request_timeout(Duration::from_secs(1))
        .connect()
        .await
        .unwrap();
    let guard = client
        .lock("k")
        .ttl(Duration::from_secs(2))
        .acquire()
        .await
        .unwrap();
    let lost = guard.lost();
    server.shutdown();
    assert_eq!(in_time(lost).await, Loss::DeadlinePassed);
    assert!(!guard.is_valid());
    let answer = client.lock("other").try_acquire().await;
    assert!(
        matches!(answer, Err(Error::Disconnected { .. })),
        "{answer:?}"
    );
    let answer = guard.release().await;
    assert!(
        matches!(answer, Err(Error::Disconnected { .. })),
        "{answer:?}"
    );
    assert!(!client.is_connected());
}

#[tokio::test]
async fn a_lock_ends_with_its_session_whatever_its_ttl() {
    let server = start_server();
    let proxy = Proxy::start(server.local_addr()).await;
    let client = builder(proxy.address)
        .session_ttl(Duration::from_millis(1500))
        .connect()
        .await
        .unwrap();
    let guard = client.lock("k").ttl(LONG).acquire().await.unwrap();
    // Nothing that keeps the session alive is heard of any more.
    proxy.limit_connections(0);
    proxy.cut();
    assert_eq!(in_time(guard.lost()).await, Loss::SessionDeadlinePassed);
    let observer = connect(&server).await;
    eventually_free(&observer, "k").await;
}
