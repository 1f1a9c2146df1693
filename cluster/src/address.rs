//! Addresses that other machines dial, as opposed to those that a node listens on.

use std::net::IpAddr;

/// Whether a host and a port stand for all addresses of a machine, like `0.0.0.0:7500`. A node can
/// listen there. A peer or a client that dials it reaches its own machine.
pub fn is_wildcard(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().is_unspecified(),
        // The system reads `0` as 0.0.0.0, and people write `*`.
        Err(_) => host == "*" || host.split('.').all(|part| part.parse::<u32>() == Ok(0)),
    }
}

/// Refuses an address at which the other nodes cannot reach this one. The error says what would be
/// right.
pub fn check_peer(node: u64, address: &str) -> Result<(), String> {
    match is_wildcard(address) {
        false => Ok(()),
        true => Err(format!(
            "{node}={address} stands for all addresses of a machine, and a node that dials it reaches itself: write one at \
             which the other nodes reach node {node}, like {node}=10.0.0.1:7500. On which address it listens, its --peer-listen says"
        )),
    }
}

/// The same for what a node tells of itself to clients; `listen` is the flag for where it listens.
pub fn check_advertised(address: &str, listen: &str) -> Result<(), String> {
    match is_wildcard(address) {
        false => Ok(()),
        true => Err(format!(
            "{address} stands for all addresses of a machine, and a client that is told it reaches itself: write one at which \
             clients reach this node, like 10.0.0.1:7400. On which address it listens, {listen} says"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_no_machine_in_particular_are_known() {
        for wildcard in [
            "0.0.0.0:7500",
            "[::]:7500",
            ":::7500",
            "[::0]:1",
            "[0:0:0:0:0:0:0:0]:1",
            "[::ffff:0.0.0.0]:1",
            "0:1",
            "0.0:1",
            "000.0.0.0:1",
            "*:1",
        ] {
            assert!(is_wildcard(wildcard), "{wildcard}");
        }
        for address in [
            "10.0.0.0:1",
            "0.0.0.1:1",
            "127.0.0.1:1",
            "[::1]:1",
            "[::ffff:10.0.0.1]:1",
            "node-0:1",
            "node.0:1",
        ] {
            assert!(!is_wildcard(address), "{address}");
        }
    }
}
