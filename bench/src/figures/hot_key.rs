//! How do engine and baseline compare on one key, with one thread and with two?
//!
//! Unit: nanoseconds per cycle of acquire and release, all threads together, median of 31 rounds of 20 ms; rounds of engine
//! and baseline alternate. The ratio is that of the medians. Refused threads try again at once. With no more threads than
//! cores, a round in which a thread had to wait for its core, because other processes wanted it, is repeated: the median
//! would otherwise be of rounds in which the threads took turns. With more threads they take turns anyway, and what is
//! measured is mostly who loses its core while it holds the lock.

use super::{Arguments, BOTH, ENGINE, MAP, Report, Target, median};
use bench::baseline::Map;
use bench::subject::{SHARDS, Subject, Until, contend, engine_for};
use std::time::Duration;

const ROUNDS: usize = 31;
const ROUND: Duration = Duration::from_millis(20);
/// A round is disturbed if a thread was late or kept waiting for longer than this.
const DISTURBED: Duration = Duration::from_micros(400);
/// How many rounds may be repeated before all count as they come.
const REPEATS_MAX: usize = 200;

pub(super) fn both(_: &Arguments, report: &mut Report<'_>) {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let engine = engine_for(1_000);
    let map = Map::<u32>::new(SHARDS, 10_000);
    for threads in [1, 2, 4, 8] {
        let (mut of_engine, mut of_map) = (Vec::new(), Vec::new());
        let (mut refused_by_engine, mut refused_by_map) = (Vec::new(), Vec::new());
        let mut repeats_left = if threads <= cores { REPEATS_MAX } else { 0 };
        for _ in 0..ROUNDS {
            let repeats = &mut repeats_left;
            one(
                &engine,
                threads,
                repeats,
                &mut of_engine,
                &mut refused_by_engine,
            );
            one(&map, threads, repeats, &mut of_map, &mut refused_by_map);
        }
        if threads <= cores {
            let repeated = REPEATS_MAX - repeats_left;
            eprintln!("  {threads} threads: {repeated} rounds were disturbed and repeated");
        }
        let [engine_ns, map_ns] = [&mut of_engine, &mut of_map].map(|rounds| median(rounds));
        let threads_say = if threads == 1 { "thread" } else { "threads" };
        let what = format!("{threads} {threads_say}: acquire and release");
        report.subject = ENGINE;
        let target = if threads == 1 {
            Target::at_most(80.0)
        } else {
            None
        };
        report.add_against(&what, engine_ns, "ns", target);
        report.subject = MAP;
        report.add(&what, map_ns, "ns");
        if threads > 1 {
            let what = format!("{threads} threads: refusals per cycle");
            report.subject = ENGINE;
            report.add(&what, median(&mut refused_by_engine), "");
            report.subject = MAP;
            report.add(&what, median(&mut refused_by_map), "");
        }
        report.subject = BOTH;
        let target = if threads == 2 {
            Target::at_least(1.5)
        } else {
            None
        };
        report.add_against(
            format!("{threads} {threads_say}: rate"),
            map_ns / engine_ns,
            "x",
            target,
        );
    }
}

/// One round: nanoseconds per cycle, and how many refusals came with it.
fn one<S: Subject>(
    subject: &S,
    threads: u64,
    repeats_left: &mut usize,
    ns: &mut Vec<f64>,
    refused: &mut Vec<f64>,
) {
    let contest = loop {
        let contest = contend(subject, threads, Until::Elapsed(ROUND));
        if contest.disturbed <= DISTURBED || *repeats_left == 0 {
            break contest;
        }
        *repeats_left -= 1;
    };
    ns.push(contest.elapsed.as_nanos() as f64 / contest.cycles as f64);
    refused.push(contest.refusals as f64 / contest.cycles as f64);
}
