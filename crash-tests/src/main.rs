//! Kills the server as often as it is told to, and says whether all promises were kept.

use clap::{Parser, Subcommand, ValueEnum};
use crash_tests::checker::{self, Kept, Summary};
use crash_tests::crowd::{self, Crowd};
use crash_tests::driver::{self, Outcome, Plan};
use crash_tests::trouble::Trouble;
use crash_tests::{Program, serve, story};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// How many violations are told at length. One is enough to begin with, and where there is one
/// there are often many.
const STORIES_MAX: usize = 10;

/// Kill the server under its clients, again and again, and check what they saw
#[derive(Parser)]
#[command(after_help = "\
Clients of both ports take, renew, release and lose locks; their history is checked afterwards.

A thousand kills in a mode, in some minutes:
  crash-tests --durability lease --kills 1000 --parallel 8
The same with lives in fence and lease in turn, and a log that is damaged and repaired:
  crash-tests --durability lease --kills 1000 --parallel 8 --trouble pauses,clocks,modes,repairs

Exit codes: 0 all promises were kept, 1 one was not, or nothing was shown.")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// How often the server is killed
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    kills: u32,
    /// How the server is run
    #[arg(long, value_enum, default_value_t = Durability::Lease)]
    durability: Durability,
    /// What else befalls server and clients. Kinds that a mode promises nothing about are left out
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "KINDS",
        default_values_t = [Trouble::Pauses, Trouble::Clocks]
    )]
    trouble: Vec<Trouble>,
    /// Only kills, and now and then a stop in good order
    #[arg(long, conflicts_with = "trouble")]
    no_trouble: bool,
    /// How many servers live and die at the same time, each with its own clients, and share the
    /// kills among them. Most of the time they wait for leases to end, so that eight need no more
    /// than two processors
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    parallel: u32,
    /// Moments and choices come from this; without it, another one each time
    #[arg(long)]
    seed: Option<u64>,
    /// A server to run instead of the one in this program. It takes its settings from the
    /// environment
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Be the server: what this program starts and kills
    #[command(hide = true)]
    Serve,
    /// Be some of its clients: what this program starts, stops and continues
    #[command(hide = true)]
    Clients(Crowd),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Durability {
    None,
    Fence,
    /// fence, and --grace off
    FenceWithoutGrace,
    Lease,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match &cli.command {
        Some(Command::Serve) => return serve(),
        Some(Command::Clients(crowd)) => return crowd::run(crowd),
        None => {}
    }
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = match &cli.server {
        Some(path) => Program {
            path: path.clone(),
            arguments: Vec::new(),
        },
        None => Program::own(&own),
    };
    let parallel = (cli.parallel as usize).min(cli.kills as usize);
    let plan = Plan {
        program,
        client_program: own,
        mode: match cli.durability {
            Durability::None => Kept::None,
            Durability::Fence => Kept::Fence,
            Durability::FenceWithoutGrace => Kept::FenceWithoutGrace,
            Durability::Lease => Kept::Lease,
        },
        kills: (cli.kills as usize).div_ceil(parallel),
        troubles: match cli.no_trouble {
            true => Vec::new(),
            false => cli.trouble.clone(),
        },
        seed: cli.seed.unwrap_or_else(|| fastrand::u64(..)),
    };
    let Plan { mode, kills, .. } = plan;
    println!(
        "{mode:?}, {parallel} times {kills} kills, {:?}, seed {}",
        plan.troubles, plan.seed
    );
    let start = Instant::now();
    let plans = (0..parallel as u64).map(|number| Plan {
        seed: plan.seed.wrapping_add(number),
        ..plan.clone()
    });
    let outcomes: Vec<Result<Outcome, String>> = std::thread::scope(|scope| {
        let runs = plans.map(|plan| scope.spawn(move || run_one(&plan, start)));
        let runs: Vec<_> = runs.collect();
        let joined = runs.into_iter().map(|run| run.join());
        joined
            .map(|outcome| outcome.unwrap_or_else(|_| Err("a run panicked".to_owned())))
            .collect()
    });
    let mut summary = Summary::default();
    let mut failures: BTreeMap<String, u64> = BTreeMap::new();
    let mut troubles: BTreeMap<&str, u64> = BTreeMap::new();
    let mut broken = 0;
    for outcome in outcomes {
        let outcome = outcome?;
        let (checked, violations) = checker::check(&outcome.history, mode);
        summary.add(&checked);
        for (what, count) in outcome.failures {
            *failures.entry(what).or_default() += count;
        }
        for (what, count) in outcome.troubles {
            *troubles.entry(what).or_default() += count;
        }
        for violation in violations.iter().take(STORIES_MAX.saturating_sub(broken)) {
            println!("\nVIOLATION {}", story::tell(&outcome.history, violation));
        }
        broken += violations.len();
    }
    println!("\n{summary}");
    println!("what befell them, besides:");
    for (what, count) in &troubles {
        println!("  {what:40} {count:>9}");
    }
    println!("what clients met:");
    for (what, count) in &failures {
        println!("  {what:40} {count:>9}");
    }
    if broken > 0 {
        return Err(format!(
            "\n{broken} promises were broken; seed {}",
            plan.seed
        ));
    }
    summary.demand(mode)?;
    let seconds = start.elapsed().as_secs();
    println!("\nall promises were kept, in {seconds} s");
    Ok(())
}

fn run_one(plan: &Plan, start: Instant) -> Result<Outcome, String> {
    driver::run(plan, &mut |kills, recorder| {
        // A line for every tenth of the way, and every ten kills at least.
        if kills % (plan.kills / 10).clamp(1, 10) == 0 {
            let grants = recorder.grant_count();
            let seconds = start.elapsed().as_secs();
            println!("{seconds:>6} s {kills:>6} kills {grants:>9} grants");
        }
    })
}
