//! What operators see: counters and the page that shows them, HTTP, the audit log, log lines.

pub(crate) mod audit;
pub(crate) mod exposition;
pub(crate) mod http;
pub(crate) mod json_text;
pub(crate) mod metrics;
pub(crate) mod notices;
pub(crate) mod oldest;
pub(crate) mod stats;
