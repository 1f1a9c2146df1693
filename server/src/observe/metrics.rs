//! What the server counts. Every core has its own set and is its only writer, so counting is a load
//! and a store on a line that no other core touches. A reader adds the sets up.

use crate::observe::hot_keys::HotKeys;
use crossbeam_utils::CachePadded;
use engine::Limit;
use std::sync::atomic::{AtomicU64, Ordering};
use types::{Histogram, HistogramCounts};

/// A number that one core raises and any thread reads.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn bump(&self) {
        self.add(1);
    }

    /// A load and a store, not a read-modify-write: there is one writer.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many buckets a histogram of durations has: the last one counts those from 2^22 ms on.
pub(crate) const DURATION_BUCKETS: usize = 24;

/// Durations, in milliseconds where nothing else is said.
pub(crate) type Durations = Histogram<DURATION_BUCKETS>;

/// Several cores' durations together.
pub(crate) type DurationTotals = HistogramCounts<DURATION_BUCKETS>;

macro_rules! core_metrics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One core's counters.
        #[derive(Default)]
        pub(crate) struct CoreMetrics {
            $($(#[$doc])* pub(crate) $name: Counter,)*
            /// How long acquires that were granted had waited.
            pub(crate) acquire_wait: Durations,
            /// How long locks that were released had been held.
            pub(crate) held: Durations,
            /// From reading a batch of requests to the last byte of its replies, in microseconds.
            /// Of some batches: see `Core::start_timer`.
            pub(crate) request_time: Durations,
            /// From the end of a hold to the reply to the next holder, in microseconds.
            pub(crate) hand_off: Durations,
        }

        /// The counters of all cores together.
        #[derive(Clone, Default)]
        pub(crate) struct Totals {
            $(pub(crate) $name: u64,)*
            pub(crate) acquire_wait: DurationTotals,
            pub(crate) held: DurationTotals,
            pub(crate) request_time: DurationTotals,
            pub(crate) hand_off: DurationTotals,
        }

        impl Totals {
            fn add(&mut self, core: &CoreMetrics) {
                $(self.$name = self.$name.wrapping_add(core.$name.get());)*
                self.acquire_wait.add(&core.acquire_wait.counts());
                self.held.add(&core.held.counts());
                self.request_time.add(&core.request_time.counts());
                self.hand_off.add(&core.hand_off.counts());
            }

            /// The plain numbers by name.
            pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

core_metrics! {
    /// Acquires that came in.
    acquire_attempts,
    /// Acquires that were granted, at once or after a wait.
    acquire_grants,
    /// Acquires that were refused because the key is held.
    acquire_refusals,
    /// Acquires that waited in vain.
    acquire_timeouts,
    /// Acquires that were cancelled by their client or with its connection.
    acquire_cancels,
    /// Requests that hit a bound.
    busy_waiters_per_key,
    busy_waiters,
    busy_keys,
    busy_bytes,
    busy_in_flight,
    busy_shared_holders,
    busy_sessions,
    busy_connections,
    /// Acquires that found no fence to issue.
    at_ceiling,
    /// Renewals.
    renewals,
    /// Renewals of locks that the caller does not hold, or no longer.
    renewals_failed,
    /// Releases.
    releases,
    /// Releases of locks that the caller does not hold, or no longer.
    release_by_non_owner,
    /// Keep-alives of sessions.
    keep_alives,
    /// Requests that were repeated and answered from memory.
    repeats_answered,
    /// Requests that could not be decoded.
    malformed,
    /// Connections that were accepted.
    connections_opened,
    connections_closed,
    /// Connections that were cut off because they did not read, or did not finish a frame.
    connections_too_slow,
    /// Openings that were refused: wrong token, wrong version, no session.
    hellos_refused,
    sessions_opened,
    sessions_resumed,
    sessions_ended,
    bytes_in,
    bytes_out,
    /// Batches of requests; the ratio to requests says how well clients pipeline.
    batches,
    requests,
    /// Holds begun: grants that are not re-entries.
    holds_begun,
    /// Holds ended by a release; lost ones are counted elsewhere.
    holds_ended,
    /// Grants that came for a closed connection, and were released.
    grants_returned,
    /// Commands that came in through the Redis port.
    redis_commands,
    /// Those of them that were answered with an error.
    redis_errors,
    /// Locks that were ended or taken through the Redis port without showing that they were the
    /// caller's.
    redis_forced,
    /// Texts of scripts that were hashed and recognised, for `EVAL` and `SCRIPT LOAD`. Once a call.
    redis_script_texts,
    /// Scripts that are not known, and were refused.
    redis_unknown_scripts,
}

impl CoreMetrics {
    /// A request hit this bound of the engine's.
    pub(crate) fn count_busy(&self, limit: Limit) {
        let counter = match limit {
            Limit::Keys => &self.busy_keys,
            Limit::WaitersPerKey => &self.busy_waiters_per_key,
            Limit::Waiters => &self.busy_waiters,
            Limit::SharedHolders => &self.busy_shared_holders,
            Limit::Sessions => &self.busy_sessions,
            Limit::Bytes => &self.busy_bytes,
        };
        counter.bump();
    }
}

/// All cores.
pub(crate) struct Metrics {
    cores: Box<[CachePadded<CoreMetrics>]>,
    pub(crate) hot_keys: HotKeys,
}

impl Metrics {
    pub(crate) fn new(core_count: usize) -> Self {
        Metrics {
            cores: (0..core_count).map(|_| CachePadded::default()).collect(),
            hot_keys: HotKeys::new(core_count),
        }
    }

    pub(crate) fn core(&self, core: usize) -> &CoreMetrics {
        &self.cores[core]
    }

    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for core in &self.cores {
            totals.add(core);
        }
        totals
    }
}
