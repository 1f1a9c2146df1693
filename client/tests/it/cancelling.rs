//! Going away while a lock is being acquired.

use crate::support::*;
use fencepost::{Error, LockError};
use std::time::Duration;

#[tokio::test]
async fn a_dropped_pending_acquire_leaves_no_waiter_behind() {
    let server = start_server();
    let client = connect(&server).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.lock("k").acquire().await }
    });
    eventually_key(&client, "k", "a waiter", |state| state.queue_length == 1).await;
    waiting.abort();
    eventually_key(&client, "k", "an empty queue", |state| {
        state.queue_length == 0
    })
    .await;
    drop(guard);
    eventually_free(&client, "k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_crosses_with_its_cancellation_is_released() {
    let server = start_server();
    let client = connect(&server).await;
    for round in 0..300 {
        let guard = client.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { client.lock("k").acquire().await.map(drop) }
        });
        if round % 2 == 0 {
            eventually_key(&client, "k", "a waiter", |state| state.queue_length == 1).await;
        }
        drop(guard);
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        // With a lease of ten minutes, only a release frees it.
        eventually_key(&client, "k", "a free key", |state| {
            state.holder_count == 0 && state.queue_length == 0
        })
        .await;
    }
}

#[tokio::test]
async fn an_acquire_dropped_after_its_first_poll_leaves_nothing_behind() {
    let server = start_server();
    let client = connect(&server).await;
    for _ in 0..100 {
        let mut acquire = Box::pin(client.lock("k").try_acquire());
        tokio::select! {
            biased;
            _ = &mut acquire => panic!("an answer cannot be there at the first poll"),
            () = std::future::ready(()) => {}
        }
        drop(acquire);
        eventually_free(&client, "k").await;
    }
}

#[tokio::test]
async fn work_under_a_lock_can_be_dropped() {
    let server = start_server();
    let client = connect(&server).await;
    let work = tokio::spawn({
        let client = client.clone();
        async move {
            client
                .with_lock("k", |_| std::future::pending::<()>())
                .await
        }
    });
    eventually_key(&client, "k", "a holder", |state| state.holder_count == 1).await;
    work.abort();
    eventually_free(&client, "k").await;
}

#[tokio::test]
async fn work_under_a_lock_gets_the_fence_and_returns_what_it_wants() {
    let server = start_server();
    let client = connect(&server).await;
    let fence = client.with_lock("k", async |fence| fence).await.unwrap();
    assert_eq!(client.query("k").await.unwrap().last_fence, Some(fence));
    let guard = client.lock("k").acquire().await.unwrap();
    assert!(guard.fence() > fence);
    let refused = client
        .lock("k")
        .wait(Duration::ZERO)
        .with(async |_| ())
        .await;
    assert!(matches!(refused, Err(LockError::NotAcquired(_))));
}

#[tokio::test]
async fn requests_after_the_end_say_so() {
    let server = start_server();
    let client = connect(&server).await;
    let other = client.clone();
    client.close().await.unwrap();
    assert_eq!(
        other.lock("k").acquire().await.unwrap_err(),
        LockError::Failed(Error::Closed)
    );
    assert_eq!(other.close().await, Err(Error::Closed));
}
