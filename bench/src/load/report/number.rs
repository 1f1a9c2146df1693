//! Numbers as text: as many digits as they deserve.

use crate::load::peers::PeerName;
use crate::load::rounds::Row;

/// How the names of ratios to a cluster of etcd begin.
pub(super) const ETCD_CLUSTER: &str = "etcd_cluster_";

pub(super) fn figure(row: &Row, name: &str) -> String {
    scaled(row, name, 1.0)
}

/// A figure of a row, times something.
pub(super) fn scaled(row: &Row, name: &str, factor: f64) -> String {
    let value = row.median.get(name).map(|value| value * factor);
    value.map_or_else(String::new, digits)
}

/// Three digits that count, no more: the rest is noise.
pub(super) fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 1_000.0 => group(value.round() as i64),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A latency with its unit.
pub(super) fn latency(row: &Row, name: &str) -> String {
    match row.median.get(name) {
        None => String::new(),
        Some(us) if *us >= 1e6 => format!("{} s", digits(us / 1e6)),
        Some(us) if *us >= 1e3 => format!("{} ms", digits(us / 1e3)),
        Some(us) => format!("{} us", digits(*us)),
    }
}

/// A ratio: how many times as much Fencepost has, or how many times a cluster of etcd's it is.
pub(super) fn ratio(row: &Row, name: &str) -> String {
    let base = match name.starts_with(ETCD_CLUSTER) {
        true => PeerName::EtcdCluster,
        false => PeerName::Fencepost,
    };
    match row.ratios.get(name) {
        Some(_) if row.peer == base => "1".to_owned(),
        Some(ratio) if *ratio >= 100.0 => format!("{ratio:.0}"),
        Some(ratio) if *ratio < 0.1 => format!("{ratio:.3}"),
        Some(ratio) => format!("{ratio:.2}"),
        None => String::new(),
    }
}

/// A figure with its spread, where there is one.
pub(super) fn spread(row: &Row, name: &str) -> String {
    let spread = spread_alone(row, name);
    match figure(row, name) {
        figure if spread.is_empty() => figure,
        figure => format!("{figure} {spread:>4}"),
    }
}

/// Half of the way from the least to the most, in percent of the median. One round has none.
pub(super) fn spread_alone(row: &Row, name: &str) -> String {
    let (Some(least), Some(most), Some(median)) = (
        row.least.get(name),
        row.most.get(name),
        row.median.get(name),
    ) else {
        return String::new();
    };
    match row.rounds > 1 && *median > 0.0 {
        true => format!("±{:.0}%", (most - least) / 2.0 / median * 100.0),
        false => String::new(),
    }
}

/// 1234567 as 1,234,567.
pub(super) fn group(number: i64) -> String {
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
