//! A whole cluster in one thread, the same for the same seed: real nodes (openraft, log, ledger,
//! reign, clock, gate and wire) with a simulated network, disks that forget, and clocks of their
//! own speed. See docs/results/cluster.md, "Simulation".
//!
//! | file        | what                                                                    |
//! |-------------|-------------------------------------------------------------------------|
//! | `main.rs`   | many seeds, each in a process of its own; or one                        |
//! | `world.rs`  | nodes, clients, time, and what befalls them                             |
//! | `net.rs`    | streams of bytes between nodes                                          |
//! | `office.rs` | what stands above a node: it decides, and holds replies back            |
//! | `client.rs` | a client; `request.rs`: what it asks and is told                        |
//! | `checks.rs` | what must be true; `sum.rs`: what the log adds up to; `bug.rs`: mistakes |
//! | `raft.rs`   | what Raft says must be true                                             |
//! | `chance.rs` | everything random, from the seed                                        |
//!
//! A process of its own for each seed: libraries count in statics (tokio does, to seed its own
//! chance), so a run must not depend on those before it.

mod bug;
mod chance;
mod checks;
mod client;
mod net;
mod office;
mod raft;
mod request;
mod runs;
mod shared;
mod sum;
mod world;

use bug::Bug;
use clap::Parser;
use std::process::ExitCode;
use world::World;

/// Runs seeds until one breaks a rule. Ends with 1 if one does.
#[derive(Parser)]
struct Flags {
    /// Runs this one, in this process.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds are run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Plants this mistake. Then it is a failure if no seed finds it.
    #[arg(long, value_enum)]
    bug: Option<Bug>,
    /// Plants each mistake in turn, and prints a table.
    #[arg(long)]
    bugs: bool,
    /// Prints what happens.
    #[arg(long)]
    trace: bool,
    /// Seeds that run at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    if let Some(seed) = flags.seed {
        return one(seed, flags.bug, flags.trace);
    }
    let runs = runs::Runs {
        first: flags.from,
        count: flags.seeds,
        jobs: flags.jobs,
    };
    let is_well = match (flags.bugs, flags.bug) {
        (true, _) => runs.find_all_bugs(),
        (false, Some(bug)) => runs.find_bug(bug),
        (false, None) => runs.check(),
    };
    ExitCode::from(u8::from(!is_well))
}

/// From which size on a batch leaves beside others. Batches are tiny here: with the size that
/// counts outside, no two would ever be under way. One seed in four has that all the same.
fn companion_bytes(seed: u64) -> usize {
    match seed.is_multiple_of(4) {
        true => cluster::propose::COMPANION_BYTES,
        false => 0,
    }
}

/// Of so many batches one is refused, in every other seed. openraft refuses few by itself, and only
/// a refusal between two batches that are not makes a gap, as the rule of the log is there for.
fn refuse_every(seed: u64) -> u64 {
    match seed.is_multiple_of(2) {
        true => 0,
        false => 5 + seed % 50,
    }
}

/// One seed. The line that it prints is read by `runs.rs`.
fn one(seed: u64, bug: Option<Bug>, is_traced: bool) -> ExitCode {
    chance::seed_kernel(seed ^ 0x5eed);
    cluster::simulation::begin(cluster::simulation::Settings {
        mistake: bug.and_then(Bug::mistake),
        kept_entries: 8,
        companion_bytes: companion_bytes(seed),
        refuse_every: refuse_every(seed),
    });
    let panics = std::sync::Arc::new(parking_lot::Mutex::new(None));
    let first = panics.clone();
    std::panic::set_hook(Box::new(move |panic| {
        eprintln!("{panic}");
        first.lock().get_or_insert(panic.to_string());
    }));
    let checks = World::new(seed, bug, is_traced).run();
    let panicked = panics.lock().clone();
    let broken = checks.broken().map(str::to_owned).or(panicked);
    let numbers = checks.numbers;
    println!(
        "seed {seed} digest {:016x} grants {} reigns {} crashes {} ignored {} images {} overtaken {}",
        checks.digest,
        numbers.grants,
        numbers.reigns,
        numbers.crashes,
        numbers.ignored,
        numbers.images,
        numbers.overtaken,
    );
    match broken {
        None => ExitCode::SUCCESS,
        Some(what) => {
            println!("BROKEN {what}");
            ExitCode::from(1)
        }
    }
}
