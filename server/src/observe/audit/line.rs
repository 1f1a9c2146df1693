//! The JSON of an audit event. `docs/audit.md` says what each field means.

use super::event::{
    About, Begun, Event, FirstLine, LastStop, LockEvent, Refused, RestoredCounts, ServerEvent,
    What, Who,
};
use crate::observe::json_text::text_and_hex;
use crate::session::operator::Operator;
use crate::session::redis_form;
use engine::Lost;
use serde::Serialize;
use std::borrow::Cow;
use std::time::SystemTime;

/// A line about a lock. Fields that do not apply to an event are left out.
#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    /// RFC 3339, UTC, milliseconds.
    time: String,
    event: &'static str,
    key: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// Left out for database 0, which native clients share.
    #[serde(skip_serializing_if = "Option::is_none")]
    db: Option<u8>,
    fence: u64,
    #[serde(flatten)]
    who: Names<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    #[serde(flatten)]
    rest: Rest<'a>,
}

#[derive(Serialize, Default)]
struct Names<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<u64>,
    /// Left out for a session that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_name: Option<&'a str>,
    /// Left out where the client did nothing itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_name: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Rest<'a> {
    Begun {
        is_shared: bool,
        /// `null`: as long as its session.
        ttl_ms: Option<u32>,
        wait_ms: u64,
        hold_count: u32,
        #[serde(flatten)]
        owner: Owner<'a>,
    },
    Restored {
        is_shared: bool,
        ttl_ms: Option<u32>,
        held_ms: u64,
        #[serde(flatten)]
        owner: Owner<'a>,
    },
    Release {
        held_ms: u64,
        hold_count: u32,
        /// `null` while a reentrant hold goes on.
        ended: Option<&'static str>,
    },
    Loss {
        held_ms: u64,
        late_ms: u64,
        ended: &'static str,
    },
    Nothing {},
}

/// What a client of Redis set.
#[derive(Serialize)]
struct Owner<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_token: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_token_hex: Option<String>,
}

impl<'a> Owner<'a> {
    fn new(token: Option<&'a [u8]>) -> Self {
        let (text, hex) = token.map(text_and_hex).unzip();
        Owner {
            owner_token: text,
            owner_token_hex: hex.flatten(),
        }
    }
}

/// A line about the server or the log itself.
#[derive(Serialize)]
struct Remark<T> {
    seq: u64,
    time: String,
    event: &'static str,
    #[serde(flatten)]
    rest: T,
}

#[derive(Serialize)]
struct Started {
    version: &'static str,
    last_stop: LastStop,
    grace_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_id: Option<u64>,
    #[serde(flatten)]
    counts: RestoredCounts,
}

#[derive(Serialize)]
struct Dropped {
    dropped: u64,
}

#[derive(Serialize)]
struct GraceOver {
    claimed: u64,
}

#[derive(Serialize)]
struct Lead {
    term: u64,
    #[serde(flatten)]
    counts: RestoredCounts,
}

#[derive(Serialize)]
struct Changed<'a> {
    #[serde(flatten)]
    who: Names<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    change: &'a str,
}

#[derive(Serialize)]
struct Refusal<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    db: Option<u8>,
    #[serde(flatten)]
    who: Names<'a>,
    what: &'static str,
    why: &'a str,
}

#[derive(Serialize)]
struct Nothing {}

/// `trace_id` is the one that a lock's line tells.
pub(super) fn append_event(
    out: &mut Vec<u8>,
    seq: u64,
    time: SystemTime,
    event: &Event,
    trace_id: Option<&str>,
) {
    match &event.about {
        About::Lock(lock) => append_lock(out, seq, time, lock, trace_id),
        About::Server(ServerEvent::GraceOver { claimed }) => {
            let claimed = *claimed;
            append_remark(out, seq, time, "grace_over", GraceOver { claimed });
        }
        About::Server(ServerEvent::Lead { term, counts }) => {
            let (term, counts) = (*term, *counts);
            append_remark(out, seq, time, "lead", Lead { term, counts });
        }
        About::Server(ServerEvent::Follow) => {
            append_remark(out, seq, time, "follow", Nothing {});
        }
        About::Server(ServerEvent::Changed { by, change }) => {
            let changed = Changed {
                who: operator_names(by),
                trace_id: by.trace_id.as_deref(),
                change,
            };
            append_remark(out, seq, time, "cluster", changed);
        }
        About::Refusal(refused) => append_refusal(out, seq, time, refused),
    }
}

fn append_lock(
    out: &mut Vec<u8>,
    seq: u64,
    time: SystemTime,
    lock: &LockEvent,
    trace_id: Option<&str>,
) {
    let (db, key) = match redis_form::split(&lock.key) {
        (0, _) => (None, &*lock.key),
        (db, key) => (Some(db), key),
    };
    let (key, key_hex) = text_and_hex(key);
    let (event, rest) = told(&lock.what);
    let line = Line {
        seq,
        time: rfc3339(time),
        event,
        key,
        key_hex,
        db,
        fence: lock.fence,
        who: names(&lock.who),
        trace_id,
        rest,
    };
    append(out, &line);
}

fn append_refusal(out: &mut Vec<u8>, seq: u64, time: SystemTime, refused: &Refused) {
    let named = refused.key.as_deref().map(redis_form::split);
    let (key, key_hex) = named.map(|(_, key)| text_and_hex(key)).unzip();
    let refusal = Refusal {
        key,
        key_hex: key_hex.flatten(),
        db: named.map(|(db, _)| db).filter(|db| *db != 0),
        who: names(&refused.who),
        what: refused.what,
        why: &refused.why,
    };
    append_remark(out, seq, time, "refuse", refusal);
}

fn names(who: &Who) -> Names<'_> {
    match who {
        Who::Stranger {
            address,
            token_name,
        } => Names {
            address: (!address.is_empty()).then_some(&**address),
            token_name: token_name.as_deref(),
            ..Names::default()
        },
        Who::Client(actor) => Names {
            session_id: Some(actor.session.public_id),
            client_name: Some(actor.client_name()),
            address: Some(&actor.address),
            token_name: actor.token_name.as_deref(),
        },
        Who::Operator(operator) => operator_names(operator),
        Who::Session(session) => Names {
            session_id: Some(session.public_id),
            client_name: Some(&session.client_name),
            ..Names::default()
        },
        Who::Gone { session_id } => Names {
            session_id: Some(*session_id),
            ..Names::default()
        },
        Who::Unknown => Names::default(),
    }
}

fn operator_names(operator: &Operator) -> Names<'_> {
    Names {
        address: Some(&operator.address),
        token_name: Some(&*operator.token_name).filter(|name| !name.is_empty()),
        ..Names::default()
    }
}

fn told(what: &What) -> (&'static str, Rest<'_>) {
    match what {
        What::Grant(begun) => ("grant", told_begun(begun)),
        What::Claim(begun) => ("claim", told_begun(begun)),
        What::Restore {
            mode,
            held_ms,
            ttl_ms,
            owner_token,
        } => {
            let rest = Rest::Restored {
                is_shared: mode.is_shared(),
                ttl_ms: *ttl_ms,
                held_ms: *held_ms,
                owner: Owner::new(owner_token.as_deref()),
            };
            ("restore", rest)
        }
        What::Lapse => ("lapse", Rest::Nothing {}),
        What::Release {
            held_ms,
            hold_count,
            is_returned,
        } => {
            let ended = match (hold_count, is_returned) {
                (0, false) => Some("released"),
                (0, true) => Some("returned"),
                _ => None,
            };
            let rest = Rest::Release {
                held_ms: *held_ms,
                hold_count: *hold_count,
                ended,
            };
            ("release", rest)
        }
        What::Loss {
            why,
            held_ms,
            late_ms,
        } => {
            let ended = match why {
                Lost::Expired => "expired",
                Lost::SessionEnded => "session_ended",
                Lost::Forced => "forced",
                Lost::Superseded => "superseded",
            };
            let rest = Rest::Loss {
                held_ms: *held_ms,
                late_ms: *late_ms,
                ended,
            };
            ("loss", rest)
        }
        What::Force { .. } => ("force", Rest::Nothing {}),
    }
}

fn told_begun(begun: &Begun) -> Rest<'_> {
    Rest::Begun {
        is_shared: begun.mode.is_shared(),
        ttl_ms: begun.ttl_ms,
        wait_ms: begun.wait_ms,
        hold_count: begun.hold_count,
        owner: Owner::new(begun.owner_token.as_deref()),
    }
}

pub(super) fn append_start(out: &mut Vec<u8>, seq: u64, first: &FirstLine) {
    let started = Started {
        version: env!("CARGO_PKG_VERSION"),
        last_stop: first.last_stop(),
        grace_ms: first.start.grace_ms,
        node_id: Some(first.start.node_id).filter(|node_id| *node_id != 0),
        counts: first.counts,
    };
    append_remark(out, seq, SystemTime::now(), "start", started);
}

/// `observe/history/files.rs` looks for this line, to the last byte.
pub(super) fn append_stop(out: &mut Vec<u8>, seq: u64) {
    append_remark(out, seq, SystemTime::now(), "stop", Nothing {});
}

pub(super) fn append_dropped(out: &mut Vec<u8>, seq: u64, dropped: u64) {
    append_remark(out, seq, SystemTime::now(), "dropped", Dropped { dropped });
}

fn append_remark(
    out: &mut Vec<u8>,
    seq: u64,
    time: SystemTime,
    event: &'static str,
    rest: impl Serialize,
) {
    let time = rfc3339(time);
    let remark = Remark {
        seq,
        time,
        event,
        rest,
    };
    append(out, &remark);
}

fn append(out: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *out, line).expect("strings and numbers, written to memory");
    out.push(b'\n');
}

fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}
