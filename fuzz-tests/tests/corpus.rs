//! Every target over its committed corpus, and over a bounded number of mutations of it.

use fastrand::Rng;
use fuzz_tests::{Run, TARGETS};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

/// Mutations of each target. `FUZZ_ROUNDS` asks for another number.
const ROUNDS: u64 = 3_000;

/// Where mutations begin. `FUZZ_SEED` asks for others.
const SEED: u64 = 14;

/// Changes that make one mutation, at most.
const CHANGES_MAX: usize = 6;

/// Inputs are cut to this.
const INPUT_BYTES_MAX: usize = 16 * 1024;

fn setting(name: &str, usual: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => usual,
    }
}

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/seeds")
        .join(target);
    let entries = std::fs::read_dir(&dir).expect("every target has a corpus");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", dir.display());
    let read = |path: PathBuf| (path.clone(), std::fs::read(path).unwrap());
    paths.into_iter().map(read).collect()
}

/// Runs one input. A panic is reported with the input, and goes on.
fn run(target: Run, input: &[u8], what: &dyn Fn() -> String) {
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| target(input)));
    if let Err(panic) = outcome {
        eprintln!("{}: {}", what(), input.escape_ascii());
        panic::resume_unwind(panic);
    }
}

fn bounded(name: &str) {
    let (_, target) = TARGETS
        .into_iter()
        .find(|(known, _)| *known == name)
        .unwrap();
    let corpus = corpus(name);
    for (path, input) in &corpus {
        run(target, input, &|| path.display().to_string());
    }
    let (seed, rounds) = (setting("FUZZ_SEED", SEED), setting("FUZZ_ROUNDS", ROUNDS));
    let mut random = Rng::with_seed(seed);
    for round in 0..rounds {
        let mut input = random.choice(&corpus).expect("it is not empty").1.clone();
        for _ in 0..random.usize(1..=CHANGES_MAX) {
            let other = &random.choice(&corpus).expect("it is not empty").1;
            mutate(&mut input, other, &mut random);
        }
        input.truncate(INPUT_BYTES_MAX);
        run(target, &input, &|| {
            format!("{name}, FUZZ_SEED={seed}, round {round}")
        });
    }
}

fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Rng) {
    if input.is_empty() {
        return input.push(random.u8(..));
    }
    let at = random.usize(..input.len());
    let until = (at + random.usize(1..=32)).min(input.len());
    match random.u8(..8) {
        0 => input[at] ^= 1 << random.u32(..8),
        1 => input[at] = random.u8(..),
        2 => {
            input[at] = *random
                .choice(&[0, 1, 0x7f, 0x80, 0xff])
                .expect("there are five")
        }
        3 => input.insert(at, random.u8(..)),
        4 => drop(input.drain(at..until)),
        5 => input.extend_from_within(at..until),
        6 => input.truncate(at),
        _ if other.is_empty() => {}
        _ => {
            let from = random.usize(..other.len());
            let until = (from + random.usize(1..=64)).min(other.len());
            input.splice(at..at, other[from..until].iter().copied());
        }
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            bounded(stringify!($name));
        })*

        #[test]
        fn all_targets_are_here() {
            assert_eq!(TARGETS.map(|(name, _)| name).as_slice(), [$(stringify!($name)),*]);
        }
    };
}

targets! { answer_http decode_reply decode_request decode_resp read_log read_peer recognise_script }
