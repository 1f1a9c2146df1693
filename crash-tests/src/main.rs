//! Kills the server as often as it is told to, and says whether all promises were kept.

use clap::{Parser, Subcommand, ValueEnum};
use crash_tests::checker::{self, Mode};
use crash_tests::driver::{self, Plan};
use crash_tests::{Program, serve, story};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// How many violations are told at length. One is enough to begin with, and where there is one there are often many.
const STORIES_MAX: usize = 10;

/// Kill the server under its clients, again and again, and check what they saw
#[derive(Parser)]
#[command(
    after_help = "Exit codes: 0 all promises were kept, 1 one was not, or nothing was shown."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// How often the server is killed
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    kills: u32,
    /// How the server is run
    #[arg(long, value_enum, default_value_t = Durability::Lease)]
    durability: Durability,
    /// Moments and choices come from this; without it, another one each time
    #[arg(long)]
    seed: Option<u64>,
    /// A server to run instead of the one in this program. It takes its settings from the environment
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Be the server: what this program starts and kills
    #[command(hide = true)]
    Serve,
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
    if let Some(Command::Serve) = cli.command {
        return serve();
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
    let program = match &cli.server {
        Some(path) => Program {
            path: path.clone(),
            arguments: Vec::new(),
        },
        None => Program::own(std::env::current_exe().map_err(|error| error.to_string())?),
    };
    let plan = Plan {
        program,
        mode: match cli.durability {
            Durability::None => Mode::None,
            Durability::Fence => Mode::Fence,
            Durability::FenceWithoutGrace => Mode::FenceWithoutGrace,
            Durability::Lease => Mode::Lease,
        },
        kills: cli.kills as usize,
        seed: cli.seed.unwrap_or_else(|| fastrand::u64(..)),
    };
    println!("{:?}, {} kills, seed {}", plan.mode, plan.kills, plan.seed);
    let start = Instant::now();
    let outcome = driver::run(&plan, &mut |kills, recorder| {
        // A line for every tenth of the way, and every ten kills at least.
        if kills % (plan.kills / 10).clamp(1, 10) == 0 {
            let grants = recorder.grant_count();
            let seconds = start.elapsed().as_secs();
            println!("{seconds:>6} s {kills:>6} kills {grants:>9} grants");
        }
    })?;
    let (summary, violations) = checker::check(&outcome.history, plan.mode);
    println!("\n{summary}");
    println!("what clients met, besides:");
    for (what, count) in &outcome.failures {
        println!("  {what:40} {count:>9}");
    }
    for violation in violations.iter().take(STORIES_MAX) {
        println!("\nVIOLATION {}", story::tell(&outcome.history, violation));
    }
    if !violations.is_empty() {
        let count = violations.len();
        return Err(format!(
            "\n{count} promises were broken; seed {}",
            plan.seed
        ));
    }
    summary.demand(plan.mode)?;
    println!("\nall promises were kept");
    Ok(())
}
