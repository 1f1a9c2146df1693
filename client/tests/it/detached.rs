//! Locks that belong to no session.

use crate::support::*;
use fencepost::{Acquisition, LockHandle, Loss, Mode, Release};
use server::config::Durability;
use std::time::Duration;

#[tokio::test]
async fn a_detached_lock_outlives_its_client_and_is_released_by_another() {
    let server = start_server();
    let other = connect(&server).await;
    let client = connect(&server).await;
    let guard = client.lock("k").detached().acquire().await.unwrap();
    let handle = guard.handle();
    assert_eq!((&handle.key[..], handle.fence), (&b"k"[..], guard.fence()));
    let session = client.session_id().unwrap();
    drop(guard);
    client.close().await.unwrap();
    eventually("the end of the session", async || {
        let sessions = other.sessions().all().await.unwrap();
        sessions.iter().all(|entry| entry.session_id != session)
    })
    .await;
    let state = other.query("k").await.unwrap();
    assert_eq!(state.holders[0].fence, handle.fence);
    assert_eq!(state.holders[0].client_name, "detached");
    assert!(!state.holders[0].is_you);

    // Only a client that knows the fence may release it.
    let wrong = LockHandle {
        fence: fencepost::Fence::new(handle.fence.get() + 1).unwrap(),
        ..handle.clone()
    };
    let released = other.release_detached(&wrong).await;
    assert!(
        matches!(released, Ok(Release::AlreadyLost(_))),
        "{released:?}"
    );
    let released = other.release_detached(&handle).await;
    assert_eq!(released, Ok(Release::Released));
    assert_eq!(other.query("k").await.unwrap().holder_count, 0);
    let released = other.release_detached(&handle).await;
    assert_eq!(released, Ok(Release::AlreadyLost(Loss::NotHeld)));
}

/// A release would go out before the next request for the key.
#[tokio::test]
async fn a_detached_lock_is_not_released_with_its_guard() {
    let server = start_server();
    let client = connect(&server).await;
    let guard = client.lock("k").detached().acquire().await.unwrap();
    let fence = guard.fence();
    drop(guard);
    let state = client.query("k").await.unwrap();
    assert_eq!(state.holder_count, 1);
    assert_eq!(state.holders[0].fence, fence);
}

#[tokio::test]
async fn a_lock_that_is_not_detached_is_not_released_by_another() {
    let server = start_server();
    let client = connect(&server).await;
    let other = connect(&server).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let detached = client.lock("other").detached().acquire().await.unwrap();
    let released = other.release_detached(&guard.handle()).await;
    assert!(
        matches!(released, Ok(Release::AlreadyLost(_))),
        "{released:?}"
    );
    assert!(guard.renew().await.is_ok());
    drop(detached);
}

#[tokio::test]
async fn a_detached_guard_renews_downgrades_and_releases_when_asked() {
    let server = start_server();
    let client = connect(&server).await;
    let other = connect(&server).await;
    let guard = client.lock("k").detached().acquire().await.unwrap();
    guard.renew().await.unwrap();
    let Acquisition::Held(contention) = other.lock("k").try_acquire().await.unwrap() else {
        panic!("it is held");
    };
    assert_eq!(contention.holder.unwrap().fence, guard.fence());
    // Detached locks do not share a holder: the next one is refused, or waits, like any other.
    let answer = client.lock("k").detached().try_acquire().await.unwrap();
    assert!(matches!(answer, Acquisition::Held(_)), "{answer:?}");
    guard.downgrade().await.unwrap();
    assert_eq!(guard.mode(), Mode::Shared);
    let shared = other.lock("k").shared().acquire().await.unwrap();
    drop(shared);
    assert_eq!(guard.release().await, Ok(Release::Released));
    assert_eq!(other.query("k").await.unwrap().holder_count, 0);
}

#[tokio::test]
async fn a_detached_lock_that_was_waited_for_is_handed_over() {
    let server = start_server();
    let client = connect(&server).await;
    let other = connect(&server).await;
    let held = other.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.lock("k").detached().acquire().await }
    });
    eventually_key(&other, "k", "a waiter", |state| state.queue_length == 1).await;
    let before = held.fence();
    drop(held);
    let guard = in_time(waiting).await.unwrap().unwrap();
    assert!(guard.fence() > before);
    let handle = guard.handle();
    drop(guard);
    client.close().await.unwrap();
    let state = other.query("k").await.unwrap();
    assert_eq!(state.holders[0].fence, handle.fence);
}

#[tokio::test]
async fn a_detached_acquire_without_a_caller_leaves_nothing_behind() {
    let server = start_server();
    let client = connect(&server).await;
    let other = connect(&server).await;
    let held = other.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.lock("k").detached().acquire().await }
    });
    eventually_key(&other, "k", "a waiter", |state| state.queue_length == 1).await;
    waiting.abort();
    drop(held);
    eventually_free(&other, "k").await;
}

#[tokio::test]
async fn a_detached_lock_ends_with_its_own_lease() {
    let server = start_server();
    let client = connect(&server).await;
    let short = Duration::from_millis(300);
    let guard = client.lock("k").ttl(short).detached().acquire().await;
    let guard = guard.unwrap();
    assert_eq!(in_time(guard.lost()).await, Loss::DeadlinePassed);
    eventually_free(&client, "k").await;
}

#[tokio::test]
async fn a_detached_lock_outlives_a_clean_restart() {
    for durability in [Durability::Fence, Durability::Lease] {
        let directory = tempfile::tempdir().unwrap();
        let start = || {
            start_server_with(|config| {
                config.data_dir = directory.path().to_owned();
                config.durability = durability;
            })
        };
        let server = start();
        let client = connect(&server).await;
        let guard = client.lock("k").detached().acquire().await.unwrap();
        let handle = guard.handle();
        drop(guard);
        client.close().await.unwrap();
        server.shutdown();

        let server = start();
        let client = connect(&server).await;
        let state = client.query("k").await.unwrap();
        assert_eq!(state.holders[0].fence, handle.fence, "{durability:?}");
        let released = client.release_detached(&handle).await;
        assert_eq!(released, Ok(Release::Released), "{durability:?}");
        let next = client.lock("k").acquire().await.unwrap();
        assert!(next.fence() > handle.fence);
    }
}
