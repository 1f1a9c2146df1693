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
            // etcd's lock service has no look: an acquire of a held lock waits for it.
            let can_look = measurement.peer.name != PeerName::Etcd;
            renew::run(measurement, speaker, can_look)
        }
    }
}
