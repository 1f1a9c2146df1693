//! The figures of the engine that criterion cannot give: resident memory, the longest single call,
//! a burst of expiries, and ratios against the baseline from interleaved rounds.
//!
//! Each part runs in a child process of its own, so that one part's memory and page faults are not
//! another's. A child prints its figures as JSON lines; the parent prints them all as one table, or
//! as JSON.

mod expiry;
mod growth;
mod hot_key;
mod memory;
mod process;
mod random;

use crate::progress::Progress;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::process::{Command, ExitCode, Stdio};

#[derive(Args)]
pub(crate) struct Arguments {
    /// What to measure.
    #[arg(value_enum, default_value = "all")]
    what: What,
    /// How many keys, where it matters.
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    /// How many steps one call of `advance` may take during the burst of expiries.
    #[arg(long, default_value_t = expiry::BUDGET)]
    budget: u32,
    /// Switches huge pages off, which the server does not: what are they worth?
    #[arg(long)]
    small_pages: bool,
    /// Prints one JSON object per figure instead of a table.
    #[arg(long)]
    json: bool,
    /// Runs one part in this process; what the parent does with its children.
    #[arg(long, hide = true)]
    part: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    Memory,
    Growth,
    Expiry,
    Random,
    HotKey,
    All,
}

/// One measured number.
#[derive(Serialize, Deserialize)]
struct Figure {
    part: String,
    subject: String,
    what: String,
    value: f64,
    unit: String,
    /// What was asked for, if anything was.
    #[serde(flatten)]
    target: Option<Target>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Target {
    target: f64,
    at_most: bool,
}

impl Target {
    fn at_most(target: f64) -> Option<Target> {
        let at_most = true;
        Some(Target { target, at_most })
    }

    fn at_least(target: f64) -> Option<Target> {
        let at_most = false;
        Some(Target { target, at_most })
    }

    fn is_met_by(self, value: f64) -> bool {
        if self.at_most {
            value <= self.target
        } else {
            value >= self.target
        }
    }
}

/// Where a part puts its figures.
struct Report<'a> {
    part: &'a str,
    subject: &'a str,
    figures: Vec<Figure>,
}

impl Report<'_> {
    fn add(&mut self, what: impl Into<String>, value: f64, unit: &str) {
        self.add_against(what, value, unit, None);
    }

    fn add_against(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &str,
        target: Option<Target>,
    ) {
        self.figures.push(Figure {
            part: self.part.into(),
            subject: self.subject.into(),
            what: what.into(),
            value,
            unit: unit.into(),
            target,
        });
    }
}

/// Everything a child can be asked to do: which part it belongs to, what it measures, and how.
struct Part {
    name: &'static str,
    what: What,
    subject: &'static str,
    measure: fn(&Arguments, &mut Report<'_>),
}

const ENGINE: &str = "engine";
const MAP: &str = "mutex map";
const BOTH: &str = "engine / mutex map";
const CONTROL: &str = "control";

#[rustfmt::skip]
const PARTS: &[Part] = &[
    Part { name: "memory", what: What::Memory, subject: ENGINE, measure: memory::engine },
    Part { name: "memory", what: What::Memory, subject: MAP, measure: memory::map },
    Part { name: "growth", what: What::Growth, subject: ENGINE, measure: growth::engine },
    Part { name: "growth", what: What::Growth, subject: MAP, measure: growth::map },
    Part { name: "growth", what: What::Growth, subject: CONTROL, measure: growth::control },
    Part { name: "expiry, 1 home thread", what: What::Expiry, subject: ENGINE, measure: expiry::engine_1 },
    Part { name: "expiry, 1 home thread", what: What::Expiry, subject: MAP, measure: expiry::map_1 },
    Part { name: "expiry, 2 home threads", what: What::Expiry, subject: ENGINE, measure: expiry::engine_2 },
    Part { name: "random", what: What::Random, subject: BOTH, measure: random::both },
    Part { name: "hot key", what: What::HotKey, subject: BOTH, measure: hot_key::both },
];

impl Part {
    /// How a child is told which part it is.
    fn id(&self) -> String {
        format!("{}: {}", self.name, self.subject)
    }
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Some(id) = &arguments.part {
        let Some(part) = PARTS.iter().find(|part| part.id() == *id) else {
            eprintln!("there is no part {id:?}");
            return ExitCode::FAILURE;
        };
        if arguments.small_pages {
            bench::without_huge_pages();
        }
        let mut report = Report {
            part: part.name,
            subject: part.subject,
            figures: Vec::new(),
        };
        (part.measure)(arguments, &mut report);
        print_json(&report.figures);
        return ExitCode::SUCCESS;
    }

    let is_asked = |part: &&Part| arguments.what == What::All || arguments.what == part.what;
    let parts: Vec<&Part> = PARTS.iter().filter(is_asked).collect();
    let progress = Progress::new(parts.len() as u64);
    let mut figures = Vec::new();
    for part in parts {
        progress.print(|| eprintln!("{} ...", part.id()));
        progress.begin(part.id());
        match run_in_child(&part.id(), arguments) {
            Ok(more) => figures.extend(more),
            Err(why) => {
                progress.print(|| eprintln!("{}: {why}", part.id()));
                return ExitCode::FAILURE;
            }
        }
        progress.step();
    }
    drop(progress);
    if arguments.json {
        print_json(&figures);
    } else {
        print_table(&figures);
    }
    ExitCode::SUCCESS
}

fn run_in_child(id: &str, arguments: &Arguments) -> Result<Vec<Figure>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args(["engine", "--part", id])
        .args(["--keys", &arguments.keys.to_string()])
        .args(["--budget", &arguments.budget.to_string()])
        .args(arguments.small_pages.then_some("--small-pages"))
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(output.status.to_string());
    }
    let lines = String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
    let parse = |line| serde_json::from_str(line).map_err(|error| format!("{error}: {line}"));
    lines.lines().map(parse).collect()
}

fn print_json(figures: &[Figure]) {
    for figure in figures {
        println!(
            "{}",
            serde_json::to_string(figure).expect("strings and numbers can be written")
        );
    }
}

fn print_table(figures: &[Figure]) {
    let mut part = "";
    for figure in figures {
        if figure.part != part {
            part = &figure.part;
            println!("\n{part}");
        }
        let digits = match figure.value.abs() {
            value if value >= 1_000.0 || value.fract() == 0.0 => 0,
            value if value >= 10.0 => 1,
            _ => 2,
        };
        let target = figure.target.map_or(String::new(), |target| {
            format!(
                "  {} {}: {}",
                if target.at_most {
                    "at most"
                } else {
                    "at least"
                },
                target.target,
                if target.is_met_by(figure.value) {
                    "met"
                } else {
                    "MISSED"
                }
            )
        });
        println!(
            "  {:<20}{:<58}{:>14.digits$} {}{target}",
            figure.subject, figure.what, figure.value, figure.unit
        );
    }
}

/// The middle of several rounds.
fn median(values: &mut [f64]) -> f64 {
    assert!(!values.is_empty(), "no rounds");
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
