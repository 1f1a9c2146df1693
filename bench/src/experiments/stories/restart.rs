//! `restart`: the lock server is killed under load and started again, or another one takes its
//! place. Does a fence go back, is a lock granted twice?
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
//!
//! Of three nodes the leader is killed, and nothing is started again: the others go on. Of a Redis
//! with a replica the master is killed, and Sentinels promote the replica; the link between the two
//! stands still from right before the locks are taken that are held at the kill. The master answers
//! without waiting for the replica, so it may be that far behind at any time; how often it is, is
//! not shown here.

use super::victim::{Asker, How, Victim};
use crate::experiments::Context;
use crate::experiments::locks::Backend;
use crate::experiments::locks::wire::Tried;
use crate::experiments::report::Report;
use crate::load::peers::nodes::Kind;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The leases: long enough that a restart is over well before they end.
const TTL: Duration = Duration::from_secs(4);

/// Those of servers of which another takes over: longer than three Sentinels take to agree.
const TTL_OF_OTHERS: Duration = Duration::from_secs(10);

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

/// The same for three nodes, which are three processes that share a disk: one leader is killed at a
/// time.
const ROUNDS_OF_NODES: u32 = 4;

/// A server that is killed.
#[derive(Clone, Copy)]
struct Subject {
    how: How,
    name: &'static str,
    /// What is to be seen of it. `None`: it depends on the moment, and either is reported.
    expected: Option<Verdict>,
}

/// What a restart did to locks and fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    grants_twice: bool,
    goes_back: bool,
}

const fn subject(how: How, name: &'static str, grants_twice: bool, goes_back: bool) -> Subject {
    let expected = Some(Verdict {
        grants_twice,
        goes_back,
    });
    Subject {
        how,
        name,
        expected,
    }
}

const SUBJECTS: [Subject; 10] = [
    subject(How::Fencepost("fencepost-none"), "none", true, false),
    subject(How::Fencepost("fencepost"), "fence", false, false),
    subject(How::Fencepost("fencepost-lease"), "lease", false, false),
    subject(How::Nodes(Kind::Fencepost), "three nodes", false, false),
    subject(How::Redis(None), "no AOF", true, true),
    // While a sync is under way, Redis keeps up to two seconds of its log to itself: a kill in such
    // a moment takes them along.
    Subject {
        how: How::Redis(Some("everysec")),
        name: "AOF everysec",
        expected: None,
    },
    subject(How::Redis(Some("always")), "AOF always", false, false),
    subject(How::Sentinels, "Sentinel", true, true),
    subject(How::Etcd, "its log", false, false),
    subject(How::Nodes(Kind::Etcd), "three nodes", false, false),
];

impl Subject {
    fn ttl(self) -> Duration {
        match self.how.has_others() {
            true => TTL_OF_OTHERS,
            false => TTL,
        }
    }
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
        if !usable.contains(&subject.how.backend()) {
            continue;
        }
        if let Some(why) = subject.how.missing() {
            let (backend, name) = (subject.how.backend().as_str(), subject.name);
            report.skipped(format!("{backend}, {name}: {why}"));
            continue;
        }
        let rounds = match (context.is_full, subject.how) {
            (true, _) => ROUNDS_FULL,
            (false, How::Nodes(_)) => ROUNDS_OF_NODES,
            (false, _) => ROUNDS,
        };
        let mut seen = Seen {
            backend: subject.how.backend().as_str(),
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
        match subject.expected {
            Some(expected) => {
                let (sentence, holds) = judge(expected, &seen);
                report.claim(sentence, holds);
            }
            None => report.note(format!(
                "{}, {}: what it loses depends on the moment of the kill, so nothing is claimed",
                seen.backend, seen.durability
            )),
        }
    }
    Ok(report)
}

/// What a subject is expected to show, and whether it did.
fn judge(expected: Verdict, seen: &Seen) -> (String, bool) {
    let twice = match expected.grants_twice {
        true => "locks are granted twice",
        false => "no lock is granted twice",
    };
    let back = match expected.goes_back {
        true => "fences go back",
        false => "no fence goes back",
    };
    let sentence = format!("{}, {}: {twice}, {back}", seen.backend, seen.durability);
    // A server that was never asked, or never held anything, has shown nothing.
    let is_tried = seen.held_at_kill > 0 && seen.grants_before > seen.held_at_kill;
    (sentence, is_tried && seen.verdict() == expected)
}

/// Several servers are killed at about the same time; they know nothing of each other. What was
/// seen of each.
fn side_by_side(subject: Subject) -> Result<Vec<Seen>, String> {
    let count = match subject.how {
        How::Nodes(_) => 1,
        _ => SIDE_BY_SIDE,
    };
    let threads: Vec<_> = (0..count)
        .map(|_| std::thread::spawn(move || round(subject)))
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
        .collect()
}

/// One life, one kill, one life more.
fn round(subject: Subject) -> Result<Seen, String> {
    let (mut seen, ttl) = (Seen::default(), subject.ttl());
    let mut victim = Victim::start(subject.how)?;
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let loaders = (0..THREADS)
        .map(|number| {
            let asker = victim.connect(&format!("load-{number}"))?;
            Ok(std::thread::spawn(move || load(asker, number, ttl)))
        })
        .collect::<Result<Vec<_>, String>>()?;
    std::thread::sleep(LOAD / 2);
    victim.fall_behind()?;
    let mut holder = victim.connect("holder")?;
    for number in 0..HELD {
        let key = format!("held-{number}");
        let asked_at = Instant::now();
        let Tried::Granted { fence } = holder.try_acquire(&key, ttl)? else {
            return Err(format!("{key} was not to be had"));
        };
        let held_until = Some(asked_at + ttl);
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
    victim.kill()?;
    let killed_at = Instant::now();
    for loader in loaders {
        let (grants, keys) = loader.join().map_err(|_| "a thread panicked".to_owned())?;
        seen.grants_before += grants;
        known.extend(keys);
    }
    victim.recover()?;
    let mut heir = victim.connect("heir")?;
    seen.kills += 1;
    probe(&mut heir, known, killed_at, ttl, &mut seen)?;
    Ok(seen)
}

/// Takes and releases locks until the server is gone. How many were granted, and what is known of
/// them.
fn load(mut asker: Asker, number: usize, ttl: Duration) -> (u64, BTreeMap<String, Known>) {
    let (mut grants, mut known) = (0, BTreeMap::<String, Known>::new());
    for turn in (0..4).cycle() {
        let key = format!("load-{number}-{turn}");
        let Ok(tried) = asker.try_acquire(&key, ttl) else {
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
    ttl: Duration,
    seen: &mut Seen,
) -> Result<(), String> {
    let held = known.values().filter(|key| key.held_until.is_some());
    seen.held_at_kill += held.count() as u64;
    let mut first_grant = None;
    while !known.is_empty() {
        if killed_at.elapsed() > ttl + PATIENCE {
            return Err(format!("{} locks were not granted again", known.len()));
        }
        for key in known.keys().cloned().collect::<Vec<_>>() {
            let Tried::Granted { fence } = heir.try_acquire(&key, ttl)? else {
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

    /// Of Fencepost's modes none and fence.
    fn expected() -> [Verdict; 2] {
        let [none, fence, ..] = SUBJECTS;
        [none, fence].map(|subject| subject.expected.expect("every mode promises something"))
    }

    #[test]
    fn a_mode_is_held_to_what_is_promised_of_it() {
        let [none, fence] = expected();
        assert!(judge(none, &seen(8, 0)).1);
        assert!(!judge(none, &seen(8, 1)).1, "no mode loses a fence");
        assert!(judge(fence, &seen(0, 0)).1);
        assert!(!judge(fence, &seen(1, 0)).1);
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
        let [_, fence] = expected();
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
