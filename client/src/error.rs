//! Errors, contention and losses.
//!
//! Three questions, three types. [`Error`]: did the request get an answer? [`LockError`]: did I get
//! the lock, and if not, was it contention or a failure? [`Loss`]: why is the lock I had gone?
//! [`ConnectError`] is for [`Builder::connect`](crate::Builder::connect), and appears as the reason
//! inside [`Error::Disconnected`].

use crate::info::Contention;
use protocol::{
    BusyBound, DecodeError, ErrorCode, LimitError, LostReason, NotHeldReason, UnavailableReason,
};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a request got no useful answer. Contention is not among the reasons: it is an answer.
///
/// Concerns the one call it is returned from. The client itself keeps going: it reconnects by
/// itself, and the next call may succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// There is no connection, and none came about in the time that the request had.
    Disconnected {
        /// What the last attempt to connect ran into, if there was one.
        why: Option<ConnectError>,
    },
    /// The server took the request but did not answer in time. Whether it took effect is not known.
    NoAnswer {
        /// How long the client waited.
        after: Duration,
    },
    /// A bound of the server was hit; nothing happened.
    Busy {
        /// Which one.
        bound: BusyBound,
        /// The server's guess when it may be worth trying again.
        retry_after: Option<Duration>,
    },
    /// The server grants nothing at the moment; nothing happened.
    Unavailable {
        /// Why.
        reason: UnavailableReason,
        /// The server's guess when it may be worth trying again.
        retry_after: Option<Duration>,
    },
    /// The server would not do it; nothing happened.
    Refused {
        /// For programs.
        code: ErrorCode,
        /// For people.
        message: String,
    },
    /// The server ended the wait without granting or refusing.
    Cancelled,
    /// The session ended while the request was under way, and all its locks with it. Whether the
    /// request took effect before that is not known.
    SessionEnded,
    /// The lock that the request was about is gone.
    Lost(Loss),
    /// The client was closed, or the runtime it lived on is gone.
    Closed,
    /// A key, a name or metadata has a length that cannot go over the wire. Nothing was sent.
    Invalid(LimitError),
    /// A time is too long or too short. Nothing was sent.
    OutOfRange {
        /// Which time.
        field: &'static str,
        /// As given.
        given: Duration,
        /// The longest that is allowed.
        max: Duration,
    },
    /// The server answered with something that this version of the client does not understand.
    Unexpected {
        /// What was asked.
        request: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected { why: Some(why) } => {
                let why = why.to_string();
                let stop = if why.ends_with('?') { "" } else { "." };
                write!(
                    f,
                    "not connected: {why}{stop} The client keeps trying; treat your locks as lost once valid_until() has passed"
                )
            }
            Self::Disconnected { why: None } => f.write_str(
                "not connected. The client is reconnecting; treat your locks as lost once valid_until() has passed",
            ),
            Self::NoAnswer { after } => write!(
                f,
                "the server did not answer within {after:?}; the request may or may not have taken effect. \
                 Query the key before you rely on either, or allow more time with request_timeout()"
            ),
            Self::Busy { bound, retry_after } => {
                write!(
                    f,
                    "the server is at its bound of {bound}; nothing happened. Try again {}, or raise the bound on the server",
                    Later(*retry_after)
                )
            }
            Self::Unavailable {
                reason,
                retry_after,
            } => write!(
                f,
                "the server grants no locks at the moment ({reason}); nothing happened. Try again {}",
                Later(*retry_after)
            ),
            Self::Refused { code, message } => {
                write!(f, "the server refused the request ({code}): {message}")?;
                f.write_str(match *code {
                    ErrorCode::FORBIDDEN => ". Use a token that allows this operation",
                    ErrorCode::FORGOTTEN => {
                        ". It was repeated too late to know whether it took effect: query the key; what was granted ends \
                         with its lease"
                    }
                    ErrorCode::UNKNOWN_OP => ". The server is older than this client: upgrade it",
                    _ => "",
                })
            }
            Self::Cancelled => {
                f.write_str("the server ended the wait without a decision. Ask again")
            }
            Self::SessionEnded => f.write_str(
                "the session ended on the server and its locks are gone. Stop the work they protected and acquire them again",
            ),
            Self::Lost(loss) => loss.fmt(f),
            Self::Closed => f.write_str("the client is closed. Build a new one"),
            Self::Invalid(limit) => write!(f, "{limit}. Nothing was sent"),
            Self::OutOfRange { field, given, max } => write!(
                f,
                "{field} is {given:?}; it must be at least 1 ms and at most {max:?}. Nothing was sent"
            ),
            Self::Unexpected { request } => write!(
                f,
                "the server's answer to {request} means nothing to this version of the client. Upgrade the older of the two"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Disconnected { why: Some(why) } => Some(why),
            Self::Invalid(limit) => Some(limit),
            _ => None,
        }
    }
}

impl From<LimitError> for Error {
    fn from(limit: LimitError) -> Self {
        Self::Invalid(limit)
    }
}

struct Later(Option<Duration>);

impl fmt::Display for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(after) => write!(f, "in about {after:?}"),
            None => f.write_str("later"),
        }
    }
}

/// Why [`acquire`](crate::LockRequest::acquire) or [`with`](crate::LockRequest::with) gave no
/// lock: contention, a loss, or a failure. Each calls for another reaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockError {
    /// The lock was not free in time. Nothing is wrong: the value names a holder and counts the
    /// waiters.
    NotAcquired(Contention),
    /// The lock was granted and is gone again: before it reached the caller, or while the work ran,
    /// which was then stopped.
    Lost(Loss),
    /// The server could not be asked, or did not decide.
    Failed(Error),
}

impl LockError {
    /// What stood in the way, if it was contention.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::LockError> {
    /// match client.lock("orders/42").acquire().await {
    ///     Ok(guard) => drop(guard),
    ///     Err(error) => match error.contention() {
    ///         Some(contention) => println!("{} are waiting already", contention.queue_length),
    ///         None => return Err(error),
    ///     },
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn contention(&self) -> Option<&Contention> {
        match self {
            Self::NotAcquired(contention) => Some(contention),
            _ => None,
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(contention) => {
                write!(f, "not acquired in time: {contention}. ")?;
                f.write_str(match contention.is_own() {
                    false => "Wait longer, or come back later",
                    true => {
                        "It waits for a guard of this same client: release that one first, or ask with reentrant() \
                         where one piece of work may hold the lock twice"
                    }
                })
            }
            Self::Lost(loss) => loss.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for LockError {
    fn from(error: Error) -> Self {
        match error {
            Error::Lost(loss) => Self::Lost(loss),
            error => Self::Failed(error),
        }
    }
}

/// Why a lock is gone. Final: a guard that is lost never comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The server says that its lease ran out.
    Expired,
    /// An operator released it.
    Forced,
    /// After a restart of the server, a holder with a higher fence claimed it.
    Superseded,
    /// The session that held it ended on the server.
    SessionEnded,
    /// The server says that this session does not hold it (any more), and not why.
    NotHeld,
    /// No renewal was confirmed in time, so the client gave it up. The server may have kept it for
    /// a moment longer.
    DeadlinePassed,
    /// As [`DeadlinePassed`](Self::DeadlinePassed), and what ran out was the time of its session:
    /// the lock's own lease, if it has one, is longer.
    SessionDeadlinePassed,
    /// The client was closed.
    Closed,
    /// It was not lost: its guard was released or dropped. Only a `lost()` future that outlives its
    /// guard sees this.
    Released,
}

impl Loss {
    /// Whether the server has ended the lock as well, so that there is nothing left to release.
    pub(crate) fn is_known_to_server(self) -> bool {
        !matches!(self, Self::DeadlinePassed | Self::SessionDeadlinePassed)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => {
                "the lock is lost: its lease ran out. Stop the work; use a longer ttl() if this happens often"
            }
            Self::Forced => "the lock is lost: an operator released it. Stop the work",
            Self::Superseded => {
                "the lock is lost: after a restart of the server a newer holder claimed it. Stop the work"
            }
            Self::SessionEnded => {
                "the lock is lost: the session ended on the server. Stop the work; use a longer session_ttl() if this \
                 happens often"
            }
            Self::NotHeld => {
                "the lock is lost: the server says that this session does not hold it. Stop the work"
            }
            Self::DeadlinePassed => {
                "the lock is lost: the server did not confirm it before valid_until(). Stop the work. The server could not be \
                 reached, or this process was paused; a longer ttl() survives longer silence"
            }
            Self::SessionDeadlinePassed => {
                "the lock is lost: the server did not confirm its session before valid_until(). Stop the work. The server could \
                 not be reached, or this process was paused; a longer session_ttl() survives longer silence"
            }
            Self::Closed => "the lock is gone: the client was closed",
            Self::Released => "the lock was released",
        })
    }
}

impl From<LostReason> for Loss {
    fn from(reason: LostReason) -> Self {
        match reason {
            LostReason::EXPIRED => Self::Expired,
            LostReason::SESSION_ENDED => Self::SessionEnded,
            LostReason::FORCED => Self::Forced,
            LostReason::SUPERSEDED => Self::Superseded,
            _ => Self::NotHeld,
        }
    }
}

impl From<NotHeldReason> for Loss {
    fn from(reason: NotHeldReason) -> Self {
        match reason {
            NotHeldReason::EXPIRED => Self::Expired,
            NotHeldReason::FORCED => Self::Forced,
            _ => Self::NotHeld,
        }
    }
}

/// Why a connection could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// No address was given.
    NoAddress,
    /// The blocking client could not start its thread.
    NoRuntime {
        /// For people.
        message: String,
    },
    /// The token cannot be read.
    TokenFile {
        /// The file.
        path: PathBuf,
        /// For people.
        message: String,
    },
    /// A setting has a length that cannot go over the wire.
    Invalid(LimitError),
    /// A setting lies outside what is allowed.
    OutOfRange {
        /// Which setting.
        field: &'static str,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Certificates cannot be used as they are.
    Certificates {
        /// For people.
        message: String,
    },
    /// The server and the client do not accept each other: one of the certificates is not good, or
    /// one of the two does not speak TLS.
    Handshake {
        /// Where.
        address: String,
        /// For people.
        message: String,
    },
    /// No server answers there.
    Unreachable {
        /// Where.
        address: String,
        /// For programs.
        kind: io::ErrorKind,
        /// For people.
        message: String,
    },
    /// The connection or the welcome took too long.
    TimedOut {
        /// Where.
        address: String,
        /// How long the client waited.
        after: Duration,
    },
    /// The server turned the client away.
    Refused {
        /// Where.
        address: String,
        /// For programs.
        code: ErrorCode,
        /// For people.
        message: String,
    },
    /// What answers there is a node of a cluster that another node leads, or none at the moment.
    NotLeader {
        /// Where.
        address: String,
        /// Where the leader is, as far as that node knows.
        leader: Option<String>,
    },
    /// Several addresses were tried, and none led to a server that let the client in.
    NoneOf {
        /// Why not, for each of them.
        failures: Vec<ConnectError>,
    },
    /// What answers there does not speak this protocol.
    NotFencepost {
        /// Where.
        address: String,
        /// What was wrong with the answer; `None` if it was something else than a welcome.
        why: Option<DecodeError>,
    },
}

impl ConnectError {
    /// Whether trying again without changing anything is in vain.
    pub(crate) fn is_permanent(&self) -> bool {
        match self {
            Self::NoAddress
            | Self::NoRuntime { .. }
            | Self::TokenFile { .. }
            | Self::Invalid(_)
            | Self::OutOfRange { .. }
            | Self::Certificates { .. }
            | Self::Handshake { .. } => true,
            Self::Refused { code, .. } => matches!(
                *code,
                ErrorCode::UNAUTHENTICATED
                    | ErrorCode::FORBIDDEN
                    | ErrorCode::UNSUPPORTED_VERSION
                    | ErrorCode::MALFORMED
                    | ErrorCode::OUT_OF_TURN
            ),
            Self::NoneOf { failures } => failures.iter().any(Self::is_permanent),
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::NotLeader { .. }
            | Self::NotFencepost { .. } => false,
        }
    }

    /// Whether nodes of a cluster answered, and none of them leads: one soon will.
    pub(crate) fn is_electing(&self) -> bool {
        match self {
            Self::NotLeader { .. } => true,
            Self::NoneOf { failures } => failures.iter().any(Self::is_electing),
            _ => false,
        }
    }

    /// What happened, without advice, for a list.
    fn brief(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable {
                address, message, ..
            } => write!(f, "{address}: {message}"),
            Self::TimedOut { address, after } => {
                write!(f, "{address}: no answer within {after:?}")
            }
            Self::NotLeader {
                address,
                leader: Some(leader),
            } => write!(f, "{address}: does not lead, and says that {leader} does"),
            Self::NotLeader {
                address,
                leader: None,
            } => write!(f, "{address}: does not lead, and knows no leader"),
            Self::Refused {
                address,
                code,
                message,
            } => write!(f, "{address}: refused ({code}): {message}"),
            Self::Handshake { address, message } => {
                write!(f, "{address}: the TLS handshake failed: {message}")
            }
            Self::NotFencepost { address, .. } => write!(f, "{address}: is no Fencepost server"),
            other => fmt::Display::fmt(other, f),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("no server address was given. Set one with address()"),
            Self::NoRuntime { message } => {
                write!(
                    f,
                    "the client's thread did not start: {message}. Free some threads or memory"
                )
            }
            Self::TokenFile { path, message } => {
                write!(f, "cannot read the token in {}: {message}", path.display())
            }
            Self::Invalid(limit) => limit.fmt(f),
            Self::OutOfRange { field, allowed } => write!(f, "{field} must be {allowed}"),
            Self::Certificates { message } => write!(f, "{message}"),
            Self::Handshake { address, message } => write!(
                f,
                "the TLS handshake with {address} failed: {message}. Check the files and the name given to tls()"
            ),
            Self::Unreachable {
                address, message, ..
            } => {
                write!(
                    f,
                    "cannot reach {address}: {message}. Is the server running, and is this its address?"
                )
            }
            Self::TimedOut { address, after } => write!(
                f,
                "{address} did not welcome the client within {after:?}. Check the network, or allow more with \
                 connect_timeout()"
            ),
            Self::Refused {
                address,
                code,
                message,
            } => {
                write!(f, "{address} refused the connection ({code}): {message}")?;
                f.write_str(match *code {
                    ErrorCode::UNAUTHENTICATED => {
                        ". Set a token that the server knows with token()"
                    }
                    ErrorCode::UNSUPPORTED_VERSION => ". Upgrade the older of client and server",
                    ErrorCode::AT_CAPACITY => {
                        ". Use fewer connections(), or raise the server's limits"
                    }
                    _ => "",
                })
            }
            Self::NotLeader { leader, .. } => {
                self.brief(f)?;
                f.write_str(match leader {
                    Some(_) => ". See whether that node runs, and can be reached from here",
                    None => {
                        ". Try again in a moment; if it stays so, see whether a majority of the nodes runs"
                    }
                })
            }
            Self::NoneOf { failures } => {
                write!(
                    f,
                    "none of {} addresses leads to a server: ",
                    failures.len()
                )?;
                for (index, failure) in failures.iter().enumerate() {
                    f.write_str(if index > 0 { "; " } else { "" })?;
                    failure.brief(f)?;
                }
                f.write_str(match self.is_electing() {
                    true => {
                        ". Try again in a moment; if it stays so, see whether a majority of the nodes runs"
                    }
                    false => ". See whether the server runs, and whether these are its addresses",
                })
            }
            Self::NotFencepost {
                address,
                why: Some(why),
            } => {
                write!(
                    f,
                    "what answers at {address} is no Fencepost server: {why}. Check the port"
                )
            }
            Self::NotFencepost { address, why: None } => {
                write!(
                    f,
                    "what answers at {address} is no Fencepost server. Check the port"
                )
            }
        }
    }
}

impl std::error::Error for ConnectError {}

impl From<LimitError> for ConnectError {
    fn from(limit: LimitError) -> Self {
        Self::Invalid(limit)
    }
}
