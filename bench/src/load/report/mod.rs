//! What people read: one aligned table per workload, and below it what bounds each peer and which
//! way of waiting suits it best.

mod json;
pub(crate) mod plot;

pub(crate) use json::write as write_json;
pub(crate) use plot::draw_all;

use super::peers::PeerName;
use super::rounds::Row;
use super::workloads::Workload;

/// What others may use of the processors before it is worth a word: the kernel's own threads need a
/// little.
const DISTURBED_CORES: f64 = 0.1;

/// A column: its heading, and what stands in it.
struct Column {
    heading: &'static str,
    text: fn(&Row) -> String,
}

const fn column(heading: &'static str, text: fn(&Row) -> String) -> Column {
    Column { heading, text }
}

const COLUMNS: &[Column] = &[
    column("peer", |row| row.peer.to_string()),
    column("pipeline", |row| match row.setting.workload {
        Workload::ManyKeys => row.setting.pipeline.to_string(),
        _ => String::new(),
    }),
    column("contenders", |row| count(row.setting.contenders)),
    column("waits", |row| match row.setting.contenders {
        0 => String::new(),
        _ => row.setting.waiting.to_string(),
    }),
    column("op/s", |row| figure(row, "ops_per_s")),
    column("spread", spread),
    column("ours/it", |row| match row.setting.workload {
        Workload::ManyKeys => ratio(row, "fencepost_ops_ratio"),
        _ => String::new(),
    }),
    column("cycles/s", |row| figure(row, "cycles_per_s")),
    column("ours/it", |row| match row.setting.workload {
        Workload::HotKey => ratio(row, "fencepost_cycles_ratio"),
        _ => String::new(),
    }),
    column("keys", |row| match row.setting.workload.fills() {
        true => group(row.setting.keys as i64),
        false => String::new(),
    }),
    column("fill/s", |row| figure(row, "fill_per_s")),
    column("bound", |row| figure(row, "bound_cycles_per_s")),
    column("p50 us", |row| figure(row, "p50_us")),
    column("p90 us", |row| figure(row, "p90_us")),
    column("p99 us", |row| figure(row, "p99_us")),
    column("p99.9 us", |row| figure(row, "p999_us")),
    column("max us", |row| figure(row, "max_us")),
    column("handoff p50", |row| figure(row, "handoff_p50_us")),
    column("p99/ideal", |row| figure(row, "p99_over_ideal")),
    column("CPU us/op", |row| figure(row, "cpu_us_per_op")),
    column("ours/it", |row| match row.setting.workload {
        Workload::ManyKeys => ratio(row, "fencepost_cpu_ratio"),
        _ => String::new(),
    }),
    column("gen cores", |row| figure(row, "generator_cpu_cores")),
    column("probe p99", |row| figure(row, "probe_p99_us")),
    column("idle p99", |row| figure(row, "probe_idle_p99_us")),
    column("ratio", |row| figure(row, "probe_p99_over_idle")),
    column("locks renewed/s", |row| figure(row, "locks_renewed_per_s")),
    column("cores to hold", |row| figure(row, "holding_cpu_cores")),
    column("bytes/lock", |row| figure(row, "bytes_per_lock")),
    column("ours/it", |row| ratio(row, "fencepost_bytes_ratio")),
    column("RSS MB", |row| scaled(row, "rss_bytes", 1e-6)),
    column("inversions (sum)", |row| figure(row, "inversions")),
    column("reordered", |row| {
        scaled(row, "reordered_share", 100.0) + percent(row, "reordered_share")
    }),
    column("Jain", |row| figure(row, "jain_index")),
];

/// Prints a table per workload, and what bounds each row.
pub(crate) fn print(rows: &[Row]) {
    for of_workload in rows.chunk_by(|a, b| a.setting.workload == b.setting.workload) {
        let workload = of_workload[0].setting.workload.as_str();
        let mut connections: Vec<u32> = of_workload
            .iter()
            .map(|row| row.setting.connections)
            .collect();
        connections.dedup();
        let connections: Vec<String> = connections.iter().map(u32::to_string).collect();
        println!(
            "\n{workload}: {} connections, medians of {} rounds; latency is {}",
            connections.join(" and "),
            of_workload[0].rounds,
            of_workload[0].setting.workload.latency(),
        );
        print_table(of_workload);
        // The work under the lock decides how often it is handed on there.
        let is_compared = of_workload[0].setting.workload != Workload::Handoff
            && of_workload
                .iter()
                .any(|row| row.peer != PeerName::Fencepost && !row.ratios.is_empty());
        if is_compared {
            println!(
                "  ours/it: how many times as much as the peer Fencepost has of what stands to the left; median over the rounds."
            );
        }
        print_remarks(of_workload);
        print_order(of_workload);
        print_troubles(of_workload);
        print_disturbance(of_workload);
    }
}

/// Which way of waiting suits a peer best, and what bounds it then.
fn print_remarks(rows: &[Row]) {
    let bounded = rows.iter().filter(|row| row.bounded_by.is_some());
    let mut best: Vec<&Row> = Vec::new();
    for row in bounded {
        match best.iter_mut().find(|other| other.is_rival_of(row)) {
            None => best.push(row),
            Some(other) if row.cycles_per_s() > other.cycles_per_s() => *other = row,
            Some(_) => {}
        }
    }
    for row in best {
        let (peer, contenders) = (row.peer, row.setting.contenders);
        let won = match rows.iter().filter(|other| other.is_rival_of(row)).count() {
            1 => String::new(),
            ways => format!(", best of {ways} ways to wait: {}", row.setting.waiting),
        };
        let bound = row
            .median
            .get("bound_cycles_per_s")
            .copied()
            .unwrap_or(f64::NAN);
        println!(
            "  {peer}, {contenders} contenders{won}: {} cycles/s, {:.2} of the bound 1/(work + acquire + release) = {}. Bounded by {}.",
            group(row.cycles_per_s() as i64),
            row.cycles_per_s() / bound,
            group(bound as i64),
            row.bounded_by.as_deref().unwrap_or_default(),
        );
    }
}

/// Grants out of turn, and by how much.
fn print_order(rows: &[Row]) {
    rows.iter()
        .filter_map(order)
        .for_each(|text| println!("  {text}"));
}

fn order(row: &Row) -> Option<String> {
    let count = |name| row.median.get(name).copied().unwrap_or_default();
    let (inversions, on_one) = (count("inversions"), count("reordered_on_one_connection"));
    if inversions + on_one == 0.0 {
        return None;
    }
    let most = row.most.get("inversions").copied().unwrap_or_default();
    Some(format!(
        "{}, {} contenders, {}: {} inversions in all rounds ({}), {} at most in one. Requests overtaken: {}, by others that \
         left up to {:.1} ms later. Pairs out of order on one connection: {}.",
        row.peer,
        row.setting.contenders,
        row.setting.waiting,
        group(inversions as i64),
        row.rounds,
        group(most as i64),
        group(count("overtaken") as i64),
        count("head_start_max_us") / 1_000.0,
        group(on_one as i64),
    ))
}

/// What other programs took of the processors, if anything.
fn print_disturbance(rows: &[Row]) {
    let most = |name| {
        let values = rows.iter().filter_map(|row| row.median.get(name).copied());
        values.fold(0.0, f64::max)
    };
    let (others, stolen) = (most("others_cpu_cores"), most("stolen_cpu_cores"));
    if others > DISTURBED_CORES || stolen > DISTURBED_CORES {
        println!(
            "  DISTURBED: other programs used up to {others:.2} cores meanwhile, and the host of this machine took up to {stolen:.2}."
        );
    }
}

/// Errors and timeouts, or that there were none.
fn print_troubles(rows: &[Row]) {
    let sum = |name| {
        rows.iter()
            .filter_map(|row| row.median.get(name))
            .sum::<f64>()
    };
    for row in rows {
        if row.most.get("taken_late").is_some_and(|&late| late > 0.0) {
            println!(
                "  {}: taking the locks took longer than planned, some leases ended meanwhile; the lag is too large.",
                row.peer
            );
        }
    }
    if sum("errors") + sum("timeouts") + sum("outlived_leases") == 0.0 {
        return println!("  No errors, no timeouts.");
    }
    for row in rows {
        let count = |name| row.median.get(name).copied().unwrap_or_default();
        let (errors, timeouts) = (count("errors"), count("timeouts"));
        let outlived = count("outlived_leases");
        if errors + timeouts + outlived > 0.0 {
            println!(
                "  {}, {} contenders, {}: {errors} errors, {timeouts} timeouts, {outlived} leases that ran out under their holders.",
                row.peer, row.setting.contenders, row.setting.waiting
            );
        }
    }
}

fn print_table(rows: &[Row]) {
    let columns: Vec<(&str, Vec<String>)> = COLUMNS
        .iter()
        .map(|column| (column.heading, rows.iter().map(column.text).collect()))
        // A column that is empty for every peer is not for this workload.
        .filter(|(_, cells): &(_, Vec<String>)| cells.iter().any(|cell| !cell.is_empty()))
        .collect();
    let width = |(heading, cells): &(&str, Vec<String>)| {
        let widest = cells.iter().map(String::len).max().unwrap_or_default();
        widest.max(heading.len())
    };
    let widths: Vec<usize> = columns.iter().map(width).collect();
    let line = |cells: Vec<&str>| {
        let mut line = String::new();
        for (index, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            if index == 0 {
                line.push_str(&format!("  {cell:<width$}"));
            } else {
                line.push_str(&format!("  {cell:>width$}"));
            }
        }
        println!("{line}");
    };
    line(columns.iter().map(|(heading, _)| *heading).collect());
    for row in 0..rows.len() {
        line(
            columns
                .iter()
                .map(|(_, cells)| cells[row].as_str())
                .collect(),
        );
    }
}

fn count(number: u32) -> String {
    match number {
        0 => String::new(),
        number => number.to_string(),
    }
}

fn figure(row: &Row, name: &str) -> String {
    scaled(row, name, 1.0)
}

/// How many times what stands to its left Fencepost has.
fn ratio(row: &Row, name: &str) -> String {
    match row.ratios.get(name) {
        Some(_) if row.peer == PeerName::Fencepost => "1".to_owned(),
        Some(ratio) if *ratio >= 100.0 => format!("{ratio:.0}"),
        Some(ratio) => format!("{ratio:.2}"),
        None => String::new(),
    }
}

fn percent(row: &Row, name: &str) -> &'static str {
    if row.median.contains_key(name) {
        " %"
    } else {
        ""
    }
}

/// Three digits that count, no more: the rest is noise.
fn scaled(row: &Row, name: &str, factor: f64) -> String {
    let Some(value) = row.median.get(name).map(|value| value * factor) else {
        return String::new();
    };
    match value.abs() {
        size if size >= 1_000.0 => group(value.round() as i64),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Half of the way from the least to the most, in percent of the median.
fn spread(row: &Row) -> String {
    let name = "ops_per_s";
    let (Some(least), Some(most), Some(median)) = (
        row.least.get(name),
        row.most.get(name),
        row.median.get(name),
    ) else {
        return String::new();
    };
    format!("±{:.0}%", (most - least) / 2.0 / median * 100.0)
}

/// 1234567 as 1,234,567.
fn group(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::options::Options;
    use crate::load::sample::Figures;
    use crate::load::workloads::{Setting, Waiting};
    use clap::Parser;
    use std::time::Duration;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        options: Options,
    }

    pub(super) fn options() -> Options {
        Program::parse_from(["bench", "--hot-key"]).options
    }

    pub(super) fn row() -> Row {
        let setting = Setting {
            workload: Workload::HotKey,
            connections: 50,
            pipeline: 0,
            contenders: 200,
            waiting: Waiting::Retry { ms: 10 },
            work: Duration::ZERO,
            keys: 1,
        };
        let figures = Figures::from([("ops_per_s", 12_345.0), ("p50_us", 12.5)]);
        let mut row = Row::once(PeerName::RedisFenced, setting, figures);
        row.least.insert("ops_per_s", 12_000.0);
        row.most.insert("ops_per_s", 13_000.0);
        row
    }

    #[test]
    fn numbers_have_as_many_digits_as_they_deserve() {
        let mut row = row();
        for (value, text) in [
            (0.0, "0"),
            (0.0123, "0.012"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1_234_567.8, "1,234,568"),
            (-1_234.0, "-1,234"),
        ] {
            row.median.insert("p50_us", value);
            assert_eq!(figure(&row, "p50_us"), text);
        }
        assert_eq!(figure(&row, "no such figure"), "");
    }

    #[test]
    fn an_overtaken_contender_is_told_of() {
        let mut row = row();
        assert_eq!(order(&row), None);
        row.median.insert("inversions", 36.0);
        row.most.insert("inversions", 35.0);
        row.median.insert("overtaken", 2.0);
        row.median.insert("head_start_max_us", 1_802.0);
        let text = order(&row).unwrap();
        for part in [
            "36 inversions in all rounds (1), 35 at most in one",
            "overtaken: 2,",
            "1.8 ms",
            "on one connection: 0.",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn the_spread_is_half_the_range_over_the_median() {
        assert_eq!(spread(&row()), "±4%");
    }
}
