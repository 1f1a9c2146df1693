//! `bench --experiment NAME`: what a lock is worth, shown by breaking it.
//!
//! Each experiment starts what it needs, runs both sides of an argument, prints a table and says
//! which of its claims held. A claim is computed from what was observed; one that did not hold
//! makes the run fail, so that no table is quoted that shows something else.
//!
//! | folder       | what                                                                        |
//! |--------------|-----------------------------------------------------------------------------|
//! | `stories/`   | one experiment each; `cluster.rs`: the five servers of Redlock              |
//! | `locks/`     | the locks they take, one file per backend; Fencepost by its frames          |
//! | `processes/` | workers, servers that are killed, moved clocks, the resource                |
//! | `report/`    | tables, claims, JSON, plots                                                 |

pub(crate) mod locks;
pub(crate) mod processes;
pub(crate) mod report;
mod stories;

use crate::load::Options;
use crate::load::peers::{Peer, PeerName};
use crate::progress::Progress;
use clap::{Args, ValueEnum};
use locks::Backend;
use report::Report;
use server::config::parse_time;
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use stories::{expiry, liveness, measured, pause, redlock, renew, restart, toctou};

#[derive(Args, Clone, Debug)]
pub(crate) struct Flags {
    /// Shows one thing about locks, with and without fences, and says whether it was seen.
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Experiments")]
    pub(crate) experiment: Option<Name>,
    /// The long form of an experiment.
    #[arg(long, requires = "experiment", help_heading = "Experiments")]
    full: bool,
    /// How long the first holder stands still. --ttl is the lease it had.
    #[arg(long, requires = "experiment", value_parser = parse_time, value_name = "TIME", help_heading = "Experiments")]
    pause: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// A holder stands still for longer than its lease, on every backend.
    Pause,
    /// A holder whose lease has ended gives the lock back.
    Toctou,
    /// A holder is killed.
    Liveness,
    /// The lock server is killed under load.
    Restart,
    /// A lease that is renewed while its holder works.
    Renew,
    /// Five Redis servers, of which one forgets or has its clock moved.
    Redlock,
    /// More and more want one key.
    Contention,
    /// Order of arrival against order of grants.
    Fairness,
    /// Very many short leases end.
    Expiry,
    /// All of them, one after another.
    All,
}

/// What an experiment is run with.
struct Context<'a> {
    options: &'a Options,
    is_full: bool,
    ttl: Option<Duration>,
    pause: Option<Duration>,
}

impl Context<'_> {
    /// The backends that were asked for: all three, unless `--peer` names some.
    fn backends(&self) -> Vec<Backend> {
        let asked = &self.options.peer;
        let is_asked = |backend: &Backend| asked.is_empty() || asked.contains(&backend.peer());
        Backend::ALL.into_iter().filter(is_asked).collect()
    }

    /// Starts a peer, or has the report say why it is left out.
    fn start(&self, name: PeerName, report: &mut Report) -> Option<Peer> {
        match Peer::start(name) {
            Ok(peer) => {
                report.used(format!("{} {}", peer.name, peer.version));
                Some(peer)
            }
            Err(why) => {
                report.skipped(format!("{name}: {why}"));
                None
            }
        }
    }

    /// The same for every backend that is asked for.
    fn start_backends(&self, report: &mut Report) -> Vec<(Backend, Peer)> {
        let backends = self.backends().into_iter();
        let started = backends.filter_map(|backend| {
            let peer = self.start(backend.peer(), report)?;
            Some((backend, peer))
        });
        started.collect()
    }
}

/// Runs one experiment or all of them.
pub(crate) fn run(
    name: Name,
    arguments: &Flags,
    options: &Options,
    ttl: Option<Duration>,
) -> ExitCode {
    let context = Context {
        options,
        is_full: arguments.full,
        ttl,
        pause: arguments.pause,
    };
    let names = match name {
        Name::All => Name::value_variants()
            .iter()
            .copied()
            .filter(|name| *name != Name::All)
            .collect(),
        name => vec![name],
    };
    let mut lines = Vec::new();
    let mut has_failed = false;
    let progress = Progress::new(names.len() as u64);
    for name in names {
        let begun = Instant::now();
        progress.begin(format!("{name:?}").to_lowercase());
        let done = one(name, &context);
        progress.print(|| match done {
            Ok(report) => {
                report.print(begun.elapsed());
                has_failed |= !report.holds();
                lines.extend(report.lines());
            }
            Err(why) => {
                println!("\nFAILED: {name:?}: {why}");
                has_failed = true;
            }
        });
        progress.step();
    }
    drop(progress);
    if let Some(path) = &options.json {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let written = File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
        match written {
            Ok(()) => println!("\nwrote {}", path.display()),
            Err(error) => {
                eprintln!("bench: {}: {error}", path.display());
                has_failed = true;
            }
        }
    }
    if has_failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn one(name: Name, context: &Context<'_>) -> Result<Report, String> {
    match name {
        Name::Pause => pause::run(context),
        Name::Toctou => toctou::run(context),
        Name::Liveness => liveness::run(context),
        Name::Restart => restart::run(context),
        Name::Renew => renew::run(context),
        Name::Redlock => redlock::run(context),
        Name::Contention => measured::contention(context),
        Name::Fairness => measured::fairness(context),
        Name::Expiry => expiry::run(context),
        Name::All => Err("it is none by itself".to_owned()),
    }
}
