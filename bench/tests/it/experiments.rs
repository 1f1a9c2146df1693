//! The experiments, as short as can be and on Fencepost alone. What they show is checked, never how
//! long anything took.

use serde_json::Value;
use std::process::Command;
use tempfile::TempDir;

fn experiment(arguments: &str) -> (String, Vec<Value>) {
    let directory = TempDir::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["--peer", "fencepost", "--json", "lines.json"])
        .args(arguments.split_whitespace())
        .current_dir(directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{complaints}");
    let json = std::fs::read_to_string(directory.path().join("lines.json")).unwrap();
    let lines = json.lines().map(|line| serde_json::from_str(line).unwrap());
    (text, lines.collect())
}

#[test]
fn a_paused_holder_does_harm_without_a_fence_and_none_with_it() {
    let (text, lines) = experiment("--experiment pause --ttl 500ms --pause 3s");
    assert!(!text.contains("NOT SHOWN"), "{text}");
    let runs: Vec<&Value> = lines
        .iter()
        .filter(|line| !line["fence"].is_null())
        .collect();
    assert_eq!(
        runs.len(),
        4,
        "with and without a fence, stopped and asleep"
    );
    for run in runs {
        let is_fenced = run["fence"] == true;
        assert_eq!(run["is_corrupted"], !is_fenced, "{run}");
        assert_eq!(
            run["first_status"],
            if is_fenced { 409 } else { 200 },
            "{run}"
        );
        assert_eq!(run["stale_rejections"], u64::from(is_fenced), "{run}");
    }
}

#[test]
fn a_clock_that_is_moved_moves_no_lease_of_a_server_that_runs() {
    let (text, lines) = experiment("--experiment redlock");
    assert!(!text.contains("NOT SHOWN"), "{text}");
    if text.contains("Debian's package faketime") {
        return eprintln!("NOT TESTED: clocks that are moved\n{text}");
    }
    let story = |name: &str| {
        let is_it = |line: &&Value| line["story"] == name;
        lines.iter().find(is_it).unwrap_or_else(|| panic!("{text}"))
    };
    for name in ["fencepost, +1 h", "fencepost, -1 h"] {
        assert_eq!(story(name)["is_held_twice"], false, "{name}");
    }
    let down = story("fencepost none, -1 h while down");
    assert!(down["second_fence"].as_u64() < down["first_fence"].as_u64());
}

#[test]
fn an_unknown_experiment_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["--experiment", "perpetual-motion"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}
