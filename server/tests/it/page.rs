//! The operator's page and the paths that it alone asks for, spoken by hand. `browser.rs` looks at
//! it as an operator does.

use crate::common::{Peer, acquire, lost, start_with, until};
use crate::durable;
use crate::guarded::{self as rights, Guarded};
use crate::http::{Answer, ask, free_port, get, get_as, http_addr, speak, start_with_http};
use protocol::{LostReason, Reply};
use serde_json::{Value, json};
use server::config::Durability;
use std::net::SocketAddr;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Every file that the page names, and the page itself.
fn files(server: &server::Server) -> Vec<(String, Answer)> {
    let page = get(server, "/ui/");
    let mut files = vec![("/ui/".to_owned(), page)];
    let mut index = 0;
    while index < files.len() {
        let body = files[index].1.body.clone();
        // Attributes of the page, and imports of scripts.
        let named = body.split(['"', '\'']).filter(|text| {
            let name = text.strip_prefix("./").unwrap_or(text);
            let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
            is_name
                && [".js", ".css", ".svg"]
                    .iter()
                    .any(|end| name.ends_with(end))
        });
        for name in named {
            let path = format!("/ui/{}", name.trim_start_matches("./"));
            if files.iter().all(|(known, _)| *known != path) {
                files.push((path.clone(), get(server, &path)));
            }
        }
        index += 1;
    }
    files
}

#[test]
fn the_page_and_all_it_names_are_served_with_their_types_and_a_strict_policy() {
    let server = start_with_http();
    let files = files(&server);
    assert!(files.len() >= 8, "{} files", files.len());
    for (path, answer) in &files {
        assert_eq!(answer.status, 200, "{path}");
        let content_type = match path.rsplit('.').next().expect("a path") {
            "js" => "text/javascript",
            "css" => "text/css",
            "svg" => "image/svg+xml",
            _ => "text/html",
        };
        for header in [
            &*format!("content-type: {content_type}"),
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self';",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(
                answer.head.contains(header),
                "{path}: {header}: {}",
                answer.head
            );
        }
        assert!(!answer.head.contains("unsafe-inline"), "{path}");
        assert!(!answer.head.contains("set-cookie"), "{path}");
        let names_others = ["http://", "https://", "//cdn"].iter().any(|text| {
            let others = answer.body.matches(text).count();
            others > answer.body.matches("http://www.w3.org/2000/svg").count()
        });
        assert!(!names_others, "{path} names another server");
    }
    // What is JSON is no page either.
    assert!(get(&server, "/locks").head.contains("default-src 'none'"));
}

#[test]
fn a_browser_is_sent_to_the_page_and_other_clients_get_the_paths() {
    let server = start_with_http();
    let browser = get_as(&server, "/", "text/html,application/xhtml+xml,*/*;q=0.8");
    assert_eq!(browser.status, 303);
    assert!(browser.head.contains("location: ui/"), "{browser:?}");
    assert!(browser.head.contains("vary: accept"), "{browser:?}");
    assert_eq!(get(&server, "/ui").status, 303);
    assert!(get_as(&server, "/", "*/*").body.contains("/ui/"));
    assert_eq!(get(&server, "/ui/nothing.js").status, 404);
}

#[test]
fn the_page_needs_no_token_and_shows_nothing_without_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, TOKEN).unwrap();
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let server = start_with(|builder| {
        let builder = builder.http(everywhere);
        builder.with(|config| config.auth_token_file = Some(file.clone()))
    });
    let address = SocketAddr::from(([127, 0, 0, 1], http_addr(&server).port()));
    let status = |path, headers| {
        ask(address, "GET", path, headers)
            .expect("an answer")
            .status
    };
    for path in ["/ui", "/ui/", "/ui/page.js", "/ui/page.css"] {
        assert!(matches!(status(path, ""), 200 | 303), "{path}");
    }
    assert_eq!(status("/", "Accept: text/html\r\n"), 303);
    let shown = format!("Authorization: Bearer {TOKEN}\r\n");
    for path in ["/stats", "/locks", "/locks/?key=k"] {
        assert_eq!(status(path, ""), 401, "{path}");
        assert_ne!(status(path, &shown), 401, "{path}");
    }
}

#[test]
fn a_key_that_no_path_can_carry_is_found_by_a_query() {
    let server = start_with_http();
    let mut peer = Peer::connect(server.local_addr(), "a");
    for (key, query) in [("..", "%2e%2e"), (".", "."), ("a b&c=d", "a+b%26c%3Dd")] {
        let fence = peer.acquire(key, 60_000);
        let lock = get(&server, &format!("/locks/?key={query}")).json();
        assert_eq!(
            (&lock["key"], &lock["last_fence"]),
            (&json!(key), &json!(fence))
        );
    }
    for query in ["", "?", "?kye=a", "?key", "?key=a&limit=1"] {
        let answer = get(&server, &format!("/locks/{query}"));
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
    }
}

#[test]
fn stats_say_how_the_server_is_and_what_it_has_counted() {
    let server = start_with_http();
    let mut peer = Peer::connect(server.local_addr(), "a");
    peer.acquire("k", 60_000);
    let stats = get(&server, "/stats").json();
    assert_eq!(stats["readiness"], json!({"ready": true, "granting": true}));
    assert_eq!(stats["durability"], "none");
    assert_eq!(stats["numbers"]["held"], 1);
    assert_eq!(stats["numbers"]["acquire_grants_total"], 1);
    for name in ["acquire_wait", "expiry_lag"] {
        let histogram = &stats["histograms"][name];
        let bounds = histogram["bounds_seconds"].as_array().expect("bounds");
        assert_eq!(
            bounds.len(),
            histogram["counts"].as_array().expect("counts").len()
        );
        assert_eq!(
            (&bounds[0], bounds.last()),
            (&json!(0.001), Some(&Value::Null))
        );
    }
    let waits = stats["histograms"]["acquire_wait"]["counts"].as_array();
    let waits: u64 = waits
        .expect("counts")
        .iter()
        .filter_map(Value::as_u64)
        .sum();
    assert_eq!(waits, 1);
}

/// Asks for a lock to be taken away, with these headers.
fn force(server: &server::Server, key: &str, fence: u64, headers: &str) -> Answer {
    let path = format!("/force-release?key={key}&fence={fence}");
    let headers = format!("{headers}Content-Length: 0\r\n");
    ask(http_addr(server), "POST", &path, &headers).expect("an answer")
}

/// As a program sends it.
const MEANT: &str = "X-Fencepost-Operator: 1\r\n";

fn bearer(name: &str) -> String {
    format!("{MEANT}Authorization: Bearer {}\r\n", rights::token(name))
}

/// Like `force`, under the name that a browser or curl would use.
fn force_here(server: &server::Server, key: &str, fence: u64, headers: &str) -> Answer {
    let address = http_addr(server);
    let request = format!(
        "POST /force-release?key={key}&fence={fence} HTTP/1.1\r\nHost: {address}\r\n\
         Connection: close\r\nContent-Length: 0\r\n{headers}\r\n"
    );
    speak(address, &request).expect("an answer")
}

/// Asks under the name of a host, which a web site can have resolve to this machine.
fn ask_as(host: &str, server: &server::Server, method: &str, path: &str) -> Answer {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n{MEANT}\r\n"
    );
    speak(http_addr(server), &request).expect("an answer")
}

#[test]
fn a_web_site_that_names_itself_like_this_machine_sees_nothing() {
    let server = start_with(|builder| builder.http(free_port()));
    let mut holder = Peer::connect(server.local_addr(), "holder");
    holder.acquire("secret", 60_000);
    for path in [
        "/",
        "/metrics",
        "/stats",
        "/contended",
        "/sessions",
        "/locks",
        "/locks/secret",
        "/history?key=secret",
        "/cluster",
        "/nothing",
    ] {
        let seen = ask_as("evil.example:7401", &server, "GET", path);
        assert_eq!(seen.status, 403, "{path}: {seen:?}");
        assert!(seen.error().contains("localhost"), "{path}: {seen:?}");
    }
    let probe = ask_as("evil.example:7401", &server, "GET", "/healthz");
    assert_eq!(probe.status, 200, "probes tell nothing: {probe:?}");
    for host in ["localhost", "127.0.0.1:7401", "[::1]:7401"] {
        let seen = ask_as(host, &server, "GET", "/locks/secret");
        assert_eq!(seen.status, 200, "{host}: {seen:?}");
    }
    let refused = ask_as("localhost", &server, "GET", "/metrics").body;
    let count = refused
        .lines()
        .find_map(|line| line.strip_prefix("fencepost_refused_rights_total "));
    assert_eq!(count, Some("10"));
    server.shutdown();
}

#[test]
fn a_server_without_tokens_lets_its_own_machine_take_locks_away_and_no_web_site() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit");
    let server = start_with(|builder| {
        let builder = builder.http(free_port());
        builder.with(|config| config.audit_log = Some(log.clone()))
    });
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let mut observer = Peer::connect(server.local_addr(), "observer");
    let fence = holder.acquire("k", 60_000);
    let own = format!("Origin: http://{}\r\n", http_addr(&server));
    for (headers, word) in [
        ("", "X-Fencepost-Operator"),
        ("X-Fencepost-Operator: yes\r\n", "X-Fencepost-Operator"),
        (&*own, "X-Fencepost-Operator"),
        (
            &*format!("{MEANT}Origin: http://evil.example\r\n"),
            "another site",
        ),
        (&*format!("{MEANT}Origin: null\r\n"), "another site"),
        (
            &*format!("{MEANT}Sec-Fetch-Site: cross-site\r\n"),
            "another site",
        ),
    ] {
        let answer = force_here(&server, "k", fence, headers);
        assert_eq!(answer.status, 403, "{headers}: {answer:?}");
        assert!(answer.error().contains(word), "{headers}: {answer:?}");
    }
    // Under a name that another site can have.
    let rebound = ask_as(
        "evil.example",
        &server,
        "POST",
        &format!("/force-release?key=k&fence={fence}"),
    );
    assert_eq!(rebound.status, 403, "{rebound:?}");
    assert!(rebound.error().contains("localhost"), "{rebound:?}");
    assert!(observer.is_held_under("k", fence), "nothing has happened");

    for (key, fence, status) in [
        ("k", fence + 1, 409),
        ("other", fence, 409),
        ("k", 0, 400),
        ("", fence, 400),
    ] {
        let answer = force_here(&server, key, fence, MEANT);
        assert_eq!(answer.status, status, "{key} {fence}: {answer:?}");
    }
    for path in [
        "/force-release",
        "/force-release?key=k",
        "/force-release?key=k&fence=x",
    ] {
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{MEANT}\r\n");
        let answer = speak(http_addr(&server), &request).expect("an answer");
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
    }
    assert_eq!(get(&server, "/force-release?key=k&fence=1").status, 405);
    assert!(observer.is_held_under("k", fence), "nothing has happened");

    let done = force_here(&server, "k", fence, &format!("{MEANT}{own}"));
    assert_eq!(
        (done.status, done.json()),
        (200, json!({"released": true, "fence": fence}))
    );
    assert_eq!(holder.push(), lost("k", fence, LostReason::FORCED));
    assert!(!observer.is_held_under("k", fence));
    let again = force_here(&server, "k", fence, MEANT);
    assert_eq!(again.status, 409, "{again:?}");
    server.shutdown();
    let lines = std::fs::read_to_string(&log).unwrap();
    let forced = lines
        .lines()
        .find(|line| line.contains("\"event\":\"force\""));
    let forced: Value = serde_json::from_str(forced.expect("a line says so")).unwrap();
    assert_eq!(
        (&forced["key"], &forced["fence"]),
        (&json!("k"), &json!(fence))
    );
    assert!(
        forced["address"]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.1:")
    );
}

#[test]
fn a_lock_is_taken_away_with_the_role_and_within_its_prefixes_only() {
    let text = rights::entry("locker", "roles = [\"lock\"]")
        + &rights::entry("viewer", "roles = [\"read\"]")
        + &rights::entry("orders", "roles = [\"operate\"]\nprefixes = [\"orders/\"]");
    let guarded = Guarded::start(&text);
    let server = &guarded.server;
    let mut holder = guarded.native("locker");
    let inside = holder.acquire("orders/1", 60_000);
    let outside = holder.acquire("other", 60_000);
    // From the own machine too.
    assert_eq!(force_here(server, "orders/1", inside, MEANT).status, 401);
    for (name, key, fence) in [
        ("locker", "orders/1", inside),
        ("viewer", "orders/1", inside),
        ("orders", "other", outside),
    ] {
        let answer = force(server, key, fence, &bearer(name));
        assert_eq!(answer.status, 403, "{name}: {answer:?}");
        assert!(answer.error().contains("operate"), "{name}: {answer:?}");
    }
    // A token makes up for the name of the host, and not for the header.
    let bare = format!("Authorization: Bearer {}\r\n", rights::token("orders"));
    assert_eq!(force(server, "orders/1", inside, &bare).status, 403);
    assert_eq!(
        force(server, "orders/1", inside, &bearer("orders")).status,
        200
    );
    assert_eq!(holder.push(), lost("orders/1", inside, LostReason::FORCED));
    assert!(holder.release("other", outside), "it was left alone");
}

#[test]
fn a_lock_that_was_taken_away_over_http_is_not_back_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let server = start_with(|builder| {
        builder.http(free_port()).with(|config| {
            config.data_dir = directory.path().to_owned();
            config.durability = Durability::Lease;
        })
    });
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let kept = holder.acquire("kept", 60_000);
    let taken = holder.acquire("taken", 60_000);
    assert_eq!(force_here(&server, "taken", taken, MEANT).status, 200);
    // What is on the disk by now is what a crash would leave.
    let left = durable::wreck(directory.path());
    drop(server);
    let server = durable::on(left.path(), Durability::Lease);
    let mut observer = Peer::connect(server.local_addr(), "observer");
    assert!(observer.is_held_under("kept", kept));
    assert!(!observer.is_held_under("taken", taken));
}

#[test]
fn contended_keys_are_those_that_acquires_waited_for_or_were_refused_for() {
    let server = start_with_http();
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let mut other = Peer::connect(server.local_addr(), "other");
    assert_eq!(get(&server, "/contended").json(), json!({"keys": []}));
    holder.acquire("calm", 60_000);
    holder.acquire("warm", 60_000);
    holder.acquire("hot", 60_000);
    for (key, times) in [("warm", 2), ("hot", 5)] {
        for _ in 0..times {
            other.ask(&acquire(key, 1_000, 0), |reply| {
                assert!(matches!(reply, Reply::Refused(_)), "{reply:?}");
            });
        }
    }
    other.send(&acquire("hot", 1_000, 60_000));
    other.ping();
    let contended = get(&server, "/contended").json();
    let keys = contended["keys"].as_array().expect("keys");
    let names: Vec<_> = keys
        .iter()
        .map(|key| key["key"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["hot", "warm"]);
    assert_eq!(keys[0]["queue_length"], 1);
    assert_eq!(keys[0]["holders"][0]["client_name"], "holder");
    let [hot, warm] = [0, 1].map(|index| keys[index]["per_second"].as_f64().unwrap());
    assert!((2.9..3.1).contains(&(hot / warm)), "{hot} {warm}");
}

#[test]
fn sessions_are_listed_in_pages_and_found_by_a_part_of_their_name() {
    let server = start_with_http();
    let peers: Vec<Peer> = (0..25)
        .map(|number| Peer::connect(server.local_addr(), &format!("worker-{number}")))
        .collect();
    let mut odd = Peer::connect(server.local_addr(), "odd one");
    odd.acquire("k", 60_000);
    let mut names = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/sessions?name=worker&limit=7&cursor={cursor}");
        let page = get(&server, &path).json();
        let sessions = page["sessions"].as_array().expect("sessions");
        assert!(sessions.len() <= 7);
        let name = |session: &Value| session["client_name"].as_str().unwrap().to_owned();
        names.extend(sessions.iter().map(name));
        match page["next"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    names.sort();
    let mut expected: Vec<String> = (0..25).map(|number| format!("worker-{number}")).collect();
    expected.sort();
    assert_eq!(names, expected);
    let found = get(&server, "/sessions?name=odd+o").json();
    let session = &found["sessions"][0];
    assert_eq!(session["lock_count"], 1);
    assert_eq!(session["connection_count"], 1);
    assert!(
        session["address"]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.1:")
    );
    for query in ["limit=0", "cursor=x", "nmae=a", "name=%ff"] {
        assert_eq!(
            get(&server, &format!("/sessions?{query}")).status,
            400,
            "{query}"
        );
    }
    drop(peers);
}

#[test]
fn the_past_of_a_key_is_read_from_the_audit_log() {
    let silent = start_with_http();
    let none = get(&silent, "/history?key=k");
    assert_eq!(none.json(), json!({"is_logged": false}));
    for query in ["", "?key=", "?kye=k"] {
        assert_eq!(
            get(&silent, &format!("/history{query}")).status,
            400,
            "{query}"
        );
    }
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit");
    let server = start_with(|builder| {
        let builder = builder.http(free_port());
        builder.with(|config| config.audit_log = Some(log.clone()))
    });
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let first = holder.acquire("k", 60_000);
    assert!(holder.release("k", first));
    let second = holder.acquire("k", 60_000);
    holder.acquire("other", 60_000);
    assert_eq!(force_here(&server, "k", second, MEANT).status, 200);
    // The log is written a moment later.
    let told = || {
        let history = get(&server, "/history?key=k").json();
        let entries = history["entries"].as_array().expect("entries").clone();
        let lines = entries.iter().filter(|entry| entry["key"] == "k");
        let told = lines.map(|entry| {
            let event = entry["event"].as_str().unwrap().to_owned();
            (event, entry["fence"].as_u64().unwrap())
        });
        told.collect::<Vec<_>>()
    };
    until("all of it is in the log", || told().len() == 5);
    let mut told = told();
    told.sort_by_key(|(_, fence)| *fence);
    let expected = [
        ("grant", first),
        ("release", first),
        ("grant", second),
        ("force", second),
        ("loss", second),
    ];
    for (event, fence) in expected {
        assert!(
            told.contains(&(event.to_owned(), fence)),
            "{event}: {told:?}"
        );
    }
}
