//! What bounds the rate of a hot key, read off its figures.

use super::workload::Waiting;
use crate::load::peers::PeerName;
use crate::load::sample::Figures;
use std::time::Duration;

/// What keeps the lock from going round faster, as the end of a sentence.
pub(super) fn bounded_by(
    peer: PeerName,
    figures: &Figures,
    cycle_ns: f64,
    handoff_us: f64,
    work: Duration,
    waiting: Waiting,
) -> String {
    let figure = |name: &str| figures.get(name).copied().unwrap_or_default();
    let attempts = figure("attempts_per_cycle");
    if work.as_nanos() as f64 > cycle_ns * 0.7 {
        let (work_ms, cycle_ms) = (work.as_millis(), cycle_ns / 1e6);
        return format!("the work under the lock: {work_ms} of {cycle_ms:.2} ms a cycle");
    }
    if figure("generator_cpu_cores") > 0.9 {
        return "the load generator, which has used up its core".to_owned();
    }
    if matches!(peer, PeerName::Etcd | PeerName::EtcdCluster) {
        return format!(
            "etcd's log and watches: every step is a synced write, and a watch that starts late is served every 100 ms \
             ({handoff_us:.0} us from a release to the next grant)"
        );
    }
    if matches!(peer, PeerName::FencepostLease | PeerName::RedisAlways) {
        return format!(
            "the disk: a grant is told when it is on it, a release takes effect when it is on it \
             ({handoff_us:.0} us from a release to the next grant)"
        );
    }
    if peer == PeerName::FencepostCluster {
        return format!(
            "one commit a cycle: the next holder is told when a majority has its grant on disk \
             ({handoff_us:.0} us from a release to the next grant)"
        );
    }
    if waiting != Waiting::InLine && attempts > 2.0 && figure("server_cpu_cores") > 0.85 {
        return format!(
            "the server's processor, busy with {attempts:.1} attempts a cycle of which one succeeds"
        );
    }
    if waiting != Waiting::InLine && figure("reordered_share") > 0.8 {
        return format!(
            "two round trips a cycle: mostly the contender that gave the lock back takes it again while the others sleep \
             (Jain's index {:.2})",
            figure("jain_index")
        );
    }
    if waiting != Waiting::InLine {
        return format!(
            "contenders that sleep while the lock is free, and {attempts:.1} attempts a cycle"
        );
    }
    if figure("server_cpu_cores") > 1.8 {
        return "the server's processors, which are all busy".to_owned();
    }
    format!(
        "the way from one holder to the next: {handoff_us:.0} us from a release to the grant it causes, \
         across the server's cores and two wake-ups over loopback"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(figures: &[(&'static str, f64)], work_ms: u64, waiting: Waiting) -> String {
        let figures = figures.iter().copied().collect();
        let work = Duration::from_millis(work_ms);
        bounded_by(PeerName::Redis, &figures, 1e6, 50.0, work, waiting)
    }

    #[test]
    fn what_bounds_a_lock_is_named() {
        let retry = Waiting::Retry { ms: 10 };
        let long_work = sentence(&[], 1, Waiting::InLine);
        assert!(long_work.contains("the work under the lock"), "{long_work}");
        let generator = sentence(&[("generator_cpu_cores", 1.0)], 0, Waiting::InLine);
        assert!(generator.contains("load generator"), "{generator}");
        let spinning = [("attempts_per_cycle", 9.0), ("server_cpu_cores", 1.0)];
        let spinning = sentence(&spinning, 0, retry);
        assert!(spinning.contains("9.0 attempts"), "{spinning}");
        let barging = sentence(&[("reordered_share", 0.95)], 0, retry);
        assert!(barging.contains("takes it again"), "{barging}");
        let sleeping = sentence(&[], 0, retry);
        assert!(sleeping.contains("sleep"), "{sleeping}");
        let handing_on = sentence(&[], 0, Waiting::InLine);
        assert!(handing_on.contains("50 us from a release"), "{handing_on}");
    }
}
