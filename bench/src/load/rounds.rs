//! Rounds: everything is measured several times, in turns (A B A B ...), so that whatever else the
//! machine does hits all alike.

use super::options::Options;
use super::peers::{Peer, PeerName};
use super::sample::{Figures, NOT_SAFE, Sample, histogram};
use super::workloads::{Setting, Workload, measure, settings};
use crate::progress::Progress;
use hdrhistogram::Histogram;

/// One peer at one setting, all rounds together.
pub(crate) struct Row {
    pub(crate) peer: PeerName,
    pub(crate) version: String,
    pub(crate) setting: Setting,
    /// The median over the rounds, of each figure but the [`SUMMED`] and the [`LARGEST`].
    pub(crate) median: Figures,
    /// The least and the most of each.
    pub(crate) least: Figures,
    pub(crate) most: Figures,
    pub(crate) rounds: usize,
    /// How many times as much Fencepost did in the same round, or used, and how many times as much
    /// as a cluster of etcd this peer did; medians over the rounds. Empty without the two.
    pub(crate) ratios: Figures,
    /// By round, for the ratios.
    by_round: Vec<(u32, Figures)>,
    /// Of all rounds.
    pub(crate) latency: Histogram<u64>,
    pub(crate) bounded_by: Option<String>,
}

/// Figures that count what should not happen. They are the sum of all rounds: a median would hide
/// what happens in a few.
const SUMMED: [&str; 6] = [
    "inversions",
    "overtaken",
    "reordered_on_one_connection",
    "errors",
    "timeouts",
    "outlived_leases",
];

/// Figures of which the largest of all rounds is told, for the same reason.
const LARGEST: [&str; 1] = ["head_start_max_us"];

/// The share of requests that may come to nothing before a cluster counts as failed.
const ERRORS_SHARE_MAX: f64 = 0.01;

/// What came of a run.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) rows: Vec<Row>,
    pub(crate) failures: Vec<Failure>,
}

/// A measurement that came to nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) peer: PeerName,
    pub(crate) setting: Setting,
    pub(crate) why: String,
}

impl Failure {
    /// Whether the run goes for nothing as well. A peer beside ours may fail, since that is a
    /// result: etcd answers no pipelines of 128. But not with a lock that had two holders, and not
    /// in a smoke test, which is to show that everything works.
    pub(crate) fn fails_run(&self, measured: &[PeerName], options: &Options) -> bool {
        let is_about_us = measured.iter().any(|peer| peer.is_ours());
        options.smoke || self.peer.is_ours() || !is_about_us || self.why.contains(NOT_SAFE)
    }
}

/// What failed, each peer and reason once, with all settings at which it did.
pub(crate) fn told_once(failures: &[Failure]) -> Vec<String> {
    let mut told: Vec<(&Failure, Vec<String>)> = Vec::new();
    for failure in failures {
        let load = failure.setting.load();
        let load = load.trim_start_matches([',', ' ']).to_owned();
        let is_same = |other: &Failure| {
            let workloads = (other.setting.workload, failure.setting.workload);
            other.peer == failure.peer && workloads.0 == workloads.1 && other.why == failure.why
        };
        match told.iter_mut().find(|(other, _)| is_same(other)) {
            Some((_, loads)) if loads.contains(&load) => {}
            Some((_, loads)) => loads.push(load),
            None => told.push((failure, vec![load])),
        }
    }
    let sentence = |(failure, loads): (&Failure, Vec<String>)| {
        let (workload, peer) = (failure.setting.workload.as_str(), failure.peer);
        let at = loads.join("; ");
        let at = if at.is_empty() {
            at
        } else {
            format!(" at {at}")
        };
        format!("{workload} of {peer}{at}: {}", failure.why)
    };
    told.into_iter().map(sentence).collect()
}

/// Measures the workloads on the peers.
pub(crate) fn run(workloads: &[Workload], peers: &mut [Peer], options: &Options) -> Outcome {
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
    let progress = Progress::new(plan.len() as u64 * u64::from(options.rounds));
    let mut samples: Vec<Vec<(u32, Sample)>> = plan.iter().map(|_| Vec::new()).collect();
    let mut outcome = Outcome::default();
    peers.iter().for_each(|peer| peer.hold(true));
    for round in 1..=options.rounds {
        for (&(index, setting), samples) in plan.iter().zip(&mut samples) {
            let peer = &mut peers[index];
            let has_failed =
                |failure: &Failure| (failure.peer, failure.setting) == (peer.name, setting);
            if outcome.failures.iter().any(has_failed) {
                // It would most likely fail again, and that takes long.
                progress.step();
                continue;
            }
            let (workload, load) = (setting.workload.as_str(), setting.load());
            progress.begin(format!("round {round}: {workload} of {}{load}", peer.name));
            peer.hold(false);
            let measured = if setting.workload.fills() {
                // The one that runs stands still meanwhile.
                peer.hold(true);
                peer.start_another()
                    .and_then(|fresh| measure(&fresh, setting, options))
            } else {
                measure(peer, setting, options)
            };
            let measured = measured.and_then(|sample| match options.cluster {
                Some(_) => answered(sample),
                None => Ok(sample),
            });
            match measured {
                Ok(sample) => samples.push((round, sample)),
                Err(why) => {
                    let (peer, setting) = (peer.name, setting);
                    outcome.failures.push(Failure { peer, setting, why });
                    start_afresh(&mut peers[index]);
                }
            }
            peers[index].hold(true);
            progress.step();
        }
    }
    drop(progress);
    for ((index, setting), samples) in plan.into_iter().zip(samples) {
        if !samples.is_empty() {
            let peer = &peers[index];
            let version = peer.version.clone();
            let row = Row::gather(peer.name, version, setting, samples);
            outcome.rows.push(row);
        }
    }
    compare(&mut outcome.rows);
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

/// Refuses a measurement in which too many requests came to nothing: its rate says nothing, and a
/// ratio to it would mislead.
fn answered(sample: Sample) -> Result<Sample, String> {
    let figure = |name: &str| sample.figures.get(name).copied().unwrap_or_default();
    let (errors, ops) = (figure("errors"), figure("ops"));
    if errors > (ops + errors) * ERRORS_SHARE_MAX {
        return Err(format!(
            "{errors:.0} requests came to nothing, {ops:.0} were answered"
        ));
    }
    Ok(sample)
}

/// A peer that failed may be busy with what it was asked for, and spoil what is measured next: a
/// fresh one takes its place.
fn start_afresh(peer: &mut Peer) {
    // A server that was running before the bench is not the bench's to start.
    if peer.name == PeerName::Server {
        return;
    }
    match peer.start_another() {
        Ok(fresh) => *peer = fresh,
        // The next measurement says what is wrong with the old one.
        Err(why) => eprintln!("bench: no fresh {}: {why}", peer.name),
    }
}

impl Row {
    /// Puts the rounds together.
    fn gather(
        peer: PeerName,
        version: String,
        setting: Setting,
        samples: Vec<(u32, Sample)>,
    ) -> Row {
        let mut row = Row {
            peer,
            version,
            setting,
            median: Figures::new(),
            least: Figures::new(),
            most: Figures::new(),
            rounds: samples.len(),
            ratios: Figures::new(),
            by_round: Vec::new(),
            latency: histogram(),
            bounded_by: None,
        };
        let names: Vec<&'static str> = samples
            .iter()
            .flat_map(|(_, sample)| sample.figures.keys().copied())
            .collect();
        for name in names {
            let values = samples
                .iter()
                .filter_map(|(_, sample)| sample.figures.get(name).copied());
            let mut values: Vec<f64> = values.collect();
            values.sort_by(f64::total_cmp);
            row.median.insert(name, together(name, &values));
            row.least.insert(name, values[0]);
            row.most.insert(name, values[values.len() - 1]);
        }
        for (round, sample) in samples {
            row.latency.add(&sample.latency).expect("the same bounds");
            row.bounded_by = sample.bounded_by.or(row.bounded_by);
            row.by_round.push((round, sample.figures));
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

/// What is compared with a peer, and how.
struct Comparison {
    with: PeerName,
    /// Whether the ratio is the other peer's figure over the row's, instead of the other way round.
    is_inverse: bool,
    /// Figures, and what their ratios are called.
    ratios: &'static [(&'static str, &'static str)],
}

const COMPARISONS: [Comparison; 2] = [
    Comparison {
        with: PeerName::Fencepost,
        is_inverse: true,
        ratios: &[
            ("ops_per_s", "fencepost_ops_ratio"),
            ("cycles_per_s", "fencepost_cycles_ratio"),
            ("cpu_us_per_op", "fencepost_cpu_ratio"),
            ("bytes_per_lock", "fencepost_bytes_ratio"),
            ("rss_bytes", "fencepost_rss_ratio"),
        ],
    },
    Comparison {
        with: PeerName::EtcdCluster,
        is_inverse: false,
        ratios: &[
            ("ops_per_s", "etcd_cluster_ops_ratio"),
            ("cycles_per_s", "etcd_cluster_cycles_ratio"),
            ("p50_us", "etcd_cluster_p50_ratio"),
            ("cpu_us_per_op", "etcd_cluster_cpu_ratio"),
        ],
    },
];

fn compare(rows: &mut [Row]) {
    for comparison in &COMPARISONS {
        compare_with(rows, comparison);
    }
}

/// Compares every row with a peer's at the same load, round by round: what slowed one of them down
/// for a while most likely slowed its neighbour down too, so a ratio within a round says more than
/// a ratio of medians.
fn compare_with(rows: &mut [Row], comparison: &Comparison) {
    let base: Vec<(Setting, Vec<(u32, Figures)>)> = rows
        .iter()
        .filter(|row| row.peer == comparison.with)
        .map(|row| (row.setting, row.by_round.clone()))
        .collect();
    for row in rows {
        let load = |setting: &Setting| match setting.workload {
            // How many wait differs between peers there.
            Workload::Expiry => (Workload::Expiry, 0, 0),
            workload => (workload, setting.pipeline, setting.contenders),
        };
        let Some((_, base)) = base.iter().find(|base| load(&base.0) == load(&row.setting)) else {
            continue;
        };
        for &(figure, ratio) in comparison.ratios {
            let mut ratios: Vec<f64> = Vec::new();
            for (round, own) in &row.by_round {
                let base = base.iter().find(|base| base.0 == *round);
                let base = base.and_then(|(_, base)| base.get(figure));
                let (Some(&base), Some(&own)) = (base, own.get(figure)) else {
                    continue;
                };
                let (above, below) = match comparison.is_inverse {
                    true => (base, own),
                    false => (own, base),
                };
                if below > 0.0 {
                    ratios.push(above / below);
                }
            }
            if !ratios.is_empty() {
                ratios.sort_by(f64::total_cmp);
                row.ratios.insert(ratio, median(&ratios));
            }
        }
    }
}

/// One value for the sorted values of all rounds.
fn together(name: &str, sorted: &[f64]) -> f64 {
    if SUMMED.contains(&name) {
        sorted.iter().sum()
    } else if LARGEST.contains(&name) {
        sorted[sorted.len() - 1]
    } else {
        median(sorted)
    }
}

/// The middle of sorted values; the mean of the two in the middle where there is no single one.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

#[cfg(test)]
impl Row {
    /// A row that was measured once.
    pub(crate) fn once(peer: PeerName, setting: Setting, figures: Figures) -> Row {
        let sample = Sample {
            figures,
            latency: histogram(),
            bounded_by: Some("sleep".to_owned()),
        };
        Row::gather(peer, "7.0.15".to_owned(), setting, vec![(1, sample)])
    }
}

#[cfg(test)]
mod tests;
