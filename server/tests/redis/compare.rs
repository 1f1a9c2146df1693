//! When two replies count as the same, and where they differ on purpose.

use crate::command::{Arg, Command};
use crate::reply::Reply;

/// How far apart two servers may be about the time that is left, after the same command at almost
/// the same moment. Far more than a busy machine needs, and less than the difference of any two
/// times to live in these tests.
const SLACK_SECONDS: i64 = 50;

/// A difference on purpose.
struct Meant {
    /// What a reader should know.
    reason: &'static str,
    /// Whether two replies to a command differ for this reason.
    is_it: fn(&Command, redis: &Reply, ours: &Reply) -> bool,
}

/// All differences on purpose.
const MEANT: &[Meant] = &[
    Meant {
        reason: "an error quotes what it can show: Redis stops at a zero byte, we replace what is no UTF-8, and stop at 128",
        is_it: |command, redis, ours| {
            let is_odd = |arg: &Arg| match arg {
                Arg::Bytes(bytes) => {
                    bytes.contains(&0) || std::str::from_utf8(bytes).is_err() || bytes.len() > 128
                }
                _ => false,
            };
            let quotes = ["ERR unknown command '", "ERR Unsupported option "];
            let both = |quote: &&str| begins(redis, quote) && begins(ours, quote);
            command.iter().any(is_odd) && quotes.iter().any(both)
        },
    },
    Meant {
        reason: "no key is empty, and ours says so before it looks at anything else",
        is_it: |command, redis, ours| {
            let has_empty = command.contains(&Arg::Bytes(Vec::new()));
            has_empty && redis.is_error() && begins(ours, "ERR a key has 1 to ")
        },
    },
];

fn begins(reply: &Reply, with: &str) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with(with.as_bytes()))
}

/// Commands that Redis takes in a transaction and ours refuses. They look at all keys, and ours
/// names the keys of a transaction before it begins, so that it holds up no client with other keys.
pub(crate) const NOT_IN_TRANSACTIONS: [&str; 2] = ["keys", "flushdb"];

/// Why the replies to a command are not the same. `queued`: what an `EXEC` carried out.
pub(crate) fn difference(
    command: &Command,
    queued: &[Command],
    redis: &Reply,
    ours: &Reply,
) -> Option<String> {
    if is_same(command, queued, redis, ours) {
        return None;
    }
    let meant = MEANT
        .iter()
        .find(|meant| (meant.is_it)(command, redis, ours));
    match meant {
        Some(meant) => {
            assert!(!meant.reason.is_empty());
            None
        }
        None => Some(format!(
            "{command:?}\n  Redis: {redis:?}\n   ours: {ours:?}"
        )),
    }
}

fn is_same(command: &Command, queued: &[Command], redis: &Reply, ours: &Reply) -> bool {
    let name = name(command);
    match (&*name, redis, ours) {
        ("exec", Reply::Array(redis), Reply::Array(ours)) => {
            redis.len() == ours.len()
                && redis.len() == queued.len()
                && queued
                    .iter()
                    .zip(redis.iter().zip(ours))
                    .all(|(command, (redis, ours))| difference(command, &[], redis, ours).is_none())
        }
        ("ttl" | "expiretime", redis, ours) => is_near(redis, ours, SLACK_SECONDS),
        ("pttl" | "pexpiretime", redis, ours) => is_near(redis, ours, SLACK_SECONDS * 1_000),
        ("evalsha", Reply::Error(redis), Reply::Error(ours)) => {
            without_place(redis).as_bytes() == ours
        }
        // A script's answer may be a time as well, in seconds or milliseconds.
        ("evalsha", redis, ours) => {
            is_near(redis, ours, SLACK_SECONDS) || is_near(redis, ours, SLACK_SECONDS * 1_000)
        }
        // Neither server promises an order of listed keys.
        ("keys", Reply::Array(redis), Reply::Array(ours)) => unordered(redis) == unordered(ours),
        _ => redis == ours,
    }
}

/// Compares two replies but for the time that passes. No count that a test can reach is as large as
/// the smallest time to live.
fn is_near(redis: &Reply, ours: &Reply, slack: i64) -> bool {
    match (redis, ours) {
        (Reply::Integer(redis), Reply::Integer(ours)) => {
            redis == ours
                || *redis > slack && *ours > slack && redis.abs_diff(*ours) <= slack as u64
        }
        (Reply::Array(redis), Reply::Array(ours)) => {
            redis.len() == ours.len()
                && redis
                    .iter()
                    .zip(ours)
                    .all(|(redis, ours)| is_near(redis, ours, slack))
        }
        _ => redis == ours,
    }
}

/// Redis names the place in a script where it failed. Ours has no lines.
fn without_place(error: &[u8]) -> String {
    let error = String::from_utf8_lossy(error);
    let error = error.split(" script: ").next().unwrap_or_default();
    match error.split_once("user_script:") {
        Some((before, behind)) => {
            let behind =
                behind.trim_start_matches(|digit: char| digit.is_ascii_digit() || digit == ':');
            format!("{before}user_script:{behind}")
        }
        None => error.to_owned(),
    }
}

fn unordered(keys: &[Reply]) -> Vec<String> {
    let mut keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
    keys.sort_unstable();
    keys
}

pub(crate) fn name(command: &Command) -> String {
    match command.first() {
        Some(Arg::Bytes(name)) => String::from_utf8_lossy(name).to_ascii_lowercase(),
        _ => String::new(),
    }
}
