//! A server that is killed and started again, with a grace period in which it believes what clients
//! claim.

use crate::support::*;
use fencepost::{Client, Guard, LockRequest, Loss, Release};
use server::Server;
use server::config::Durability;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// A lease, or the life of a session, that ends during the test.
const SHORT: Duration = Duration::from_millis(500);

fn start_on(directory: &Path) -> Server {
    start_server_with(|config| {
        config.data_dir = directory.to_owned();
        config.durability = Durability::Fence;
    })
}

/// What a kill would leave of a data directory at this moment.
fn wreck(directory: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

async fn connect_through(proxy: &Proxy, session_ttl: Duration) -> Client {
    builder(proxy.address)
        .connections(1)
        .session_ttl(session_ttl)
        .connect()
        .await
        .unwrap()
}

/// The server of `directory` is killed. Gives its successor, which both proxies lead to; the second
/// takes no connection.
async fn kill_and_start_again(
    directory: &Path,
    old: Server,
    proxies: [&Proxy; 2],
) -> (TempDir, Server) {
    let copy = wreck(directory);
    for proxy in proxies {
        proxy.limit_connections(0);
        proxy.cut();
    }
    drop(old);
    let server = start_on(copy.path());
    for proxy in proxies {
        proxy.point_to(server.local_addr());
    }
    proxies[0].limit_connections(usize::MAX);
    (copy, server)
}

/// `a` holds "k" and is cut off. Its lease ends on the server, and `b` is granted the lock. Then
/// the server is killed, and `a` is the first to reach its successor, which knows nothing. A claim
/// of `a` would be believed, and both would have a valid guard. Nothing has looked at the guard of
/// `a` meanwhile, so nothing has noted down that its time was up.
async fn a_lapsed_lease_is_not_claimed(
    session_ttl: Duration,
    wish: impl FnOnce(LockRequest) -> LockRequest,
) {
    let directory = tempfile::tempdir().unwrap();
    let old = start_on(directory.path());
    let proxies = [
        Proxy::start(old.local_addr()).await,
        Proxy::start(old.local_addr()).await,
    ];
    let [to_a, to_b] = &proxies;
    let a = connect_through(to_a, session_ttl).await;
    let b = connect_through(to_b, LONG).await;
    let of_a: Guard = wish(a.lock("k")).acquire().await.unwrap();
    to_a.limit_connections(0);
    to_a.cut();
    // Short enough to be left to the grace period: the next server does not know it.
    let short = Duration::from_secs(20);
    let of_b = b.lock("k").ttl(short).acquire().await.unwrap();
    assert!(of_b.fence() > of_a.fence());

    let (_copy, server) = kill_and_start_again(directory.path(), old, [to_a, to_b]).await;
    // On its one connection a client claims before it sends anything else, so claims are decided
    // before this is answered.
    in_time(a.ping()).await.unwrap();
    let observer = connect(&server).await;
    let state = observer.query("k").await.unwrap();
    assert_eq!(
        state.holder_count, 0,
        "a lapsed lease was claimed: {state:?}"
    );
    assert!(of_b.is_valid());
    assert!(!of_a.is_valid(), "two guards of one lock are valid");

    to_b.limit_connections(usize::MAX);
    in_time(b.ping()).await.unwrap();
    let state = observer.query("k").await.unwrap();
    assert_eq!(state.holders[0].fence, of_b.fence());
    assert!(of_b.is_valid());
}

#[tokio::test]
async fn a_lapsed_lease_that_was_to_be_renewed_is_not_claimed() {
    a_lapsed_lease_is_not_claimed(LONG, |wish| wish.ttl(SHORT)).await;
}

#[tokio::test]
async fn a_lapsed_lease_that_was_not_to_be_renewed_is_not_claimed() {
    a_lapsed_lease_is_not_claimed(LONG, |wish| wish.ttl(SHORT).no_renew()).await;
}

#[tokio::test]
async fn a_lapsed_session_is_not_revived_and_its_locks_are_not_claimed() {
    a_lapsed_lease_is_not_claimed(SHORT, LockRequest::session_bound).await;
}

/// SIGTERM answers every waiter, since it may not have heard that the server goes. That does not
/// end its wait.
#[tokio::test]
async fn a_waiter_outlives_a_clean_restart_and_the_time_in_between() {
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        start_server_with(|config| {
            config.data_dir = directory.path().to_owned();
            config.durability = Durability::Fence;
            // Its last words are to arrive.
            config.shutdown_grace = PATIENCE;
        })
    };
    let old = start();
    let proxy = Proxy::start(old.local_addr()).await;
    let holder = connect_through(&proxy, LONG).await;
    let waiter = connect_through(&proxy, LONG).await;
    let held = holder.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.lock("k").acquire().await });
    eventually_key(&holder, "k", "a waiter", |state| state.queue_length == 1).await;
    tokio::task::spawn_blocking(move || old.shutdown())
        .await
        .unwrap();
    // There is no server for a while: both clients look for one in vain.
    proxy.accepted(proxy.accepted_count() + 6).await;
    let server = start();
    proxy.point_to(server.local_addr());
    eventually_key(&holder, "k", "the waiter again", |state| {
        state.queue_length == 1
    })
    .await;
    assert!(held.is_valid());
    held.release().await.unwrap();
    let guard = in_time(waiting).await.unwrap().unwrap();
    assert_eq!(guard.release().await, Ok(Release::Released));
}

#[tokio::test]
async fn a_detached_lock_outlives_a_kill() {
    for durability in [Durability::Fence, Durability::Lease] {
        let directory = tempfile::tempdir().unwrap();
        let start = |directory: &Path| {
            start_server_with(|config| {
                config.data_dir = directory.to_owned();
                config.durability = durability;
            })
        };
        let old = start(directory.path());
        let client = connect(&old).await;
        let guard = client.lock("k").ttl(LONG).detached().acquire().await;
        let handle = guard.unwrap().handle();
        let copy = wreck(directory.path());
        drop(client);
        let server = start(copy.path());
        let client = connect(&server).await;
        let state = client.query("k").await.unwrap();
        assert_eq!(state.holders[0].fence, handle.fence, "{durability:?}");
        let released = client.release_detached(&handle).await;
        assert_eq!(released, Ok(Release::Released), "{durability:?}");
    }
}

#[tokio::test]
async fn a_client_whose_session_has_lapsed_goes_on_in_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let old = start_on(directory.path());
    let proxies = [
        Proxy::start(old.local_addr()).await,
        Proxy::start(old.local_addr()).await,
    ];
    let client = connect_through(&proxies[0], SHORT).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let session = client.session_id();
    proxies[0].limit_connections(0);
    proxies[0].cut();
    let other = connect(&old).await;
    let next = other.lock("k").acquire().await.unwrap();
    drop(next);
    drop(other);
    let (_copy, _server) =
        kill_and_start_again(directory.path(), old, [&proxies[0], &proxies[1]]).await;
    in_time(client.ping()).await.unwrap();
    assert_ne!(client.session_id(), session);
    assert_eq!(in_time(guard.lost()).await, Loss::DeadlinePassed);
}
