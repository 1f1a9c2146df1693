//! What the service counts, and the page that tells it to Prometheus.

use crate::refusal::Refusal;
use crate::store::{Enforcement, Store, Written};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) struct Metrics {
    registry: Registry,
    accepted: Counter,
    stale: Counter,
    violations: Counter,
    bad_tokens: Counter,
    full: Counter,
    busy: Counter,
    broken: Counter,
    enforced: Gauge,
    keys: Gauge,
    bytes: Gauge,
    writes: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("resource");
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        // The crate adds `_total` to the names of counters.
        let accepted = counter("writes_accepted", "Writes that were accepted");
        let stale = counter(
            "stale_token_rejections",
            "Writes refused because their fence ran backwards",
        );
        let violations = counter(
            "fence_violations",
            "Writes accepted though their fence ran backwards: with --fence off, and never otherwise",
        );
        let bad_tokens = counter(
            "bad_token_rejections",
            "Writes refused for want of a legible fence",
        );
        let full = counter("full_rejections", "Writes refused for want of room");
        let busy = counter(
            "busy_rejections",
            "Writes refused because too many were under way",
        );
        let broken = counter(
            "log_failure_rejections",
            "Writes refused because the log cannot be written",
        );
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let enforced = gauge(
            "fence_enforced",
            "1 if fences that run backwards are refused",
        );
        let keys = gauge("keys", "Keys that have a value");
        let bytes = gauge("stored_bytes", "Bytes of all keys and values");
        let writes = gauge(
            "writes_under_way",
            "Writes under way or waiting for their key's turn",
        );
        Metrics {
            registry,
            accepted,
            stale,
            violations,
            bad_tokens,
            full,
            busy,
            broken,
            enforced,
            keys,
            bytes,
            writes,
        }
    }

    pub(crate) fn count_bad_token(&self) {
        self.bad_tokens.inc();
    }

    pub(crate) fn count(&self, outcome: &Result<Written, Refusal>) {
        match outcome {
            Ok(written) => {
                self.accepted.inc();
                if let Written::Backwards { .. } = written {
                    self.violations.inc();
                }
            }
            Err(Refusal::Stale(_)) => drop(self.stale.inc()),
            Err(Refusal::Full(_) | Refusal::KeyTooLong { .. }) => drop(self.full.inc()),
            Err(Refusal::Busy { .. }) => drop(self.busy.inc()),
            Err(Refusal::Broken(_)) => drop(self.broken.inc()),
        }
    }

    /// The page as of now.
    pub(crate) fn page(&self, store: &Store) -> String {
        self.enforced
            .set(i64::from(store.enforcement() != Enforcement::Off));
        self.keys.set(signed(store.keys() as u64));
        self.bytes.set(signed(store.bytes()));
        self.writes.set(signed(store.writes() as u64));
        let mut page = String::new();
        text::encode(&mut page, &self.registry).expect("a string takes whatever is written to it");
        page
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
