//! `/history?key=`: what happened to one key, from the files of the audit log.
//!
//! Reading them takes a thread of its own and as long as they are large. So one request reads at a
//! time, and a log of more than [`LOG_BYTES_MAX`] is left to `fencepost audit`, which reads it
//! without the server.

use super::{Sent, View, forbid, json, parameters, refuse};
use crate::observe::history::{AuditKey, TimeSpan, Timeline, files, timeline};
use crate::rights::{Entitlement, Role};
use crate::session::redis_form;
use axum::extract::{Extension, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use engine::{KEY_BYTES_MAX, Key};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many lines are shown.
const LINES_MAX: usize = 100;

/// As much as is read within a second or so.
const LOG_BYTES_MAX: u64 = 256 << 20;

#[derive(Serialize)]
struct History {
    /// The server writes an audit log.
    is_logged: bool,
    #[serde(flatten)]
    timeline: Option<Timeline>,
}

/// `/history`
pub(super) async fn history(
    State(view): State<Arc<View>>,
    Extension(entitlement): Extension<Arc<Entitlement>>,
    Extension(sent): Extension<Sent>,
    uri: Uri,
) -> Response {
    let key = match parameters::key_of(uri.query().unwrap_or("")) {
        Ok(key) => key,
        Err(sentence) => return refuse(StatusCode::BAD_REQUEST, &sentence),
    };
    if Key::new(&key).is_err() {
        let length = key.len();
        let sentence = format!("a key has 1 to {KEY_BYTES_MAX} bytes, this one has {length}");
        return refuse(StatusCode::BAD_REQUEST, &sentence);
    }
    if !entitlement.may_read(&key) {
        return forbid(&view, &entitlement, Role::Read, &sent);
    }
    let Some(log) = view.shared().config.audit_log.clone() else {
        let none = History {
            is_logged: false,
            timeline: None,
        };
        return json(StatusCode::OK, &none);
    };
    let Ok(_turn) = view.reading.try_lock() else {
        let sentence = "the audit log is being read for another request; try again in a moment";
        return refuse(StatusCode::SERVICE_UNAVAILABLE, sentence);
    };
    match tokio::task::spawn_blocking(move || read(&log, &key)).await {
        Ok(Ok(Some(timeline))) => {
            let history = History {
                is_logged: true,
                timeline: Some(timeline),
            };
            json(StatusCode::OK, &history)
        }
        Ok(Ok(None)) => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "the audit log is too large to be read by the server: `fencepost audit` reads it, on the server's machine",
        ),
        Ok(Err(error)) => {
            let sentence = format!("the audit log cannot be read: {error}");
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &sentence)
        }
        Err(_) => refuse(
            StatusCode::INTERNAL_SERVER_ERROR,
            "reading the audit log failed",
        ),
    }
}

/// `None`: the log is too large.
fn read(log: &Path, key: &[u8]) -> io::Result<Option<Timeline>> {
    let mut paths: Vec<PathBuf> = files::renamed_files(log)?;
    paths.push(log.to_owned());
    // One that is gone by now is none that is read.
    let bytes = |path: &PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if paths.iter().map(bytes).sum::<u64>() > LOG_BYTES_MAX {
        return Ok(None);
    }
    let (db, key) = redis_form::split(key);
    let key = AuditKey { key, db };
    timeline(log, key, TimeSpan::default(), LINES_MAX).map(Some)
}
