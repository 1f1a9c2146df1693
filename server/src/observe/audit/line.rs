//! The JSON of an audit event.

use super::{Event, What};
use crate::observe::json_text::text_and_hex;
use engine::Lost;
use serde::Serialize;
use std::borrow::Cow;
use std::time::SystemTime;

/// One line. Fields that do not apply to an event are left out.
#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    /// RFC 3339, UTC, milliseconds.
    time: String,
    event: &'static str,
    key: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    fence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<u64>,
    /// Left out for a session that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_name: Option<&'a str>,
    #[serde(flatten)]
    rest: Rest<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Rest<'a> {
    Grant {
        is_shared: bool,
        /// `null`: as long as its session.
        ttl_ms: Option<u32>,
        wait_ms: u64,
        hold_count: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        trace_id: Option<&'a str>,
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
    Force {},
}

/// A line about the log itself.
#[derive(Serialize)]
struct Remark {
    seq: u64,
    time: String,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
}

pub(super) fn append_event(out: &mut Vec<u8>, seq: u64, time: SystemTime, event: &Event) {
    let (key, key_hex) = text_and_hex(&event.key);
    let (name, rest) = match &event.what {
        What::Grant {
            mode,
            ttl_ms,
            wait_ms,
            hold_count,
            trace_id,
        } => {
            let rest = Rest::Grant {
                is_shared: mode.is_shared(),
                ttl_ms: *ttl_ms,
                wait_ms: *wait_ms,
                hold_count: *hold_count,
                trace_id: trace_id.as_deref(),
            };
            ("grant", rest)
        }
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
        What::Force => ("force", Rest::Force {}),
    };
    let line = Line {
        seq,
        time: rfc3339(time),
        event: name,
        key,
        key_hex,
        fence: event.fence,
        session_id: event.session.as_ref().map(|session| session.public_id),
        client_name: event.session.as_ref().map(|session| &*session.client_name),
        rest,
    };
    append(out, &line);
}

pub(super) fn append_start(out: &mut Vec<u8>, seq: u64) {
    append_remark(out, seq, "start", Some(env!("CARGO_PKG_VERSION")), None);
}

pub(super) fn append_stop(out: &mut Vec<u8>, seq: u64) {
    append_remark(out, seq, "stop", None, None);
}

pub(super) fn append_dropped(out: &mut Vec<u8>, seq: u64, dropped: u64) {
    append_remark(out, seq, "dropped", None, Some(dropped));
}

fn append_remark(
    out: &mut Vec<u8>,
    seq: u64,
    event: &'static str,
    version: Option<&'static str>,
    dropped: Option<u64>,
) {
    let remark = Remark {
        seq,
        time: rfc3339(SystemTime::now()),
        event,
        version,
        dropped,
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
