//! The nodes of a cluster, as a setting: `1=10.0.0.1:7500,2=10.0.0.2:7500`.

use cluster::address::check_peer;
use std::collections::BTreeMap;
use std::fmt;

/// Where the nodes of a cluster reach each other, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd)]
pub struct Peers(BTreeMap<u64, String>);

impl Peers {
    /// These nodes.
    pub fn new(nodes: impl IntoIterator<Item = (u64, String)>) -> Self {
        Peers(nodes.into_iter().collect())
    }

    /// Reads them. The error says what would be right.
    pub fn parse(text: &str) -> Result<Peers, String> {
        let mut nodes = BTreeMap::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let node = part.split_once('=').and_then(|(id, address)| {
                let id: u64 = id.trim().parse().ok()?;
                let address = address.trim();
                (id != 0 && is_host_and_port(address)).then(|| (id, address.to_owned()))
            });
            let Some((id, address)) = node else {
                return Err(format!(
                    "{part:?} is no node: write its id and address, like 1=10.0.0.1:7500, and commas between nodes"
                ));
            };
            if nodes.insert(id, address).is_some() {
                return Err(format!("node {id} is named twice"));
            }
        }
        if nodes.len() > cluster::types::NODES_MAX {
            return Err(format!(
                "{} nodes are named, at most {} are allowed",
                nodes.len(),
                cluster::types::NODES_MAX
            ));
        }
        Ok(Peers(nodes))
    }

    /// Refuses addresses that the nodes could not dial. The error says what would be right.
    pub fn check(&self) -> Result<(), String> {
        self.iter()
            .try_for_each(|(node, address)| check_peer(node, address))
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where a node is reached by the others.
    pub fn address_of(&self, node: u64) -> Option<&str> {
        self.0.get(&node).map(String::as_str)
    }

    /// All nodes, by id.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &str)> {
        self.0.iter().map(|(id, address)| (*id, address.as_str()))
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (id, address)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{id}={address}")?;
        }
        Ok(())
    }
}

/// Whether this names a host and a port.
pub(super) fn is_host_and_port(text: &str) -> bool {
    text.len() <= cluster::types::ADDRESS_BYTES_MAX
        && text.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty()
                && !host.contains(char::is_whitespace)
                && port.parse::<u16>().is_ok_and(|port| port != 0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_back_as_they_are_shown() {
        let text = "1=10.0.0.1:7500,2=[::1]:7500,7=node-7.example:7500";
        let peers = Peers::parse(text).unwrap();
        assert_eq!(peers.to_string(), text);
        assert_eq!(peers.address_of(2), Some("[::1]:7500"));
        assert_eq!(Peers::parse(" ").unwrap(), Peers::default());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for wrong in ["1", "1=host", "0=host:1", "x=host:1", "1=host:0", "1=a b:1"] {
            assert!(Peers::parse(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
        assert!(Peers::parse("1=a:1,1=b:1").unwrap_err().contains("twice"));
    }
}
