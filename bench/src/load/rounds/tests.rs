use super::super::workloads::Waiting;
use super::*;
use std::time::Duration;

fn row(peer: PeerName, rates: &[f64]) -> Row {
    let setting = Setting {
        workload: Workload::ManyKeys,
        connections: 50,
        pipeline: 16,
        contenders: 0,
        waiting: Waiting::InLine,
        work: Duration::ZERO,
        keys: 10,
    };
    let sample = |&rate| Sample {
        figures: Figures::from([("ops_per_s", rate)]),
        latency: histogram(),
        bounded_by: None,
    };
    let samples = (1..).zip(rates.iter().map(sample)).collect();
    Row::gather(peer, String::new(), setting, samples)
}

#[test]
fn ratios_are_taken_within_a_round() {
    // The third round was slow for both.
    let mut rows = [
        row(PeerName::Fencepost, &[400.0, 410.0, 40.0]),
        row(PeerName::Redis, &[100.0, 100.0, 10.0]),
        row(PeerName::Echo, &[800.0, 820.0, 80.0]),
    ];
    compare(&mut rows);
    assert_eq!(rows[0].ratios["fencepost_ops_ratio"], 1.0);
    assert_eq!(rows[1].ratios["fencepost_ops_ratio"], 4.0);
    assert_eq!(rows[2].ratios["fencepost_ops_ratio"], 0.5);
    assert_eq!(rows[1].median["ops_per_s"], 100.0);
    assert_eq!(rows[1].least["ops_per_s"], 10.0);
}

#[test]
fn a_cluster_of_etcd_is_what_others_are_a_multiple_of() {
    let mut rows = [
        row(PeerName::FencepostCluster, &[600.0, 660.0]),
        row(PeerName::EtcdCluster, &[100.0, 110.0]),
    ];
    compare(&mut rows);
    assert_eq!(rows[0].ratios["etcd_cluster_ops_ratio"], 6.0);
    assert_eq!(rows[1].ratios["etcd_cluster_ops_ratio"], 1.0);
    assert!(!rows[0].ratios.contains_key("fencepost_ops_ratio"));
}

fn failure(peer: PeerName, why: &str) -> Failure {
    Failure {
        peer,
        setting: row(peer, &[1.0]).setting,
        why: why.to_owned(),
    }
}

#[test]
fn a_peer_that_fails_beside_ours_is_a_result_unless_it_is_not_safe() {
    let options = |flags: &str| Options::parsed(flags).unwrap();
    let both = [PeerName::Fencepost, PeerName::Etcd];
    let slow = failure(PeerName::Etcd, "requests were still unanswered");
    assert!(!slow.fails_run(&both, &options("--many-keys")));
    assert!(!slow.fails_run(&both, &options("--cluster 3")));
    // Alone it is what the run is about, and a smoke test is about everything.
    assert!(slow.fails_run(&[PeerName::Etcd], &options("--many-keys")));
    assert!(slow.fails_run(&both, &options("--smoke")));
    let unsafe_one = failure(PeerName::Etcd, &format!("{NOT_SAFE}: two holders"));
    assert!(unsafe_one.fails_run(&both, &options("--many-keys")));
    for ours in [
        PeerName::Fencepost,
        PeerName::FencepostCluster,
        PeerName::Server,
    ] {
        let ours = failure(ours, "requests were still unanswered");
        assert!(ours.fails_run(&both, &options("--many-keys")));
    }
}

#[test]
fn a_failure_is_told_once_with_all_settings_that_it_came_at() {
    let at = |peer, pipeline, why| {
        let mut failure = failure(peer, why);
        failure.setting.pipeline = pipeline;
        failure
    };
    let failures = [
        at(PeerName::Etcd, 16, "unanswered"),
        at(PeerName::Redis, 16, "refused"),
        at(PeerName::Etcd, 128, "unanswered"),
        at(PeerName::Etcd, 128, "unanswered"),
        at(PeerName::Etcd, 128, "something else"),
    ];
    assert_eq!(
        told_once(&failures),
        [
            "many-keys of etcd at pipeline 16; pipeline 128: unanswered",
            "many-keys of redis at pipeline 16: refused",
            "many-keys of etcd at pipeline 128: something else",
        ]
    );
}

#[test]
fn a_measurement_of_mostly_errors_is_none() {
    let sample = |errors| Sample {
        figures: Figures::from([("ops", 1_000.0), ("errors", errors)]),
        latency: histogram(),
        bounded_by: None,
    };
    assert!(answered(sample(0.0)).is_ok());
    assert!(answered(sample(10.0)).is_ok());
    let why = answered(sample(5_000.0)).err().unwrap();
    assert_eq!(why, "5000 requests came to nothing, 1000 were answered");
}

#[test]
fn without_fencepost_nothing_is_compared() {
    let mut rows = [row(PeerName::Redis, &[1.0])];
    compare(&mut rows);
    assert!(rows[0].ratios.is_empty());
}

#[test]
fn what_should_not_happen_is_not_hidden_by_a_median() {
    let rounds = [0.0, 0.0, 0.0, 2.0, 36.0];
    assert_eq!(together("inversions", &rounds), 38.0);
    assert_eq!(together("errors", &rounds), 38.0);
    assert_eq!(together("head_start_max_us", &rounds), 36.0);
    assert_eq!(together("ops_per_s", &rounds), 0.0);
}

#[test]
fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
    assert_eq!(median(&[1.0]), 1.0);
    assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
    assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
}
