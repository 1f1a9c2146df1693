//! `/contended`: the keys that most acquires had to wait for, or were refused for, of late. The
//! cores keep them (`observe/hot_keys.rs`), so that no request has to search the table.

use super::locks::{self, Lock};
use super::{View, json};
use crate::rights::Entitlement;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use engine::Key;
use serde::Serialize;
use std::sync::Arc;

/// How many keys are shown.
const SHOWN_MAX: usize = 20;

#[derive(Serialize)]
struct Contended {
    /// Most contended first.
    keys: Vec<ContendedKey>,
}

#[derive(Serialize)]
struct ContendedKey {
    /// How often a second an acquire had to wait for it, or was refused because it was held. What
    /// was long ago counts for little.
    per_second: f64,
    /// By how much that may be too high: a core keeps the counts of a few keys only.
    too_high_by: f64,
    /// As it is now.
    #[serde(flatten)]
    lock: Lock,
}

/// `/contended`
pub(super) async fn list(
    State(view): State<Arc<View>>,
    Extension(entitlement): Extension<Arc<Entitlement>>,
) -> Response {
    let shared = &view.shared();
    let now = shared.clock.now();
    let top = shared.metrics.hot_keys.top(SHOWN_MAX, now);
    let shown = top.iter().filter(|hot| entitlement.may_read(&hot.key));
    let keys = shown.filter_map(|hot| {
        let key = Key::new(&hot.key).ok()?;
        Some(ContendedKey {
            per_second: hot.per_second,
            too_high_by: hot.too_high_by,
            lock: locks::look(shared, key, now),
        })
    });
    let contended = Contended {
        keys: keys.collect(),
    };
    json(StatusCode::OK, &contended)
}
