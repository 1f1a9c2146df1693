//! A plot of something over time, as SVG: both axes are linear and begin at nothing.

use crate::load::report::origin::Origin;
use crate::load::report::plot::{FONT, GRID, INK, LEGEND_WIDTH, SIZE, draw_foot, draw_legend};
use plotters::prelude::*;
use std::error::Error;
use std::path::{Path, PathBuf};

/// More room for names than in the plots of the bench: these say how a server was set.
const NAMES_WIDTH: u32 = LEGEND_WIDTH + 130;

/// Colours that most people can tell apart, in the order of the lines.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(150, 75, 40),
    RGBColor(0, 158, 115),
];

pub(crate) struct Line {
    pub(crate) name: &'static str,
    /// Seconds, and something else.
    pub(crate) points: Vec<(f64, f64)>,
}

pub(crate) struct Plot<'a> {
    pub(crate) file: &'a str,
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) lines: Vec<Line>,
}

impl Plot<'_> {
    /// Writes it into a directory. The file.
    pub(crate) fn write(&self, directory: &Path) -> Result<PathBuf, String> {
        let path = directory.join(self.file);
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        self.draw(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    fn draw(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x_first = points().map(|point| point.0).fold(0.0, f64::min);
        let x_last = points().map(|point| point.0).fold(1.0, f64::max);
        let y_last = points().map(|point| point.1).fold(1.0, f64::max);
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let area = draw_foot(&root, &Origin::here(), &[])?;
        let title = (FONT, 34).into_font().color(&INK);
        let area = area.margin(24, 0, 12, 12).titled(self.title, title)?;
        let (area, legend) = area.split_horizontally(SIZE.0 - NAMES_WIDTH);
        let mut chart = ChartBuilder::on(&area)
            .margin(16)
            .set_label_area_size(LabelAreaPosition::Left, 110)
            .set_label_area_size(LabelAreaPosition::Bottom, 70)
            .build_cartesian_2d(x_first..x_last, 0.0..y_last * 1.05)?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_style((FONT, 22).into_font().color(&INK))
            .y_label_style((FONT, 22).into_font().color(&INK))
            .axis_desc_style((FONT, 24).into_font().color(&INK))
            .draw()?;
        let coloured = || self.lines.iter().zip(COLOURS.iter().cycle());
        for (line, colour) in coloured() {
            let style = colour.stroke_width(4);
            chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
        }
        draw_legend(
            &legend,
            coloured().map(|(line, colour)| (line.name, *colour)),
        )?;
        root.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_drawn_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let plot = Plot {
            file: "some.svg",
            title: "Something",
            x: "s",
            y: "MB",
            lines: vec![Line {
                name: "a server",
                points: vec![(-1.0, 3.0), (0.0, 4.0), (2.0, 0.0)],
            }],
        };
        let file = plot.write(&directory.path().join("plots")).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.starts_with("<svg") && text.contains("a server"));
        assert!(text.contains("commit "), "where it comes from");
    }
}
