//! Why a Redis client's bytes were refused.

use super::limits::COMMAND_BYTES_MAX;
use std::fmt;

/// Why a peer's bytes are no command. `Display` gives Redis's own words. The server sends them
/// after `ERR ` and closes the connection, since it cannot find the next command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The count of arguments is no number, or over [`super::limits::ARGS_MAX`].
    MultibulkLength,
    /// The length of an argument is no number, negative, or over [`super::limits::BULK_BYTES_MAX`].
    BulkLength,
    /// More arguments than strangers may send: [`super::limits::STRICT_ARGS_MAX`].
    UnauthenticatedMultibulkLength,
    /// A longer argument than strangers may send: [`super::limits::STRICT_BULK_BYTES_MAX`].
    UnauthenticatedBulkLength,
    /// An argument does not begin with its length.
    ExpectedBulk {
        /// What stands there instead of `$`.
        got: u8,
    },
    /// The line with the count of arguments does not end.
    MultibulkLineTooLong,
    /// The line with the length of an argument does not end.
    BulkLineTooLong,
    /// An inline command is over [`super::limits::LINE_BYTES_MAX`].
    InlineTooLong,
    /// An inline command opens a quote that it does not close, or goes on right behind a closing
    /// one.
    UnbalancedQuotes,
    /// The command as a whole is over [`COMMAND_BYTES_MAX`]. Redis has no such bound and no word
    /// for it.
    CommandTooLong,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        f.write_str(match *self {
            Self::MultibulkLength => "invalid multibulk length",
            Self::BulkLength => "invalid bulk length",
            Self::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            Self::UnauthenticatedBulkLength => "unauthenticated bulk length",
            Self::ExpectedBulk { got } => {
                return write!(f, "expected '$', got '{}'", char::from(got));
            }
            Self::MultibulkLineTooLong => "too big mbulk count string",
            Self::BulkLineTooLong => "too big bulk count string",
            Self::InlineTooLong => "too big inline request",
            Self::UnbalancedQuotes => "unbalanced quotes in request",
            Self::CommandTooLong => {
                return write!(f, "command of more than {COMMAND_BYTES_MAX} bytes");
            }
        })
    }
}

impl std::error::Error for ProtocolError {}
