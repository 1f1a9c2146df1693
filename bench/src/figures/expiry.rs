//! What happens when ten million leases fall due within one second?
//!
//! Units: the longest call of `advance_shard` in microseconds, by the wall's clock and by the
//! core's (`process::Clocks`); the lag of each expiry behind its deadline in milliseconds; and how
//! long it takes until every lock is expired and its memory reclaimed (`idle_ms` is 0). Time is
//! real: the clock starts 1.4 s before the first deadline, at the moment when the wheel begins to
//! move these leases to its lower levels. The home threads do nothing else; each reads the clock
//! before every call.
//!
//! Leaves out: requests that want the same cores. The fill happens at tick 0, before the clock
//! starts.

use super::process::{Clocks, preemptions};
use super::{Arguments, Report, Target};
use bench::baseline::Map;
use bench::keys::{Random, key_bytes};
use bench::subject::{SHARDS, Subject, settings_for};
use engine::{Engine, GaveUp, Grant, Host, Key, Loss, SessionId, Settings, Tick};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How many steps one call may take: what we recommend to a server.
pub(super) const BUDGET: u32 = 256;

/// The first deadline, and how long after it the last one is.
const FIRST_MS: u64 = 30_000;
const SPREAD_MS: u64 = 1_000;
/// When the clock starts: shortly before the wheel's hand reaches the slot of 4,096 ms that all
/// deadlines share.
const START_MS: u64 = 28_600;

/// How late each lease was taken away: one counter per millisecond, everything from a minute on in
/// the last.
struct Lags(Box<[AtomicU64]>);

impl Lags {
    fn new() -> Self {
        Lags((0..60_000).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    fn record(&self, late_ms: u64) {
        let last = self.0.len() - 1;
        self.0[(late_ms as usize).min(last)].fetch_add(1, Ordering::Relaxed);
    }

    fn total(&self) -> u64 {
        self.0
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    /// The lag that this share of all expiries does not exceed.
    fn quantile_ms(&self, share: f64) -> f64 {
        let wanted = (self.total() as f64 * share).ceil() as u64;
        let mut so_far = 0;
        for (ms, count) in self.0.iter().enumerate() {
            so_far += count.load(Ordering::Relaxed);
            if so_far >= wanted {
                return ms as f64;
            }
        }
        f64::NAN
    }
}

impl Host for Lags {
    type Waiter = ();

    fn granted(&self, (): (), _: Grant) {}
    fn gave_up(&self, (): (), _: GaveUp) {}
    fn lost(&self, loss: &Loss<'_>) {
        self.record(loss.late_ms);
    }
    fn session_ended(&self, _: SessionId) {}
}

pub(super) fn engine_1(arguments: &Arguments, report: &mut Report<'_>) {
    engine(arguments, report, 1);
}

pub(super) fn engine_2(arguments: &Arguments, report: &mut Report<'_>) {
    engine(arguments, report, 2);
}

fn engine(arguments: &Arguments, report: &mut Report<'_>, threads: usize) {
    let settings = Settings {
        idle_ms: 0,
        ..settings_for(arguments.keys)
    };
    let engine = Engine::new(settings, Lags::new());
    fill(&engine, arguments.keys);
    let burst = burst(threads, arguments.budget, |shard, now, budget| {
        engine.advance_shard(shard, now, budget).more
    });
    assert_eq!(engine.keys(), 0, "everything is reclaimed");
    report_burst(
        arguments,
        report,
        &burst,
        engine.host(),
        Target::at_most(1_000.0),
    );
}

pub(super) fn map_1(arguments: &Arguments, report: &mut Report<'_>) {
    let map = Map::<u32>::new(SHARDS, 0);
    fill(&map, arguments.keys);
    let lags = Lags::new();
    let burst = burst(1, arguments.budget, |shard, now, budget| {
        map.advance_shard(shard, now, budget, |late_ms| lags.record(late_ms))
    });
    assert_eq!(map.keys(), 0, "everything is reclaimed");
    report_burst(arguments, report, &burst, &lags, None);
}

fn fill<S: Subject>(subject: &S, keys: u64) {
    let mut seats: Vec<_> = (0..4).map(|number| subject.seat(number)).collect();
    let mut random = Random::new(3);
    for number in 0..keys {
        let bytes = key_bytes(number);
        let key = Key::new(&bytes).expect("16 bytes");
        let ttl_ms = FIRST_MS + random.below(SPREAD_MS);
        let seat = &mut seats[number as usize % 4];
        let fence = subject.acquire(seat, key, ttl_ms, Tick::default());
        assert!(fence.is_some(), "no other seat wants it");
    }
    subject.settle(Tick::default());
}

struct Burst {
    calls: Calls,
    /// From the first deadline until nothing was left.
    took: Duration,
    preemptions: u64,
}

/// How long each call took.
struct Calls {
    wall: Histogram<u64>,
    core: Histogram<u64>,
}

impl Calls {
    fn new() -> Self {
        let histogram = || Histogram::new_with_max(10_000_000_000, 3).expect("within bounds");
        Calls {
            wall: histogram(),
            core: histogram(),
        }
    }

    fn add(&mut self, other: &Calls) {
        self.wall.add(&other.wall).expect("the same bounds");
        self.core.add(&other.core).expect("the same bounds");
    }
}

/// Turns the wheels of all shards in real time until everything due is done.
fn burst(
    threads: usize,
    budget: u32,
    advance: impl Fn(usize, Tick, &mut u32) -> bool + Sync,
) -> Burst {
    let begun = Instant::now();
    let elapsed_ms = || START_MS + begun.elapsed().as_millis() as u64;
    let home = |thread: usize| {
        let mut calls = Calls::new();
        let switches = preemptions();
        loop {
            let round_began_ms = elapsed_ms();
            let mut more = false;
            for shard in (thread..SHARDS).step_by(threads) {
                let now = Tick::from_ms(elapsed_ms());
                let before = Clocks::start();
                more |= advance(shard, now, &mut budget.clone());
                let took = before.took();
                calls.wall.saturating_record(took.wall_ns);
                calls.core.saturating_record(took.core_ns);
            }
            if more {
                continue;
            }
            if round_began_ms > FIRST_MS + SPREAD_MS {
                break;
            }
            // Nothing to do for now. A server would be woken by requests, or by its next
            // millisecond.
            std::thread::sleep(Duration::from_micros(200));
        }
        (calls, preemptions() - switches)
    };
    let mut calls = Calls::new();
    let mut switches = 0;
    std::thread::scope(|scope| {
        let homes: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || home(thread)))
            .collect();
        for home in homes {
            let (its_calls, its_switches) = home.join().expect("a home thread panicked");
            calls.add(&its_calls);
            switches += its_switches;
        }
    });
    Burst {
        calls,
        took: begun.elapsed() - Duration::from_millis(FIRST_MS - START_MS),
        preemptions: switches,
    }
}

fn report_burst(
    arguments: &Arguments,
    report: &mut Report<'_>,
    burst: &Burst,
    lags: &Lags,
    target: Option<Target>,
) {
    assert_eq!(lags.total(), arguments.keys, "every lease is lost once");
    let Calls { wall, core } = &burst.calls;
    let us = |ns: u64| ns as f64 / 1_000.0;
    let longest = format!("longest advance call, budget {}", arguments.budget);
    report.add_against(&longest, us(wall.max()), "us", target);
    report.add_against(
        format!("{longest}, on the core"),
        us(core.max()),
        "us",
        target,
    );
    report.add(
        "advance calls, p99.99",
        us(wall.value_at_quantile(0.9999)),
        "us",
    );
    report.add(
        "advance calls, p50 of those that did work",
        us(busy_median(wall)),
        "us",
    );
    let over = wall.len() - wall.count_between(0, 1_000_000);
    report.add("advance calls over 1 ms", over as f64, "");
    let over = core.len() - core.count_between(0, 1_000_000);
    report.add("advance calls over 1 ms, on the core", over as f64, "");
    report.add("preemptions of home threads", burst.preemptions as f64, "");
    report.add("lag p50", lags.quantile_ms(0.5), "ms");
    report.add("lag p99", lags.quantile_ms(0.99), "ms");
    report.add("lag max", lags.quantile_ms(1.0), "ms");
    report.add(
        "first deadline to last lock reclaimed",
        burst.took.as_secs_f64() * 1_000.0,
        "ms",
    );
    report.add(
        "time in advance per lease, on the core",
        core.mean() * core.len() as f64 / arguments.keys as f64,
        "ns",
    );
}

/// The middle of the calls that took at least 5 us: an idle call is far below that.
fn busy_median(calls: &Histogram<u64>) -> u64 {
    let idle = calls.count_between(0, 5_000) as f64 / calls.len() as f64;
    calls.value_at_quantile(idle + (1.0 - idle) / 2.0)
}
