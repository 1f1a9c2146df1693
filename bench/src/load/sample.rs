//! What one round of one workload on one peer gives: named figures, and a histogram.

use super::peers::Peer;
use super::peers::child::Usage;
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The longest latency that is told from longer ones.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// How a measurement fails whose peer broke its promise.
pub(crate) const NOT_SAFE: &str = "NOT SAFE";

/// Named numbers. The names are those of `--json`.
pub(crate) type Figures = BTreeMap<&'static str, f64>;

/// One round.
pub(crate) struct Sample {
    pub(crate) figures: Figures,
    /// Nanoseconds, of whatever the workload is about.
    pub(crate) latency: Histogram<u64>,
    /// What bounds the rate, where the workload can tell.
    pub(crate) bounded_by: Option<String>,
}

/// A histogram of nanoseconds, three digits exact.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are constant and valid")
}

/// Reads the quantiles of a histogram into figures, in microseconds. The names are those of
/// `names`, in order: p50, p90, p99, p99.9, max.
pub(crate) fn add_quantiles(
    figures: &mut Figures,
    latency: &Histogram<u64>,
    names: [&'static str; 5],
) {
    if latency.is_empty() {
        return;
    }
    for (name, quantile) in names.into_iter().zip([0.5, 0.9, 0.99, 0.999, 1.0]) {
        let ns = latency.value_at_quantile(quantile);
        figures.insert(name, ns as f64 / 1_000.0);
    }
}

/// The names of what every workload calls its latency.
pub(crate) const LATENCY: [&str; 5] = ["p50_us", "p90_us", "p99_us", "p999_us", "max_us"];

/// What each program used of the processors during a measurement.
pub(crate) struct Meter {
    peer: Option<Usage>,
    own: Duration,
    machine: Machine,
    begun: Instant,
}

impl Meter {
    /// Begins.
    pub(crate) fn start(peer: &Peer) -> Self {
        Meter {
            peer: peer.usage(),
            own: own_cpu(),
            machine: Machine::now(),
            begun: Instant::now(),
        }
    }

    /// Ends, after so many operations and cycles.
    pub(crate) fn stop(self, peer: &Peer, ops: u64, cycles: u64, figures: &mut Figures) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let own = (own_cpu() - self.own).as_secs_f64();
        let per_op = |cpu: f64| cpu * 1e6 / ops.max(1) as f64;
        figures.insert("seconds", seconds);
        figures.insert("ops", ops as f64);
        figures.insert("ops_per_s", ops as f64 / seconds);
        figures.insert("cycles_per_s", cycles as f64 / seconds);
        figures.insert("generator_cpu_us_per_op", per_op(own));
        figures.insert("generator_cpu_cores", own / seconds);
        if let (Some(before), Some(after)) = (self.peer, peer.usage()) {
            let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
            figures.insert("cpu_us_per_op", per_op(cpu));
            figures.insert("server_cpu_cores", cpu / seconds);
            figures.insert("rss_bytes", after.resident_bytes as f64);
            // What is left was used by other programs, and disturbed the measurement.
            let machine = Machine::now();
            let busy = (machine.busy - self.machine.busy) / seconds;
            let others = busy - (cpu + own) / seconds;
            figures.insert("others_cpu_cores", others.max(0.0));
            let stolen = (machine.stolen - self.machine.stolen) / seconds;
            figures.insert("stolen_cpu_cores", stolen);
        }
    }
}

/// Processor time of the whole machine so far, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Machine {
    busy: f64,
    /// Taken by the host for other machines.
    stolen: f64,
}

impl Machine {
    fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat");
        stat.ok()
            .and_then(|stat| Machine::read(&stat, rustix::param::clock_ticks_per_second()))
            .unwrap_or_default()
    }

    /// Reads the first line of /proc/stat.
    fn read(stat: &str, ticks_per_s: u64) -> Option<Self> {
        let fields = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = fields
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        let &[
            user,
            nice,
            system,
            _idle,
            _waiting,
            interrupts,
            soft_interrupts,
            stolen,
            ..,
        ] = &ticks[..]
        else {
            return None;
        };
        let seconds = |ticks: u64| ticks as f64 / ticks_per_s as f64;
        Some(Machine {
            busy: seconds(user + nice + system + interrupts + soft_interrupts),
            stolen: seconds(stolen),
        })
    }
}

/// Processor time of this process so far.
fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_microseconds_within_a_thousandth() {
        let mut latency = histogram();
        for us in 1..=1_000 {
            latency.record(us * 1_000).unwrap();
        }
        let mut figures = Figures::new();
        add_quantiles(&mut figures, &latency, LATENCY);
        for (name, expected) in LATENCY
            .into_iter()
            .zip([500.0, 900.0, 990.0, 999.0, 1000.0])
        {
            let off = (figures[name] - expected).abs() / expected;
            assert!(off < 0.002, "{name}: {}", figures[name]);
        }
    }

    #[test]
    fn the_machines_time_is_busy_or_stolen() {
        let stat = "cpu  100 20 30 9999 8888 4 6 50 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        let (busy, stolen) = (1.6, 0.5);
        assert_eq!(Machine::read(stat, 100), Some(Machine { busy, stolen }));
        assert_eq!(Machine::read("cpu  1 2 3", 100), None);
    }

    #[test]
    fn an_empty_histogram_has_no_quantiles() {
        let mut figures = Figures::new();
        add_quantiles(&mut figures, &histogram(), LATENCY);
        assert!(figures.is_empty());
    }

    #[test]
    fn what_is_longer_than_everything_counts_as_the_longest() {
        let mut latency = histogram();
        latency.saturating_record(u64::MAX);
        assert!(latency.max() >= LATENCY_NS_MAX);
    }
}
