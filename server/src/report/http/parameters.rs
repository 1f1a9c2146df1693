//! Keys in paths and parameters in queries. Keys are any bytes, so percent-encoding is decoded to
//! bytes, here and nowhere else.

use crate::config::Peers;
use percent_encoding::percent_decode;
use std::borrow::Cow;
use std::fmt;

/// Whether a query names this flag, and names nothing else. `None`: it names something else.
pub(super) fn flag(query: Option<&str>, name: &str) -> Option<bool> {
    match query {
        None | Some("") => Some(false),
        Some(given) if given.strip_suffix('=').unwrap_or(given) == name => Some(true),
        Some(_) => None,
    }
}

/// What `/locks` can be asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) prefix: Vec<u8>,
    pub(super) limit: Option<usize>,
    pub(super) cursor: u32,
}

impl Listing {
    /// Reads a query string. The error is a sentence for its author.
    pub(super) fn parse(query: &str, limit_max: usize) -> Result<Listing, String> {
        let mut listing = Listing::default();
        for (name, value) in pairs(query) {
            match name {
                "prefix" => listing.prefix = value,
                // A form sends an empty value for a field that was not filled in.
                "limit" | "cursor" if value.is_empty() => {}
                "limit" => listing.limit = Some(limit(&value, limit_max)?),
                "cursor" => listing.cursor = number(&value).ok_or(CURSOR_IS)?,
                name => return Err(unknown(name, "prefix, limit and cursor")),
            }
        }
        Ok(listing)
    }
}

/// What `/sessions` can be asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SessionsAsked {
    /// A part of the client's name.
    pub(super) name: String,
    pub(super) limit: Option<usize>,
    pub(super) cursor: u64,
}

impl SessionsAsked {
    /// Reads a query string. The error is a sentence for its author.
    pub(super) fn parse(query: &str, limit_max: usize) -> Result<SessionsAsked, String> {
        let mut asked = SessionsAsked::default();
        for (name, value) in pairs(query) {
            match name {
                "name" => {
                    asked.name = String::from_utf8(value).map_err(|_| "name is UTF-8 text")?;
                }
                "limit" | "cursor" if value.is_empty() => {}
                "limit" => asked.limit = Some(limit(&value, limit_max)?),
                "cursor" => asked.cursor = number(&value).ok_or(CURSOR_IS)?,
                name => return Err(unknown(name, "name, limit and cursor")),
            }
        }
        Ok(asked)
    }
}

const CURSOR_IS: &str = "cursor is what the page before this one gave as its next";

fn limit(value: &[u8], limit_max: usize) -> Result<usize, String> {
    let limit = number(value).filter(|limit| (1..=limit_max).contains(limit));
    limit.ok_or_else(|| format!("limit is a number from 1 to {limit_max}"))
}

fn unknown(name: &str, known: &str) -> String {
    format!("there is no parameter {name:?}, only {known}")
}

/// The parameters of a query, by name.
fn pairs(query: &str) -> impl Iterator<Item = (&str, Vec<u8>)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name, form_value(value))
    })
}

/// The prefix that a query asks for.
pub(crate) fn prefix_of(query: &str) -> Result<Vec<u8>, String> {
    Listing::parse(query, usize::MAX).map(|listing| listing.prefix)
}

/// The key that a query names.
pub(super) fn key_of(query: &str) -> Result<Vec<u8>, String> {
    match query.split_once('=') {
        Some(("key", value)) if !value.contains('&') => Ok(form_value(value)),
        _ => Err("there is one parameter, key".to_owned()),
    }
}

/// The lock that a query names.
pub(super) fn key_and_fence(query: &str) -> Result<(Vec<u8>, u64), String> {
    let (mut key, mut fence) = (None, None);
    for (name, value) in pairs(query) {
        match name {
            "key" => key = Some(value),
            "fence" => fence = Some(number(&value).ok_or("fence is a number")?),
            name => return Err(unknown(name, "key and fence")),
        }
    }
    match (key, fence) {
        (Some(key), Some(fence)) => Ok((key, fence)),
        _ => Err("key and fence say which lock: the fence that it is held under".to_owned()),
    }
}

/// What a cluster can be asked to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Add { node: u64, peer: String },
    Remove { node: u64 },
    Transfer { to: u64 },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Add { node, peer } => write!(f, "add node {node} at {peer}"),
            Change::Remove { node } => write!(f, "remove node {node}"),
            Change::Transfer { to } => write!(f, "have node {to} lead"),
        }
    }
}

/// The change that the end of a path and a query ask for. The error is a sentence for its author.
pub(super) fn change_of(what: &str, query: &str) -> Result<Change, String> {
    let (mut id, mut peer) = (None, None);
    let id_name = match what {
        "transfer" => "to",
        _ => "node",
    };
    for (name, value) in pairs(query) {
        match name {
            name if name == id_name => {
                id = Some(number(&value).ok_or_else(|| {
                    format!("{name} must be the id of a node, which is a number")
                })?);
            }
            "peer" if what == "add" => {
                let address = String::from_utf8(value).ok();
                // As the settings of a node read it.
                let is_address = |address: &String| Peers::parse(&format!("1={address}")).is_ok();
                let address = address.filter(is_address);
                peer = Some(address.ok_or("peer is HOST:PORT, where the other nodes reach it")?);
            }
            name => return Err(format!("there is no parameter {name:?} here")),
        }
    }
    match (what, id, peer) {
        ("add", Some(node), Some(peer)) => Ok(Change::Add { node, peer }),
        ("add", ..) => {
            Err("node and peer say which node, and where the others reach it".to_owned())
        }
        ("remove", Some(node), None) => Ok(Change::Remove { node }),
        ("transfer", Some(to), None) => Ok(Change::Transfer { to }),
        ("remove" | "transfer", ..) => Err(format!("{id_name} says which node: its id")),
        _ => Err("a cluster can be asked to add, remove and transfer".to_owned()),
    }
}

/// The bytes of a key in a path.
pub(crate) fn path_bytes(path: &str) -> Cow<'_, [u8]> {
    percent_decode(path.as_bytes()).into()
}

/// The bytes of a value in a query, where a plus is a space as in forms.
fn form_value(value: &str) -> Vec<u8> {
    percent_decode(value.replace('+', " ").as_bytes()).collect()
}

fn number<T: std::str::FromStr>(value: &[u8]) -> Option<T> {
    // `parse` would also take a sign.
    let digits = std::str::from_utf8(value).ok()?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_forms_write_them() {
        let listing = Listing::parse("prefix=a%2Fb+c%ff&limit=7&cursor=16777217", 10).unwrap();
        assert_eq!(listing.prefix, b"a/b c\xff");
        assert_eq!(listing.limit, Some(7));
        assert_eq!(listing.cursor, 16_777_217);
        assert_eq!(Listing::parse("", 10), Ok(Listing::default()));
        assert_eq!(
            Listing::parse("prefix=&limit=&cursor=", 10),
            Ok(Listing::default())
        );
        assert_eq!(Listing::parse("&&prefix", 10), Ok(Listing::default()));
    }

    #[test]
    fn mistakes_get_a_sentence() {
        let sentence = |query| Listing::parse(query, 10).unwrap_err();
        for query in ["limit=0", "limit=11", "limit=x", "limit=-1", "limit=%2B3"] {
            assert_eq!(sentence(query), "limit is a number from 1 to 10", "{query}");
        }
        assert!(sentence("cursor=4294967296").starts_with("cursor is what"));
        assert!(sentence("prefxi=a").contains("\"prefxi\""));
    }

    #[test]
    fn a_path_carries_any_bytes() {
        assert_eq!(&*path_bytes("orders%2F42/%ff%00+"), b"orders/42/\xff\0+");
        assert_eq!(&*path_bytes("100%"), b"100%");
    }

    #[test]
    fn changes_of_a_cluster_are_read_whole_or_not_at_all() {
        let add = Change::Add {
            node: 4,
            peer: "10.0.0.4:7500".to_owned(),
        };
        assert_eq!(change_of("add", "node=4&peer=10.0.0.4%3A7500"), Ok(add));
        assert_eq!(
            change_of("remove", "node=3"),
            Ok(Change::Remove { node: 3 })
        );
        assert_eq!(
            change_of("transfer", "to=2"),
            Ok(Change::Transfer { to: 2 })
        );
        for (what, query) in [
            ("add", "node=4"),
            ("add", "node=4&peer=nowhere"),
            ("add", "node=4&peer=a%2Cb%3D1:2"),
            ("add", "node=x&peer=a:1"),
            ("remove", ""),
            ("remove", "to=3"),
            ("remove", "node=3&peer=a:1"),
            ("transfer", "node=2"),
            ("transfer", "to=-1"),
            ("restore", "to=1"),
        ] {
            assert!(change_of(what, query).is_err(), "{what} {query}");
        }
        let sentence = change_of("remove", "node=x").unwrap_err();
        assert_eq!(sentence, "node must be the id of a node, which is a number");
    }
}
