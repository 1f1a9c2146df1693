//! `POST /force-release?key=&fence=`: takes a lock away from its holder, as `fencepost release
//! --force` does.
//!
//! It needs the role *operate* for the key, and a sender that means it (`http/sender.rs`).
//!
//! A core does the work (`core/forcing.rs`): it audits it and writes it down, and this waits until
//! that is settled.

use super::sender::{check_meant, trace_of};
use super::{Sender, Sent, View, forbid, json, parameters, refuse};
use crate::core::forcing::force_release;
use crate::core::mail::Forced;
use crate::rights::{Entitlement, Role};
use crate::session::operator::Operator;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use engine::{Fence, KEY_BYTES_MAX, Key, NotHeld};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// How long a core, and the disk or the cluster behind it, may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Released {
    released: bool,
    fence: u64,
}

/// `/force-release`
pub(super) async fn force(
    State(view): State<Arc<View>>,
    Extension(entitlement): Extension<Arc<Entitlement>>,
    Extension(sent): Extension<Sent>,
    Extension(Sender(address)): Extension<Sender>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let shared = view.shared();
    if let Err(sentence) = check_meant(&headers, view.shared().rights.is_required()) {
        return refuse(StatusCode::FORBIDDEN, sentence);
    }
    let (key, fence) = match parameters::key_and_fence(uri.query().unwrap_or("")) {
        Ok(asked) => asked,
        Err(sentence) => return refuse(StatusCode::BAD_REQUEST, &sentence),
    };
    let Ok(name) = Key::new(&key) else {
        let length = key.len();
        let sentence = format!("a key has 1 to {KEY_BYTES_MAX} bytes, this one has {length}");
        return refuse(StatusCode::BAD_REQUEST, &sentence);
    };
    let Some(fence) = Fence::new(fence) else {
        return refuse(StatusCode::BAD_REQUEST, "no lock has that fence");
    };
    if !entitlement.may_force(&key) {
        return forbid(&view, &entitlement, Role::Operate, &sent);
    }
    if let Some(cluster) = &shared.cluster
        && !cluster.leads
    {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, &cluster.not_leader());
    }
    let operator = Operator {
        token_name: entitlement.name().clone(),
        address: address.to_string().into(),
        trace_id: trace_of(&headers),
    };
    tracing::info!(key = %key.escape_ascii(), fence = fence.get(), by = entitlement.shown_name(),
        %address, trace_id = operator.trace_id.as_deref(), "a lock is to be taken away by force, over HTTP");
    let answered = force_release(&shared, name, fence, Arc::new(operator));
    match tokio::time::timeout(ANSWER_TIMEOUT, answered).await {
        Ok(Ok(Forced::Done)) => {
            let released = Released {
                released: true,
                fence: fence.get(),
            };
            json(StatusCode::OK, &released)
        }
        // Its holder may be about to claim it.
        Ok(Ok(Forced::NotHeld(_))) if shared.recovery.is_on() => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "the server recovers and does not know all holders: nothing was taken away. Try again later",
        ),
        Ok(Ok(Forced::NotHeld(why))) => {
            let sentence = format!("nothing was taken away: {}", reason(why));
            refuse(StatusCode::CONFLICT, &sentence)
        }
        Ok(Err(_)) | Err(_) => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "it is not known whether the lock was taken away: the server stops, or its disk or its cluster does not answer. Look at the lock again",
        ),
    }
}

fn reason(why: NotHeld) -> &'static str {
    match why {
        NotHeld::Expired | NotHeld::SessionEnded => "the lease of this fence has run out",
        NotHeld::Released => "the lock of this fence has been released",
        NotHeld::Forced => "the lock of this fence was taken away before",
        NotHeld::Never => "this fence has never been granted",
        NotHeld::OtherOwner | NotHeld::OtherFence => "the key is held under another fence by now",
        NotHeld::Free => "the key is not held",
    }
}
