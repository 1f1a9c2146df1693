//! One line of an audit log, as far as a reader needs it.

use crate::observe::json_text::text_and_hex;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// What a line says. The names are those of the file (`docs/audit.md`).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Entry {
    /// The number of the line.
    pub seq: u64,
    /// RFC 3339, UTC, milliseconds.
    pub time: String,
    /// `grant`, `claim`, `restore`, `lapse`, `release`, `loss`, `force`, `refuse`; of the server
    /// itself `start`, `stop`, `grace_over`, `lead`, `follow`, `dropped`.
    pub event: String,
    /// The key, escaped if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its bytes, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_hex: Option<String>,
    /// The Redis database, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db: Option<u8>,
    /// The fence of the hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The session of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<u64>,
    /// What the client calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// Where it connected from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The name of the token that it showed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_name: Option<String>,
    /// What a client of Redis set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_token: Option<String>,
    /// Its bytes, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_token_hex: Option<String>,
    /// The trace that the request belonged to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Whether the lock is shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_shared: Option<bool>,
    /// The lease that was asked for; none for one that ends with its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// How long the client waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// How long it was held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<u64>,
    /// How long after its end the server noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<u64>,
    /// How often a reentrant lock is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_count: Option<u32>,
    /// How a hold ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// How the server before stopped: `clean`, `crash`, `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_stop: Option<String>,
    /// How long holders may claim what they held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// Locks that a start or a reign put back, and those whose leases had run out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restored: Option<u64>,
    /// Leases that ran out while no server ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lapsed: Option<u64>,
    /// How many of both have no line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untold: Option<u64>,
    /// Locks that were claimed in a grace period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed: Option<u64>,
    /// Of a reign in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// The number of the node, in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<u64>,
    /// How many events were dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// What was refused: the request or the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Entry {
    /// When it happened.
    pub fn at(&self) -> Option<SystemTime> {
        humantime::parse_rfc3339(&self.time).ok()
    }

    /// Whether it tells of the server and not of a lock.
    pub fn is_of_server(&self) -> bool {
        self.key.is_none() && self.event != "refuse"
    }
}

/// The key that is looked for, in the forms that a line can have it in.
pub(super) struct Wanted {
    key: String,
    key_hex: Option<String>,
    db: Option<u8>,
    /// What every line about the key has, to the byte.
    needle: Vec<u8>,
}

/// What every line about a lock has.
const KEY_FIELD: &[u8] = b",\"key\":\"";

impl Wanted {
    /// `key` is what a client of database `db` calls it; native clients use database 0.
    pub(super) fn new(key: &[u8], db: u8) -> Self {
        let (text, key_hex) = text_and_hex(key);
        let mut needle = b",\"key\":".to_vec();
        serde_json::to_writer(&mut needle, &*text).expect("a string, written to memory");
        Wanted {
            key: text.into_owned(),
            key_hex,
            db: (db != 0).then_some(db),
            needle,
        }
    }

    /// Whether the line is worth parsing: it may be about the key, or is about no lock.
    pub(super) fn may_match(&self, line: &[u8]) -> bool {
        match memchr::memmem::find(line, KEY_FIELD) {
            None => true,
            Some(at) => line[at..].starts_with(&self.needle),
        }
    }

    pub(super) fn matches(&self, entry: &Entry) -> bool {
        entry.key.as_deref() == Some(&*self.key)
            && entry.key_hex == self.key_hex
            && entry.db == self.db
    }
}
