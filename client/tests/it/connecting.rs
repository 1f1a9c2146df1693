//! Getting a connection, or a reason why not.

use crate::support::*;
use fencepost::{Client, ConnectError, ErrorCode};
use std::time::Duration;
use tokio::net::TcpListener;

/// An address without a listener: it was free a moment ago.
async fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn an_address_without_a_listener_is_told() {
    let error = Client::connect(nowhere().await).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
    let error = Client::builder().connect().await.unwrap_err();
    assert_eq!(error, ConnectError::NoAddress);
}

#[tokio::test]
async fn addresses_are_tried_in_order() {
    let server = start_server();
    let client = Client::builder()
        .address(nowhere().await)
        .address(server.local_addr().to_string())
        .connect()
        .await
        .unwrap();
    client.ping().await.unwrap();
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let error = Client::builder()
        .address(listener.local_addr().unwrap().to_string())
        .connect_timeout(Duration::from_millis(50))
        .connect()
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn impossible_settings_are_told_before_anything_is_sent() {
    let try_with = async |builder: fencepost::Builder| {
        let error = builder.address("127.0.0.1:1").connect().await.unwrap_err();
        match error {
            ConnectError::OutOfRange { field, .. } => field,
            ConnectError::Invalid(_) => "length",
            error => panic!("{error}"),
        }
    };
    let new = Client::builder;
    assert_eq!(try_with(new().connections(0)).await, "connections");
    assert_eq!(try_with(new().connections(65)).await, "connections");
    assert_eq!(
        try_with(new().connect_timeout(Duration::ZERO)).await,
        "connect_timeout"
    );
    assert_eq!(
        try_with(new().request_timeout(Duration::MAX)).await,
        "request_timeout"
    );
    assert_eq!(
        try_with(new().session_ttl(Duration::from_secs(86_401))).await,
        "session_ttl"
    );
    assert_eq!(
        try_with(new().default_ttl(Duration::ZERO)).await,
        "default_ttl"
    );
    assert_eq!(try_with(new().name("n".repeat(65))).await, "length");
    assert_eq!(try_with(new().token(vec![0; 257])).await, "length");
}

#[tokio::test]
async fn a_server_that_wants_a_token_gets_it_or_says_so() {
    let directory = std::env::temp_dir().join(format!("fencepost-client-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("tokens");
    std::fs::write(&path, "a-token-that-is-long-enough-for-a-test\n").unwrap();
    let started = server::Server::builder()
        .threads(1)
        .with(|config| config.auth_token_file = Some(path.clone()))
        .start();
    std::fs::remove_dir_all(&directory).unwrap();
    let server = started.unwrap();
    let with_token = |token: &'static str| builder(server.local_addr()).token(token).connect();
    let client = with_token("a-token-that-is-long-enough-for-a-test").await;
    client.unwrap().ping().await.unwrap();
    let error = with_token("another").await.unwrap_err();
    assert!(
        matches!(
            error,
            ConnectError::Refused {
                code: ErrorCode::UNAUTHENTICATED,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_client_without_a_name_goes_by_its_program() {
    let server = start_server();
    let client = Client::connect(server.local_addr().to_string())
        .await
        .unwrap();
    let sessions = client.sessions().all().await.unwrap();
    let suffix = format!(":{}", std::process::id());
    assert!(
        sessions[0].client_name.ends_with(&suffix),
        "{}",
        sessions[0].client_name
    );
}

/// The environment belongs to the whole process: what reads it runs in one of its own, which is
/// this test again.
#[tokio::test]
async fn settings_come_from_the_environment() {
    const ROLE: &str = "FENCEPOST_TEST_OF_THE_ENVIRONMENT";
    if std::env::var_os(ROLE).is_some() {
        let client = Client::from_env().await.unwrap();
        client.ping().await.unwrap();
        return;
    }
    let token = "a-token-that-is-long-enough-for-a-test";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(
        &path,
        format!("# billing\n\n  {token}\nanother-token-that-is-long-enough\n"),
    )
    .unwrap();
    let server = start_server_with(|config| config.auth_token_file = Some(path.clone()));
    let run = async |server: &str, token_file: &std::path::Path| {
        let mut test = tokio::process::Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", "connecting::settings_come_from_the_environment"])
            .env(ROLE, "1")
            .env("FENCEPOST_SERVER", server)
            .env("FENCEPOST_TOKEN_FILE", token_file)
            .kill_on_drop(true);
        let output = in_time(test.output()).await.unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let address = server.local_addr().to_string();
    let (is_fine, text) = run(&address, &path).await;
    assert!(is_fine, "{text}");
    // An empty variable counts as not set: without a token, this server refuses.
    let (is_fine, text) = run(&address, std::path::Path::new("")).await;
    assert!(!is_fine && text.contains("unauthenticated"), "{text}");
    let (is_fine, text) = run(&nowhere().await, &path).await;
    assert!(!is_fine && text.contains("Unreachable"), "{text}");
}

#[test]
fn a_token_file_is_read_or_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let read = || fencepost::Builder::default().token_file(&path);
    let error = read().unwrap_err();
    assert!(error.to_string().contains("token: No such file"), "{error}");
    std::fs::write(&path, "# nothing but a comment\n\n").unwrap();
    let error = read().unwrap_err();
    assert!(
        error.to_string().contains("there is no token in it"),
        "{error}"
    );
    std::fs::write(&path, "sesame\n").unwrap();
    drop(read().unwrap());
}
