//! `/readyz`: whether clients should come, and whether new locks are granted.

use super::{View, json, parameters, refuse};
use crate::core::shared::Shared;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

#[derive(Serialize)]
pub(super) struct Readiness {
    /// Clients should come: to claim what they hold, even if nothing new is granted.
    ready: bool,
    /// New locks are granted.
    granting: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// How long until that is over, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_ms: Option<u64>,
    /// The same as a wall-clock time.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

impl Readiness {
    pub(super) fn of(shared: &Shared) -> Readiness {
        let plain = Readiness {
            ready: true,
            granting: true,
            reason: None,
            remaining_ms: None,
            until: None,
        };
        if shared.stop.is_cancelled() {
            return Readiness {
                ready: false,
                granting: false,
                reason: Some("stopping"),
                ..plain
            };
        }
        if let Some(reason) = shared
            .cluster
            .as_ref()
            .and_then(|view| view.why_not_ready())
        {
            return Readiness {
                ready: false,
                granting: false,
                reason: Some(reason),
                ..plain
            };
        }
        if let Some(view) = &shared.cluster
            && !view.leads
        {
            return Readiness {
                granting: false,
                reason: Some("following"),
                ..plain
            };
        }
        if shared.recovery.is_on() {
            let left_ms = shared.recovery.remaining_ms(shared.clock.now());
            let left_ms = left_ms.unwrap_or(0);
            let until = SystemTime::now() + Duration::from_millis(left_ms);
            return Readiness {
                granting: false,
                reason: Some("recovering"),
                remaining_ms: Some(left_ms),
                until: Some(humantime::format_rfc3339_millis(until).to_string()),
                ..plain
            };
        }
        plain
    }
}

/// In the grace period the server is ready: a probe that kept clients away would keep holders from
/// claiming their locks. `?granting` asks whether new locks are granted.
pub(super) async fn readyz(State(view): State<Arc<View>>, request: Request) -> Response {
    let readiness = Readiness::of(&view.shared());
    let is_yes = match parameters::flag(request.uri().query(), "granting") {
        Some(false) => readiness.ready,
        Some(true) => readiness.granting,
        None => {
            let sentence = "there is one parameter, granting: whether new locks are granted";
            return refuse(StatusCode::BAD_REQUEST, sentence);
        }
    };
    let status = match is_yes {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    json(status, &readiness)
}
