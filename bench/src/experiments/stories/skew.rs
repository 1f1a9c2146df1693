//! The second half of `redlock`: wall clocks that are moved, by an hour, without any pause and
//! without any loss of data.
//!
//! **Redlock** ends a lease when the wall clock of each server says so. One clock set forward while
//! A holds the lock, and B has a majority; three set back, and no client has one for an hour.
//! **Fencepost** counts leases on the monotonic clock: its wall clock is moved in the same way, and
//! nothing happens. Its log tells what the wall clock showed, so that a clock which was not moved
//! after all is found out.
//!
//! Then the stories in which Fencepost does depend on its clock, or might: moved while the server
//! is down. With `none` there is nothing else to begin fences from; with `lease`, time that has
//! passed cannot be told from a clock set forward.

use super::cluster::{ALL, Cluster, Grant, NEAR, TTL, take, unix_s};
use super::two_writers::{Seen, write_both};
use crate::experiments::processes::clock::FakeClock;
use crate::experiments::processes::daemon::Daemon;
use crate::experiments::report::{Report, fences, on, yes};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use wal::{Entry, Record};

/// How far clocks are moved.
const HOUR_S: i64 = 3_600;

/// A clock is said to have moved if it is off by as much, but for the seconds that the story itself
/// takes.
const HOUR_MARGIN_S: i64 = 120;

/// A key that is not to be had for so long is called blocked. It would be for an hour.
const BLOCKED: Duration = TTL.saturating_mul(2);

/// How much longer than its lease, and how much shorter, a lock may seem to have been held on a
/// busy machine.
const LATE: Duration = Duration::from_millis(1_500);
const EARLY: Duration = Duration::from_millis(20);

/// The longest that a Fencepost keeps clients waiting after a crash.
const GRACE: Duration = Duration::from_secs(20);

const RETRY: Duration = Duration::from_millis(10);

/// Fences of a server without files rise by so many for a second of its clock.
const FENCES_PER_S: i64 = 1 << 20;

/// Which clock was moved, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
enum Story {
    #[default]
    RedlockForward,
    RedlockBack,
    RunningForward,
    RunningBack,
    DownNone,
    DownFence,
    DownLease,
}

/// What was seen of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Moved {
    #[serde(skip)]
    told: Story,
    /// By how much the clock was off, by the server's own account.
    clock_off_s: i64,
    /// From A's grant to B's. `None`: B was not granted the lock while we looked.
    granted_after_ms: Option<f64>,
    #[serde(flatten)]
    seen: Option<Seen>,
}

impl Moved {
    fn is_clock_moved(&self, by_s: i64) -> bool {
        (self.clock_off_s - by_s).abs() < HOUR_MARGIN_S
    }

    /// Whether B got the lock when A's lease had ended, no sooner, no later.
    fn is_on_time(&self) -> bool {
        let (least, most) = (TTL - EARLY, TTL + LATE);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let waited = self.granted_after_ms;
        waited.is_some_and(|waited| (ms(least)..ms(most)).contains(&waited))
    }
}

/// A grant, and when it was asked for.
struct Taken {
    grant: Grant,
    at: Instant,
}

/// Asks until the lock is granted, or for as long as `patience`.
fn take_within(
    patience: Duration,
    mut ask: impl FnMut() -> Result<Option<Grant>, String>,
) -> Result<Option<Taken>, String> {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        if let Some(grant) = ask()? {
            let at = Instant::now();
            return Ok(Some(Taken { grant, at }));
        }
        std::thread::sleep(RETRY);
    }
    Ok(None)
}

/// How the story ends: both write, B first.
fn end(
    told: Story,
    is_fenced: bool,
    clock_off_s: i64,
    first: &Taken,
    second: Option<Taken>,
) -> Result<Moved, String> {
    let seen = match &second {
        None => None,
        Some(second) => Some(write_both(
            told.title(),
            is_fenced,
            &first.grant,
            &second.grant,
            second.at,
        )?),
    };
    let waited = second.map(|second| second.at - first.at);
    Ok(Moved {
        told,
        clock_off_s,
        granted_after_ms: waited.map(|waited| waited.as_secs_f64() * 1e3),
        seen,
    })
}

/// A has the votes of three servers and cannot reach the others; one of the three has its clock set
/// forward; B asks all five.
fn redlock_forward(is_fenced: bool) -> Result<Moved, String> {
    let cluster = Cluster::start_with_clocks()?;
    cluster.live_through(&NEAR)?;
    let at = Instant::now();
    let grant = cluster.acquire("a", &NEAR)?.ok_or("A got no majority")?;
    let first = Taken { grant, at };
    let off_s = cluster.set_clock(NEAR[2], HOUR_S)?;
    let second = take_within(BLOCKED, || cluster.acquire("b", &ALL))?;
    end(Story::RedlockForward, is_fenced, off_s, &first, second)
}

/// A has all votes, and dies; three clocks are set back.
fn redlock_back() -> Result<Moved, String> {
    let cluster = Cluster::start_with_clocks()?;
    let at = Instant::now();
    let grant = cluster.acquire("a", &ALL)?.ok_or("A got no majority")?;
    let mut off_s = 0;
    for index in NEAR {
        off_s = cluster.set_clock(index, -HOUR_S)?;
    }
    let second = take_within(BLOCKED, || cluster.acquire("b", &ALL))?;
    end(
        Story::RedlockBack,
        true,
        off_s,
        &Taken { grant, at },
        second,
    )
}

/// The clock of a Fencepost is moved while A holds the lock.
fn running(told: Story, ahead_s: i64) -> Result<Moved, String> {
    let directory = TempDir::with_prefix("fencepost-bench-").map_err(|error| error.to_string())?;
    let clock = FakeClock::new(directory.path())?;
    let data = directory.path().join("data");
    let server = Daemon::fencepost("fencepost", &data, Some(&clock))?;
    let at = Instant::now();
    let grant = take(&server)?.ok_or("A got no lock")?;
    clock.set(ahead_s)?;
    let second = take_within(BLOCKED, || take(&server))?;
    server.kill()?;
    let off_s = clock_s(&data)? - unix_s();
    end(told, true, off_s, &Taken { grant, at }, second)
}

/// What the wall clock showed to a server that is gone now, when its log last said so: at its
/// start, or when the clock was set.
fn clock_s(data: &Path) -> Result<i64, String> {
    let mut last_ms = 0;
    let damage = wal::dump(data, &mut |entry| {
        if let Entry::Record {
            record:
                Record::Clock {
                    wall_unix_ms: Some(wall_unix_ms),
                    ..
                },
            ..
        } = entry
        {
            last_ms = *wall_unix_ms;
        }
        Ok(())
    });
    match damage.map_err(|error| error.to_string())? {
        None => Ok((last_ms / 1000) as i64),
        Some(damage) => Err(damage.to_string()),
    }
}

/// The clock of a Fencepost is moved between a crash and the next start, while A still holds the
/// lock.
fn down(told: Story, name: &str, ahead_s: i64) -> Result<Moved, String> {
    let directory = TempDir::with_prefix("fencepost-bench-").map_err(|error| error.to_string())?;
    let clock = FakeClock::new(directory.path())?;
    let data = directory.path().join("data");
    let server = Daemon::fencepost(name, &data, Some(&clock))?;
    let at = Instant::now();
    let grant = take(&server)?.ok_or("A got no lock")?;
    server.kill()?;
    clock.set(ahead_s)?;
    let server = Daemon::fencepost(name, &data, Some(&clock))?;
    let second = take_within(GRACE, || take(&server))?;
    server.kill()?;
    let shown_s = match (told, &second) {
        // Nothing is on the disk, so the fence itself tells.
        (Story::DownNone, Some(second)) => second.grant.fence as i64 / FENCES_PER_S,
        _ => clock_s(&data)?,
    };
    let off_s = shown_s - unix_s();
    end(told, true, off_s, &Taken { grant, at }, second)
}

impl Story {
    fn title(self) -> &'static str {
        match self {
            Story::RedlockForward => "redlock, one clock +1 h",
            Story::RedlockBack => "redlock, three clocks -1 h",
            Story::RunningForward => "fencepost, +1 h",
            Story::RunningBack => "fencepost, -1 h",
            Story::DownNone => "fencepost none, -1 h while down",
            Story::DownFence => "fencepost fence, -1 h while down",
            Story::DownLease => "fencepost lease, +1 h while down",
        }
    }
}

/// Plays all of them, or has the report say why not.
pub(super) fn tell(has_redis: bool, report: &mut Report) -> Result<(), String> {
    let scratch = TempDir::with_prefix("fencepost-bench-").map_err(|error| error.to_string())?;
    if let Err(why) = FakeClock::new(scratch.path()) {
        report.skipped(format!("all stories in which a clock is moved: {why}"));
        return Ok(());
    }
    report.table(
        "A wall clock is moved by an hour while A holds the lock, for 2 s (early: B was granted it within A's lease)",
        &[
            "story",
            "clock",
            "B granted",
            "early",
            "fence",
            "A's, B's number",
            "B, A wrote",
            "verdict",
        ],
    );
    let mut stories = Vec::new();
    if has_redis {
        stories.extend([
            redlock_forward(false)?,
            redlock_forward(true)?,
            redlock_back()?,
        ]);
    }
    // Side by side: they have nothing to do with each other, and mostly wait.
    let of_fencepost = [
        std::thread::spawn(|| running(Story::RunningForward, HOUR_S)),
        std::thread::spawn(|| running(Story::RunningBack, -HOUR_S)),
        std::thread::spawn(|| down(Story::DownNone, "fencepost-none", -HOUR_S)),
        std::thread::spawn(|| down(Story::DownFence, "fencepost", -HOUR_S)),
        std::thread::spawn(|| down(Story::DownLease, "fencepost-lease", HOUR_S)),
    ];
    for story in of_fencepost {
        stories.push(story.join().map_err(|_| "a thread panicked".to_owned())??);
    }
    for moved in &stories {
        report.row(cells(moved), moved);
        let (sentence, holds) = judge(moved);
        report.claim(sentence, holds);
    }
    Ok(())
}

fn cells(moved: &Moved) -> Vec<String> {
    let nothing = || "-".to_owned();
    let of_seen = |cell: fn(&Seen) -> String| moved.seen.as_ref().map_or_else(nothing, cell);
    vec![
        moved.told.title().to_owned(),
        format!("{:+} s", moved.clock_off_s),
        match moved.granted_after_ms {
            Some(ms) => format!("{:.2} s", ms / 1e3),
            None => format!("not in {} s", BLOCKED.as_secs()),
        },
        of_seen(|seen| yes(seen.is_held_twice)),
        of_seen(|seen| on(seen.fence)),
        of_seen(|seen| fences(seen.first_fence, seen.second_fence).join(", ")),
        of_seen(|seen| format!("{}, {}", seen.second_status, seen.first_status)),
        match &moved.seen {
            Some(seen) => seen.verdict().to_owned(),
            None => "BLOCKED".to_owned(),
        },
    ]
}

/// What a story is to show, and whether it did.
fn judge(moved: &Moved) -> (&'static str, bool) {
    let seen = moved.seen.clone().unwrap_or_default();
    let is_played = moved.seen.is_some();
    let is_rising = seen.second_fence > seen.first_fence;
    match moved.told {
        Story::RedlockForward if !seen.fence => (
            "redlock: one clock of five that is set forward makes two holders at the same time",
            moved.is_clock_moved(HOUR_S) && seen.is_held_twice && seen.is_corrupted(),
        ),
        Story::RedlockForward => (
            "redlock: as long as no server has forgotten its counter, a number saves the resource from that",
            moved.is_clock_moved(HOUR_S) && seen.is_held_twice && seen.is_refused(),
        ),
        Story::RedlockBack => (
            "redlock: three clocks of five that are set back keep a dead holder's key blocked long after its lease",
            moved.is_clock_moved(-HOUR_S) && !is_played,
        ),
        Story::RunningForward => (
            "fencepost: a clock set forward while it runs ends no lease early",
            moved.is_clock_moved(HOUR_S) && moved.is_on_time() && !seen.is_held_twice,
        ),
        Story::RunningBack => (
            "fencepost: a clock set back while it runs makes no lease longer",
            moved.is_clock_moved(-HOUR_S) && moved.is_on_time() && !seen.is_held_twice,
        ),
        Story::DownNone => (
            "fencepost without files does depend on its clock: set back while it is down, and its fences go back with it",
            moved.is_clock_moved(-HOUR_S) && is_played && !is_rising && seen.is_corrupted(),
        ),
        Story::DownFence => (
            "fencepost with its fences on disk does not: they rise, and no lock that is held is granted",
            moved.is_clock_moved(-HOUR_S) && is_rising && !seen.is_held_twice && seen.is_refused(),
        ),
        Story::DownLease => (
            "fencepost with its leases on disk takes a clock set forward while it is down for time that has passed, and grants twice; the fence rises, and the late write is refused",
            moved.is_clock_moved(HOUR_S) && is_rising && seen.is_held_twice && seen.is_refused(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(told: Story, clock_off_s: i64, waited_ms: f64, fences: (u64, u64)) -> Moved {
        let is_rising = fences.1 > fences.0;
        Moved {
            told,
            clock_off_s,
            granted_after_ms: Some(waited_ms),
            seen: Some(Seen {
                fence: true,
                is_held_twice: waited_ms < TTL.as_secs_f64() * 1e3,
                first_fence: fences.0,
                second_fence: fences.1,
                first_status: if is_rising { 409 } else { 200 },
                second_status: 200,
                accepted: if is_rising { 1 } else { 2 },
                count: 1,
                ..Seen::default()
            }),
        }
    }

    #[test]
    fn a_clock_that_was_not_moved_shows_nothing() {
        let story = Story::RunningForward;
        assert!(judge(&moved(story, HOUR_S - 3, 2_010.0, (7, 8))).1);
        assert!(!judge(&moved(story, 0, 2_010.0, (7, 8))).1);
        assert!(!judge(&moved(Story::RunningBack, HOUR_S, 2_010.0, (7, 8))).1);
    }

    #[test]
    fn a_lease_that_ends_early_or_late_is_found_out() {
        for (waited_ms, is_shown) in [(500.0, false), (2_100.0, true), (3_990.0, false)] {
            let moved = moved(Story::RunningBack, -HOUR_S, waited_ms, (7, 8));
            assert_eq!(judge(&moved).1, is_shown, "{waited_ms} ms");
        }
    }

    #[test]
    fn fences_that_go_back_are_told_from_those_that_rise() {
        let (back, on) = ((9, 8), (8, 9));
        assert!(judge(&moved(Story::DownNone, -HOUR_S, 30.0, back)).1);
        assert!(!judge(&moved(Story::DownNone, -HOUR_S, 30.0, on)).1);
        assert!(judge(&moved(Story::DownLease, HOUR_S, 30.0, on)).1);
        assert!(!judge(&moved(Story::DownLease, 0, 30.0, on)).1, "not moved");
        assert!(!judge(&moved(Story::DownFence, -HOUR_S, 30.0, on)).1);
        assert!(judge(&moved(Story::DownFence, -HOUR_S, 4_000.0, on)).1);
    }

    #[test]
    fn a_blocked_key_has_nothing_to_say_of_writers() {
        let blocked = Moved {
            told: Story::RedlockBack,
            clock_off_s: -HOUR_S,
            ..Moved::default()
        };
        assert!(judge(&blocked).1);
        let cells = cells(&blocked);
        assert_eq!(cells[2], "not in 4 s");
        assert_eq!(cells.last().map(String::as_str), Some("BLOCKED"));
    }
}
