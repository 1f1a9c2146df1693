use super::super::tests::{origin, row};
use super::*;
use crate::load::workloads::Waiting;

#[test]
fn ticks_enclose_the_values() {
    assert_eq!(
        decades(13.0, 420.0),
        [10.0, 20.0, 50.0, 100.0, 200.0, 500.0]
    );
    assert_eq!(decades(3.0, 90_000.0), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5]);
    let one = decades(100.0, 100.0);
    assert!(one[0] < one[one.len() - 1]);
}

#[test]
fn labels_read_well() {
    assert_eq!(time_label(0.5), "500 ns");
    assert_eq!(time_label(20.0), "20 µs");
    assert_eq!(time_label(5_000.0), "5 ms");
    assert_eq!(time_label(1e6), "1 s");
    assert_eq!(rate_label(200_000.0), "200 k");
}

#[test]
fn a_peer_is_drawn_at_its_best_way_to_wait() {
    let (mut slow, mut fast) = (row(), row());
    slow.median.insert("cycles_per_s", 10.0);
    fast.median.insert("cycles_per_s", 20.0);
    let rows = [slow, fast];
    let best = best(&rows);
    assert_eq!(best.len(), 1);
    assert_eq!(best[0].cycles_per_s(), 20.0);
}

/// A row with so many values.
fn row_of(values: u64) -> Row {
    let mut row = row();
    row.median.insert("p99_us", 40.0);
    for us in 1..=values {
        row.latency.record(us * 1_000).unwrap();
    }
    row
}

#[test]
fn plots_are_written_as_svg_and_say_where_they_come_from() {
    let directory = tempfile::tempdir().unwrap();
    let drawn = draw_all(&[row_of(2_000)], directory.path(), &origin()).unwrap();
    assert_eq!(drawn.len(), 3);
    for plot in drawn {
        assert_eq!(plot.workload, "hot-key");
        let text = std::fs::read_to_string(plot.path).unwrap();
        assert!(text.starts_with("<svg") && text.contains("redis-fenced*"));
        assert!(text.contains("commit 0123456789, 2026-01-31, 2 cores"));
        assert!(text.contains("has no line"));
    }
}

/// Two grants in six seconds were drawn as a rate, and quoted.
#[test]
fn a_point_that_says_nothing_is_not_drawn_but_named() {
    let mut etcd = row_of(2);
    (etcd.peer, etcd.setting.waiting) = (PeerName::Etcd, Waiting::InLine);
    let (all, drawn) = ([row_of(2_000), etcd], tempfile::tempdir().unwrap());
    for plot in draw_all(&all, drawn.path(), &origin()).unwrap() {
        let named = "Not drawn: etcd, 200 contenders, in line, of which only 2 values were seen.";
        let text = std::fs::read_to_string(plot.path).unwrap();
        assert!(text.contains(named));
        assert_eq!(text.matches("etcd").count(), 1, "no line, no name");
    }
    assert!(
        draw_all(&all[1..], drawn.path(), &origin())
            .unwrap()
            .is_empty()
    );
}

#[test]
fn leases_that_ended_on_time_do_not_stretch_the_plot() {
    let mut row = row_of(0);
    row.setting.workload = Workload::Expiry;
    for _ in 0..500 {
        row.latency.record(1).unwrap();
        row.latency.record(1_000_000).unwrap();
    }
    let points = quantiles(&row);
    assert!(!points.is_empty() && points.iter().all(|(_, us)| *us >= EXPIRY_US_MIN));
}
