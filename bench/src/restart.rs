//! `bench restart`: how long does a server with ten million leases take to stop, and to be back?
//!
//! Unit: seconds by the wall clock, from the start of the process until it says that clients can
//! connect. What was held before must be held after, or the run fails. A start after a kill reads
//! the whole log; one after a clean stop reads a snapshot.

use crate::frames::Line;
use crate::load::fill_fencepost;
use crate::load::peers::child::Process;
use crate::load::peers::embedded::{self, READY};
use crate::progress::Progress;
use clap::Args;
use protocol::{Reply, Request};
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Start a server with many leases again, after a clean stop and after a kill.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Locks that are held.
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
}

struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    address: SocketAddr,
    started_in: Duration,
}

impl Server {
    fn start(name: &str, directory: &Path) -> io::Result<Server> {
        let begun = Instant::now();
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", name])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let Some(address) = line.trim().strip_prefix(READY) else {
            let _ = child.kill();
            return Err(io::Error::other(line));
        };
        Ok(Server {
            started_in: begun.elapsed(),
            address: address.parse().map_err(io::Error::other)?,
            stdin: child.stdin.take(),
            child,
        })
    }

    /// It ends in good order when its standard input does.
    fn stop(&mut self) -> io::Result<Duration> {
        let begun = Instant::now();
        self.stdin = None;
        self.child.wait()?;
        Ok(begun.elapsed())
    }

    fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// How many locks it says are held.
    fn held(&self) -> io::Result<u64> {
        let mut line = Line::open(self.address, "bench", 0)?;
        line.ask(&Request::Stats, |reply| match reply {
            Reply::Stats { entries } => {
                let held = entries.iter().find(|entry| entry.name.as_str() == "held");
                held.map_or(0, |entry| entry.value)
            }
            _ => 0,
        })
    }

    fn resident_mb(&self) -> u64 {
        Process::resident_bytes_of(self.child.id()) >> 20
    }
}

/// A server that was not stopped because something else went wrong.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is reported of each mode; of the one without leases on disk, no start after a kill.
const STEPS: u64 = 4;

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    println!(
        "{:28}{:>12}{:>12}{:>12}{:>12}",
        "", "seconds", "locks", "MB", "log MB"
    );
    let modes = [embedded::RESTART_LEASE, embedded::RESTART_FENCE];
    let progress = Progress::new(STEPS * modes.len() as u64 - 1);
    let measured = modes
        .into_iter()
        .try_for_each(|name| measure(name, arguments.keys, &progress));
    drop(progress);
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(name: &str, keys: u64, progress: &Progress) -> io::Result<()> {
    let directory = TempDir::with_prefix("fencepost-bench-")?;
    let mode = name.rsplit('-').next().unwrap_or(name);
    let report = |what: &str, took: Duration, server: &Server| -> io::Result<()> {
        let held = server.held()?;
        progress.print(|| {
            println!(
                "{:28}{:>12.2}{held:>12}{:>12}{:>12}",
                format!("{mode}: {what}"),
                took.as_secs_f64(),
                server.resident_mb(),
                directory_mb(directory.path())
            );
        });
        progress.step();
        match held {
            held if held == keys => Ok(()),
            held => Err(io::Error::other(format!("{held} locks of {keys} are held"))),
        }
    };
    let mut server = Server::start(name, directory.path())?;
    progress.print(|| eprintln!("{mode}: taking {keys} locks"));
    progress.begin(format!("{mode}: {keys} locks"));
    let begun = Instant::now();
    fill_fencepost(server.address, keys).map_err(io::Error::other)?;
    report("taking all locks", begun.elapsed(), &server)?;
    if name == embedded::RESTART_LEASE {
        server.kill()?;
        server = Server::start(name, directory.path())?;
        report("start after a kill", server.started_in, &server)?;
    }
    let stopped_in = server.stop()?;
    let mut server = Server::start(name, directory.path())?;
    report("clean stop", stopped_in, &server)?;
    report("start after a clean stop", server.started_in, &server)?;
    server.kill()
}

fn directory_mb(path: &Path) -> u64 {
    let files = std::fs::read_dir(path).into_iter().flatten().flatten();
    let bytes: u64 = files
        .filter_map(|file| file.metadata().ok())
        .map(|data| data.len())
        .sum();
    bytes >> 20
}
