//! `bench worker`: takes a lock, reads a counter, pauses, works, and writes the counter back, one
//! higher. A process of its own, so that it can be stopped (SIGSTOP) and killed for real.
//!
//! It says what happens to it in one JSON object per line, with the time of the machine's monotonic
//! clock, so that the lines of two workers can be laid side by side. It writes even if its lock may
//! be gone by then, as a program does that looked at its lock a moment before it was stopped.

use super::store;
use crate::experiments::locks::{self, Backend, Lock, Wish};
use crate::load::peers::child::die_with_parent;
use clap::{Args, ValueEnum};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use server::config::parse_time;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The lock server.
    #[arg(long, value_enum)]
    pub(crate) backend: Backend,
    /// Its address.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) server: SocketAddr,
    /// What the lock protects. Without one, the lock is only held.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) resource: Option<SocketAddr>,
    /// Whether the resource is to refuse fences that run backwards; the worker will not work with
    /// one that does otherwise.
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) fence: Switch,
    /// The worker's name; no two at a time may have the same.
    #[arg(long, default_value = "worker")]
    pub(crate) name: String,
    #[arg(long, default_value = "counter")]
    pub(crate) key: String,
    /// The lease.
    #[arg(long, value_parser = parse_time, default_value = "2s")]
    pub(crate) ttl: Duration,
    /// How long to wait for the lock.
    #[arg(long, value_parser = parse_time, default_value = "30s")]
    pub(crate) wait: Duration,
    /// How long to do nothing between the acquire and the write.
    #[arg(long, value_parser = parse_time, default_value = "0ms")]
    pub(crate) pause: Duration,
    /// How long the work takes that comes before the write.
    #[arg(long, value_parser = parse_time, default_value = "50ms")]
    pub(crate) work: Duration,
    /// Prolongs the lease while it is held.
    #[arg(long)]
    pub(crate) renew: bool,
    /// How long the session may be silent until it ends, and all its locks with it. Only Fencepost
    /// has sessions. Without this, longer than anything takes: only the lease counts.
    #[arg(long, value_parser = parse_time, default_value = "10m")]
    pub(crate) session_ttl: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Something that happened to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) what: What,
    /// By the monotonic clock of the machine.
    pub(crate) at_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    Acquired {
        fence: u64,
    },
    TimedOut,
    Wrote {
        status: u16,
        answer: String,
        believed: Option<bool>,
    },
    Released {
        was_held: bool,
    },
    Failed {
        why: String,
    },
}

/// Milliseconds of the monotonic clock, which all processes share.
pub(crate) fn now_ms() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn say(what: What) -> Result<(), String> {
    let at_ms = now_ms();
    let line = serde_json::to_string(&Event { what, at_ms }).map_err(|error| error.to_string())?;
    let mut out = io::stdout().lock();
    let said = writeln!(out, "{line}").and_then(|()| out.flush());
    said.map_err(|error| error.to_string())
}

/// What the hidden command `worker` does.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = die_with_parent()
        .map_err(|error| error.to_string())
        .and_then(|()| work(arguments));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("worker {}: {why}", arguments.name);
            let _ = say(What::Failed { why });
            ExitCode::FAILURE
        }
    }
}

fn work(arguments: &Arguments) -> Result<(), String> {
    let wants_fence = arguments.fence == Switch::On;
    if let Some(resource) = arguments.resource
        && store::is_fenced(resource)? != wants_fence
    {
        return Err("the resource does not do with fences what --fence says".to_owned());
    }
    let mut lock = locks::connect(
        arguments.backend,
        arguments.server,
        &arguments.name,
        arguments.session_ttl,
    )?;
    let wish = Wish {
        key: arguments.key.clone(),
        ttl: arguments.ttl,
        wait: arguments.wait,
        is_renewed: arguments.renew,
    };
    let Some(fence) = lock.acquire(&wish)? else {
        return say(What::TimedOut);
    };
    // Read under the lock, before the pause: what is written afterwards follows from it.
    let before = match arguments.resource {
        None => 0,
        Some(resource) => count_of(&store::read(resource, &arguments.key)?.value),
    };
    say(What::Acquired { fence })?;
    std::thread::sleep(arguments.pause);
    std::thread::sleep(arguments.work);
    if let Some(resource) = arguments.resource {
        write(arguments, lock.as_ref(), resource, fence, before + 1)?;
    }
    let was_held = lock.release()?;
    say(What::Released { was_held })
}

fn write(
    arguments: &Arguments,
    lock: &dyn Lock,
    resource: SocketAddr,
    fence: u64,
    count: u64,
) -> Result<(), String> {
    let believed = lock.believes();
    let value = format!("{count} {}", arguments.name);
    let answer = store::write(resource, &arguments.key, fence, &value)
        .map_err(|error| format!("the resource: {error}"))?;
    say(What::Wrote {
        status: answer.status,
        answer: answer.body.trim().to_owned(),
        believed,
    })
}

/// The counter in a value, which has the last writer's name behind it.
pub(crate) fn count_of(value: &str) -> u64 {
    let count = value.split_whitespace().next();
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_count_and_a_name() {
        assert_eq!(count_of("12 a"), 12);
        assert_eq!(count_of(""), 0);
    }

    #[test]
    fn events_can_be_read_back() {
        let event = Event {
            what: What::Acquired { fence: 7 },
            at_ms: 1.5,
        };
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }
}
