//! Times, keys and tables as people read them.

use std::fmt::Write;
use std::time::Duration;

/// A length of time to about three digits: `850ms`, `12.4s`, `3m 20s`, `2h 05m`, `3d 4h`.
pub(super) fn time(time: Duration) -> String {
    let (ms, s) = (time.as_millis(), time.as_secs());
    match s {
        0 => format!("{ms}ms"),
        // Cut off, not rounded: 59.96 s must not become a minute with no seconds.
        1..60 => format!("{}.{}s", s, ms / 100 % 10),
        60..3_600 => format!("{}m {:02}s", s / 60, s % 60),
        3_600..86_400 => format!("{}h {:02}m", s / 3_600, s / 60 % 60),
        _ => format!("{}d {}h", s / 86_400, s / 3_600 % 24),
    }
}

/// Bytes that are most often text, on one line and without ambiguity. A backslash and everything
/// that is not printable become escapes, so no key can move the reader's cursor.
pub(super) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                // `escape_debug` escapes control characters and changes of writing direction. It
                // would escape quotes too.
                '"' | '\'' => text.push(c),
                c => text.extend(c.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// `name  value` lines, the values in one column.
pub(super) fn pairs(pairs: &[(impl AsRef<str>, impl AsRef<str>)]) -> String {
    let width = pairs.iter().map(|(name, _)| chars(name.as_ref())).max();
    let mut text = String::new();
    for (name, value) in pairs {
        let (name, value) = (name.as_ref(), value.as_ref());
        let line = format!("{name:width$}  {value}", width = width.unwrap_or(0));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// How a column of a table is aligned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    /// For numbers and times.
    Right,
}

/// A table with a line of headings.
pub(super) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a cell for every column");
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| chars(&row[column]));
                cells.fold(chars(self.columns[column].0), usize::max)
            })
            .collect();
        let headings = self.columns.iter().map(|(name, _)| (*name).to_owned());
        for row in std::iter::once(&headings.collect()).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                if !line.is_empty() {
                    line.push_str("  ");
                }
                let _ = match align {
                    Align::Left => write!(line, "{cell:width$}"),
                    Align::Right => write!(line, "{cell:>width$}"),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The width that `format!` pads by. Wide and combining characters shift the columns a little; keys
/// seldom have any.
fn chars(text: &str) -> usize {
    text.chars().count()
}

/// `1 session`, `2 sessions`.
pub(super) fn plural(count: u64, one: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {one}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_about_three_digits() {
        for (time_ms, text) in [
            (0, "0ms"),
            (850, "850ms"),
            (1_000, "1.0s"),
            (12_449, "12.4s"),
            (59_999, "59.9s"),
            (200_000, "3m 20s"),
            (3_599_999, "59m 59s"),
            (7_500_000, "2h 05m"),
            (273_600_000, "3d 4h"),
        ] {
            assert_eq!(time(Duration::from_millis(time_ms)), text);
        }
    }

    #[test]
    fn text_stays_text_and_the_rest_is_escaped() {
        assert_eq!(escaped("orders/42".as_bytes()), "orders/42");
        assert_eq!(escaped("Bücher's \"neue\"".as_bytes()), "Bücher's \"neue\"");
        assert_eq!(escaped(b"a\xff\xfeb"), "a\\xff\\xfeb");
        assert_eq!(escaped(b"a\\xff"), "a\\\\xff");
        assert_eq!(escaped(b"a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&[("KEY", Align::Left), ("QUEUE", Align::Right)]);
        table.row(vec!["orders/42".to_owned(), "3".to_owned()]);
        table.row(vec!["ü".to_owned(), "12".to_owned()]);
        assert_eq!(
            table.to_string(),
            "KEY        QUEUE\norders/42      3\nü             12\n"
        );
        assert_eq!(
            pairs(&[("a", "1"), ("long", "2"), ("b", "")]),
            "a     1\nlong  2\nb\n"
        );
    }
}
