//! `renew`: a lease that is renewed while its holder works. Is that enough?
//!
//! The runs are those of `pause`, with and without renewal. Asleep, only the thread that works
//! stands still, and the one that renews goes on: what a long computation looks like. Stopped, the
//! whole process stands still, renewal included: what a collection of garbage, a full disk or a
//! migrated machine looks like.

use super::pause::{Seen, Stop, Story, play_all};
use crate::experiments::Context;
use crate::experiments::locks::Backend;
use crate::experiments::report::{Report, on};
use serde::Serialize;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Line<'a> {
    backend: Backend,
    renewed: bool,
    fence: bool,
    stop: Stop,
    ttl_ms: u64,
    pause_ms: u64,
    is_corrupted: bool,
    #[serde(flatten)]
    seen: &'a Seen,
}

pub(crate) fn run(context: &Context<'_>) -> Result<Report, String> {
    let ttl = context.ttl.unwrap_or(TTL);
    let (short, long) = (ttl / 4, context.pause.unwrap_or(ttl * 5 / 2));
    let mut report = Report::new(
        "renew",
        "a lease that is renewed while its holder works: is that enough?",
        &[
            "backend",
            "renewed",
            "fence",
            "stands still",
            "TTL",
            "pause",
            "A wrote",
            "status",
            "verdict",
        ],
    );
    let peers = context.start_backends(&mut report);
    let mut stories = Vec::new();
    for (backend, peer) in &peers {
        let mut add = |is_renewed, is_fenced, stop, pause| {
            stories.push(Story {
                backend: *backend,
                server: peer.addresses[0],
                is_fenced,
                stop,
                ttl,
                pause,
                is_renewed,
            });
        };
        add(false, false, Stop::Sleep, long);
        add(true, false, Stop::Sleep, long);
        add(true, false, Stop::Signal, short);
        add(true, false, Stop::Signal, long);
        add(true, true, Stop::Signal, long);
    }
    for (story, seen) in stories.iter().zip(play_all(&stories)) {
        let seen = seen?;
        add_row(story, &seen, &mut report);
        let (sentence, holds) = judge(story, &seen);
        report.claim(format!("{}: {sentence}", story.backend.as_str()), holds);
    }
    Ok(report)
}

fn add_row(story: &Story, seen: &Seen, report: &mut Report) {
    let what = match story.stop {
        Stop::Sleep => "the thread",
        Stop::Signal => "the process",
    };
    let after = match seen.is_late {
        true => format!("{:.2} s after B", seen.overlap_ms / 1e3),
        false => "before B".to_owned(),
    };
    let verdict = match (seen.is_corrupted(), seen.is_late) {
        (true, _) => "CORRUPTED",
        (false, true) => "intact: late write refused",
        (false, false) => "intact: held throughout",
    };
    report.row(
        vec![
            story.backend.as_str().to_owned(),
            on(story.is_renewed),
            on(story.is_fenced),
            what.to_owned(),
            format!("{:.1} s", story.ttl.as_secs_f64()),
            format!("{:.1} s", story.pause.as_secs_f64()),
            after,
            seen.first_status.to_string(),
            verdict.to_owned(),
        ],
        &Line {
            backend: story.backend,
            renewed: story.is_renewed,
            fence: story.is_fenced,
            stop: story.stop,
            ttl_ms: story.ttl.as_millis() as u64,
            pause_ms: story.pause.as_millis() as u64,
            is_corrupted: seen.is_corrupted(),
            seen,
        },
    );
}

/// What a run is to show, and whether it did.
fn judge(story: &Story, seen: &Seen) -> (&'static str, bool) {
    let is_held_throughout = !seen.is_late && !seen.is_corrupted();
    let is_lost = seen.has_two_writers() && seen.is_corrupted();
    match (story.is_renewed, story.is_fenced, story.stop) {
        (_, true, _) => (
            "with a fence the late write is refused, renewed or not",
            seen.is_saved(),
        ),
        (false, _, _) => (
            "work that is longer than the lease loses the lock unless it is renewed",
            is_lost,
        ),
        (true, _, Stop::Sleep) => ("renewed, long work keeps the lock", is_held_throughout),
        (true, _, Stop::Signal) if story.pause < story.ttl => (
            "renewed, a pause shorter than the lease does no harm",
            is_held_throughout,
        ),
        (true, _, Stop::Signal) => (
            "renewed, a pause of the whole process that is longer than the lease lets two write: the window is narrower, not closed",
            is_lost,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story(is_renewed: bool, stop: Stop) -> Story {
        Story {
            backend: Backend::Fencepost,
            server: "127.0.0.1:1".parse().unwrap(),
            is_fenced: false,
            stop,
            ttl: TTL,
            pause: TTL * 2,
            is_renewed,
        }
    }

    #[test]
    fn renewal_has_to_help_the_sleeper_and_fail_the_stopped() {
        let lost = Seen {
            first_status: 200,
            second_status: 200,
            is_late: true,
            accepted: 2,
            count: 1,
            ..Seen::default()
        };
        let kept = Seen {
            is_late: false,
            count: 2,
            ..lost.clone()
        };
        for (is_renewed, stop, expected) in [
            (false, Stop::Sleep, &lost),
            (true, Stop::Sleep, &kept),
            (true, Stop::Signal, &lost),
        ] {
            let other = if expected == &lost { &kept } else { &lost };
            assert!(judge(&story(is_renewed, stop), expected).1);
            assert!(!judge(&story(is_renewed, stop), other).1);
        }
    }
}
