//! `/sessions`: who is connected, in pages.

use super::parameters::SessionsAsked;
use super::{Sent, View, forbid, json, refuse};
use crate::core::shared::Shared;
use crate::rights::{Entitlement, Role};
use crate::session::Session;
use axum::extract::{Extension, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use engine::Tick;
use serde::Serialize;
use std::sync::Arc;

/// Sessions on a page, unless the request says otherwise, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;

/// How many sessions one page looks at. A page of a rare name may be short and still have a next
/// one.
const LOOKED_AT_MAX: usize = 10_000;

/// How many of them at a time.
const PART: usize = 500;

#[derive(Serialize)]
struct Page {
    sessions: Vec<Entry>,
    /// The cursor of the next page; `null` after the last.
    next: Option<String>,
}

#[derive(Serialize)]
struct Entry {
    session_id: u64,
    client_name: String,
    /// Of the newest connection; `null` if there is none.
    address: Option<String>,
    age_ms: u64,
    ttl_ms: u32,
    /// How long until it ends, unless it is kept alive; `null`: it does not.
    remaining_ms: Option<u64>,
    connection_count: usize,
    lock_count: u32,
    waiter_count: u32,
}

/// `/sessions`
pub(super) async fn list(
    State(view): State<Arc<View>>,
    Extension(entitlement): Extension<Arc<Entitlement>>,
    Extension(sent): Extension<Sent>,
    uri: Uri,
) -> Response {
    if !entitlement.may_read_all() {
        return forbid(&view, &entitlement, Role::Read, &sent);
    }
    let asked = match SessionsAsked::parse(uri.query().unwrap_or(""), PAGE_MAX) {
        Ok(asked) => asked,
        Err(sentence) => return refuse(StatusCode::BAD_REQUEST, &sentence),
    };
    let shared = &view.shared();
    let limit = asked.limit.unwrap_or(PAGE);
    let now = shared.clock.now();
    let mut sessions = Vec::new();
    let mut next = Some(asked.cursor);
    for _ in 0..LOOKED_AT_MAX / PART {
        let Some(after) = next else { break };
        let part = shared.registry().page(after, PART);
        next = (part.len() == PART).then(|| part[PART - 1].public_id);
        let named = part
            .iter()
            .filter(|one| one.client_name.contains(&*asked.name));
        for session in named.take(limit - sessions.len()) {
            sessions.push(entry(shared, session, now));
            let is_last = sessions.len() == limit;
            // The rest of this part is on the next page.
            if is_last
                && part
                    .last()
                    .is_some_and(|last| last.public_id > session.public_id)
            {
                next = Some(session.public_id);
            }
        }
        if sessions.len() == limit {
            break;
        }
        // A health probe may be waiting for this thread.
        tokio::task::yield_now().await;
    }
    let page = Page {
        sessions,
        next: next.map(|next| next.to_string()),
    };
    json(StatusCode::OK, &page)
}

fn entry(shared: &Shared, session: &Session, now: Tick) -> Entry {
    let deadline = shared.engine.session_deadline(session.id);
    Entry {
        session_id: session.public_id,
        client_name: session.client_name.to_string(),
        address: session.address().map(|address| address.to_string()),
        age_ms: session.opened.ms_until(now),
        ttl_ms: session.ttl_ms,
        remaining_ms: (deadline < Tick::MAX).then(|| now.ms_until(deadline)),
        connection_count: session.connections().len(),
        lock_count: session.held(),
        waiter_count: session.waiting(),
    }
}
