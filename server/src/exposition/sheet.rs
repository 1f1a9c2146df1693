//! One metric at a time onto the page: a thin layer over prometheus-client that keeps `exposition.rs` a list.

use super::seconds;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;

/// How durations are spread over buckets: the count of each, with its upper bound in seconds.
#[derive(Clone)]
pub(super) struct Spread {
    buckets: Vec<(f64, u64)>,
    /// In seconds.
    sum: f64,
}

impl Spread {
    /// Bucket `i` counts what took less than `2^i` ms, the last one all the rest.
    pub(super) fn new(counts: &[u64], sum_ms: u64) -> Self {
        let last = counts.len() - 1;
        let bound = |bucket| match bucket {
            bucket if bucket == last => f64::INFINITY,
            bucket => seconds(1_u64 << bucket),
        };
        Spread {
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
        Spread { buckets, sum }
    }

    fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

pub(super) struct Sheet<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl<'a> Sheet<'a> {
    pub(super) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Sheet { encoder }
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    pub(super) fn counter_in(
        &mut self,
        unit: Unit,
        name: &str,
        help: &str,
        value: u64,
    ) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, Some(&unit), MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    pub(super) fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(&str, u64)],
    ) -> fmt::Result {
        let mut family = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (word, value) in values {
            family
                .encode_family(&[(label, *word)])?
                .encode_counter::<NoLabelSet, _, u64>(value, None)?;
        }
        Ok(())
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    pub(super) fn gauge_in(
        &mut self,
        unit: Unit,
        name: &str,
        help: &str,
        value: f64,
    ) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, Some(&unit), MetricType::Gauge)?
            .encode_gauge(&value)
    }

    pub(super) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(&str, u64)],
    ) -> fmt::Result {
        let mut family = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (word, value) in values {
            family
                .encode_family(&[(label, *word)])?
                .encode_gauge(value)?;
        }
        Ok(())
    }

    /// Durations, one spread for each label or a single one without.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        spreads: &[(Option<(&str, &str)>, Spread)],
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(
            name,
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (label, spread) in spreads {
            let labels: Vec<(&str, &str)> = label.iter().copied().collect();
            let sum = spread.sum;
            match label {
                Some(_) => family
                    .encode_family(&labels)?
                    .encode_histogram::<NoLabelSet>(sum, spread.count(), &spread.buckets, None)?,
                None => family.encode_histogram::<NoLabelSet>(
                    sum,
                    spread.count(),
                    &spread.buckets,
                    None,
                )?,
            }
        }
        Ok(())
    }

    pub(super) fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str)]) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Info)?
            .encode_info(&labels)
    }
}
