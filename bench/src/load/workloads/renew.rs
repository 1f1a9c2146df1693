//! What does it cost to hold many locks, and to keep them?
//!
//! A few sessions take all keys and hold them. Then nothing happens for a while, which shows what
//! holding alone costs; then the leases are renewed over and over. An operation is one renewal:
//! where the protocol renews a whole session in one request, that one; otherwise one per lock.
//! `locks_renewed_per_s` compares the two. At the end a sample of the keys is asked for: every one
//! must still be held. Memory is what the peer has grown by, per lock.
//!
//! Leaves out: leases that run out because a client is too slow to renew them.

use super::fill::fill;
use super::measurement::{Measurement, drained};
use crate::load::generator::{Generator, Port, Script};
use crate::load::sample::{Figures, LATENCY, Meter, NOT_SAFE, Sample, add_quantiles, histogram};
use crate::load::speaker::{Answer, Ask, Speaker};
use bench::keys::{Random, key_bytes};
use hdrhistogram::Histogram;
use std::time::Duration;

/// "A few sessions".
pub(super) const SESSIONS: u32 = 8;

/// Requests under way on each connection while the locks are taken and renewed one by one.
pub(super) const PIPELINE: u32 = 128;

/// The leases last longer than the measurement, however slowly a peer takes the locks.
pub(super) const LEASE_MS: u32 = 3_600_000;

/// How many keys are looked at in the end.
const LOOKS: u64 = 1_000;

/// Renews, on as many lanes as it is given.
struct Renew {
    keys: u64,
    lane_count: u32,
    /// Lanes that renew. One per session is enough where that renews everything.
    active: u32,
    /// The next key of each lane, which is one that it has taken: see `fill`.
    next: Vec<u64>,
    since: Vec<u64>,
    is_stopping: bool,
    under_way: u32,
    latency: Histogram<u64>,
    errors: u64,
}

impl<S: Speaker> Script<S> for Renew {
    fn due(&mut self, lane: u32, now: u64, port: &mut Port<'_, S>) {
        if self.is_stopping || lane >= self.active {
            return;
        }
        let next = &mut self.next[lane as usize];
        if *next >= self.keys {
            *next = lane.into();
        }
        let key = key_bytes(*next);
        *next += u64::from(self.lane_count);
        self.since[lane as usize] = now;
        self.under_way += 1;
        // Peers that want a fence to renew a single lock are those that renew them all together.
        port.renew(lane, &key, 0, LEASE_MS);
    }

    fn answer(&mut self, answer: Answer, now: u64, port: &mut Port<'_, S>) {
        let lane = match answer {
            Answer::Renewed { lane } => {
                let since = self.since[lane as usize];
                self.latency.saturating_record(now - since);
                lane
            }
            Answer::NotHeld { lane } | Answer::Failed { lane } => {
                self.errors += 1;
                lane
            }
            _ => return,
        };
        self.under_way -= 1;
        self.due(lane, now, port);
    }

    fn is_done(&self) -> bool {
        self.is_stopping && self.under_way == 0
    }
}

/// Asks for keys that must be held, as another owner.
struct Look {
    keys: u64,
    random: Random,
    left: u64,
    lost: u64,
    errors: u64,
}

impl<S: Speaker> Script<S> for Look {
    fn due(&mut self, lane: u32, _: u64, port: &mut Port<'_, S>) {
        let key = key_bytes(self.random.below(self.keys));
        port.acquire(
            lane,
            &Ask {
                key,
                ttl_ms: 1,
                wait_ms: 0,
            },
        );
    }

    fn answer(&mut self, answer: Answer, now: u64, port: &mut Port<'_, S>) {
        match answer {
            Answer::Held { .. } => {}
            Answer::Granted { .. } => self.lost += 1,
            _ => self.errors += 1,
        }
        self.left -= 1;
        if self.left > 0 {
            self.due(0, now, port);
        }
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }
}

pub(super) fn run<S: Speaker>(
    measurement: &Measurement<'_>,
    mut speaker: impl FnMut() -> S,
    can_look: bool,
) -> Result<Sample, String> {
    let Measurement {
        peer,
        options,
        setting,
        addresses,
    } = measurement;
    let keys = setting.keys;
    let lanes = SESSIONS * PIPELINE;
    let connecting = |error| format!("connecting: {error}");
    let mut generator = Generator::connect(addresses, SESSIONS as usize, lanes, &mut speaker)
        .map_err(connecting)?;
    let before = peer.usage();
    let begun = generator.now();
    let all: Vec<u32> = (0..lanes).collect();
    fill(&mut generator, &all, 0..keys, |_, _| LEASE_MS)?;
    let mut figures = Figures::new();
    let fill_s = (generator.now() - begun) as f64 / 1e9;
    figures.insert("fill_per_s", keys as f64 / fill_s);
    if let (Some(before), Some(after)) = (before, peer.usage()) {
        let grown = after.resident_bytes.saturating_sub(before.resident_bytes);
        figures.insert("bytes_per_lock", grown as f64 / keys as f64);
    }

    let silence = Meter::start(peer);
    std::thread::sleep(Duration::from_secs_f64(options.seconds));
    let mut silent = Figures::new();
    silence.stop(peer, 0, 0, &mut silent);
    if let Some(&cores) = silent.get("server_cpu_cores") {
        figures.insert("holding_cpu_cores", cores);
    }

    let start = generator.now();
    let mut script = Renew {
        keys,
        lane_count: lanes,
        active: if S::RENEWS_ALL { SESSIONS } else { lanes },
        next: (0..lanes.into()).collect(),
        since: vec![start; lanes as usize],
        is_stopping: false,
        under_way: 0,
        latency: histogram(),
        errors: 0,
    };
    for lane in 0..lanes {
        generator.later(lane, start);
    }
    let meter = Meter::start(peer);
    generator.run(&mut script, start + (options.seconds * 1e9) as u64)?;
    let renewals = script.latency.len();
    meter.stop(peer, renewals, 0, &mut figures);
    script.is_stopping = true;
    drained(&mut generator, &mut script)?;
    figures.remove("cycles_per_s");
    let locks_per_renewal = if S::RENEWS_ALL {
        keys as f64 / f64::from(SESSIONS)
    } else {
        1.0
    };
    let rate = figures["ops_per_s"] * locks_per_renewal;
    figures.insert("locks_renewed_per_s", rate);
    add_quantiles(&mut figures, &script.latency, LATENCY);

    let mut errors = script.errors;
    if can_look {
        let mut onlooker = Generator::connect(addresses, 1, 1, &mut speaker).map_err(connecting)?;
        let mut look = Look {
            keys,
            random: Random::new(options.seed),
            left: LOOKS,
            lost: 0,
            errors: 0,
        };
        let now = onlooker.now();
        onlooker.later(0, now);
        drained(&mut onlooker, &mut look)?;
        figures.insert("lost_locks", look.lost as f64);
        errors += look.errors;
        if look.lost > 0 {
            return Err(format!(
                "{NOT_SAFE}: {} of {LOOKS} locks that were held and kept alive could be taken",
                look.lost
            ));
        }
    }
    figures.insert("errors", errors as f64);
    Ok(Sample {
        figures,
        latency: script.latency,
        bounded_by: None,
    })
}
