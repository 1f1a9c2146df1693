//! What came of a run.

use crate::install::Install;
use crate::scenario::Scenario;
use crash_tests::checker::Summary;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// What befell the nodes.
    pub scenario: Scenario,
    /// How often.
    pub times: usize,
    /// How many nodes there were.
    pub nodes: usize,
    /// What moments and choices came from.
    pub seed: u64,
    /// How long it took.
    pub took: Duration,
    /// From each trouble to the next grant that was asked for after it.
    pub failovers: Vec<Duration>,
    /// The longest time without a grant around each trouble.
    pub pauses: Vec<Duration>,
    /// From the end of each trouble until all nodes were ready again.
    pub healings: Vec<Duration>,
    /// Locks that were held all the time.
    pub locks: usize,
    /// Images that nodes were sent, where that was measured.
    pub installs: Vec<Install>,
    /// Guards with a lease of 10 s that there were.
    pub guards: u64,
    /// Of these, lost, and why.
    pub lost: Vec<String>,
    /// What was checked.
    pub summary: Summary,
    /// Promises that were broken, at length.
    pub violations: Vec<String>,
    /// What else there is to count.
    pub counts: BTreeMap<&'static str, u64>,
    /// What clients met.
    pub failures: BTreeMap<String, u64>,
}

/// The value below which so many of a thousand lie.
fn at(sorted: &[Duration], per_mille: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    let index = (sorted.len() * per_mille).div_ceil(1_000).saturating_sub(1);
    sorted.get(index.min(last)).copied().unwrap_or_default()
}

fn spread(durations: &[Duration]) -> [f64; 3] {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    [500, 990, 1_000].map(|per_mille| at(&sorted, per_mille).as_secs_f64())
}

impl Report {
    /// Says no if a promise was broken, if nothing was at stake, or if a guard was lost that a
    /// machine with time to spare loses by no such trouble.
    pub fn judge(&self) -> Result<(), String> {
        self.judge_promises()?;
        if self.scenario.keeps_guards() && !self.lost.is_empty() {
            let (lost, all) = (self.lost.len(), self.guards);
            let seed = self.seed;
            return Err(format!(
                "{lost} of {all} guards with a lease of 10 s were lost; seed {seed}"
            ));
        }
        Ok(())
    }

    /// Says no if a promise was broken, or if nothing was at stake. A lease that could not be
    /// renewed in time breaks none.
    pub fn judge_promises(&self) -> Result<(), String> {
        if !self.violations.is_empty() {
            let count = self.violations.len();
            return Err(format!("{count} promises were broken; seed {}", self.seed));
        }
        if self.guards == 0 {
            return Err("nothing was shown: no guard was held".to_owned());
        }
        Ok(())
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let times = |durations: &[Duration]| {
            let [p50, p99, max] = spread(durations);
            json!({ "count": durations.len(), "p50_s": p50, "p99_s": p99, "max_s": max })
        };
        json!({
            "scenario": self.scenario.name(),
            "times": self.times,
            "nodes": self.nodes,
            "seed": self.seed,
            "took_s": self.took.as_secs_f64(),
            "failover": times(&self.failovers),
            "pause_of_grants": times(&self.pauses),
            "healing": times(&self.healings),
            "locks": self.locks,
            "installs": self.installs.iter().map(Install::json).collect::<Vec<_>>(),
            "guards": self.guards,
            "guards_lost": self.lost,
            "grants": self.summary.grants,
            "leases_over_a_trouble": self.summary.leases_over_a_kill,
            "leases_survived": self.summary.leases_survived,
            "probes_refused": self.summary.probes_refused,
            "violations": self.violations,
            "counts": self.counts,
            "failures": self.failures,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "VIOLATION {violation}")?;
        }
        writeln!(f, "{}", self.summary)?;
        writeln!(f, "what clients met:")?;
        for (what, count) in &self.failures {
            writeln!(f, "  {what:60} {count:>9}")?;
        }
        for (what, count) in &self.counts {
            writeln!(f, "{what:62} {count:>9}")?;
        }
        for install in &self.installs {
            writeln!(f, "{install}")?;
        }
        for (what, durations) in [
            ("from the trouble to the next grant", &self.failovers),
            ("longest pause of grants", &self.pauses),
            ("until all nodes were ready again", &self.healings),
        ] {
            let [p50, p99, max] = spread(durations);
            let count = durations.len();
            writeln!(
                f,
                "{what:36} p50 {p50:.3} s, p99 {p99:.3} s, max {max:.3} s, of {count}"
            )?;
        }
        let (lost, all) = (self.lost.len(), self.guards);
        writeln!(f, "guards with a lease of 10 s: {all}, lost: {lost}")?;
        for lost in &self.lost {
            writeln!(f, "  {lost}")?;
        }
        let (name, seed) = (self.scenario.name(), self.seed);
        let seconds = self.took.as_secs();
        write!(
            f,
            "{name} {} times on {} nodes in {seconds} s, seed {seed}",
            self.times, self.nodes
        )
    }
}
