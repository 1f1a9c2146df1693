//! What a client counts about itself, for [`Client::metrics`](crate::Client::metrics).
//!
//! Counting is an addition to an atomic number for each acquire, renewal, loss and connection. All
//! orderings are relaxed: a count publishes nothing but itself.

use crate::error::Loss;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How many buckets the time of acquires is counted in.
const BUCKETS: usize = 24;

/// What a client has counted since it connected, from [`Client::metrics`](crate::Client::metrics).
///
/// Every number but [`locks_held`](Self::locks_held) and
/// [`connections_open`](Self::connections_open) only rises, as the counters of Prometheus do. To
/// export them, copy them into the registry of your program where it is read:
///
/// ```no_run
/// # fn example(client: fencepost::Client) {
/// let now = client.metrics();
/// println!("lock_losses_total {}", now.losses);
/// println!("lock_reconnects_total {}", now.reconnects);
/// let mut at_most = 0;
/// for (bound, count) in now.acquire_time.buckets() {
///     at_most += count;
///     let bound = bound.map_or("+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
///     println!("lock_acquire_seconds_bucket{{le=\"{bound}\"}} {at_most}");
/// }
/// println!("lock_acquire_seconds_sum {}", now.acquire_time.sum.as_secs_f64());
/// println!("lock_acquire_seconds_count {at_most}");
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Acquires that were begun: each `acquire`, `try_acquire` and `with`.
    pub acquires: u64,
    /// Acquires that were granted.
    pub acquires_granted: u64,
    /// Acquires that found the lock held, or waited for it in vain.
    pub acquires_contended: u64,
    /// Acquires that failed for another reason: no answer, a bound, a refusal.
    pub acquires_failed: u64,
    /// Acquires that were dropped before they were answered.
    pub acquires_dropped: u64,
    /// How long granted acquires took, from the call to the guard.
    pub acquire_time: Timings,
    /// Renewals that the server confirmed.
    pub renewals: u64,
    /// Renewals that the server answered otherwise. A lock that is lost by that counts as a loss as
    /// well.
    pub renewals_failed: u64,
    /// Locks that went before their guards did: expired, taken away, or given up by the client
    /// because no renewal was confirmed in time.
    pub losses: u64,
    /// Sessions that were opened. More than one: the server had forgotten the one before, and all
    /// its locks were lost.
    pub sessions: u64,
    /// Connections that were opened.
    pub connections: u64,
    /// Those of them that took the place of one that broke.
    pub reconnects: u64,
    /// Locks held at this moment, those of dropped guards and detached ones not among them.
    pub locks_held: u64,
    /// Connections that are open at this moment.
    pub connections_open: u64,
}

impl Metrics {
    /// Acquires that are under way at this moment.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::Client) {
    /// println!("{} tasks wait for a lock", client.metrics().acquires_under_way());
    /// # }
    /// ```
    pub fn acquires_under_way(&self) -> u64 {
        let ended = self.acquires_granted
            + self.acquires_contended
            + self.acquires_failed
            + self.acquires_dropped;
        // The numbers were read one after the other.
        self.acquires.saturating_sub(ended)
    }
}

/// Durations, counted by powers of two of a microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// All of them together.
    pub sum: Duration,
    counts: [u64; BUCKETS],
}

impl Timings {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many were no longer than each bound and longer than the one before. The last has no
    /// bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let counts = self.counts.into_iter().enumerate();
        counts.map(|(bucket, count)| {
            let bound = (bucket + 1 < BUCKETS).then(|| Duration::from_micros((1 << bucket) - 1));
            (bound, count)
        })
    }
}

/// The numbers themselves. All tasks of a client raise them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    acquires: AtomicU64,
    granted: AtomicU64,
    contended: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
    acquire_us: AtomicU64,
    acquire_counts: [AtomicU64; BUCKETS],
    renewals: AtomicU64,
    renewals_failed: AtomicU64,
    losses: AtomicU64,
    sessions: AtomicU64,
    connections: AtomicU64,
    reconnects: AtomicU64,
}

fn bump(number: &AtomicU64) {
    number.fetch_add(1, Relaxed);
}

impl Counters {
    /// Counts an acquire that begins. What it returns counts how it ends.
    pub(crate) fn begin_acquire(&self) -> Acquiring<'_> {
        bump(&self.acquires);
        Acquiring {
            counters: self,
            since: Instant::now(),
            ended: AcquireEnd::Dropped,
        }
    }

    pub(crate) fn count_renewal(&self, is_confirmed: bool) {
        bump(match is_confirmed {
            true => &self.renewals,
            false => &self.renewals_failed,
        });
    }

    /// A lock is gone. What its owner ended itself is no loss.
    pub(crate) fn count_loss(&self, loss: Loss) {
        if !matches!(loss, Loss::Released | Loss::Closed) {
            bump(&self.losses);
        }
    }

    pub(crate) fn count_session(&self) {
        bump(&self.sessions);
    }

    pub(crate) fn count_connection(&self, is_reconnect: bool) {
        bump(&self.connections);
        if is_reconnect {
            bump(&self.reconnects);
        }
    }

    /// What was counted so far, with what there is at this moment.
    pub(crate) fn snapshot(&self, locks_held: u64, connections_open: u64) -> Metrics {
        let read = |number: &AtomicU64| number.load(Relaxed);
        Metrics {
            acquires: read(&self.acquires),
            acquires_granted: read(&self.granted),
            acquires_contended: read(&self.contended),
            acquires_failed: read(&self.failed),
            acquires_dropped: read(&self.dropped),
            acquire_time: Timings {
                sum: Duration::from_micros(read(&self.acquire_us)),
                counts: self.acquire_counts.each_ref().map(read),
            },
            renewals: read(&self.renewals),
            renewals_failed: read(&self.renewals_failed),
            losses: read(&self.losses),
            sessions: read(&self.sessions),
            connections: read(&self.connections),
            reconnects: read(&self.reconnects),
            locks_held,
            connections_open,
        }
    }
}

/// How an acquire ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AcquireEnd {
    Granted,
    Contended,
    Failed,
    /// Before it was answered.
    Dropped,
}

/// An acquire under way. Counted when it is dropped, as it is when its caller stops waiting.
pub(crate) struct Acquiring<'a> {
    counters: &'a Counters,
    since: Instant,
    ended: AcquireEnd,
}

impl Acquiring<'_> {
    pub(crate) fn end(mut self, ended: AcquireEnd) {
        self.ended = ended;
    }
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        let counters = self.counters;
        bump(match self.ended {
            AcquireEnd::Granted => {
                let us = self.since.elapsed().as_micros() as u64;
                counters.acquire_us.fetch_add(us, Relaxed);
                bump(&counters.acquire_counts[bucket(us)]);
                &counters.granted
            }
            AcquireEnd::Contended => &counters.contended,
            AcquireEnd::Failed => &counters.failed,
            AcquireEnd::Dropped => &counters.dropped,
        });
    }
}

/// The first bucket whose bound, 2^i - 1 microseconds, is not exceeded.
fn bucket(us: u64) -> usize {
    ((u64::BITS - us.leading_zeros()) as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests;
