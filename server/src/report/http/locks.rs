//! Locks with their holders and queues, in JSON.

use super::parameters::{self, Listing};
use super::{Sent, View, forbid, json, refuse};
use crate::core::shared::Shared;
use crate::observe::json_text::text_and_hex;
use crate::rights::{Entitlement, Role};
use axum::extract::{Extension, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use engine::{Cursor, Holder, KEY_BYTES_MAX, Key, KeyState, Tick};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Locks on a page, unless the request says otherwise, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;

/// How many parts of the table one page reads. A part is [`PART`] locks or ten thousand keys, so a
/// page covers any table that is not huge. In a larger one, a short page still names the next.
const PARTS_MAX: usize = 256;

/// Locks read from the engine at a time. The engine copies all their holders.
const PART: usize = 32;

/// How many holders of a shared lock are shown at most: on a page, and of one lock alone.
const HOLDERS_ON_PAGE_MAX: usize = 16;
const HOLDERS_MAX: usize = 1000;

#[derive(Serialize)]
struct Page {
    locks: Vec<Lock>,
    /// The cursor of the next page; `null` after the last.
    next: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovering: Option<Recovering>,
}

/// The server recovers from a stop without notice: it does not know all holders, so a key that is
/// not listed may be held.
#[derive(Serialize)]
struct Recovering {
    remaining_ms: u32,
    /// The same as a wall-clock time.
    until: String,
}

impl Recovering {
    fn look(shared: &Shared) -> Option<Self> {
        let remaining_ms = shared.recovery.recovering_ms(shared.clock.now())?;
        let until = SystemTime::now() + Duration::from_millis(remaining_ms.into());
        Some(Recovering {
            remaining_ms,
            until: humantime::format_rfc3339_millis(until).to_string(),
        })
    }
}

#[derive(Serialize)]
pub(super) struct Lock {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// The fence of the last grant, even if it has ended.
    last_fence: u64,
    holder_count: usize,
    queue_length: u32,
    /// The first of them, in the order of their grants.
    holders: Vec<LockHolder>,
    /// Absent on a page, which has it once for all its locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovering: Option<Recovering>,
}

#[derive(Serialize)]
struct LockHolder {
    fence: u64,
    /// `null` for a grant so new that its owner is not recorded yet.
    session_id: Option<u64>,
    /// The name that the client gave itself.
    client_name: Option<String>,
    is_shared: bool,
    /// It is renewed with its session.
    is_session_bound: bool,
    /// More than 1 if it is held reentrantly.
    hold_count: u32,
    held_ms: u64,
    /// Unless it is renewed, and its session kept alive. `null`: it has no end.
    remaining_ms: Option<u64>,
    /// Its end is the end of its session.
    ends_with_session: bool,
    metadata: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_hex: Option<String>,
}

/// `/locks`
pub(super) async fn list(
    State(view): State<Arc<View>>,
    Extension(entitlement): Extension<Arc<Entitlement>>,
    Extension(sent): Extension<Sent>,
    uri: Uri,
) -> Response {
    let listing = match Listing::parse(uri.query().unwrap_or(""), PAGE_MAX) {
        Ok(listing) => listing,
        Err(sentence) => return refuse(StatusCode::BAD_REQUEST, &sentence),
    };
    if !entitlement.may_list(&listing.prefix) {
        return forbid(&view, &entitlement, Role::Read, &sent);
    }
    let shared = &view.shared();
    let limit = listing.limit.unwrap_or(PAGE);
    let mut locks = Vec::new();
    let mut next = Some(Cursor::from_bits(listing.cursor));
    for _ in 0..PARTS_MAX {
        let Some(from) = next else { break };
        let wanted = (limit - locks.len()).min(PART);
        if wanted == 0 {
            break;
        }
        let now = shared.clock.now();
        let part = shared.engine.list(&listing.prefix, from, wanted, now);
        let shown = part.keys.into_iter();
        for (key, state) in shown.filter(|(key, _)| entitlement.may_read(key)) {
            locks.push(lock(shared, &key, &state, HOLDERS_ON_PAGE_MAX, now));
        }
        next = part.next;
        // A health probe may be waiting for this thread.
        tokio::task::yield_now().await;
    }
    let next = next.map(|next| next.bits().to_string());
    let page = Page {
        locks,
        next,
        recovering: Recovering::look(shared),
    };
    json(StatusCode::OK, &page)
}

/// `/locks/{key}`, or `/locks/?key=` for keys that a path cannot carry: a browser takes `.` and
/// `..` for folders, however they are written.
pub(super) async fn one(
    State(view): State<Arc<View>>,
    Extension(entitlement): Extension<Arc<Entitlement>>,
    Extension(sent): Extension<Sent>,
    uri: Uri,
) -> Response {
    let path = uri.path();
    let bytes = match (path, uri.query()) {
        ("/locks/", Some(query)) => match parameters::key_of(query) {
            Ok(bytes) => bytes.into(),
            Err(sentence) => return refuse(StatusCode::BAD_REQUEST, &sentence),
        },
        _ => parameters::path_bytes(path.strip_prefix("/locks/").unwrap_or(path)),
    };
    let Ok(key) = Key::new(&bytes) else {
        let length = bytes.len();
        let message = format!("a key has 1 to {KEY_BYTES_MAX} bytes, this one has {length}");
        return refuse(StatusCode::BAD_REQUEST, &message);
    };
    if !entitlement.may_read(&bytes) {
        return forbid(&view, &entitlement, Role::Read, &sent);
    }
    let shared = view.shared();
    let now = shared.clock.now();
    let state = (shared.engine).query_up_to(key, HOLDERS_MAX, now);
    let recovering = Recovering::look(&shared);
    match (state, recovering) {
        (Some(state), recovering) => {
            let lock = Lock {
                recovering,
                ..lock(&shared, &bytes, &state, HOLDERS_MAX, now)
            };
            json(StatusCode::OK, &lock)
        }
        // Whether it is locked is not known, so "not found" would be a guess.
        (None, Some(recovering)) => {
            let sentence = format!(
                "the server is recovering until {} and does not know all holders: this key may be held",
                recovering.until
            );
            refuse(StatusCode::SERVICE_UNAVAILABLE, &sentence)
        }
        (None, None) => refuse(
            StatusCode::NOT_FOUND,
            "this key is not locked, and has not been for a while",
        ),
    }
}

/// A lock as it is now, as a page shows it; one that no session holds or waits for too.
pub(super) fn look(shared: &Shared, key: Key<'_>, now: Tick) -> Lock {
    let state = (shared.engine).query_up_to(key, HOLDERS_ON_PAGE_MAX, now);
    match state {
        Some(state) => lock(shared, key.bytes(), &state, HOLDERS_ON_PAGE_MAX, now),
        None => {
            let (key, key_hex) = text_and_hex(key.bytes());
            Lock {
                key: key.into_owned(),
                key_hex,
                last_fence: 0,
                holder_count: 0,
                queue_length: 0,
                holders: Vec::new(),
                recovering: None,
            }
        }
    }
}

fn lock(shared: &Shared, key: &[u8], state: &KeyState, holders_max: usize, now: Tick) -> Lock {
    let shown = state.holders.iter().take(holders_max);
    let (key, key_hex) = text_and_hex(key);
    Lock {
        key: key.into_owned(),
        key_hex,
        last_fence: state.fence.get(),
        holder_count: state.holder_count as usize,
        queue_length: state.queue_length,
        holders: shown.map(|holder| describe(shared, holder, now)).collect(),
        recovering: None,
    }
}

fn describe(shared: &Shared, holder: &Holder, now: Tick) -> LockHolder {
    let session = holder.owner.and_then(|owner| shared.registry().find(owner));
    let (metadata, metadata_hex) = text_and_hex(&holder.metadata);
    LockHolder {
        fence: holder.fence.get(),
        session_id: session.as_ref().map(|session| session.public_id),
        client_name: session.map(|session| session.client_name.to_string()),
        is_shared: holder.mode.is_shared(),
        is_session_bound: holder.is_session_bound,
        hold_count: holder.count,
        held_ms: holder.held_ms,
        remaining_ms: holder.end().map(|end| now.ms_until(end)),
        ends_with_session: holder.ends_with_session(),
        metadata: metadata.into_owned(),
        metadata_hex,
    }
}
