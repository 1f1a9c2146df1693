//! A setting with all it takes to measure it, and how a measurement ends.

use super::workload::Setting;
use crate::load::generator::{Generator, Script};
use crate::load::options::Options;
use crate::load::peers::Peer;
use crate::load::speaker::Speaker;
use std::net::SocketAddr;
use std::time::Duration;

/// How long what is under way may take to end after a measurement.
const DRAIN: Duration = Duration::from_secs(10);

/// A setting, with all it takes to measure it.
pub(super) struct Measurement<'a> {
    pub(super) peer: &'a Peer,
    pub(super) options: &'a Options,
    pub(super) setting: Setting,
    /// Where each link connects to.
    pub(super) addresses: &'a [SocketAddr],
}

/// Lets what is under way end, so that the next measurement finds every lock free.
pub(super) fn drained<S: Speaker>(
    generator: &mut Generator<S>,
    script: &mut impl Script<S>,
) -> Result<(), String> {
    let until = generator.now() + DRAIN.as_nanos() as u64;
    generator.run(script, until)?;
    if script.is_done() {
        Ok(())
    } else {
        Err(format!(
            "requests were still unanswered {} s after the end",
            DRAIN.as_secs()
        ))
    }
}
