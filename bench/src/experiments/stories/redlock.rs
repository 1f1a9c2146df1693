//! `redlock`: five Redis servers, a majority of which must agree. What does the majority add?
//!
//! Three stories. **Pause**: one server is stopped, the holder pauses for longer than its lease.
//! **Amnesia**: no pause at all; A reaches three servers only, and one of them comes back without
//! its data and votes for B too. **Fencepost**: the same loss of everything, with `--durability
//! none`. Each with and without a fence at the resource. `failover.rs` has those in which another
//! server takes over, `skew.rs` those in which a clock is moved.

use super::cluster::{ALL, Cluster, NEAR, TTL, take};
use super::failover;
use super::skew;
use super::two_writers::{Seen, write_both};
use crate::experiments::Context;
use crate::experiments::locks::Backend;
use crate::experiments::processes::daemon::Daemon;
use crate::experiments::report::{Report, fences, on, yes};
use std::time::Instant;
use tempfile::TempDir;

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

/// A has the votes of three servers and cannot reach the others; one of the three forgets; B has
/// its vote and theirs.
fn amnesia(is_fenced: bool) -> Result<Seen, String> {
    let mut cluster = Cluster::start()?;
    cluster.live_through(&NEAR)?;
    let first = cluster.acquire("a", &NEAR)?.ok_or("A got no majority")?;
    cluster.forget(2)?;
    let second = cluster.acquire("b", &ALL)?.ok_or("B got no majority")?;
    write_both(AMNESIA, is_fenced, &first, &second, Instant::now())
}

/// Fencepost, keeping nothing on disk, is killed while A holds the lock; B gets it from the next
/// life.
fn fencepost() -> Result<Seen, String> {
    let directory = TempDir::with_prefix("fencepost-bench-").map_err(|error| error.to_string())?;
    let server = Daemon::fencepost("fencepost-none", directory.path(), None)?;
    let first = take(&server)?.ok_or("no lock")?;
    server.kill()?;
    let server = Daemon::fencepost("fencepost-none", directory.path(), None)?;
    let second = take(&server)?.ok_or("no lock")?;
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
            "A wrote",
            "verdict",
        ],
    );
    let mut runs = Vec::new();
    // Started once only to learn that they are there, and which version.
    let usable: Vec<Backend> = context
        .backends()
        .into_iter()
        .filter(|backend| context.start(backend.peer(), &mut report).is_some())
        .collect();
    let has_redis = usable.contains(&Backend::Redis);
    if has_redis {
        runs.extend([pause(false)?, pause(true)?, amnesia(false)?, amnesia(true)?]);
    }
    runs.push(fencepost()?);
    runs.extend(failover::play(&usable, &mut report)?);
    for seen in &runs {
        let [first_fence, second_fence] = fences(seen.first_fence, seen.second_fence);
        report.row(
            vec![
                seen.story.to_owned(),
                on(seen.fence),
                yes(seen.is_held_twice),
                first_fence,
                second_fence,
                seen.second_status.to_string(),
                seen.first_status.to_string(),
                seen.verdict().to_owned(),
            ],
            seen,
        );
        let (sentence, holds) = failover::judge(seen).unwrap_or_else(|| judge(seen));
        report.claim(sentence, holds);
    }
    skew::tell(has_redis, &mut report)?;
    Ok(report)
}

/// What a story is to show, and whether it did.
fn judge(seen: &Seen) -> (&'static str, bool) {
    match (seen.story, seen.fence) {
        (PAUSE, false) => (
            "a majority does not help against a pause: two writers, one update lost",
            seen.is_corrupted(),
        ),
        (PAUSE, _) => (
            "a number that rises, checked at the resource, does",
            seen.is_refused(),
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
            seen.is_held_twice && seen.second_fence > seen.first_fence && seen.is_refused(),
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
