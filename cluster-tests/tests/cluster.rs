//! Short runs of what `cargo run -p cluster-tests -- SCENARIO` does at length.

use cluster_tests::{Plan, Report, Scenario, run};
use crash_tests::Program;
use std::sync::Mutex;
use std::time::Duration;

/// How many runs may show too little before that is a fault. On a starved machine a failover takes
/// longer than the leases last, and then none of them lives over it. That excuses no broken
/// promise: each one fails the test.
const RUNS_MAX: usize = 3;

/// What a run says in which nothing was at stake.
const NOTHING_SHOWN: &str = "nothing was shown";

/// One cluster at a time: the machine may be small.
static TURN: Mutex<()> = Mutex::new(());

fn run_once(scenario: Scenario, times: usize, locks: usize) -> Result<Report, String> {
    let given = std::env::var("FENCEPOST_TEST_SEED");
    let seed = given.ok().and_then(|seed| seed.parse().ok());
    let plan = Plan {
        program: Program::own(env!("CARGO_BIN_EXE_cluster-tests")),
        client_program: env!("CARGO_BIN_EXE_cluster-tests").into(),
        older: None,
        scenario,
        times,
        nodes: 3,
        locks,
        away: Duration::ZERO,
        seed: seed.unwrap_or_else(|| fastrand::u64(..)),
        // The machine may be busy, and no time is asserted here.
        grant_max: Duration::from_secs(60),
        is_kept: false,
    };
    println!("FENCEPOST_TEST_SEED={}", plan.seed);
    run(&plan, &mut |_, what| println!("{what}"))
}

#[track_caller]
fn promises_are_kept(scenario: Scenario, times: usize) {
    promises_are_kept_over(scenario, times, 0);
}

/// With so many locks that are held all the time.
#[track_caller]
fn promises_are_kept_over(scenario: Scenario, times: usize, locks: usize) {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for _ in 0..RUNS_MAX {
        match run_once(scenario, times, locks) {
            Ok(report) => {
                println!("{report}");
                return report
                    .judge_promises()
                    .unwrap_or_else(|why| panic!("{why}"));
            }
            Err(why) if why.contains(NOTHING_SHOWN) => println!("{why}"),
            Err(why) => panic!("{why}"),
        }
    }
    panic!("{RUNS_MAX} runs have shown nothing");
}

#[test]
fn what_was_acknowledged_survives_the_leader() {
    promises_are_kept(Scenario::KillLeader, 5);
}

#[test]
fn a_leader_that_stood_still_tells_nothing_that_is_not_in_the_log() {
    promises_are_kept(Scenario::PauseLeader, 2);
}

#[test]
fn a_leader_that_is_cut_off_grants_nothing() {
    promises_are_kept(Scenario::CutLeader, 2);
}

#[test]
fn a_rolling_restart_breaks_no_promise() {
    promises_are_kept(Scenario::RollingRestart, 1);
}

#[test]
fn a_rolling_upgrade_goes_back_until_the_format_is_raised() {
    promises_are_kept(Scenario::RollingUpgrade, 2);
}

#[test]
fn a_node_that_was_away_for_long_is_sent_what_is_held() {
    promises_are_kept_over(Scenario::SnapshotUnderLoad, 1, 2_000);
}

#[test]
fn a_slow_disk_of_two_nodes_that_are_left_breaks_no_promise() {
    promises_are_kept(Scenario::SlowDiskOfTwo, 1);
}

#[test]
fn a_node_whose_disk_hangs_does_not_go_on_to_lead() {
    promises_are_kept(Scenario::HangingDisk, 1);
}

#[test]
fn another_node_takes_the_place_of_a_lost_one() {
    promises_are_kept(Scenario::ReplaceNode, 1);
}

#[test]
fn a_node_without_its_disk_is_refused() {
    promises_are_kept(Scenario::WipedDisk, 1);
}

#[test]
fn a_node_whose_ledger_differs_ends_itself_and_the_others_serve_on() {
    promises_are_kept(Scenario::DifferingLedger, 1);
}
