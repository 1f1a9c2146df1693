//! `bench`: measures Fencepost, beside Redis, etcd and the floor (`bench --hot-key` and other
//! workloads), as a cluster (`bench --cluster 3`), and its engine by itself (`bench engine`); and
//! shows what locks are worth, with and without fences (`bench --experiment NAME`).

mod cluster;
mod experiments;
mod figures;
mod frames;
mod http;
mod load;
mod page;
mod progress;
mod restart;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
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
    #[command(flatten)]
    experiments: experiments::Flags,
}

#[derive(Subcommand)]
enum Command {
    /// The figures of the lock engine: memory, growth, expiry, random keys, hot key.
    Engine(figures::Arguments),
    /// Start a server with ten million leases again, after a clean stop and after a kill.
    Restart(restart::Arguments),
    /// Ask for what the operator's page asks for while ten million locks are held.
    Page(page::Arguments),
    /// A peer that is part of this program, in a process of its own.
    #[command(hide = true)]
    Serve { name: String, directory: PathBuf },
    /// Takes a lock, pauses, and writes to a resource: what the experiments stop, kill and wake up
    /// again.
    #[command(hide = true)]
    Worker(experiments::processes::worker::Arguments),
    /// Takes and gives back locks through all nodes of a cluster, until it is killed.
    #[command(hide = true)]
    Cycle(cluster::cycler::Arguments),
    /// Becomes another program, one that does not outlive the bench.
    #[command(hide = true)]
    Guard {
        #[arg(last = true)]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
    let matches = Arguments::command().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match arguments.command {
        None => match arguments.experiments.experiment {
            None => match load::check(arguments.load) {
                Ok(options) if options.failover => cluster::failover::run(&options),
                Ok(options) => load::run(&options),
                Err(why) => {
                    eprintln!("bench: {why}");
                    ExitCode::from(2)
                }
            },
            Some(name) => {
                // The experiments have leases of their own unless `--ttl` is given.
                let is_ttl_given = matches.value_source("ttl") == Some(ValueSource::CommandLine);
                let ttl = is_ttl_given.then_some(arguments.load.ttl);
                experiments::run(name, &arguments.experiments, &arguments.load, ttl)
            }
        },
        Some(Command::Worker(arguments)) => experiments::processes::worker::run(&arguments),
        Some(Command::Cycle(arguments)) => cluster::cycler::run(&arguments),
        Some(Command::Engine(arguments)) => figures::run(&arguments),
        Some(Command::Restart(arguments)) => restart::run(&arguments),
        Some(Command::Page(arguments)) => page::run(&arguments),
        Some(Command::Serve { name, directory }) => load::peers::embedded::serve(&name, directory),
        Some(Command::Guard { command }) => {
            eprintln!("bench: {}", load::peers::child::guard(&command));
            ExitCode::FAILURE
        }
    }
}
