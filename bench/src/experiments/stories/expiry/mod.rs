//! `expiry`: very many short leases end. How late are the waiters, what do other clients notice,
//! and what becomes of the memory?
//!
//! The first half is the workload `--expiry` of the bench, with holders that listen, waiters in the
//! queue and a client that goes on working. The second half (`memory.rs`, `etcd_leases.rs`) leaves
//! the leases alone and looks at the server.

mod etcd_leases;
mod memory;

use super::measured::{ms, number, rows_of, text};
use crate::experiments::Context;
use crate::experiments::locks::Backend;
use crate::experiments::report::Report;
use crate::experiments::report::plot::{Line, Plot};
use etcd_leases::revoked_per_s;
use memory::{Plan, Sample, Series, Subject};
use serde::Serialize;
use std::time::Duration;

/// The longest lag of a waiter, in the middle of the burst.
const LAG_US: f64 = 1_000_000.0;

/// A share of the keys that is next to nothing.
const FEW: f64 = 0.01;

/// Leases of etcd, in the short form and in the long one.
const ETCD_LEASES: u64 = 2_000;
const ETCD_LEASES_FULL: u64 = 20_000;

/// How long to look after the last end. Fencepost forgets a key ten seconds after its lease.
const TAIL: Duration = Duration::from_secs(4);
const TAIL_FENCEPOST: Duration = Duration::from_secs(13);
const TAIL_FULL: Duration = Duration::from_secs(30);

/// Moments that the table of memory over time shows, as shares of the spread and then in seconds
/// after the last end.
const SHARES: [f64; 3] = [0.0, 0.5, 1.0];
const LATER_S: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 10.0, 12.0];

/// One look at one server, for programs.
#[derive(Serialize)]
struct Look {
    series: &'static str,
    keys: u64,
    unexpired: u64,
    unreclaimed: u64,
    #[serde(flatten)]
    sample: Sample,
}

pub(crate) fn run(context: &Context<'_>) -> Result<Report, String> {
    let mut report = Report::new(
        "expiry",
        "very many short leases end: how late are the waiters, what do other clients notice, and what becomes of the memory?",
        &[
            "backend",
            "leases",
            "bytes per lock",
            "lag p50",
            "lag p99",
            "lag max",
            "others' p99, idle",
            "others' p99, burst",
        ],
    );
    let (keys, spread) = match context.is_full {
        true => (10_000_000, Duration::from_secs(10)),
        false => (300_000, Duration::from_secs(3)),
    };
    lag(context, keys, spread, &mut report)?;
    let backends = context.backends();
    let is_usable = |backend: &Backend, report: &mut Report| {
        backends.contains(backend) && context.start(backend.peer(), report).is_some()
    };
    let has_redis = is_usable(&Backend::Redis, &mut report);
    let mut stories = Vec::new();
    for subject in Subject::ALL {
        let is_fencepost = subject == Subject::Fencepost;
        if !(is_fencepost && backends.contains(&Backend::Fencepost) || !is_fencepost && has_redis) {
            continue;
        }
        let tail = match (context.is_full, is_fencepost) {
            (true, _) => TAIL_FULL,
            (false, true) => TAIL_FENCEPOST,
            (false, false) => TAIL,
        };
        let plan = Plan {
            keys,
            spread,
            tail,
            seed: context.options.seed,
        };
        stories.push((Some(subject), memory::watch(subject, plan)?));
    }
    if is_usable(&Backend::Etcd, &mut report) {
        let count = match context.is_full {
            true => ETCD_LEASES_FULL,
            false => ETCD_LEASES,
        };
        stories.push((None, etcd_leases::watch(count)?));
    }
    memory(&stories, &mut report);
    left_over(&stories, &mut report);
    over_time(&stories, spread, &mut report);
    draw(context, &stories, &mut report)?;
    Ok(report)
}

/// The first half: waiters, and a client on other keys.
fn lag(
    context: &Context<'_>,
    keys: u64,
    spread: Duration,
    report: &mut Report,
) -> Result<(), String> {
    let (keys, spread) = (keys.to_string(), format!("{}s", spread.as_secs()));
    let flags = ["--keys", &keys, "--spread", &spread, "--rounds", "1"];
    let plots = &context.options.plots;
    // A lease of etcd is whole seconds and a session of its own: it is looked at in the second
    // half.
    let mut backends = context.backends();
    backends.retain(|backend| *backend != Backend::Etcd);
    if backends.is_empty() {
        return Ok(());
    }
    for row in rows_of(context, &backends, "--expiry", &flags, plots, report)? {
        report.row(
            vec![
                text(&row, "peer"),
                number(&row, "keys").to_string(),
                format!("{:.0}", number(&row, "bytes_per_lock")),
                ms(&row, "p50_us"),
                ms(&row, "p99_us"),
                ms(&row, "max_us"),
                ms(&row, "probe_idle_p99_us"),
                ms(&row, "probe_p99_us"),
            ],
            &row,
        );
        if number(&row, "taken_late") > 0.0 {
            let peer = text(&row, "peer");
            report.note(format!(
                "{peer}: the locks were not all taken before the first of them ended, so its lag says little."
            ));
        }
        report.claim(
            format!(
                "{}: 99 of 100 waiters are granted the lock within a second of the lease's end",
                text(&row, "peer")
            ),
            number(&row, "p99_us") < LAG_US,
        );
    }
    Ok(())
}

/// What each server had in memory, and what it kept of leases that had ended.
fn memory(stories: &[(Option<Subject>, Series)], report: &mut Report) {
    report.table(
        "Memory, when no client asks for the keys again (the leases end within 3 s, with `--full` 10 s; those of etcd within one)",
        &[
            "backend",
            "leases",
            "empty",
            "most",
            "at the end",
            "its own account",
            "with as many new locks",
        ],
    );
    for (subject, series) in stories {
        let last = series.last();
        report.plain_row(vec![
            series.name.to_owned(),
            series.keys.to_string(),
            mb(series.empty_bytes),
            mb(series.peak_bytes()),
            mb(last.resident_bytes),
            last.used_bytes.map_or("-".to_owned(), mb),
            series.refilled_bytes.map_or("-".to_owned(), mb),
        ]);
        for sample in &series.samples {
            report.line(&Look {
                series: series.name,
                keys: series.keys,
                unexpired: sample.unexpired(),
                unreclaimed: sample.unreclaimed(),
                sample: *sample,
            });
        }
        if let Some(touched) = &series.touched {
            report.note(format!(
                "{}: after every key was asked for, {} of those that had ended were left.",
                series.name,
                touched.unreclaimed(),
            ));
        }
        let (sentence, holds) = judge(*subject, series);
        report.claim(sentence, holds);
    }
}

/// How far each server got with the leases that had ended, by itself.
fn left_over(stories: &[(Option<Subject>, Series)], report: &mut Report) {
    report.table(
        "Leases that have ended: locks that are not free yet, and keys still in memory (times are from the last end on)",
        &[
            "backend",
            "not free: most",
            "all free after",
            "in memory: most",
            "none in memory after",
        ],
    );
    for (_, series) in stories {
        let most = |count: fn(&Sample) -> u64| {
            let counts = series.samples.iter().map(count);
            counts.max().unwrap_or(0)
        };
        let after = |count: fn(&Sample) -> u64| match series.done_after_s(count) {
            Some(seconds) => format!("{seconds:.1} s"),
            None => {
                let last = series.last();
                let looked_s = last.at_s - series.last_end_s;
                format!("{} left at {looked_s:.0} s", count(&last))
            }
        };
        report.plain_row(vec![
            series.name.to_owned(),
            most(Sample::unexpired).to_string(),
            after(Sample::unexpired),
            most(Sample::unreclaimed).to_string(),
            after(Sample::unreclaimed),
        ]);
    }
}

/// What a server is to show, and whether it did.
fn judge(subject: Option<Subject>, series: &Series) -> (String, bool) {
    let last = series.last();
    let few = (series.keys as f64 * FEW) as u64;
    let is_reclaimed = last.unreclaimed() <= few;
    let free_after_s = series.done_after_s(Sample::unexpired);
    let holds = match subject {
        Some(Subject::Fencepost) => is_reclaimed && free_after_s.is_some(),
        // How fast it is at it is for the reader to judge.
        Some(Subject::RedisActive | Subject::RedisHard) => last.unreclaimed() < series.keys - few,
        None => is_reclaimed,
        Some(Subject::RedisLazy) => {
            let is_gone = |touched: Sample| touched.unreclaimed() <= few;
            last.unreclaimed() >= series.keys - few && series.touched.is_some_and(is_gone)
        }
        Some(Subject::RedisFenced) => last.unreclaimed() >= series.keys - few,
    };
    let sentence = match subject {
        Some(Subject::Fencepost) => {
            format!(
                "all locks are free {:.1} s after the last lease has ended, and their keys are forgotten without being asked for",
                free_after_s.unwrap_or(f64::NAN)
            )
        }
        Some(Subject::RedisActive | Subject::RedisHard) => {
            let removed = 1.0 - last.unreclaimed() as f64 / series.keys as f64;
            format!(
                "keys whose leases have ended are removed without being asked for, {:.0} % of them {:.0} s after the last end",
                100.0 * removed,
                last.at_s - series.last_end_s
            )
        }
        Some(Subject::RedisLazy) => {
            "keys whose leases have ended stay in memory until a client asks for them".to_owned()
        }
        Some(Subject::RedisFenced) => {
            "the locks go, and a counter stays for every key there ever was".to_owned()
        }
        None => {
            let rate = revoked_per_s(series).unwrap_or(f64::NAN);
            let late_s = series.done_after_s(Sample::unreclaimed).unwrap_or(f64::NAN);
            format!(
                "it revokes {rate:.0} leases a second, so that the last of {} is gone {late_s:.1} s late",
                series.keys
            )
        }
    };
    (format!("{}: {sentence}", series.name), holds)
}

/// The same at some moments, side by side.
fn over_time(stories: &[(Option<Subject>, Series)], spread: Duration, report: &mut Report) {
    let of = |subject: Subject| {
        let is_it = |(of, _): &&(Option<Subject>, Series)| *of == Some(subject);
        stories.iter().find(is_it).map(|(_, series)| series)
    };
    let told: Vec<Option<&Series>> = Subject::ALL.into_iter().map(of).collect();
    let Some(first) = told.iter().flatten().next() else {
        return;
    };
    let mut columns = vec!["after", "live"];
    columns.extend(Subject::ALL.map(Subject::short_name));
    report.table(
        "Memory over time (after the first end), leases that live, and keys in memory whose leases have ended",
        &columns,
    );
    let spread_s = spread.as_secs_f64();
    let early = SHARES.map(|share| share * spread_s);
    let moments = early
        .into_iter()
        .chain(LATER_S.map(|later_s| spread_s + later_s));
    for at_s in moments {
        let live = first.at(at_s).map(|sample| sample.live.to_string());
        let mut cells = vec![format!("{at_s:.1} s"), live.unwrap_or("0".to_owned())];
        cells.extend(told.iter().map(|series| {
            let sample = series.and_then(|series| series.at(at_s));
            sample.map_or("-".to_owned(), |sample| {
                format!("{}, {}", mb(sample.resident_bytes), sample.unreclaimed())
            })
        }));
        report.plain_row(cells);
    }
    report.note("A dash: everything was gone by then, or the bench had stopped looking.");
}

fn draw(
    context: &Context<'_>,
    stories: &[(Option<Subject>, Series)],
    report: &mut Report,
) -> Result<(), String> {
    // Leases of etcd are so few that they would be a line on the axis.
    let lines = |figure: fn(&Sample) -> f64| {
        let drawn = stories.iter().filter(|(subject, _)| subject.is_some());
        let line = |(_, series): &(Option<Subject>, Series)| Line {
            name: series.name,
            points: series
                .samples
                .iter()
                .map(|sample| (sample.at_s, figure(sample)))
                .collect(),
        };
        drawn.map(line).collect::<Vec<Line>>()
    };
    let x = "seconds since the first lease ended";
    let plots = [
        Plot {
            file: "expiry-memory.svg",
            title: "Leases end, and no client asks for them: resident memory",
            x,
            y: "MB",
            lines: lines(|sample| sample.resident_bytes as f64 / 1e6),
        },
        Plot {
            file: "expiry-unreclaimed.svg",
            title: "Leases that have ended and whose keys are still in memory",
            x,
            y: "thousands of keys",
            lines: lines(|sample| sample.unreclaimed() as f64 / 1e3),
        },
    ];
    for plot in plots.iter().filter(|plot| !plot.lines.is_empty()) {
        let file = plot.write(&context.options.plots)?;
        report.note(format!("wrote {}", file.display()));
    }
    Ok(())
}

fn mb(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(left: [u64; 2], touched: Option<u64>) -> Series {
        let sample = |at_s: f64, stored: u64| Sample {
            at_s,
            held: stored,
            stored,
            ..Sample::default()
        };
        Series {
            name: "x",
            keys: 1_000,
            empty_bytes: 0,
            last_end_s: 3.0,
            samples: vec![sample(3.5, left[0]), sample(9.0, left[1])],
            refilled_bytes: None,
            touched: touched.map(|stored| sample(9.5, stored)),
        }
    }

    #[test]
    fn each_way_to_expire_is_held_to_what_is_said_of_it() {
        let holds = |subject, left, touched| judge(Some(subject), &series(left, touched)).1;
        assert!(holds(Subject::Fencepost, [0, 0], None));
        assert!(holds(Subject::Fencepost, [900, 0], None), "late, and told");
        assert!(!holds(Subject::Fencepost, [900, 100], None));
        assert!(holds(Subject::RedisActive, [500, 0], None));
        assert!(holds(Subject::RedisActive, [900, 800], None), "some are");
        assert!(!holds(Subject::RedisActive, [1_000, 1_000], None));
        assert!(holds(Subject::RedisLazy, [1_000, 1_000], Some(0)));
        assert!(!holds(Subject::RedisLazy, [1_000, 0], Some(0)));
        assert!(!holds(Subject::RedisLazy, [1_000, 1_000], Some(1_000)));
        assert!(holds(Subject::RedisFenced, [1_000, 1_000], None));
    }

    #[test]
    fn memory_is_in_millions_of_bytes() {
        assert_eq!(mb(12_600_000), "13 MB");
    }
}
