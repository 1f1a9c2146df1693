//! The tool as people call it, in runs as short as can be. Whether it works is checked, never how
//! fast anything is.

mod experiments;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Short runs, whatever else is asked for.
const SHORT: [&str; 4] = ["--warmup", "20ms", "--rounds", "1"];

/// How long is measured: as short as can be, and longer where a peer finished nothing in that. On
/// a machine that is busy with other tests that happens to etcd, which syncs every step.
const SECONDS: [&str; 3] = ["0.1", "1", "10"];

fn bench(arguments: &str, seconds: &str, directory: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(SHORT)
        .args(["--seconds", seconds])
        .args(arguments.split_whitespace())
        .args(["--json", "rows.json", "--plots", "plots"])
        .current_dir(directory)
        .output();
    output.expect("the bench starts")
}

/// Runs the bench, which must succeed, until every peer has finished something. Returns what it
/// printed and its rows.
fn rows_of(arguments: &str) -> (String, Vec<Value>) {
    let is_nothing = |row: &Value, count: &str| row[count].as_f64() == Some(0.0);
    let has_work = |row: &Value| !is_nothing(row, "ops") && !is_nothing(row, "cycles_per_s");
    let is_done = |(_, rows): &(String, Vec<Value>)| rows.iter().all(has_work);
    let [short, long, longest] = SECONDS.map(|seconds| move || rows_within(arguments, seconds));
    let measured = short().ok().filter(is_done);
    let measured = measured.or_else(|| long().ok().filter(is_done));
    measured.unwrap_or_else(|| longest().unwrap_or_else(|said| panic!("{said}")))
}

/// An error: what the bench said when it failed, as it does if a peer got nothing done at all.
fn rows_within(arguments: &str, seconds: &str) -> Result<(String, Vec<Value>), String> {
    let directory = TempDir::new().unwrap();
    let output = bench(arguments, seconds, directory.path());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let (status, said) = (output.status, String::from_utf8_lossy(&output.stderr));
        return Err(format!("bench {arguments}: {status}\n{text}\n{said}"));
    }
    let json = std::fs::read_to_string(directory.path().join("rows.json")).unwrap();
    let rows: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for line in text.lines().filter_map(|line| line.strip_prefix("wrote ")) {
        assert!(directory.path().join(line).exists(), "{line}");
    }
    Ok((text, rows))
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
    // Long enough for a plot to have something to show, on a busy machine too.
    let arguments = "--hot-key --peer fencepost --contenders 4,20 --connections 2";
    let (text, rows) = rows_within(arguments, SECONDS[1]).unwrap();
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
    // Sentences are broken into lines anywhere.
    assert!(text.contains("Bounded"), "{text}");
}

#[test]
fn a_server_that_grants_every_request_fails_the_run() {
    let echo = Embedded::start("echo");
    let directory = TempDir::new().unwrap();
    let arguments = format!("--hot-key --contenders 10 --server {}", echo.address);
    let output = bench(&arguments, SECONDS[1], directory.path());
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
fn three_nodes_of_etcd_are_loaded_at_their_leader_beside_the_floors() {
    if !is_installed("etcd", "etcd-server") {
        return;
    }
    let (text, rows) = rows_of(
        "--cluster 3 --peer etcd-cluster,fencepost-lease --pipeline 2 --contenders 4 --connections 4",
    );
    let floors: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["floor"].as_str())
        .collect();
    assert_eq!(floors, ["fdatasync", "loopback"]);
    assert!(text.contains("floors of this run"), "{text}");
    let measured: Vec<&Value> = rows.iter().filter(|row| !row["peer"].is_null()).collect();
    assert_eq!(measured.len(), 2 * 2, "{text}");
    for row in measured {
        assert_eq!(row["errors"], 0, "{row}");
        assert!(number(row, "ops") > 0.0, "{row}");
        // Everything is a multiple of it, itself included.
        assert!(number(row, "etcd_cluster_ops_ratio") > 0.0, "{row}");
        if row["peer"] == "etcd-cluster" {
            assert_eq!(row["etcd_cluster_ops_ratio"], 1);
        }
    }
}

#[test]
fn a_killed_leader_of_etcd_is_followed_by_another() {
    if !is_installed("etcd", "etcd-server") {
        return;
    }
    let (_, rows) = rows_of("--cluster 3 --failover --peer etcd-cluster --kills 1 --idle 100ms");
    let of = |name: &str| -> Vec<&Value> {
        let is_it = |row: &&Value| row["workload"] == name;
        rows.iter().filter(is_it).collect()
    };
    assert_eq!(of("failover").len(), 1);
    let events = of("failover-event");
    assert_eq!(events.len(), 2, "a kill and a hand-over");
    for event in events {
        assert!(number(event, "without_grants_ms") > 0.0, "{event}");
    }
}

#[test]
fn three_nodes_of_fencepost_are_loaded_at_their_leader() {
    let (text, rows) = rows_of(
        "--cluster 3 --peer fencepost-cluster,fencepost-lease --pipeline 2 --contenders 4 --connections 4",
    );
    if let Some(line) = text.lines().find(|line| line.starts_with("skipped: ")) {
        // Without the server's binary, or with one that has no cluster mode.
        assert!(line.contains("fencepost-cluster"), "{text}");
        return eprintln!("\n!!! NOT TESTED: three nodes of Fencepost. {line}\n");
    }
    let is_ours = |row: &&Value| row["peer"] == "fencepost-cluster";
    let ours: Vec<&Value> = rows.iter().filter(is_ours).collect();
    assert_eq!(ours.len(), 2, "{text}");
    for row in ours {
        assert_eq!(row["errors"], 0, "{row}");
        assert!(number(row, "ops") > 0.0, "{row}");
    }
}

#[test]
fn a_server_without_a_cluster_mode_is_told_of() {
    let directory = TempDir::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(SHORT)
        .args(["--cluster", "3", "--many-keys", "--pipeline", "1"])
        .args(["--peer", "fencepost-cluster,echo"])
        // Any program whose help has no such flag.
        .env("FENCEPOST_BIN", "/bin/true")
        .current_dir(directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let refused = "skipped: fencepost-cluster: /bin/true refuses --node-id";
    assert!(text.contains(refused), "{text}");
}

#[test]
fn every_write_to_redis_waits_for_its_replica() {
    if !is_installed("redis-server", "redis-server") {
        return;
    }
    let (_, rows) = rows_of(
        "--many-keys --hot-key --peer redis-wait --pipeline 2 --contenders 4 --connections 2",
    );
    assert_eq!(rows.len(), 1 + 3);
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
    let output = bench("--peer echo", SECONDS[0], directory.path());
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

/// It fails if an answer is larger than it may be, or if a search finds too much or too little.
#[test]
fn the_answers_to_the_operators_page_are_bounded_whatever_is_held() {
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["page", "--keys", "100000", "--sessions", "300"])
        .args(["--rounds", "3", "--beside", "50ms"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    for row in ["a prefix that no key has", "contended", "searches without"] {
        assert!(text.contains(row), "{row} in {text}");
    }
}

/// A server of Redis that has not enough places for the connections of a run.
fn cramped_redis(directory: &Path) -> Option<std::ffi::OsString> {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::var_os("PATH")?;
    let mut directories = std::env::split_paths(&path);
    let real = directories
        .find_map(|directory| Some(directory.join("redis-server")).filter(|file| file.is_file()));
    let script = format!(
        "#!/bin/sh\nexec {} \"$@\" --maxclients 5\n",
        real?.display()
    );
    let file = directory.join("redis-server");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let paths = [directory.to_owned()]
        .into_iter()
        .chain(std::env::split_paths(&path));
    Some(std::env::join_paths(paths).unwrap())
}

/// It failed in every round, was told of in every round, and the run was called a failure although
/// all was well with what it was about.
#[test]
fn a_peer_that_fails_beside_ours_is_told_of_once_and_spoils_nothing() {
    if !is_installed("redis-server", "redis-server") {
        return;
    }
    let directory = TempDir::new().unwrap();
    let path = cramped_redis(directory.path()).expect("it is installed");
    let run = |peers: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_bench"))
            .args(["--many-keys", "--pipeline", "1", "--connections", "50"])
            .args(["--warmup", "20ms", "--rounds", "2", "--seconds", SECONDS[1]])
            .args(["--peer", peers, "--report", "report"])
            .env("PATH", &path)
            .current_dir(directory.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), text)
    };
    let (code, text) = run("fencepost,redis");
    assert_eq!(code, Some(0), "{text}");
    let told = "could not be measured: many-keys of redis at pipeline 1: ";
    assert_eq!(text.matches(told).count(), 1, "{text}");
    assert!(
        text.contains("medians of 2 rounds") && text.contains("±"),
        "{text}"
    );
    let page = std::fs::read_to_string(directory.path().join("report/index.html")).unwrap();
    assert!(page.contains(told), "{page}");
    // What the run is about must work.
    let (code, text) = run("redis");
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(
        text.matches("FAILED: many-keys of redis").count(),
        1,
        "{text}"
    );
}

#[test]
fn people_get_eight_columns_and_one_page_with_all_plots() {
    let directory = TempDir::new().unwrap();
    let arguments = "--hot-key --many-keys --peer fencepost,echo --contenders 4 --pipeline 2";
    // Long enough for a plot to have something to show, on a busy machine too.
    let report = format!("{arguments} --report pages/all");
    let output = bench(&report, SECONDS[1], directory.path());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for heading in text.lines().filter(|line| line.starts_with("  peer ")) {
        let columns: Vec<&str> = heading
            .split("  ")
            .filter(|word| !word.is_empty())
            .collect();
        assert!((4..=8).contains(&columns.len()), "{heading:?}");
    }
    assert!(
        text.contains(", one round; ") && !text.contains('±'),
        "{text}"
    );
    let page = std::fs::read_to_string(directory.path().join("pages/all/index.html")).unwrap();
    let plots = text.lines().filter(|line| line.ends_with(".svg")).count();
    assert!(plots >= 4, "{text}");
    assert_eq!(page.matches("<svg").count(), plots);
    assert_eq!(page.matches("<h2>").count(), 2);
    assert!(page.contains(&SHORT.join(" ")), "the command line: {page}");
    let output = bench(&format!("{arguments} --wide"), SECONDS[0], directory.path());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("p99.9 us"), "{text}");
}
