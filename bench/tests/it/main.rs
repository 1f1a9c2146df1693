//! The tool as people call it, in runs as short as can be. Whether it works is checked, never how
//! fast anything is.

mod experiments;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Short runs, whatever else is asked for.
const SHORT: [&str; 6] = ["--seconds", "0.1", "--warmup", "20ms", "--rounds", "1"];

fn bench(arguments: &str, directory: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(SHORT)
        .args(arguments.split_whitespace())
        .args(["--json", "rows.json", "--plots", "plots"])
        .current_dir(directory)
        .output();
    output.expect("the bench starts")
}

/// Runs the bench, which must succeed. Returns what it printed and its rows.
fn rows_of(arguments: &str) -> (String, Vec<Value>) {
    let directory = TempDir::new().unwrap();
    let output = bench(arguments, directory.path());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "bench {arguments}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let json = std::fs::read_to_string(directory.path().join("rows.json")).unwrap();
    let rows: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for line in text.lines().filter_map(|line| line.strip_prefix("wrote ")) {
        assert!(directory.path().join(line).exists(), "{line}");
    }
    (text, rows)
}

/// Whether a program is there. If not, says loudly what to install.
fn is_installed(program: &str, package: &str) -> bool {
    let is_installed = Command::new(program).arg("--version").output().is_ok();
    if !is_installed {
        eprintln!(
            "\n!!! NOT TESTED: {program} is missing. Install Debian's package {package} to test the bench with it.\n"
        );
    }
    is_installed
}

fn number(row: &Value, name: &str) -> f64 {
    row[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name} in {row}"))
}

/// An embedded peer that outlives no test.
struct Embedded {
    child: Child,
    address: String,
    _directory: TempDir,
}

impl Embedded {
    fn start(name: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_bench"))
            .args(["serve", name])
            .arg(directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("ready ").expect(&line).to_owned();
        Embedded {
            child,
            address,
            _directory: directory,
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_hot_key_is_measured_and_checked() {
    // Several contenders on each connection, so that two of one connection wait at the same time.
    let (text, rows) = rows_of("--hot-key --peer fencepost --contenders 4,20 --connections 2");
    assert_eq!(rows.len(), 2);
    for (row, contenders) in rows.iter().zip([4, 20]) {
        assert_eq!(row["workload"], "hot-key");
        assert_eq!(row["peer"], "fencepost");
        assert_eq!(row["contenders"], contenders);
        assert_eq!(row["errors"], 0);
        assert!(number(row, "cycles_per_s") > 0.0);
        assert!(number(row, "grants_checked") > 0.0);
        // Whatever the scheduler does: requests on one connection are read in the order in which
        // they were written. (No contender times out here; one that did would ask again later, in
        // the place that it has.)
        assert_eq!(row["timeouts"], 0);
        assert_eq!(row["reordered_on_one_connection"], 0);
        assert!(number(row, "p50_us") <= number(row, "p99_us"));
        assert!(number(row, "p99_us") <= number(row, "max_us"));
        assert!(number(row, "bound_cycles_per_s") > 0.0);
        assert!(row["bounded_by"].is_string());
    }
    assert!(text.contains("hot-key-latency.svg"), "{text}");
    assert!(text.contains("Bounded by"), "{text}");
}

#[test]
fn a_server_that_grants_every_request_fails_the_run() {
    let echo = Embedded::start("echo");
    let directory = TempDir::new().unwrap();
    let arguments = format!("--hot-key --contenders 10 --server {}", echo.address);
    let output = bench(&arguments, directory.path());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("NOT SAFE"), "{text}");
}

#[test]
fn a_running_server_is_measured_without_its_processor_time() {
    let server = Embedded::start("fencepost");
    let arguments = format!(
        "--many-keys --pipeline 1,4 --connections 3 --server {}",
        server.address
    );
    let (_, rows) = rows_of(&arguments);
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["peer"], "server");
        assert_eq!(row["cpu_us_per_op"], Value::Null);
        assert!(number(&row, "ops_per_s") > 0.0);
        assert_eq!(row["errors"], 0);
    }
}

#[test]
fn the_floor_is_measured_in_the_same_run() {
    let (text, rows) =
        rows_of("--many-keys --hot-key --peer fencepost,echo --pipeline 1 --contenders 2");
    let of = |workload: &str| -> Vec<&str> {
        let rows = rows.iter().filter(|row| row["workload"] == workload);
        rows.map(|row| row["peer"].as_str().unwrap()).collect()
    };
    assert_eq!(of("many-keys"), ["fencepost", "echo"]);
    assert_eq!(of("hot-key"), ["fencepost"]);
    assert!(text.contains("left out of hot-key: echo"), "{text}");
}

#[test]
fn an_open_loop_asks_no_more_than_it_should() {
    let (_, rows) = rows_of("--many-keys --peer fencepost --pipeline 1 --rate 1000");
    // What was late in the warm-up comes on top.
    assert!(number(&rows[0], "ops_per_s") <= 1_500.0, "{}", rows[0]);
    assert!(number(&rows[0], "ops") > 0.0);
}

#[test]
fn locks_are_held_renewed_and_run_out() {
    let (_, rows) = rows_of("--renew --expiry --peer fencepost --keys 5000 --spread 1s");
    assert_eq!(rows.len(), 2);
    let (expiry, renew) = (&rows[0], &rows[1]);
    assert_eq!(expiry["workload"], "expiry");
    assert!(number(expiry, "probe_p99_us") > 0.0);
    assert_eq!(renew["workload"], "renew");
    assert_eq!(renew["lost_locks"], 0);
    assert!(number(renew, "bytes_per_lock") > 0.0);
}

#[test]
fn a_holder_works_before_it_gives_the_lock_back() {
    let (_, rows) = rows_of("--hot-key --peer fencepost --contenders 3 --work 5ms");
    // One more than there can be, since a cycle may begin before the measurement.
    assert!(number(&rows[0], "cycles_per_s") <= 210.0, "{}", rows[0]);
}

#[test]
fn redis_is_tried_with_every_way_of_waiting() {
    if !is_installed("redis-server", "redis-server") {
        return;
    }
    let (text, rows) =
        rows_of("--hot-key --peer redis,redis-fenced --contenders 6 --redis-retry-ms 3");
    for peer in ["redis", "redis-fenced"] {
        let of_peer = rows.iter().filter(|row| row["peer"] == peer);
        let ways: Vec<&str> = of_peer
            .map(|row| row["waiting"].as_str().unwrap())
            .collect();
        assert_eq!(ways, ["retry 1 ms", "retry 3 ms", "pub/sub"]);
    }
    assert!(text.contains("best of 3 ways to wait"), "{text}");
}

#[test]
fn five_servers_of_redlock_agree() {
    if !is_installed("redis-server", "redis-server") {
        return;
    }
    let (_, rows) = rows_of("--hot-key --many-keys --peer redlock --contenders 4 --pipeline 2");
    assert_eq!(rows.len(), 2 + 1);
    assert!(rows.iter().all(|row| row["errors"] == 0));
}

#[test]
fn etcd_is_spoken_to_in_its_own_protocol() {
    if !is_installed("etcd", "etcd-server") {
        return;
    }
    let (_, rows) =
        rows_of("--hot-key --many-keys --peer etcd --contenders 4 --pipeline 2 --connections 4");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["errors"], 0, "{row}");
        assert!(number(&row, "ops") > 0.0, "{row}");
    }
}

#[test]
fn a_missing_peer_is_skipped_with_the_package_that_brings_it() {
    let directory = TempDir::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(SHORT)
        .args(["--many-keys", "--pipeline", "1", "--peer", "echo,etcd"])
        .env("PATH", directory.path())
        .current_dir(directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("skipped: etcd"), "{text}");
    assert!(text.contains("etcd-server"), "{text}");
}

#[test]
fn a_command_line_without_a_workload_is_refused() {
    let directory = TempDir::new().unwrap();
    let output = bench("--peer echo", directory.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--hot-key"));
}

#[test]
fn the_figures_of_the_engine_still_have_their_command() {
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["engine", "hot-key", "--help"])
        .output()
        .unwrap();
    assert!(output.status.success());
}
