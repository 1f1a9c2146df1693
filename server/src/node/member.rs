//! Where this node is reached, as it tells the other nodes and they tell clients.

use crate::config::Config;
use cluster::address::is_wildcard;
use cluster::types::Member;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

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
        ("", Some(bound)) if is_wildcard(&bound.to_string()) => match peer.rsplit_once(':') {
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

/// Says which host clients are told where it was not given: perhaps only nodes reach it.
pub(super) fn say_what_clients_are_told(config: &Config, own: &Member) {
    let listens = |address: &SocketAddr| is_wildcard(&address.to_string());
    if config.advertise.is_empty() && listens(&config.listen) {
        tracing::info!(
            address = own.client,
            "clients are told the host at which the other nodes reach this one, as --listen names none; --advertise says another"
        );
    }
    if config.advertise_redis.is_empty() && config.redis_listen.as_ref().is_some_and(listens) {
        tracing::info!(
            address = own.redis,
            "clients of Redis are told the host at which the other nodes reach this one, as --redis-listen names none; \
             --advertise-redis says another"
        );
    }
}

/// Says so if clients on other machines cannot reach a node that other machines' nodes do.
pub(super) fn say_if_only_this_machine_has_clients(config: &Config, own: &Member) {
    if is_for_this_machine_only(config) {
        tracing::warn!(
            listen = %config.listen,
            told = own.client,
            "--listen is an address of this machine only, so clients elsewhere reach this node only through something that \
             forwards to it. Otherwise give --listen an address that they reach, with --auth-token-file"
        );
    }
}

fn is_for_this_machine_only(config: &Config) -> bool {
    let peer = config.peers.address_of(config.node_id).unwrap_or_default();
    let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    let is_loopback = host.parse::<IpAddr>().map(|host| host.is_loopback());
    config.listen.ip().is_loopback() && !is_loopback.unwrap_or(host == "localhost")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Peers;

    #[test]
    fn a_node_whose_clients_must_be_on_its_machine_is_noticed() {
        let told = |peer: &str, listen: &str| {
            is_for_this_machine_only(&Config {
                node_id: 1,
                peers: Peers::parse(&format!("1={peer}")).unwrap(),
                listen: listen.parse().unwrap(),
                ..Config::default()
            })
        };
        assert!(told("10.0.0.1:7500", "127.0.0.1:7400"));
        assert!(told("node-1:7500", "[::1]:7400"));
        assert!(!told("10.0.0.1:7500", "0.0.0.0:7400"));
        assert!(!told("10.0.0.1:7500", "10.0.0.1:7400"));
        for here in ["127.0.0.1:7500", "[::1]:7500", "localhost:7500"] {
            assert!(!told(here, "127.0.0.1:7400"), "{here}");
        }
    }

    #[test]
    fn clients_are_told_the_host_of_the_peers_where_the_node_listens_on_all() {
        let config = Config {
            node_id: 2,
            peers: Peers::parse("1=10.0.0.1:7500,2=node-2:7500").unwrap(),
            ..Config::default()
        };
        let told = |listen: &str| {
            let redis = "[::]:6380".parse().unwrap();
            let own = own_member(&config, listen.parse().unwrap(), Some(redis));
            (own.client, own.redis)
        };
        let by_name = "node-2:7400".to_owned();
        let redis = "node-2:6380".to_owned();
        assert_eq!(told("0.0.0.0:7400"), (by_name.clone(), redis.clone()));
        assert_eq!(told("[::ffff:0.0.0.0]:7400"), (by_name, redis.clone()));
        assert_eq!(told("10.0.0.2:7400"), ("10.0.0.2:7400".to_owned(), redis));
    }
}
