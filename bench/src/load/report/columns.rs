//! What stands in the tables: eight columns for people, and all of them with `--wide`.

use super::number::{ETCD_CLUSTER, figure, group, latency, ratio, scaled, spread, spread_alone};
use super::table::Table;
use crate::load::peers::PeerName;
use crate::load::rounds::Row;
use crate::load::workloads::Workload;

/// A column: its heading, and what stands in it.
struct Column {
    heading: &'static str,
    text: fn(&Row) -> String,
}

const fn column(heading: &'static str, text: fn(&Row) -> String) -> Column {
    Column { heading, text }
}

/// Whether a row was compared with the peer whose ratios begin like that.
pub(super) fn has_ratio_to(row: &Row, prefix: &str) -> bool {
    row.ratios.keys().any(|name| name.starts_with(prefix))
}

/// The peer and its setting, how much it does and how that compares, how long it takes, what it
/// costs, and how even it is. The rate and the ratio go by the workload.
pub(super) fn short(rows: &[Row]) -> Table {
    let (rate_heading, rate) = rate(rows[0].setting.workload);
    let (ratio_heading, ratio_name) = comparison(rows);
    let cells = |row: &Row| {
        vec![
            row.peer.to_string(),
            setting(row),
            spread(row, rate),
            ratio_name.map_or_else(String::new, |name| ratio(row, name)),
            latency(row, "p50_us"),
            latency(row, "p99_us"),
            figure(row, "cpu_us_per_op"),
            fairness(row),
        ]
    };
    let headings = [
        "peer",
        "setting",
        rate_heading,
        ratio_heading,
        "p50",
        "p99",
        "CPU us/op",
        "fairness",
    ];
    Table::new(&headings, rows.iter().map(cells).collect(), 2)
}

/// Every figure there is.
pub(super) fn wide(rows: &[Row]) -> Table {
    let headings: Vec<&str> = COLUMNS.iter().map(|column| column.heading).collect();
    let cells = |row: &Row| COLUMNS.iter().map(|column| (column.text)(row)).collect();
    Table::new(&headings, rows.iter().map(cells).collect(), 1)
}

/// What a workload's rate is called, and the figure it is.
pub(super) fn rate(workload: Workload) -> (&'static str, &'static str) {
    match workload {
        Workload::HotKey | Workload::Handoff => ("cycles/s", "cycles_per_s"),
        Workload::ManyKeys => ("op/s", "ops_per_s"),
        Workload::Expiry => ("fill/s", "fill_per_s"),
        Workload::Renew => ("renewed/s", "locks_renewed_per_s"),
    }
}

/// What the rows are compared with: us, or where we are a cluster, a cluster of etcd.
fn comparison(rows: &[Row]) -> (&'static str, Option<&'static str>) {
    let names = match rows[0].setting.workload {
        Workload::HotKey => ["fencepost_cycles_ratio", "etcd_cluster_cycles_ratio"],
        Workload::ManyKeys => ["fencepost_ops_ratio", "etcd_cluster_ops_ratio"],
        // The work under the lock decides how often it is handed on, and leases when they end.
        Workload::Handoff | Workload::Expiry | Workload::Renew => return ("ours/it", None),
    };
    let is_compared = |name: &str| {
        let base = match name.starts_with(ETCD_CLUSTER) {
            true => PeerName::EtcdCluster,
            false => PeerName::Fencepost,
        };
        let is_other = |row: &&Row| row.peer != base;
        let mut others = rows.iter().filter(is_other);
        others.any(|row| row.ratios.contains_key(name))
    };
    match names {
        [ours, _] if is_compared(ours) => ("ours/it", Some(ours)),
        [_, etcd] if is_compared(etcd) => ("x etcd", Some(etcd)),
        _ => ("ours/it", None),
    }
}

fn setting(row: &Row) -> String {
    let setting = &row.setting;
    match setting.workload {
        Workload::ManyKeys => format!("pipeline {}", setting.pipeline),
        Workload::HotKey | Workload::Handoff => {
            format!("{} contenders, {}", setting.contenders, setting.waiting)
        }
        Workload::Expiry | Workload::Renew => format!("{} keys", group(setting.keys as i64)),
    }
}

/// Jain's index, and how many were granted out of turn.
fn fairness(row: &Row) -> String {
    let jain = row
        .median
        .get("jain_index")
        .map(|jain| format!("{jain:.2}"));
    let inversions = row.median.get("inversions").copied().unwrap_or_default();
    match jain {
        Some(jain) if inversions > 0.0 => {
            format!("{jain}, {} out of turn", group(inversions as i64))
        }
        jain => jain.unwrap_or_default(),
    }
}

const COLUMNS: &[Column] = &[
    column("peer", |row| row.peer.to_string()),
    column("pipeline", |row| match row.setting.workload {
        Workload::ManyKeys => row.setting.pipeline.to_string(),
        _ => String::new(),
    }),
    column("contenders", |row| count(row.setting.contenders)),
    column("waits", |row| match row.setting.contenders {
        0 => String::new(),
        _ => row.setting.waiting.to_string(),
    }),
    column("op/s", |row| figure(row, "ops_per_s")),
    column("spread", |row| spread_alone(row, "ops_per_s")),
    column("ours/it", |row| match row.setting.workload {
        Workload::ManyKeys => ratio(row, "fencepost_ops_ratio"),
        _ => String::new(),
    }),
    column("x etcd", |row| match row.setting.workload {
        Workload::ManyKeys => ratio(row, "etcd_cluster_ops_ratio"),
        _ => String::new(),
    }),
    column("cycles/s", |row| figure(row, "cycles_per_s")),
    column("ours/it", |row| match row.setting.workload {
        Workload::HotKey => ratio(row, "fencepost_cycles_ratio"),
        _ => String::new(),
    }),
    column("x etcd", |row| match row.setting.workload {
        Workload::HotKey => ratio(row, "etcd_cluster_cycles_ratio"),
        _ => String::new(),
    }),
    column("keys", |row| match row.setting.workload.fills() {
        true => group(row.setting.keys as i64),
        false => String::new(),
    }),
    column("fill/s", |row| figure(row, "fill_per_s")),
    column("bound", |row| figure(row, "bound_cycles_per_s")),
    column("p50 us", |row| figure(row, "p50_us")),
    column("x etcd", |row| ratio(row, "etcd_cluster_p50_ratio")),
    column("p90 us", |row| figure(row, "p90_us")),
    column("p99 us", |row| figure(row, "p99_us")),
    column("p99.9 us", |row| figure(row, "p999_us")),
    column("max us", |row| figure(row, "max_us")),
    column("handoff p50", |row| figure(row, "handoff_p50_us")),
    column("p99/ideal", |row| figure(row, "p99_over_ideal")),
    column("CPU us/op", |row| figure(row, "cpu_us_per_op")),
    column("ours/it", |row| match row.setting.workload {
        Workload::ManyKeys => ratio(row, "fencepost_cpu_ratio"),
        _ => String::new(),
    }),
    column("gen cores", |row| figure(row, "generator_cpu_cores")),
    column("probe p99", |row| figure(row, "probe_p99_us")),
    column("idle p99", |row| figure(row, "probe_idle_p99_us")),
    column("ratio", |row| figure(row, "probe_p99_over_idle")),
    column("locks renewed/s", |row| figure(row, "locks_renewed_per_s")),
    column("cores to hold", |row| figure(row, "holding_cpu_cores")),
    column("bytes/lock", |row| figure(row, "bytes_per_lock")),
    column("ours/it", |row| ratio(row, "fencepost_bytes_ratio")),
    column("RSS MB", |row| scaled(row, "rss_bytes", 1e-6)),
    column("inversions (sum)", |row| figure(row, "inversions")),
    column("reordered", |row| {
        scaled(row, "reordered_share", 100.0) + percent(row, "reordered_share")
    }),
    column("Jain", |row| figure(row, "jain_index")),
];

fn count(number: u32) -> String {
    match number {
        0 => String::new(),
        number => number.to_string(),
    }
}

fn percent(row: &Row, name: &str) -> &'static str {
    if row.median.contains_key(name) {
        " %"
    } else {
        ""
    }
}
