//! What an experiment found: a table, the claims that the table bears out or does not, and the same
//! for programs.

pub(crate) mod plot;

use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Fences from here on are told relative to each other.
const SHOWN_FENCE_MAX: u64 = 1 << 32;

/// One experiment's findings.
pub(crate) struct Report {
    name: &'static str,
    question: &'static str,
    /// At least one; rows go to the last.
    tables: Vec<Table>,
    lines: Vec<Value>,
    claims: Vec<Claim>,
    used: Vec<String>,
    skipped: Vec<String>,
    notes: Vec<String>,
}

/// One table of an experiment, most have only one.
struct Table {
    /// Stands above it; the first one needs none.
    caption: &'static str,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// Something that the experiment is there to show.
struct Claim {
    sentence: String,
    holds: bool,
}

impl Report {
    pub(crate) fn new(
        name: &'static str,
        question: &'static str,
        columns: &[&'static str],
    ) -> Self {
        Report {
            name,
            question,
            tables: vec![Table::new("", columns)],
            lines: Vec::new(),
            claims: Vec::new(),
            used: Vec::new(),
            skipped: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Begins another table: what follows is about something that the columns so far cannot tell.
    pub(crate) fn table(&mut self, caption: &'static str, columns: &[&'static str]) {
        self.tables.push(Table::new(caption, columns));
    }

    /// A line of the table only; programs have the same from other lines.
    pub(crate) fn plain_row(&mut self, cells: Vec<String>) {
        let table = self.tables.last_mut().expect("there is a first one");
        assert_eq!(cells.len(), table.columns.len(), "a cell for every column");
        table.rows.push(cells);
    }

    /// A line of the table, and what programs get of it.
    pub(crate) fn row(&mut self, cells: Vec<String>, observed: &impl Serialize) {
        self.plain_row(cells);
        self.line(observed);
    }

    /// Something for programs only.
    pub(crate) fn line(&mut self, observed: &impl Serialize) {
        let mut line = json!({ "experiment": self.name });
        let observed = serde_json::to_value(observed).expect("numbers and strings can be written");
        if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), observed) {
            line.extend(fields);
        }
        self.lines.push(line);
    }

    /// A claim, with whether the observations bear it out.
    pub(crate) fn claim(&mut self, sentence: impl Into<String>, holds: bool) {
        self.claims.push(Claim {
            sentence: sentence.into(),
            holds,
        });
    }

    pub(crate) fn used(&mut self, what: String) {
        if !self.used.contains(&what) {
            self.used.push(what);
        }
    }

    /// Something that was left out, and why.
    pub(crate) fn skipped(&mut self, what: String) {
        self.skipped.push(what);
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Whether something was claimed, and all of it held: an experiment that shows nothing has
    /// failed.
    pub(crate) fn holds(&self) -> bool {
        !self.claims.is_empty() && self.claims.iter().all(|claim| claim.holds)
    }

    pub(crate) fn print(&self, took: Duration) {
        println!("\n## {}: {}\n", self.name, self.question);
        if !self.used.is_empty() {
            println!("- used: {}", self.used.join(", "));
        }
        for what in &self.skipped {
            println!("- SKIPPED: {what}");
        }
        for table in self.tables.iter().filter(|table| !table.rows.is_empty()) {
            println!("\n{}", table.text());
        }
        for note in &self.notes {
            println!("- {}", note.trim());
        }
        for claim in &self.claims {
            let verdict = if claim.holds { "shown" } else { "NOT SHOWN" };
            println!("- {verdict}: {}", claim.sentence);
        }
        if self.claims.is_empty() {
            println!("- NOT SHOWN: nothing could be run");
        }
        println!("- took {:.1} s", took.as_secs_f64());
    }

    /// One object per row and claim.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let claims = self.claims.iter().map(|claim| {
            json!({ "experiment": self.name, "claim": claim.sentence, "shown": claim.holds })
        });
        let skipped = self
            .skipped
            .iter()
            .map(|what| json!({ "experiment": self.name, "skipped": what }));
        let lines = self.lines.iter().cloned().chain(claims).chain(skipped);
        lines.map(|line| line.to_string())
    }
}

impl Table {
    fn new(caption: &'static str, columns: &[&'static str]) -> Self {
        Table {
            caption,
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// In Markdown, so that a run can be pasted into a document as it is.
    fn text(&self) -> String {
        let width_of = |index: usize| {
            let cells = self.rows.iter().map(|row| row[index].chars().count());
            cells
                .chain([self.columns[index].chars().count()])
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width_of).collect();
        let line = |cells: Vec<&str>| {
            let cells = cells
                .iter()
                .zip(&widths)
                .map(|(cell, &width)| format!("{cell:width$}"));
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let mut text = match self.caption {
            "" => String::new(),
            caption => format!("{caption}:\n\n"),
        };
        text.push_str(&line(self.columns.clone()));
        let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        text.push_str(&line(rules.iter().map(String::as_str).collect()));
        for row in &self.rows {
            text.push_str(&line(row.iter().map(String::as_str).collect()));
        }
        text
    }
}

/// A table of its own, in Markdown.
pub(crate) fn table(columns: &[&'static str], rows: Vec<Vec<String>>) -> String {
    Table {
        rows,
        ..Table::new("", columns)
    }
    .text()
}

/// Two fences for a table, which has no room for sixteen digits: long ones become `n` and `n+1`.
/// The JSON has them in full.
pub(crate) fn fences(first: u64, second: u64) -> [String; 2] {
    match first.max(second) < SHOWN_FENCE_MAX {
        true => [first.to_string(), second.to_string()],
        false => [
            "n".to_owned(),
            format!("n{:+}", second as i64 - first as i64),
        ],
    }
}

/// On or off, for a cell.
pub(crate) fn on(is_on: bool) -> String {
    (if is_on { "on" } else { "off" }).to_owned()
}

/// Yes or no, for a cell.
pub(crate) fn yes(is_so: bool) -> String {
    (if is_so { "yes" } else { "no" }).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_did_not_hold_fails_the_experiment_and_so_does_none_at_all() {
        let mut report = Report::new("x", "?", &["a"]);
        assert!(!report.holds());
        report.claim("one", true);
        assert!(report.holds());
        report.claim("another", false);
        assert!(!report.holds());
        assert!(report.lines().any(|line| line.contains("\"shown\":false")));
    }

    #[test]
    fn long_fences_are_told_relative_to_each_other() {
        assert_eq!(fences(4, 1), ["4", "1"]);
        assert_eq!(fences(1 << 50, (1 << 50) + 3), ["n", "n+3"]);
        assert_eq!(fences(1 << 50, (1 << 50) - 3), ["n", "n-3"]);
    }

    #[test]
    fn tables_are_markdown_with_columns_in_line() {
        let mut table = Table::new("numbers", &["abc", "d"]);
        table.rows.push(vec!["1".to_owned(), "four".to_owned()]);
        let expected = "numbers:\n\n| abc | d    |\n| --- | ---- |\n| 1   | four |\n";
        assert_eq!(table.text(), expected);
    }
}
