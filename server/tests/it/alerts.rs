//! The rules and the dashboard of `deploy/` speak of metrics that a real server has, and
//! Prometheus's own checker finds no fault with either.

use crate::common::{Peer, start_with};
use crate::http::{ask, free_port, get_at, http_addr};
use crate::nodes::Nodes;
use server::config::TlsPorts;
use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tls::issue::Authority;

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(file)
}

/// The names in a text that begin with one of these prefixes.
fn names<'a>(text: &'a str, prefixes: &[&str]) -> BTreeSet<&'a str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_part(c))
        .filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)))
        .collect()
}

/// One page of metrics in both formats.
struct Scraped {
    classic: String,
    open: String,
}

impl Scraped {
    fn of(address: SocketAddr) -> Scraped {
        let open = "Accept: application/openmetrics-text\r\n";
        let open = ask(address, "GET", "/metrics", open).expect("an answer");
        let kind = "content-type: application/openmetrics-text";
        assert!(open.head.contains(kind), "{}", open.head);
        Scraped {
            classic: get_at(address, "/metrics").body,
            open: open.body,
        }
    }
}

/// The pages of a server by itself, with a log, and of the node that leads a cluster. Both have
/// certificates: the one for clients of Redis, the other between nodes.
fn pages() -> [Scraped; 2] {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path(), "ca");
    let own = authority.issue("own");
    let server = start_with(|builder| {
        builder.http(free_port()).with(|config| {
            config.tls_cert_file = Some(own.cert.clone());
            config.tls_key_file = Some(own.key.clone());
            config.tls_ports = TlsPorts {
                native: false,
                redis: true,
                http: false,
            };
            config.redis_listen = Some(free_port());
        })
    });
    Peer::connect(server.local_addr(), "peer").acquire("k", 60_000);
    let nodes = Nodes::start_with(3, |config| {
        config.http = Some(free_port());
        config.peer_tls_ca_file = Some(authority.file().to_owned());
        config.peer_tls_cert_file = Some(own.cert.clone());
        config.peer_tls_key_file = Some(own.key.clone());
    });
    let leader = nodes.node(nodes.leader());
    let node = leader.http_addr().expect("it has HTTP");
    [http_addr(&server), node].map(Scraped::of)
}

/// Runs Prometheus's checker. Where there is none, says so: the package `prometheus` has it.
fn promtool(arguments: &[&str], input: &str) {
    let child = Command::new("promtool")
        .args(arguments)
        .current_dir(deploy("prometheus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            eprintln!(
                "NOT CHECKED: promtool {arguments:?} ({error}). Install the Debian package prometheus, which has it"
            );
            return;
        }
    };
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
}

/// The samples of a page with a time behind each.
fn with_times(page: &str) -> String {
    let mut timed = String::new();
    for line in page.lines() {
        timed.push_str(line);
        timed.push_str(if line.starts_with('#') {
            "\n"
        } else {
            " 1700000000\n"
        });
    }
    timed
}

#[test]
fn promtool_finds_no_fault_with_pages_and_rules() {
    for page in pages() {
        promtool(&["check", "metrics"], &page.classic);
        // It checks classic text only. What reads files of OpenMetrics is what reads a scrape of
        // it; it wants a time for each sample.
        let directory = tempfile::tempdir().unwrap();
        let [file, blocks] = ["page", "blocks"].map(|name| directory.path().join(name));
        std::fs::write(&file, with_times(&page.open)).unwrap();
        let [file, blocks] = [&file, &blocks].map(|path| path.to_str().unwrap());
        promtool(
            &["tsdb", "create-blocks-from", "openmetrics", file, blocks],
            "",
        );
    }
    promtool(&["check", "rules", "alerts.yml"], "");
    promtool(&["test", "rules", "alerts.test.yml"], "");
}

#[test]
fn rules_and_dashboard_name_metrics_that_there_are() {
    let pages = pages();
    let mut known = BTreeSet::new();
    for line in pages.iter().flat_map(|page| page.classic.lines()) {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').unwrap();
            match kind {
                "histogram" => known.extend([format!("{name}_bucket")]),
                _ => known.extend([name.to_owned()]),
            }
        }
    }
    let rules = std::fs::read_to_string(deploy("prometheus/alerts.yml")).unwrap();
    let dashboard = std::fs::read_to_string(deploy("grafana/fencepost.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let mut expressions = Vec::new();
    collect_expressions(&dashboard, &mut expressions);
    assert!(expressions.len() > 30, "{expressions:?}");
    let prefixes = ["fencepost_", "process_"];
    for text in expressions.iter().copied().chain([&*rules]) {
        for name in names(text, &prefixes) {
            assert!(known.contains(name), "{name} is on no page: {text}");
        }
    }
    assert!(names(&rules, &prefixes).len() > 20);
}

/// Every `expr` in the dashboard, wherever it stands.
fn collect_expressions<'a>(value: &'a serde_json::Value, found: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if name == "expr" || name == "query" => found.push(text),
                    _ => collect_expressions(value, found),
                }
            }
        }
        serde_json::Value::Array(values) => {
            for value in values {
                collect_expressions(value, found);
            }
        }
        _ => {}
    }
}
