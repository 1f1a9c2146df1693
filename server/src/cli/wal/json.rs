//! What `wal verify --json` and `wal dump --json` print.

use crate::cli::text::escaped;
use crate::cli::view::{Key, Metadata};
use serde::Serialize;
use wal::{Contents, Entry, Record, Recovered, ReplayError, Report};

/// The JSON of `verify`.
#[derive(Serialize)]
pub(super) struct VerifyReport<'a> {
    dir: String,
    sound: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
    files: Vec<File<'a>>,
    #[serde(flatten)]
    found: Option<Found>,
    #[serde(flatten)]
    of_node: Option<FoundNode>,
}

#[derive(Serialize)]
struct File<'a> {
    file: &'a str,
    role: &'a str,
    bytes: u64,
    records: u64,
}

#[derive(Serialize)]
struct Found {
    records: u64,
    scope: Option<String>,
    was_clean: bool,
    torn: Option<String>,
    ceiling_max: u64,
    horizon_unix_ms: u64,
    last_clock_unix_ms: u64,
    sessions: usize,
    leases: usize,
}

#[derive(Serialize)]
struct FoundNode {
    node: Option<u64>,
    records: u64,
    entries: u64,
    torn: Option<String>,
}

impl<'a> VerifyReport<'a> {
    pub(super) fn new(report: &'a Report) -> Self {
        let files = report.files.iter().map(|file| File {
            file: &file.name,
            role: file.role,
            bytes: file.bytes,
            records: file.records,
        });
        VerifyReport {
            dir: report.dir.display().to_string(),
            sound: report.outcome.is_ok(),
            damage: report.outcome.as_ref().err().map(ReplayError::to_string),
            files: files.collect(),
            found: match &report.outcome {
                Ok(Contents::Server(recovered)) => Some(Found::new(recovered)),
                _ => None,
            },
            of_node: match &report.outcome {
                &Ok(Contents::Node {
                    node,
                    records,
                    entries,
                    ref torn,
                }) => Some(FoundNode {
                    node,
                    records,
                    entries,
                    torn: torn.as_ref().map(|torn| torn.to_string()),
                }),
                _ => None,
            },
        }
    }
}

impl Found {
    fn new(recovered: &Recovered) -> Self {
        Found {
            records: recovered.records,
            scope: recovered.scope.map(|scope| scope.to_string()),
            was_clean: recovered.was_clean,
            torn: recovered.torn.as_ref().map(|torn| torn.to_string()),
            ceiling_max: recovered.ceiling_max,
            horizon_unix_ms: recovered.horizon_unix_ms,
            last_clock_unix_ms: recovered.last_clock_unix_ms,
            sessions: recovered.sessions.len(),
            leases: recovered.leases.count(),
        }
    }
}

/// One line of the JSON of `dump`.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum DumpLine<'a> {
    Record {
        file: &'a str,
        offset: u64,
        #[serde(flatten)]
        record: RecordJson,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        salvaged: bool,
    },
    Torn {
        torn: String,
    },
    Damage {
        damage: String,
    },
}

impl<'a> DumpLine<'a> {
    pub(super) fn new(entry: &Entry<'a>) -> Self {
        match *entry {
            Entry::Record {
                file,
                offset,
                record,
                is_salvaged,
            } => DumpLine::Record {
                file,
                offset,
                record: RecordJson::new(record),
                salvaged: is_salvaged,
            },
            Entry::Torn(torn) => DumpLine::Torn {
                torn: torn.to_string(),
            },
            Entry::Damage(error) => DumpLine::Damage {
                damage: error.to_string(),
            },
        }
    }
}

/// The contents of a record, under the names that the text of `dump` has.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum RecordJson {
    Started {
        unix_ms: u64,
        scope: String,
    },
    CleanStop {
        unix_ms: u64,
    },
    Ceiling {
        shard: u16,
        fence: u64,
    },
    Horizon {
        unix_ms: u64,
        lease_ms_max: Option<u32>,
    },
    Clock {
        unix_ms: u64,
        wall_unix_ms: Option<u64>,
    },
    SessionOpened {
        session_id: u64,
        ttl_ms: u32,
        until_unix_ms: u64,
        name: String,
    },
    SessionKept {
        session_id: u64,
        until_unix_ms: u64,
    },
    SessionEnded {
        session_id: u64,
    },
    Granted {
        #[serde(flatten)]
        key: Key,
        fence: u64,
        session_id: u64,
        is_shared: bool,
        is_session_bound: bool,
        is_long: bool,
        count: u32,
        since_unix_ms: u64,
        until_unix_ms: u64,
        #[serde(flatten)]
        metadata: Metadata,
    },
    Renewed {
        #[serde(flatten)]
        key: Key,
        fence: u64,
        until_unix_ms: u64,
    },
    Released {
        #[serde(flatten)]
        key: Key,
        fence: u64,
        count_left: u32,
    },
    Downgraded {
        #[serde(flatten)]
        key: Key,
        fence: u64,
    },
    Snapshot {
        unix_ms: u64,
        scope: String,
    },
    SnapshotShows {
        log_position: u64,
    },
    SnapshotEnd {
        records: u64,
        log_end: u64,
    },
    Continued {
        sequence: u64,
    },
    Synced,
    TurnsEnded,
    Answered {
        session_id: u64,
        request: u64,
        fence: u64,
        count: u32,
    },
    NodeIs {
        node: u64,
        disk: u64,
    },
    Vote {
        group: u16,
        term: u64,
        node: u64,
        is_committed: bool,
    },
    Entry {
        group: u16,
        index: u64,
        term: u64,
        node: u64,
        bytes: u32,
    },
    EntryPart {
        group: u16,
        bytes: usize,
    },
    Truncated {
        group: u16,
        from: u64,
    },
    Purged {
        group: u16,
        index: u64,
    },
    ImagePart {
        group: u16,
        bytes: usize,
    },
}

impl RecordJson {
    fn new(record: &Record<'_>) -> Self {
        match *record {
            Record::Started { unix_ms, scope } => RecordJson::Started {
                unix_ms,
                scope: scope.to_string(),
            },
            Record::CleanStop { unix_ms } => RecordJson::CleanStop { unix_ms },
            Record::Ceiling { shard, fence } => RecordJson::Ceiling { shard, fence },
            Record::Horizon {
                unix_ms,
                lease_ms_max,
            } => RecordJson::Horizon {
                unix_ms,
                lease_ms_max,
            },
            Record::Clock {
                unix_ms,
                wall_unix_ms,
            } => RecordJson::Clock {
                unix_ms,
                wall_unix_ms,
            },
            Record::SessionOpened {
                session,
                ttl_ms,
                deadline_unix_ms,
                name,
                ..
            } => RecordJson::SessionOpened {
                session_id: session,
                ttl_ms,
                until_unix_ms: deadline_unix_ms,
                name: escaped(name),
            },
            Record::SessionKept {
                session,
                deadline_unix_ms,
            } => RecordJson::SessionKept {
                session_id: session,
                until_unix_ms: deadline_unix_ms,
            },
            Record::SessionEnded { session } => RecordJson::SessionEnded {
                session_id: session,
            },
            Record::Granted(lease) | Record::GrantedLong(lease) => RecordJson::Granted {
                key: Key::new(lease.key),
                fence: lease.fence,
                session_id: lease.session,
                is_shared: lease.mode.is_shared(),
                is_session_bound: lease.is_session_bound,
                is_long: matches!(record, Record::GrantedLong(_)),
                count: lease.count,
                since_unix_ms: lease.granted_unix_ms,
                until_unix_ms: lease.until_unix_ms,
                metadata: Metadata::new(lease.note),
            },
            Record::Renewed {
                key,
                fence,
                until_unix_ms,
            } => RecordJson::Renewed {
                key: Key::new(key),
                fence,
                until_unix_ms,
            },
            Record::Released {
                key,
                fence,
                count_left,
            } => RecordJson::Released {
                key: Key::new(key),
                fence,
                count_left,
            },
            Record::Downgraded { key, fence } => RecordJson::Downgraded {
                key: Key::new(key),
                fence,
            },
            Record::SnapshotBegin { unix_ms, scope } => RecordJson::Snapshot {
                unix_ms,
                scope: scope.to_string(),
            },
            Record::SnapshotShows { log_position } => RecordJson::SnapshotShows { log_position },
            Record::SnapshotEnd {
                records, log_end, ..
            } => RecordJson::SnapshotEnd { records, log_end },
            Record::Continued { sequence } => RecordJson::Continued { sequence },
            Record::Synced => RecordJson::Synced,
            Record::TurnsEnded => RecordJson::TurnsEnded,
            Record::Answered {
                session,
                request,
                fence,
                count,
            } => RecordJson::Answered {
                session_id: session,
                request,
                fence,
                count,
            },
            Record::NodeIs { node, disk } => RecordJson::NodeIs { node, disk },
            Record::Vote {
                group,
                term,
                node,
                is_committed,
            } => RecordJson::Vote {
                group,
                term,
                node,
                is_committed,
            },
            Record::EntryBegin {
                group, id, bytes, ..
            } => RecordJson::Entry {
                group,
                index: id.index,
                term: id.term,
                node: id.node,
                bytes,
            },
            Record::EntryPart { group, part } => RecordJson::EntryPart {
                group,
                bytes: part.len(),
            },
            Record::Truncated { group, from } => RecordJson::Truncated { group, from },
            Record::Purged { group, id } => RecordJson::Purged {
                group,
                index: id.index,
            },
            Record::ImagePart { group, part } => RecordJson::ImagePart {
                group,
                bytes: part.len(),
            },
        }
    }
}
