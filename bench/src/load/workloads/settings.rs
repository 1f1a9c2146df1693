//! The table of settings: what each workload is measured at, for each peer.

use super::renew;
use super::workload::{Setting, Waiting, Workload};
use crate::load::options::Options;
use crate::load::peers::PeerName;
use std::time::Duration;

/// Keys of `--many-keys`.
const MANY_KEYS: u64 = 1_000_000;

/// Keys of `--expiry` and `--renew`.
const MOST_KEYS: u64 = 10_000_000;

/// etcd takes some thousand locks a second; with so many times fewer of them it is done in the same
/// time as the others.
const ETCD_FEWER: u64 = 1_000;

/// Waiters for locks that run out: all of them, or as many as a peer without a queue can bear,
/// since they keep asking.
const WAITERS: u32 = 1_000;
const WAITERS_WHO_ASK: u32 = 100;

/// Contenders of `--handoff`: a pair, and a crowd.
const HANDOFF_CONTENDERS: [u32; 2] = [2, 50];

/// What a holder of `--handoff` does, so that all others are in the queue again when it gives the
/// lock back.
const HANDOFF_WORK: Duration = Duration::from_millis(1);

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
