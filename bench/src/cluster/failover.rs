//! `bench --cluster N --failover`: how long does a cluster grant nothing when it loses its leader?
//!
//! One client takes and gives back locks through all addresses; see `cycler.rs`. **Killed**: from
//! the SIGKILL of the leader to the first grant that was asked for after it. **Planned**: the
//! leader is told to hand over, and what counts is the longest time between two grants around that,
//! since it goes on granting for a moment. What a cycle takes without any trouble is reported
//! beside it.
//!
//! **Idle**: processor time of every node while no client is connected.
//!
//! With `--keys` so many locks are held all the time, which every new leader has to restore.
//!
//! Leaves out: what a client library adds, and disks of their own for the nodes, which share one
//! here.

use super::cycler::{Cycler, Grant};
use crate::experiments::locks::Backend;
use crate::experiments::processes::worker::now_ms;
use crate::experiments::report::table;
use crate::load::peers::child::Usage;
use crate::load::peers::nodes::Nodes;
use crate::load::peers::{Peer, PeerName};
use crate::load::rounds::median;
use crate::load::{Options, fill_fencepost};
use crate::progress::Progress;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a cluster may take to grant again.
const RESUME_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the client runs before the first kill, to see what a cycle takes.
const STEADY: Duration = Duration::from_secs(1);

/// How long is watched for a pause after a planned hand-over.
const HAND_OVER_WATCH: Duration = Duration::from_secs(3);

/// What was seen of one peer.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    /// Percent of a core, of the leader and of the others.
    idle_leader: f64,
    idle_followers: Vec<f64>,
    /// What a cycle takes, from asking to the grant.
    steady_ms: f64,
    killed_ms: Vec<f64>,
    planned_ms: Vec<f64>,
}

/// Runs it for all peers that were asked for.
pub(crate) fn run(options: &Options) -> ExitCode {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    let mut has_failed = false;
    // An idle time, kills, and as many hand-overs, of each.
    let steps = options.peers().len() as u64 * (1 + 2 * u64::from(options.kills));
    let progress = Progress::new(steps);
    for name in options.peers() {
        let mut peer = match Peer::start_nodes(name, options.node_count()) {
            Ok(peer) => peer,
            Err(why) => {
                println!("skipped: {name}: {why}");
                continue;
            }
        };
        progress.print(|| println!("measured: {name} {}", peer.version));
        let version = peer.version.clone();
        let Some(nodes) = peer.nodes() else {
            continue;
        };
        match watch(name, nodes, options, &progress) {
            Ok(seen) => {
                lines.extend(lines_of(name, &version, options.node_count(), &seen));
                rows.push((name, seen));
            }
            Err(why) => {
                progress.print(|| println!("FAILED: failover of {name}: {why}"));
                has_failed = true;
            }
        }
    }
    drop(progress);
    if rows.is_empty() && !has_failed {
        eprintln!("bench: no peer is left to be measured");
        return ExitCode::FAILURE;
    }
    print(&rows, options);
    if let Some(path) = &options.json {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        match std::fs::write(path, text) {
            Ok(()) => println!("wrote {}", path.display()),
            Err(error) => {
                eprintln!("bench: {}: {error}", path.display());
                has_failed = true;
            }
        }
    }
    match has_failed {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

fn watch(
    name: PeerName,
    nodes: &mut Nodes,
    options: &Options,
    progress: &Progress,
) -> Result<Seen, String> {
    let backend = match name {
        PeerName::EtcdCluster => Backend::Etcd,
        _ => Backend::Fencepost,
    };
    let mut seen = Seen::default();
    let leader = nodes.settled_leader()?;
    if let Some(keys) = options.keys {
        progress.begin(format!("{name}: taking {keys} locks"));
        fill_fencepost(nodes.address(leader), keys)?;
    }
    progress.begin(format!("{name}: idle"));
    let idle = idle(nodes, options.idle);
    progress.step();
    for (index, percent) in idle.into_iter().enumerate() {
        match index == leader {
            true => seen.idle_leader = percent,
            false => seen.idle_followers.push(percent),
        }
    }
    let cycler = Cycler::start(backend, &nodes.addresses())?;
    seen.steady_ms = steady(&cycler)?;
    for _ in 0..options.kills {
        progress.begin(format!("{name}: killing the leader"));
        let leader = nodes.settled_leader()?;
        cycler.forget();
        let killed_ms = now_ms();
        nodes.kill(leader)?;
        let granted_ms = resumed(&cycler, now_ms())?;
        seen.killed_ms.push(granted_ms - killed_ms);
        nodes.start_again(leader)?;
        progress.step();
    }
    for _ in 0..options.kills {
        progress.begin(format!("{name}: handing over"));
        let leader = nodes.settled_leader()?;
        cycler.forget();
        let told_at = now_ms();
        nodes.hand_over(leader)?;
        let grants = granted_within(&cycler, HAND_OVER_WATCH);
        seen.planned_ms.push(
            longest_pause(told_at, &grants).ok_or("no lock was granted after the hand-over")?,
        );
        if nodes.hand_over_ends() {
            nodes.start_again(leader)?;
        }
        progress.step();
    }
    Ok(seen)
}

/// What every node used of a core, in percent, while nothing was asked of it.
fn idle(nodes: &Nodes, time: Duration) -> Vec<f64> {
    let (before, begun) = (nodes.usages(), Instant::now());
    std::thread::sleep(time);
    let (after, seconds) = (nodes.usages(), begun.elapsed().as_secs_f64());
    let percent = |(before, after): (&Usage, &Usage)| {
        let used = after.cpu.saturating_sub(before.cpu);
        used.as_secs_f64() / seconds * 100.0
    };
    before.iter().zip(&after).map(percent).collect()
}

/// What a cycle takes in the median, from asking to the grant.
fn steady(cycler: &Cycler) -> Result<f64, String> {
    cycler
        .next(RESUME_TIMEOUT)
        .ok_or("the client got no lock at all")?;
    let mut took: Vec<f64> = granted_within(cycler, STEADY)
        .iter()
        .map(|grant| grant.granted_ms - grant.asked_ms)
        .collect();
    if took.is_empty() {
        return Err("the client got one lock and no more".to_owned());
    }
    took.sort_by(f64::total_cmp);
    Ok(median(&took))
}

/// The grants of the next so many seconds.
fn granted_within(cycler: &Cycler, time: Duration) -> Vec<Grant> {
    let begun = Instant::now();
    let mut grants = Vec::new();
    while let Some(left) = time.checked_sub(begun.elapsed()) {
        grants.extend(cycler.next(left));
    }
    grants
}

/// When the first grant came that was asked for after the leader was gone: an answer that was on
/// its way already is none.
fn resumed(cycler: &Cycler, gone_ms: f64) -> Result<f64, String> {
    let begun = Instant::now();
    while let Some(left) = RESUME_TIMEOUT.checked_sub(begun.elapsed()) {
        if let Some(grant) = cycler.next(left)
            && grant.asked_ms >= gone_ms
        {
            return Ok(grant.granted_ms);
        }
    }
    Err(format!(
        "no lock was granted within {} s of the kill",
        RESUME_TIMEOUT.as_secs()
    ))
}

/// The longest time between two grants, the first of which may be the moment of the order to hand
/// over. `None`: there was no grant after it.
fn longest_pause(told_at: f64, grants: &[Grant]) -> Option<f64> {
    let times = grants.iter().map(|grant| grant.granted_ms);
    let times = std::iter::once(told_at).chain(times.filter(|&time| time > told_at));
    let times: Vec<f64> = times.collect();
    let pauses = times.windows(2).map(|pair| pair[1] - pair[0]);
    pauses.max_by(f64::total_cmp)
}

const COLUMNS: [&str; 7] = [
    "peer",
    "idle: leader",
    "idle: followers",
    "cycle p50",
    "killed: least, median, most",
    "planned: least, median, most",
    "times",
];

fn print(rows: &[(PeerName, Seen)], options: &Options) {
    if rows.is_empty() {
        return;
    }
    println!(
        "\nfailover: {} nodes, {} locks held, one client; idle is of a core, over {:.0} s; times are without a grant\n",
        options.node_count(),
        options.keys.unwrap_or(0),
        options.idle.as_secs_f64()
    );
    let rows = rows.iter().map(|(name, seen)| cells(*name, seen));
    println!("{}", table(&COLUMNS, rows.collect()));
}

fn cells(name: PeerName, seen: &Seen) -> Vec<String> {
    let followers: Vec<String> = seen
        .idle_followers
        .iter()
        .map(|percent| format!("{percent:.1} %"))
        .collect();
    let three = |ms: &[f64]| {
        let [least, median, most] = least_median_most(ms);
        format!("{least:.0}, {median:.0}, {most:.0} ms")
    };
    vec![
        name.to_string(),
        format!("{:.1} %", seen.idle_leader),
        followers.join(", "),
        format!("{:.1} ms", seen.steady_ms),
        three(&seen.killed_ms),
        three(&seen.planned_ms),
        seen.killed_ms.len().to_string(),
    ]
}

fn least_median_most(ms: &[f64]) -> [f64; 3] {
    assert!(!ms.is_empty(), "there is a kill at least");
    let mut sorted = ms.to_vec();
    sorted.sort_by(f64::total_cmp);
    [sorted[0], median(&sorted), sorted[sorted.len() - 1]]
}

/// One object for the peer, and one for every kill and hand-over.
fn lines_of(name: PeerName, version: &str, nodes: usize, seen: &Seen) -> Vec<Value> {
    let [killed_min, killed, killed_max] = least_median_most(&seen.killed_ms);
    let [planned_min, planned, planned_max] = least_median_most(&seen.planned_ms);
    let mut lines = vec![json!({
        "workload": "failover", "peer": name.as_str(), "version": version, "nodes": nodes,
        "idle_leader_percent": seen.idle_leader,
        "idle_follower_percent_max": seen.idle_followers.iter().copied().fold(0.0, f64::max),
        "cycle_p50_ms": seen.steady_ms,
        "killed_ms": killed, "killed_ms_min": killed_min, "killed_ms_max": killed_max,
        "planned_ms": planned, "planned_ms_min": planned_min, "planned_ms_max": planned_max,
        "kills": seen.killed_ms.len(),
    })];
    for (event, times) in [("killed", &seen.killed_ms), ("planned", &seen.planned_ms)] {
        for (number, ms) in (1..).zip(times) {
            lines.push(json!({
                "workload": "failover-event", "peer": name.as_str(), "nodes": nodes,
                "event": event, "number": number, "without_grants_ms": ms,
            }));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(asked_ms: f64, granted_ms: f64) -> Grant {
        Grant {
            asked_ms,
            granted_ms,
        }
    }

    #[test]
    fn the_longest_pause_is_between_grants_that_follow_the_order() {
        // One before the order, some right after it by the old leader, then the gap.
        let grants = [90.0, 101.0, 104.0, 130.0, 133.0].map(|at| grant(at - 1.0, at));
        assert_eq!(longest_pause(100.0, &grants), Some(26.0));
        assert_eq!(longest_pause(95.0, &grants), Some(26.0));
        // Nothing at once: the pause begins with the order.
        assert_eq!(longest_pause(100.0, &grants[3..]), Some(30.0));
        assert_eq!(longest_pause(200.0, &grants), None);
    }

    #[test]
    fn times_are_told_by_their_least_median_and_most() {
        assert_eq!(least_median_most(&[3.0, 1.0, 2.0]), [1.0, 2.0, 3.0]);
        assert_eq!(least_median_most(&[4.0]), [4.0, 4.0, 4.0]);
    }

    #[test]
    fn every_kill_is_a_line_and_every_peer_one_more() {
        let seen = Seen {
            idle_leader: 1.25,
            idle_followers: vec![0.5, 0.75],
            steady_ms: 0.9,
            killed_ms: vec![1_300.0, 1_200.0],
            planned_ms: vec![12.0, 10.0],
        };
        let lines = lines_of(PeerName::EtcdCluster, "3.4.23", 3, &seen);
        assert_eq!(lines.len(), 1 + 2 + 2);
        assert_eq!(lines[0]["killed_ms_max"], 1_300.0);
        assert_eq!(lines[0]["idle_follower_percent_max"], 0.75);
        assert_eq!(lines[4]["event"], "planned");
        assert_eq!(
            cells(PeerName::EtcdCluster, &seen).join(" | "),
            "etcd-cluster | 1.2 % | 0.5 %, 0.8 % | 0.9 ms | 1200, 1250, 1300 ms | 10, 11, 12 ms | 2"
        );
    }
}
