//! Servers that an experiment kills, holds and starts again on the same files. By their own ids,
//! never by name.

use super::clock::FakeClock;
use crate::http;
use crate::load::peers::child::{Process, free_address};
use crate::load::peers::embedded::READY;
use crate::load::peers::{etcd, resp};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until it can be connected to.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// How often we look whether it can.
const LOOK: Duration = Duration::from_millis(5);

/// How long an answer may take to the question whether it can.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);

/// A running server. Dropping it kills it.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: SocketAddr,
    has_fake_clock: bool,
}

/// How a Redis is to be started.
#[derive(Clone, Copy, Default)]
pub(crate) struct RedisSettings<'a> {
    /// Whether, and how often, its log is forced to the disk.
    pub(crate) appendfsync: Option<&'a str>,
    /// More of its settings, names and values.
    pub(crate) others: &'a [&'a str],
    pub(crate) clock: Option<&'a FakeClock>,
}

impl Daemon {
    /// One of the servers that are part of this program, on a free port.
    pub(crate) fn fencepost(
        name: &str,
        directory: &Path,
        clock: Option<&FakeClock>,
    ) -> Result<Daemon, String> {
        let mut command = this_program()?;
        command
            .args(["serve", name])
            .arg(directory)
            .stdout(Stdio::piped());
        let mut daemon = Daemon::spawn(command, None, clock)?;
        let stdout = daemon.child.stdout.take().expect("it is piped");
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        let address = read.ok().and_then(|_| line.trim().strip_prefix(READY));
        match address.and_then(|address| address.parse().ok()) {
            Some(address) => daemon.address = address,
            None => return Err(format!("{name} does not start: {}", line.trim())),
        }
        Ok(daemon)
    }

    /// Redis, with its files in `directory`.
    pub(crate) fn redis(directory: &Path, settings: RedisSettings<'_>) -> Result<Daemon, String> {
        let address = free_address().map_err(|error| error.to_string())?;
        let is_kept = settings.appendfsync.is_some();
        let mut command = this_program()?;
        command
            .args(["guard", "--", "redis-server", "--bind", "127.0.0.1"])
            .args(["--port", &address.port().to_string(), "--save", ""])
            .args(["--appendonly", if is_kept { "yes" } else { "no" }])
            .args(["--appendfsync", settings.appendfsync.unwrap_or("no")])
            .args(settings.others)
            .arg("--dir")
            .arg(directory);
        let mut daemon = Daemon::spawn(command, Some(address), settings.clock)?;
        daemon.wait_ready("redis-server", answers_ping)?;
        Ok(daemon)
    }

    /// A Sentinel with these settings, which it writes to as well.
    pub(crate) fn sentinel(settings: &Path) -> Result<Daemon, String> {
        let address = free_address().map_err(|error| error.to_string())?;
        let mut command = this_program()?;
        command
            .args(["guard", "--", "redis-server"])
            .arg(settings)
            .args(["--sentinel", "--port", &address.port().to_string()]);
        let mut daemon = Daemon::spawn(command, Some(address), None)?;
        daemon.wait_ready("a Sentinel", answers_ping)?;
        Ok(daemon)
    }

    /// An etcd of one node, with its files in `directory`.
    pub(crate) fn etcd(directory: &Path) -> Result<Daemon, String> {
        let free = || free_address().map_err(|error| error.to_string());
        let address = free()?;
        let mut command = this_program()?;
        command
            .args(["guard", "--", "etcd"])
            .args(etcd::arguments(directory, address, free()?));
        let mut daemon = Daemon::spawn(command, Some(address), None)?;
        daemon.wait_ready("etcd", |address| {
            // It listens before it has elected itself.
            http::ask(address, "GET", "/health", &[], "", LOOK_PATIENCE)
                .is_ok_and(|answer| answer.status == 200 && answer.body.contains("true"))
        })?;
        Ok(daemon)
    }

    /// `address`: unless the server itself is to tell it.
    fn spawn(
        mut command: Command,
        address: Option<SocketAddr>,
        clock: Option<&FakeClock>,
    ) -> Result<Daemon, String> {
        if let Some(clock) = clock {
            clock.put_under(&mut command);
        }
        let spawned = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        Ok(Daemon {
            child: spawned.map_err(|error| format!("a server does not start: {error}"))?,
            address: address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0))),
            has_fake_clock: clock.is_some(),
        })
    }

    fn wait_ready(
        &mut self,
        name: &str,
        is_ready: impl Fn(SocketAddr) -> bool,
    ) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < START_TIMEOUT {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("{name} ended at once: {status}"));
            }
            if is_ready(self.address) {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err(format!("{name} is not ready"))
    }

    /// What it has in memory at the moment.
    pub(crate) fn resident_bytes(&self) -> u64 {
        Process::resident_bytes_of(self.child.id())
    }

    /// Holds it still, or lets it go on.
    pub(crate) fn hold(&self, is_held: bool) -> Result<(), String> {
        let signal = if is_held { Signal::STOP } else { Signal::CONT };
        // It has not been waited for, so the number is still its own.
        kill_process(Pid::from_child(&self.child), signal).map_err(|error| error.to_string())
    }

    /// Ends it with SIGKILL. Returns when it is gone.
    pub(crate) fn kill(mut self) -> Result<(), String> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(|_| ()).map_err(|error| error.to_string())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Fails when it has ended already, and then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.has_fake_clock {
            FakeClock::tidy(self.child.id());
        }
    }
}

/// Whether a Redis is ready: while it reads its log, it answers with an error.
fn answers_ping(address: SocketAddr) -> bool {
    TcpStream::connect(address)
        .and_then(|mut stream| resp::call(&mut stream, &[b"PING"], 1))
        .is_ok()
}

/// This very program, which is all servers that are part of it and stands guard over those that are
/// not.
fn this_program() -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.stdout(Stdio::null());
    Ok(command)
}
