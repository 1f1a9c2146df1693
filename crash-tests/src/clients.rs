//! A process of clients, as the driver sees it: started, stopped by SIGSTOP now and then,
//! continued, and ended.

use crate::crowd::{Crowd, STOP, WIND_UP};
use crate::history::{Event, Merger, Pause, Recorder};
use crate::process;
use crate::worker::Shared;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than it takes to connect on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often to look whether a process that was told to end has ended.
const LOOK: Duration = Duration::from_millis(10);

/// A running process of clients. Dropping it kills the process.
pub struct Clients {
    name: Arc<str>,
    /// Shared with the thread that continues it after a pause.
    child: Arc<Mutex<Child>>,
    stdin: ChildStdin,
    reader: Option<JoinHandle<Result<(), String>>>,
    pause: Option<JoinHandle<Result<(), String>>>,
    recorder: Arc<Recorder>,
}

impl Clients {
    /// Starts the process and waits until its clients are connected.
    pub fn start(program: &Path, crowd: &Crowd, shared: &Arc<Shared>) -> Result<Self, String> {
        let spawned = Command::new(program)
            .args(crowd.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child =
            spawned.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let stdin = child.stdin.take().expect("it was asked for");
        let stdout = child.stdout.take().expect("it was asked for");
        let (ready, is_ready) = mpsc::sync_channel(1);
        let reader = std::thread::spawn({
            let shared = Arc::clone(shared);
            move || follow(stdout, &shared, &ready)
        });
        let clients = Clients {
            name: crowd.name().into(),
            child: Arc::new(Mutex::new(child)),
            stdin,
            reader: Some(reader),
            pause: None,
            recorder: Arc::clone(&shared.recorder),
        };
        match is_ready.recv_timeout(PATIENCE) {
            Ok(()) => Ok(clients),
            Err(_) => Err(format!("{} did not connect", clients.name)),
        }
    }

    /// Stops the process now and continues it after `pause`. Returns when it stands still. `false`:
    /// it is still stopped from before.
    pub fn pause_for(&mut self, pause: Duration) -> Result<bool, String> {
        if let Some(before) = self.pause.take() {
            if !before.is_finished() {
                self.pause = Some(before);
                return Ok(false);
            }
            joined(before)?;
        }
        {
            let mut child = self.child.lock();
            process::signal(&mut child, Signal::STOP)?;
            stands_still(&child)?;
        }
        let (child, recorder) = (Arc::clone(&self.child), Arc::clone(&self.recorder));
        let (clients, from) = (Arc::clone(&self.name), recorder.now());
        self.pause = Some(std::thread::spawn(move || {
            std::thread::sleep(pause);
            let to = recorder.now();
            recorder.paused(Pause { clients, from, to });
            process::signal(&mut child.lock(), Signal::CONT)
        }));
        Ok(true)
    }

    /// Tells the process to wind up.
    pub fn wind_up(&mut self) -> Result<(), String> {
        if let Some(pause) = self.pause.take() {
            joined(pause)?;
        }
        let written = writeln!(self.stdin, "{STOP}");
        written.map_err(|error| format!("{} cannot be told to stop: {error}", self.name))
    }

    /// Waits until the process has ended and all that it saw is recorded.
    pub fn end(mut self) -> Result<(), String> {
        let deadline = Instant::now() + WIND_UP;
        let status = loop {
            let status = self.child.lock().try_wait();
            match status.map_err(|error| format!("cannot wait for {}: {error}", self.name))? {
                Some(status) => break status,
                None if Instant::now() >= deadline => {
                    return Err(format!("{} does not come to an end", self.name));
                }
                None => std::thread::sleep(LOOK),
            }
        };
        if !status.success() {
            return Err(format!("{} ended with {status}", self.name));
        }
        let reader = self.reader.take().expect("it is taken once");
        joined(reader)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // Both fail when it has ended already, and then there is nothing to do.
        let mut child = self.child.lock();
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn joined(thread: JoinHandle<Result<(), String>>) -> Result<(), String> {
    let panicked = |_| Err("a thread of the driver panicked".to_owned());
    thread.join().unwrap_or_else(panicked)
}

/// Waits until the kernel says that the process is stopped. A process that has ended instead stays
/// to be waited for.
fn stands_still(child: &Child) -> Result<(), String> {
    let either = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(Pid::from_child(child)), either) {
        Ok(Some(status)) if status.stopped() => Ok(()),
        Ok(_) => Err("the clients ended by themselves".to_owned()),
        Err(error) => Err(format!("cannot wait for the clients: {error}")),
    }
}

/// Records what the process writes, until it ends.
fn follow(from: ChildStdout, shared: &Shared, ready: &SyncSender<()>) -> Result<(), String> {
    let mut merger = Merger::new(&shared.recorder);
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Event::Ready) => drop(ready.try_send(())),
            Ok(Event::Met(failures)) => {
                let mut all = shared.failures.lock();
                for (what, count) in failures {
                    *all.entry(what).or_default() += count;
                }
            }
            Ok(event) => merger.add(event)?,
            Err(error) => return Err(format!("the clients wrote {line:?}: {error}")),
        }
    }
    Ok(())
}
