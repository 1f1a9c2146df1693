//! Where this node is reached, as it tells the other nodes and they tell clients.

use crate::config::Config;
use cluster::types::Member;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Where this node is reached.
pub(super) fn own_member(
    config: &Config,
    local_addr: SocketAddr,
    redis_addr: Option<SocketAddr>,
) -> Member {
    let peer = config.peers.address_of(config.node_id).unwrap_or_default();
    let or = |advertised: &str, bound: Option<SocketAddr>| match (advertised, bound) {
        // An address that stands for all of a machine's is of no use elsewhere. The other nodes
        // reach this one by its own address among the peers, so clients are told that host.
        ("", Some(bound)) if bound.ip().is_unspecified() => match peer.rsplit_once(':') {
            Some((host, _)) => format!("{host}:{}", bound.port()),
            None => bound.to_string(),
        },
        ("", bound) => bound.map(|bound| bound.to_string()).unwrap_or_default(),
        (advertised, _) => advertised.to_owned(),
    };
    Member {
        peer: peer.to_owned(),
        client: or(&config.advertise, Some(local_addr)),
        redis: or(&config.advertise_redis, redis_addr),
    }
}

/// The first members of a new cluster, if this node is to make it: the one with the lowest id does.
/// Where clients reach the others, those say themselves.
pub(super) fn first_members(config: &Config, own: &Member) -> BTreeMap<u64, Member> {
    let makes_it = config.peers.iter().next().map(|(id, _)| id) == Some(config.node_id);
    if !config.bootstrap || !makes_it {
        return BTreeMap::new();
    }
    let members = config.peers.iter().map(|(id, peer)| {
        let member = match id == config.node_id {
            true => own.clone(),
            false => Member {
                peer: peer.to_owned(),
                ..Member::default()
            },
        };
        (id, member)
    });
    members.collect()
}
