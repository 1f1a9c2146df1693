//! Clients that speak TLS.

use crate::support::*;
use fencepost::{Client, ConnectError, Release, Tls};
use server::Server;
use server::config::ClientAuth;
use tempfile::TempDir;
use tls::issue::Authority;

/// A server with a certificate, and the authority that signed it.
fn start(auth: ClientAuth) -> (TempDir, Authority, Server) {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    let own = authority.issue("server");
    let server = start_server_with(|config| {
        config.tls_cert_file = Some(own.cert);
        config.tls_key_file = Some(own.key);
        config.tls_client_auth = auth;
        config.tls_client_ca_file = (auth != ClientAuth::Off).then(|| authority.file());
    });
    (dir, authority, server)
}

fn trusting(authority: &Authority) -> Tls {
    Tls::with_ca(authority.file())
}

#[tokio::test]
async fn locks_are_taken_and_handed_on_over_tls() {
    let (_dir, authority, server) = start(ClientAuth::Off);
    let connect = || {
        builder(server.local_addr())
            .tls(trusting(&authority))
            .connect()
    };
    let (one, other) = (connect().await.unwrap(), connect().await.unwrap());
    let guard = one.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(async move { other.lock("k").acquire().await });
    eventually_key(&one, "k", "a waiter", |state| state.queue_length == 1).await;
    let fence = guard.fence();
    guard.release().await.unwrap();
    let next = in_time(waiting).await.unwrap().unwrap();
    assert!(next.fence() > fence);
}

#[tokio::test]
async fn many_requests_at_once_fill_more_than_one_record() {
    let (_dir, authority, server) = start(ClientAuth::Off);
    let client = builder(server.local_addr()).tls(trusting(&authority));
    let client = client.connections(1).connect().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..2_000 {
        let client = client.clone();
        let key = format!("{number:0200}");
        tasks.spawn(async move { client.lock(key).acquire().await.unwrap() });
    }
    let guards = in_time(tasks.join_all()).await;
    let listed = in_time(client.list("").all()).await.unwrap();
    assert_eq!((guards.len(), listed.len()), (2_000, 2_000));
}

#[tokio::test]
async fn a_session_is_resumed_over_tls() {
    let (_dir, authority, server) = start(ClientAuth::Required);
    let own = authority.issue("billing");
    let proxy = Proxy::start(server.local_addr()).await;
    let tls = trusting(&authority).identity(own.cert, own.key);
    let client = builder(proxy.address).tls(tls).connect().await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    let session = client.session_id();
    for round in 1..=2 {
        proxy.cut();
        proxy.accepted(2 + 2 * round).await;
        guard.renew().await.unwrap();
        assert_eq!(client.session_id(), session);
    }
    assert_eq!(guard.release().await, Ok(Release::Released));
}

async fn refusal(server: &Server, tls: Tls) -> String {
    let connected = builder(server.local_addr()).tls(tls).connect().await;
    match connected.map(|_: Client| ()) {
        Err(ConnectError::Handshake { message, .. }) => message,
        other => panic!("no handshake should have failed but it did not: {other:?}"),
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_said() {
    let (dir, authority, server) = start(ClientAuth::Required);
    let others = Authority::new(dir.path(), "others");
    let good = authority.issue("billing");
    let good = |tls: Tls| tls.identity(&good.cert, &good.key);
    let message = refusal(&server, good(Tls::with_ca(others.file()))).await;
    assert!(
        message.contains("no authority that is trusted here"),
        "{message}"
    );
    let elsewhere = good(trusting(&authority)).server_name("elsewhere.example");
    let message = refusal(&server, elsewhere).await;
    assert!(message.contains("another name"), "{message}");
    let message = refusal(&server, trusting(&authority)).await;
    assert!(message.contains("requires a certificate"), "{message}");
    let wrong = others.issue("billing");
    let message = refusal(
        &server,
        trusting(&authority).identity(wrong.cert, wrong.key),
    )
    .await;
    assert!(
        message.contains("signed by no authority that it trusts"),
        "{message}"
    );
    let old = authority.issue_expired("old");
    let message = refusal(&server, trusting(&authority).identity(old.cert, old.key)).await;
    assert!(message.contains("has expired"), "{message}");
    let named = good(trusting(&authority)).server_name("localhost");
    let client = builder(server.local_addr()).tls(named).connect().await;
    drop(client.unwrap().lock("k").acquire().await.unwrap());
}

#[tokio::test]
async fn a_client_and_a_server_that_do_not_both_speak_tls_say_so() {
    let (_dir, authority, server) = start(ClientAuth::Off);
    let refused = builder(server.local_addr()).connect().await.map(|_| ());
    let Err(ConnectError::Refused { message, .. }) = refused else {
        panic!("a plain client was not refused: {refused:?}");
    };
    assert!(message.contains("speaks TLS"), "{message}");
    let plain = start_server();
    let message = refusal(&plain, trusting(&authority)).await;
    assert!(message.contains("does not speak TLS"), "{message}");
    let missing = Tls::with_ca("/nowhere/ca.pem");
    let refused = builder(server.local_addr()).tls(missing).connect().await;
    let refused = refused.map(|_| ()).unwrap_err();
    assert!(
        matches!(refused, ConnectError::Certificates { .. }),
        "{refused:?}"
    );
}
