//! Why a command was not carried out, in the words that Redis clients know. The first word of an
//! error is part of the contract.

use crate::core::Core;
use crate::rights::{Bound, Exceeded, Rights};
use crate::session::redis_form::VALUE_BYTES_MAX;
use engine::{KEY_BYTES_MAX, Limit, Tick};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The document that explains what differs from Redis.
const MANUAL: &str = "docs/redis.md";

/// The document that explains who may do what.
const RIGHTS: &str = "docs/security.md";

/// An error reply. It answers one command and leaves the connection open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The key holds a value of another type.
    WrongType,
    /// Unknown options, or options that contradict each other.
    Syntax,
    /// An argument should be a number and is none.
    NotAnInteger,
    /// A time to live of zero or less, or one that overflows.
    InvalidExpire {
        /// The command, in lower case.
        command: Cow<'static, str>,
    },
    /// A longer time to live than the settings allow.
    TooLong { lease_max_ms: u64 },
    /// No time to live, where the settings demand one.
    Endless { lease_max_ms: u64 },
    /// The key is empty or too long.
    KeyLength(usize),
    /// The value is too long.
    ValueLength(usize),
    /// A limit of the server was reached.
    Busy(Limit),
    /// After a crash not all locks are known until the grace period ends, in `left_ms`.
    Recovering { left_ms: u64 },
    /// Fences are being reserved.
    AtCeiling,
    /// The server stops.
    Stopping,
    /// A mistake of the server: the command needs a key or a script that was not named before it
    /// began.
    NotNamed,
    /// The command ends or takes a lock without showing that it is the caller's.
    Strict,
    /// The sender has not the role that a command needs.
    Forbidden {
        name: Arc<str>,
        /// In lower case.
        command: &'static str,
    },
    /// The sender has the role, but not for this key or channel.
    OutOfReach { name: Arc<str>, what: &'static str },
    /// As `Strict`, for a sender that may not operate.
    NotOwn { name: Arc<str> },
    /// A quota of the sender, or of a prefix, is used up.
    Quota(Exceeded),
    /// Any other error, with its first word.
    Text(Cow<'static, str>),
}

impl Refusal {
    /// Counts a refusal for want of a right or of a quota. `true`: it was for want of a right.
    pub(crate) fn count(&self, rights: &Rights) -> bool {
        match self {
            Refusal::Forbidden { .. } | Refusal::OutOfReach { .. } | Refusal::NotOwn { .. } => {
                rights.count_refused();
                return true;
            }
            Refusal::Quota(_) => rights.count_exceeded(),
            _ => {}
        }
        false
    }

    /// Refuses what is too long. `what` begins the sentence: "a message".
    pub(crate) fn if_longer(what: &str, bytes: &[u8], bytes_max: usize) -> Result<(), Self> {
        match bytes.len() {
            length if length > bytes_max => Err(Self::text(format!(
                "ERR {what} has at most {bytes_max} bytes here; this one has {length}"
            ))),
            _ => Ok(()),
        }
    }

    /// The refusal of everything that needs to know of all locks, while the server recovers.
    #[inline]
    pub(crate) fn while_recovering(core: &Core, now: Tick) -> Option<Self> {
        let left_ms = core.shared.recovery.recovering_ms(now)?;
        Some(Refusal::Recovering {
            left_ms: left_ms.into(),
        })
    }

    /// An error in these words.
    pub(crate) fn text(message: impl Into<Cow<'static, str>>) -> Self {
        Refusal::Text(message.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::WrongType => {
                f.write_str("WRONGTYPE Operation against a key holding the wrong kind of value")
            }
            Refusal::Syntax => f.write_str("ERR syntax error"),
            Refusal::NotAnInteger => f.write_str("ERR value is not an integer or out of range"),
            Refusal::InvalidExpire { command } => {
                write!(f, "ERR invalid expire time in '{command}' command")
            }
            Refusal::TooLong { lease_max_ms } => write!(
                f,
                "ERR invalid expire time, at most {lease_max_ms} ms are allowed here (lease_max). See {MANUAL}"
            ),
            Refusal::Endless { lease_max_ms } => write!(
                f,
                "ERR a lock needs an expire time here, at most {lease_max_ms} ms (lease_max). See {MANUAL}"
            ),
            Refusal::KeyLength(length) => write!(
                f,
                "ERR a key has 1 to {KEY_BYTES_MAX} bytes here, two less outside database 0; this one has {length}. See {MANUAL}"
            ),
            Refusal::ValueLength(length) => write!(
                f,
                "ERR a value is a lock's token here and has at most {VALUE_BYTES_MAX} bytes; this one has {length}. See {MANUAL}"
            ),
            Refusal::Busy(limit) => {
                let (what, setting) = match limit {
                    Limit::Keys => ("keys", "keys_max"),
                    Limit::Bytes => ("bytes of keys and values", "bytes_max"),
                    Limit::WaitersPerKey => ("waiters for this key", "waiters_per_key_max"),
                    Limit::Waiters => ("waiters", "waiters_max"),
                    Limit::SharedHolders => ("holders of this key", "shared_holders_max"),
                    Limit::Sessions => ("sessions", "sessions_max"),
                };
                write!(
                    f,
                    "OOM there are as many {what} as there may be; try again later, or raise {setting}"
                )
            }
            Refusal::Recovering { left_ms } => write!(
                f,
                "LOADING the server was stopped without notice, and locks from before may still be held: not all of them are known, and none is granted, for {left_ms} ms"
            ),
            Refusal::AtCeiling => f.write_str(
                "TRYAGAIN fences are being written ahead to the disk; try again at once",
            ),
            Refusal::Stopping => f.write_str("ERR the server is shutting down"),
            Refusal::NotNamed => f.write_str(
                "ERR a mistake of the server: this key was not named before the command began",
            ),
            Refusal::Strict => write!(
                f,
                "NOPERM this would end or take a lock without showing that it is the caller's, which redis_strict forbids. See {MANUAL}"
            ),
            Refusal::Forbidden { name, command } => write!(
                f,
                "NOPERM User {name} has no permissions to run the '{command}' command. See {RIGHTS}"
            ),
            Refusal::OutOfReach { name, what } => write!(
                f,
                "NOPERM User {name} has no permissions to access {what} outside its prefixes. See {RIGHTS}"
            ),
            Refusal::NotOwn { name } => write!(
                f,
                "NOPERM User {name} has no permissions to end or take a lock without showing that it is its own, which needs the role operate. See {RIGHTS}"
            ),
            Refusal::Quota(exceeded) if exceeded.bound == Bound::Rate => write!(
                f,
                "TRYAGAIN {exceeded}; try again in {} ms. See {RIGHTS}",
                exceeded.retry_after_ms
            ),
            Refusal::Quota(exceeded) => write!(f, "OOM {exceeded}. See {RIGHTS}"),
            Refusal::Text(message) => f.write_str(message),
        }
    }
}
