//! What is measured: one file per workload. This one knows which settings each workload is measured at, and brings workload and
//! protocol together.

mod bound;
mod expiry;
mod fill;
mod hot_key;
mod many_keys;
mod renew;

use super::generator::{Generator, Script};
use super::options::Options;
use super::peers::etcd::Etcd;
use super::peers::fencepost::Fencepost;
use super::peers::redis::Redis;
use super::peers::redlock::Redlock;
use super::peers::{Peer, PeerName};
use super::sample::Sample;
use super::speaker::Speaker;
pub(crate) use fill::{Expiring, Times};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

/// How long what is under way may take to end after a measurement.
const DRAIN: Duration = Duration::from_secs(10);

/// Keys of `--many-keys`.
const MANY_KEYS: u64 = 1_000_000;

/// Keys of `--expiry` and `--renew`.
const MOST_KEYS: u64 = 10_000_000;

/// etcd takes some thousand locks a second; with so many times fewer of them it is done in the same time as the others.
const ETCD_FEWER: u64 = 1_000;

/// Who waits for locks that run out: all of them, or as many as a peer without a line can bear, since they keep asking.
const WAITERS: u32 = 1_000;
const WAITERS_WHO_ASK: u32 = 100;

/// Contenders of `--handoff`: a pair, and a crowd.
const HANDOFF_CONTENDERS: [u32; 2] = [2, 50];

/// What a holder of `--handoff` does, so that everybody else is in line again when it gives the lock back.
const HANDOFF_WORK: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Workload {
    HotKey,
    ManyKeys,
    Handoff,
    Expiry,
    Renew,
}

impl Workload {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Workload::HotKey => "hot-key",
            Workload::ManyKeys => "many-keys",
            Workload::Handoff => "handoff",
            Workload::Expiry => "expiry",
            Workload::Renew => "renew",
        }
    }
}

impl Workload {
    /// What its latency is the latency of.
    pub(crate) fn latency(self) -> &'static str {
        match self {
            Workload::HotKey => "the wait, from asking to the grant",
            Workload::ManyKeys => "that of an acquire or a release",
            Workload::Handoff => "from a release to the next holder's grant",
            Workload::Expiry => "from a lease's end to the grant of whoever waits for it",
            Workload::Renew => "that of a renewal",
        }
    }

    /// Whether it leaves the peer full of locks, and so needs a fresh one each time.
    pub(crate) fn fills(self) -> bool {
        matches!(self, Workload::Expiry | Workload::Renew)
    }

    /// Why a peer is left out, if it is.
    pub(crate) fn leaves_out(self, peer: PeerName) -> Option<&'static str> {
        match (self, peer) {
            (Workload::ManyKeys, _) => None,
            (_, PeerName::Echo) => Some("it grants no locks"),
            (Workload::Expiry | Workload::Renew, PeerName::Server) => {
                Some("the workload needs a server of its own, to start afresh")
            }
            (Workload::Expiry, PeerName::Etcd) => {
                Some("its leases are sessions of several seconds, not leases of a lock")
            }
            (Workload::Expiry | Workload::Renew, PeerName::Redlock) => {
                Some("five times the same Redis; see redis")
            }
            _ => None,
        }
    }
}

/// What somebody does who wants a lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waiting {
    /// Stands in line at the server.
    InLine,
    /// Tries again after a pause.
    Retry {
        /// Its mean.
        ms: u64,
    },
    /// Listens for releases.
    Listen,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Waiting::InLine => f.pad("in line"),
            Waiting::Retry { ms } => f.pad(&format!("retry {ms} ms")),
            Waiting::Listen => f.pad("pub/sub"),
        }
    }
}

/// One thing to measure about one peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) workload: Workload,
    pub(crate) connections: u32,
    /// Requests under way per connection; 0 where it does not apply.
    pub(crate) pipeline: u32,
    /// 0 where it does not apply.
    pub(crate) contenders: u32,
    pub(crate) waiting: Waiting,
    pub(crate) work: Duration,
    pub(crate) keys: u64,
}

/// A setting, with all it takes to measure it.
pub(super) struct Measurement<'a> {
    pub(super) peer: &'a Peer,
    pub(super) options: &'a Options,
    pub(super) setting: Setting,
    /// Where each link connects to.
    pub(super) addresses: &'a [SocketAddr],
}

/// Everything that is to be measured about a peer for one workload.
pub(crate) fn settings(workload: Workload, peer: PeerName, options: &Options) -> Vec<Setting> {
    let base = Setting {
        workload,
        connections: options.connections,
        pipeline: 0,
        contenders: 0,
        waiting: Waiting::InLine,
        work: options.work,
        keys: options.keys.unwrap_or(MANY_KEYS),
    };
    match workload {
        Workload::ManyKeys => {
            let setting = |&pipeline| Setting { pipeline, ..base };
            options.pipeline.iter().map(setting).collect()
        }
        _ if workload.leaves_out(peer).is_some() => Vec::new(),
        Workload::HotKey => contended(base, &options.contenders, peer, options),
        Workload::Handoff => {
            let work = if options.work.is_zero() {
                HANDOFF_WORK
            } else {
                options.work
            };
            let base = Setting { work, ..base };
            contended(base, &HANDOFF_CONTENDERS, peer, options)
        }
        Workload::Expiry | Workload::Renew => {
            let keys = options.keys.unwrap_or(MOST_KEYS);
            let setting = Setting {
                connections: renew::SESSIONS,
                pipeline: renew::PIPELINE,
                work: Duration::ZERO,
                keys: match peer {
                    PeerName::Etcd => (keys / ETCD_FEWER).max(1_000),
                    _ => keys,
                },
                ..base
            };
            if workload == Workload::Renew {
                return vec![setting];
            }
            let waiting = ways_to_wait(peer, options)[0];
            let contenders = match waiting {
                Waiting::InLine => WAITERS,
                Waiting::Retry { .. } | Waiting::Listen => WAITERS_WHO_ASK,
            };
            vec![Setting {
                contenders,
                waiting,
                ..setting
            }]
        }
    }
}

/// Every number of contenders, with every way to wait.
fn contended(base: Setting, contenders: &[u32], peer: PeerName, options: &Options) -> Vec<Setting> {
    let mut settings = Vec::new();
    for &contenders in contenders {
        for waiting in ways_to_wait(peer, options) {
            settings.push(Setting {
                contenders,
                waiting,
                keys: 1,
                ..base
            });
        }
    }
    settings
}

/// Redis is given its best case, so several are tried.
fn ways_to_wait(peer: PeerName, options: &Options) -> Vec<Waiting> {
    if peer.has_line() {
        return vec![Waiting::InLine];
    }
    let mut pauses_ms = options.redis_retry_ms.clone();
    pauses_ms.push(1);
    pauses_ms.sort_unstable();
    pauses_ms.dedup();
    let mut ways: Vec<Waiting> = pauses_ms
        .into_iter()
        .map(|ms| Waiting::Retry { ms })
        .collect();
    if peer != PeerName::Redlock {
        ways.push(Waiting::Listen);
    }
    ways
}

/// Takes the locks `0..keys` of a running Fencepost and holds them, for an hour.
pub(crate) fn fill_fencepost(address: SocketAddr, keys: u64) -> Result<(), String> {
    connected(address, Fencepost::new, |generator, lanes| {
        fill::fill(generator, lanes, 0..keys, |_, _| renew::LEASE_MS)
    })
}

/// Takes the locks `keys` of a running peer and leaves them to run out: the first after `lead`, the last after `spread` more.
pub(crate) fn fill_expiring(
    peer: PeerName,
    address: SocketAddr,
    keys: Range<u64>,
    times: Times,
) -> Result<Expiring, String> {
    match peer {
        PeerName::Fencepost => connected(address, Fencepost::new, |generator, lanes| {
            fill::fill_expiring(generator, lanes, keys, times)
        }),
        PeerName::Redis | PeerName::RedisFenced => {
            let speaker = || Redis::new(peer == PeerName::RedisFenced, false);
            connected(address, speaker, |generator, lanes| {
                fill::fill_expiring(generator, lanes, keys, times)
            })
        }
        other => Err(format!("{other} is not filled here")),
    }
}

/// Connects as those do who take very many locks, and has them taken.
fn connected<S: Speaker, T>(
    address: SocketAddr,
    speaker: impl FnMut() -> S,
    take: impl FnOnce(&mut Generator<S>, &[u32]) -> Result<T, String>,
) -> Result<T, String> {
    let lanes = renew::SESSIONS * renew::PIPELINE;
    let links = renew::SESSIONS as usize;
    let mut generator = Generator::connect(&[address], links, lanes, speaker)
        .map_err(|error| format!("connecting: {error}"))?;
    let all: Vec<u32> = (0..lanes).collect();
    take(&mut generator, &all)
}

/// Measures one setting of one peer, once.
pub(crate) fn measure(peer: &Peer, setting: Setting, options: &Options) -> Result<Sample, String> {
    let measure = |addresses| Measurement {
        peer,
        options,
        setting,
        addresses,
    };
    match peer.name {
        PeerName::Fencepost
        | PeerName::FencepostNone
        | PeerName::FencepostLease
        | PeerName::Server => {
            let speaker = match setting.workload {
                Workload::Renew => Fencepost::session_bound,
                _ => Fencepost::new,
            };
            with(&measure(&peer.addresses), speaker)
        }
        PeerName::Echo => with(&measure(&peer.addresses), Fencepost::echo),
        PeerName::Redis | PeerName::RedisAlways | PeerName::RedisFenced | PeerName::Valkey => {
            let is_fenced = peer.name == PeerName::RedisFenced;
            let listens = setting.waiting == Waiting::Listen;
            let mut addresses = peer.addresses.clone();
            if listens {
                // A connection that listens can do nothing else.
                addresses.push(addresses[0]);
            }
            with(&measure(&addresses), || Redis::new(is_fenced, listens))
        }
        PeerName::Redlock => with(&measure(&peer.addresses), Redlock::default),
        PeerName::Etcd => {
            let is_contended = setting.contenders > 0;
            with(&measure(&peer.addresses), || Etcd::new(is_contended))
        }
    }
}

fn with<S: Speaker>(
    measurement: &Measurement<'_>,
    speaker: impl FnMut() -> S,
) -> Result<Sample, String> {
    match measurement.setting.workload {
        Workload::HotKey | Workload::Handoff => hot_key::run(measurement, speaker),
        Workload::ManyKeys => many_keys::run(measurement, speaker),
        Workload::Expiry => expiry::run(measurement, speaker),
        Workload::Renew => {
            // In etcd's lock service nobody can look: whoever asks for a lock that is held waits for it.
            let can_look = measurement.peer.name != PeerName::Etcd;
            renew::run(measurement, speaker, can_look)
        }
    }
}

/// Lets what is under way end, so that the next measurement finds every lock free.
fn drained<S: Speaker>(
    generator: &mut Generator<S>,
    script: &mut impl Script<S>,
) -> Result<(), String> {
    let until = generator.now() + DRAIN.as_nanos() as u64;
    generator.run(script, until)?;
    if script.is_done() {
        Ok(())
    } else {
        Err(format!(
            "requests were still unanswered {} s after the end",
            DRAIN.as_secs()
        ))
    }
}
