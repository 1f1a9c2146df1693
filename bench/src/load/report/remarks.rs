//! The sentences that stand above a table: what went wrong, what bounds each peer, and which way of
//! waiting suits it best.

use super::columns::has_ratio_to;
use super::number::{ETCD_CLUSTER, group};
use crate::load::peers::PeerName;
use crate::load::rounds::Row;
use crate::load::workloads::Workload;

/// What others may use of the processors before it is worth a word: the kernel's own threads need a
/// little.
const DISTURBED_CORES: f64 = 0.1;

/// What makes the figures of a workload doubtful.
pub(super) fn warnings(rows: &[Row]) -> Vec<String> {
    let mut warnings: Vec<String> = disturbance(rows).into_iter().collect();
    warnings.extend(troubles(rows));
    warnings
}

/// What the figures mean.
pub(super) fn explanations(rows: &[Row]) -> Vec<String> {
    let mut sentences = bounds(rows);
    // Where there is no line, grants out of turn are the rule, and the table counts them.
    let in_line = rows.iter().filter(|row| row.peer.has_line());
    sentences.extend(in_line.filter_map(order));
    // The work under the lock decides how often it is handed on there.
    let is_compared = rows[0].setting.workload != Workload::Handoff
        && rows
            .iter()
            .any(|row| row.peer != PeerName::Fencepost && has_ratio_to(row, "fencepost_"));
    if is_compared {
        sentences.push(
            "ours/it: how many times as much as the peer Fencepost has of what stands to the left; median over the rounds."
                .to_owned(),
        );
    }
    if rows.iter().any(|row| has_ratio_to(row, ETCD_CLUSTER)) {
        sentences.push(
            "x etcd: how many times etcd-cluster's what stands to the left is; median over the rounds."
                .to_owned(),
        );
    }
    if rows.iter().any(|row| row.median.contains_key("jain_index")) {
        sentences.push(
            "fairness: Jain's index over the contenders; 1 is the same for all, 1/n is all for one."
                .to_owned(),
        );
    }
    if troubles(rows).is_empty() {
        sentences.push("No errors, no timeouts.".to_owned());
    }
    sentences
}

/// Which way of waiting suits a peer best, and what bounds it then.
fn bounds(rows: &[Row]) -> Vec<String> {
    let bounded = rows.iter().filter(|row| row.bounded_by.is_some());
    let mut best: Vec<&Row> = Vec::new();
    for row in bounded {
        match best.iter_mut().find(|other| other.is_rival_of(row)) {
            None => best.push(row),
            Some(other) if row.cycles_per_s() > other.cycles_per_s() => *other = row,
            Some(_) => {}
        }
    }
    let sentence = |row: &&Row| {
        let (peer, contenders) = (row.peer, row.setting.contenders);
        let won = match rows.iter().filter(|other| other.is_rival_of(row)).count() {
            1 => String::new(),
            ways => format!(", best of {ways} ways to wait: {}", row.setting.waiting),
        };
        let bound = row.median.get("bound_cycles_per_s").copied();
        let bound = bound.unwrap_or(f64::NAN);
        format!(
            "{peer}, {contenders} contenders{won}: {} cycles/s, {:.2} of the bound 1/(work + acquire + release) = {}. Bounded by {}.",
            group(row.cycles_per_s() as i64),
            row.cycles_per_s() / bound,
            group(bound as i64),
            row.bounded_by.as_deref().unwrap_or_default(),
        )
    };
    best.iter().map(sentence).collect()
}

/// Grants out of turn, and by how much.
pub(super) fn order(row: &Row) -> Option<String> {
    let count = |name| row.median.get(name).copied().unwrap_or_default();
    let (inversions, on_one) = (count("inversions"), count("reordered_on_one_connection"));
    if inversions + on_one == 0.0 {
        return None;
    }
    let rounds = match row.rounds {
        1 => String::new(),
        rounds => {
            let most = row.most.get("inversions").copied().unwrap_or_default();
            format!(
                " in all rounds ({rounds}), {} at most in one",
                group(most as i64)
            )
        }
    };
    Some(format!(
        "{}, {} contenders, {}: {} inversions{rounds}. Requests overtaken: {}, by others that left up to {:.1} ms later. \
         Pairs out of order on one connection: {}.",
        row.peer,
        row.setting.contenders,
        row.setting.waiting,
        group(inversions as i64),
        group(count("overtaken") as i64),
        count("head_start_max_us") / 1_000.0,
        group(on_one as i64),
    ))
}

/// What other programs took of the processors, if it is enough to matter.
fn disturbance(rows: &[Row]) -> Option<String> {
    let most = |name| {
        let values = rows.iter().filter_map(|row| row.median.get(name).copied());
        values.fold(0.0, f64::max)
    };
    let (others, stolen) = (most("others_cpu_cores"), most("stolen_cpu_cores"));
    (others > DISTURBED_CORES || stolen > DISTURBED_CORES).then(|| {
        format!(
            "DISTURBED: other programs used up to {others:.2} cores meanwhile, and the host of this machine took up to {stolen:.2}."
        )
    })
}

/// Errors, timeouts and leases that were taken too late.
fn troubles(rows: &[Row]) -> Vec<String> {
    let mut sentences = Vec::new();
    for row in rows {
        if row.most.get("taken_late").is_some_and(|&late| late > 0.0) {
            sentences.push(format!(
                "{}: taking the locks took longer than planned, some leases ended meanwhile; the lag is too large.",
                row.peer
            ));
        }
        let count = |name| row.median.get(name).copied().unwrap_or_default();
        let (errors, timeouts) = (count("errors"), count("timeouts"));
        let outlived = count("outlived_leases");
        if errors + timeouts + outlived > 0.0 {
            sentences.push(format!(
                "{}{}: {errors} errors, {timeouts} timeouts, {outlived} leases that ran out under their holders.",
                row.peer,
                row.setting.load()
            ));
        }
    }
    sentences
}
