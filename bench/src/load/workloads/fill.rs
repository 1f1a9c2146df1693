//! Takes many locks and keeps them: how `--expiry` and `--renew` begin.
//!
//! The `n`th of `L` lanes takes the keys `n`, `n + L`, `n + 2 L`, ... with one request under way, and holds them all. So who owns a
//! key follows from its number, and nothing has to be kept per key.

use crate::load::generator::{Generator, Port, Script};
use crate::load::speaker::{Answer, Ask, Speaker};
use bench::keys::key_bytes;
use std::time::Duration;

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
