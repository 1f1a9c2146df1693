//! Acquiring, holding, releasing.

use crate::support::*;
use fencepost::{Acquisition, Error, LockError, Loss, Mode, Release};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_guard_lives_from_acquire_to_release() {
    let server = start_server();
    let client = connect(&server).await;
    let guard = client
        .lock("orders/42")
        .metadata(b"settling")
        .trace_id("4bf92f3577b34da6")
        .acquire()
        .await
        .unwrap();
    assert!(guard.is_valid());
    assert!(guard.valid_until() > Instant::now());
    assert!(guard.remaining() > Duration::ZERO);
    assert_eq!(guard.key(), b"orders/42");
    assert_eq!(guard.mode(), Mode::Exclusive);

    let state = client.query("orders/42").await.unwrap();
    assert_eq!(state.holder_count, 1);
    assert_eq!(state.last_fence, Some(guard.fence()));
    let holder = &state.holders[0];
    assert!(holder.is_you);
    assert_eq!(holder.client_name, "test");
    assert_eq!(holder.metadata, b"settling");
    assert_eq!(Some(holder.session_id), client.session_id());

    let fence = guard.fence();
    assert_eq!(guard.release().await, Ok(Release::Released));
    assert_eq!(client.query("orders/42").await.unwrap().holder_count, 0);
    let next = client.lock("orders/42").acquire().await.unwrap();
    assert!(next.fence() > fence);
}

#[tokio::test]
async fn contention_is_a_value_that_names_the_holder() {
    let server = start_server();
    let holder = builder(server.local_addr())
        .name("billing")
        .connect()
        .await
        .unwrap();
    let other = connect(&server).await;
    let guard = holder.lock("k").metadata(b"job 7").acquire().await.unwrap();
    let Acquisition::Held(contention) = other.lock("k").try_acquire().await.unwrap() else {
        panic!("it is held");
    };
    assert_eq!(contention.holder_count, 1);
    let seen = contention.holder.expect("it does not change hands");
    assert_eq!(seen.client_name, "billing");
    assert_eq!(seen.metadata, b"job 7");
    assert_eq!(seen.fence, guard.fence());
    assert!(!seen.is_you);

    // The same client is refused by itself, and told so.
    let own = holder.lock("k").try_acquire().await.unwrap();
    let Acquisition::Held(contention) = own else {
        panic!("not reentrant");
    };
    assert!(contention.holder.unwrap().is_you);
}

#[tokio::test]
async fn waiting_in_vain_is_told_apart_from_failing() {
    let server = start_server();
    let client = connect(&server).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let refused = client
        .lock("k")
        .wait(Duration::from_millis(20))
        .acquire()
        .await;
    let Err(LockError::NotAcquired(contention)) = refused else {
        panic!("not contention but {refused:?}");
    };
    assert_eq!(contention.holder.unwrap().fence, guard.fence());

    let invalid = client.lock("").acquire().await;
    assert!(matches!(invalid, Err(LockError::Failed(Error::Invalid(_)))));
    let invalid = client.lock("k").ttl(Duration::ZERO).try_acquire().await;
    assert!(matches!(
        invalid,
        Err(Error::OutOfRange { field: "ttl", .. })
    ));
}

#[tokio::test]
async fn tasks_get_the_lock_in_the_order_in_which_they_asked() {
    let server = start_server();
    let clients = [connect(&server).await, connect(&server).await];
    let guard = clients[0].lock("k").acquire().await.unwrap();
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..20 {
        let client = clients[number % 2].clone();
        let order = Arc::clone(&order);
        tasks.push(tokio::spawn(async move {
            let guard = client.lock("k").acquire().await.unwrap();
            order.lock().push((number, guard.fence()));
        }));
        eventually_key(&clients[0], "k", "one more in the queue", |state| {
            state.queue_length as usize == number + 1
        })
        .await;
    }
    drop(guard);
    for task in tasks {
        in_time(task).await.unwrap();
    }
    let order = order.lock();
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(order.len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_share_a_few_connections_and_exclude_each_other() {
    let server = start_server();
    let client = connect(&server).await;
    let last_fence = Arc::new(parking_lot::Mutex::new(None));
    let mut tasks = Vec::new();
    for _ in 0..100 {
        let client = client.clone();
        let last_fence = Arc::clone(&last_fence);
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                let guard = client.lock("hot").acquire().await.unwrap();
                // Held across an await on purpose: only the lock keeps the others out.
                let before = last_fence.lock().take();
                tokio::task::yield_now().await;
                assert!(
                    last_fence.lock().is_none(),
                    "another task was in here meanwhile"
                );
                assert!(before < Some(guard.fence()), "fences rise");
                *last_fence.lock() = Some(guard.fence());
            }
        }));
    }
    for task in tasks {
        in_time(task).await.unwrap();
    }
    eventually_free(&client, "hot").await;
    let session = client.session_id().unwrap();
    let sessions = client.sessions().all().await.unwrap();
    let own = sessions
        .iter()
        .find(|entry| entry.session_id == session)
        .unwrap();
    assert_eq!(own.connection_count, 2);
}

#[tokio::test]
async fn a_dropped_guard_is_released_before_the_next_request_for_its_key() {
    let server = start_server();
    let client = connect(&server).await;
    for number in 0..50 {
        let key = format!("k{number}");
        drop(client.lock(&key).acquire().await.unwrap());
        let again = client.lock(&key).try_acquire().await.unwrap();
        assert!(
            again.acquired().is_some(),
            "{key} was not released in order"
        );
    }
}

#[tokio::test]
async fn reentrant_guards_share_a_fence_and_the_last_one_frees_the_key() {
    let server = start_server();
    let client = connect(&server).await;
    let outer = client.lock("k").acquire().await.unwrap();
    let inner = client.lock("k").reentrant().acquire().await.unwrap();
    assert_eq!(outer.fence(), inner.fence());
    assert_eq!(outer.release().await, Ok(Release::Released));
    assert!(inner.is_valid());
    assert_eq!(client.query("k").await.unwrap().holder_count, 1);
    assert_eq!(inner.release().await, Ok(Release::Released));
    assert_eq!(client.query("k").await.unwrap().holder_count, 0);
}

#[tokio::test]
async fn readers_share_and_a_downgraded_writer_joins_them() {
    let server = start_server();
    let client = connect(&server).await;
    let writer = client.lock("k").acquire().await.unwrap();
    let shared = client.lock("k").shared().try_acquire().await.unwrap();
    assert!(shared.acquired().is_none());
    let fence = writer.downgrade().await.unwrap();
    assert_eq!(fence, writer.fence());
    assert_eq!(writer.mode(), Mode::Shared);
    let reader = client.lock("k").shared().acquire().await.unwrap();
    assert_ne!(reader.fence(), writer.fence());
    assert_eq!(client.query("k").await.unwrap().holder_count, 2);
    let exclusive = client.lock("k").try_acquire().await.unwrap();
    assert!(exclusive.acquired().is_none());
    assert_eq!(writer.release().await, Ok(Release::Released));
    assert_eq!(reader.release().await, Ok(Release::Released));
}

#[tokio::test]
async fn the_watchdog_renews_what_is_held() {
    let server = start_server();
    let client = connect(&server).await;
    let ttl = Duration::from_secs(3);
    let guard = client.lock("k").ttl(ttl).acquire().await.unwrap();
    let first = guard.valid_until();
    eventually("a renewed lease", async || guard.valid_until() > first).await;
    assert!(guard.is_valid());
    assert_eq!(guard.release().await, Ok(Release::Released));
}

#[tokio::test]
async fn a_lock_without_renewal_lasts_until_it_is_renewed_by_hand() {
    let server = start_server();
    let client = connect(&server).await;
    let ttl = Duration::from_secs(60);
    let guard = client
        .lock("k")
        .ttl(ttl)
        .no_renew()
        .acquire()
        .await
        .unwrap();
    let first = guard.valid_until();
    let renewed = guard.renew().await.unwrap();
    assert!(renewed > first);
    assert_eq!(renewed, guard.valid_until());
}

#[tokio::test]
async fn a_session_bound_lock_lives_by_keep_alives() {
    let server = start_server();
    let session_ttl = Duration::from_secs(3);
    let client = builder(server.local_addr())
        .session_ttl(session_ttl)
        .connect()
        .await
        .unwrap();
    let guard = client.lock("k").session_bound().acquire().await.unwrap();
    let first = guard.valid_until();
    assert!(first <= Instant::now() + session_ttl);
    eventually("a session kept alive", async || guard.valid_until() > first).await;
    let state = client.query("k").await.unwrap();
    assert!(state.holders[0].is_session_bound);
    assert_eq!(state.holders[0].fence, guard.fence());
}

#[tokio::test]
async fn a_grant_after_a_wait_longer_than_its_lease_is_fresh() {
    let server = start_server();
    let holder = connect(&server).await;
    let client = connect(&server).await;
    let ttl = Duration::from_millis(1500);
    let held = holder.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.lock("k").ttl(ttl).acquire().await }
    });
    eventually_key(&holder, "k", "a waiter", |state| state.queue_length == 1).await;
    // Something of the lease's own length passes while it waits: another lock that runs out.
    let clock = holder.lock("clock").ttl(ttl).no_renew().acquire().await;
    clock.unwrap().lost().await;
    drop(held);
    let guard = in_time(waiting).await.unwrap().unwrap();
    assert!(
        guard.valid_until() > Instant::now(),
        "counted from the acquire's sending it would be over already"
    );
    assert_eq!(guard.release().await, Ok(Release::Released));
}

#[tokio::test]
async fn a_guard_can_be_dropped_outside_any_runtime() {
    let server = start_server();
    let observer = connect(&server).await;
    let client = connect(&server).await;
    let guard = client.lock("k").acquire().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    eventually_free(&observer, "k").await;
}

#[test]
fn a_guard_that_outlives_its_runtime_is_lost_and_dropped_without_harm() {
    let server = start_server();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (client, guard) = runtime.block_on(async {
        let client = connect(&server).await;
        let guard = client.lock("k").acquire().await.unwrap();
        (client, guard)
    });
    drop(runtime);
    assert!(!guard.is_valid(), "no task is left to renew it");
    drop(guard);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let answer = runtime.block_on(client.ping());
    assert_eq!(answer, Err(Error::Closed));
}

#[tokio::test]
async fn closing_frees_everything_at_once() {
    let server = start_server();
    let observer = connect(&server).await;
    let client = connect(&server).await;
    let other_handle = client.clone();
    let guards = [
        client.lock("a").acquire().await.unwrap(),
        client.lock("b").session_bound().acquire().await.unwrap(),
    ];
    let lost = guards[0].lost();
    client.close().await.unwrap();
    assert_eq!(observer.query("a").await.unwrap().holder_count, 0);
    assert_eq!(observer.query("b").await.unwrap().holder_count, 0);
    assert_eq!(in_time(lost).await, Loss::Closed);
    assert_eq!(other_handle.ping().await, Err(Error::Closed));
    for guard in guards {
        assert_eq!(
            guard.release().await,
            Ok(Release::AlreadyLost(Loss::Closed))
        );
    }
}

#[tokio::test]
async fn the_session_ends_with_the_last_handle_and_the_last_guard() {
    let server = start_server();
    let observer = connect(&server).await;
    let client = connect(&server).await;
    let session = client.session_id().unwrap();
    let is_listed = async || {
        let sessions = observer.sessions().all().await.unwrap();
        sessions.iter().any(|entry| entry.session_id == session)
    };
    let guard = client.lock("k").acquire().await.unwrap();
    drop(client);
    guard.renew().await.expect("a guard keeps its client going");
    assert!(is_listed().await);
    drop(guard);
    eventually("the end of the session", async || !is_listed().await).await;
    assert_eq!(observer.query("k").await.unwrap().holder_count, 0);
}

#[tokio::test]
async fn operators_see_locks_sessions_and_numbers() {
    let server = start_server();
    let client = connect(&server).await;
    let mut guards = Vec::new();
    for number in 0..250 {
        let key = format!("orders/{number:03}");
        guards.push(client.lock(key).acquire().await.unwrap());
    }
    guards.push(client.lock("users/1").acquire().await.unwrap());
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut pages = client.list("orders/");
    let mut page_count = 0;
    while let Some(page) = pages.next().await.unwrap() {
        page_count += 1;
        keys.extend(page.into_iter().map(|lock| lock.key));
    }
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 250);
    assert!(page_count > 1, "more than fits one page");
    assert_eq!(client.list("users/").all().await.unwrap().len(), 1);
    assert!(!client.stats().await.unwrap().is_empty());
    assert!(client.ping().await.unwrap() > Duration::ZERO);
    let sessions = client.sessions().all().await.unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].client_name, "test");
}

#[tokio::test]
async fn work_may_borrow_and_may_be_spawned() {
    let server = start_server();
    let client = connect(&server).await;
    let mut fences = Vec::new();
    // An async closure borrows what it needs; nothing is moved.
    let push = async |fence| fences.push(fence);
    client.with_lock("k", push).await.unwrap();
    // A closure that returns a future will do as before.
    let last = client.with_lock("k", |fence| async move { fence }).await;
    let last = last.unwrap();
    assert!(fences[0] < last);
    // The whole is Send if the work is, also where the work is a parameter.
    let spawned = tokio::spawn({
        let client = client.clone();
        async move { client.with_lock("k", async |fence| fence).await }
    });
    assert!(last < in_time(spawned).await.unwrap().unwrap());
    in_time(spawn_under(client, |fence| async move { fence })).await;
}

async fn spawn_under<W>(
    client: fencepost::Client,
    work: impl FnOnce(fencepost::Fence) -> W + Send + 'static,
) where
    W: Future<Output = fencepost::Fence> + Send + 'static,
{
    let work = async |fence| work(fence).await;
    let spawned = tokio::spawn(async move { client.with_lock("k", work).await });
    spawned.await.unwrap().unwrap();
}

#[tokio::test]
async fn waiting_for_oneself_suggests_reentrant() {
    let server = start_server();
    let client = connect(&server).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let again = || client.lock("k").wait(Duration::from_millis(1));
    let error = again().acquire().await.unwrap_err();
    assert!(error.to_string().contains("reentrant()"), "{error}");
    drop(again().reentrant().acquire().await.unwrap());
    // For a lock of others it would be the wrong advice.
    let other = connect(&server).await;
    let wait = Duration::from_millis(1);
    let error = other.lock("k").wait(wait).acquire().await.unwrap_err();
    assert!(!error.to_string().contains("reentrant()"), "{error}");
    guard.release().await.unwrap();
}
