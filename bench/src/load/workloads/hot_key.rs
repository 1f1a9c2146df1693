//! How fast does one lock go from hand to hand, and which contenders get it?
//!
//! All lanes want the same key. Each asks, waits until it is granted, works for a while (or not at
//! all), gives the lock back and asks again. Latency is the wait, from the first asking to the
//! grant. Where a peer has no line to stand in, a lane that is refused tries again after a pause,
//! or when it hears of a release. Every grant passes the [`Checker`].
//!
//! The bound: one holder after another, so a lock whose holder must ask, work and give back, each
//! in its turn, makes at most 1 / (acquire + work + release) cycles a second. Acquire and release
//! are measured first, with one lane alone. A server that hands the lock on while the release is
//! answered can be faster than that.
//!
//! Leaves out: leases that run out, and contenders that die.

use super::bound::bounded_by;
use super::many_keys::ManyKeys;
use super::measurement::{Measurement, drained};
use super::workload::{Waiting, Workload};
use crate::load::checker::Checker;
use crate::load::fairness::Fairness;
use crate::load::generator::{Generator, Port, Script};
use crate::load::pace::Pace;
use crate::load::sample::{Figures, LATENCY, Meter, NOT_SAFE, Sample, add_quantiles, histogram};
use crate::load::speaker::{Answer, Ask, Speaker};
use bench::keys::{Random, key_bytes};
use hdrhistogram::Histogram;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a lane stands in line before it gives up: longer than any run.
const WAIT_MS: u32 = 600_000;

/// How long a listener for releases waits for one before it tries by itself: messages may be lost.
const LISTEN_NS: u64 = 100_000_000;

/// How long a lane alone is watched, for the bound.
const ALONE: Duration = Duration::from_millis(150);

/// How often that is done again while the lane has finished no cycle. On a busy machine one may
/// take longer: a WAIT of Redis that its replica misses is answered after a second.
const ALONE_TIMES_MAX: u32 = 40;

/// Figures of what is not the workload's main latency.
const WAIT: [&str; 5] = [
    "wait_p50_us",
    "wait_p90_us",
    "wait_p99_us",
    "wait_p999_us",
    "wait_max_us",
];
const HANDOFF: [&str; 5] = [
    "handoff_p50_us",
    "handoff_p90_us",
    "handoff_p99_us",
    "handoff_p999_us",
    "handoff_max_us",
];

/// What a lane does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing, or waits for its place in the schedule.
    Idle,
    /// Has asked.
    Asking,
    /// Was refused, and will ask again.
    Pausing,
    /// Holds the lock.
    Working,
    /// Has given it back.
    Releasing,
}

#[derive(Clone, Copy)]
struct Lane {
    state: State,
    fence: u64,
    /// Since when it wants the lock.
    since: u64,
    /// Its number in the order of arrival.
    arrival: u64,
    /// When it may act next, so that timers of the past are told apart.
    wake_at: u64,
}

struct HotKey {
    lanes: Vec<Lane>,
    ask: Ask,
    work_ns: u64,
    waiting: Waiting,
    random: Random,
    pace: Pace,
    checker: Checker,
    fairness: Fairness,
    /// Lanes that listen, by link.
    listening: Vec<VecDeque<u32>>,
    /// When the last release was sent, and by which contender.
    freed: Option<(u64, u32)>,
    waits: Histogram<u64>,
    handoffs: Histogram<u64>,
    is_measuring: bool,
    is_stopping: bool,
    busy: u32,
    attempts: u64,
    cycles: u64,
    errors: u64,
    timeouts: u64,
}

impl HotKey {
    fn new(measurement: &Measurement<'_>, links: usize, start: u64) -> Self {
        let Measurement {
            peer,
            options,
            setting,
            ..
        } = measurement;
        let lane = Lane {
            state: State::Idle,
            fence: 0,
            since: 0,
            arrival: 0,
            wake_at: start,
        };
        HotKey {
            lanes: vec![lane; setting.contenders as usize],
            ask: Ask {
                key: key_bytes(options.seed.wrapping_mul(0x1_0000) ^ u64::MAX),
                ttl_ms: options.ttl_ms(),
                wait_ms: if setting.waiting == Waiting::InLine {
                    WAIT_MS
                } else {
                    0
                },
            },
            work_ns: setting.work.as_nanos() as u64,
            waiting: setting.waiting,
            random: Random::new(options.seed),
            // A cycle is two operations.
            pace: Pace::new(options.rate.map(|ops| ops / 2.0), start),
            checker: Checker::new(peer.name.has_fence(), options.ttl.as_nanos() as u64),
            fairness: Fairness::new(setting.contenders),
            listening: vec![VecDeque::new(); links],
            freed: None,
            waits: histogram(),
            handoffs: histogram(),
            is_measuring: false,
            is_stopping: false,
            busy: 0,
            attempts: 0,
            cycles: 0,
            errors: 0,
            timeouts: 0,
        }
    }

    /// The warm-up is over: counts afresh.
    fn measure(&mut self) {
        self.fairness.reset();
        (self.attempts, self.cycles) = (0, 0);
        (self.errors, self.timeouts) = (0, 0);
        self.is_measuring = true;
    }

    fn next_cycle<S: Speaker>(&mut self, lane: u32, now: u64, port: &mut Port<'_, S>) {
        let state = &mut self.lanes[lane as usize];
        state.state = State::Idle;
        if self.is_stopping {
            return;
        }
        let at = self.pace.next(now);
        state.since = at;
        if at > now {
            state.wake_at = at;
            port.later(lane, at);
        } else {
            self.arrive(lane, now, port);
        }
    }

    fn arrive<S: Speaker>(&mut self, lane: u32, now: u64, port: &mut Port<'_, S>) {
        self.lanes[lane as usize].arrival = self.fairness.arrived(port.link, now);
        self.busy += 1;
        self.ask(lane, port);
    }

    fn ask<S: Speaker>(&mut self, lane: u32, port: &mut Port<'_, S>) {
        self.lanes[lane as usize].state = State::Asking;
        self.attempts += 1;
        port.acquire(lane, &self.ask);
    }

    fn release<S: Speaker>(&mut self, lane: u32, now: u64, port: &mut Port<'_, S>) {
        let state = &mut self.lanes[lane as usize];
        state.state = State::Releasing;
        self.checker.releasing(lane);
        self.freed = Some((now, lane));
        port.release(lane, &self.ask.key, state.fence);
    }

    fn refused<S: Speaker>(&mut self, lane: u32, now: u64, port: &mut Port<'_, S>) {
        let state = &mut self.lanes[lane as usize];
        if self.is_stopping {
            return self.give_up(lane);
        }
        state.state = State::Pausing;
        let pause_ns = match self.waiting {
            Waiting::InLine => 1_000_000,
            Waiting::Listen => {
                self.listening[port.link].push_back(lane);
                LISTEN_NS
            }
            // Between a half and one and a half times the mean, so that they do not all come back
            // together.
            Waiting::Retry { ms } => {
                let mean_ns = ms * 1_000_000;
                mean_ns / 2 + self.random.below(mean_ns)
            }
        };
        state.wake_at = now + pause_ns;
        port.later(lane, now + pause_ns);
    }

    fn give_up(&mut self, lane: u32) {
        let state = &mut self.lanes[lane as usize];
        state.state = State::Idle;
        self.fairness.gave_up(state.arrival);
        self.busy -= 1;
    }
}

impl<S: Speaker> Script<S> for HotKey {
    fn due(&mut self, lane: u32, now: u64, port: &mut Port<'_, S>) {
        let state = self.lanes[lane as usize];
        if now < state.wake_at {
            return;
        }
        match state.state {
            State::Working => self.release(lane, now, port),
            State::Pausing if self.is_stopping => self.give_up(lane),
            State::Pausing => self.ask(lane, port),
            State::Idle if self.is_stopping => {}
            State::Idle if state.since > 0 => self.arrive(lane, now, port),
            State::Idle => self.next_cycle(lane, now, port),
            State::Asking | State::Releasing => {}
        }
    }

    fn answer(&mut self, answer: Answer, now: u64, port: &mut Port<'_, S>) {
        match answer {
            Answer::Granted { lane, fence } => {
                self.checker.granted(lane, fence, now);
                let state = &mut self.lanes[lane as usize];
                state.fence = fence;
                self.fairness.granted(lane, state.arrival);
                if self.is_measuring {
                    self.waits
                        .saturating_record(now.saturating_sub(state.since));
                    // A contender that takes it back at once hands nothing on.
                    if let Some((freed_at, freed_by)) = self.freed.take()
                        && freed_by != lane
                    {
                        self.handoffs.saturating_record(now - freed_at);
                    }
                }
                if self.work_ns == 0 || self.is_stopping {
                    self.release(lane, now, port);
                } else {
                    state.state = State::Working;
                    state.wake_at = now + self.work_ns;
                    port.later(lane, now + self.work_ns);
                }
            }
            Answer::Released { lane } => {
                self.cycles += 1;
                self.busy -= 1;
                self.next_cycle(lane, now, port);
            }
            Answer::Held { lane } => self.refused(lane, now, port),
            Answer::TimedOut { lane } => {
                self.timeouts += 1;
                self.refused(lane, now, port);
            }
            Answer::NotHeld { lane } => {
                self.errors += 1;
                self.busy -= 1;
                self.next_cycle(lane, now, port);
            }
            Answer::Failed { lane } => {
                self.errors += 1;
                match self.lanes[lane as usize].state {
                    State::Asking => self.refused(lane, now, port),
                    _ => {
                        self.busy -= 1;
                        self.next_cycle(lane, now, port);
                    }
                }
            }
            Answer::Freed => {
                // One of this process tries; the others of it would only be in each other's way.
                while let Some(lane) = self.listening[port.link].pop_front() {
                    if self.lanes[lane as usize].state == State::Pausing {
                        self.ask(lane, port);
                        break;
                    }
                }
            }
            Answer::Renewed { .. } => {}
        }
    }

    fn is_done(&self) -> bool {
        self.checker.violation().is_some() || (self.is_stopping && self.busy == 0)
    }
}

pub(super) fn run<S: Speaker>(
    measurement: &Measurement<'_>,
    mut speaker: impl FnMut() -> S,
) -> Result<Sample, String> {
    let Measurement {
        peer,
        options,
        setting,
        addresses,
    } = measurement;
    let alone_ns = alone(measurement, &mut speaker)?;
    let contenders = setting.contenders;
    let links = setting.connections.min(contenders) as usize;
    let mut generator = Generator::connect(addresses, links, contenders, speaker)
        .map_err(|error| format!("connecting: {error}"))?;
    let start = generator.now();
    let mut script = HotKey::new(measurement, links, start);
    for lane in 0..contenders {
        generator.later(lane, start);
    }
    generator.run(&mut script, start + options.warmup.as_nanos() as u64)?;
    script.measure();
    let meter = Meter::start(peer);
    let until = generator.now() + (options.seconds * 1e9) as u64;
    generator.run(&mut script, until)?;
    let mut figures = Figures::new();
    // What the peer did for a cycle: every attempt, and the release.
    let ops = script.attempts + script.cycles;
    meter.stop(peer, ops, script.cycles, &mut figures);
    let (cycles, attempts) = (script.cycles, script.attempts);
    let order = script.fairness.counts();
    figures.insert("inversions", order.inversions as f64);
    figures.insert("overtaken", order.overtaken as f64);
    let head_start_us = order.head_start_ns_max as f64 / 1_000.0;
    figures.insert("head_start_max_us", head_start_us);
    let on_one_connection = order.reordered_on_one_link as f64;
    figures.insert("reordered_on_one_connection", on_one_connection);
    figures.insert("reordered_share", script.fairness.reordered_share());
    figures.insert("jain_index", script.fairness.jain_index());
    figures.insert("errors", script.errors as f64);
    figures.insert("timeouts", script.timeouts as f64);
    script.is_measuring = false;
    script.is_stopping = true;
    drained(&mut generator, &mut script)?;
    if let Some(violation) = script.checker.violation() {
        return Err(format!("{NOT_SAFE}: {violation}"));
    }

    let is_handoff = setting.workload == Workload::Handoff;
    let (latency, other, names) = match is_handoff {
        true => (&script.handoffs, &script.waits, WAIT),
        false => (&script.waits, &script.handoffs, HANDOFF),
    };
    add_quantiles(&mut figures, latency, LATENCY);
    add_quantiles(&mut figures, other, names);
    figures.insert("grants_checked", script.checker.grants() as f64);
    figures.insert("outlived_leases", script.checker.outlived() as f64);
    let cycle_ns = figures["seconds"] * 1e9 / cycles.max(1) as f64;
    let p99_ns = script.waits.value_at_quantile(0.99) as f64;
    if options.rate.is_none() {
        let ideal_ns = cycle_ns * f64::from(contenders);
        figures.insert("p99_over_ideal", p99_ns / ideal_ns);
    }
    let longest_us = script.waits.max() as f64 / 1_000.0;
    figures.insert("longest_wait_us", longest_us);
    let bound_ns = alone_ns + setting.work.as_nanos() as f64;
    figures.insert("bound_cycles_per_s", 1e9 / bound_ns);
    let attempts_per_cycle = attempts as f64 / cycles.max(1) as f64;
    figures.insert("attempts_per_cycle", attempts_per_cycle);
    let handoff_us = script.handoffs.value_at_quantile(0.5) as f64 / 1_000.0;
    let bounded_by = options.rate.is_none().then(|| {
        let (name, work) = (peer.name, setting.work);
        bounded_by(name, &figures, cycle_ns, handoff_us, work, setting.waiting)
    });
    Ok(Sample {
        figures,
        latency: if is_handoff {
            script.handoffs
        } else {
            script.waits
        },
        bounded_by,
    })
}

/// How long an acquire and a release take together without contention, in nanoseconds.
fn alone<S: Speaker>(
    measurement: &Measurement<'_>,
    speaker: &mut impl FnMut() -> S,
) -> Result<f64, String> {
    let mut generator = Generator::connect(measurement.addresses, 1, 1, speaker)
        .map_err(|error| format!("connecting: {error}"))?;
    let start = generator.now();
    let mut script = ManyKeys::new(1, 1, None, measurement.options, start);
    generator.later(0, start);
    script.measure_from(start);
    for times in 1..=ALONE_TIMES_MAX {
        let until = start + u64::from(times) * ALONE.as_nanos() as u64;
        generator.run(&mut script, until)?;
        if !script.releases.is_empty() {
            break;
        }
    }
    script.stop();
    drained(&mut generator, &mut script)?;
    let median = |latency: &Histogram<u64>| latency.value_at_quantile(0.5) as f64;
    let alone_ns = median(&script.acquires) + median(&script.releases);
    if alone_ns == 0.0 {
        return Err("one contender alone got no lock".to_owned());
    }
    Ok(alone_ns)
}
