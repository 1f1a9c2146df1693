//! What becomes of the memory of leases that have ended: very many end within a few seconds, and
//! the server is looked at meanwhile.
//!
//! No client asks for the keys again, so only what a server does by itself can free them. Redis
//! does so in two ways, **active** (a few times a second it looks for keys that have ended;
//! `active-expire-effort` says how hard) and **lazy** (a request for a key that has ended removes
//! it); here also with the active one switched off. Its locks with a fence leave a counter behind
//! for every key there ever was, which must not end. Fencepost expires by a wheel, and remembers a
//! key for ten seconds more, to count its fence on; then the shard's floor remembers for all.
//!
//! Resident memory is what the system says of the process. An allocator may keep what the server
//! has freed, for what comes next; so in the end as many locks are taken again, under other names:
//! what was freed is used again, and the rest is added to.

use crate::experiments::locks::redis::Redis;
use crate::experiments::locks::wire::Wire;
use crate::experiments::processes::daemon::{Daemon, RedisSettings};
use crate::load::peers::PeerName;
use crate::load::workloads::{Expiring, Times, fill_expiring};
use serde::Serialize;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// So fast are locks taken, at least, without a script and with one: what is planned for it.
const FILL_PER_S: u64 = 150_000;
const FILL_BY_SCRIPT_PER_S: u64 = 75_000;

/// How long the leases last that are taken in the end, when those before have ended: longer than
/// the bench looks.
const LAST_LEASES: Duration = Duration::from_secs(600);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// How long one answer may take: everything may be looked at for it.
const PATIENCE: Duration = Duration::from_secs(300);

/// Has Redis look at every key there is, as clients do that come back for their locks.
const TOUCH: &str = "local at='0' repeat local found=redis.call('SCAN',at,'COUNT',1000) at=found[1] until at=='0' return 1";

/// How many leases, and when.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) keys: u64,
    /// From the first end to the last.
    pub(super) spread: Duration,
    /// How long to look after the last end.
    pub(super) tail: Duration,
    pub(super) seed: u64,
}

/// A server that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Fencepost,
    RedisActive,
    RedisHard,
    RedisLazy,
    RedisFenced,
}

impl Subject {
    pub(super) const ALL: [Subject; 5] = [
        Subject::Fencepost,
        Subject::RedisActive,
        Subject::RedisHard,
        Subject::RedisLazy,
        Subject::RedisFenced,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Subject::Fencepost => "fencepost",
            Subject::RedisActive => "redis, active",
            Subject::RedisHard => "redis, active, effort 10",
            Subject::RedisLazy => "redis, lazy only",
            Subject::RedisFenced => "redis, active, with fences",
        }
    }

    /// For the head of a narrow column.
    pub(super) fn short_name(self) -> &'static str {
        match self {
            Subject::Fencepost | Subject::RedisActive | Subject::RedisLazy => self.name(),
            Subject::RedisHard => "redis, effort 10",
            Subject::RedisFenced => "redis, fences",
        }
    }

    fn peer(self) -> PeerName {
        match self {
            Subject::Fencepost => PeerName::Fencepost,
            Subject::RedisFenced => PeerName::RedisFenced,
            Subject::RedisActive | Subject::RedisHard | Subject::RedisLazy => PeerName::Redis,
        }
    }

    fn start(self, directory: &TempDir) -> Result<Daemon, String> {
        let redis = |others| {
            let settings = RedisSettings {
                others,
                ..RedisSettings::default()
            };
            Daemon::redis(directory.path(), settings)
        };
        match self {
            Subject::Fencepost => Daemon::fencepost("fencepost", directory.path(), None),
            Subject::RedisActive | Subject::RedisFenced => redis(&[]),
            Subject::RedisHard => redis(&["--active-expire-effort", "10"]),
            // Before version 7 every client might do that, and the setting was not known.
            Subject::RedisLazy => {
                redis(&["--enable-debug-command", "local"]).or_else(|_| redis(&[]))
            }
        }
    }
}

/// What was seen at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Sample {
    /// Since the first lease ended.
    pub(super) at_s: f64,
    pub(super) resident_bytes: u64,
    /// What the server itself says it has in use.
    pub(super) used_bytes: Option<u64>,
    /// Leases that had not ended by then.
    pub(super) live: u64,
    /// Locks that were not free.
    pub(super) held: u64,
    /// Keys that the server had anything in memory about, counters included.
    pub(super) stored: u64,
}

impl Sample {
    /// Leases that have ended and whose locks are not free yet, as far as the server has got by
    /// itself.
    pub(super) fn unexpired(&self) -> u64 {
        self.held.saturating_sub(self.live)
    }

    /// Keys that are kept although their leases have ended.
    pub(super) fn unreclaimed(&self) -> u64 {
        self.stored.saturating_sub(self.live)
    }
}

/// One server's story.
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) keys: u64,
    /// In memory when nothing was held yet.
    pub(super) empty_bytes: u64,
    /// When the last lease ended, since the first one did.
    pub(super) last_end_s: f64,
    /// At least one.
    pub(super) samples: Vec<Sample>,
    /// When, after all that, as many locks were taken again, under other names.
    pub(super) refilled_bytes: Option<u64>,
    /// After every key was asked for, where that was done. The ones that were taken again live.
    pub(super) touched: Option<Sample>,
}

impl Series {
    /// The last look at or before a moment. `None`: before the first look, or after the last.
    pub(super) fn at(&self, at_s: f64) -> Option<&Sample> {
        let last = self.samples.last()?;
        if at_s > last.at_s + 2.0 * LOOK.as_secs_f64() {
            return None;
        }
        self.samples.iter().rfind(|sample| sample.at_s <= at_s)
    }

    pub(super) fn last(&self) -> Sample {
        self.samples.last().copied().unwrap_or_default()
    }

    /// The most that was in memory.
    pub(super) fn peak_bytes(&self) -> u64 {
        let bytes = self.samples.iter().map(|sample| sample.resident_bytes);
        bytes.max().unwrap_or(0)
    }

    /// How long after the last end there was nothing left to do, by a count of what is left.
    /// `None`: it was not seen.
    pub(super) fn done_after_s(&self, left: impl Fn(&Sample) -> u64) -> Option<f64> {
        let is_late = |sample: &&Sample| sample.at_s >= self.last_end_s && left(sample) == 0;
        let done = self.samples.iter().find(is_late)?;
        Some(done.at_s - self.last_end_s)
    }
}

/// Looks at a server as long as `plan` says, or until it has nothing left to do.
pub(super) fn watch(subject: Subject, plan: Plan) -> Result<Series, String> {
    let directory = TempDir::with_prefix("fencepost-bench-").map_err(|error| error.to_string())?;
    let server = subject.start(&directory)?;
    let mut eye = Eye::open(subject, &server)?;
    let empty_bytes = server.resident_bytes();
    let fill_per_s = match subject {
        Subject::RedisFenced => FILL_BY_SCRIPT_PER_S,
        _ => FILL_PER_S,
    };
    let fill_s = plan.keys as f64 / fill_per_s as f64;
    let times = Times {
        lead: Duration::from_secs_f64(fill_s) + Duration::from_secs(1),
        spread: plan.spread,
        seed: plan.seed,
    };
    let fill = |keys, times| fill_expiring(subject.peer(), server.address, keys, times);
    let expiring = fill(0..plan.keys, times)?;
    if subject == Subject::RedisFenced {
        eye.ignore(plan.keys);
    }
    let mut samples = Vec::new();
    let until = expiring.last_end() + plan.tail;
    loop {
        let sample = eye.look(&server, &expiring)?;
        samples.push(sample);
        let is_over = Instant::now() > expiring.last_end() && sample.stored == 0;
        if is_over || Instant::now() > until {
            break;
        }
        std::thread::sleep(LOOK);
    }
    let lead = LAST_LEASES;
    fill(plan.keys..2 * plan.keys, Times { lead, ..times })?;
    let refilled_bytes = Some(server.resident_bytes());
    let touched = match (subject, &mut eye) {
        (Subject::RedisLazy, Eye::Redis { redis, .. }) => {
            redis.command(&["EVAL", TOUCH, "0"])?;
            Some(Sample {
                live: plan.keys,
                ..eye.look(&server, &expiring)?
            })
        }
        _ => None,
    };
    Ok(Series {
        name: subject.name(),
        keys: plan.keys,
        empty_bytes,
        last_end_s: (expiring.last_end() - expiring.first_end).as_secs_f64(),
        samples,
        refilled_bytes,
        touched,
    })
}

/// Asks a server what it has.
enum Eye {
    Fencepost(Wire),
    Redis {
        redis: Redis,
        /// Keys that are no locks but their counters.
        counters: u64,
    },
}

impl Eye {
    /// So many keys are not locks.
    fn ignore(&mut self, keys: u64) {
        if let Eye::Redis { counters, .. } = self {
            *counters = keys;
        }
    }

    fn open(subject: Subject, server: &Daemon) -> Result<Eye, String> {
        if subject == Subject::Fencepost {
            return Ok(Eye::Fencepost(Wire::connect(server.address)?));
        }
        let mut redis = Redis::connect_within(server.address, "eye", PATIENCE)?;
        if subject == Subject::RedisLazy {
            redis.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"])?;
        }
        let counters = 0;
        Ok(Eye::Redis { redis, counters })
    }

    fn look(&mut self, server: &Daemon, expiring: &Expiring) -> Result<Sample, String> {
        let (held, stored, used_bytes) = match self {
            Eye::Fencepost(wire) => (wire.stat("held")?, wire.stat("keys")?, None),
            Eye::Redis { redis, counters } => {
                let stored: u64 = redis
                    .command(&["DBSIZE"])?
                    .parse()
                    .map_err(|_| "redis: a size is a number")?;
                let memory = redis.command(&["INFO", "memory"])?;
                let held = stored.saturating_sub(*counters);
                (held, stored, used_memory(&memory))
            }
        };
        // Read after the question: what ends in between counts as ended, so nothing is called late
        // that is not.
        let now = Instant::now();
        let since = |earlier: Instant| now.saturating_duration_since(earlier).as_secs_f64();
        let until = |later: Instant| later.saturating_duration_since(now).as_secs_f64();
        Ok(Sample {
            at_s: since(expiring.first_end) - until(expiring.first_end),
            resident_bytes: server.resident_bytes(),
            used_bytes,
            live: expiring.live(now),
            held,
            stored,
        })
    }
}

/// What Redis has in use, by its own account.
fn used_memory(info: &str) -> Option<u64> {
    let value = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_says_what_it_uses() {
        let info = "# Memory\r\nused_memory_human:1.00M\r\nused_memory:1048576\r\n";
        assert_eq!(used_memory(info), Some(1_048_576));
        assert_eq!(used_memory("nothing"), None);
    }

    #[test]
    fn a_story_is_over_when_nothing_is_left() {
        let sample = |at_s: f64, live: u64, stored: u64| Sample {
            at_s,
            live,
            held: stored,
            stored,
            ..Sample::default()
        };
        let series = Series {
            name: "x",
            keys: 10,
            empty_bytes: 0,
            last_end_s: 3.0,
            samples: vec![
                sample(-1.0, 10, 10),
                sample(1.0, 6, 8),
                sample(3.5, 0, 2),
                sample(4.0, 0, 0),
            ],
            refilled_bytes: None,
            touched: None,
        };
        assert_eq!(series.done_after_s(Sample::unreclaimed), Some(1.0));
        assert_eq!(series.at(2.0).map(Sample::unreclaimed), Some(2));
        assert_eq!(series.at(-2.0), None, "before the first look");
        assert_eq!(series.at(9.0), None, "after the last look");
        let endless = Series {
            samples: series.samples[..3].to_vec(),
            ..series
        };
        assert_eq!(endless.done_after_s(Sample::unreclaimed), None);
    }
}
