//! What people read: a section per workload, with what went wrong and what bounds each peer first,
//! and the table below it; the same as one HTML page with all plots.
//!
//! | file         | what                                                         |
//! |--------------|--------------------------------------------------------------|
//! | `remarks.rs` | sentences: warnings, what bounds a peer, order of grants     |
//! | `columns.rs` | eight columns, and all of them; `table.rs`: lines of text    |
//! | `number.rs`  | numbers as text                                              |
//! | `plot.rs`    | plots as SVG                                                 |
//! | `html.rs`    | `--report`: one page; `origin.rs`: commit, date, machine     |
//! | `json.rs`    | `--json`                                                     |

mod columns;
mod html;
mod json;
mod number;
pub(crate) mod origin;
pub(crate) mod plot;
mod remarks;
mod table;

pub(crate) use html::Page;
pub(crate) use json::write as write_json;
pub(crate) use plot::draw_all;

use super::rounds::Row;
use table::Table;

/// How wide sentences are.
const COLUMNS: usize = 110;

/// What a run says of one workload.
pub(crate) struct Section {
    workload: &'static str,
    heading: String,
    /// What makes its figures doubtful.
    warnings: Vec<String>,
    /// What they mean.
    sentences: Vec<String>,
    short: Table,
    wide: Table,
}

/// A section per workload, in the order of the rows.
pub(crate) fn sections(rows: &[Row]) -> Vec<Section> {
    let of_workload = rows.chunk_by(|a, b| a.setting.workload == b.setting.workload);
    of_workload.map(Section::new).collect()
}

impl Section {
    fn new(rows: &[Row]) -> Self {
        let workload = rows[0].setting.workload;
        let mut connections: Vec<u32> = rows.iter().map(|row| row.setting.connections).collect();
        connections.dedup();
        let connections: Vec<String> = connections.iter().map(u32::to_string).collect();
        let rounds = match rows.iter().map(|row| row.rounds).max() {
            Some(rounds) if rounds > 1 => format!("medians of {rounds} rounds"),
            _ => "one round".to_owned(),
        };
        let heading = format!(
            "{} connections, {rounds}; latency is {}",
            connections.join(" and "),
            workload.latency(),
        );
        Section {
            workload: workload.as_str(),
            heading,
            warnings: remarks::warnings(rows),
            sentences: remarks::explanations(rows),
            short: columns::short(rows),
            wide: columns::wide(rows),
        }
    }

    /// The section for a terminal.
    pub(crate) fn text(&self, is_wide: bool) -> String {
        let mut text = format!("\n{}: {}\n", self.workload, self.heading);
        for sentence in self.warnings.iter().chain(&self.sentences) {
            text.push_str(&wrapped(sentence));
        }
        text.push('\n');
        let table = if is_wide { &self.wide } else { &self.short };
        for line in table.lines() {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

/// A sentence in lines of [`COLUMNS`], with what does not fit the first a little further in.
fn wrapped(sentence: &str) -> String {
    let mut text = String::from(" ");
    let mut columns = 1;
    for word in sentence.split(' ') {
        let more = 1 + word.chars().count();
        if columns > 1 && columns + more > COLUMNS {
            text.push_str("\n   ");
            columns = 3;
        }
        text.push(' ');
        text.push_str(word);
        columns += more;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
