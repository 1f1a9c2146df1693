//! How long can a single acquire take while the table grows from nothing to ten million keys?
//!
//! Unit: microseconds; the longest of all acquires, in each of three runs, by two clocks: the
//! wall's, in which a preempted thread waits for its core, and the core's, which stands still
//! meanwhile. Both see page faults of fresh memory and what the hypervisor takes. The control does
//! nothing but write to fresh memory, as much of it as the engine takes, under the same clocks:
//! what it shows is not the table's.

use super::process::{Clocks, page_faults, preemptions};
use super::{Arguments, Report, Target};
use bench::baseline::Map;
use bench::subject::{NOW, SHARDS, Subject, engine_for, take_all};
use hdrhistogram::Histogram;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const RUNS: usize = 3;

/// What a lock takes in the engine, roughly: a cell, its part of the index, its place in a seat.
const BYTES_PER_LOCK: usize = 75;

pub(super) fn engine(arguments: &Arguments, report: &mut Report<'_>) {
    subject_runs(arguments, report, engine_for, Target::at_most(5_000.0));
}

pub(super) fn map(arguments: &Arguments, report: &mut Report<'_>) {
    subject_runs(arguments, report, |_| Map::<u32>::new(SHARDS, 10_000), None);
}

pub(super) fn control(arguments: &Arguments, report: &mut Report<'_>) {
    runs(report, None, |record| {
        let mut memory = vec![0_u8; arguments.keys as usize * BYTES_PER_LOCK];
        for lock in memory.chunks_exact_mut(BYTES_PER_LOCK) {
            lock.fill(1);
            record();
        }
        black_box(&memory);
    });
}

fn subject_runs<S: Subject>(
    arguments: &Arguments,
    report: &mut Report<'_>,
    make: impl Fn(u64) -> S,
    target: Option<Target>,
) {
    runs(report, target, |record| {
        let subject = make(arguments.keys);
        let mut seats: Vec<_> = (0..4).map(|number| subject.seat(number)).collect();
        with_stocker(&subject, || {
            take_all(
                &subject,
                &mut seats,
                arguments.keys,
                3_600_000,
                NOW,
                |_, _| record(),
            );
        });
    });
}

/// How long the prefault thread sleeps when there is enough. A server's is woken every millisecond
/// at most.
const STOCK_PAUSE: Duration = Duration::from_millis(1);

/// Sets a flag when it goes, also after a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` beside a thread that does what the server's own does
/// (`server/src/start/prefault.rs`).
fn with_stocker<S: Subject>(subject: &S, work: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if !subject.stock_up() {
                    std::thread::sleep(STOCK_PAUSE);
                }
            }
        });
        let _over = Over(&is_over);
        work();
    });
}

/// Three times the same, each with histograms of the time between two calls of `record`.
fn runs(report: &mut Report<'_>, target: Option<Target>, mut fill: impl FnMut(&mut dyn FnMut())) {
    for run in 1..=RUNS {
        eprintln!("  run {run} of {RUNS}");
        let histogram =
            || Histogram::<u64>::new_with_max(10_000_000_000, 3).expect("within bounds");
        let (mut wall, mut core) = (histogram(), histogram());
        let (faults, switches) = (page_faults(), preemptions());
        let begun = Clocks::start();
        let mut last = begun;
        fill(&mut || {
            let took = last.took();
            wall.saturating_record(took.wall_ns);
            core.saturating_record(took.core_ns);
            last = Clocks::start();
        });
        let (faults, switches) = (page_faults() - faults, preemptions() - switches);
        let us = |ns: u64| ns as f64 / 1_000.0;
        let mut add = |what: &str, value, unit, target| {
            report.add_against(format!("run {run}: {what}"), value, unit, target);
        };
        add("longest acquire", us(wall.max()), "us", target);
        add("longest acquire, on the core", us(core.max()), "us", target);
        add("p99.999", us(wall.value_at_quantile(0.99999)), "us", None);
        add(
            "p99.999, on the core",
            us(core.value_at_quantile(0.99999)),
            "us",
            None,
        );
        add("p99.9", us(wall.value_at_quantile(0.999)), "us", None);
        add("median", wall.value_at_quantile(0.5) as f64, "ns", None);
        add("mean", wall.mean(), "ns", None);
        let over = wall.len() - wall.count_between(0, 1_000_000);
        add("acquires over 1 ms", over as f64, "", None);
        add("preemptions", switches as f64, "", None);
        add("page faults", faults as f64, "", None);
    }
}
