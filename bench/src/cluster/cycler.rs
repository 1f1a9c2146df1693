//! `bench cycle`: one client that takes a lock and gives it back, over and over, through all
//! addresses of a cluster. A process of its own, so that nothing that the bench does delays it.
//!
//! It speaks the bare protocol and tries again at once, so that what is measured is the cluster's
//! and not the patience of a client library. Every cycle has a key of its own: a grant that was
//! lost with its leader blocks no later one. A node that refuses, is silent for [`ATTEMPT`] or is
//! gone makes it ask the next address.

use crate::experiments::locks::Backend;
use crate::experiments::locks::etcd::Keys;
use crate::experiments::locks::wire::{Tried, Wire};
use crate::experiments::processes::crew::lines_of;
use crate::experiments::processes::worker::now_ms;
use crate::load::peers::child::{Process, die_with_parent};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// How long one answer may take before the next address is asked.
const ATTEMPT: Duration = Duration::from_millis(250);

/// Between two cycles: the load is light.
const PAUSE: Duration = Duration::from_millis(2);

/// Between two attempts that came to nothing.
const RETRY: Duration = Duration::from_millis(1);

const TTL: Duration = Duration::from_secs(10);

#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The lock server: fencepost or etcd.
    #[arg(long, value_enum)]
    backend: Backend,
    /// All nodes.
    #[arg(long, value_delimiter = ',', required = true)]
    addresses: Vec<SocketAddr>,
}

/// One grant. Times are milliseconds of the monotonic clock, which all processes share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Grant {
    /// When the attempt began that it answers.
    pub(crate) asked_ms: f64,
    pub(crate) granted_ms: f64,
}

/// A connection to one node.
enum Asker {
    Fencepost(Wire),
    Etcd(Keys),
}

impl Asker {
    fn connect(backend: Backend, address: SocketAddr) -> Result<Asker, String> {
        match backend {
            Backend::Fencepost => Wire::connect_within(address, ATTEMPT).map(Asker::Fencepost),
            Backend::Etcd => Ok(Asker::Etcd(Keys::within(address, ATTEMPT))),
            Backend::Redis => Err("redis has no cluster here".to_owned()),
        }
    }

    /// The fence. An error: not from this node, not now.
    fn acquire(&mut self, key: &str) -> Result<u64, String> {
        match self {
            Asker::Fencepost(wire) => match wire.try_acquire(key, TTL)? {
                Tried::Granted { fence } => Ok(fence),
                Tried::Held | Tried::NotNow => Err("not now".to_owned()),
            },
            Asker::Etcd(keys) => keys.try_acquire(key, TTL)?.ok_or("held".to_owned()),
        }
    }

    fn release(&mut self, key: &str, fence: u64) -> Result<bool, String> {
        match self {
            Asker::Fencepost(wire) => wire.release(key, fence),
            Asker::Etcd(keys) => keys.release(key, fence),
        }
    }
}

/// What the hidden command `cycle` does, until it is killed.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = die_with_parent()
        .map_err(|error| error.to_string())
        .and_then(|()| cycle(arguments));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench cycle: {why}");
            ExitCode::FAILURE
        }
    }
}

fn cycle(arguments: &Arguments) -> Result<(), String> {
    let mut asker: Option<Asker> = None;
    let mut address_index = 0;
    for number in 0_u64.. {
        let key = format!("cycle-{number}");
        let asked_ms = now_ms();
        let granted = match asker.take() {
            Some(asker) => Ok(asker),
            None => Asker::connect(arguments.backend, arguments.addresses[address_index]),
        }
        .and_then(|mut asker| Ok((asker.acquire(&key)?, asker)));
        let Ok((fence, mut reached)) = granted else {
            address_index = (address_index + 1) % arguments.addresses.len();
            std::thread::sleep(RETRY);
            continue;
        };
        let granted_ms = now_ms();
        say(Grant {
            asked_ms,
            granted_ms,
        })?;
        // A release that fails is not repeated; no later cycle has the key.
        if reached.release(&key, fence).is_ok() {
            asker = Some(reached);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn say(grant: Grant) -> Result<(), String> {
    let line = serde_json::to_string(&grant).map_err(|error| error.to_string())?;
    let mut out = io::stdout().lock();
    let said = writeln!(out, "{line}").and_then(|()| out.flush());
    // The bench is gone.
    said.map_err(|error| error.to_string())
}

/// A running client. Dropping it ends it.
pub(crate) struct Cycler {
    _process: Process,
    grants: Receiver<Grant>,
}

impl Cycler {
    pub(crate) fn start(backend: Backend, addresses: &[SocketAddr]) -> Result<Cycler, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let mut command = Command::new(program);
        command
            .args(["cycle", "--backend", backend.as_str()])
            .args(["--addresses", &addresses.join(",")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let started = Process::spawn(command);
        let mut process = started.map_err(|error| format!("a client does not start: {error}"))?;
        let stdout = process.take_stdout().expect("it is piped");
        Ok(Cycler {
            _process: process,
            grants: lines_of(stdout),
        })
    }

    /// The next grant; `None`: there was none for so long.
    pub(crate) fn next(&self, patience: Duration) -> Option<Grant> {
        self.grants.recv_timeout(patience).ok()
    }

    /// Forgets the grants so far.
    pub(crate) fn forget(&self) {
        while self.grants.try_recv().is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_can_be_read_back() {
        let grant = Grant {
            asked_ms: 1.5,
            granted_ms: 2.25,
        };
        let line = serde_json::to_string(&grant).unwrap();
        assert_eq!(serde_json::from_str::<Grant>(&line).unwrap(), grant);
    }
}
