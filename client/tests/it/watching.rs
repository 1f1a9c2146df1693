//! What a client tells of itself: counters, spans, the trace in the server's audit log.

use crate::support::*;
use fencepost::{Acquisition, Client, LockError, Metrics};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing_subscriber::fmt::format::FmtSpan;

#[tokio::test]
async fn a_client_counts_its_acquires_renewals_losses_and_reconnects() {
    let server = start_server();
    let proxy = Proxy::start(server.local_addr()).await;
    let client = builder(proxy.address).connections(1).connect().await;
    let client = client.unwrap();
    let operator = connect(&server).await;
    assert_eq!(client.metrics(), begun(Metrics::default(), |_| ()));

    let guard = client.lock("k").acquire().await.unwrap();
    guard.renew().await.unwrap();
    let Acquisition::Held(_) = client.lock("k").try_acquire().await.unwrap() else {
        panic!("it is held");
    };
    let wait = Duration::from_millis(1);
    let late = client.lock("k").wait(wait).acquire().await;
    assert!(matches!(late, Err(LockError::NotAcquired(_))), "{late:?}");
    let refused = client.lock("").acquire().await;
    assert!(matches!(refused, Err(LockError::Failed(_))), "{refused:?}");
    let dropped = client.lock("k").acquire();
    let dropped = tokio::time::timeout(Duration::ZERO, dropped).await;
    assert!(dropped.is_err(), "it is held, and not waited for");
    let metrics = client.metrics();
    let counts = metrics.acquire_time.buckets().map(|(_, count)| count);
    assert_eq!(counts.sum::<u64>(), 1);
    assert!(metrics.acquire_time.sum > Duration::ZERO);
    assert_eq!(metrics.acquires_under_way(), 0);
    let expected = begun(metrics, |expected| {
        expected.acquires = 5;
        expected.acquires_granted = 1;
        expected.acquires_contended = 2;
        expected.acquires_failed = 1;
        expected.acquires_dropped = 1;
        expected.renewals = 1;
        expected.locks_held = 1;
    });
    assert_eq!(metrics, expected);

    // A reconnect resumes the session, and the lock lives on.
    proxy.cut();
    eventually("a reconnect", async || {
        client.metrics().reconnects == 1 && client.metrics().connections_open == 1
    })
    .await;
    guard.renew().await.unwrap();
    let state = client.metrics();
    assert_eq!((state.sessions, state.losses, state.locks_held), (1, 0, 1));

    let fence = guard.fence();
    operator.force_release("k", fence).await.unwrap();
    in_time(guard.lost()).await;
    let state = client.metrics();
    assert_eq!((state.losses, state.locks_held), (1, 0));
}

/// The counters that do not depend on how long things take, changed; the rest as in `like`.
fn begun(like: Metrics, change: impl FnOnce(&mut Metrics)) -> Metrics {
    let begin = |expected: &mut Metrics| {
        expected.acquire_time = like.acquire_time;
        expected.sessions = 1;
        expected.connections = 1;
        expected.connections_open = 1;
    };
    let mut expected = Metrics::default();
    begin(&mut expected);
    change(&mut expected);
    expected
}

/// What a subscriber writes, for the test to read.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// With the feature `tracing`, which the tests of this crate have on.
#[tokio::test]
async fn acquires_and_work_are_spans_with_fence_and_trace() {
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let server = start_server();
    let client = connect(&server).await;
    let request = client.lock("orders/42").trace_id(TRACEPARENT);
    let fence = request.with(|fence| async move { fence }).await.unwrap();
    let request = client.lock("taken").trace_id("of-the-loser");
    let taken = request.acquire().await.unwrap();
    let operator = connect(&server).await;
    operator
        .force_release("taken", taken.fence())
        .await
        .unwrap();
    in_time(taken.lost()).await;
    let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let ends = |span: &str| {
        let has = |line: &&str| line.contains(span) && line.contains("close");
        let line = written.lines().find(has);
        line.unwrap_or_else(|| panic!("no {span} in\n{written}"))
    };
    for span in ["lock_acquire{", "locked{"] {
        let line = ends(span);
        for field in [format!("fence={fence}"), "key=orders/42".to_owned()] {
            assert!(line.contains(&field), "{field} in {line}");
        }
        assert!(line.contains(TRACEPARENT), "{line}");
    }
    let is_loss = |line: &&str| line.contains("WARN") && line.contains("key=taken");
    let loss = written.lines().find(is_loss);
    let loss = loss.unwrap_or_else(|| panic!("no loss in\n{written}"));
    assert!(loss.contains("of-the-loser"), "{loss}");
}

/// The line of a grant in the audit log, once it is there.
async fn granted_line(audit: &std::path::Path, key: &str) -> String {
    let mut found = String::new();
    eventually("the grant in the audit log", async || {
        let log = std::fs::read_to_string(audit).unwrap_or_default();
        let is_grant = |line: &&str| line.contains("grant") && line.contains(key);
        found = log.lines().find(is_grant).unwrap_or_default().to_owned();
        !found.is_empty()
    })
    .await;
    found
}

#[tokio::test]
async fn the_trace_of_the_caller_is_in_the_audit_log() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.log");
    let server = start_server_with(|config| config.audit_log = Some(audit.clone()));
    let start = |context: fn() -> Option<String>| {
        let builder = builder(server.local_addr()).trace_context(context);
        async { builder.connect().await.unwrap() }
    };
    let client: Client = start(|| Some(TRACEPARENT.to_owned())).await;
    drop(client.lock("by-context").acquire().await.unwrap());
    assert!(
        granted_line(&audit, "by-context")
            .await
            .contains(TRACEPARENT)
    );
    let named = client.lock("by-name").trace_id("named");
    drop(named.acquire().await.unwrap());
    let line = granted_line(&audit, "by-name").await;
    assert!(line.contains("\"named\"") && !line.contains(TRACEPARENT));

    // A trace that does not fit costs nothing but itself.
    let client = start(|| Some("x".repeat(65))).await;
    drop(client.lock("too-long").acquire().await.unwrap());
    assert!(!granted_line(&audit, "too-long").await.contains("xxx"));
}
