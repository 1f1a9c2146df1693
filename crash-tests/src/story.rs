//! What happened around a violation, in order: for people that look for its cause.

use crate::checker::{At, Violation};
use crate::history::{End, History, Time};
use std::fmt::Write;

/// How long before and after.
const MARGIN_US: Time = 1_500_000;

/// Everything about the key of this violation, and the lives of the server, around the time of it.
pub fn tell(history: &History, violation: &Violation) -> String {
    let (key, from, to) = violation.place();
    let around = from.saturating_sub(MARGIN_US)..to + MARGIN_US;
    let mut lines: Vec<(Time, String)> = Vec::new();
    let mut add = |time: Time, line: String| lines.push((time, line));
    for life in &history.lives {
        if let Some(ready) = life.ready.filter(|ready| around.contains(ready)) {
            add(ready, "the server is ready".to_owned());
        }
        if around.contains(&life.ended) {
            add(life.ended, format!("the server is {:?}", life.end));
            add(life.gone, "it is gone".to_owned());
        }
    }
    for grant in history.grants.iter().filter(|grant| &grant.key == key) {
        // A grant that reaches into that time is told from its beginning.
        let last = match grant.end {
            End::Open => None,
            End::Released { answered, .. } => Some(answered),
            End::Abandoned { begun } => Some(begun),
            End::Lost { at, .. } => Some(at),
        };
        let last = last.max(grant.promises.iter().max().copied());
        if last < Some(around.start) || grant.begun > around.end {
            continue;
        }
        let name = format!("{} ({})", grant.fence, grant.holder);
        let sort = if grant.is_shared { ", shared" } else { "" };
        let ttl_ms = grant.ttl_us / 1_000;
        add(grant.begun, format!("{name}: asks for {ttl_ms} ms{sort}"));
        let promises: Vec<String> = grant
            .promises
            .iter()
            .map(|at| At(*at).to_string())
            .collect();
        let promises = promises.join(", ");
        add(
            grant.answered,
            format!("{name}: granted; promised until {promises}"),
        );
        match &grant.end {
            End::Open => {}
            End::Released { begun, answered } => {
                add(*begun, format!("{name}: releases"));
                add(*answered, format!("{name}: released"));
            }
            End::Abandoned { begun } => add(*begun, format!("{name}: lets go")),
            End::Lost { at, why, .. } => add(*at, format!("{name}: lost: {why}")),
        }
    }
    for sighting in history.sightings.iter().filter(|it| &it.key == key) {
        if around.contains(&sighting.answered) {
            let asked = At(sighting.begun);
            let sort = if sighting.is_shared { ", shared" } else { "" };
            let line = format!(
                "{}: named as holder{sort}, asked at {asked}",
                sighting.fence
            );
            add(sighting.answered, line);
        }
    }
    for probe in history.probes.iter().filter(|probe| &probe.key == key) {
        let answer = if probe.is_accepted { "yes" } else { "no" };
        add(
            probe.begun,
            format!("{}: {}: {answer}", probe.fence, probe.ask),
        );
    }
    lines.sort();
    let mut text = format!("{violation}\n");
    for (time, line) in lines {
        let _ = writeln!(text, "    {} {line}", At(time));
    }
    text
}
