//! Servers that an experiment kills, holds and starts again on the same files. By their own ids, never by name.

use crate::load::peers::child::free_address;
use crate::load::peers::embedded::READY;
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

/// A running server. Dropping it kills it.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Daemon {
    /// One of the servers that are part of this program, on a free port.
    pub(crate) fn fencepost(name: &str, directory: &Path) -> Result<Daemon, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .args(["serve", name])
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{name} does not start: {error}"))?;
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        let address = read.ok().and_then(|_| line.trim().strip_prefix(READY));
        let Some(address) = address.and_then(|address| address.parse().ok()) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{name} does not start: {}", line.trim()));
        };
        Ok(Daemon { child, address })
    }

    /// Redis, with its files in `directory`. `appendfsync`: whether, and how often, its log is forced to the disk.
    pub(crate) fn redis(directory: &Path, appendfsync: Option<&str>) -> Result<Daemon, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let address = free_address().map_err(|error| error.to_string())?;
        let child = Command::new(program)
            .args(["guard", "--", "redis-server", "--bind", "127.0.0.1"])
            .args(["--port", &address.port().to_string(), "--save", ""])
            .args([
                "--appendonly",
                if appendfsync.is_some() { "yes" } else { "no" },
            ])
            .args(["--appendfsync", appendfsync.unwrap_or("no"), "--dir"])
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server does not start: {error}"))?;
        let mut daemon = Daemon { child, address };
        daemon.wait_ready()?;
        Ok(daemon)
    }

    fn wait_ready(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < START_TIMEOUT {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("redis-server ended at once: {status}"));
            }
            let answer = TcpStream::connect(self.address)
                .and_then(|mut stream| crate::load::peers::resp::call(&mut stream, &[b"PING"], 1));
            // While it reads its log, it answers with an error.
            if answer.is_ok() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err("redis-server is not ready".to_owned())
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
    }
}
