//! `--json`: one flat object per line, peer and setting. Figures are medians over the rounds; those
//! that count what should not happen (inversions, errors, timeouts) are sums.

use crate::load::options::Options;
use crate::load::rounds::Row;
use serde_json::{Map, Number, Value};
use std::io::{self, Write};

/// Figures that every object has, null where they do not apply: programs that read them need not
/// ask which workload it was.
const ALWAYS: [&str; 11] = [
    "ops_per_s",
    "cycles_per_s",
    "cpu_us_per_op",
    "p50_us",
    "p90_us",
    "p99_us",
    "p999_us",
    "max_us",
    "inversions",
    "bytes_per_lock",
    "errors",
];

/// Figures whose least and most over the rounds are given too.
const SPREAD: [(&str, &str, &str); 5] = [
    ("ops_per_s", "ops_per_s_min", "ops_per_s_max"),
    ("cycles_per_s", "cycles_per_s_min", "cycles_per_s_max"),
    ("cpu_us_per_op", "cpu_us_per_op_min", "cpu_us_per_op_max"),
    ("p99_us", "p99_us_min", "p99_us_max"),
    ("inversions", "inversions_min", "inversions_max"),
];

/// Writes all rows.
pub(crate) fn write(rows: &[Row], options: &Options, out: &mut impl Write) -> io::Result<()> {
    for row in rows {
        serde_json::to_writer(&mut *out, &object(row, options))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn object(row: &Row, options: &Options) -> Map<String, Value> {
    let setting = &row.setting;
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("workload", setting.workload.as_str().into());
    put("peer", row.peer.as_str().into());
    put("version", row.version.as_str().into());
    put("connections", setting.connections.into());
    put("pipeline", some(setting.pipeline));
    put("contenders", some(setting.contenders));
    let waiting = match setting.contenders {
        0 => Value::Null,
        _ => setting.waiting.to_string().into(),
    };
    put("waiting", waiting);
    put("keys", setting.keys.into());
    put("work_ms", (setting.work.as_millis() as u64).into());
    put("ttl_ms", options.ttl_ms().into());
    put("rate", options.rate.map_or(Value::Null, number));
    put("seed", options.seed.into());
    put("rounds", row.rounds.into());
    for name in ALWAYS {
        put(name, Value::Null);
    }
    for (name, &value) in &row.median {
        put(name, number(value));
    }
    for (name, &value) in &row.ratios {
        put(name, number(value));
    }
    for (name, least, most) in SPREAD {
        if let (Some(&min), Some(&max)) = (row.least.get(name), row.most.get(name)) {
            put(least, number(min));
            put(most, number(max));
        }
    }
    put(
        "bounded_by",
        row.bounded_by.as_deref().map_or(Value::Null, Value::from),
    );
    object
}

/// Counts are counts, and nothing has more digits than it deserves.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return (value as i64).into();
    }
    let digits = (5.0 - value.abs().log10().floor()).clamp(0.0, 12.0);
    let rounded = (value * 10f64.powf(digits)).round() / 10f64.powf(digits);
    Number::from_f64(rounded).map_or(Value::Null, Value::Number)
}

fn some(count: u32) -> Value {
    match count {
        0 => Value::Null,
        count => count.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{options, row};
    use super::*;

    #[test]
    fn an_object_is_flat_and_has_every_field_that_was_promised() {
        let object = object(&row(), &options());
        let promised = "workload peer pipeline connections contenders ops_per_s cpu_us_per_op p50_us p99_us p999_us \
                        inversions bytes_per_lock errors";
        for name in promised.split_whitespace() {
            assert!(object.contains_key(name), "{name} is missing");
        }
        for (name, value) in &object {
            assert!(!value.is_object() && !value.is_array(), "{name} is {value}");
        }
        assert_eq!(object["workload"], "hot-key");
        assert_eq!(object["peer"], "redis-fenced");
        assert_eq!(object["pipeline"], Value::Null);
        assert_eq!(object["contenders"], 200);
        assert_eq!(object["ops_per_s"], 12345);
        assert_eq!(object["ops_per_s_min"], 12000);
        assert_eq!(object["bytes_per_lock"], Value::Null);
    }

    #[test]
    fn numbers_keep_six_digits() {
        assert_eq!(number(3.0), 3);
        assert_eq!(number(0.123456789).to_string(), "0.123457");
        assert_eq!(number(12345.6789).to_string(), "12345.7");
        assert_eq!(number(f64::NAN), Value::Null);
    }

    #[test]
    fn every_object_is_a_line() {
        let mut out = Vec::new();
        write(&[row(), row()], &options(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 2);
        for line in text.lines() {
            serde_json::from_str::<Value>(line).unwrap();
        }
    }
}
