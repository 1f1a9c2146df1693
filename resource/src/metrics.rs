//! What the service counts, and the page that tells it to Prometheus, in its classic text format.

use crate::refusal::Refusal;
use crate::store::{Enforcement, Store, Written};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Counters that any thread raises. Relaxed: each publishes nothing but itself.
#[derive(Default)]
pub(crate) struct Metrics {
    accepted: AtomicU64,
    stale: AtomicU64,
    violations: AtomicU64,
    bad_tokens: AtomicU64,
    full: AtomicU64,
    busy: AtomicU64,
    broken: AtomicU64,
}

impl Metrics {
    pub(crate) fn count_bad_token(&self) {
        self.bad_tokens.fetch_add(1, Relaxed);
    }

    pub(crate) fn count(&self, outcome: &Result<Written, Refusal>) {
        let counter = match outcome {
            Ok(written) => {
                if let Written::Backwards { .. } = written {
                    self.violations.fetch_add(1, Relaxed);
                }
                &self.accepted
            }
            Err(Refusal::Stale(_)) => &self.stale,
            Err(Refusal::Full(_) | Refusal::KeyTooLong { .. }) => &self.full,
            Err(Refusal::Busy { .. }) => &self.busy,
            Err(Refusal::Broken(_)) => &self.broken,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// The page as of now.
    pub(crate) fn page(&self, store: &Store) -> String {
        let mut page = String::with_capacity(2048);
        let mut family = |kind: &str, name: &str, help: &str, value: u64| {
            let family = format!("resource_{name}");
            writeln!(page, "# HELP {family} {help}.").expect("a string takes all that is written");
            writeln!(page, "# TYPE {family} {kind}").expect("as above");
            writeln!(page, "{family} {value}").expect("as above");
        };
        for (name, help, counter) in [
            (
                "writes_accepted_total",
                "Writes that were accepted",
                &self.accepted,
            ),
            (
                "stale_token_rejections_total",
                "Writes refused because their fence ran backwards",
                &self.stale,
            ),
            (
                "fence_violations_total",
                "Writes accepted though their fence ran backwards: with --fence off, and never otherwise",
                &self.violations,
            ),
            (
                "bad_token_rejections_total",
                "Writes refused for want of a legible fence",
                &self.bad_tokens,
            ),
            (
                "full_rejections_total",
                "Writes refused for want of room",
                &self.full,
            ),
            (
                "busy_rejections_total",
                "Writes refused because too many were under way",
                &self.busy,
            ),
            (
                "log_failure_rejections_total",
                "Writes refused because the log cannot be written",
                &self.broken,
            ),
        ] {
            family("counter", name, help, counter.load(Relaxed));
        }
        for (name, help, value) in [
            (
                "fence_enforced",
                "1 if fences that run backwards are refused",
                u64::from(store.enforcement() != Enforcement::Off),
            ),
            ("keys", "Keys that have a value", store.keys() as u64),
            (
                "stored_bytes",
                "Bytes of all keys and values",
                store.bytes(),
            ),
            (
                "writes_under_way",
                "Writes under way or waiting for their key's turn",
                store.writes() as u64,
            ),
        ] {
            family("gauge", name, help, value);
        }
        page
    }
}
