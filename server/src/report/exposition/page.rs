//! Writes one metric at a time, in either format, so that `exposition.rs` stays a list.
//!
//! | what      | classic text                   | OpenMetrics                             |
//! |-----------|--------------------------------|-----------------------------------------|
//! | a counter | is called `x_total` everywhere | is `x`, and its sample `x_total`        |
//! | facts     | a gauge `x_info` that is 1     | an info `x`, and its sample `x_info`    |
//! | units     | in the name                    | in the name, and on a line of their own |
//! | the end   |                                | `# EOF`                                 |

use super::format::Format;
use super::seconds;
use std::fmt::{self, Display, Write};

/// What every name of ours begins with.
const PREFIX: &str = "fencepost";

/// What the names begin with that every program shares, and dashboards know.
const PROCESS: &str = "process_";

/// The unit of a number. Its name ends with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Seconds,
    Bytes,
}

impl Unit {
    fn as_str(self) -> &'static str {
        match self {
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

impl Kind {
    /// What the names of a family's samples add to its name.
    fn suffix(self) -> &'static str {
        match self {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        }
    }

    fn word(self, format: Format) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info if format == Format::OpenMetrics => "info",
            Kind::Info => "gauge",
        }
    }
}

/// A histogram of durations: the count of each bucket, with its upper bound in seconds.
#[derive(Clone)]
pub(super) struct HistogramData {
    buckets: Vec<(f64, u64)>,
    /// In seconds.
    sum: f64,
}

impl HistogramData {
    /// Bucket `i` counts durations below `2^i` ms, the last one all others.
    pub(super) fn new(counts: &[u64], sum_ms: u64) -> Self {
        let last = counts.len() - 1;
        let bound = |bucket| match bucket {
            bucket if bucket == last => f64::INFINITY,
            bucket => seconds(1_u64 << bucket),
        };
        HistogramData {
            buckets: counts
                .iter()
                .enumerate()
                .map(|(bucket, count)| (bound(bucket), *count))
                .collect(),
            sum: seconds(sum_ms),
        }
    }

    /// Buckets by their upper bounds, and the sum of all, in seconds.
    pub(super) fn from_bounds(buckets: Vec<(f64, u64)>, sum: f64) -> Self {
        HistogramData { buckets, sum }
    }

    fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

pub(super) struct Page {
    text: String,
    format: Format,
}

/// Labels with their values, few and known.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    pub(super) fn new(format: Format) -> Self {
        Page {
            text: String::with_capacity(32 * 1024),
            format,
        }
    }

    /// The whole page.
    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let family = self.family(name, help, None, Kind::Counter)?;
        self.sample(&family, &[], value)
    }

    pub(super) fn counter_in(
        &mut self,
        unit: Unit,
        name: &str,
        help: &str,
        value: impl Display,
    ) -> fmt::Result {
        let family = self.family(name, help, Some(unit), Kind::Counter)?;
        self.sample(&family, &[], value)
    }

    pub(super) fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(&str, u64)],
    ) -> fmt::Result {
        let family = self.family(name, help, None, Kind::Counter)?;
        for (word, value) in values {
            self.sample(&family, &[(label, word)], value)?;
        }
        Ok(())
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let family = self.family(name, help, None, Kind::Gauge)?;
        self.sample(&family, &[], value)
    }

    pub(super) fn gauge_in(
        &mut self,
        unit: Unit,
        name: &str,
        help: &str,
        value: f64,
    ) -> fmt::Result {
        let family = self.family(name, help, Some(unit), Kind::Gauge)?;
        self.sample(&family, &[], value)
    }

    pub(super) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(&str, u64)],
    ) -> fmt::Result {
        let family = self.family(name, help, None, Kind::Gauge)?;
        for (word, value) in values {
            self.sample(&family, &[(label, word)], value)?;
        }
        Ok(())
    }

    /// Durations, one histogram for each label, or a single one without.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        histograms: &[(Option<(&str, &str)>, HistogramData)],
    ) -> fmt::Result {
        let family = self.family(name, help, Some(Unit::Seconds), Kind::Histogram)?;
        for (label, histogram) in histograms {
            let labels: Vec<(&str, &str)> = label.iter().copied().collect();
            self.sample(&format!("{family}_sum"), &labels, histogram.sum)?;
            self.sample(&format!("{family}_count"), &labels, histogram.count())?;
            let bucket = format!("{family}_bucket");
            let mut up_to = 0;
            for (bound, count) in &histogram.buckets {
                up_to += count;
                let bound = match *bound {
                    f64::INFINITY => "+Inf".to_owned(),
                    // OpenMetrics demands a decimal point in every bound.
                    bound if bound.fract() == 0.0 => format!("{bound:.1}"),
                    bound => bound.to_string(),
                };
                let labels: Vec<_> = label.iter().copied().chain([("le", &*bound)]).collect();
                self.sample(&bucket, &labels, up_to)?;
            }
        }
        Ok(())
    }

    /// Facts as labels.
    pub(super) fn info(&mut self, name: &str, help: &str, labels: Labels<'_>) -> fmt::Result {
        let family = self.family(name, help, None, Kind::Info)?;
        self.sample(&family, labels, 1)
    }

    /// Describes a family and returns the name of its samples.
    fn family(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        kind: Kind,
    ) -> Result<String, fmt::Error> {
        let unit = unit.map(Unit::as_str);
        let name = match name.starts_with(PROCESS) {
            true => name.to_owned(),
            false => format!("{PREFIX}_{name}"),
        };
        let name = match unit {
            Some(unit) => format!("{name}_{unit}"),
            None => name,
        };
        let samples = format!("{name}{}", kind.suffix());
        let is_open = self.format == Format::OpenMetrics;
        let described = if is_open { &name } else { &samples };
        debug_assert!(!help.contains(['\\', '\n']), "{help:?} would need escapes");
        writeln!(self.text, "# HELP {described} {help}.")?;
        writeln!(self.text, "# TYPE {described} {}", kind.word(self.format))?;
        if let Some(unit) = unit
            && is_open
        {
            writeln!(self.text, "# UNIT {described} {unit}")?;
        }
        Ok(samples)
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) -> fmt::Result {
        self.text.push_str(name);
        for (index, (label, word)) in labels.iter().enumerate() {
            debug_assert!(
                !word.contains(['\\', '"', '\n']),
                "{word:?} would need escapes"
            );
            let opener = if index == 0 { '{' } else { ',' };
            write!(self.text, "{opener}{label}=\"{word}\"")?;
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        writeln!(self.text, " {value}")
    }
}
