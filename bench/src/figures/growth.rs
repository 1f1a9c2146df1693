//! How long can a single acquire take while the table grows from nothing to ten million keys?
//!
//! Unit: microseconds; the longest of all acquires, in each of three runs. The clock is read after every acquire, so a value
//! contains one reading (some 25 ns), and everything that happens to the thread: page faults of fresh memory, preemption,
//! the hypervisor. The control does nothing but write to fresh memory, as much of it as the engine takes, under the same
//! clock: what it shows is not the table's.

use super::process::{page_faults, preemptions};
use super::{Arguments, Report, Target};
use bench::baseline::Map;
use bench::subject::{NOW, SHARDS, Subject, engine_for, take_all};
use hdrhistogram::Histogram;
use std::hint::black_box;
use std::time::Instant;

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
        take_all(
            &subject,
            &mut seats,
            arguments.keys,
            3_600_000,
            NOW,
            |_, _| record(),
        );
    });
}

/// Three times the same, each with a histogram of the time between two calls of `record`.
fn runs(report: &mut Report<'_>, target: Option<Target>, mut fill: impl FnMut(&mut dyn FnMut())) {
    for run in 1..=RUNS {
        let mut histogram =
            Histogram::<u64>::new_with_max(10_000_000_000, 3).expect("within bounds");
        let (faults, switches) = (page_faults(), preemptions());
        let mut last = Instant::now();
        let begun = last;
        fill(&mut || {
            let now = Instant::now();
            histogram.saturating_record((now - last).as_nanos() as u64);
            last = now;
        });
        let count = histogram.len();
        let us = |ns: u64| ns as f64 / 1_000.0;
        report.add_against(
            format!("run {run}: longest acquire"),
            us(histogram.max()),
            "us",
            target,
        );
        report.add(
            format!("run {run}: p99.999"),
            us(histogram.value_at_quantile(0.99999)),
            "us",
        );
        report.add(
            format!("run {run}: p99.9"),
            us(histogram.value_at_quantile(0.999)),
            "us",
        );
        report.add(
            format!("run {run}: mean"),
            (last - begun).as_nanos() as f64 / count as f64,
            "ns",
        );
        report.add(
            format!("run {run}: acquires over 1 ms"),
            (count - histogram.count_between(0, 1_000_000)) as f64,
            "",
        );
        report.add(
            format!("run {run}: preemptions"),
            (preemptions() - switches) as f64,
            "",
        );
        report.add(
            format!("run {run}: page faults"),
            (page_faults() - faults) as f64,
            "",
        );
    }
}
