//! The service's answers, over real sockets.

use crate::support::{Running, get, metric, put, send};
use resource::{Enforcement, Policy, Store, StoreSettings, http};
use serde_json::json;
use std::collections::BTreeMap;

const VALUE_BYTES_MAX: usize = 1000;

async fn start(change: impl FnOnce(&mut StoreSettings)) -> Running {
    let mut settings = StoreSettings::default();
    change(&mut settings);
    let store = Store::open(&settings).unwrap();
    Running::start(http::routes(store, VALUE_BYTES_MAX)).await
}

#[tokio::test]
async fn a_write_with_a_rising_fence_is_accepted_and_a_stale_one_is_not() {
    let service = start(|_| ()).await;
    let at = service.address;
    assert_eq!(get(at, "/r/orders%2F42").await.status, 404);

    let reply = put(at, "/r/orders%2F42", 33, b"by A").await;
    assert_eq!(
        (reply.status, reply.json()),
        (200, json!({"key": "orders/42", "max_fence": 33}))
    );
    assert_eq!(put(at, "/r/orders%2F42", 34, b"by B").await.status, 200);

    let reply = put(at, "/r/orders%2F42", 33, b"by A, late").await;
    assert_eq!(reply.status, 409);
    assert_eq!(
        reply.body,
        "{\"error\":\"stale fencing token\",\"seen\":34,\"got\":33}\n"
    );
    assert_eq!(
        put(at, "/r/orders%2F42", 34, b"by B again").await.status,
        409,
        "a fence is good for one write"
    );

    let reply = get(at, "/r/orders/42").await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.json(),
        json!({"key": "orders/42", "value": "by B", "max_fence": 34})
    );
    assert_eq!(metric(at, "resource_stale_token_rejections_total").await, 2);
    assert_eq!(metric(at, "resource_writes_accepted_total").await, 2);
    assert_eq!(metric(at, "resource_fence_violations_total").await, 0);
    assert_eq!(metric(at, "resource_fence_enforced").await, 1);
    assert_eq!(metric(at, "resource_keys").await, 1);
    service.stop().await;
}

#[tokio::test]
async fn with_fencing_off_the_stale_write_wins_and_is_counted() {
    let service = start(|settings| settings.enforcement = Enforcement::Off).await;
    let at = service.address;
    for (fence, value) in [
        (1, "by A"),
        (3, "by B"),
        (3, "by B again"),
        (2, "by A, late"),
    ] {
        assert_eq!(put(at, "/r/k", fence, value.as_bytes()).await.status, 200);
    }
    let state = get(at, "/r/k").await.json();
    assert_eq!(
        state,
        json!({"key": "k", "value": "by A, late", "max_fence": 3})
    );
    assert_eq!(
        metric(at, "resource_fence_violations_total").await,
        1,
        "only the one that ran backwards"
    );
    assert_eq!(metric(at, "resource_writes_accepted_total").await, 4);
    assert_eq!(metric(at, "resource_stale_token_rejections_total").await, 0);
    assert_eq!(metric(at, "resource_fence_enforced").await, 0);
}

#[tokio::test]
async fn at_least_lets_one_grant_write_often() {
    let service = start(|settings| settings.enforcement = Enforcement::On(Policy::AtLeast)).await;
    for _ in 0..3 {
        assert_eq!(put(service.address, "/r/k", 7, b"v").await.status, 200);
    }
    let reply = put(service.address, "/r/k", 6, b"v").await;
    assert_eq!(
        (reply.status, reply.json()["seen"].as_u64()),
        (409, Some(7))
    );
}

#[tokio::test]
async fn without_a_legible_fence_nothing_is_written() {
    let service = start(|_| ()).await;
    let at = service.address;
    let cases = [
        ("", "is missing"),
        ("X-Fence-Token: \r\n", "decimal digits"),
        ("X-Fence-Token: seven\r\n", "decimal digits"),
        ("X-Fence-Token: 0\r\n", "from 1"),
        ("X-Fence-Token: -1\r\n", "decimal digits"),
        ("X-Fence-Token: 18446744073709551616\r\n", "decimal digits"),
        ("X-Fence-Token: 1\r\nX-Fence-Token: 2\r\n", "more than one"),
    ];
    for (headers, message) in cases {
        let reply = send(at, "PUT", "/r/k", headers, b"v").await;
        assert_eq!(reply.status, 400, "{headers}");
        let error = reply.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains(message), "{headers}: {error}");
    }
    assert_eq!(get(at, "/r/k").await.status, 404);
    assert_eq!(
        metric(at, "resource_bad_token_rejections_total").await,
        cases.len() as u64
    );
}

#[tokio::test]
async fn bounds_are_answers() {
    let service = start(|settings| {
        settings.keys_max = 2;
        settings.bytes_max = 1500;
    })
    .await;
    let at = service.address;
    let longest = [b'v'; VALUE_BYTES_MAX];
    let reply = put(at, "/r/a", 1, &[&longest[..], b"!"].concat()).await;
    assert_eq!(
        (reply.status, reply.body.contains("at most 1000 bytes")),
        (413, true),
        "{reply:?}"
    );
    assert_eq!(
        put(at, &format!("/r/{}", "k".repeat(257)), 1, b"")
            .await
            .status,
        414
    );

    assert_eq!(put(at, "/r/a", 1, &longest).await.status, 200);
    assert_eq!(
        put(at, "/r/b", 1, &longest).await.status,
        507,
        "the bytes are used up"
    );
    assert_eq!(
        put(at, "/r/b", 1, b"").await.status,
        200,
        "a refused write has not used its fence"
    );
    let reply = put(at, "/r/c", 1, b"").await;
    assert_eq!(
        (reply.status, reply.body.contains("2 keys")),
        (507, true),
        "{reply:?}"
    );
    assert_eq!(
        put(at, "/r/a", 2, b"shorter").await.status,
        200,
        "known keys go on"
    );
    assert_eq!(metric(at, "resource_full_rejections_total").await, 2);

    let busy = start(|settings| settings.writes_max = 0).await;
    assert_eq!(put(busy.address, "/r/a", 1, b"").await.status, 503);
}

#[tokio::test]
async fn keys_and_values_are_bytes() {
    let service = start(|_| ()).await;
    let at = service.address;
    assert_eq!(put(at, "/r/%ff/", 1, b"\x00\xfe").await.status, 200);
    let state = get(at, "/r/%FF/").await.json();
    assert_eq!(state["key_hex"], "ff2f");
    assert_eq!(state["value_hex"], "00fe");
    assert_eq!(
        put(at, "/r/", 1, b"the key without bytes").await.status,
        200
    );
    assert_eq!(
        get(at, "/r/").await.json()["value"],
        "the key without bytes"
    );
    // Two spellings, one key: or the second one would go around the fence.
    assert_eq!(put(at, "/r/%61", 5, b"").await.status, 200);
    assert_eq!(put(at, "/r/a", 5, b"").await.status, 409);
}

#[tokio::test]
async fn other_paths_and_methods_are_told_so() {
    let service = start(|_| ()).await;
    let at = service.address;
    assert_eq!(get(at, "/").await.status, 404);
    assert_eq!(get(at, "/healthz").await.body, "ok\n");
    assert_eq!(
        send(at, "DELETE", "/r/k", "X-Fence-Token: 1\r\n", b"")
            .await
            .status,
        405
    );
    assert_eq!(
        send(at, "POST", "/r/k", "X-Fence-Token: 1\r\n", b"")
            .await
            .status,
        405
    );
}

/// Of the writes that were accepted, the one with the highest fence took effect last, and no fence
/// was accepted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_over_sockets_leave_the_value_of_the_highest_fence() {
    let dir = tempfile::TempDir::new().unwrap();
    let service = start(|settings| settings.data_dir = Some(dir.path().to_owned())).await;
    let at = service.address;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let mut random = fastrand::Rng::with_seed(seed + writer);
            tokio::spawn(async move {
                let mut accepted = BTreeMap::new();
                for step in 0..40 {
                    let fence = 1 + step + random.u64(..10);
                    let value = format!("{fence} by {writer}");
                    let reply = put(at, "/r/hot", fence, value.as_bytes()).await;
                    match reply.status {
                        200 => drop(accepted.insert(fence, value)),
                        409 => assert!(reply.json()["seen"].as_u64().unwrap() >= fence),
                        _ => panic!("{reply:?}"),
                    }
                }
                accepted
            })
        })
        .collect();
    let mut accepted = BTreeMap::new();
    for writer in writers {
        for (fence, value) in writer.await.unwrap() {
            assert_eq!(
                accepted.insert(fence, value),
                None,
                "fence {fence} was accepted twice"
            );
        }
    }
    let state = get(at, "/r/hot").await.json();
    let (fence, value) = accepted.last_key_value().unwrap();
    assert_eq!(
        state,
        json!({"key": "hot", "value": value, "max_fence": fence})
    );
    assert_eq!(
        metric(at, "resource_writes_accepted_total").await,
        accepted.len() as u64
    );
    service.stop().await;

    let again = start(|settings| settings.data_dir = Some(dir.path().to_owned())).await;
    assert_eq!(get(again.address, "/r/hot").await.json(), state);
}

/// The page described counters under one name and counted them under another, so that Prometheus's
/// own checker found no help for any of them.
#[tokio::test]
async fn every_metric_has_help_and_the_alert_rules_name_only_these() {
    let service = start(|_| ()).await;
    let page = get(service.address, "/metrics").await.body;
    let mut lines = page.lines();
    let mut known = Vec::new();
    while let Some(line) = lines.next() {
        let (name, help) = line
            .strip_prefix("# HELP ")
            .unwrap()
            .split_once(' ')
            .unwrap();
        assert!(help.len() > 5, "{line}");
        let kind = lines
            .next()
            .unwrap()
            .strip_prefix(&format!("# TYPE {name} "))
            .unwrap();
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} {kind}");
        assert_eq!(
            lines.next().unwrap(),
            format!("{name} {}", u64::from(name.contains("enforced")))
        );
        known.push(name);
    }
    assert_eq!(known.len(), 11);
    let rules = include_str!("../../../deploy/prometheus/alerts.yml");
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let named: Vec<&str> = words.filter(|word| word.starts_with("resource_")).collect();
    assert_eq!(named.len(), 2);
    for name in named {
        assert!(known.contains(&name), "{name} is not on the page");
    }
    service.stop().await;
}
