//! The metrics page: everything the server counts, in Prometheus's text format, or in that of
//! OpenMetrics for a client that asks for it (`format.rs`).
//!
//! The counters are the server's own (`metrics.rs`: one set per core, added up here), because
//! counting must cost an acquire next to nothing. A page is a snapshot of them, which `page.rs`
//! formats.
//!
//! Every name begins with `fencepost_` and ends with its unit; what the system knows about the
//! process has the names that all programs give it (`process.rs`). No label takes its values from
//! clients: bounds and reasons are few and known. `/locks` shows the holders. There are thousands
//! of shards on a large machine, so they have series of their own only for a reader that asks.

mod cluster;
mod format;
mod log;
mod page;
mod process;
mod tls;

pub(crate) use format::Format;

use self::cluster::ClusterNumbers;
use self::tls::TlsNumbers;
use crate::core::shared::Shared;
use crate::observe::metrics::{DurationTotals, Totals};
use crate::report::stats;
use log::LogNumbers;
use log::microseconds;
use page::{HistogramData, Page, Unit};
use std::fmt;
use std::sync::atomic::Ordering;
use types::HistogramCounts;

/// The page as of now. `oldest_ms` is how long the oldest lock has been held. `by_shard`: with a
/// series for each shard.
pub(crate) fn page(shared: &Shared, oldest_ms: u64, by_shard: bool, format: Format) -> String {
    let mut page = Page::new(format);
    let snapshot = Snapshot::take(shared, oldest_ms);
    snapshot
        .show(by_shard, &mut page)
        .expect("a string takes whatever is written to it");
    page.finish()
}

/// All numbers at about one moment: the cores go on while they are read.
struct Snapshot {
    totals: Totals,
    lost: [(&'static str, u64); 4],
    lost_held: DurationTotals,
    expiry_lag: HistogramData,
    pushes_dropped: u64,
    /// For want of a right, and of a quota.
    refused: (u64, u64),
    audit_written: u64,
    audit_dropped: u64,
    keys: u64,
    locks_held: u64,
    waiters: u64,
    sessions: u64,
    connections: u64,
    stored_bytes: u64,
    oldest_ms: u64,
    shard_keys: Vec<u64>,
    limits: [(&'static str, u64); 8],
    core_count: u64,
    started_unix_ms: u64,
    log: Option<LogNumbers>,
    cluster: Option<ClusterNumbers>,
    tls: TlsNumbers,
}

impl Snapshot {
    fn take(shared: &Shared, oldest_ms: u64) -> Self {
        let engine = &shared.engine;
        let host = engine.host();
        let config = &shared.config;
        let losses = &host.losses.counters;
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            totals: shared.metrics.totals(),
            lost: [
                ("expired", count(&losses.expired)),
                ("session_ended", count(&losses.session_ended)),
                ("forced", count(&losses.forced)),
                ("superseded", count(&losses.superseded)),
            ],
            lost_held: losses.held.counts(),
            expiry_lag: engine.expiry_lag().into(),
            pushes_dropped: host.posts.iter().map(|post| count(&post.dropped)).sum(),
            refused: shared.rights.refusals(),
            audit_written: shared.audit().map_or(0, |audit| audit.written()),
            audit_dropped: shared.audit().map_or(0, |audit| audit.dropped()),
            keys: engine.keys(),
            locks_held: stats::held(shared),
            waiters: u64::from(engine.waiters()),
            sessions: u64::from(engine.sessions()),
            connections: shared.places.taken() as u64,
            stored_bytes: engine.bytes(),
            oldest_ms,
            shard_keys: (0..engine.shard_count())
                .map(|shard| u64::from(engine.keys_in_shard(shard)))
                .collect(),
            limits: [
                ("connections", u64::from(config.connections_max)),
                ("sessions", u64::from(config.sessions_max)),
                ("in_flight", u64::from(config.in_flight_max)),
                ("waiters_per_key", u64::from(config.waiters_per_key_max)),
                ("waiters", u64::from(config.waiters_max)),
                ("keys", config.keys_max),
                ("bytes", config.bytes_max),
                ("shared_holders", u64::from(config.shared_holders_max)),
            ],
            core_count: shared.core_count as u64,
            started_unix_ms: shared.started_unix_ms,
            log: LogNumbers::take(shared),
            cluster: ClusterNumbers::take(shared),
            tls: TlsNumbers::take(shared),
        }
    }

    fn acquires(&self, page: &mut Page) -> fmt::Result {
        let totals = &self.totals;
        page.counter(
            "acquire_attempts",
            "Acquires that came in",
            totals.acquire_attempts,
        )?;
        page.counter(
            "acquire_grants",
            "Acquires that were granted, at once or after a wait",
            totals.acquire_grants,
        )?;
        page.counter(
            "acquire_refusals",
            "Acquires that were refused because the key is held",
            totals.acquire_refusals,
        )?;
        page.counter(
            "acquire_timeouts",
            "Acquires that waited in vain",
            totals.acquire_timeouts,
        )?;
        page.counter(
            "acquire_cancels",
            "Acquires that were cancelled by their client or with its connection",
            totals.acquire_cancels,
        )?;
        page.counter(
            "acquire_at_ceiling",
            "Acquires that found no fence to issue",
            totals.at_ceiling,
        )?;
        page.counters(
            "busy",
            "Requests, sessions and connections that were turned away because a limit was reached",
            "bound",
            &[
                ("connections", totals.busy_connections),
                ("sessions", totals.busy_sessions),
                ("in_flight", totals.busy_in_flight),
                ("waiters_per_key", totals.busy_waiters_per_key),
                ("waiters", totals.busy_waiters),
                ("keys", totals.busy_keys),
                ("bytes", totals.busy_bytes),
                ("shared_holders", totals.busy_shared_holders),
            ],
        )?;
        page.histogram(
            "acquire_wait",
            "How long granted acquires had waited, to the millisecond below",
            &[(None, totals.acquire_wait.into())],
        )
    }

    fn holds(&self, page: &mut Page) -> fmt::Result {
        let totals = &self.totals;
        page.histogram(
            "lock_held",
            "How long locks had been held when they were released or lost, to the millisecond below",
            &[
                (Some(("ended", "released")), totals.held.into()),
                (Some(("ended", "lost")), self.lost_held.into()),
            ],
        )?;
        page.histogram(
            "hand_off",
            "From the end of a hold to the reply that tells the first waiter that it is next; with durability lease the disk comes on top",
            &[(None, microseconds(&totals.hand_off))],
        )?;
        page.counter("renewals", "Renewals that were asked for", totals.renewals)?;
        page.counter(
            "renewals_failed",
            "Renewals of what was not the caller's, or no longer",
            totals.renewals_failed,
        )?;
        page.counter("releases", "Releases that took effect", totals.releases)?;
        page.counter(
            "release_by_non_owner",
            "Releases of what was not the caller's, or no longer; they changed nothing",
            totals.release_by_non_owner,
        )?;
        page.counter(
            "grants_returned",
            "Grants that came for a connection that was gone, and went to the next in line",
            totals.grants_returned,
        )?;
        page.counters(
            "leases_lost",
            "Locks that went without being released by their owner",
            "reason",
            &self.lost,
        )?;
        page.histogram(
            "expiry_lag",
            "How long after their deadline the wheel found expired leases",
            &[(None, self.expiry_lag.clone())],
        )
    }

    fn state(&self, page: &mut Page) -> fmt::Result {
        page.gauge(
            "keys",
            "Keys that are held, waited for or still remembered",
            self.keys,
        )?;
        page.gauge("locks_held", "Locks that are held", self.locks_held)?;
        page.gauge("waiters", "Acquires that wait", self.waiters)?;
        page.gauge("sessions", "Open sessions", self.sessions)?;
        page.gauge("connections", "Open client connections", self.connections)?;
        page.gauge_in(
            Unit::Bytes,
            "stored",
            "Bytes of metadata, and of keys beyond their first 16",
            self.stored_bytes as f64,
        )?;
        page.gauge_in(
            Unit::Seconds,
            "oldest_lock_age",
            "How long the oldest lock has been held, 0 if none is; with more than a million keys it may be found some scrapes late",
            seconds(self.oldest_ms),
        )?;
        page.gauge(
            "shards",
            "Parts of the lock table",
            self.shard_keys.len() as u64,
        )?;
        page.gauge(
            "fullest_shard_keys",
            "Keys of the shard that has most; far above keys / shards, they are spread badly",
            self.shard_keys.iter().copied().max().unwrap_or(0),
        )?;
        page.gauges("limit", "The limits in force", "bound", &self.limits)
    }

    fn shards(&self, page: &mut Page) -> fmt::Result {
        let shards: Vec<String> = (0..self.shard_keys.len())
            .map(|shard| shard.to_string())
            .collect();
        let shard_keys: Vec<(&str, u64)> = shards
            .iter()
            .map(String::as_str)
            .zip(self.shard_keys.iter().copied())
            .collect();
        page.gauges(
            "shard_keys",
            "Keys by shard, which should be about the same for all",
            "shard",
            &shard_keys,
        )
    }

    fn traffic(&self, page: &mut Page) -> fmt::Result {
        let totals = &self.totals;
        page.counter_in(
            Unit::Bytes,
            "received",
            "Bytes from clients",
            totals.bytes_in,
        )?;
        page.counter_in(Unit::Bytes, "sent", "Bytes to clients", totals.bytes_out)?;
        page.counter("requests", "Requests of all kinds", totals.requests)?;
        page.counter(
            "request_batches",
            "Batches in which requests were decided; requests per batch say how well clients pipeline",
            totals.batches,
        )?;
        page.histogram(
            "request_time",
            "From reading a batch of requests to the last byte of its replies, waits for the disk included and waits for \
             locks not; of one batch in 64",
            &[(None, microseconds(&totals.request_time))],
        )?;
        page.counter(
            "requests_malformed",
            "Requests that made no sense",
            totals.malformed,
        )?;
        page.counter(
            "repeats_answered",
            "Requests that were repeated and answered from memory",
            totals.repeats_answered,
        )?;
        page.counter(
            "connections_opened",
            "Connections that were accepted",
            totals.connections_opened,
        )?;
        page.counter(
            "connections_closed",
            "Connections that have ended",
            totals.connections_closed,
        )?;
        page.counter(
            "connections_too_slow",
            "Connections that were cut off because they did not read, or did not finish a frame",
            totals.connections_too_slow,
        )?;
        page.counter(
            "hellos_refused",
            "Connections that were refused at the start: wrong token, wrong version, no session",
            totals.hellos_refused,
        )?;
        page.counter(
            "refused_rights",
            "Requests that were refused because their token has no right to them; the audit log has each",
            self.refused.0,
        )?;
        page.counter(
            "refused_quota",
            "Requests that were refused because a quota of their token or prefix is used up",
            self.refused.1,
        )?;
        page.counter(
            "sessions_opened",
            "Sessions that were opened",
            totals.sessions_opened,
        )?;
        page.counter(
            "sessions_resumed",
            "Sessions that were taken up again by a new connection",
            totals.sessions_resumed,
        )?;
        page.counter(
            "sessions_ended",
            "Sessions that have ended",
            totals.sessions_ended,
        )?;
        page.counter("keep_alives", "Keep-alives of sessions", totals.keep_alives)?;
        page.counter(
            "pushes_dropped",
            "Notices of lost locks that found a core's mailbox full; their clients find out by their deadlines",
            self.pushes_dropped,
        )?;
        page.counter(
            "audit_written",
            "Events written to the audit log",
            self.audit_written,
        )?;
        page.counter(
            "audit_dropped",
            "Events missing from the audit log: its queue was full or its file could not be written",
            self.audit_dropped,
        )
    }

    fn redis(&self, page: &mut Page) -> fmt::Result {
        let totals = &self.totals;
        page.counter(
            "redis_commands",
            "Commands that came in through the Redis port",
            totals.redis_commands,
        )?;
        page.counter(
            "redis_errors",
            "Commands of the Redis port that were answered with an error",
            totals.redis_errors,
        )?;
        page.counter(
            "redis_forced",
            "Locks ended or taken through the Redis port without showing that they were the caller's",
            totals.redis_forced,
        )?;
        page.counter(
            "redis_script_texts",
            "Scripts that clients sent whole, by EVAL or SCRIPT LOAD; EVALSHA sends only the SHA-1",
            totals.redis_script_texts,
        )?;
        page.counter(
            "redis_unknown_scripts",
            "Scripts that the Redis port does not know and has refused; the log has their SHA-1",
            totals.redis_unknown_scripts,
        )
    }

    fn process(&self, page: &mut Page) -> fmt::Result {
        page.info(
            "build",
            "What this server is",
            &[
                ("version", env!("CARGO_PKG_VERSION")),
                ("protocol", &protocol::PROTOCOL_VERSION.to_string()),
            ],
        )?;
        page.gauge_in(
            Unit::Seconds,
            "start_time",
            "When the server started, since the epoch",
            seconds(self.started_unix_ms),
        )?;
        page.gauge("cores", "I/O threads", self.core_count)?;
        process::show(page)
    }
}

impl Snapshot {
    fn show(&self, by_shard: bool, page: &mut Page) -> fmt::Result {
        self.acquires(page)?;
        self.holds(page)?;
        self.state(page)?;
        if by_shard {
            self.shards(page)?;
        }
        self.traffic(page)?;
        self.redis(page)?;
        if let Some(log) = &self.log {
            log.show(page)?;
        }
        if let Some(cluster) = &self.cluster {
            cluster.show(page)?;
        }
        self.tls.show(page)?;
        self.process(page)
    }
}

impl<const N: usize> From<HistogramCounts<N>> for HistogramData {
    fn from(counts: HistogramCounts<N>) -> Self {
        HistogramData::new(&counts.buckets, counts.sum)
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
