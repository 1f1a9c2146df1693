//! `bench`: measures what criterion cannot. Today that is the engine by itself: `bench engine`.

mod figures;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Measures Fencepost. Results go to stdout, progress to stderr.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The figures of the lock engine: memory, growth, expiry, random keys, hot key.
    Engine(figures::Arguments),
}

fn main() -> ExitCode {
    let Command::Engine(arguments) = Arguments::parse().command;
    figures::run(&arguments)
}
