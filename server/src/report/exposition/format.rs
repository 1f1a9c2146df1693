//! Which of the two text formats a scraper wants.

/// A text format for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// Prometheus's own, version 0.0.4. The default.
    Classic,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

const OPEN_METRICS: &str = "application/openmetrics-text";
const OPEN_METRICS_VERSION: &str = "1.0.0";

impl Format {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// OpenMetrics for a client that names it and prefers no other format. A wildcard does not name
    /// it.
    pub(crate) fn wanted_by<'a>(accepts: impl Iterator<Item = &'a str>) -> Format {
        let (mut open, mut plain) = (0.0_f32, 0.0_f32);
        for range in accepts.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            let (mut quality, mut version) = (1.0_f32, OPEN_METRICS_VERSION);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                let value = value.trim().trim_matches('"');
                match name.trim() {
                    name if name.eq_ignore_ascii_case("q") => {
                        // A quality that is no number counts as zero.
                        quality = value.parse().unwrap_or(0.0);
                    }
                    name if name.eq_ignore_ascii_case("version") => version = value,
                    _ => {}
                }
            }
            if media_type.eq_ignore_ascii_case(OPEN_METRICS) {
                if version == OPEN_METRICS_VERSION {
                    open = quality.max(open);
                }
            } else if media_type.eq_ignore_ascii_case("text/plain") {
                plain = quality.max(plain);
            }
        }
        if open > 0.0 && open >= plain {
            Format::OpenMetrics
        } else {
            Format::Classic
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(accept: &str) -> Format {
        Format::wanted_by([accept].into_iter())
    }

    #[test]
    fn who_names_nothing_gets_classic_text() {
        assert_eq!(Format::wanted_by([].into_iter()), Format::Classic);
        for accept in [
            "",
            "*/*",
            "text/plain",
            "text/plain;version=0.0.4",
            "application/*",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=none",
            "application/openmetrics-text;version=2.0.0",
        ] {
            assert_eq!(wanted(accept), Format::Classic, "{accept}");
        }
    }

    #[test]
    fn who_names_openmetrics_and_likes_nothing_better_gets_it() {
        for accept in [
            "application/openmetrics-text",
            "Application/OpenMetrics-Text; Version=1.0.0; charset=utf-8",
            "application/openmetrics-text;version=\"1.0.0\"",
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.5,*/*;q=0.9",
            // Prometheus 2 and 3.
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
             text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
        ] {
            assert_eq!(wanted(accept), Format::OpenMetrics, "{accept}");
        }
    }

    #[test]
    fn who_likes_plain_text_better_gets_that() {
        let accept = "text/plain;q=0.9, application/openmetrics-text;q=0.3";
        assert_eq!(wanted(accept), Format::Classic);
        let lines = ["text/plain;q=0.1", "application/openmetrics-text;q=0.2"];
        assert_eq!(
            Format::wanted_by(lines.into_iter()),
            Format::OpenMetrics,
            "two headers"
        );
    }
}
