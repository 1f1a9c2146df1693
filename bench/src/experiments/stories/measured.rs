//! `contention`, `fairness` and the first half of `expiry`: what a workload of the bench shows
//! about locks. The workload is run as people run it, by this very program in a process of its own,
//! and its rows are read.

use crate::experiments::Context;
use crate::experiments::locks::Backend;
use crate::experiments::report::Report;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// How many contenders there are for the hot key.
const CONTENDERS: &str = "50,200,1000";

/// Contenders grow fivefold; a peer that does less than twice as much for it has met its ceiling.
const CEILING: f64 = 2.0;

/// A share of reordered pairs that is an accident: two requests that raced each other to a server
/// whose threads lost their cores.
const ORDER: f64 = 0.001;

/// A share of reordered pairs that is no accident.
const DISORDER: f64 = 0.05;

/// Runs a workload for these backends. Its rows.
pub(super) fn rows_of(
    context: &Context<'_>,
    backends: &[Backend],
    workload: &str,
    others: &[&str],
    plots: &Path,
    report: &mut Report,
) -> Result<Vec<Value>, String> {
    let directory = TempDir::with_prefix("fencepost-bench-").map_err(|error| error.to_string())?;
    let json = directory.path().join("rows.json");
    let peers: Vec<&str> = backends.iter().map(|peer| peer.as_str()).collect();
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args([workload, "--peer", &peers.join(",")])
        .args(others)
        .arg("--json")
        .arg(&json)
        .arg("--plots")
        .arg(plots)
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines() {
        if let Some(measured) = line.strip_prefix("measured: ") {
            measured
                .split(", ")
                .for_each(|peer| report.used(peer.to_owned()));
        }
        let is_left_out = line.starts_with("skipped: ") || line.starts_with("left out of ");
        if is_left_out {
            report.skipped(line.to_owned());
        }
        let is_plot = line.starts_with("wrote ") && line.ends_with(".svg");
        if is_plot && plots == context.options.plots {
            report.note(line);
        }
        if line.starts_with("FAILED: ") {
            report.note(line);
        }
    }
    report.claim(
        format!("the workload {workload} ran without an error, every grant checked"),
        output.status.success(),
    );
    let rows = std::fs::read_to_string(json).map_err(|error| error.to_string())?;
    rows.lines()
        .map(|line| serde_json::from_str(line).map_err(|error| error.to_string()))
        .collect()
}

pub(super) fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or(f64::NAN)
}

pub(super) fn text(row: &Value, name: &str) -> String {
    row[name].as_str().unwrap_or("-").to_owned()
}

/// Milliseconds of a figure in microseconds.
pub(super) fn ms(row: &Value, name: &str) -> String {
    match number(row, name) {
        us if us.is_nan() => "-".to_owned(),
        us => format!("{:.2} ms", us / 1e3),
    }
}

/// The rows in which each peer does most, for each number of contenders: a peer with several ways
/// to wait is given its best.
fn best(rows: &[Value]) -> Vec<&Value> {
    let mut best: Vec<&Value> = Vec::new();
    for row in rows {
        let is_rival = |other: &&mut &Value| {
            other["peer"] == row["peer"] && other["contenders"] == row["contenders"]
        };
        match best.iter_mut().find(is_rival) {
            None => best.push(row),
            Some(other) if number(row, "cycles_per_s") > number(other, "cycles_per_s") => {
                *other = row;
            }
            Some(_) => {}
        }
    }
    best
}

pub(crate) fn contention(context: &Context<'_>) -> Result<Report, String> {
    let mut report = Report::new(
        "contention",
        "more and more want one key: what grows, the throughput or the wait?",
        &[
            "backend",
            "waiting",
            "contenders",
            "cycles/s",
            "ceiling",
            "one alone",
            "p50",
            "p99",
            "p99.9",
        ],
    );
    let rounds = if context.is_full { "3" } else { "1" };
    // Long: a thousand contenders for etcd's lock wait for seconds each, and must first queue up.
    let times = ["--warmup", "2s", "--seconds", "2", "--rounds", rounds];
    let flags = [&["--contenders", CONTENDERS][..], &times[..]].concat();
    let rows = rows_of(
        context,
        &context.backends(),
        "--hot-key",
        &flags,
        &context.options.plots,
        &mut report,
    )?;
    let mut best = best(&rows);
    best.sort_by_key(|row| text(row, "peer"));
    for row in &best {
        report.row(
            vec![
                text(row, "peer"),
                text(row, "waiting"),
                number(row, "contenders").to_string(),
                format!("{:.0}", number(row, "cycles_per_s")),
                ceiling(row),
                format!("{:.0}", number(row, "bound_cycles_per_s")),
                ms(row, "p50_us"),
                ms(row, "p99_us"),
                ms(row, "p999_us"),
            ],
            row,
        );
        report.note(format!(
            "{}, {}, {} contenders: bounded by {} (other programs used {:.1} cores)",
            text(row, "peer"),
            text(row, "waiting"),
            number(row, "contenders"),
            text(row, "bounded_by"),
            number(row, "others_cpu_cores"),
        ));
    }
    for of_peer in best.chunk_by(|one, other| one["peer"] == other["peer"]) {
        // The last step: a few contenders more may still let the server do more at a time.
        let [.., few, many] = of_peer else {
            continue;
        };
        report.claim(
            format!(
                "{}: from {} to {} contenders the cycles grow {:.2}-fold, the wait of the slowest hundredth {:.1}-fold: past the ceiling, contenders add wait",
                text(few, "peer"),
                few["contenders"],
                many["contenders"],
                grown(few, many, "cycles_per_s"),
                grown(few, many, "p99_us"),
            ),
            is_at_ceiling(few, many),
        );
    }
    Ok(report)
}

/// 1 / (work + the way from one holder's release to the next one's grant), by the median way of the
/// same run. A contender that tries again goes no such way: the lock waits for one to wake up.
fn ceiling(row: &Value) -> String {
    let cycle_us = number(row, "handoff_p50_us") + number(row, "work_ms") * 1e3;
    match text(row, "waiting") == "in line" && cycle_us > 0.0 {
        true => format!("{:.0}", 1e6 / cycle_us),
        false => "-".to_owned(),
    }
}

fn grown(few: &Value, many: &Value, name: &str) -> f64 {
    number(many, name) / number(few, name)
}

/// Whether many more get hardly more done, and wait for longer than the throughput explains.
fn is_at_ceiling(few: &Value, many: &Value) -> bool {
    let cycles = grown(few, many, "cycles_per_s");
    cycles < CEILING && grown(few, many, "p99_us") > cycles
}

pub(crate) fn fairness(context: &Context<'_>) -> Result<Report, String> {
    let mut report = Report::new(
        "fairness",
        "are contenders granted in the order in which they asked?",
        &[
            "backend",
            "waiting",
            "pairs out of order",
            "inversions",
            "Jain's index",
            "median wait",
            "longest wait",
        ],
    );
    let seconds = if context.is_full { "10" } else { "2" };
    let flags = [
        "--contenders",
        "50",
        "--work",
        "1ms",
        "--rounds",
        "1",
        "--seconds",
        seconds,
    ];
    // The plots of this workload are those of `contention`.
    let elsewhere = TempDir::with_prefix("fencepost-bench-").map_err(|error| error.to_string())?;
    let rows = rows_of(
        context,
        &context.backends(),
        "--hot-key",
        &flags,
        elsewhere.path(),
        &mut report,
    )?;
    for row in &rows {
        report.row(
            vec![
                text(row, "peer"),
                text(row, "waiting"),
                format!("{:.2} %", number(row, "reordered_share") * 100.0),
                number(row, "inversions").to_string(),
                format!("{:.3}", number(row, "jain_index")),
                ms(row, "p50_us"),
                ms(row, "longest_wait_us"),
            ],
            row,
        );
        let (sentence, holds) = judge_order(row);
        report.claim(
            format!(
                "{}, {}: {sentence}",
                text(row, "peer"),
                text(row, "waiting")
            ),
            holds,
        );
    }
    Ok(report)
}

/// Contenders in a queue are served in order; contenders that try again are not.
fn judge_order(row: &Value) -> (&'static str, bool) {
    match row["waiting"] == "in line" {
        true => (
            "contenders are granted in order, but for one pair in a thousand at most",
            number(row, "reordered_share") < ORDER,
        ),
        false => (
            "late comers barge ahead of the waiters",
            number(row, "reordered_share") > DISORDER,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_peer_is_given_its_best_way_to_wait() {
        let row = |peer: &str, contenders: u32, cycles: f64| json!({ "peer": peer, "contenders": contenders, "cycles_per_s": cycles });
        let rows = [
            row("redis", 50, 1.0),
            row("redis", 50, 3.0),
            row("redis", 200, 2.0),
            row("etcd", 50, 0.5),
        ];
        let best = best(&rows);
        let cycles: Vec<f64> = best.iter().map(|row| number(row, "cycles_per_s")).collect();
        assert_eq!(cycles, [3.0, 2.0, 0.5]);
    }

    #[test]
    fn the_ceiling_is_counted_from_the_way_to_the_next_holder_and_the_work() {
        let row = |waiting: &str, work_ms: f64| json!({ "waiting": waiting, "handoff_p50_us": 50.0, "work_ms": work_ms });
        assert_eq!(ceiling(&row("in line", 0.0)), "20000");
        assert_eq!(ceiling(&row("in line", 0.95)), "1000");
        assert_eq!(ceiling(&row("retry 1 ms", 0.0)), "-");
        assert_eq!(ceiling(&json!({ "waiting": "in line" })), "-");
    }

    #[test]
    fn a_ceiling_is_more_wait_without_more_throughput() {
        let row = |cycles: f64, wait: f64| json!({ "cycles_per_s": cycles, "p99_us": wait });
        assert!(is_at_ceiling(&row(100.0, 1.0), &row(110.0, 20.0)));
        assert!(!is_at_ceiling(&row(100.0, 1.0), &row(2_000.0, 1.0)));
        assert!(!is_at_ceiling(&row(100.0, 1.0), &json!({})));
    }

    #[test]
    fn a_line_keeps_the_order_and_trying_again_does_not() {
        let row = |waiting: &str, inversions: u32, share: f64| json!({ "waiting": waiting, "inversions": inversions, "reordered_share": share });
        assert!(judge_order(&row("in line", 1, 0.000_1)).1);
        assert!(!judge_order(&row("in line", 0, 0.01)).1);
        assert!(judge_order(&row("retry 1 ms", 100, 0.4)).1);
        assert!(!judge_order(&row("retry 1 ms", 0, 0.0)).1);
    }
}
