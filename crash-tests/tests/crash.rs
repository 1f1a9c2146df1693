//! The real server, killed again and again. Short runs of what `cargo run -p crash-tests -- --kills
//! 1000` does at length.

use crash_tests::checker::{self, Kept, Summary};
use crash_tests::driver::{self, Outcome, Plan};
use crash_tests::trouble::Trouble;
use crash_tests::{Program, story};
use std::sync::Mutex;

/// How many runs may show too little before that is a fault. On a starved machine a restart takes
/// longer than the leases last, and then none of them lives over a kill. Such a run is repeated,
/// and what all of them have shown counts. That excuses no broken promise: each one fails the test.
const RUNS_MAX: usize = 8;

/// One run at a time: each has a server and a dozen tasks of its own, and the machine may be small.
static TURN: Mutex<()> = Mutex::new(());

fn run(mode: Kept, kills: usize, troubles: &[Trouble]) -> Outcome {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let given = std::env::var("FENCEPOST_TEST_SEED");
    let seed = given.ok().and_then(|seed| seed.parse().ok());
    let plan = Plan {
        program: Program::own(env!("CARGO_BIN_EXE_crash-tests")),
        client_program: env!("CARGO_BIN_EXE_crash-tests").into(),
        mode,
        kills,
        troubles: troubles.to_vec(),
        seed: seed.unwrap_or_else(|| fastrand::u64(..)),
    };
    println!("FENCEPOST_TEST_SEED={}", plan.seed);
    driver::run(&plan, &mut |_, _| {}).unwrap_or_else(|why| panic!("{why}"))
}

#[track_caller]
fn promises_are_kept(mode: Kept, kills: usize, troubles: &[Trouble]) {
    let mut shown = Summary::default();
    for _ in 0..RUNS_MAX {
        let outcome = run(mode, kills, troubles);
        let (summary, violations) = checker::check(&outcome.history, mode);
        println!("{summary}\n{:#?}", outcome.failures);
        for violation in &violations {
            println!("{}", story::tell(&outcome.history, violation));
        }
        assert!(violations.is_empty(), "{} broken", violations.len());
        assert!(summary.kills >= kills, "{summary}");
        assert!(summary.pauses > 0, "no client was stopped: {summary}");
        shown.add(&summary);
        if shown.demand(mode).is_ok() {
            return;
        }
    }
    shown.demand(mode).unwrap();
}

#[test]
fn fences_rise_whatever_is_killed_even_without_a_log() {
    promises_are_kept(Kept::None, 6, &[Trouble::Pauses]);
}

#[test]
fn what_was_acknowledged_survives_every_kill() {
    promises_are_kept(Kept::Lease, 16, &[Trouble::Pauses, Trouble::Clocks]);
}

#[test]
fn holders_claim_what_they_have_after_every_kill() {
    promises_are_kept(Kept::Fence, 8, &[Trouble::Pauses, Trouble::Clocks]);
}

#[test]
fn fences_rise_over_every_kill_without_a_grace_period() {
    promises_are_kept(Kept::FenceWithoutGrace, 6, &[Trouble::Pauses]);
}

#[test]
fn pauses_other_modes_and_repairs_change_nothing() {
    let troubles = [
        Trouble::Pauses,
        Trouble::Clocks,
        Trouble::Modes,
        Trouble::Repairs,
    ];
    promises_are_kept(Kept::Lease, 12, &troubles);
}

#[test]
fn a_server_that_forgets_its_leases_is_found_out() {
    // It keeps nothing, and is held to what one that keeps everything promises. Whether a run shows
    // it is a matter of moments, so there are several.
    let is_found_out = (0..RUNS_MAX).any(|_| {
        let outcome = run(Kept::None, 4, &[]);
        let (_, violations) = checker::check(&outcome.history, Kept::Lease);
        !violations.is_empty()
    });
    assert!(is_found_out);
}
