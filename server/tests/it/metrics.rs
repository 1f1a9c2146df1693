//! The metrics page: read by a parser that forgives nothing, and compared with what was done.

use crate::common::{
    OwnedPush, Peer, acquire, force_release, granted, start_with, wire_fence, wire_key,
};
use crate::http::{free_port, get, get_as, start_with_http};
use protocol::{Acquire, BusyBound, Lease, Metadata, Reply, Request};
use server::Server;
use std::collections::{BTreeMap, BTreeSet};

/// One family: what it says about itself, and its samples by name and labels, as they stand on the
/// page.
#[derive(Debug, Default)]
struct Family {
    help: String,
    kind: String,
    unit: Option<String>,
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

/// Reads a page of the OpenMetrics text format. Panics at the first thing that is not as the format
/// wants it.
#[track_caller]
fn parse(page: &str) -> BTreeMap<String, Family> {
    let body = page.strip_suffix("# EOF\n").expect("the page has an end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in body.lines() {
        assert_eq!(line, line.trim(), "no spaces around a line");
        if let Some(comment) = line.strip_prefix("# ") {
            let (word, rest) = comment.split_once(' ').expect("a comment of three words");
            let (name, text) = rest.split_once(' ').expect("a comment of three words");
            if name != current {
                assert_eq!(word, "HELP", "a family begins with its help: {line}");
                let known = families.insert(name.to_owned(), Family::default());
                assert!(known.is_none(), "{name} stands on the page twice");
                current = name.to_owned();
            }
            let family = families.get_mut(&current).expect("inserted above");
            assert!(family.samples.is_empty(), "{line} comes too late");
            match word {
                "HELP" => family.help = text.to_owned(),
                "TYPE" => family.kind = text.to_owned(),
                "UNIT" => family.unit = Some(text.to_owned()),
                other => panic!("a comment {other:?}"),
            }
        } else {
            let family = families.get_mut(&current).expect("a family comes first");
            family.samples.push(sample(line));
        }
    }
    for (name, family) in &families {
        check(name, family);
    }
    families
}

fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let value = value.parse().expect("a number");
    let Some((name, labels)) = series.split_once('{') else {
        return (series.to_owned(), BTreeMap::new(), value);
    };
    let labels = labels.strip_suffix('}').expect("labels end");
    let mut map = BTreeMap::new();
    for pair in labels.split(',') {
        let (label, quoted) = pair.split_once('=').expect("a label has a value");
        let value = quoted
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .expect("values are quoted");
        assert!(!value.contains(['"', '\\']), "nothing here needs escapes");
        let known = map.insert(label.to_owned(), value.to_owned());
        assert!(known.is_none(), "{label} twice in {line}");
    }
    (name.to_owned(), map, value)
}

fn check(name: &str, family: &Family) {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_known = ["fencepost_", "process_"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    assert!(is_known && name.chars().all(is_word), "{name}");
    assert!(family.help.len() > 5, "{name} needs more help than that");
    assert!(!family.samples.is_empty(), "{name} has no samples");
    if let Some(unit) = &family.unit {
        assert!(name.ends_with(&format!("_{unit}")), "{name} in {unit}");
    }
    let mut seen = BTreeSet::new();
    for (series, labels, value) in &family.samples {
        assert!(seen.insert((series, labels)), "{series} {labels:?} twice");
        assert!(value.is_finite() && *value >= 0.0, "{series} is {value}");
        let suffix = series.strip_prefix(name).expect("a sample of its family");
        let allowed: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("{name} is a {other:?}"),
        };
        assert!(allowed.contains(&suffix), "{series} in a {}", family.kind);
        assert_eq!(suffix == "_bucket", labels.contains_key("le"), "{series}");
    }
    if family.kind == "histogram" {
        check_histogram(name, family);
    }
}

fn check_histogram(name: &str, family: &Family) {
    let mut spreads: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
    for (series, labels, value) in &family.samples {
        if series.ends_with("_bucket") {
            let mut labels = labels.clone();
            let bound = labels.remove("le").expect("checked above");
            let bound = match bound.as_str() {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().expect("a bound is a number"),
            };
            spreads.entry(labels).or_default().push((bound, *value));
        }
    }
    for (labels, buckets) in spreads {
        for pair in buckets.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{name}: bounds rise");
            assert!(pair[0].1 <= pair[1].1, "{name}: counts add up");
        }
        let (bound, all) = *buckets.last().expect("not empty");
        assert_eq!(bound, f64::INFINITY, "{name} ends with infinity");
        let find = |suffix: &str| {
            let series = format!("{name}{suffix}");
            family
                .samples
                .iter()
                .find(|(other, others, _)| *other == series && *others == labels)
                .unwrap_or_else(|| panic!("{series} {labels:?} is missing"))
                .2
        };
        assert_eq!(find("_count"), all, "{name}");
        find("_sum");
    }
}

/// A scrape.
struct Page(BTreeMap<String, Family>);

impl Page {
    #[track_caller]
    fn read(server: &Server) -> Page {
        let answer = get_as(server, "/metrics", "application/openmetrics-text");
        assert_eq!(answer.status, 200);
        let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert!(answer.head.contains(kind), "{}", answer.head);
        Page(parse(&answer.body))
    }

    /// The value of a series like `fencepost_busy_total{bound="keys"}`.
    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        let (name, labels, _) = sample(&format!("{series} 0"));
        let mut samples = self.0.values().flat_map(|family| &family.samples);
        let found = samples.find(|(other, others, _)| *other == name && *others == labels);
        found.unwrap_or_else(|| panic!("{series} is not there")).2
    }
}

/// Classic text as OpenMetrics: what differs is how counters and facts are called, units, and the
/// end.
fn as_openmetrics(page: &str) -> String {
    let mut open = String::new();
    let mut suffix = "";
    for line in page.lines() {
        assert!(
            !line.starts_with("# UNIT") && !line.starts_with("# EOF"),
            "{line}"
        );
        if let Some(described) = line.strip_prefix("# HELP ") {
            let name = described.split(' ').next().unwrap();
            suffix = ["_total", "_info"]
                .into_iter()
                .find(|end| name.ends_with(end))
                .unwrap_or("");
        }
        let line = match line.split_once(&format!("{suffix} ")) {
            Some((name, rest)) if line.starts_with('#') => format!("{name} {rest}"),
            _ => line.to_owned(),
        };
        let line = match suffix {
            "_info" if line.starts_with("# TYPE") => line.replace(" gauge", " info"),
            _ => line,
        };
        open.push_str(&line);
        open.push('\n');
    }
    open + "# EOF\n"
}

/// `/metrics` was OpenMetrics whatever was asked for: a type that classic Prometheus text does not
/// know, and counters that were described under one name and counted under another.
#[test]
fn who_asks_for_nothing_else_gets_classic_text() {
    let server = start_with_http();
    Peer::connect(server.local_addr(), "peer").acquire("k", 60_000);
    for answer in [
        get(&server, "/metrics"),
        get_as(&server, "/metrics", "*/*"),
        get_as(&server, "/metrics", "text/plain;version=0.0.4"),
    ] {
        let kind = "content-type: text/plain; version=0.0.4; charset=utf-8";
        assert!(answer.head.contains(kind), "{}", answer.head);
        for line in answer.body.lines() {
            if let Some(described) = line.strip_prefix("# TYPE ") {
                let (name, kind) = described.split_once(' ').unwrap();
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            }
        }
        // And the rest is as well formed as the other page.
        let page = Page(parse(&as_openmetrics(&answer.body)));
        assert_eq!(page.value("fencepost_acquire_grants_total"), 1.0);
    }
}

#[test]
fn the_page_of_an_idle_server_is_complete_and_well_formed() {
    let server = start_with_http();
    let page = Page::read(&server);
    for series in [
        "fencepost_acquire_attempts_total",
        "fencepost_acquire_grants_total",
        "fencepost_acquire_refusals_total",
        "fencepost_acquire_timeouts_total",
        "fencepost_acquire_cancels_total",
        "fencepost_busy_total{bound=\"bytes\"}",
        "fencepost_acquire_wait_seconds_count",
        "fencepost_lock_held_seconds_count{ended=\"released\"}",
        "fencepost_renewals_total",
        "fencepost_renewals_failed_total",
        "fencepost_release_by_non_owner_total",
        "fencepost_leases_lost_total{reason=\"expired\"}",
        "fencepost_expiry_lag_seconds_count",
        "fencepost_keys",
        "fencepost_locks_held",
        "fencepost_waiters",
        "fencepost_sessions",
        "fencepost_connections",
        "fencepost_oldest_lock_age_seconds",
        "fencepost_fullest_shard_keys",
        "fencepost_hand_off_seconds_count",
        "fencepost_request_time_seconds_count",
        "fencepost_received_bytes_total",
        "fencepost_sent_bytes_total",
        "fencepost_audit_dropped_total",
    ] {
        assert_eq!(page.value(series), 0.0, "{series}");
    }
    assert!(page.value("fencepost_start_time_seconds") > 1.7e9);
    assert!(page.value("process_resident_memory_bytes") > 1e6);
    assert!(page.value("process_virtual_memory_bytes") > 1e6);
    assert!(page.value("process_cpu_seconds_total") > 0.0);
    assert!(page.value("process_start_time_seconds") > 1.7e9);
    assert!(page.value("process_open_fds") > 1.0);
    assert!(page.value("process_max_fds") > 1.0);
    assert_eq!(page.value("fencepost_cores"), 2.0);
    assert_eq!(page.value("fencepost_limit{bound=\"keys\"}"), 16_777_216.0);
    let (_, labels, _) = &page.0["fencepost_build"].samples[0];
    assert_eq!(labels["version"], env!("CARGO_PKG_VERSION"));
    // What clients choose must not multiply series.
    let labels: BTreeSet<&str> = page
        .0
        .values()
        .flat_map(|family| &family.samples)
        .flat_map(|(_, labels, _)| labels.keys().map(String::as_str))
        .collect();
    let known = ["bound", "ended", "le", "protocol", "reason", "version"];
    assert_eq!(labels, BTreeSet::from(known));
}

#[test]
fn the_page_counts_what_was_done() {
    let server = start_with_http();
    let mut a = Peer::connect(server.local_addr(), "a");
    let mut b = Peer::connect(server.local_addr(), "b");
    let renew = |fence| Request::Renew {
        key: wire_key("k"),
        fence: wire_fence(fence),
        lease: Lease::Ttl { ttl_ms: 60_000 },
    };

    let first = a.acquire("k", 60_000);
    b.ask(&acquire("k", 60_000, 0), |reply| {
        assert!(matches!(reply, Reply::Refused(_)), "{reply:?}");
    });
    b.ask(&acquire("k", 60_000, 1), |reply| {
        assert!(matches!(reply, Reply::TimedOut(_)), "{reply:?}");
    });
    let cancelled = b.send(&acquire("k", 60_000, 60_000));
    let acquire_id = protocol::RequestId::new(cancelled);
    b.ask(&Request::Cancel { acquire_id }, |reply| {
        assert_eq!(reply, Reply::Cancelled);
    });
    a.ask(&renew(first), |reply| {
        assert!(matches!(reply, Reply::Renewed { .. }), "{reply:?}");
    });
    b.ask(&renew(first), |reply| {
        assert!(matches!(reply, Reply::NotHeld { .. }), "{reply:?}");
    });
    assert!(!b.release("k", first));
    let waiting = b.send(&acquire("k", 60_000, 60_000));
    b.ask(&Request::Ping, |reply| assert_eq!(reply, Reply::Pong));
    let page = Page::read(&server);
    assert_eq!(page.value("fencepost_waiters"), 1.0);
    assert_eq!(page.value("fencepost_locks_held"), 1.0);
    assert!(a.release("k", first));
    let second = b.reply(waiting, granted);
    a.acquire("expires", 1);
    assert!(matches!(a.push(), OwnedPush::Lost { .. }));
    let force = force_release("k", second);
    a.ask(&force, |reply| {
        assert!(matches!(reply, Reply::Released { .. }), "{reply:?}");
    });

    let page = Page::read(&server);
    for (series, expected) in [
        ("fencepost_acquire_attempts_total", 6.0),
        ("fencepost_acquire_grants_total", 3.0),
        ("fencepost_acquire_refusals_total", 1.0),
        ("fencepost_acquire_timeouts_total", 1.0),
        ("fencepost_acquire_cancels_total", 1.0),
        ("fencepost_acquire_wait_seconds_count", 3.0),
        ("fencepost_renewals_total", 2.0),
        ("fencepost_renewals_failed_total", 1.0),
        ("fencepost_releases_total", 1.0),
        ("fencepost_release_by_non_owner_total", 1.0),
        ("fencepost_lock_held_seconds_count{ended=\"released\"}", 1.0),
        ("fencepost_lock_held_seconds_count{ended=\"lost\"}", 2.0),
        ("fencepost_leases_lost_total{reason=\"expired\"}", 1.0),
        ("fencepost_leases_lost_total{reason=\"forced\"}", 1.0),
        ("fencepost_leases_lost_total{reason=\"session_ended\"}", 0.0),
        ("fencepost_expiry_lag_seconds_count", 1.0),
        ("fencepost_hand_off_seconds_count", 1.0),
        ("fencepost_locks_held", 0.0),
        ("fencepost_waiters", 0.0),
        ("fencepost_keys", 2.0),
        ("fencepost_sessions", 2.0),
        ("fencepost_connections", 2.0),
        ("fencepost_oldest_lock_age_seconds", 0.0),
    ] {
        assert_eq!(page.value(series), expected, "{series}");
    }
    assert!(page.value("fencepost_received_bytes_total") > 100.0);
    // The first batch of a core is timed, and one of 64 after it.
    let timed = page.value("fencepost_request_time_seconds_count");
    let batches = page.value("fencepost_request_batches_total");
    assert!(1.0 <= timed && timed <= batches, "{timed} of {batches}");
}

/// A page had 32 series for each core, which no reader looked at.
#[test]
fn shards_have_series_for_a_reader_that_asks() {
    let server = start_with_http();
    let mut a = Peer::connect(server.local_addr(), "a");
    a.acquire("k", 60_000);
    a.acquire("l", 60_000);
    let page = Page::read(&server);
    assert!(!page.0.contains_key("fencepost_shard_keys"));
    assert!([1.0, 2.0].contains(&page.value("fencepost_fullest_shard_keys")));

    let answer = get(&server, "/metrics?shards");
    let page = Page(parse(&as_openmetrics(&answer.body)));
    let shards = &page.0["fencepost_shard_keys"].samples;
    assert_eq!(shards.len() as f64, page.value("fencepost_shards"));
    let keys: f64 = shards.iter().map(|(_, _, keys)| keys).sum();
    assert_eq!(keys, 2.0);

    let answer = get(&server, "/metrics?shard");
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("shards"), "{}", answer.body);
}

#[test]
fn the_oldest_lock_grows_older_until_it_is_given_back() {
    let server = start_with_http();
    let mut a = Peer::connect(server.local_addr(), "a");
    let first = a.acquire("first", 60_000);
    let age = |server: &Server| Page::read(server).value("fencepost_oldest_lock_age_seconds");
    while age(&server) == 0.0 {}
    let second = a.acquire("second", 60_000);
    let both = age(&server);
    assert!(a.release("second", second));
    assert!(age(&server) >= both, "the younger one does not matter");
    assert!(a.release("first", first));
    assert_eq!(age(&server), 0.0);
}

/// Metadata up to the cap, then a clear answer; and holders can keep their locks and give them
/// back.
#[test]
fn at_the_cap_of_bytes_renewals_releases_and_plain_locks_go_on() {
    let server = start_with(|builder| {
        builder
            .http(free_port())
            .with(|config| config.bytes_max = 1 << 20)
    });
    let mut a = Peer::connect(server.local_addr(), "a");
    let lease = Lease::Ttl { ttl_ms: 60_000 };
    let metadata = [b'm'; 256];
    let mut grants = Vec::new();
    let bound = loop {
        let key = format!("k{}", grants.len());
        let request = Request::Acquire(Acquire {
            metadata: Metadata::new(&metadata).expect("as long as it may be"),
            ..Acquire::exclusive(wire_key(&key), lease)
        });
        let granted = a.ask(&request, |reply| match reply {
            Reply::Granted { fence, .. } => Ok(fence),
            Reply::Busy { bound, .. } => Err(bound),
            other => panic!("{other:?}"),
        });
        match granted {
            Ok(fence) => grants.push((key, fence)),
            Err(bound) => break bound,
        }
    };
    assert_eq!(bound, BusyBound::MEMORY);
    let page = Page::read(&server);
    assert_eq!(page.value("fencepost_busy_total{bound=\"bytes\"}"), 1.0);
    let stored_bytes = page.value("fencepost_stored_bytes");
    assert_eq!(stored_bytes, (grants.len() * 256) as f64);
    assert!(stored_bytes <= page.value("fencepost_limit{bound=\"bytes\"}"));

    let plain = a.acquire("plain", 60_000);
    assert!(a.release("plain", plain));
    let (key, fence) = &grants[0];
    let renew = Request::Renew {
        key: wire_key(key),
        fence: *fence,
        lease,
    };
    a.ask(&renew, |reply| {
        assert!(matches!(reply, Reply::Renewed { .. }), "{reply:?}");
    });
    for (key, fence) in &grants {
        assert!(a.release(key, fence.get()));
    }
    assert_eq!(Page::read(&server).value("fencepost_stored_bytes"), 0.0);
}
