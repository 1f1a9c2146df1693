//! How fast are uncontended locks?
//!
//! Every lane takes a random key out of many and gives it back, over and over. The keys are split
//! among the lanes, so no two ever want the same one and none is refused. An operation is an
//! acquire or a release; latency is that of either, from when it was sent (in an open loop the
//! acquire's counts from when it should have been).
//!
//! Leaves out: contention, expiry, and the work of a client library.

use super::measurement::{Measurement, drained};
use super::workload::Setting;
use crate::load::generator::{Generator, Port, Script};
use crate::load::options::Options;
use crate::load::pace::Pace;
use crate::load::sample::{Figures, LATENCY, Meter, Sample, add_quantiles, histogram};
use crate::load::speaker::{Answer, Ask, Speaker};
use bench::keys::{Random, key_bytes};
use hdrhistogram::Histogram;

/// One lane's state.
#[derive(Clone, Copy, Default)]
struct Lane {
    key: [u8; 16],
    /// When what is under way was sent, or should have been.
    since: u64,
    is_starting: bool,
}

pub(super) struct ManyKeys {
    lanes: Vec<Lane>,
    keys_per_lane: u64,
    ttl_ms: u32,
    random: Random,
    pace: Pace,
    /// What ends before this is warm-up.
    from: u64,
    is_stopping: bool,
    under_way: u32,
    pub(super) acquires: Histogram<u64>,
    pub(super) releases: Histogram<u64>,
    errors: u64,
}

impl ManyKeys {
    pub(super) fn new(
        lane_count: u32,
        keys: u64,
        rate: Option<f64>,
        options: &Options,
        start: u64,
    ) -> Self {
        ManyKeys {
            lanes: vec![Lane::default(); lane_count as usize],
            keys_per_lane: (keys / u64::from(lane_count)).max(1),
            ttl_ms: options.ttl_ms(),
            random: Random::new(options.seed),
            // A cycle is two operations.
            pace: Pace::new(rate.map(|ops| ops / 2.0), start),
            from: u64::MAX,
            is_stopping: false,
            under_way: 0,
            acquires: histogram(),
            releases: histogram(),
            errors: 0,
        }
    }

    /// Everything that ends from now on counts.
    pub(super) fn measure_from(&mut self, now: u64) {
        self.from = now;
    }

    /// Starts no more cycles.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
        self.from = u64::MAX;
    }

    #[inline]
    fn next_cycle<S: Speaker>(&mut self, lane: u32, now: u64, port: &mut Port<'_, S>) {
        if self.is_stopping {
            return;
        }
        let at = self.pace.next(now);
        let state = &mut self.lanes[lane as usize];
        state.since = at;
        if at > now {
            state.is_starting = true;
            port.later(lane, at);
        } else {
            self.acquire(lane, port);
        }
    }

    #[inline]
    fn acquire<S: Speaker>(&mut self, lane: u32, port: &mut Port<'_, S>) {
        let number =
            self.random.below(self.keys_per_lane) * self.lanes.len() as u64 + u64::from(lane);
        let state = &mut self.lanes[lane as usize];
        state.key = key_bytes(number);
        state.is_starting = false;
        self.under_way += 1;
        port.acquire(
            lane,
            &Ask {
                key: state.key,
                ttl_ms: self.ttl_ms,
                wait_ms: 0,
            },
        );
    }
}

impl<S: Speaker> Script<S> for ManyKeys {
    fn due(&mut self, lane: u32, now: u64, port: &mut Port<'_, S>) {
        if self.lanes[lane as usize].is_starting && !self.is_stopping {
            self.acquire(lane, port);
        } else {
            self.next_cycle(lane, now, port);
        }
    }

    #[inline]
    fn answer(&mut self, answer: Answer, now: u64, port: &mut Port<'_, S>) {
        let is_measured = now >= self.from;
        match answer {
            Answer::Granted { lane, fence } => {
                let state = &mut self.lanes[lane as usize];
                if is_measured {
                    self.acquires
                        .saturating_record(now.saturating_sub(state.since));
                }
                state.since = now;
                port.release(lane, &state.key, fence);
            }
            Answer::Released { lane } => {
                if is_measured {
                    let since = self.lanes[lane as usize].since;
                    self.releases.saturating_record(now.saturating_sub(since));
                }
                self.under_way -= 1;
                self.next_cycle(lane, now, port);
            }
            Answer::Held { lane }
            | Answer::NotHeld { lane }
            | Answer::TimedOut { lane }
            | Answer::Failed { lane } => {
                self.errors += u64::from(is_measured);
                self.under_way -= 1;
                self.next_cycle(lane, now, port);
            }
            Answer::Renewed { .. } | Answer::Freed => {}
        }
    }

    fn is_done(&self) -> bool {
        self.is_stopping && self.under_way == 0
    }
}

pub(super) fn run<S: Speaker>(
    measurement: &Measurement<'_>,
    speaker: impl FnMut() -> S,
) -> Result<Sample, String> {
    let Measurement {
        peer,
        options,
        setting,
        addresses,
    } = measurement;
    let Setting {
        pipeline,
        connections,
        keys,
        ..
    } = *setting;
    let lanes = connections * pipeline;
    let mut generator = Generator::connect(addresses, connections as usize, lanes, speaker)
        .map_err(|error| format!("connecting: {error}"))?;
    let start = generator.now();
    let mut script = ManyKeys::new(lanes, keys, options.rate, options, start);
    for lane in 0..lanes {
        generator.later(lane, start);
    }
    let from = start + options.warmup.as_nanos() as u64;
    generator.run(&mut script, from)?;
    script.measure_from(from);
    let meter = Meter::start(peer);
    let until = generator.now() + (options.seconds * 1e9) as u64;
    generator.run(&mut script, until)?;
    let mut figures = Figures::new();
    let (acquires, releases) = (script.acquires.len(), script.releases.len());
    meter.stop(peer, acquires + releases, releases, &mut figures);
    script.stop();
    drained(&mut generator, &mut script)?;

    let mut latency = script.acquires.clone();
    latency.add(&script.releases).expect("the same bounds");
    add_quantiles(&mut figures, &latency, LATENCY);
    figures.insert("errors", script.errors as f64);
    Ok(Sample {
        figures,
        latency,
        bounded_by: None,
    })
}
