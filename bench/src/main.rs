//! `bench`: measures Fencepost, beside Redis, etcd and the floor (`bench --hot-key` and other workloads), and its engine by itself
//! (`bench engine`).

mod figures;
mod load;
mod restart;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    about = "Measures Fencepost and its peers. Results go to stdout, progress to stderr.",
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    load: load::Options,
}

#[derive(Subcommand)]
enum Command {
    /// The figures of the lock engine: memory, growth, expiry, random keys, hot key.
    Engine(figures::Arguments),
    /// Start a server with ten million leases again, after a clean stop and after a kill.
    Restart(restart::Arguments),
    /// A peer that is part of this program, in a process of its own.
    #[command(hide = true)]
    Serve { name: String, directory: PathBuf },
    /// Becomes another program, one that does not outlive the bench.
    #[command(hide = true)]
    Guard {
        #[arg(last = true)]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command {
        None => load::run(arguments.load),
        Some(Command::Engine(arguments)) => figures::run(&arguments),
        Some(Command::Restart(arguments)) => restart::run(&arguments),
        Some(Command::Serve { name, directory }) => load::peers::embedded::serve(&name, directory),
        Some(Command::Guard { command }) => {
            eprintln!("bench: {}", load::peers::child::guard(&command));
            ExitCode::FAILURE
        }
    }
}
