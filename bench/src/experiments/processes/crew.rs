//! Workers as child processes: started, listened to, stopped, woken up, killed. By their own ids,
//! never by name.

use super::worker::{Event, Switch, What};
use crate::experiments::locks::Backend;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// What a worker is to do; see `bench worker --help`.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) backend: Backend,
    pub(crate) server: SocketAddr,
    pub(crate) resource: Option<SocketAddr>,
    pub(crate) fence: Switch,
    pub(crate) key: String,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) pause: Duration,
    pub(crate) work: Duration,
    pub(crate) is_renewed: bool,
    pub(crate) session_ttl: Option<Duration>,
}

/// A running worker. Dropping it kills it.
pub(crate) struct Worker {
    name: String,
    child: Child,
    events: Receiver<Event>,
}

impl Job {
    pub(crate) fn start(&self, name: &str) -> Result<Worker, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let ms = |time: Duration| format!("{}ms", time.as_millis());
        let mut command = Command::new(program);
        command
            .args(["worker", "--backend", self.backend.as_str()])
            .args(["--server", &self.server.to_string()])
            .args(["--name", name, "--key", &self.key])
            .args(["--ttl", &ms(self.ttl), "--wait", &ms(self.wait)])
            .args(["--pause", &ms(self.pause), "--work", &ms(self.work)]);
        if let Some(resource) = self.resource {
            command.args(["--resource", &resource.to_string()]);
        }
        command.args(match self.fence {
            Switch::On => ["--fence", "on"],
            Switch::Off => ["--fence", "off"],
        });
        if self.is_renewed {
            command.arg("--renew");
        }
        if let Some(session_ttl) = self.session_ttl {
            command.args(["--session-ttl", &ms(session_ttl)]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("a worker does not start: {error}"))?;
        let stdout = child.stdout.take().expect("it is piped");
        Ok(Worker {
            name: name.to_owned(),
            child,
            events: lines_of(stdout),
        })
    }
}

impl Worker {
    /// The next thing that happens to it.
    pub(crate) fn next(&self, patience: Duration) -> Result<Event, String> {
        let event = self.events.recv_timeout(patience);
        let event = event.map_err(|_| format!("worker {} says nothing", self.name))?;
        match event.what {
            What::Failed { why } => Err(format!("worker {}: {why}", self.name)),
            _ => Ok(event),
        }
    }

    /// Waits until it has the lock. The fence, and when.
    pub(crate) fn acquired(&self, patience: Duration) -> Result<(u64, f64), String> {
        let event = self.next(patience)?;
        match event.what {
            What::Acquired { fence } => Ok((fence, event.at_ms)),
            other => Err(format!("worker {} has no lock: {other:?}", self.name)),
        }
    }

    /// Waits until it has written. The status, what the client believed, and when.
    pub(crate) fn wrote(&self, patience: Duration) -> Result<(u16, Option<bool>, f64), String> {
        let event = self.next(patience)?;
        match event.what {
            What::Wrote {
                status, believed, ..
            } => Ok((status, believed, event.at_ms)),
            other => Err(format!("worker {} has not written: {other:?}", self.name)),
        }
    }

    /// Waits until it has given the lock back. Whether it still had it.
    pub(crate) fn released(&self, patience: Duration) -> Result<bool, String> {
        match self.next(patience)?.what {
            What::Released { was_held } => Ok(was_held),
            other => Err(format!("worker {} has not released: {other:?}", self.name)),
        }
    }

    /// Stops it where it stands, or lets it go on.
    pub(crate) fn hold(&self, is_held: bool) -> Result<(), String> {
        let signal = if is_held { Signal::STOP } else { Signal::CONT };
        // It has not been waited for, so the number is still its own.
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| format!("no signal reaches worker {}: {error}", self.name))
    }

    /// Ends it with SIGKILL. Returns when it is gone.
    pub(crate) fn kill(&mut self) -> Result<(), String> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed
            .map(|_| ())
            .map_err(|error| format!("worker {}: {error}", self.name))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Fails when it has ended already, and then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process says, one JSON object per line, as it says it.
pub(crate) fn lines_of<T: DeserializeOwned + Send + 'static>(stdout: ChildStdout) -> Receiver<T> {
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Ok(line) = serde_json::from_str(&line) {
                // The listener of a killed process is gone.
                let _ = send.send(line);
            }
        }
    });
    lines
}

/// Sleeps until so long after `begun`.
pub(crate) fn sleep_until(begun: Instant, after: Duration) {
    std::thread::sleep(after.saturating_sub(begun.elapsed()));
}
