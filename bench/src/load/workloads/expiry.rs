//! What happens when very many leases run out within ten seconds?
//!
//! All keys are taken, with leases that end within `--spread` of each other and no earlier than the
//! last key is taken. Some of the keys have a waiter. Latency is the lag: from the end of such a
//! lease to the grant of its waiter. A lease's end is counted from when its request was sent, so
//! the lag includes the way to the server and back. Meanwhile a probe takes and gives back other
//! keys at a steady rate, and its latency then is compared with its latency before, when everything
//! is held and nothing runs out.
//!
//! The holders read what they are told, as real ones do: a server that says whose lease has ended
//! has a lot to say. Where a peer has no queue, waiters try again after a pause, and there are
//! fewer of them. Leaves out: what happens when the locks are renewed instead.

use super::fill::fill;
use super::measurement::Measurement;
use super::renew::{PIPELINE, SESSIONS};
use super::workload::Waiting;
use crate::load::generator::{Generator, Port, Script};
use crate::load::pace::Pace;
use crate::load::sample::{Figures, LATENCY, Meter, Sample, add_quantiles, histogram};
use crate::load::speaker::{Answer, Ask, Speaker};
use bench::keys::{Random, key_bytes};
use hdrhistogram::Histogram;
use std::time::Duration;

/// How long the probe is watched before anything runs out, and how long nothing happens after that,
/// as shares of the spread.
const IDLE_SHARE: f64 = 0.3;
const MARGIN_SHARE: f64 = 0.3;

/// How much longer than planned the locks may take to be taken.
const FILL_EXTRA_NS: u64 = 500_000_000;

/// Cycles a second of the probe: enough for a p99 and no load to speak of.
const PROBES_PER_S: f64 = 500.0;

/// How long after the last lease's end waiters may still be granted.
const LATE: Duration = Duration::from_secs(60);

/// A key with a waiter.
#[derive(Clone, Copy)]
struct Awaited {
    number: u64,
    /// When its lease ends, on the generator's clock.
    ends: u64,
}

/// Numbers of keys that have nothing to do with the ones that run out.
const PROBE_KEYS: u64 = 1 << 40;
const TRIAL_KEYS: u64 = 1 << 41;

struct Burst {
    awaited: Vec<Awaited>,
    retry_ns: Option<u64>,
    wait_ms: u32,
    ttl_ms: u32,
    random: Random,
    lags: Histogram<u64>,
    missing: u32,
    probe_pace: Pace,
    probe_number: u64,
    probe_since: u64,
    probe: Histogram<u64>,
    errors: u64,
    is_over: bool,
}

/// So much longer than the first hundredth of the keys may each of the others take: tables grow
/// meanwhile.
const FILL_SLOWER: f64 = 2.5;

/// Links of the holders, of the waiters, and the probe's own.
const LINKS: u32 = 2 * SESSIONS + 1;
const PROBE_LANE: u32 = LINKS - 1;

fn lane_of_holder(index: u32) -> u32 {
    index / SESSIONS * LINKS + index % SESSIONS
}

fn lane_of_waiter(index: u32) -> u32 {
    lane_of_holder(index) + SESSIONS
}

fn waiter_of_lane(lane: u32) -> usize {
    (lane / LINKS * SESSIONS + lane % LINKS - SESSIONS) as usize
}

impl Burst {
    fn wait<S: Speaker>(&self, lane: u32, port: &mut Port<'_, S>) {
        let awaited = self.awaited[waiter_of_lane(lane)];
        let ask = Ask {
            key: key_bytes(awaited.number),
            ttl_ms: self.ttl_ms,
            wait_ms: self.wait_ms,
        };
        port.acquire(lane, &ask);
    }

    fn probe_next<S: Speaker>(&mut self, now: u64, port: &mut Port<'_, S>) {
        let at = self.probe_pace.next(now);
        self.probe_since = at;
        port.later(PROBE_LANE, at.max(now));
    }
}

impl<S: Speaker> Script<S> for Burst {
    fn due(&mut self, lane: u32, _: u64, port: &mut Port<'_, S>) {
        if lane != PROBE_LANE {
            return self.wait(lane, port);
        }
        self.probe_number += 1;
        let ask = Ask {
            key: key_bytes(PROBE_KEYS + self.probe_number),
            ttl_ms: self.ttl_ms,
            wait_ms: 0,
        };
        port.acquire(lane, &ask);
    }

    fn answer(&mut self, answer: Answer, now: u64, port: &mut Port<'_, S>) {
        match answer {
            Answer::Granted { lane, fence } if lane == PROBE_LANE => {
                let since = self.probe_since;
                self.probe.saturating_record(now.saturating_sub(since));
                port.release(lane, &key_bytes(PROBE_KEYS + self.probe_number), fence);
            }
            Answer::Granted { lane, fence } => {
                let awaited = self.awaited[waiter_of_lane(lane)];
                self.lags
                    .saturating_record(now.saturating_sub(awaited.ends));
                self.missing -= 1;
                self.is_over = self.missing == 0;
                port.release(lane, &key_bytes(awaited.number), fence);
            }
            Answer::Held { lane } if lane != PROBE_LANE => {
                let retry_ns = self.retry_ns.unwrap_or(1_000_000);
                port.later(lane, now + retry_ns / 2 + self.random.below(retry_ns));
            }
            Answer::Released { lane } if lane == PROBE_LANE => self.probe_next(now, port),
            Answer::Released { .. } | Answer::Renewed { .. } | Answer::Freed => {}
            Answer::Held { lane }
            | Answer::NotHeld { lane }
            | Answer::TimedOut { lane }
            | Answer::Failed { lane } => {
                self.errors += 1;
                if lane == PROBE_LANE {
                    self.probe_next(now, port);
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        self.is_over
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
    let rows = PIPELINE.max(setting.contenders.div_ceil(SESSIONS));
    let links = LINKS as usize;
    let mut generator = Generator::connect(addresses, links, rows * LINKS, speaker)
        .map_err(|error| format!("connecting: {error}"))?;
    let holders: Vec<u32> = (0..SESSIONS * PIPELINE).map(lane_of_holder).collect();
    let waiters = u64::from(setting.contenders);
    let keys = setting.keys.max(2 * waiters);
    let before = peer.usage();

    // How long will it take? A hundredth of the keys tells; they are gone at once.
    let trial = (keys / 100).max(1_000);
    let begun = generator.now();
    fill(
        &mut generator,
        &holders,
        TRIAL_KEYS..TRIAL_KEYS + trial,
        |_, _| 1,
    )?;
    let trial_ns = generator.now() - begun;
    let fill_ns = (trial_ns as f64 * keys as f64 / trial as f64 * FILL_SLOWER) as u64;
    let spread_ns = options.spread.as_nanos() as u64;
    let idle_ns = (spread_ns as f64 * IDLE_SHARE) as u64;
    let margin_ns = (spread_ns as f64 * MARGIN_SHARE) as u64 + FILL_EXTRA_NS;
    let first_end = generator.now() + fill_ns + idle_ns + margin_ns;

    let mut random = Random::new(options.seed);
    let begun = generator.now();
    fill(&mut generator, &holders, waiters..keys, |_, now| {
        let ends = first_end + random.below(spread_ns);
        (ends.saturating_sub(now) / 1_000_000).max(1) as u32
    })?;
    let fill_s = (generator.now() - begun) as f64 / 1e9;
    let mut figures = Figures::new();
    figures.insert("fill_per_s", (keys - waiters) as f64 / fill_s);
    let filled = peer.usage();
    if let (Some(before), Some(filled)) = (before, filled) {
        let grown = filled.resident_bytes.saturating_sub(before.resident_bytes);
        figures.insert("bytes_per_lock", grown as f64 / keys as f64);
    }

    // The keys with waiters, one request at a time: their ends must be known well.
    let mut awaited = Vec::with_capacity(waiters as usize);
    let mut random = Random::new(options.seed ^ 1);
    fill(&mut generator, &holders[..1], 0..waiters, |number, now| {
        let at = first_end + random.below(spread_ns);
        let ttl_ms = (at.saturating_sub(now) / 1_000_000).max(1);
        let ends = now + ttl_ms * 1_000_000;
        awaited.push(Awaited { number, ends });
        ttl_ms as u32
    })?;
    let start = generator.now();
    let mut script = Burst {
        retry_ns: match setting.waiting {
            Waiting::Retry { ms } => Some(ms * 1_000_000),
            Waiting::InLine | Waiting::Listen => None,
        },
        wait_ms: match setting.waiting {
            Waiting::InLine => 600_000,
            Waiting::Retry { .. } | Waiting::Listen => 0,
        },
        ttl_ms: options.ttl_ms(),
        random: Random::new(options.seed),
        lags: histogram(),
        missing: setting.contenders,
        probe_pace: Pace::new(Some(PROBES_PER_S), start),
        probe_number: 0,
        probe_since: start,
        probe: histogram(),
        errors: 0,
        is_over: false,
        awaited,
    };
    for index in 0..setting.contenders {
        generator.later(lane_of_waiter(index), start);
    }
    generator.later(PROBE_LANE, start);
    generator.run(&mut script, start + idle_ns)?;
    let is_late = generator.now() >= first_end;
    let idle = std::mem::replace(&mut script.probe, histogram());

    generator.run(&mut script, first_end)?;
    script.probe = histogram();
    let meter = Meter::start(peer);
    generator.run(&mut script, first_end + spread_ns + LATE.as_nanos() as u64)?;
    meter.stop(peer, keys, 0, &mut figures);
    figures.remove("cycles_per_s");
    // Then the lag says more about us than about the peer. It is told, and no reason to fail: the
    // machine was busy.
    figures.insert("taken_late", f64::from(u8::from(is_late)));
    if script.missing > 0 {
        return Err(format!(
            "{} of {waiters} waiters for an expired lock were not granted within {} s",
            script.missing,
            LATE.as_secs()
        ));
    }
    add_quantiles(&mut figures, &script.lags, LATENCY);
    let names = [
        "probe_p50_us",
        "probe_p90_us",
        "probe_p99_us",
        "probe_p999_us",
        "probe_max_us",
    ];
    add_quantiles(&mut figures, &script.probe, names);
    let p99 = |latency: &Histogram<u64>| latency.value_at_quantile(0.99) as f64 / 1_000.0;
    figures.insert("probe_idle_p99_us", p99(&idle));
    figures.insert("probe_p99_over_idle", p99(&script.probe) / p99(&idle));
    figures.insert("errors", script.errors as f64);
    if let Some(filled) = filled {
        figures.insert("rss_bytes", filled.resident_bytes as f64);
    }
    Ok(Sample {
        figures,
        latency: script.lags,
        bounded_by: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_waiters_and_probe_have_links_of_their_own() {
        for index in 0..1_000 {
            let (holder, waiter) = (lane_of_holder(index), lane_of_waiter(index));
            assert!(holder % LINKS < SESSIONS);
            assert!((SESSIONS..2 * SESSIONS).contains(&(waiter % LINKS)));
            assert_eq!(waiter_of_lane(waiter), index as usize);
        }
        assert_eq!(PROBE_LANE % LINKS, 2 * SESSIONS);
    }
}
