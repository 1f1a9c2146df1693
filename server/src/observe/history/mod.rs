//! What the files of an audit log tell, read back: who held a key at some moment, and what happened
//! to it in a span of time.
//!
//! All files of the log are read, oldest first, a line at a time, whatever the span: a lock may
//! have been granted long before. What is kept is bounded by what is asked for. Nothing here needs
//! a server.
//!
//! | file       | what                                                                   |
//! |------------|------------------------------------------------------------------------|
//! | `files.rs` | which files belong to a log, and how they end                          |
//! | `read.rs`  | their lines in order, and what is missing between them                 |
//! | `line.rs`  | one line                                                               |
//! | `story.rs` | who held the key at one moment                                         |

pub(crate) mod files;
mod line;
mod read;
mod story;
#[cfg(test)]
mod tests;

pub use line::Entry;
pub use read::{Coverage, Gap};
pub use story::{Hold, Party};

use line::Wanted;
use read::{Piece, read_log};
use serde::Serialize;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::SystemTime;
use story::Story;

/// A key, as a client of one Redis database calls it. Native clients use database 0.
#[derive(Clone, Copy, Debug)]
pub struct AuditKey<'a> {
    /// Its bytes.
    pub key: &'a [u8],
    /// The database.
    pub db: u8,
}

/// A span of time. `None`: without a bound on that side.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeSpan {
    /// The first moment that belongs to it.
    pub since: Option<SystemTime>,
    /// The last one.
    pub until: Option<SystemTime>,
}

impl TimeSpan {
    fn contains(&self, time: SystemTime) -> bool {
        self.since.is_none_or(|since| since <= time) && self.until.is_none_or(|until| time <= until)
    }
}

/// What happened to a key.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// The newest lines of the span, oldest first: about the key, and starts, stops and other lines
    /// about the server.
    pub entries: Vec<Entry>,
    /// How many older ones there are.
    pub left_out: u64,
    /// What the files cover.
    pub coverage: Coverage,
}

/// Who held a key at a moment.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The moment, in RFC 3339.
    pub at: String,
    /// Whether the files tell it for certain.
    pub is_certain: bool,
    /// None: the key was free, if that is certain.
    pub holders: Vec<Hold>,
    /// Why it is not certain, and what else is to be known.
    pub notes: Vec<String>,
    /// What the files cover.
    pub coverage: Coverage,
}

/// The newest `limit` lines about a key in a span of time.
pub fn timeline(
    log: &Path,
    key: AuditKey<'_>,
    span: TimeSpan,
    limit: usize,
) -> io::Result<Timeline> {
    let mut entries = VecDeque::new();
    let mut left_out = 0;
    let coverage = each_entry(log, key, span, |entry| {
        if entries.len() == limit {
            entries.pop_front();
            left_out += 1;
        }
        if limit > 0 {
            entries.push_back(entry.clone());
        }
        true
    })?;
    Ok(Timeline {
        entries: entries.into(),
        left_out,
        coverage,
    })
}

/// Calls `see` with every line about a key in a span of time, oldest first, until it says `false`.
pub fn each_entry(
    log: &Path,
    key: AuditKey<'_>,
    span: TimeSpan,
    mut see: impl FnMut(&Entry) -> bool,
) -> io::Result<Coverage> {
    let wanted = Wanted::new(key.key, key.db);
    let mut goes_on = true;
    read_log(log, |piece, coverage| {
        if let Piece::Line { bytes, .. } = piece
            && let Some(entry) = entry_of(bytes, &wanted, coverage)
            && goes_on
            && entry.at().is_some_and(|time| span.contains(time))
        {
            goes_on = see(&entry);
        }
    })
}

/// Who held a key at a moment, as far as the files can tell.
pub fn holders_at(log: &Path, key: AuditKey<'_>, at: SystemTime) -> io::Result<Answer> {
    let wanted = Wanted::new(key.key, key.db);
    let mut story = Story::new(at);
    let coverage = read_log(log, |piece, coverage| match piece {
        Piece::Gap => {
            let after = coverage.last_time.as_deref();
            story.miss(after.and_then(|time| humantime::parse_rfc3339(time).ok()));
        }
        Piece::Line { bytes, before } => {
            if let Some(entry) = entry_of(bytes, &wanted, coverage) {
                story.see(&entry, before);
            }
        }
    })?;
    let parse = |time: &Option<String>| {
        let time = time.as_deref();
        time.and_then(|time| humantime::parse_rfc3339(time).ok())
    };
    let told = story.finish(parse(&coverage.first_time), parse(&coverage.last_time));
    Ok(Answer {
        at: humantime::format_rfc3339_millis(at).to_string(),
        is_certain: told.is_certain,
        holders: told.holders,
        notes: told.notes,
        coverage,
    })
}

/// The line, if it is about the key or about no lock at all.
fn entry_of(bytes: &[u8], wanted: &Wanted, coverage: &mut Coverage) -> Option<Entry> {
    if !wanted.may_match(bytes) {
        return None;
    }
    let Ok(entry) = serde_json::from_slice::<Entry>(bytes) else {
        coverage.damaged += 1;
        return None;
    };
    coverage.dropped += entry.dropped.unwrap_or(0);
    (entry.is_of_server() || wanted.matches(&entry)).then_some(entry)
}
