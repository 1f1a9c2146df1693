//! Plots, as SVG: latency against contenders, throughput against pipeline depth, and distributions
//! of latency. One line per peer, at its best way to wait; always the same colour for the same
//! peer. Below each stands where its figures come from, and what was left out.

use super::origin::Origin;
use crate::load::peers::PeerName;
use crate::load::rounds::Row;
use crate::load::workloads::Workload;
use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints, IntoLogRange};
use plotters::prelude::*;
use std::error::Error;
use std::path::{Path, PathBuf};

pub(crate) const SIZE: (u32, u32) = (1280, 720);
pub(crate) const LEGEND_WIDTH: u32 = 210;
pub(crate) const FONT: &str = "sans-serif";
pub(crate) const INK: RGBColor = RGBColor(40, 40, 40);
pub(crate) const GRID: RGBColor = RGBColor(225, 225, 225);
const FAINT: RGBColor = RGBColor(110, 110, 110);
const FOOT_LINE: u32 = 22;

/// The farthest quantile of a distribution that is drawn, as the number of its nines.
const NINES_MAX: f64 = 4.0;

/// With fewer values than this a rate or a quantile says nothing: it is left out, and named.
const VALUES_MIN: u64 = 30;

/// Leases end by whole milliseconds: differences far below that are none.
const EXPIRY_US_MIN: f64 = 10.0;

/// What is said of peers without a line, which are marked by a star.
const BARGING: &str = "* has no line: the contender that gave the lock back often takes it again, so \
                       its p50 is low and its tail long.";

/// A plot that was written.
pub(crate) struct Drawn {
    pub(crate) path: PathBuf,
    pub(crate) workload: &'static str,
    pub(crate) title: String,
}

/// One plot.
struct Plot {
    file: String,
    workload: Workload,
    title: String,
    /// What is to be known to read it.
    notes: Vec<String>,
    x: Axis,
    y: Axis,
    lines: Vec<Line>,
}

/// An axis, always logarithmic.
struct Axis {
    name: &'static str,
    /// Where labels stand, and what they say.
    ticks: Vec<f64>,
    label: fn(f64) -> String,
}

struct Line {
    name: String,
    colour: RGBColor,
    is_dashed: bool,
    points: Vec<(f64, f64)>,
}

/// Draws everything that these rows have to show.
pub(crate) fn draw_all(
    rows: &[Row],
    directory: &Path,
    origin: &Origin,
) -> Result<Vec<Drawn>, String> {
    let rows = best(rows);
    let mut plots = Vec::new();
    for of_workload in rows.chunk_by(|a, b| a.setting.workload == b.setting.workload) {
        plots.extend(plots_of(of_workload));
    }
    std::fs::create_dir_all(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut drawn = Vec::new();
    for plot in plots {
        let path = directory.join(&plot.file);
        draw(&plot, origin, &path).map_err(|error| format!("{}: {error}", path.display()))?;
        drawn.push(Drawn {
            path,
            workload: plot.workload.as_str(),
            title: plot.title,
        });
    }
    Ok(drawn)
}

/// For each peer and setting, the way to wait with the most cycles a second.
fn best(rows: &[Row]) -> Vec<&Row> {
    let mut best: Vec<&Row> = Vec::new();
    for row in rows {
        match best.iter_mut().find(|other| other.is_rival_of(row)) {
            None => best.push(row),
            Some(other) if row.cycles_per_s() > other.cycles_per_s() => *other = row,
            Some(_) => {}
        }
    }
    best
}

fn plots_of(rows: &[&Row]) -> Vec<Plot> {
    let workload = rows[0].setting.workload;
    let name = workload.as_str();
    let (told, untold): (Vec<&Row>, Vec<&Row>) = rows
        .iter()
        .copied()
        .partition(|row: &&Row| row.latency.len() >= VALUES_MIN);
    let rows = &told[..];
    let mut notes: Vec<String> = untold.into_iter().map(too_few).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    if workload == Workload::HotKey && rows.iter().any(|row| !row.peer.has_line()) {
        notes.push(BARGING.to_owned());
    }
    let mut plots = Vec::new();
    match workload {
        Workload::HotKey => {
            let contenders = |row: &Row| f64::from(row.setting.contenders);
            plots.push(Plot {
                file: format!("{name}-latency.svg"),
                workload,
                notes: notes.clone(),
                title: "One hot key: how long contenders wait".to_owned(),
                x: log_axis("contenders", rows, contenders, plain),
                y: us_axis("wait for the lock: p50 (solid) and p99 (dashed)"),
                lines: [("p50_us", false), ("p99_us", true)]
                    .into_iter()
                    .flat_map(|(figure, is_dashed)| lines(rows, contenders, figure, is_dashed))
                    .collect(),
            });
            plots.push(Plot {
                file: format!("{name}-throughput.svg"),
                workload,
                notes: notes.clone(),
                title: "One hot key: how often it changes hands".to_owned(),
                x: log_axis("contenders", rows, contenders, plain),
                y: rate_axis("cycles per second"),
                lines: lines(rows, contenders, "cycles_per_s", false),
            });
        }
        Workload::ManyKeys => {
            let pipeline = |row: &Row| f64::from(row.setting.pipeline);
            let connections = rows[0].setting.connections;
            plots.push(Plot {
                file: format!("{name}-throughput.svg"),
                workload,
                notes: notes.clone(),
                title: format!("Many keys, {connections} connections: throughput"),
                x: log_axis("requests under way per connection", rows, pipeline, plain),
                y: rate_axis("operations per second"),
                lines: lines(rows, pipeline, "ops_per_s", false),
            });
        }
        Workload::Handoff | Workload::Expiry | Workload::Renew => {}
    }
    plots.push(distribution(workload, rows, notes));
    plots.retain(|plot| !plot.lines.is_empty());
    plots
}

/// Why a row is not drawn.
fn too_few(row: &Row) -> String {
    format!(
        "Not drawn: {}{}, of which only {} values were seen.",
        row.peer,
        row.setting.load(),
        row.latency.len()
    )
}

/// What a peer is called in a plot. A star marks one without a line.
fn name_of(row: &Row) -> String {
    match row.setting.workload == Workload::HotKey && !row.peer.has_line() {
        true => format!("{}*", row.peer),
        false => row.peer.to_string(),
    }
}

/// The distribution of latency at the setting in the middle.
fn distribution(workload: Workload, rows: &[&Row], notes: Vec<String>) -> Plot {
    let load = |row: &Row| row.setting.contenders.max(row.setting.pipeline);
    // Some workloads load peers differently; then all are shown.
    let is_shared = matches!(
        workload,
        Workload::HotKey | Workload::ManyKeys | Workload::Handoff
    );
    let mut loads: Vec<u32> = rows.iter().map(|row| load(row)).collect();
    loads.sort_unstable();
    loads.dedup();
    let middle = loads[loads.len() / 2];
    let shown = rows.iter().filter(|row| !is_shared || load(row) == middle);
    let what = match workload {
        Workload::HotKey => format!("One hot key, {middle} contenders: the wait for the lock"),
        Workload::ManyKeys => format!("Many keys, {middle} requests under way per connection"),
        Workload::Handoff => format!("From a release to the next grant, {middle} contenders"),
        Workload::Expiry => "From a lease's end to the next grant, while millions end".to_owned(),
        Workload::Renew => "Renewing, while millions of locks are held".to_owned(),
    };
    let lines = shown.map(|row| Line {
        name: name_of(row),
        colour: colour(row.peer),
        is_dashed: false,
        points: quantiles(row),
    });
    Plot {
        file: format!("{}-distribution.svg", workload.as_str()),
        workload,
        notes,
        title: what,
        x: Axis {
            name: "share of all that was at least as fast",
            ticks: vec![1.0, 10.0, 100.0, 1e3, 1e4],
            label: share_label,
        },
        y: us_axis("latency"),
        lines: lines.filter(|line| !line.points.is_empty()).collect(),
    }
}

/// Latency in microseconds against 1 / (1 - quantile), in evenly spaced steps as far as there are
/// values to tell.
fn quantiles(row: &Row) -> Vec<(f64, f64)> {
    let count = row.latency.len() as f64;
    let steps = (0..=80).map(|step| f64::from(step) * NINES_MAX / 80.0);
    steps
        .take_while(|nines| 10f64.powf(*nines) <= count)
        .map(|nines| {
            let ns = row.latency.value_at_quantile(1.0 - 10f64.powf(-nines));
            (10f64.powf(nines), ns.max(1) as f64 / 1_000.0)
        })
        .filter(|(_, us)| row.setting.workload != Workload::Expiry || *us >= EXPIRY_US_MIN)
        .collect()
}

/// One line per peer: a figure against something else.
fn lines(rows: &[&Row], x: impl Fn(&Row) -> f64, figure: &str, is_dashed: bool) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let Some(&value) = row.median.get(figure) else {
            continue;
        };
        let name = name_of(row);
        let point = (x(row), value.max(0.001));
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                name,
                colour: colour(row.peer),
                is_dashed,
                points: vec![point],
            }),
        }
    }
    lines
}

fn colour(peer: PeerName) -> RGBColor {
    match peer {
        PeerName::Fencepost => RGBColor(0, 114, 178),
        PeerName::FencepostTls => RGBColor(90, 60, 200),
        PeerName::FencepostRights => RGBColor(20, 140, 220),
        PeerName::FencepostQuotas => RGBColor(120, 160, 240),
        PeerName::RedisTls => RGBColor(230, 60, 120),
        PeerName::FencepostNone => RGBColor(0, 70, 110),
        PeerName::FencepostLease => RGBColor(86, 180, 233),
        PeerName::RedisAlways => RGBColor(150, 60, 0),
        PeerName::Redis => RGBColor(213, 94, 0),
        PeerName::RedisFenced => RGBColor(230, 159, 0),
        PeerName::Valkey => RGBColor(204, 121, 167),
        PeerName::Etcd => RGBColor(0, 158, 115),
        PeerName::Redlock => RGBColor(150, 75, 40),
        PeerName::FencepostCluster => RGBColor(0, 60, 200),
        PeerName::EtcdCluster => RGBColor(0, 100, 60),
        PeerName::RedisWait => RGBColor(120, 0, 60),
        PeerName::Echo => RGBColor(140, 140, 140),
        PeerName::Server => RGBColor(0, 0, 0),
    }
}

fn log_axis(
    name: &'static str,
    rows: &[&Row],
    x: impl Fn(&Row) -> f64,
    label: fn(f64) -> String,
) -> Axis {
    let mut ticks: Vec<f64> = rows.iter().map(|row| x(row)).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    Axis { name, ticks, label }
}

fn us_axis(name: &'static str) -> Axis {
    Axis {
        name,
        ticks: Vec::new(),
        label: time_label,
    }
}

fn rate_axis(name: &'static str) -> Axis {
    Axis {
        name,
        ticks: Vec::new(),
        label: rate_label,
    }
}

fn plain(value: f64) -> String {
    format!("{value:.0}")
}

/// A share of all, by 1 / (1 - share).
fn share_label(inverse: f64) -> String {
    match inverse.log10().round() as usize {
        0 => "0 %".to_owned(),
        1 => "90 %".to_owned(),
        2 => "99 %".to_owned(),
        nines => format!("99.{} %", "9".repeat(nines - 2)),
    }
}

/// Microseconds, in the unit that reads best.
fn time_label(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", us / 1e6),
        us if us >= 1e3 => format!("{} ms", us / 1e3),
        us if us >= 1.0 => format!("{us} µs"),
        us => format!("{} ns", (us * 1e3).round()),
    }
}

fn rate_label(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{} k", rate / 1e3),
        rate => format!("{rate}"),
    }
}

/// 1, 2 and 5 times the powers of ten around these values; 1 alone where there are many.
fn decades(least: f64, most: f64) -> Vec<f64> {
    let (first, last) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    let steps: &[f64] = if last - first > 3 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let mut ticks: Vec<f64> = (first..=last)
        .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
        .collect();
    // The labels end where the values do, within one step.
    while ticks.len() > 2 && ticks[1] <= least {
        ticks.remove(0);
    }
    while ticks.len() > 2 && ticks[ticks.len() - 2] >= most {
        ticks.pop();
    }
    ticks
}

fn draw(plot: &Plot, origin: &Origin, path: &Path) -> Result<(), Box<dyn Error>> {
    let points = || plot.lines.iter().flat_map(|line| &line.points);
    let least = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    let y_ticks = decades(least, most);
    let (y_first, y_last) = (y_ticks[0], y_ticks[y_ticks.len() - 1]);
    let x_ticks = &plot.x.ticks;
    let (x_first, x_last) = (x_ticks[0], x_ticks[x_ticks.len() - 1]);

    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let area = draw_foot(&root, origin, &plot.notes)?;
    let title = (FONT, 34).into_font().color(&INK);
    let area = area.margin(24, 0, 12, 12).titled(&plot.title, title)?;
    // Beside the lines, where it hides none of them.
    let (area, legend) = area.split_horizontally(SIZE.0 - LEGEND_WIDTH);
    let mut chart = ChartBuilder::on(&area);
    chart
        .margin(16)
        .margin_right(50)
        .set_label_area_size(LabelAreaPosition::Left, 110)
        .set_label_area_size(LabelAreaPosition::Bottom, 70);
    // One value alone would be a range of nothing.
    let x_margin = if x_first < x_last { 1.0 } else { 2.0 };
    let x_range = (x_first / x_margin..x_last * x_margin).log_scale();
    let y_range = (y_first..y_last).log_scale();
    let mut chart = chart.build_cartesian_2d(
        x_range.with_key_points(x_ticks.clone()),
        y_range.with_key_points(y_ticks),
    )?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .x_desc(plot.x.name)
        .y_desc(plot.y.name)
        .x_label_formatter(&|x| (plot.x.label)(*x))
        .y_label_formatter(&|y| (plot.y.label)(*y))
        .x_label_style((FONT, 22).into_font().color(&INK))
        .y_label_style((FONT, 22).into_font().color(&INK))
        .axis_desc_style((FONT, 24).into_font().color(&INK))
        .draw()?;
    for line in &plot.lines {
        let style = line.colour.stroke_width(4);
        if line.is_dashed {
            chart.draw_series(DashedLineSeries::new(line.points.clone(), 10, 8, style))?;
        } else {
            chart.draw_series(LineSeries::new(line.points.clone(), style))?;
        }
        if line.points.len() <= x_ticks.len() {
            let dot = |&point| Circle::new(point, 6, line.colour.filled());
            chart.draw_series(line.points.iter().map(dot))?;
        }
    }
    let named = plot.lines.iter().filter(|line| !line.is_dashed);
    draw_legend(&legend, named.map(|line| (line.name.as_str(), line.colour)))?;
    root.present()?;
    Ok(())
}

/// Writes where the figures come from, and what is to be known of them, along the lower edge. What
/// is left for the plot.
pub(crate) fn draw_foot<'a>(
    root: &DrawingArea<SVGBackend<'a>, Shift>,
    origin: &Origin,
    notes: &[String],
) -> Result<DrawingArea<SVGBackend<'a>, Shift>, Box<dyn Error>> {
    let lines = || notes.iter().cloned().chain([origin.line()]);
    let height = FOOT_LINE * lines().count() as u32 + FOOT_LINE / 2;
    let (area, foot) = root.split_vertically(SIZE.1 - height);
    for (line, index) in lines().zip(0..) {
        let style = (FONT, 16).into_font().color(&FAINT);
        let at = (24, index * FOOT_LINE as i32);
        foot.draw(&Text::new(line, at, style))
            .map_err(|error| error.to_string())?;
    }
    Ok(area)
}

/// Names and colours of lines, one below the other.
pub(crate) fn draw_legend<'a>(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    lines: impl Iterator<Item = (&'a str, RGBColor)>,
) -> Result<(), Box<dyn Error>> {
    for ((name, colour), row) in lines.zip(0..) {
        let y = 40 + 36 * row;
        let sample = PathElement::new([(0, y), (30, y)], colour.stroke_width(6));
        area.draw(&sample).map_err(|error| error.to_string())?;
        let style = (FONT, 22).into_font().color(&INK);
        area.draw(&Text::new(name.to_owned(), (40, y - 11), style))
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
