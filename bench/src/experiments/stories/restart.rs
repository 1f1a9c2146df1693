//! `restart`: the lock server is killed under load and started again. Does a fence go back, is a
//! lock granted twice?
//!
//! Before the kill some locks are taken and kept, and some threads take and release others as fast
//! as they can. After the restart another client asks for all of them until it gets them. A lock is
//! granted *twice* if it is granted again before the lease that the first holder was told of has
//! ended. A fence goes *back* if it is not above every fence that any client was told for the same
//! key before the kill.
//!
//! The kill is a SIGKILL: what the process had handed to the kernel survives it. A power cut is
//! harsher, and not played here. Where the log is of no use after a crash, as it is for a Redis
//! without one, one kill would do; where nothing may be lost, each kill comes at another moment of
//! the load, so there are several.

use crate::experiments::Context;
use crate::experiments::locks::Backend;
use crate::experiments::locks::etcd::Keys;
use crate::experiments::locks::redis::Redis;
use crate::experiments::locks::wire::{Tried, Wire};
use crate::experiments::processes::daemon::{Daemon, RedisSettings};
use crate::experiments::report::Report;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The leases: long enough that a restart is over well before they end.
const TTL: Duration = Duration::from_secs(4);

/// A grant that is so little before the end of the first lease is not called a second one: clocks
/// are read a moment apart.
const MARGIN: Duration = Duration::from_millis(20);

/// Locks that are held when the kill comes.
const HELD: usize = 8;

/// Threads of the load, each with locks of its own.
const THREADS: usize = 4;

/// How long the load runs before the kill.
const LOAD: Duration = Duration::from_millis(800);

/// How long after the end of all leases the locks may still not be granted.
const PATIENCE: Duration = Duration::from_secs(20);

const RETRY: Duration = Duration::from_millis(20);

/// Servers that are killed side by side, each with files and clients of its own.
const SIDE_BY_SIDE: usize = 3;

/// How often all of them are, in the short form and in the long one.
const ROUNDS: u32 = 2;
const ROUNDS_FULL: u32 = 10;

/// A server that is killed.
#[derive(Clone, Copy)]
struct Subject {
    backend: Backend,
    name: &'static str,
    /// Names the server to `Daemon::fencepost`, or how Redis keeps its log.
    how: Option<&'static str>,
    /// What is promised of it.
    expected: Verdict,
}

/// What a restart did to locks and fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    grants_twice: bool,
    goes_back: bool,
}

const fn subject(
    backend: Backend,
    name: &'static str,
    how: Option<&'static str>,
    grants_twice: bool,
    goes_back: bool,
) -> Subject {
    let expected = Verdict {
        grants_twice,
        goes_back,
    };
    Subject {
        backend,
        name,
        how,
        expected,
    }
}

const SUBJECTS: [Subject; 7] = [
    subject(
        Backend::Fencepost,
        "none",
        Some("fencepost-none"),
        true,
        false,
    ),
    subject(Backend::Fencepost, "fence", Some("fencepost"), false, false),
    subject(
        Backend::Fencepost,
        "lease",
        Some("fencepost-lease"),
        false,
        false,
    ),
    subject(Backend::Redis, "no AOF", None, true, true),
    subject(
        Backend::Redis,
        "AOF everysec",
        Some("everysec"),
        false,
        false,
    ),
    subject(Backend::Redis, "AOF always", Some("always"), false, false),
    subject(Backend::Etcd, "its log", None, false, false),
];

impl Subject {
    fn start(self, directory: &Path) -> Result<Daemon, String> {
        match (self.backend, self.how) {
            (Backend::Redis, appendfsync) => {
                let settings = RedisSettings {
                    appendfsync,
                    ..RedisSettings::default()
                };
                Daemon::redis(directory, settings)
            }
            (Backend::Etcd, _) => Daemon::etcd(directory),
            (Backend::Fencepost, how) => {
                Daemon::fencepost(how.unwrap_or("fencepost"), directory, None)
            }
        }
    }

    fn connect(self, address: SocketAddr, name: &str) -> Result<Asker, String> {
        Ok(match self.backend {
            Backend::Redis => Asker::Redis(Redis::connect(address, name)?),
            Backend::Etcd => Asker::Etcd(Keys::new(address)),
            Backend::Fencepost => Asker::Fencepost(Wire::connect(address)?),
        })
    }
}

/// A client that asks for locks without waiting.
enum Asker {
    Fencepost(Wire),
    Redis(Redis),
    Etcd(Keys),
}

impl Asker {
    fn try_acquire(&mut self, key: &str) -> Result<Tried, String> {
        match self {
            Asker::Fencepost(wire) => wire.try_acquire(key, TTL),
            Asker::Redis(redis) => Ok(tried(redis.try_acquire(key, TTL)?)),
            Asker::Etcd(keys) => Ok(tried(keys.try_acquire(key, TTL)?)),
        }
    }

    fn release(&mut self, key: &str, fence: u64) -> Result<bool, String> {
        match self {
            Asker::Fencepost(wire) => wire.release(key, fence),
            Asker::Redis(redis) => redis.release_key(key),
            Asker::Etcd(keys) => keys.release(key, fence),
        }
    }
}

fn tried(fence: Option<u64>) -> Tried {
    fence.map_or(Tried::Held, |fence| Tried::Granted { fence })
}

/// What is known of a key before the kill.
#[derive(Clone, Copy, Default)]
struct Known {
    fence_max: u64,
    /// Until when its last holder was promised it, at the least. `None`: it was released.
    held_until: Option<Instant>,
}

/// What was seen over all rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Seen {
    backend: &'static str,
    durability: &'static str,
    kills: u32,
    grants_before: u64,
    held_at_kill: u64,
    granted_twice: u64,
    fences_back: u64,
    /// From the kill until the first lock was granted again: the shortest and the longest time.
    first_grant_ms_min: f64,
    first_grant_ms_max: f64,
}

impl Seen {
    fn verdict(&self) -> Verdict {
        Verdict {
            grants_twice: self.granted_twice > 0,
            goes_back: self.fences_back > 0,
        }
    }

    /// Adds what was seen of another kill.
    fn add(&mut self, other: &Seen) {
        let is_first = self.kills == 0;
        self.kills += other.kills;
        self.grants_before += other.grants_before;
        self.held_at_kill += other.held_at_kill;
        self.granted_twice += other.granted_twice;
        self.fences_back += other.fences_back;
        self.first_grant_ms_max = self.first_grant_ms_max.max(other.first_grant_ms_max);
        if is_first || other.first_grant_ms_min < self.first_grant_ms_min {
            self.first_grant_ms_min = other.first_grant_ms_min;
        }
    }
}

pub(crate) fn run(context: &Context<'_>) -> Result<Report, String> {
    let mut report = Report::new(
        "restart",
        "the lock server is killed under load: does a fence go back, is a lock granted twice?",
        &[
            "backend",
            "durability",
            "kills",
            "grants before",
            "held at kill",
            "granted twice",
            "fences back",
            "first grant after",
        ],
    );
    let backends = context.backends();
    let usable: Vec<Backend> = backends
        .into_iter()
        .filter(|&backend| context.start(backend.peer(), &mut report).is_some())
        .collect();
    for subject in SUBJECTS {
        if !usable.contains(&subject.backend) {
            continue;
        }
        let rounds = if context.is_full { ROUNDS_FULL } else { ROUNDS };
        let mut seen = Seen {
            backend: subject.backend.as_str(),
            durability: subject.name,
            ..Seen::default()
        };
        for _ in 0..rounds {
            for of_one in side_by_side(subject)? {
                seen.add(&of_one);
            }
        }
        report.row(
            vec![
                seen.backend.to_owned(),
                seen.durability.to_owned(),
                seen.kills.to_string(),
                seen.grants_before.to_string(),
                seen.held_at_kill.to_string(),
                seen.granted_twice.to_string(),
                seen.fences_back.to_string(),
                format!(
                    "{:.2} to {:.2} s",
                    seen.first_grant_ms_min / 1e3,
                    seen.first_grant_ms_max / 1e3
                ),
            ],
            &seen,
        );
        let (sentence, holds) = judge(&subject, &seen);
        report.claim(sentence, holds);
    }
    Ok(report)
}

/// What a subject is expected to show, and whether it did.
fn judge(subject: &Subject, seen: &Seen) -> (String, bool) {
    let twice = match subject.expected.grants_twice {
        true => "locks are granted twice",
        false => "no lock is granted twice",
    };
    let back = match subject.expected.goes_back {
        true => "fences go back",
        false => "no fence goes back",
    };
    let sentence = format!("{}, {}: {twice}, {back}", seen.backend, seen.durability);
    // A server that was never asked, or never held anything, has shown nothing.
    let is_tried = seen.held_at_kill > 0 && seen.grants_before > seen.held_at_kill;
    (sentence, is_tried && seen.verdict() == subject.expected)
}

/// Several servers are killed at about the same time; they know nothing of each other. What was
/// seen of each.
fn side_by_side(subject: Subject) -> Result<Vec<Seen>, String> {
    let threads: Vec<_> = (0..SIDE_BY_SIDE)
        .map(|_| std::thread::spawn(move || round(subject)))
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
        .collect()
}

/// One life, one kill, one life more.
fn round(subject: Subject) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let directory = TempDir::with_prefix("fencepost-bench-").map_err(|error| error.to_string())?;
    let server = subject.start(directory.path())?;
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let loaders = (0..THREADS)
        .map(|number| {
            let asker = subject.connect(server.address, &format!("load-{number}"))?;
            Ok(std::thread::spawn(move || load(asker, number)))
        })
        .collect::<Result<Vec<_>, String>>()?;
    std::thread::sleep(LOAD / 2);
    let mut holder = subject.connect(server.address, "holder")?;
    for number in 0..HELD {
        let key = format!("held-{number}");
        let asked_at = Instant::now();
        let Tried::Granted { fence } = holder.try_acquire(&key)? else {
            return Err(format!("{key} was not to be had"));
        };
        let held_until = Some(asked_at + TTL);
        known.insert(
            key,
            Known {
                fence_max: fence,
                held_until,
            },
        );
        seen.grants_before += 1;
    }
    std::thread::sleep(LOAD / 2);
    server.kill()?;
    let killed_at = Instant::now();
    for loader in loaders {
        let (grants, keys) = loader.join().map_err(|_| "a thread panicked".to_owned())?;
        seen.grants_before += grants;
        known.extend(keys);
    }
    let server = subject.start(directory.path())?;
    let mut heir = subject.connect(server.address, "heir")?;
    seen.kills += 1;
    probe(&mut heir, known, killed_at, &mut seen)?;
    Ok(seen)
}

/// Takes and releases locks until the server is gone. How many were granted, and what is known of
/// them.
fn load(mut asker: Asker, number: usize) -> (u64, BTreeMap<String, Known>) {
    let (mut grants, mut known) = (0, BTreeMap::<String, Known>::new());
    for turn in (0..4).cycle() {
        let key = format!("load-{number}-{turn}");
        let Ok(tried) = asker.try_acquire(&key) else {
            break;
        };
        let Tried::Granted { fence } = tried else {
            continue;
        };
        grants += 1;
        let entry = known.entry(key.clone()).or_default();
        entry.fence_max = entry.fence_max.max(fence);
        // A release without an answer may have happened, so such a lock may be free: only its fence
        // is looked at.
        if asker.release(&key, fence).is_err() {
            break;
        }
    }
    (grants, known)
}

/// Asks for everything until it is granted.
fn probe(
    heir: &mut Asker,
    mut known: BTreeMap<String, Known>,
    killed_at: Instant,
    seen: &mut Seen,
) -> Result<(), String> {
    let held = known.values().filter(|key| key.held_until.is_some());
    seen.held_at_kill += held.count() as u64;
    let mut first_grant = None;
    while !known.is_empty() {
        if killed_at.elapsed() > TTL + PATIENCE {
            return Err(format!("{} locks were not granted again", known.len()));
        }
        for key in known.keys().cloned().collect::<Vec<_>>() {
            let Tried::Granted { fence } = heir.try_acquire(&key)? else {
                continue;
            };
            let now = Instant::now();
            first_grant.get_or_insert(now - killed_at);
            let before = known.remove(&key).unwrap_or_default();
            let is_held = before.held_until.is_some_and(|until| now + MARGIN < until);
            seen.granted_twice += u64::from(is_held);
            seen.fences_back += u64::from(fence <= before.fence_max);
        }
        std::thread::sleep(RETRY);
    }
    seen.first_grant_ms_min = first_grant.unwrap_or_default().as_secs_f64() * 1e3;
    seen.first_grant_ms_max = seen.first_grant_ms_min;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(granted_twice: u64, fences_back: u64) -> Seen {
        Seen {
            grants_before: 100,
            held_at_kill: 8,
            granted_twice,
            fences_back,
            ..Seen::default()
        }
    }

    #[test]
    fn a_mode_is_held_to_what_is_promised_of_it() {
        let [none, fence, ..] = SUBJECTS;
        assert!(judge(&none, &seen(8, 0)).1);
        assert!(!judge(&none, &seen(8, 1)).1, "no mode loses a fence");
        assert!(judge(&fence, &seen(0, 0)).1);
        assert!(!judge(&fence, &seen(1, 0)).1);
    }

    #[test]
    fn kills_are_added_up() {
        let one = |ms: f64| Seen {
            kills: 1,
            first_grant_ms_min: ms,
            first_grant_ms_max: ms,
            ..seen(1, 2)
        };
        let mut sum = Seen::default();
        [one(30.0), one(10.0), one(20.0)]
            .iter()
            .for_each(|seen| sum.add(seen));
        assert_eq!((sum.kills, sum.granted_twice, sum.fences_back), (3, 3, 6));
        assert_eq!(
            (sum.first_grant_ms_min, sum.first_grant_ms_max),
            (10.0, 30.0)
        );
    }

    #[test]
    fn a_run_without_load_or_holders_shows_nothing() {
        let fence = &SUBJECTS[1];
        let idle = Seen {
            grants_before: 8,
            ..seen(0, 0)
        };
        let unheld = Seen {
            held_at_kill: 0,
            ..seen(0, 0)
        };
        assert!(!judge(fence, &idle).1 && !judge(fence, &unheld).1);
    }
}
