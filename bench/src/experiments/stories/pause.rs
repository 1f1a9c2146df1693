//! `pause`: a holder stands still for longer than its lease, and writes when it wakes up.
//!
//! Two workers, one key. A takes the lock, reads the counter and is stopped, by SIGSTOP or by a
//! sleep between acquire and write; its lease ends; B takes the lock, adds one and is done; A wakes
//! up and writes what it had in mind. If both writes are accepted, the counter is one too low: B's
//! update is lost. The counter has to equal the number of accepted writes.

use crate::experiments::Context;
use crate::experiments::locks::Backend;
use crate::experiments::processes::crew::{Job, sleep_until};
use crate::experiments::processes::store::{self, Counts, Resource};
use crate::experiments::processes::worker::{Switch, count_of};
use crate::experiments::report::{Report, fences, on, yes};
use serde::Serialize;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(5);

/// What a worker does besides pausing: long enough to stop it before it is done.
const WORK: Duration = Duration::from_millis(250);

/// How long anything may take that should take no time.
const PATIENCE: Duration = Duration::from_secs(20);

/// How the first holder is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Stop {
    #[serde(rename = "SIGSTOP")]
    Signal,
    #[serde(rename = "sleep")]
    Sleep,
}

/// One run: two workers on one key.
#[derive(Clone)]
pub(crate) struct Story {
    pub(crate) backend: Backend,
    pub(crate) server: SocketAddr,
    pub(crate) is_fenced: bool,
    pub(crate) stop: Stop,
    pub(crate) ttl: Duration,
    pub(crate) pause: Duration,
    pub(crate) is_renewed: bool,
}

/// What was seen of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Seen {
    pub(crate) first_fence: u64,
    pub(crate) second_fence: u64,
    /// HTTP statuses of the two writes.
    pub(crate) first_status: u16,
    pub(crate) second_status: u16,
    /// Whether the second holder wrote before the first one did.
    pub(crate) is_late: bool,
    /// From the second holder's grant to the first one's write; negative if there was no overlap.
    pub(crate) overlap_ms: f64,
    /// What the first holder's client knew of its lock when it wrote.
    pub(crate) first_believed: Option<bool>,
    pub(crate) accepted: u64,
    pub(crate) stale_rejections: u64,
    pub(crate) violations: u64,
    pub(crate) value: String,
    pub(crate) count: u64,
}

impl Seen {
    /// Whether an update was lost: fewer were kept than were accepted.
    pub(crate) fn is_corrupted(&self) -> bool {
        self.count != self.accepted
    }

    /// Whether the resource took a write of a holder that had been displaced.
    pub(crate) fn has_two_writers(&self) -> bool {
        self.is_late && self.first_status == 200 && self.second_status == 200
    }

    /// Whether the displaced holder was refused, counted, and did no harm.
    pub(crate) fn is_saved(&self) -> bool {
        self.is_late
            && self.first_status == 409
            && self.second_status == 200
            && self.stale_rejections == 1
            && !self.is_corrupted()
    }
}

impl Story {
    /// Plays it through.
    pub(crate) fn play(&self) -> Result<Seen, String> {
        let resource = Resource::start(self.is_fenced)?;
        let stop = match self.stop {
            Stop::Signal => "stopped",
            Stop::Sleep => "asleep",
        };
        let key = format!(
            "{}-{stop}-{}-{}-{}",
            self.backend.as_str(),
            self.is_fenced,
            self.is_renewed,
            self.pause.as_millis()
        );
        let job = Job {
            backend: self.backend,
            server: self.server,
            resource: Some(resource.address),
            fence: if self.is_fenced {
                Switch::On
            } else {
                Switch::Off
            },
            key: key.clone(),
            ttl: self.ttl,
            wait: self.pause + self.ttl + PATIENCE,
            pause: Duration::ZERO,
            work: WORK.min(self.ttl / 2),
            is_renewed: self.is_renewed,
            session_ttl: None,
        };
        let first_job = Job {
            pause: match self.stop {
                Stop::Signal => Duration::ZERO,
                Stop::Sleep => self.pause,
            },
            ..job.clone()
        };
        let first = first_job.start(&format!("a-{key}"))?;
        let (first_fence, _) = first.acquired(PATIENCE)?;
        let begun = Instant::now();
        if self.stop == Stop::Signal {
            first.hold(true)?;
        }
        let second = job.start(&format!("b-{key}"))?;
        if self.stop == Stop::Signal {
            sleep_until(begun, self.pause);
            first.hold(false)?;
        }
        let (first_status, first_believed, first_at) = first.wrote(self.pause + PATIENCE)?;
        let (second_fence, granted_at) = second.acquired(self.pause + PATIENCE)?;
        let (second_status, _, second_at) = second.wrote(PATIENCE)?;
        let (_, _) = (first.released(PATIENCE)?, second.released(PATIENCE)?);
        let Counts {
            accepted,
            stale_rejections,
            violations,
        } = resource.counts()?;
        let state = store::read(resource.address, &key)?;
        Ok(Seen {
            first_fence,
            second_fence,
            first_status,
            second_status,
            is_late: second_at < first_at,
            overlap_ms: first_at - granted_at,
            first_believed,
            accepted,
            stale_rejections,
            violations,
            count: count_of(&state.value),
            value: state.value,
        })
    }
}

/// Plays several at the same time: they do nothing but wait.
pub(crate) fn play_all(stories: &[Story]) -> Vec<Result<Seen, String>> {
    std::thread::scope(|scope| {
        let players: Vec<_> = stories
            .iter()
            .map(|story| scope.spawn(|| story.play()))
            .collect();
        let ended = players.into_iter().map(|player| {
            let ended = player.join();
            ended.unwrap_or_else(|_| Err("a run came to no end".to_owned()))
        });
        ended.collect()
    })
}

#[derive(Serialize)]
struct Line<'a> {
    backend: Backend,
    fence: bool,
    stop: Stop,
    ttl_ms: u64,
    pause_ms: u64,
    is_corrupted: bool,
    #[serde(flatten)]
    seen: &'a Seen,
}

pub(crate) fn run(context: &Context<'_>) -> Result<Report, String> {
    let (ttl, pause) = (context.ttl.unwrap_or(TTL), context.pause.unwrap_or(PAUSE));
    let mut report = Report::new(
        "pause",
        "a holder stands still for longer than its lease, and writes when it wakes up",
        &[
            "backend",
            "fence",
            "stopped",
            "A's fence",
            "B's fence",
            "B wrote",
            "A wrote",
            "accepted",
            "refused",
            "counter",
            "verdict",
        ],
    );
    let peers = context.start_backends(&mut report);
    let mut stories = Vec::new();
    for (backend, peer) in &peers {
        for is_fenced in [false, true] {
            for stop in [Stop::Signal, Stop::Sleep] {
                stories.push(Story {
                    backend: *backend,
                    server: peer.addresses[0],
                    is_fenced,
                    stop,
                    ttl,
                    pause,
                    is_renewed: false,
                });
            }
        }
    }
    let mut of_backend: Vec<(Backend, bool, bool)> = Vec::new();
    for (story, seen) in stories.iter().zip(play_all(&stories)) {
        let seen = seen?;
        let is_shown = match story.is_fenced {
            false => seen.has_two_writers() && seen.is_corrupted(),
            true => seen.is_saved(),
        };
        of_backend.push((story.backend, story.is_fenced, is_shown));
        let verdict = match (seen.is_late, seen.is_corrupted()) {
            (false, _) => "too late",
            (true, true) => "CORRUPTED",
            (true, false) => "intact",
        };
        let [first_fence, second_fence] = fences(seen.first_fence, seen.second_fence);
        report.row(
            vec![
                story.backend.as_str().to_owned(),
                on(story.is_fenced),
                (if story.stop == Stop::Signal {
                    "SIGSTOP"
                } else {
                    "sleep"
                })
                .to_owned(),
                first_fence,
                second_fence,
                seen.second_status.to_string(),
                seen.first_status.to_string(),
                seen.accepted.to_string(),
                seen.stale_rejections.to_string(),
                seen.value.split(' ').next().unwrap_or_default().to_owned(),
                verdict.to_owned(),
            ],
            &Line {
                backend: story.backend,
                fence: story.is_fenced,
                stop: story.stop,
                ttl_ms: ttl.as_millis() as u64,
                pause_ms: pause.as_millis() as u64,
                is_corrupted: seen.is_corrupted(),
                seen: &seen,
            },
        );
        if story.backend == Backend::Fencepost && story.stop == Stop::Signal && story.is_fenced {
            let knew = seen.first_believed.map(|believed| yes(!believed));
            report.note(format!(
                "Fencepost's client knew that its lock was gone when A wrote: {}. That does not help a \
                 holder that is stopped between this look and the write.",
                knew.unwrap_or_default()
            ));
        }
    }
    for (backend, _) in &peers {
        let all = |is_fenced| {
            let mut runs = of_backend
                .iter()
                .filter(|run| run.0 == *backend && run.1 == is_fenced);
            runs.all(|run| run.2)
        };
        let name = backend.as_str();
        report.claim(
            format!("{name}, fence off: two writers accepted on one key, one update lost"),
            all(false),
        );
        report.claim(
            format!(
                "{name}, fence on: the late write got 409, was counted, and the value is intact"
            ),
            all(true),
        );
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(first_status: u16, accepted: u64, count: u64) -> Seen {
        Seen {
            first_status,
            second_status: 200,
            is_late: true,
            accepted,
            stale_rejections: 2 - accepted,
            count,
            ..Seen::default()
        }
    }

    #[test]
    fn two_accepted_writes_of_which_one_is_left_are_corruption() {
        let unsafe_run = seen(200, 2, 1);
        assert!(unsafe_run.has_two_writers() && unsafe_run.is_corrupted());
        assert!(!unsafe_run.is_saved());
    }

    #[test]
    fn a_refused_write_saves_the_value() {
        let safe = seen(409, 1, 1);
        assert!(safe.is_saved() && !safe.has_two_writers());
    }

    #[test]
    fn a_second_holder_that_came_after_the_first_one_wrote_shows_nothing() {
        for (first_status, accepted, count) in [(200, 2, 2), (409, 1, 1)] {
            let early = Seen {
                is_late: false,
                ..seen(first_status, accepted, count)
            };
            assert!(!early.has_two_writers() && !early.is_saved());
        }
    }
}
