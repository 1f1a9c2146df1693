//! Log lines to standard error, as text or JSON. Only the program calls this; a server inside
//! another program logs through the subscriber that program has.

use crate::config::{Config, LogFormat, LogLevel};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// The consensus engine.
const OPENRAFT: &str = "openraft";

/// Parts of it that warn at each heartbeat, write or election while another node is down, which
/// the peers' own lines say once a minute, or of a write whose answer is not waited for.
const OPENRAFT_REPEATS: [&str; 7] = [
    "openraft::core::heartbeat",
    "openraft::core::raft_core",
    "openraft::engine::handler::replication_handler",
    "openraft::progress",
    "openraft::proposer",
    "openraft::raft::responder",
    "openraft::replication",
];

/// Changes of the members, whose errors the node answers, or tries again.
const OPENRAFT_CHANGES: &str = "openraft::raft::api::management";

/// How long the same line of openraft is not written again. How many different ones there are is
/// bounded by its source text.
const OPENRAFT_QUIET: Duration = Duration::from_secs(60);

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
    let (filter, seldom) = (filter(level), Seldom::new(level));
    // Only the first subscriber of a process counts: the result says nothing to act on.
    let _ = match config.log_format {
        LogFormat::Text => lines
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .finish()
            .with(filter)
            .with(seldom)
            .try_init(),
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).finish();
            lines.with(filter).with(seldom).try_init()
        }
    };
}

/// openraft tells each step of itself at INFO: the node's own lines say what an operator needs
/// (`node/story.rs`). So at INFO its warnings are heard, and of what repeats itself its errors.
fn filter(level: LevelFilter) -> Targets {
    let targets = Targets::new().with_default(level);
    if level >= LevelFilter::DEBUG {
        return targets;
    }
    let at_most = |most: LevelFilter| most.min(level);
    let repeating = OPENRAFT_REPEATS.map(|target| (target, at_most(LevelFilter::ERROR)));
    targets
        .with_target(OPENRAFT, at_most(LevelFilter::WARN))
        .with_target(OPENRAFT_CHANGES, LevelFilter::OFF)
        .with_targets(repeating)
}

/// Keeps back a line of openraft that was written a moment ago: what it warns of lasts, and it
/// warns at each step.
struct Seldom {
    quiet: Duration,
    written: Mutex<HashMap<Identifier, Instant>>,
}

impl Seldom {
    fn new(level: LevelFilter) -> Self {
        Seldom {
            quiet: match level >= LevelFilter::DEBUG {
                true => Duration::ZERO,
                false => OPENRAFT_QUIET,
            },
            written: Mutex::default(),
        }
    }

    fn may_write(&self, line: Identifier, now: Instant) -> bool {
        let mut written = self.written.lock();
        let is_quiet = written.get(&line).is_some_and(|at| now < *at + self.quiet);
        if !is_quiet {
            written.insert(line, now);
        }
        !is_quiet
    }
}

impl<S: Subscriber> Layer<S> for Seldom {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        !metadata.target().starts_with(OPENRAFT)
            || self.may_write(metadata.callsite(), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::Arc;
    use tracing::Level;

    /// What was written.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// How many lines four warnings and four steps of openraft come to, and four warnings of ours.
    fn count_lines(level: LevelFilter) -> (usize, usize, usize) {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .finish()
            .with(filter(level))
            .with(Seldom::new(level));
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..4 {
                tracing::warn!(target: "openraft::raft", "engine warns");
                tracing::info!(target: "openraft::raft", "engine steps");
                tracing::warn!("own line");
            }
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let count = |what| text.matches(what).count();
        (
            count("engine warns"),
            count("engine steps"),
            count("own line"),
        )
    }

    #[test]
    fn openraft_warns_of_one_thing_once_a_minute() {
        assert_eq!(count_lines(LevelFilter::INFO), (1, 0, 4));
        assert_eq!(count_lines(LevelFilter::DEBUG), (4, 4, 4));
        assert_eq!(count_lines(LevelFilter::ERROR), (0, 0, 0));
    }

    #[test]
    fn openraft_tells_its_steps_only_where_they_are_asked_for() {
        let info = filter(LevelFilter::INFO);
        let is_heard = |target, level| info.would_enable(target, &level);
        assert!(is_heard("fencepost_server::node::story", Level::INFO));
        assert!(is_heard("openraft::raft", Level::WARN));
        assert!(!is_heard("openraft::raft", Level::INFO));
        assert!(is_heard("openraft::core::raft_core", Level::ERROR));
        assert!(!is_heard(OPENRAFT_CHANGES, Level::ERROR));
        assert!(!is_heard("openraft::core::heartbeat::worker", Level::WARN));
        let debug = filter(LevelFilter::DEBUG);
        assert!(debug.would_enable("openraft::core::heartbeat", &Level::DEBUG));
        let off = filter(LevelFilter::OFF);
        assert!(!off.would_enable("openraft::raft", &Level::ERROR));
    }
}
