//! The dispatcher: brings a peer's protocol and a workload together.

use super::measurement::Measurement;
use super::workload::{Setting, Waiting, Workload};
use super::{expiry, hot_key, many_keys, renew};
use crate::load::options::Options;
use crate::load::peers::etcd::Etcd;
use crate::load::peers::fencepost::Fencepost;
use crate::load::peers::redis::Redis;
use crate::load::peers::redlock::Redlock;
use crate::load::peers::{Peer, PeerName};
use crate::load::sample::Sample;
use crate::load::speaker::Speaker;

/// Measures one setting of one peer, once.
pub(crate) fn measure(peer: &Peer, setting: Setting, options: &Options) -> Result<Sample, String> {
    let measure = |addresses| Measurement {
        peer,
        options,
        setting,
        addresses,
    };
    let mut addresses = peer.loaded_addresses()?;
    match peer.name {
        PeerName::Fencepost
        | PeerName::FencepostTls
        | PeerName::FencepostNone
        | PeerName::FencepostLease
        | PeerName::FencepostCluster
        | PeerName::Server => {
            let speaker = match setting.workload {
                Workload::Renew => Fencepost::session_bound,
                _ => Fencepost::new,
            };
            with(&measure(&addresses), speaker)
        }
        PeerName::FencepostRights | PeerName::FencepostQuotas => {
            with(&measure(&addresses), Fencepost::entitled)
        }
        PeerName::Echo => with(&measure(&addresses), Fencepost::echo),
        PeerName::Redis
        | PeerName::RedisTls
        | PeerName::RedisAlways
        | PeerName::RedisFenced
        | PeerName::RedisWait
        | PeerName::Valkey => {
            let is_fenced = peer.name == PeerName::RedisFenced;
            let listens = setting.waiting == Waiting::Listen;
            if listens {
                // A connection that listens can do nothing else.
                addresses.push(addresses[0]);
            }
            let is_replicated = peer.name == PeerName::RedisWait;
            with(&measure(&addresses), || match is_replicated {
                true => Redis::waiting(listens),
                false => Redis::new(is_fenced, listens),
            })
        }
        PeerName::Redlock => with(&measure(&addresses), Redlock::default),
        PeerName::Etcd | PeerName::EtcdCluster => {
            let is_contended = setting.contenders > 0;
            with(&measure(&addresses), || Etcd::new(is_contended))
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
            // etcd's lock service has no look: an acquire of a held lock waits for it.
            let can_look = measurement.peer.name != PeerName::Etcd;
            renew::run(measurement, speaker, can_look)
        }
    }
}
