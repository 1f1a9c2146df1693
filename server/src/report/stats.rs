//! The server's numbers by name, as `Stats`, the CLI and the metrics page show them.

use crate::core::shared::Shared;
use std::sync::atomic::Ordering;
use types::HistogramCounts;

/// Every plain number there is: gauges first, then the counters of all cores together.
pub(crate) fn collect(shared: &Shared) -> Vec<(String, u64)> {
    let engine = &shared.engine;
    let totals = shared.metrics.totals();
    let losses = &engine.host().losses.counters;
    let lost = [
        &losses.expired,
        &losses.session_ended,
        &losses.forced,
        &losses.superseded,
    ]
    .map(|count| count.load(Ordering::Relaxed));
    let dropped = engine
        .host()
        .posts
        .iter()
        .map(|post| post.dropped.load(Ordering::Relaxed))
        .sum();
    let mut numbers = vec![
        ("uptime_ms".to_owned(), shared.clock.now().as_ms()),
        ("connections".to_owned(), shared.places.taken() as u64),
        ("sessions".to_owned(), u64::from(engine.sessions())),
        ("keys".to_owned(), engine.keys()),
        ("held".to_owned(), held(shared)),
        ("waiters".to_owned(), u64::from(engine.waiters())),
        ("lost_expired_total".to_owned(), lost[0]),
        ("lost_session_ended_total".to_owned(), lost[1]),
        ("lost_forced_total".to_owned(), lost[2]),
        ("lost_superseded_total".to_owned(), lost[3]),
        ("pushes_dropped_total".to_owned(), dropped),
        ("stored_bytes".to_owned(), engine.bytes()),
        (
            "audit_written_total".to_owned(),
            shared.audit().map_or(0, |audit| audit.written()),
        ),
        (
            "audit_dropped_total".to_owned(),
            shared.audit().map_or(0, |audit| audit.dropped()),
        ),
    ];
    let (refused_rights, refused_quota) = shared.rights.refusals();
    numbers.push(("refused_rights_total".to_owned(), refused_rights));
    numbers.push(("refused_quota_total".to_owned(), refused_quota));
    if let Some(storage) = &shared.storage {
        let grace_ms = shared.crash_grace_ms(shared.clock.now());
        numbers.push(("crash_grace_seconds".to_owned(), grace_ms.div_ceil(1_000)));
        numbers.push(("long_leases".to_owned(), storage.long.count() as u64));
        let sync_us = storage.journal.disk().metrics().sync_us.counts();
        numbers.extend(sum_and_count("log_sync", "us", &sync_us));
    }
    numbers.extend(sum_and_count("hand_off", "us", &totals.hand_off));
    numbers.extend(sum_and_count("expiry_lag", "ms", &engine.expiry_lag()));
    if let Some(view) = &shared.cluster {
        let node = view.node.numbers();
        numbers.push(("cluster_node_id".to_owned(), view.node.id()));
        numbers.push(("cluster_term".to_owned(), node.term));
        numbers.extend(sum_and_count("cluster_commit", "us", &node.commit_us));
    }
    numbers.extend(
        totals
            .named()
            .map(|(name, value)| (format!("{name}_total"), value)),
    );
    numbers
}

/// What two looks at a histogram need to tell the mean of the time between them.
fn sum_and_count<const N: usize>(
    name: &str,
    unit: &str,
    counts: &HistogramCounts<N>,
) -> [(String, u64); 2] {
    [
        (format!("{name}_{unit}_sum"), counts.sum),
        (format!("{name}_count"), counts.buckets.iter().sum()),
    ]
}

/// How many locks are held: granted and neither released, returned nor lost.
pub(crate) fn held(shared: &Shared) -> u64 {
    let totals = shared.metrics.totals();
    let losses = &shared.engine.host().losses.counters;
    let lost = losses.expired.load(Ordering::Relaxed)
        + losses.session_ended.load(Ordering::Relaxed)
        + losses.forced.load(Ordering::Relaxed)
        + losses.superseded.load(Ordering::Relaxed);
    totals.holds_begun.saturating_sub(totals.holds_ended + lost)
}
