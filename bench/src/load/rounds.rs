//! Rounds: everything is measured several times, in turns (A B A B ...), so that whatever else the machine does hits all alike.

use super::options::Options;
use super::peers::{Peer, PeerName};
use super::sample::{Figures, Sample, histogram};
use super::workloads::{Setting, Workload, measure, settings};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// One peer at one setting, all rounds together.
pub(crate) struct Row {
    pub(crate) peer: PeerName,
    pub(crate) version: String,
    pub(crate) setting: Setting,
    /// The median over the rounds, of each figure.
    pub(crate) median: Figures,
    /// The least and the most of each.
    pub(crate) least: Figures,
    pub(crate) most: Figures,
    pub(crate) rounds: usize,
    /// Of all rounds.
    pub(crate) latency: Histogram<u64>,
    pub(crate) bounded_by: Option<String>,
}

/// What came of a run.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) rows: Vec<Row>,
    /// Measurements that came to nothing, and why. One of them fails the run.
    pub(crate) failures: Vec<String>,
}

/// Measures the workloads on the peers.
pub(crate) fn run(workloads: &[Workload], peers: &[Peer], options: &Options) -> Outcome {
    let mut plan: Vec<(usize, Setting)> = Vec::new();
    for &workload in workloads {
        // Peers that are to be compared are measured one right after the other.
        let mut of_peer: Vec<_> = peers
            .iter()
            .map(|peer| settings(workload, peer.name, options).into_iter())
            .collect();
        loop {
            let before = plan.len();
            for (index, settings) in of_peer.iter_mut().enumerate() {
                plan.extend(settings.next().map(|setting| (index, setting)));
            }
            if plan.len() == before {
                break;
            }
        }
    }
    let bar = progress_bar(plan.len() as u64 * u64::from(options.rounds));
    let mut samples: Vec<Vec<Sample>> = plan.iter().map(|_| Vec::new()).collect();
    let mut outcome = Outcome::default();
    peers.iter().for_each(|peer| peer.hold(true));
    for round in 1..=options.rounds {
        for (&(index, setting), samples) in plan.iter().zip(&mut samples) {
            let peer = &peers[index];
            let name = format!("{} of {}", setting.workload.as_str(), peer.name);
            bar.set_message(format!("round {round}: {name}"));
            peer.hold(false);
            let measured = if setting.workload.fills() {
                // The one that runs stands still meanwhile.
                peer.hold(true);
                Peer::start(peer.name).and_then(|fresh| measure(&fresh, setting, options))
            } else {
                measure(peer, setting, options)
            };
            match measured {
                Ok(sample) => samples.push(sample),
                Err(why) => outcome.failures.push(format!("{name}: {why}")),
            }
            peer.hold(true);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for ((index, setting), samples) in plan.into_iter().zip(samples) {
        if !samples.is_empty() {
            outcome.rows.push(Row::new(&peers[index], setting, samples));
        }
    }
    outcome.rows.sort_by_key(|row| {
        let setting = row.setting;
        let load = match setting.workload {
            // How many wait differs between peers there.
            Workload::Expiry => 0,
            _ => setting.contenders.max(setting.pipeline),
        };
        (setting.workload, load, row.peer, setting.waiting)
    });
    outcome
}

impl Row {
    fn new(peer: &Peer, setting: Setting, samples: Vec<Sample>) -> Row {
        let mut row = Row {
            peer: peer.name,
            version: peer.version.clone(),
            setting,
            median: Figures::new(),
            least: Figures::new(),
            most: Figures::new(),
            rounds: samples.len(),
            latency: histogram(),
            bounded_by: None,
        };
        let names: Vec<&'static str> = samples
            .iter()
            .flat_map(|sample| sample.figures.keys().copied())
            .collect();
        for name in names {
            let values = samples
                .iter()
                .filter_map(|sample| sample.figures.get(name).copied());
            let mut values: Vec<f64> = values.collect();
            values.sort_by(f64::total_cmp);
            row.median.insert(name, median(&values));
            row.least.insert(name, values[0]);
            row.most.insert(name, values[values.len() - 1]);
        }
        for sample in samples {
            row.latency.add(&sample.latency).expect("the same bounds");
            row.bounded_by = sample.bounded_by.or(row.bounded_by);
        }
        row
    }
}

impl Row {
    /// Whether the two differ only in how a contender waits.
    pub(crate) fn is_rival_of(&self, other: &Row) -> bool {
        let same_but_waiting = Setting {
            waiting: other.setting.waiting,
            ..self.setting
        };
        self.peer == other.peer && same_but_waiting == other.setting
    }

    /// How often the locks went round.
    pub(crate) fn cycles_per_s(&self) -> f64 {
        self.median.get("cycles_per_s").copied().unwrap_or_default()
    }
}

/// The middle of sorted values; the mean of the two in the middle where there is no single one.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

/// A bar on a terminal, nothing elsewhere.
fn progress_bar(steps: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {elapsed_precise}  {msg}");
    ProgressBar::new(steps).with_style(style.expect("the template is constant and valid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(median(&[1.0]), 1.0);
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }
}
