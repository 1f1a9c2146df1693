//! The stories of `redlock` in which the server that granted the lock is killed and another one
//! takes its place: the leader of three nodes, or the master of a replica that Sentinels promote.
//!
//! Some holders come and go. A takes the lock and is told so; the server that told it is killed; B
//! asks what serves then, until it is granted. At Redis the link to the replica stands still from
//! right before the last of those holders on: the master answers without waiting for the replica,
//! so that is allowed, and is what is shown. The replica lacks two grants then, so B's number is
//! lower than A's; with A's alone it would be the same.

use super::cluster::{Grant, HISTORY, KEY};
use super::two_writers::{Seen, write_both};
use super::victim::{How, Victim};
use crate::experiments::locks::Backend;
use crate::experiments::locks::wire::Tried;
use crate::experiments::report::Report;
use crate::load::peers::nodes::Kind;
use std::time::{Duration, Instant};

const SENTINEL: &str = "redis, Sentinel";
const ETCD: &str = "etcd x3, killed";
const FENCEPOST: &str = "fencepost x3, killed";

/// A's lease: longer than three Sentinels take to agree.
const TTL: Duration = Duration::from_secs(10);

/// How long B asks for the lock. etcd begins every lease anew when another node leads.
const PATIENCE: Duration = Duration::from_secs(40);

/// How often a story is begun whose leader changes before it is killed.
const BEGINNINGS_MAX: u32 = 3;

const RETRY: Duration = Duration::from_millis(20);

/// What is killed, under which name, and with which fences.
const STORIES: [(&str, How, bool); 4] = [
    (SENTINEL, How::Sentinels, false),
    (SENTINEL, How::Sentinels, true),
    (ETCD, How::Nodes(Kind::Etcd), true),
    (FENCEPOST, How::Nodes(Kind::Fencepost), true),
];

/// Plays all stories of these backends.
pub(super) fn play(usable: &[Backend], report: &mut Report) -> Result<Vec<Seen>, String> {
    let mut runs = Vec::new();
    for (name, how, is_fenced) in STORIES {
        if !usable.contains(&how.backend()) {
            continue;
        }
        match how.missing() {
            Some(why) => report.skipped(format!("{name}: {why}")),
            None => runs.push(story(name, how, is_fenced)?),
        }
    }
    Ok(runs)
}

fn story(name: &'static str, how: How, is_fenced: bool) -> Result<Seen, String> {
    let (mut victim, first) = begin(name, how)?;
    victim.kill()?;
    victim.recover()?;
    let (second, granted_at) = ask_again(&mut victim)?;
    write_both(name, is_fenced, &first, &second, granted_at)
}

/// Starts the servers and has A take the lock. On a starved machine nodes may elect another leader
/// meanwhile, which ends A's connection; the story then begins anew.
fn begin(name: &'static str, how: How) -> Result<(Victim, Grant), String> {
    let mut beginnings = 1;
    loop {
        match begin_once(name, how) {
            Err(_) if how.has_others() && beginnings < BEGINNINGS_MAX => beginnings += 1,
            begun => return begun,
        }
    }
}

fn begin_once(name: &'static str, how: How) -> Result<(Victim, Grant), String> {
    let victim = Victim::start(how)?;
    let mut before = victim.connect("before")?;
    for turn in 0..HISTORY {
        if turn + 1 == HISTORY {
            victim.fall_behind()?;
        }
        let Tried::Granted { fence } = before.try_acquire(KEY, TTL)? else {
            return Err(format!("{name}: a free lock was not granted"));
        };
        before.release(KEY, fence)?;
    }
    let asked_at = Instant::now();
    let Tried::Granted { fence } = victim.connect("a")?.try_acquire(KEY, TTL)? else {
        return Err(format!("{name}: A got no lock"));
    };
    let valid_until = asked_at + TTL;
    Ok((victim, Grant { fence, valid_until }))
}

/// B asks until it is granted the lock, and follows a leader that changes once more. The grant, and
/// when it came.
fn ask_again(victim: &mut Victim) -> Result<(Grant, Instant), String> {
    let mut asker = victim.connect("b");
    let begun = Instant::now();
    let mut complaint = None;
    while begun.elapsed() < PATIENCE {
        let asked_at = Instant::now();
        let tried = match &mut asker {
            Ok(asker) => asker.try_acquire(KEY, TTL),
            Err(error) => Err(std::mem::take(error)),
        };
        match tried {
            Ok(Tried::Granted { fence }) => {
                let valid_until = asked_at + TTL;
                return Ok((Grant { fence, valid_until }, Instant::now()));
            }
            Ok(Tried::Held | Tried::NotNow) => {}
            Err(error) => {
                complaint = Some(error);
                victim.recover()?;
                asker = victim.connect("b");
            }
        }
        std::thread::sleep(RETRY);
    }
    let why = complaint.map_or_else(String::new, |complaint| format!("; last: {complaint}"));
    Err(format!(
        "B got no lock within {} s{why}",
        PATIENCE.as_secs()
    ))
}

/// What a story is to show, and whether it did. `None`: it is not one of these.
pub(super) fn judge(seen: &Seen) -> Option<(&'static str, bool)> {
    Some(match (seen.story, seen.fence) {
        (SENTINEL, false) => (
            "Redis with a replica and Sentinel: the promoted replica grants what the killed master had granted, two holders at the same time",
            seen.is_held_twice && seen.is_corrupted(),
        ),
        (SENTINEL, true) => (
            "and its counter is no fence then: the later holder's number is lower, both writes are accepted",
            seen.is_held_twice && seen.second_fence < seen.first_fence && seen.is_corrupted(),
        ),
        (ETCD, _) => (
            "three nodes of etcd: the next leader knows of the lock, grants it after its end, and the fence rises",
            keeps(seen),
        ),
        (FENCEPOST, _) => (
            "three nodes of Fencepost: the next leader knows of the lock, grants it after its end, and the fence rises",
            keeps(seen),
        ),
        _ => return None,
    })
}

fn keeps(seen: &Seen) -> bool {
    !seen.is_held_twice && seen.second_fence > seen.first_fence && seen.is_refused()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_lost_the_lock_is_told_from_nodes_that_kept_it() {
        let lost = Seen {
            story: SENTINEL,
            fence: true,
            is_held_twice: true,
            first_fence: 4,
            second_fence: 3,
            first_status: 200,
            second_status: 200,
            accepted: 2,
            count: 1,
        };
        let kept = Seen {
            story: ETCD,
            is_held_twice: false,
            second_fence: 5,
            first_status: 409,
            accepted: 1,
            ..lost.clone()
        };
        let holds = |seen: &Seen| judge(seen).map(|(_, holds)| holds);
        assert_eq!(holds(&lost), Some(true));
        assert_eq!(holds(&kept), Some(true));
        for story in [ETCD, FENCEPOST] {
            let lost = Seen {
                story,
                ..lost.clone()
            };
            assert_eq!(holds(&lost), Some(false), "{story}");
        }
        let story = SENTINEL;
        assert_eq!(
            holds(&Seen {
                story,
                ..kept.clone()
            }),
            Some(false)
        );
        let story = "pause";
        assert_eq!(holds(&Seen { story, ..kept }), None);
    }
}
