//! Locks and sessions as the command line shows them. The fields of these types are the JSON of
//! `--json`; the methods write the text.

use super::text::{Align, Table, escaped, pairs, plural, time};
use fencepost::REMAINING_MAX;
use serde::Serialize;
use std::time::Duration;

/// One holder of a lock.
#[derive(Debug, Serialize)]
pub(super) struct Holder {
    pub(super) fence: u64,
    pub(super) session_id: u64,
    pub(super) client_name: String,
    pub(super) is_shared: bool,
    pub(super) is_session_bound: bool,
    /// More than 1 if it is held reentrantly.
    pub(super) hold_count: u32,
    pub(super) held_ms: u64,
    /// `null`: it has no end.
    pub(super) remaining_ms: Option<u64>,
    /// Its end is the end of its session.
    pub(super) ends_with_session: bool,
    #[serde(flatten)]
    pub(super) metadata: Metadata,
}

/// A key with its holders and its queue.
#[derive(Debug, Serialize)]
pub(super) struct Lock {
    #[serde(flatten)]
    pub(super) key: Key,
    /// The fence of the last grant, even if it has ended; 0 if the server knows of none.
    pub(super) last_fence: u64,
    /// More than `holders` has if there are too many to name.
    pub(super) holder_count: u32,
    pub(super) queue_length: u32,
    pub(super) holders: Vec<Holder>,
    /// The server recovers: it does not know all holders for this much longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recovering_ms: Option<u64>,
}

/// One session.
#[derive(Debug, Serialize)]
pub(super) struct Session {
    pub(super) session_id: u64,
    pub(super) client_name: String,
    pub(super) address: String,
    pub(super) age_ms: u64,
    pub(super) ttl_ms: u64,
    /// `null`: it never ends by itself.
    pub(super) remaining_ms: Option<u64>,
    pub(super) connection_count: u32,
    pub(super) lock_count: u32,
    pub(super) waiter_count: u32,
}

/// The bytes of a key. JSON has only text: bytes that are not UTF-8 are escaped there, and stand
/// beside it in hex.
#[derive(Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
}

/// The bytes of a holder's metadata, in the same form.
#[derive(Debug, Serialize)]
pub(super) struct Metadata {
    metadata: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_hex: Option<String>,
}

impl Key {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let (key, key_hex) = text_or_hex(bytes);
        Self { key, key_hex }
    }

    fn shown(&self) -> String {
        shown(&self.key, self.key_hex.is_some())
    }
}

impl Metadata {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let (metadata, metadata_hex) = text_or_hex(bytes);
        Self {
            metadata,
            metadata_hex,
        }
    }

    fn shown(&self) -> String {
        shown(&self.metadata, self.metadata_hex.is_some())
    }
}

/// JSON on a line of its own.
pub(super) fn to_line(json: &impl Serialize) -> String {
    let mut line = serde_json::to_string(json).expect("nothing here can fail to be JSON");
    line.push('\n');
    line
}

fn text_or_hex(bytes: &[u8]) -> (String, Option<String>) {
    match str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => {
            let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            (escaped(bytes), Some(hex))
        }
    }
}

fn shown(text: &str, is_escaped: bool) -> String {
    match is_escaped {
        true => text.to_owned(),
        false => escaped(text.as_bytes()),
    }
}

fn whole_ms(time: Duration) -> u64 {
    time.as_millis() as u64
}

fn ms(time_ms: u64) -> String {
    time(Duration::from_millis(time_ms))
}

/// The time that is left, as text.
fn left(remaining_ms: Option<u64>) -> String {
    match remaining_ms {
        None => "no end".to_owned(),
        // The answer has no room for longer times.
        Some(remaining_ms) if remaining_ms >= whole_ms(REMAINING_MAX) => {
            format!("over {}", ms(remaining_ms))
        }
        Some(remaining_ms) => ms(remaining_ms),
    }
}

/// The sentence for a server that recovers and does not know all holders yet.
pub(super) fn recovering(left: Duration) -> String {
    format!(
        "recovering from a restart for {} more: until then it does not know all holders and grants nothing new",
        time(left)
    )
}

/// The client's name, or a dash if it gave none.
fn name_or_dash(name: &str) -> String {
    match name {
        "" => "-".to_owned(),
        name => escaped(name.as_bytes()),
    }
}

impl From<fencepost::Holder> for Holder {
    fn from(holder: fencepost::Holder) -> Self {
        Self {
            fence: holder.fence.get(),
            session_id: holder.session_id,
            client_name: holder.client_name,
            is_shared: holder.mode.is_shared(),
            is_session_bound: holder.is_session_bound,
            hold_count: holder.hold_count,
            held_ms: whole_ms(holder.held_for),
            remaining_ms: holder.remaining.map(whole_ms),
            ends_with_session: holder.ends_with_session,
            metadata: Metadata::new(&holder.metadata),
        }
    }
}

impl Holder {
    /// The holder in one sentence, for a caller that did not get the lock.
    pub(super) fn describe(&self) -> String {
        let mut text = format!(
            "held by {} (session {}) under fence {} for {}, {}",
            name_or_dash(&self.client_name),
            self.session_id,
            self.fence,
            ms(self.held_ms),
            match (self.remaining_ms, self.ends_with_session) {
                (None, _) => "without an end".to_owned(),
                (_, false) => format!("for {} more unless renewed", left(self.remaining_ms)),
                (_, true) => format!(
                    "for {} more unless its session is kept alive",
                    left(self.remaining_ms)
                ),
            },
        );
        if !self.metadata.metadata.is_empty() {
            text.push_str(&format!("; its note: {}", self.metadata.shown()));
        }
        text
    }

    fn lease(&self) -> String {
        match (self.remaining_ms, self.ends_with_session) {
            (None, _) => left(None),
            (_, false) => format!("{} left", left(self.remaining_ms)),
            (_, true) if self.is_session_bound => {
                format!("{} left, with its session", left(self.remaining_ms))
            }
            (_, true) => format!(
                "{} left: its session ends before its own lease",
                left(self.remaining_ms)
            ),
        }
    }
}

impl From<fencepost::LockInfo> for Lock {
    fn from(lock: fencepost::LockInfo) -> Self {
        Self {
            key: Key::new(&lock.key),
            last_fence: lock.last_fence.map_or(0, u64::from),
            holder_count: lock.contention.holder_count,
            queue_length: lock.contention.queue_length,
            holders: lock
                .contention
                .holder
                .into_iter()
                .map(Holder::from)
                .collect(),
            recovering_ms: None,
        }
    }
}

impl Lock {
    pub(super) fn new(key: &[u8], state: fencepost::KeyState) -> Self {
        Self {
            key: Key::new(key),
            last_fence: state.last_fence.map_or(0, u64::from),
            holder_count: state.holder_count,
            queue_length: state.queue_length,
            holders: state.holders.into_iter().map(Holder::from).collect(),
            recovering_ms: state.recovering.map(whole_ms),
        }
    }

    /// The text of `query`.
    pub(super) fn to_text(&self) -> String {
        let state = match (self.holder_count, self.holders.first()) {
            (0, _) if self.recovering_ms.is_some() => "not known, it may be held".to_owned(),
            (0, _) => "free".to_owned(),
            (_, Some(holder)) if !holder.is_shared => "held".to_owned(),
            (count, _) => format!("shared by {count}"),
        };
        let mut lines = vec![("key", self.key.shown()), ("state", state)];
        if let Some(recovering_ms) = self.recovering_ms {
            lines.push(("server", recovering(Duration::from_millis(recovering_ms))));
        }
        if self.holder_count > 0 || self.queue_length > 0 {
            lines.push(("queue", format!("{} waiting", self.queue_length)));
        }
        if let ([holder], 1) = (&self.holders[..], self.holder_count) {
            let client = name_or_dash(&holder.client_name);
            lines.push(("holder", format!("{client}, session {}", holder.session_id)));
            lines.push(("fence", holder.fence.to_string()));
            if holder.hold_count > 1 {
                lines.push(("holds", format!("{} times, reentrantly", holder.hold_count)));
            }
            lines.push(("held for", ms(holder.held_ms)));
            lines.push(("lease", holder.lease()));
            if !holder.metadata.metadata.is_empty() {
                lines.push(("note", holder.metadata.shown()));
            }
            return pairs(&lines);
        }
        if self.holders.is_empty() {
            return pairs(&lines);
        }
        let mut table = Table::new(&[
            ("HOLDER", Align::Left),
            ("SESSION", Align::Right),
            ("FENCE", Align::Right),
            ("HELD", Align::Right),
            ("LEFT", Align::Right),
            ("NOTE", Align::Left),
        ]);
        for holder in &self.holders {
            table.row(vec![
                name_or_dash(&holder.client_name),
                holder.session_id.to_string(),
                holder.fence.to_string(),
                ms(holder.held_ms),
                left(holder.remaining_ms),
                holder.metadata.shown(),
            ]);
        }
        let mut text = format!("{}\n{table}", pairs(&lines));
        let more = u64::from(self.holder_count).saturating_sub(self.holders.len() as u64);
        if more > 0 {
            text.push_str(&format!("and {} more\n", plural(more, "holder")));
        }
        text
    }

    /// The text of `list`: a line for each key.
    pub(super) fn table(locks: &[Self]) -> String {
        let mut table = Table::new(&[
            ("KEY", Align::Left),
            ("HOLDER", Align::Left),
            ("FENCE", Align::Right),
            ("HELD", Align::Right),
            ("LEFT", Align::Right),
            ("QUEUE", Align::Right),
            ("NOTE", Align::Left),
        ]);
        for lock in locks {
            let first = lock.holders.first();
            let cell = |show: fn(&Holder) -> String| first.map_or_else(|| "-".to_owned(), show);
            let others = match lock.holder_count {
                0 | 1 => String::new(),
                count => format!(" +{}", count - 1),
            };
            table.row(vec![
                lock.key.shown(),
                cell(|holder| name_or_dash(&holder.client_name)) + &others,
                cell(|holder| holder.fence.to_string()),
                cell(|holder| ms(holder.held_ms)),
                cell(|holder| left(holder.remaining_ms)),
                lock.queue_length.to_string(),
                first.map_or_else(String::new, |holder| holder.metadata.shown()),
            ]);
        }
        table.to_string()
    }
}

impl From<fencepost::SessionInfo> for Session {
    fn from(session: fencepost::SessionInfo) -> Self {
        Self {
            session_id: session.session_id,
            client_name: session.client_name,
            address: session.address,
            age_ms: whole_ms(session.age),
            ttl_ms: whole_ms(session.ttl),
            remaining_ms: session.remaining.map(whole_ms),
            connection_count: session.connection_count,
            lock_count: session.lock_count,
            waiter_count: session.waiter_count,
        }
    }
}

impl Session {
    /// The text of `sessions`: a line for each session.
    pub(super) fn table(sessions: &[Self]) -> String {
        let mut table = Table::new(&[
            ("SESSION", Align::Right),
            ("CLIENT", Align::Left),
            ("ADDRESS", Align::Left),
            ("AGE", Align::Right),
            ("TTL", Align::Right),
            ("LEFT", Align::Right),
            ("CONNECTIONS", Align::Right),
            ("LOCKS", Align::Right),
            ("WAITING", Align::Right),
        ]);
        for session in sessions {
            table.row(vec![
                session.session_id.to_string(),
                name_or_dash(&session.client_name),
                name_or_dash(&session.address),
                ms(session.age_ms),
                ms(session.ttl_ms),
                left(session.remaining_ms),
                session.connection_count.to_string(),
                session.lock_count.to_string(),
                session.waiter_count.to_string(),
            ]);
        }
        table.to_string()
    }
}

#[cfg(test)]
mod tests;
