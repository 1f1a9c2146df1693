//! `--report DIR`: one page with everything that a run has to show. It needs nothing but itself:
//! the plots are part of it, and so is the little style it has.

use super::Section;
use super::origin::Origin;
use super::plot::Drawn;
use super::table::Table;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const STYLE: &str = "\
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
h2 { margin-top: 3rem; }
.origin { opacity: 0.75; }
.warnings { border-left: 4px solid #d55e00; padding-left: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; white-space: nowrap; }
th, td { padding: 0.2rem 0.8rem; text-align: right; border-bottom: 1px solid #8884; }
.name { text-align: left; }
tr.ours { font-weight: 600; }
figure { margin: 1.5rem 0; }
figure svg { background: white; border-radius: 6px; height: auto; width: 100%; }
code { overflow-wrap: anywhere; }
";

/// All that a run has to show.
pub(crate) struct Page<'a> {
    pub(crate) origin: &'a Origin,
    /// The command line.
    pub(crate) command: String,
    /// The peers and their versions.
    pub(crate) measured: String,
    /// What could not be measured, what failed, what was left out.
    pub(crate) warnings: Vec<String>,
    pub(crate) sections: &'a [Section],
    pub(crate) plots: &'a [Drawn],
}

impl Page<'_> {
    /// Writes `index.html` into a directory. The file.
    pub(crate) fn write(&self, directory: &Path) -> Result<PathBuf, String> {
        let path = directory.join("index.html");
        let failure = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut plots = Vec::new();
        for plot in self.plots {
            plots.push(std::fs::read_to_string(&plot.path).map_err(failure)?);
        }
        std::fs::create_dir_all(directory).map_err(failure)?;
        std::fs::write(&path, self.html(&plots)).map_err(failure)?;
        Ok(path)
    }

    /// The page. `plots` are the SVGs of `self.plots`.
    fn html(&self, plots: &[String]) -> String {
        let mut html = String::new();
        let title = format!("Fencepost bench, {}", self.origin.date);
        let title = escape(&title);
        html.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        html.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n");
        let _ = write!(html, "<title>{title}</title>\n<style>\n{STYLE}</style>\n");
        let _ = write!(html, "</head>\n<body>\n<h1>{title}</h1>\n");
        let _ = writeln!(
            html,
            "<p class=\"origin\">{}</p>",
            escape(&self.origin.line())
        );
        let _ = writeln!(html, "<p><code>{}</code></p>", escape(&self.command));
        let _ = writeln!(html, "<p>Measured: {}.</p>", escape(&self.measured));
        list(&mut html, "warnings", &self.warnings);
        for section in self.sections {
            self.section(section, plots, &mut html);
        }
        html.push_str("</body>\n</html>\n");
        html
    }

    fn section(&self, section: &Section, plots: &[String], html: &mut String) {
        let name = escape(section.workload);
        let _ = writeln!(html, "<section id=\"{name}\">\n<h2>{name}</h2>");
        let _ = writeln!(html, "<p>{}</p>", escape(&section.heading));
        list(html, "warnings", &section.warnings);
        list(html, "sentences", &section.sentences);
        table(html, &section.short);
        for (plot, svg) in self.plots.iter().zip(plots) {
            if plot.workload == section.workload {
                let title = escape(&plot.title);
                let _ = writeln!(html, "<figure aria-label=\"{title}\">\n{svg}\n</figure>");
            }
        }
        html.push_str("<details>\n<summary>All figures</summary>\n");
        table(html, &section.wide);
        html.push_str("</details>\n</section>\n");
    }
}

fn list(html: &mut String, class: &str, sentences: &[String]) {
    if sentences.is_empty() {
        return;
    }
    let _ = writeln!(html, "<ul class=\"{class}\">");
    for sentence in sentences {
        let _ = writeln!(html, "<li>{}</li>", escape(sentence));
    }
    html.push_str("</ul>\n");
}

fn table(html: &mut String, table: &Table) {
    let class = |index: usize| match index < table.names {
        true => " class=\"name\"",
        false => "",
    };
    html.push_str("<div class=\"scroll\"><table>\n<thead><tr>");
    for (index, heading) in table.headings.iter().enumerate() {
        let _ = write!(
            html,
            "<th scope=\"col\"{}>{}</th>",
            class(index),
            escape(heading)
        );
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        let is_ours = row
            .first()
            .is_some_and(|peer| peer.starts_with("fencepost"));
        html.push_str(if is_ours {
            "<tr class=\"ours\">"
        } else {
            "<tr>"
        });
        for (index, cell) in row.iter().enumerate() {
            let _ = write!(html, "<td{}>{}</td>", class(index), escape(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table></div>\n");
}

/// Text as HTML shows it, in elements and in quoted attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::sections;
    use super::super::tests::{origin, row};
    use super::*;

    #[test]
    fn markup_is_shown_as_text() {
        assert_eq!(
            escape("<script>alert(\"it's & more\")</script>"),
            "&lt;script&gt;alert(&quot;it&#39;s &amp; more&quot;)&lt;/script&gt;"
        );
        let mut row = row();
        row.bounded_by = Some("<b>sleep</b>".to_owned());
        let page = Page {
            origin: &origin(),
            command: "bench --peer '<redis>'".to_owned(),
            measured: "redis <7>".to_owned(),
            warnings: vec!["etcd: <failed>".to_owned()],
            sections: &sections(&[row]),
            plots: &[],
        };
        let html = page.html(&[]);
        for raw in ["<b>", "<redis>", "<7>", "<failed>"] {
            assert!(!html.contains(raw), "{raw}");
        }
        for shown in [
            "&lt;b&gt;sleep",
            "&lt;redis&gt;",
            "&lt;7&gt;",
            "&lt;failed&gt;",
        ] {
            assert!(html.contains(shown), "{shown}");
        }
    }

    #[test]
    fn the_page_has_warnings_tables_and_plots_and_needs_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plot.svg");
        std::fs::write(&path, "<svg id=\"drawn\"></svg>").unwrap();
        let page = Page {
            origin: &origin(),
            command: "bench --hot-key".to_owned(),
            measured: "redis 7".to_owned(),
            warnings: vec!["etcd failed".to_owned()],
            sections: &sections(&[row()]),
            plots: &[Drawn {
                path,
                workload: "hot-key",
                title: "Waits \"in line\"".to_owned(),
            }],
        };
        let report = directory.path().join("a/report");
        let file = page.write(&report).unwrap();
        assert_eq!(file, report.join("index.html"));
        let html = std::fs::read_to_string(file).unwrap();
        let at = |part: &str| {
            html.find(part)
                .unwrap_or_else(|| panic!("no {part}: {html}"))
        };
        // What is doubtful, and what it means, come before the figures.
        assert!(at("commit 0123456789") < at("etcd failed"));
        assert!(at("etcd failed") < at("Bounded by") && at("Bounded by") < at("<table>"));
        assert!(at("<table>") < at("<svg id=\"drawn\">"));
        assert!(at("<figure aria-label=\"Waits &quot;in line&quot;\">") < at("<details>"));
        for outside in ["http:", "https:", "src=", "<link", "<script"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
