//! `/stats`: how the server is and what it has counted, in JSON and in one small answer. The
//! operator's page asks for it every second, and draws what changed in between.

use super::readiness::Readiness;
use super::{View, json};
use crate::config::Durability;
use crate::core::shared::Shared;
use crate::report::stats;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use types::HistogramCounts;

const MS_PER_SECOND: f64 = 1e3;
const US_PER_SECOND: f64 = 1e6;

#[derive(Serialize)]
struct Numbers {
    version: &'static str,
    /// RFC 3339, UTC.
    started: String,
    core_count: usize,
    durability: &'static str,
    /// It is a node of a cluster: `/cluster` has the rest.
    is_node: bool,
    readiness: Readiness,
    /// By name, as `fencepost stats` has them.
    numbers: BTreeMap<String, u64>,
    /// By name, since the start.
    histograms: BTreeMap<&'static str, Counts>,
}

/// How many durations were below each bound, and not below the one before it.
#[derive(Serialize)]
struct Counts {
    /// `null`: no bound.
    bounds_seconds: Vec<Option<f64>>,
    counts: Vec<u64>,
}

impl Counts {
    fn new<const N: usize>(counts: &HistogramCounts<N>, units_per_second: f64) -> Self {
        // What is counted is cut to a whole unit, so bucket `i` has what took less than 2^i.
        let bound = |bucket| (bucket + 1 < N).then(|| (1_u64 << bucket) as f64 / units_per_second);
        Counts {
            bounds_seconds: (0..N).map(bound).collect(),
            counts: counts.buckets.to_vec(),
        }
    }
}

/// `/stats`
pub(super) async fn numbers(State(view): State<Arc<View>>) -> Response {
    let shared = &view.shared();
    let started = UNIX_EPOCH + Duration::from_millis(shared.started_unix_ms);
    let numbers = Numbers {
        version: env!("CARGO_PKG_VERSION"),
        started: humantime::format_rfc3339_seconds(started).to_string(),
        core_count: shared.core_count,
        durability: match shared.config.durability {
            Durability::None => "none",
            Durability::Fence => "fence",
            Durability::Lease => "lease",
        },
        is_node: shared.cluster.is_some(),
        readiness: Readiness::of(shared),
        numbers: stats::collect(shared).into_iter().collect(),
        histograms: histograms(shared),
    };
    json(StatusCode::OK, &numbers)
}

fn histograms(shared: &Shared) -> BTreeMap<&'static str, Counts> {
    let totals = shared.metrics.totals();
    let lag = shared.engine.expiry_lag();
    let mut histograms = BTreeMap::from([
        (
            "acquire_wait",
            Counts::new(&totals.acquire_wait, MS_PER_SECOND),
        ),
        ("expiry_lag", Counts::new(&lag, MS_PER_SECOND)),
        ("hand_off", Counts::new(&totals.hand_off, US_PER_SECOND)),
        (
            "request_time",
            Counts::new(&totals.request_time, US_PER_SECOND),
        ),
    ]);
    if let Some(storage) = &shared.storage {
        let sync = storage.journal.disk().metrics().sync_us.counts();
        histograms.insert("log_sync", Counts::new(&sync, US_PER_SECOND));
    }
    if let Some(view) = &shared.cluster {
        let commit = view.node.numbers().commit_us;
        histograms.insert("cluster_commit", Counts::new(&commit, US_PER_SECOND));
    }
    histograms
}
