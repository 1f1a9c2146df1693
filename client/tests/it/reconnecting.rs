//! Breaks: what survives them, and what must not.

use crate::support::*;
use fencepost::{Acquisition, Client, Error, LockError, Loss, Release};
use server::Server;
use std::time::Duration;

async fn through_proxy(connection_count: usize) -> (Server, Proxy, Client, Client) {
    let server = start_server();
    let proxy = Proxy::start(server.local_addr()).await;
    let client = builder(proxy.address)
        .connections(connection_count)
        .connect()
        .await
        .unwrap();
    let observer = connect(&server).await;
    (server, proxy, client, observer)
}

#[tokio::test]
async fn a_resumed_session_keeps_its_locks() {
    let (_server, proxy, client, observer) = through_proxy(2).await;
    let timed = client.lock("timed").acquire().await.unwrap();
    let bound = client
        .lock("bound")
        .session_bound()
        .acquire()
        .await
        .unwrap();
    let session = client.session_id();
    for round in 1..=3 {
        proxy.cut();
        proxy.accepted(2 + 2 * round).await;
        timed.renew().await.unwrap();
        bound.renew().await.unwrap();
        assert!(timed.is_valid() && bound.is_valid());
        assert_eq!(client.session_id(), session);
    }
    let state = observer.query("timed").await.unwrap();
    assert_eq!(state.holders[0].fence, timed.fence());
    assert_eq!(timed.release().await, Ok(Release::Released));
    assert_eq!(bound.release().await, Ok(Release::Released));
}

#[tokio::test]
async fn an_acquire_whose_reply_got_lost_takes_effect_once() {
    let (_server, proxy, client, observer) = through_proxy(1).await;
    proxy.swallow_replies();
    let acquire = tokio::spawn({
        let client = client.clone();
        async move { client.lock("k").try_acquire().await }
    });
    proxy.swallowed().await;
    let fence = observer.query("k").await.unwrap().holders[0].fence;
    proxy.recover();
    let Acquisition::Acquired(guard) = in_time(acquire).await.unwrap().unwrap() else {
        panic!("it was granted, if only the client had heard");
    };
    assert_eq!(guard.fence(), fence);
    assert_eq!(observer.query("k").await.unwrap().last_fence, Some(fence));
    assert_eq!(guard.release().await, Ok(Release::Released));
    assert_eq!(observer.query("k").await.unwrap().holder_count, 0);
}

#[tokio::test]
async fn a_release_whose_reply_got_lost_is_a_release() {
    let (_server, proxy, client, observer) = through_proxy(1).await;
    let guard = client.lock("k").acquire().await.unwrap();
    proxy.swallow_replies();
    let release = tokio::spawn(guard.release());
    proxy.swallowed().await;
    // The next holder is there before the release is repeated.
    let next = observer.lock("k").acquire().await.unwrap();
    proxy.recover();
    assert_eq!(in_time(release).await.unwrap(), Ok(Release::Released));
    assert!(next.renew().await.is_ok());
}

#[tokio::test]
async fn a_reentrant_acquire_whose_reply_got_lost_counts_once() {
    let (_server, proxy, client, observer) = through_proxy(1).await;
    let outer = client.lock("k").acquire().await.unwrap();
    proxy.swallow_replies();
    let inner = tokio::spawn({
        let client = client.clone();
        async move { client.lock("k").reentrant().acquire().await }
    });
    proxy.swallowed().await;
    proxy.recover();
    let inner = in_time(inner).await.unwrap().unwrap();
    assert_eq!(inner.fence(), outer.fence());
    drop((inner, outer));
    eventually_free(&observer, "k").await;
}

#[tokio::test]
async fn a_grant_that_got_lost_and_is_no_longer_wanted_is_found_and_released() {
    let (_server, proxy, client, observer) = through_proxy(1).await;
    proxy.swallow_replies();
    let acquire = tokio::spawn({
        let client = client.clone();
        async move { client.lock("k").acquire().await }
    });
    proxy.swallowed().await;
    acquire.abort();
    assert!(acquire.await.unwrap_err().is_cancelled());
    assert_eq!(observer.query("k").await.unwrap().holder_count, 1);
    proxy.recover();
    eventually_free(&observer, "k").await;
}

#[tokio::test]
async fn a_waiting_acquire_goes_on_waiting_after_a_break() {
    let (_server, proxy, client, observer) = through_proxy(2).await;
    let held = observer.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.lock("k").acquire().await }
    });
    eventually_key(&observer, "k", "a waiter", |state| state.queue_length == 1).await;
    proxy.cut();
    proxy.accepted(4).await;
    eventually_key(&observer, "k", "the waiter again", |state| {
        state.queue_length == 1
    })
    .await;
    drop(held);
    let guard = in_time(waiting).await.unwrap().unwrap();
    assert_eq!(guard.release().await, Ok(Release::Released));
}

#[tokio::test]
async fn an_acquire_dropped_during_a_break_leaves_no_waiter_behind() {
    let (_server, proxy, client, observer) = through_proxy(1).await;
    let held = observer.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.lock("k").acquire().await }
    });
    eventually_key(&observer, "k", "a waiter", |state| state.queue_length == 1).await;
    proxy.limit_connections(0);
    proxy.cut();
    eventually_key(&observer, "k", "no waiter", |state| state.queue_length == 0).await;
    waiting.abort();
    proxy.limit_connections(usize::MAX);
    client.ping().await.unwrap();
    drop(held);
    eventually_free(&observer, "k").await;
}

#[tokio::test]
async fn a_guard_dropped_during_a_break_is_released_afterwards() {
    let (_server, proxy, client, observer) = through_proxy(2).await;
    let guard = client.lock("k").acquire().await.unwrap();
    proxy.limit_connections(0);
    proxy.cut();
    drop(guard);
    proxy.limit_connections(usize::MAX);
    eventually_free(&observer, "k").await;
    drop(client);
}

#[tokio::test]
async fn a_release_without_a_caller_is_sent_all_the_same() {
    let (_server, proxy, client, observer) = through_proxy(2).await;
    let guard = client.lock("k").acquire().await.unwrap();
    proxy.limit_connections(0);
    proxy.cut();
    let mut release = Box::pin(guard.release());
    tokio::select! {
        biased;
        answer = &mut release => panic!("there is no connection, but {answer:?}"),
        () = std::future::ready(()) => {}
    }
    drop(release);
    proxy.limit_connections(usize::MAX);
    eventually_free(&observer, "k").await;
    drop(client);
}

#[tokio::test]
async fn a_client_dropped_during_a_break_says_goodbye_when_it_can() {
    let (_server, proxy, client, observer) = through_proxy(2).await;
    let session = client.session_id().unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    proxy.limit_connections(0);
    proxy.cut();
    drop(client);
    drop(guard);
    proxy.limit_connections(usize::MAX);
    eventually_free(&observer, "k").await;
    eventually("the end of the session", async || {
        let sessions = observer.sessions().all().await.unwrap();
        sessions.iter().all(|entry| entry.session_id != session)
    })
    .await;
}

#[tokio::test]
async fn closing_during_a_break_waits_for_a_connection() {
    let (_server, proxy, client, observer) = through_proxy(2).await;
    let guard = client.lock("k").acquire().await.unwrap();
    proxy.limit_connections(0);
    proxy.cut();
    let closing = tokio::spawn(client.close());
    assert_eq!(in_time(guard.lost()).await, Loss::Closed);
    proxy.limit_connections(usize::MAX);
    assert_eq!(in_time(closing).await.unwrap(), Ok(()));
    assert_eq!(observer.query("k").await.unwrap().holder_count, 0);
}

#[tokio::test]
async fn a_loss_that_was_told_to_a_broken_connection_is_found_out() {
    let (_server, proxy, client, observer) = through_proxy(1).await;
    let guard = client.lock("k").acquire().await.unwrap();
    proxy.swallow_replies();
    observer.force_release("k", guard.fence()).await.unwrap();
    proxy.swallowed().await;
    assert!(guard.is_valid(), "the news got lost");
    proxy.recover();
    let loss = in_time(guard.lost()).await;
    assert!(matches!(loss, Loss::Forced | Loss::NotHeld), "{loss:?}");
}

#[tokio::test]
async fn a_connection_that_has_gone_silent_is_replaced() {
    let server = start_server();
    let proxy = Proxy::start(server.local_addr()).await;
    let client = builder(proxy.address)
        .connections(1)
        .request_timeout(Duration::from_secs(4))
        .connect()
        .await
        .unwrap();
    proxy.swallow_replies();
    let ping = tokio::spawn({
        let client = client.clone();
        async move { client.ping().await }
    });
    proxy.swallowed().await;
    // Nothing breaks and nothing comes: the client has to notice by itself, and to repeat what was
    // under way.
    let before = proxy.accepted_count();
    proxy.forward_replies();
    in_time(ping).await.unwrap().unwrap();
    assert!(proxy.accepted_count() > before);
}

#[tokio::test]
async fn a_server_that_forgot_the_session_costs_all_locks_at_once() {
    let (first, proxy, client, observer) = through_proxy(2).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let bound = client
        .lock("bound")
        .session_bound()
        .acquire()
        .await
        .unwrap();
    let session = client.session_id();
    // Other servers know nothing of this one's locks, nor of its sessions.
    let second = start_server();
    proxy.point_to(second.local_addr());
    proxy.cut();
    assert_eq!(in_time(guard.lost()).await, Loss::SessionEnded);
    assert_eq!(in_time(bound.lost()).await, Loss::SessionEnded);
    assert_eq!(
        guard.release().await,
        Ok(Release::AlreadyLost(Loss::SessionEnded))
    );
    // And it goes on in a new session.
    let again = client.lock("k").acquire().await.unwrap();
    assert!(again.is_valid());
    assert!(session.is_some() && client.session_id().is_some());
    assert_eq!(observer.query("k").await.unwrap().holder_count, 1);
    first.shutdown();
}

#[tokio::test]
async fn what_waits_when_the_session_is_lost_waits_in_the_next_one() {
    let (_first, proxy, client, observer) = through_proxy(2).await;
    let held = observer.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.lock("k").acquire().await }
    });
    eventually_key(&observer, "k", "a waiter", |state| state.queue_length == 1).await;
    let second = start_server();
    proxy.point_to(second.local_addr());
    proxy.cut();
    // The other server knows of no holder.
    let guard = in_time(waiting).await.unwrap().unwrap();
    assert_eq!(guard.release().await, Ok(Release::Released));
    drop(held);
}

#[tokio::test]
async fn one_connection_does_the_work_of_another_that_cannot_be_had() {
    let server = start_server();
    let proxy = Proxy::start(server.local_addr()).await;
    let client = builder(proxy.address)
        .connections(2)
        .connect()
        .await
        .unwrap();
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(client.lock(format!("k{number}")).acquire().await.unwrap());
    }
    proxy.limit_connections(1);
    proxy.cut();
    for guard in &guards {
        in_time(guard.renew()).await.unwrap();
    }
    for number in 20..40 {
        guards.push(
            in_time(client.lock(format!("k{number}")).acquire())
                .await
                .unwrap(),
        );
    }
    for guard in guards {
        assert_eq!(in_time(guard.release()).await, Ok(Release::Released));
    }
}

/// The request's own time is for a server that is there: it was added to the wait also where none
/// was, and a wait of 300 ms took 5.3 s.
#[tokio::test]
async fn an_acquire_without_a_server_ends_with_its_wait() {
    let server = start_server();
    let client = builder(server.local_addr()).connect().await.unwrap();
    server.shutdown();
    // The request timeout of these tests is longer than their patience.
    for wait in [Duration::ZERO, Duration::from_millis(300)] {
        let started = tokio::time::Instant::now();
        let error = in_half_the_time(client.lock("k").wait(wait).acquire()).await;
        let error = error.unwrap_err();
        assert!(started.elapsed() >= wait);
        assert!(
            matches!(error, LockError::Failed(Error::Disconnected { .. })),
            "{error}"
        );
    }
}

/// A connection that goes after the wait is over ends the acquire, too.
#[tokio::test]
async fn an_acquire_ends_when_its_connection_does() {
    let server = start_server();
    let proxy = Proxy::start(server.local_addr()).await;
    let client = builder(proxy.address).connect().await.unwrap();
    proxy.swallow_replies();
    let wait = Duration::from_millis(1);
    let acquire = tokio::spawn(client.lock("k").wait(wait).acquire());
    proxy.swallowed().await;
    // Another wait, which ends later than that one's: then the time without a connection is up.
    let direct = connect(&server).await;
    let _held = direct.lock("other").acquire().await.unwrap();
    let clock = direct.lock("other").wait(Duration::from_millis(400));
    in_time(clock.acquire()).await.unwrap_err();
    assert!(!acquire.is_finished(), "the server is there and may answer");
    proxy.limit_connections(0);
    proxy.cut();
    let error = in_half_the_time(acquire).await.unwrap().unwrap_err();
    assert!(
        matches!(error, LockError::Failed(Error::Disconnected { .. })),
        "{error}"
    );
}

#[tokio::test]
async fn an_acquire_may_have_a_timeout_of_its_own() {
    let server = start_server();
    let proxy = Proxy::start(server.local_addr()).await;
    let client = builder(proxy.address).connect().await.unwrap();
    proxy.swallow_replies();
    let request = client.lock("k").wait(Duration::ZERO);
    let error = request.clone().request_timeout(Duration::from_millis(20));
    let error = in_half_the_time(error.acquire()).await.unwrap_err();
    assert!(
        matches!(error, LockError::Failed(Error::NoAnswer { .. })),
        "{error}"
    );
    let error = request.request_timeout(Duration::ZERO).acquire().await;
    let error = error.unwrap_err();
    assert!(
        error.to_string().starts_with("request_timeout is 0ns"),
        "{error}"
    );
}

/// Less than the request timeout of these tests, which a failure would take.
async fn in_half_the_time<F: Future>(future: F) -> F::Output {
    let ended = tokio::time::timeout(PATIENCE / 2, future).await;
    ended.expect("it does not take a request's whole time")
}
