//! `redlock`: five Redis servers, a majority of which must agree. What does the majority add?
//!
//! Three stories. **Pause**: one server is stopped, the holder pauses for longer than its lease. **Amnesia**: no pause at all; A
//! reaches three servers only, and one of them comes back without its data and votes for B too. **Fencepost**: the same loss of everything, with
//! `--durability none`. Each with and without a fence at the resource.
//!
//! Redlock has no fence. The nearest thing is made here out of five counters: every server counts its votes for a key, and a
//! holder's number is the highest of those who voted for it. It rises as long as no server forgets.
//!
//! The partition is a client that does not ask some of the servers; the network itself is whole. A server whose clock is moved is not
//! played: it would take Debian's package faketime under Redis.

use super::Context;
use super::daemon::Daemon;
use super::locks::redis::Redis;
use super::report::Report;
use super::store::{self, Resource};
use super::wire::{Tried, Wire};
use super::worker::count_of;
use crate::load::peers::PeerName;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SERVERS: usize = 5;
const MAJORITY: usize = 3;

/// All servers, and those on A's side of a partition.
const ALL: [usize; SERVERS] = [0, 1, 2, 3, 4];
const NEAR: [usize; MAJORITY] = [0, 1, 2];

const TTL: Duration = Duration::from_secs(2);

/// How long one server may take to answer before the next one is asked: short beside the lease, as Redlock's text has it.
const PATIENCE: Duration = Duration::from_millis(100);

/// The counters of the servers on A's side are so many votes ahead of the others when the story begins.
const HISTORY: usize = 3;

const KEY: &str = "redlock";

/// What was seen of one story.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Seen {
    story: &'static str,
    fence: bool,
    /// Whether B was granted the lock before A's lease had ended.
    is_held_twice: bool,
    first_fence: u64,
    second_fence: u64,
    first_status: u16,
    second_status: u16,
    accepted: u64,
    count: u64,
}

impl Seen {
    fn is_corrupted(&self) -> bool {
        self.count != self.accepted
    }
}

/// Five servers.
struct Cluster {
    servers: Vec<Daemon>,
    directories: Vec<TempDir>,
}

/// A lock that a majority voted for.
struct Grant {
    fence: u64,
    valid_until: Instant,
}

impl Cluster {
    fn start() -> Result<Cluster, String> {
        let (mut servers, mut directories) = (Vec::new(), Vec::new());
        for _ in 0..SERVERS {
            let directory =
                TempDir::with_prefix("fencepost-bench-").map_err(|error| error.to_string())?;
            servers.push(Daemon::redis(directory.path(), None)?);
            directories.push(directory);
        }
        Ok(Cluster {
            servers,
            directories,
        })
    }

    /// Kills a server and starts another one in its place, which knows nothing.
    fn forget(&mut self, index: usize) -> Result<(), String> {
        let fresh = Daemon::redis(self.directories[index].path(), None)?;
        std::mem::replace(&mut self.servers[index], fresh).kill()
    }

    /// Redlock: asks all that can be reached, and holds the lock if enough say yes soon enough.
    fn acquire(&self, owner: &str, reachable: &[usize]) -> Result<Option<Grant>, String> {
        let begun = Instant::now();
        let votes: Vec<u64> = reachable
            .iter()
            .filter_map(|&index| {
                let address = self.servers[index].address;
                let mut redis = Redis::connect_within(address, owner, PATIENCE).ok()?;
                redis.try_acquire(KEY, TTL).ok().flatten()
            })
            .collect();
        // What is left of the lease, minus what clocks may differ by.
        let drift = TTL / 100 + Duration::from_millis(2);
        let valid_until = begun + TTL - drift;
        if votes.len() < MAJORITY || Instant::now() >= valid_until {
            self.release(owner, reachable);
            return Ok(None);
        }
        let fence = votes.into_iter().max().ok_or("nobody voted")?;
        Ok(Some(Grant { fence, valid_until }))
    }

    /// Takes the votes back, from whoever can be reached.
    fn release(&self, owner: &str, reachable: &[usize]) {
        for &index in reachable {
            let address = self.servers[index].address;
            if let Ok(mut redis) = Redis::connect_within(address, owner, PATIENCE) {
                let _ = redis.release_key(KEY);
            }
        }
    }
}

/// The second half of every story: B writes, and then A writes what it had in mind.
fn write_both(
    story: &'static str,
    is_fenced: bool,
    first: &Grant,
    second: &Grant,
    granted_at: Instant,
) -> Result<Seen, String> {
    let resource = Resource::start(is_fenced)?;
    let before = count_of(&store::read(resource.address, KEY)?.value);
    let second_status = write(resource.address, second, before + 1)?;
    let first_status = write(resource.address, first, before + 1)?;
    Ok(Seen {
        story,
        fence: is_fenced,
        is_held_twice: granted_at < first.valid_until,
        first_fence: first.fence,
        second_fence: second.fence,
        first_status,
        second_status,
        accepted: resource.counts()?.accepted,
        count: count_of(&store::read(resource.address, KEY)?.value),
    })
}

fn write(resource: SocketAddr, grant: &Grant, count: u64) -> Result<u16, String> {
    let answer = store::write(resource, KEY, grant.fence, &count.to_string());
    Ok(answer.map_err(|error| error.to_string())?.status)
}

const PAUSE: &str = "pause";
const AMNESIA: &str = "amnesia";
const FENCEPOST: &str = "fencepost, amnesia";

/// One server is stopped; A pauses for longer than its lease; B gets the lock.
fn pause(is_fenced: bool) -> Result<Seen, String> {
    let cluster = Cluster::start()?;
    cluster.servers[4].hold(true)?;
    let first = cluster.acquire("a", &ALL)?.ok_or("A got no majority")?;
    std::thread::sleep(TTL + TTL / 4);
    let second = cluster.acquire("b", &ALL)?.ok_or("B got no majority")?;
    let seen = write_both(PAUSE, is_fenced, &first, &second, Instant::now());
    cluster.servers[4].hold(false)?;
    seen
}

/// A has the votes of three servers and cannot reach the others; one of the three forgets; B has its vote and theirs.
fn amnesia(is_fenced: bool) -> Result<Seen, String> {
    let mut cluster = Cluster::start()?;
    for turn in 0..HISTORY {
        let owner = format!("before-{turn}");
        cluster.acquire(&owner, &NEAR)?.ok_or("no majority")?;
        cluster.release(&owner, &NEAR);
    }
    let first = cluster.acquire("a", &NEAR)?.ok_or("A got no majority")?;
    cluster.forget(2)?;
    let second = cluster.acquire("b", &ALL)?.ok_or("B got no majority")?;
    write_both(AMNESIA, is_fenced, &first, &second, Instant::now())
}

/// Fencepost, keeping nothing on disk, is killed while A holds the lock; B gets it from the next life.
fn fencepost() -> Result<Seen, String> {
    let directory = TempDir::with_prefix("fencepost-bench-").map_err(|error| error.to_string())?;
    let take = |server: &Daemon| -> Result<Grant, String> {
        let asked_at = Instant::now();
        match Wire::connect(server.address)?.try_acquire(KEY, TTL)? {
            Tried::Granted { fence } => Ok(Grant {
                fence,
                valid_until: asked_at + TTL,
            }),
            other => Err(format!("no lock: {other:?}")),
        }
    };
    let server = Daemon::fencepost("fencepost-none", directory.path())?;
    let first = take(&server)?;
    server.kill()?;
    let server = Daemon::fencepost("fencepost-none", directory.path())?;
    let second = take(&server)?;
    write_both(FENCEPOST, true, &first, &second, Instant::now())
}

pub(crate) fn run(context: &Context<'_>) -> Result<Report, String> {
    let mut report = Report::new(
        "redlock",
        "five Redis servers, a majority of which must agree: what does the majority add?",
        &[
            "story",
            "fence",
            "B granted within A's lease",
            "A's number",
            "B's number",
            "B wrote",
            "then A wrote",
            "verdict",
        ],
    );
    let mut runs = Vec::new();
    // Started once only to learn that it is there, and which version.
    if context.start(PeerName::Redis, &mut report).is_some() {
        runs.extend([pause(false)?, pause(true)?, amnesia(false)?, amnesia(true)?]);
        report.skipped(
            "a server whose clock is moved: not built; it would take Debian's package faketime"
                .to_owned(),
        );
    }
    runs.push(fencepost()?);
    for seen in &runs {
        let verdict = match seen.is_corrupted() {
            true => "CORRUPTED: an update is lost",
            false => "intact",
        };
        report.row(
            vec![
                seen.story.to_owned(),
                (if seen.fence { "on" } else { "off" }).to_owned(),
                super::report::yes(seen.is_held_twice),
                seen.first_fence.to_string(),
                seen.second_fence.to_string(),
                seen.second_status.to_string(),
                seen.first_status.to_string(),
                verdict.to_owned(),
            ],
            seen,
        );
        let (sentence, holds) = judge(seen);
        report.claim(sentence, holds);
    }
    Ok(report)
}

/// What a story is to show, and whether it did.
fn judge(seen: &Seen) -> (&'static str, bool) {
    let is_refused = seen.first_status == 409 && seen.second_status == 200;
    match (seen.story, seen.fence) {
        (PAUSE, false) => (
            "a majority does not help against a pause: two writers, one update lost",
            seen.is_corrupted(),
        ),
        (PAUSE, _) => (
            "a number that rises, checked at the resource, does",
            is_refused && !seen.is_corrupted(),
        ),
        (AMNESIA, false) => (
            "a server that comes back without its data makes two holders at the same time, without any pause",
            seen.is_held_twice && seen.is_corrupted(),
        ),
        (AMNESIA, _) => (
            "and the counters of the servers are no fence then: the later holder's number is lower, both writes are accepted",
            seen.is_held_twice && seen.second_fence < seen.first_fence && seen.is_corrupted(),
        ),
        _ => (
            "Fencepost that lost everything grants twice too, but its fence rises, and the late write is refused",
            seen.is_held_twice
                && seen.second_fence > seen.first_fence
                && is_refused
                && !seen.is_corrupted(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_goes_back_is_told_from_one_that_rises() {
        let seen = Seen {
            story: AMNESIA,
            fence: true,
            is_held_twice: true,
            first_fence: 4,
            second_fence: 1,
            first_status: 200,
            second_status: 200,
            accepted: 2,
            count: 1,
        };
        assert!(judge(&seen).1);
        let rising = Seen {
            second_fence: 5,
            first_status: 409,
            accepted: 1,
            ..seen.clone()
        };
        assert!(!judge(&rising).1);
        let fencepost = Seen {
            story: FENCEPOST,
            ..rising
        };
        assert!(judge(&fencepost).1);
        assert!(
            !judge(&Seen {
                story: FENCEPOST,
                ..seen
            })
            .1
        );
    }
}
