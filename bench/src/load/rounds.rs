//! Rounds: everything is measured several times, in turns (A B A B ...), so that whatever else the
//! machine does hits all alike.

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
    /// The median over the rounds, of each figure but the [`SUMMED`] and the [`LARGEST`].
    pub(crate) median: Figures,
    /// The least and the most of each.
    pub(crate) least: Figures,
    pub(crate) most: Figures,
    pub(crate) rounds: usize,
    /// How many times as much Fencepost did in the same round, or used; the median over the rounds.
    /// Empty without Fencepost.
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
    let mut samples: Vec<Vec<(u32, Sample)>> = plan.iter().map(|_| Vec::new()).collect();
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
                Ok(sample) => samples.push((round, sample)),
                Err(why) => outcome.failures.push(format!("{name}: {why}")),
            }
            peer.hold(true);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
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

/// What is compared with Fencepost, and what the ratio is called.
const COMPARED: [(&str, &str); 5] = [
    ("ops_per_s", "fencepost_ops_ratio"),
    ("cycles_per_s", "fencepost_cycles_ratio"),
    ("cpu_us_per_op", "fencepost_cpu_ratio"),
    ("bytes_per_lock", "fencepost_bytes_ratio"),
    ("rss_bytes", "fencepost_rss_ratio"),
];

/// Compares every row with Fencepost's at the same load, round by round: what slowed one of them
/// down for a while most likely slowed its neighbour down too, so a ratio within a round says more
/// than a ratio of medians.
fn compare(rows: &mut [Row]) {
    let ours: Vec<(Setting, Vec<(u32, Figures)>)> = rows
        .iter()
        .filter(|row| row.peer == PeerName::Fencepost)
        .map(|row| (row.setting, row.by_round.clone()))
        .collect();
    for row in rows {
        let load = |setting: &Setting| match setting.workload {
            // How many wait differs between peers there.
            Workload::Expiry => (Workload::Expiry, 0, 0),
            workload => (workload, setting.pipeline, setting.contenders),
        };
        let Some((_, ours)) = ours.iter().find(|ours| load(&ours.0) == load(&row.setting)) else {
            continue;
        };
        for (figure, ratio) in COMPARED {
            let mut ratios: Vec<f64> = Vec::new();
            for (round, theirs) in &row.by_round {
                let ours = ours.iter().find(|ours| ours.0 == *round);
                let ours = ours.and_then(|(_, ours)| ours.get(figure));
                if let (Some(ours), Some(theirs)) = (ours, theirs.get(figure))
                    && *theirs > 0.0
                {
                    ratios.push(ours / theirs);
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
mod tests {
    use super::super::workloads::Waiting;
    use super::*;
    use std::time::Duration;

    fn row(peer: PeerName, rates: &[f64]) -> Row {
        let setting = Setting {
            workload: Workload::ManyKeys,
            connections: 50,
            pipeline: 16,
            contenders: 0,
            waiting: Waiting::InLine,
            work: Duration::ZERO,
            keys: 10,
        };
        let sample = |&rate| Sample {
            figures: Figures::from([("ops_per_s", rate)]),
            latency: histogram(),
            bounded_by: None,
        };
        let samples = (1..).zip(rates.iter().map(sample)).collect();
        Row::gather(peer, String::new(), setting, samples)
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The third round was slow for both.
        let mut rows = [
            row(PeerName::Fencepost, &[400.0, 410.0, 40.0]),
            row(PeerName::Redis, &[100.0, 100.0, 10.0]),
            row(PeerName::Echo, &[800.0, 820.0, 80.0]),
        ];
        compare(&mut rows);
        assert_eq!(rows[0].ratios["fencepost_ops_ratio"], 1.0);
        assert_eq!(rows[1].ratios["fencepost_ops_ratio"], 4.0);
        assert_eq!(rows[2].ratios["fencepost_ops_ratio"], 0.5);
        assert_eq!(rows[1].median["ops_per_s"], 100.0);
        assert_eq!(rows[1].least["ops_per_s"], 10.0);
    }

    #[test]
    fn without_fencepost_nothing_is_compared() {
        let mut rows = [row(PeerName::Redis, &[1.0])];
        compare(&mut rows);
        assert!(rows[0].ratios.is_empty());
    }

    #[test]
    fn what_should_not_happen_is_not_hidden_by_a_median() {
        let rounds = [0.0, 0.0, 0.0, 2.0, 36.0];
        assert_eq!(together("inversions", &rounds), 38.0);
        assert_eq!(together("errors", &rounds), 38.0);
        assert_eq!(together("head_start_max_us", &rounds), 36.0);
        assert_eq!(together("ops_per_s", &rounds), 0.0);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(median(&[1.0]), 1.0);
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }
}
