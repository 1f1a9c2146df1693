//! Many seeds, each in a process of its own.

use crate::bug::Bug;
use clap::ValueEnum;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// So many of a hundred runs may have had nothing at stake.
const IDLE_PERCENT_MAX: u64 = 5;

/// How often progress is said.
const TELL_EVERY: u64 = 100;

#[derive(Clone, Copy)]
pub(crate) struct Runs {
    pub first: u64,
    pub count: u64,
    pub jobs: usize,
}

/// What one seed came to.
struct Outcome {
    seed: u64,
    /// What is broken.
    broken: Option<String>,
    numbers: BTreeMap<String, u64>,
}

/// What all came to.
#[derive(Default)]
struct Total {
    runs: u64,
    idle: u64,
    numbers: BTreeMap<String, u64>,
    broken: Option<(u64, String)>,
}

impl Runs {
    /// Runs all of them, and stops at the first that breaks a rule. Whether all is well.
    pub(crate) fn check(self) -> bool {
        let start = Instant::now();
        let total = self.run(None, true);
        println!(
            "{} seeds in {:.0} s: {}; nothing was at stake in {}",
            total.runs,
            start.elapsed().as_secs_f64(),
            describe(&total.numbers),
            total.idle
        );
        if let Some((seed, what)) = total.broken {
            println!("seed {seed} broke a rule: {what}");
            println!("see it again: cargo run --release -p cluster-sim -- --seed {seed} --trace");
            return false;
        }
        let is_at_stake = total.idle * 100 <= total.runs * IDLE_PERCENT_MAX;
        if !is_at_stake {
            println!("too often nothing was at stake: these runs show little");
        }
        is_at_stake
    }

    /// Looks for a planted mistake. Whether it was found.
    pub(crate) fn find_bug(self, bug: Bug) -> bool {
        let start = Instant::now();
        let total = self.run(Some(bug), false);
        let name = bug.to_possible_value().expect("it has a name");
        let name = name.get_name();
        let took_s = start.elapsed().as_secs_f64();
        match total.broken {
            Some((seed, what)) => {
                let tried = seed - self.first + 1;
                println!("| `{name}` | {seed} | {tried} | {what} |");
                eprintln!("{took_s:.0} s");
                true
            }
            None => {
                println!("| `{name}` | not found | {} | |", self.count);
                false
            }
        }
    }

    /// The same for all of them.
    pub(crate) fn find_all_bugs(self) -> bool {
        println!("| planted mistake | seed | seeds tried | what was broken |");
        println!("|---|---|---|---|");
        let bugs = Bug::value_variants().iter();
        bugs.map(|bug| self.find_bug(*bug))
            .fold(true, |all, found| all & found)
    }

    fn run(self, bug: Option<Bug>, tells: bool) -> Total {
        let next = AtomicU64::new(self.first);
        let is_over = AtomicBool::new(false);
        let total = Mutex::new(Total::default());
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.first + self.count {
                            return;
                        }
                        let outcome = run_seed(seed, bug);
                        let mut total = total.lock();
                        total.add(&outcome);
                        if total.broken.is_some() {
                            is_over.store(true, Ordering::Relaxed);
                        }
                        if tells && total.runs.is_multiple_of(TELL_EVERY) {
                            eprintln!("{} seeds: {}", total.runs, describe(&total.numbers));
                        }
                    }
                });
            }
        });
        total.into_inner()
    }
}

impl Total {
    fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        let of = |name: &str| outcome.numbers.get(name).copied().unwrap_or(0);
        self.idle += u64::from(of("grants") == 0 || of("reigns") < 2);
        for (name, number) in &outcome.numbers {
            *self.numbers.entry(name.clone()).or_default() += number;
        }
        if let Some(what) = &outcome.broken {
            // With several jobs the lowest seed counts, so that the same one is named each time.
            let is_first = (self.broken.as_ref()).is_none_or(|(seed, _)| outcome.seed < *seed);
            if is_first {
                self.broken = Some((outcome.seed, what.clone()));
            }
        }
    }
}

fn describe(numbers: &BTreeMap<String, u64>) -> String {
    let parts = numbers
        .iter()
        .map(|(name, number)| format!("{number} {name}"));
    parts.collect::<Vec<_>>().join(", ")
}

fn run_seed(seed: u64, bug: Option<Bug>) -> Outcome {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.args(["--seed", &seed.to_string()]);
    if let Some(bug) = bug {
        let name = bug.to_possible_value().expect("it has a name");
        command.args(["--bug", name.get_name()]);
    }
    let output = command.output().expect("this program can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let pairs = words.chunks_exact(2).skip(2);
    let numbers = pairs.filter_map(|pair| Some((pair[0].to_owned(), pair[1].parse().ok()?)));
    let broken = (!output.status.success()).then(|| {
        let said = lines.next().and_then(|line| line.strip_prefix("BROKEN "));
        let ended = || {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().last().unwrap_or_default().to_owned();
            format!("the run ended with {}: {last}", output.status)
        };
        said.map_or_else(ended, str::to_owned)
    });
    Outcome {
        seed,
        broken,
        numbers: numbers.collect(),
    }
}
