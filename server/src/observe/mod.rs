//! What is kept for operators: counters, the audit log, log lines. `report/` shows it to them.

pub(crate) mod audit;
pub mod history;
pub(crate) mod hot_keys;
pub(crate) mod json_text;
pub(crate) mod metrics;
pub(crate) mod notices;
