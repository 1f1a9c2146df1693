//! How many files and sockets the system lets this process open.

use crate::config::Config;
use crate::conn::places::{OPERATOR_PLACES, strangers_max};
use crate::report::http;
use rustix::process::{Resource, getrlimit, setrlimit};

/// What a server opens beside its connections: standard streams, log, snapshots, listeners, what
/// each core wakes up by.
const OWN: u64 = 64;
const OWN_PER_CORE: u64 = 16;

/// Raises the limit as far as the system allows without being asked. For a process that is a server
/// and nothing else.
pub(crate) fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("the limit of open files stays as it is: {error}");
    }
}

/// Says so if the settings allow more connections than the system does.
pub(crate) fn check(config: &Config) {
    let limit = getrlimit(Resource::Nofile).current;
    if let Some(problem) = problem(config, limit) {
        tracing::warn!("{problem}");
    }
}

/// How many the settings may come to.
fn needed(config: &Config) -> u64 {
    let cores = u64::from(config.thread_count());
    let strangers = strangers_max(config) as u64;
    u64::from(config.connections_max)
        + OPERATOR_PLACES as u64
        + u64::from(http::CONNECTIONS_MAX)
        + cores * (strangers + OWN_PER_CORE)
        + OWN
}

/// `None`: there is room for all. Without a limit there always is.
fn problem(config: &Config, limit: Option<u64>) -> Option<String> {
    let needed = needed(config);
    let limit = limit.filter(|limit| *limit < needed)?;
    Some(format!(
        "connections_max is {}, and with what the server itself needs that comes to {needed} open files, but the system allows \
         {limit}: raise the hard limit (ulimit -Hn, or LimitNOFILE of systemd), or lower connections_max",
        config.connections_max
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_below_what_the_settings_come_to_is_named_with_both_numbers() {
        let config = Config {
            connections_max: 10_000,
            threads: 2,
            ..Config::default()
        };
        let needed = needed(&config);
        assert!(needed > 10_000);
        assert_eq!(problem(&config, None), None);
        assert_eq!(problem(&config, Some(needed)), None);
        let said = problem(&config, Some(needed - 1)).expect("one too few");
        assert!(said.contains(&needed.to_string()), "{said}");
        assert!(said.contains(&(needed - 1).to_string()), "{said}");
    }
}
