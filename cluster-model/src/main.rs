//! Runs the model within larger bounds than the tests do, and prints what was explored.

use clap::Parser;
use cluster_model::world::{Action, World};
use cluster_model::{Cluster, Fault, Rules};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};
use std::process::ExitCode;
use std::time::Instant;

/// The longest way to a planted mistake that is looked for.
const STEPS_MAX: usize = 40;

/// Checks the rules of the cluster in every state within the bounds. Ends with 1 if one is broken.
#[derive(Parser)]
struct Flags {
    /// Plants this mistake, and prints the shortest way to a broken property.
    #[arg(long, value_enum)]
    fault: Option<Fault>,
    /// How often each thing may happen, as in: requests 2 elections 1. The names: keys, requests,
    /// ticks, drifts, elections, restarts, snapshots, late, doubles, refusals.
    #[arg(required = true)]
    bounds: Vec<String>,
    /// Threads that explore. A search for a planted mistake has one.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let begin = Instant::now();
    let bounds = match flags.bounds.join(" ").parse() {
        Ok(bounds) => bounds,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(2);
        }
    };
    let model = Cluster {
        rules: Rules(flags.fault),
        bounds,
        keeps_numbers: flags.fault.is_some(),
    };
    let is_broken = match flags.fault {
        None => check(model, flags.threads),
        Some(_) => (1..=STEPS_MAX).any(|steps| find(&model, steps)),
    };
    println!("took {:.1} s", begin.elapsed().as_secs_f64());
    ExitCode::from(u8::from(is_broken))
}

/// Looks at every state. Depth first: the states that are still to be looked at are then few.
fn check(model: Cluster, threads: usize) -> bool {
    let checker = model.checker().threads(threads);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_dfs().join();
    let (states, steps) = (checker.unique_state_count(), checker.state_count());
    println!(
        "{states} states, {steps} steps between them, the longest way {}",
        checker.max_depth()
    );
    let mut is_broken = false;
    for property in checker.model().properties() {
        let path = checker.discovery(property.name);
        let verdict = match (&property.expectation, &path) {
            (Expectation::Sometimes, Some(_)) => "happens",
            (Expectation::Sometimes, None) => "never happens",
            (_, None) => "holds",
            (_, Some(_)) => "BROKEN",
        };
        println!("{verdict:>13}  {}", property.name);
        if let (Some(path), "BROKEN") = (path, verdict) {
            is_broken = true;
            print_steps(path);
        }
    }
    is_broken
}

fn print_steps(path: Path<World, Action>) {
    for action in path.into_actions() {
        println!("    {action:?}");
    }
}

/// Prints what is broken after so many steps.
fn find(model: &Cluster, steps: usize) -> bool {
    let checker = model.clone().checker().target_max_depth(steps + 2);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let mut is_broken = false;
    for (name, path) in checker.discoveries() {
        if model.property(name).expectation.discovery_is_failure() {
            is_broken = true;
            println!("{name}: {} states", checker.unique_state_count());
            print_steps(path);
        }
    }
    is_broken
}
