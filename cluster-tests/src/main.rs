//! Lets a scenario happen to a cluster as often as it is told to, and says whether all promises
//! were kept.

use clap::{Parser, Subcommand};
use cluster_tests::{GRANT_MAX, Plan, Scenario, run};
use crash_tests::Program;
use crash_tests::crowd::{self, Crowd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Kill, stop and cut off the nodes of a cluster under its clients, and check what they saw
#[derive(Parser)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Three nodes run as child processes, their links through a proxy. Clients of both ports take, renew,
release and lose locks on all of them; their history is checked afterwards, and the cluster has to
heal: one leader, all nodes ready, equal hashes of all ledgers, a grant within 5 s.

A leader killed two hundred times, in some minutes:
  cluster-tests kill-leader --times 200
Nodes replaced by another build and back, ten times; PATH is an older build of this program:
  cluster-tests rolling-upgrade --from PATH --times 10
A node that is sent an image of a million locks:
  cluster-tests snapshot-under-load --locks 1000000 --times 3
What programs read:
  cluster-tests cut-leader --times 20 --json

Exit codes: 0 all promises were kept, 1 one was not, or nothing was shown."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// What befalls the nodes
    #[arg(value_enum, required = true)]
    scenario: Option<Scenario>,
    /// How often
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// How many nodes there are
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=7))]
    nodes: u32,
    /// For rolling-upgrade: an older build of this program. Without it, this one poses as both
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
    /// For snapshot-under-load: so many locks are held all the time, and clients are measured
    #[arg(long, default_value_t = 0)]
    locks: usize,
    /// For snapshot-under-load with locks: a node is away for at least so long
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    away: u64,
    /// Moments and choices come from this; without it, another one each time
    #[arg(long)]
    seed: Option<u64>,
    /// Leave the directories and lines of the nodes even if all was well
    #[arg(long)]
    keep: bool,
    /// Print the result as JSON; progress goes to standard error
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Be a node: what this program starts and kills
    #[command(hide = true)]
    Serve,
    /// Be some of its clients
    #[command(hide = true)]
    Clients(Crowd),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let scenario = match (&cli.command, cli.scenario) {
        (Some(Command::Serve), _) => return crash_tests::serve(),
        (Some(Command::Clients(crowd)), _) => return crowd::run(crowd),
        (None, scenario) => scenario.expect("clap asks for it"),
    };
    match run_scenario(&cli, scenario) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run_scenario(cli: &Cli, scenario: Scenario) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let plan = Plan {
        program: Program::own(&own),
        older: cli.from.as_ref().map(Program::own),
        client_program: own,
        scenario,
        times: cli.times as usize,
        nodes: cli.nodes as usize,
        locks: cli.locks,
        away: Duration::from_secs(cli.away),
        seed: cli.seed.unwrap_or_else(|| fastrand::u64(..)),
        grant_max: GRANT_MAX,
        is_kept: cli.keep,
    };
    let begin = Instant::now();
    eprintln!(
        "{}, {} times, {} nodes, seed {}",
        scenario.name(),
        plan.times,
        plan.nodes,
        plan.seed
    );
    let report = run(&plan, &mut |round, what| {
        let seconds = begin.elapsed().as_secs();
        eprintln!("{seconds:>6} s  {round:>5} of {}  {what}", plan.times);
    })?;
    match cli.json {
        true => println!("{:#}", report.json()),
        false => println!("{report}"),
    }
    report.judge()?;
    if !cli.json {
        println!("all promises were kept");
    }
    Ok(())
}
