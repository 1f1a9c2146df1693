//! Seeds that every change must pass, and planted mistakes that they must find. The counts are for
//! two cores and less than forty seconds; the program itself runs as many as it is told to.

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_cluster-sim");
    let output = Command::new(program).args(arguments).output();
    output.expect("the simulation was built with this test")
}

fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}{errors}", String::from_utf8_lossy(&output.stdout))
}

#[test]
fn no_seed_breaks_a_rule() {
    let output = simulate(&["--seeds", "200"]);
    // It says which seed, and how to see it again.
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_seed_comes_out_the_same_each_time() {
    for seed in ["3", "11"] {
        let first = simulate(&["--seed", seed]);
        let second = simulate(&["--seed", seed]);
        assert!(first.status.success(), "{}", text(&first));
        assert_eq!(text(&first), text(&second));
    }
}

#[test]
fn planted_mistakes_that_show_soon_are_found() {
    for bug in ["reply-at-local-sync", "engine-kept", "ceiling-used-early"] {
        let output = simulate(&["--seeds", "60", "--bug", bug]);
        assert!(output.status.success(), "{bug}: {}", text(&output));
    }
}
