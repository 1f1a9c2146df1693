//! A frame: the state of the server, small charts, one table, and a line of help. What does not fit
//! is left out, the table last.

use super::super::text::{escaped, time};
use super::model::{Chart, Input, Model, Tab};
use super::sample::{ROWS_MAX, Sample};
use fencepost::LockInfo;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Cell, Paragraph, Row, Sparkline, StatefulWidget, Table, TableState, Widget,
};
use std::time::Duration;

/// Below this nothing can be shown but a request for more.
const COLUMNS_MIN: u16 = 24;
const ROWS_MIN: u16 = 5;

/// From this height on there is room for charts.
const ROWS_FOR_CHARTS: u16 = 16;

const HEADING: Style = Style::new().add_modifier(Modifier::BOLD);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
const WARNING: Style = Style::new().fg(Color::Yellow);
const QUIET: Style = Style::new().add_modifier(Modifier::DIM);

/// Draws everything.
pub(super) fn draw(model: &mut Model, area: Rect, buffer: &mut Buffer) {
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        Paragraph::new("the terminal is too small").render(area, buffer);
        return;
    }
    let charts = if area.height >= ROWS_FOR_CHARTS { 4 } else { 0 };
    let heights = [
        Constraint::Length(3),
        Constraint::Length(charts),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ];
    // Three lines of numbers are worth less than one of the table.
    let heights = match area.height {
        0..10 => [1, 0, 1, area.height - 3, 1].map(Constraint::Length),
        _ => heights,
    };
    let [head, charts, tabs, table, foot] = Layout::vertical(heights).areas(area);
    draw_head(model, head, buffer);
    if charts.height > 0 {
        draw_charts(model, charts, buffer);
    }
    draw_tabs(model, tabs, buffer);
    draw_table(model, table, buffer);
    draw_foot(model, foot, buffer);
}

fn draw_head(model: &Model, area: Rect, buffer: &mut Buffer) {
    let Some(sample) = &model.sample else {
        Paragraph::new(format!("asking {}", model.server)).render(area, buffer);
        return;
    };
    let number = |name: &str| sample.number(name);
    let uptime = time(Duration::from_millis(number("uptime_ms")));
    let mut first = vec![
        Span::styled(escaped(model.server.as_bytes()), HEADING),
        Span::raw(format!("  up {uptime}  ")),
    ];
    first.extend(state(sample));
    let held = format!(
        "held {}  waiting {}  sessions {}  connections {}  keys {}",
        number("held"),
        number("waiters"),
        number("sessions"),
        number("connections"),
        number("keys"),
    );
    let totals = format!(
        "refused {}  timed out {}  expired {}  forced {}  crash would cost {}",
        number("acquire_refusals_total"),
        number("acquire_timeouts_total"),
        number("lost_expired_total"),
        number("lost_forced_total"),
        time(Duration::from_secs(number("crash_grace_seconds"))),
    );
    let lines = [Line::from(first), Line::raw(held), Line::raw(totals)];
    Paragraph::new(lines.to_vec()).render(area, buffer);
}

/// Whether the server recovers, and how it stands in its cluster.
fn state(sample: &Sample) -> Vec<Span<'static>> {
    let mut state = Vec::new();
    match sample.recovering {
        Some(left) => state.push(Span::styled(
            format!("recovering for {}: grants nothing new  ", time(left)),
            WARNING,
        )),
        None => state.push(Span::raw("granting  ")),
    }
    if let Some(term) = sample.numbers.get("cluster_term") {
        let node = sample.number("cluster_node_id");
        state.push(Span::raw(format!("node {node} leads in term {term}")));
    }
    if sample.number("audit_dropped_total") > 0 {
        state.push(Span::styled("  audit lines were dropped", WARNING));
    }
    state
}

fn draw_charts(model: &Model, area: Rect, buffer: &mut Buffer) {
    let count = |value: u64| format!("{value}/s");
    let us = |value: u64| match value {
        0..1_000 => format!("{value}us"),
        _ => format!("{}.{}ms", value / 1_000, value % 1_000 / 100),
    };
    let is_cluster = |sample: &Sample| sample.numbers.contains_key("cluster_term");
    let commits = match &model.sample {
        Some(sample) if is_cluster(sample) => "commit",
        _ => "log sync",
    };
    type Shown = fn(u64) -> String;
    let charts: [(&str, &Chart, Shown); 5] = [
        ("requests", &model.requests, count),
        ("grants", &model.grants, count),
        ("hand-off", &model.hand_offs, us),
        ("expiry lag", &model.expiry_lag, us),
        (commits, &model.commits, us),
    ];
    // Those that have room for their names.
    let fit = usize::from(area.width / COLUMNS_MIN).clamp(1, charts.len());
    let columns = Layout::horizontal(vec![Constraint::Fill(1); fit])
        .spacing(1)
        .split(area);
    for ((name, chart, shown), area) in charts.into_iter().zip(columns.iter()) {
        let [title, body] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(*area);
        let title_text = format!("{name} {}", shown(chart.last()));
        Paragraph::new(Line::styled(title_text, QUIET)).render(title, buffer);
        let skipped = chart.values.len().saturating_sub(usize::from(body.width));
        let values: Vec<u64> = chart.values.iter().skip(skipped).copied().collect();
        Sparkline::default().data(values).render(body, buffer);
    }
}

fn draw_tabs(model: &Model, area: Rect, buffer: &mut Buffer) {
    let mut spans = Vec::new();
    for tab in Tab::ALL {
        let style = if tab == model.tab { SELECTED } else { QUIET };
        spans.push(Span::styled(format!(" {} ", tab.name()), style));
    }
    let direction = if model.is_reversed() { " reversed" } else { "" };
    spans.push(Span::raw(format!("  by {}{direction}", model.column())));
    if !model.filter().is_empty() {
        let filter = escaped(model.filter().as_bytes());
        spans.push(Span::raw(format!("  filter {filter}")));
    }
    let has_more = model.sample.as_ref().is_some_and(|sample| match model.tab {
        Tab::Locks | Tab::Prefixes => sample.has_more_locks,
        Tab::Sessions => sample.has_more_sessions,
    });
    if has_more {
        let note = format!("  the first {ROWS_MAX} at most: / narrows them down");
        spans.push(Span::styled(note, WARNING));
    }
    Paragraph::new(Line::from(spans)).render(area, buffer);
}

fn draw_table(model: &mut Model, area: Rect, buffer: &mut Buffer) {
    let selected = model.selected;
    // Of a thousand rows only those are made that can be seen.
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let first = selected.saturating_sub(height / 2);
    let first = first.min(model.row_count().saturating_sub(height));
    let rows: Vec<Vec<String>> = match model.tab {
        Tab::Locks => rows(model.locks().into_iter().map(lock_row), first, height),
        Tab::Prefixes => {
            let prefixes = model.prefixes().into_iter();
            let row = |row: super::model::PrefixRow| {
                vec![row.locks.to_string(), row.waiting.to_string(), row.prefix]
            };
            rows(prefixes.map(row), first, height)
        }
        Tab::Sessions => {
            let sessions = model.sessions().into_iter();
            rows(sessions.map(session_row), first, height)
        }
    };
    let (headings, widths): (&[&str], &[Constraint]) = match model.tab {
        Tab::Locks => (
            &["QUEUE", "HELD", "LEFT", "FENCE", "HOLDER", "KEY"],
            &[
                Constraint::Length(6),
                Constraint::Length(8),
                Constraint::Length(8),
                Constraint::Length(20),
                Constraint::Fill(1),
                Constraint::Fill(2),
            ],
        ),
        Tab::Prefixes => (
            &["LOCKS", "WAITING", "PREFIX"],
            &[
                Constraint::Length(8),
                Constraint::Length(8),
                Constraint::Fill(1),
            ],
        ),
        Tab::Sessions => (
            &["LOCKS", "WAITING", "AGE", "LEFT", "ADDRESS", "CLIENT"],
            &[
                Constraint::Length(8),
                Constraint::Length(8),
                Constraint::Length(8),
                Constraint::Length(8),
                Constraint::Length(22),
                Constraint::Fill(1),
            ],
        ),
    };
    // A narrow terminal has the first columns and the last one.
    let (headings, widths, kept) = narrow(headings, widths, area.width);
    let keep = |row: Vec<String>| -> Vec<String> {
        let mut row = row.into_iter().map(Some).collect::<Vec<_>>();
        kept.iter().filter_map(|&index| row[index].take()).collect()
    };
    if rows.is_empty() {
        let nothing = match model.sample {
            None => "",
            Some(_) => "nothing",
        };
        Paragraph::new(nothing).render(area, buffer);
        return;
    }
    let table_rows = rows
        .into_iter()
        .map(|row| Row::new(keep(row).into_iter().map(Cell::from)));
    let table = Table::new(table_rows, widths)
        .header(Row::new(headings).style(HEADING))
        .row_highlight_style(SELECTED);
    let mut state = TableState::default().with_selected(Some(selected - first));
    StatefulWidget::render(table, area, buffer, &mut state);
}

fn rows(rows: impl Iterator<Item = Vec<String>>, first: usize, height: usize) -> Vec<Vec<String>> {
    rows.skip(first).take(height).collect()
}

/// The columns that have room: headings, widths, and which they are.
fn narrow<'a>(
    headings: &[&'a str],
    widths: &[Constraint],
    columns: u16,
) -> (Vec<&'a str>, Vec<Constraint>, Vec<usize>) {
    const LAST_MIN: u16 = 12;
    let last = headings.len() - 1;
    let mut kept = Vec::new();
    let mut left = columns.saturating_sub(LAST_MIN);
    for (index, width) in widths[..last].iter().enumerate() {
        let width = match width {
            Constraint::Length(width) => width + 1,
            _ => LAST_MIN,
        };
        if width > left {
            break;
        }
        left -= width;
        kept.push(index);
    }
    kept.push(last);
    let pick = |index: &usize| (headings[*index], widths[*index]);
    let (headings, widths) = kept.iter().map(pick).unzip();
    (headings, widths, kept)
}

fn lock_row(lock: &LockInfo) -> Vec<String> {
    let contention = &lock.contention;
    let holder = contention.holder.as_ref();
    let dash = || "-".to_owned();
    let others = match contention.holder_count {
        0 | 1 => String::new(),
        count => format!(" +{}", count - 1),
    };
    vec![
        contention.queue_length.to_string(),
        holder.map_or_else(dash, |holder| time(holder.held_for)),
        holder.map_or_else(dash, |holder| {
            holder.remaining.map_or_else(|| "no end".to_owned(), time)
        }),
        holder.map_or_else(dash, |holder| holder.fence.to_string()),
        holder.map_or_else(dash, |holder| escaped(holder.client_name.as_bytes())) + &others,
        escaped(&lock.key),
    ]
}

fn session_row(session: &fencepost::SessionInfo) -> Vec<String> {
    vec![
        session.lock_count.to_string(),
        session.waiter_count.to_string(),
        time(session.age),
        session.remaining.map_or_else(|| "no end".to_owned(), time),
        escaped(session.address.as_bytes()),
        escaped(session.client_name.as_bytes()),
    ]
}

fn draw_foot(model: &Model, area: Rect, buffer: &mut Buffer) {
    let line = match &model.input {
        Input::Filter(text) => {
            let text = escaped(text.as_bytes());
            Line::styled(
                format!("filter: {text}_  (Enter applies, Esc leaves)"),
                HEADING,
            )
        }
        Input::Confirm(victim) => Line::styled(
            format!(
                "take {} (fence {}) away from {}? It may still be at work. y takes it away, any other key does not",
                escaped(&victim.key),
                victim.fence,
                escaped(victim.holder.as_bytes()),
            ),
            WARNING,
        ),
        Input::None if !model.message.is_empty() => {
            Line::styled(escaped(model.message.as_bytes()), WARNING)
        }
        Input::None => Line::styled(
            "q quit  Tab table  s sort  r reverse  / filter  f take away  arrows, PgUp, PgDn move",
            QUIET,
        ),
    };
    Paragraph::new(line).render(area, buffer);
}
