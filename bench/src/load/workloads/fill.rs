//! Takes many locks and keeps them: how `--expiry` and `--renew` begin, and the experiment
//! `expiry`.
//!
//! The `n`th of `L` lanes takes the keys `n`, `n + L`, `n + 2 L`, ... with one request under way,
//! and holds them all. So the owner of a key follows from its number, and nothing has to be kept
//! per key.

use crate::load::generator::{Generator, Port, Script};
use crate::load::speaker::{Answer, Ask, Speaker};
use bench::keys::{Random, key_bytes};
use std::time::{Duration, Instant};

/// How long a fill may take: ten million locks of the slowest peer.
const FILL: Duration = Duration::from_secs(600);

/// The lease of a key, given its number and the time.
pub(super) trait Lease: FnMut(u64, u64) -> u32 {}
impl<F: FnMut(u64, u64) -> u32> Lease for F {}

struct Fill<F> {
    lease: F,
    /// The next key of each lane.
    next: Vec<u64>,
    end: u64,
    step: u64,
    missing: u64,
    errors: u64,
}

impl<S: Speaker, F: Lease> Script<S> for Fill<F> {
    fn due(&mut self, lane: u32, now: u64, port: &mut Port<'_, S>) {
        let number = self.next[lane as usize];
        if number >= self.end {
            return;
        }
        self.next[lane as usize] += self.step;
        let ttl_ms = (self.lease)(number, now);
        port.acquire(
            lane,
            &Ask {
                key: key_bytes(number),
                ttl_ms,
                wait_ms: 0,
            },
        );
    }

    fn answer(&mut self, answer: Answer, now: u64, port: &mut Port<'_, S>) {
        let lane = match answer {
            Answer::Granted { lane, .. } => lane,
            Answer::Held { lane } | Answer::Failed { lane } | Answer::TimedOut { lane } => {
                self.errors += 1;
                lane
            }
            _ => return,
        };
        self.missing -= 1;
        self.due(lane, now, port);
    }

    fn is_done(&self) -> bool {
        self.missing == 0
    }
}

/// Locks that were taken and are left to run out.
pub(crate) struct Expiring {
    /// When the first one was meant to end.
    pub(crate) first_end: Instant,
    /// When each ends, in milliseconds after that; sorted. A lease that was taken too late for the
    /// plan ends when it ends.
    ends_ms: Vec<u32>,
}

impl Expiring {
    /// How many leases have not ended by `now`.
    pub(crate) fn live(&self, now: Instant) -> u64 {
        let Some(since) = now.checked_duration_since(self.first_end) else {
            return self.ends_ms.len() as u64;
        };
        let since_ms = since.as_millis();
        let ended = self
            .ends_ms
            .partition_point(|&end_ms| u128::from(end_ms) <= since_ms);
        (self.ends_ms.len() - ended) as u64
    }

    /// When the last one ends.
    pub(crate) fn last_end(&self) -> Instant {
        let last_ms = self.ends_ms.last().copied().unwrap_or(0);
        self.first_end + Duration::from_millis(u64::from(last_ms))
    }
}

/// When leases are to end.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    /// From the beginning of the fill, which should be over by then, to the end of the first.
    pub(crate) lead: Duration,
    /// From there to the end of the last.
    pub(crate) spread: Duration,
    /// Which lease ends when is random.
    pub(crate) seed: u64,
}

/// Takes the locks `keys` and leaves them to run out.
pub(super) fn fill_expiring<S: Speaker>(
    generator: &mut Generator<S>,
    lanes: &[u32],
    keys: std::ops::Range<u64>,
    times: Times,
) -> Result<Expiring, String> {
    let Times { lead, spread, seed } = times;
    let (begun, begun_ns) = (Instant::now(), generator.now());
    let (lead_ns, spread_ns) = (lead.as_nanos() as u64, spread.as_nanos() as u64);
    let mut random = Random::new(seed);
    let mut ends_ms = Vec::with_capacity((keys.end - keys.start) as usize);
    fill(generator, lanes, keys, |_, now| {
        let since_ns = now - begun_ns;
        let wanted_ns = lead_ns + random.below(spread_ns.max(1));
        let ttl_ms = (wanted_ns.saturating_sub(since_ns) / 1_000_000).max(1);
        let end_ns = since_ns + ttl_ms * 1_000_000;
        ends_ms.push((end_ns.saturating_sub(lead_ns) / 1_000_000) as u32);
        ttl_ms as u32
    })?;
    ends_ms.sort_unstable();
    Ok(Expiring {
        first_end: begun + lead,
        ends_ms,
    })
}

/// Takes the locks `keys`, on these lanes of the generator.
pub(super) fn fill<S: Speaker>(
    generator: &mut Generator<S>,
    lanes: &[u32],
    keys: std::ops::Range<u64>,
    lease: impl Lease,
) -> Result<(), String> {
    let last = lanes.iter().max().map_or(0, |&lane| lane as usize);
    let mut script = Fill {
        lease,
        next: vec![keys.end; last + 1],
        end: keys.end,
        step: lanes.len() as u64,
        missing: keys.end - keys.start,
        errors: 0,
    };
    for (key, &lane) in (keys.start..).zip(lanes) {
        script.next[lane as usize] = key;
    }
    let start = generator.now();
    for &lane in lanes {
        generator.later(lane, start);
    }
    generator.run(&mut script, start + FILL.as_nanos() as u64)?;
    match (script.missing, script.errors) {
        (0, 0) => Ok(()),
        (0, errors) => Err(format!("{errors} locks could not be taken")),
        (missing, _) => Err(format!(
            "{missing} locks were still missing after {} s",
            FILL.as_secs()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_live_until_they_end() {
        let first_end = Instant::now();
        let expiring = Expiring {
            first_end,
            ends_ms: vec![5, 5, 20],
        };
        let live_after = |ms: u64| expiring.live(first_end + Duration::from_millis(ms));
        assert_eq!([0, 4, 5, 19, 20, 90].map(live_after), [3, 3, 1, 1, 0, 0]);
        let before = first_end.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!(expiring.live(before), 3);
        assert_eq!(expiring.last_end(), first_end + Duration::from_millis(20));
    }
}
