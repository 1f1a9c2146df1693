//! The command that runs under a lock, and the signals that reach it.
//!
//! The command gets a process group of its own, so that stopping it also stops what it has started.
//! Otherwise a shell could die while its script's last command works on without a lock. At a
//! terminal the command stays in this program's group, because the terminal stops a background
//! group as soon as it reads. Then only the command itself is stopped, and the terminal sends it
//! Ctrl-C.
//!
//! It is tied to this program: see `tied.rs`.

use super::failure::{Code, Failure};
use super::tied;
use rustix::process::{Pid, Signal, getpgrp, kill_process, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::future::poll_fn;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::task::Poll;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// What a signal is sent to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The command and what it has started.
    Group,
    /// The command alone, which shares the terminal with this program.
    Process,
}

/// A running command.
pub(super) struct Child {
    child: tokio::process::Child,
    pid: Pid,
    reach: Reach,
}

impl Child {
    /// Starts `command` with these variables added to its environment.
    pub(super) fn spawn(
        command: &[OsString],
        environment: &[(&str, &OsStr)],
    ) -> Result<Self, Failure> {
        let reach = if is_at_terminal() {
            Reach::Process
        } else {
            Reach::Group
        };
        // Its parent is the thread that starts it: the runtime's only one, which lives as long as
        // this program does.
        let mut tied = tokio::process::Command::from(tied::tie(command));
        tied.envs(environment.iter().copied());
        if reach == Reach::Group {
            tied.process_group(0);
        }
        let spawned = tied.spawn();
        let child = spawned.map_err(|error| tied::cannot_run(&command[0], &error))?;
        let pid = child.id().expect("it has not been waited for");
        Ok(Self {
            child,
            pid: Pid::from_raw(pid as i32).expect("the kernel numbers processes from 1"),
            reach,
        })
    }

    /// Waits for its end. May be dropped half-way and called again.
    pub(super) async fn wait(&mut self) -> Result<ExitStatus, Failure> {
        self.child.wait().await.map_err(|error| {
            Failure::new(
                Code::Internal,
                format_args!("cannot wait for the command: {error}"),
            )
        })
    }

    /// Passes on a signal that this program got.
    pub(super) fn forward(&self, signal: Signal) {
        // At a terminal these are keys, and the terminal has sent them to the whole group.
        let is_key = signal == Signal::INT || signal == Signal::QUIT;
        if self.reach == Reach::Group || !is_key {
            self.send(signal);
        }
    }

    /// Stops it: TERM, and KILL if it has not ended `grace` later. Signals that arrive meanwhile
    /// are passed on.
    pub(super) async fn stop(
        &mut self,
        grace: Duration,
        signals: &mut Signals,
    ) -> Result<ExitStatus, Failure> {
        self.send(Signal::TERM);
        let deadline = tokio::time::sleep(grace);
        tokio::pin!(deadline);
        let status = loop {
            tokio::select! {
                status = self.wait() => break status?,
                () = &mut deadline => {
                    self.send(Signal::KILL);
                    break self.wait().await?;
                }
                signal = signals.next() => self.forward(signal),
            }
        };
        // What it left behind has had its TERM. The kernel does not give the group's number to
        // another group while a process is left in it.
        if self.reach == Reach::Group {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        Ok(status)
    }

    fn send(&self, signal: Signal) {
        // Once it has been waited for, its number may be another process's.
        if self.child.id().is_none() {
            return;
        }
        // It may have ended a moment ago. Then the signal is not needed.
        let _ = match self.reach {
            Reach::Group => kill_process_group(self.pid, signal),
            Reach::Process => kill_process(self.pid, signal),
        };
    }
}

/// Whether this program is in the foreground of a terminal.
fn is_at_terminal() -> bool {
    // An error means that standard input is no terminal, or not this program's.
    rustix::termios::tcgetpgrp(std::io::stdin()).is_ok_and(|foreground| foreground == getpgrp())
}

/// The exit code that a shell would report: the command's own, or 128 and the signal that ended it.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => Code::Internal as u8,
    }
}

/// The signals that would end this program and leave the command without its lock. They are caught
/// and passed on.
pub(super) struct Signals(Vec<(Signal, tokio::signal::unix::Signal)>);

impl Signals {
    /// From here on they do not end this process.
    pub(super) fn catch() -> Result<Self, Failure> {
        let kinds = [
            (Signal::TERM, SignalKind::terminate()),
            (Signal::INT, SignalKind::interrupt()),
            (Signal::HUP, SignalKind::hangup()),
            (Signal::QUIT, SignalKind::quit()),
            (Signal::USR1, SignalKind::user_defined1()),
            (Signal::USR2, SignalKind::user_defined2()),
        ];
        let streams = kinds.map(|(number, kind)| Ok((number, signal(kind)?)));
        let streams: io::Result<Vec<_>> = streams.into_iter().collect();
        streams.map(Self).map_err(|error| {
            Failure::new(
                Code::Internal,
                format_args!("cannot catch signals: {error}"),
            )
        })
    }

    /// The next one. May be dropped half-way: no signal is lost.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (number, stream) in &mut self.0 {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}
