//! Log lines to standard error, as text or JSON. Only the program calls this; a server inside
//! another program logs through the subscriber that program has.

use crate::config::{Config, LogFormat, LogLevel};
use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;

impl Config {
    /// Starts logging to standard error as these settings say. For programs that have no subscriber
    /// of their own: does nothing in a process that has one.
    pub fn start_logging(&self) {
        start(self);
    }
}

fn start(config: &Config) {
    let level = match config.log_level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr);
    // Only the first subscriber of a process counts: the result says nothing to act on.
    let _ = match config.log_format {
        LogFormat::Text => lines
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}
