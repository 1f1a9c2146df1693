use super::columns::has_ratio_to;
use super::number::{ETCD_CLUSTER, figure, latency, ratio, spread, spread_alone};
use super::origin::Origin;
use super::remarks::order;
use super::*;
use crate::load::options::Options;
use crate::load::peers::PeerName;
use crate::load::sample::Figures;
use crate::load::workloads::{Setting, Waiting, Workload};
use std::time::Duration;

pub(super) fn options() -> Options {
    Options::parsed("--hot-key").unwrap()
}

pub(super) fn origin() -> Origin {
    Origin {
        commit: "commit 0123456789".to_owned(),
        date: "2026-01-31".to_owned(),
        machine: "2 cores".to_owned(),
    }
}

/// One round of a hot key.
pub(super) fn row() -> Row {
    let setting = Setting {
        workload: Workload::HotKey,
        connections: 50,
        pipeline: 0,
        contenders: 200,
        waiting: Waiting::Retry { ms: 10 },
        work: Duration::ZERO,
        keys: 1,
    };
    let figures = Figures::from([
        ("ops_per_s", 12_345.0),
        ("cycles_per_s", 6_170.0),
        ("p50_us", 12.5),
        ("p99_us", 4_321.0),
        ("cpu_us_per_op", 1.25),
        ("jain_index", 0.987),
    ]);
    let mut row = Row::once(PeerName::RedisFenced, setting, figures);
    row.least.insert("ops_per_s", 12_000.0);
    row.most.insert("ops_per_s", 13_000.0);
    row
}

#[test]
fn numbers_have_as_many_digits_as_they_deserve() {
    let mut row = row();
    for (value, text) in [
        (0.0, "0"),
        (0.0123, "0.012"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (123.4, "123"),
        (1_234_567.8, "1,234,568"),
        (-1_234.0, "-1,234"),
    ] {
        row.median.insert("p50_us", value);
        assert_eq!(figure(&row, "p50_us"), text);
    }
    assert_eq!(figure(&row, "no such figure"), "");
}

#[test]
fn a_latency_has_the_unit_that_reads_best() {
    let mut row = row();
    for (us, text) in [
        (0.5, "0.500 us"),
        (12.34, "12.3 us"),
        (1_234.0, "1.23 ms"),
        (2_500_000.0, "2.50 s"),
    ] {
        row.median.insert("p50_us", us);
        assert_eq!(latency(&row, "p50_us"), text);
    }
    assert_eq!(latency(&row, "no such figure"), "");
}

#[test]
fn an_overtaken_contender_is_told_of() {
    let mut row = row();
    assert_eq!(order(&row), None);
    row.median.insert("inversions", 36.0);
    row.most.insert("inversions", 35.0);
    row.median.insert("overtaken", 2.0);
    row.median.insert("head_start_max_us", 1_802.0);
    let text = order(&row).unwrap();
    for part in [
        ": 36 inversions. ",
        "overtaken: 2,",
        "1.8 ms",
        "on one connection: 0.",
    ] {
        assert!(text.contains(part), "{text}");
    }
    row.rounds = 3;
    let text = order(&row).unwrap();
    let part = "36 inversions in all rounds (3), 35 at most in one";
    assert!(text.contains(part), "{text}");
}

#[test]
fn a_ratio_to_oneself_is_one_and_large_ones_have_no_fraction() {
    let mut row = row();
    for (peer, value, text) in [
        (PeerName::FencepostCluster, 6.543, "6.54"),
        (PeerName::FencepostCluster, 123.4, "123"),
        (PeerName::FencepostCluster, 0.0456, "0.046"),
        (PeerName::EtcdCluster, 0.999, "1"),
        (PeerName::Fencepost, 0.5, "0.50"),
    ] {
        row.peer = peer;
        row.ratios.insert("etcd_cluster_ops_ratio", value);
        assert_eq!(ratio(&row, "etcd_cluster_ops_ratio"), text);
    }
    assert!(has_ratio_to(&row, ETCD_CLUSTER) && !has_ratio_to(&row, "fencepost_"));
    assert_eq!(ratio(&row, "fencepost_ops_ratio"), "");
}

#[test]
fn the_spread_is_half_the_range_over_the_median_and_one_round_has_none() {
    let mut row = row();
    assert_eq!(spread_alone(&row, "ops_per_s"), "");
    assert_eq!(spread(&row, "ops_per_s"), "12,345");
    row.rounds = 3;
    assert_eq!(spread_alone(&row, "ops_per_s"), "±4%");
    assert_eq!(spread(&row, "ops_per_s"), "12,345  ±4%");
}

#[test]
fn people_get_eight_columns_and_what_bounds_a_peer_first() {
    let mut ours = row();
    ours.peer = PeerName::Fencepost;
    ours.setting.waiting = Waiting::InLine;
    ours.median.insert("inversions", 2.0);
    let mut theirs = row();
    theirs.ratios.insert("fencepost_cycles_ratio", 2.5);
    theirs.median.insert("others_cpu_cores", 0.5);
    let [section] = &sections(&[ours, theirs])[..] else {
        panic!("one workload is one section");
    };
    assert_eq!(
        section.short.lines(),
        [
            "  peer          setting                      cycles/s  ours/it      p50      p99  CPU us/op             fairness",
            "  fencepost     200 contenders, in line         6,170           12.5 us  4.32 ms       1.25  0.99, 2 out of turn",
            "  redis-fenced  200 contenders, retry 10 ms     6,170     2.50  12.5 us  4.32 ms       1.25                 0.99",
        ]
    );
    let text = section.text(false);
    assert!(
        text.starts_with("\nhot-key: 50 connections, one round; latency is "),
        "{text}"
    );
    let at = |part: &str| {
        text.find(part)
            .unwrap_or_else(|| panic!("no {part}: {text}"))
    };
    assert!(at("DISTURBED") < at("Bounded") && at("Bounded") < at("peer  "));
    assert!(!text.contains('±') && !text.contains("p90"), "{text}");
    assert!(text.contains("No errors, no timeouts."), "{text}");
    let wide = section.text(true);
    assert!(
        wide.contains("contenders") && wide.contains("Jain"),
        "{wide}"
    );
}

#[test]
fn a_run_of_a_cluster_is_compared_with_etcd() {
    let mut ours = row();
    ours.peer = PeerName::FencepostCluster;
    ours.setting.workload = Workload::ManyKeys;
    ours.setting.pipeline = 16;
    ours.ratios.insert("etcd_cluster_ops_ratio", 6.5);
    let section = &sections(&[ours])[0];
    assert_eq!(
        section.short.headings[..4],
        ["peer", "setting", "op/s", "x etcd"]
    );
    assert_eq!(
        section.short.rows[0][1..4],
        ["pipeline 16", "12,345", "6.50"]
    );
    assert!(section.short.headings.len() <= 8);
}

#[test]
fn long_sentences_are_wrapped_between_words() {
    assert_eq!(wrapped("Short."), "  Short.\n");
    let sentence = ["word"; 100].join(" ");
    let text = wrapped(&sentence);
    assert!(text.lines().count() > 1);
    assert!(
        text.lines().all(|line| line.chars().count() <= COLUMNS),
        "{text}"
    );
    assert!(
        text.lines()
            .skip(1)
            .all(|line| line.starts_with("    word")),
        "{text}"
    );
    assert_eq!(text.split_whitespace().count(), 100);
    let endless = "x".repeat(300);
    assert_eq!(wrapped(&endless), format!("  {endless}\n"));
}
