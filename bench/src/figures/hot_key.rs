//! How do engine and baseline compare on one key, with one thread and with two?
//!
//! Unit: nanoseconds per cycle of acquire and release, all threads together, median of 31 rounds of
//! 20 ms; rounds of engine and baseline alternate. The ratio is that of the medians. Refused
//! threads try again at once. With no more threads than cores, a round in which a thread had to
//! wait for its core, because other processes wanted it, is repeated: the median would otherwise be
//! of rounds in which the threads took turns. With more threads they take turns anyway, and what is
//! measured is mostly which thread loses its core while it holds the lock.

use super::{Arguments, BOTH, ENGINE, MAP, Report, Target, median};
use bench::baseline::Map;
use bench::subject::{Batched, Pausing, SHARDS, Subject, Until, contend, engine_for};
use engine::Alone;
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
    let batched = Batched(engine_for(1_000));
    let map = Map::<u32>::new(SHARDS, 10_000);
    let pausing = Pausing(Map::<u32>::new(SHARDS, 10_000));
    for threads in [1, 2, 4, 8] {
        let mut scores =
            [ENGINE, Batched::<Alone>::NAME, MAP, Pausing::<u32>::NAME].map(Scores::of);
        let mut repeats_left = if threads <= cores { REPEATS_MAX } else { 0 };
        for _ in 0..ROUNDS {
            let repeats = &mut repeats_left;
            one(&engine, threads, repeats, &mut scores[0]);
            one(&batched, threads, repeats, &mut scores[1]);
            one(&map, threads, repeats, &mut scores[2]);
            one(&pausing, threads, repeats, &mut scores[3]);
        }
        if threads <= cores {
            let repeated = REPEATS_MAX - repeats_left;
            eprintln!("  {threads} threads: {repeated} rounds were disturbed and repeated");
        }
        let threads_say = if threads == 1 { "thread" } else { "threads" };
        let medians = scores.map(|mut scores| {
            report.subject = scores.name;
            let ns = median(&mut scores.ns);
            let is_ours = threads == 1 && scores.name == ENGINE;
            let target = is_ours.then(|| Target::at_most(80.0)).flatten();
            let what = format!("{threads} {threads_say}: acquire and release");
            report.add_against(&what, ns, "ns", target);
            if threads > 1 {
                let what = format!("{threads} threads: refusals per cycle");
                report.add(&what, median(&mut scores.refused), "");
            }
            ns
        });
        report.subject = BOTH;
        let target = if threads == 2 {
            Target::at_least(1.5)
        } else {
            None
        };
        let [engine_ns, batched_ns, map_ns, pausing_ns] = medians;
        let rate = format!("{threads} {threads_say}: rate");
        report.add_against(&rate, map_ns / engine_ns, "x", target);
        report.add(format!("{rate}, in batches"), map_ns / batched_ns, "x");
        report.add(format!("{rate}, both pausing"), pausing_ns / engine_ns, "x");
    }
}

/// What one subject did in all rounds.
struct Scores {
    name: &'static str,
    /// Nanoseconds per cycle.
    ns: Vec<f64>,
    /// Refusals per cycle.
    refused: Vec<f64>,
}

impl Scores {
    fn of(name: &'static str) -> Self {
        Scores {
            name,
            ns: Vec::new(),
            refused: Vec::new(),
        }
    }
}

/// One round.
fn one<S: Subject>(subject: &S, threads: u64, repeats_left: &mut usize, scores: &mut Scores) {
    let contest = loop {
        let contest = contend(subject, threads, Until::Elapsed(ROUND));
        if contest.disturbed <= DISTURBED || *repeats_left == 0 {
            break contest;
        }
        *repeats_left -= 1;
    };
    let cycles = contest.cycles as f64;
    scores.ns.push(contest.elapsed.as_nanos() as f64 / cycles);
    scores.refused.push(contest.refusals as f64 / cycles);
}
