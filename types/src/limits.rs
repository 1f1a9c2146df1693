//! The bounds that more than one crate keeps, each defined here and nowhere else.

use std::fmt;

/// Bytes of a key: at least 1, at most this.
pub const KEY_BYTES_MAX: usize = 256;

/// Bytes of the metadata that a client of the native protocol leaves with its lock.
pub const METADATA_BYTES_MAX: usize = 256;

/// Bytes of the metadata that the engine and the log keep with a lock: room for the value of a
/// Redis key.
pub const NOTE_BYTES_MAX: usize = 1024;

/// Longest lease of the native protocol: one day.
pub const TTL_MS_MAX: u32 = 86_400_000;

/// Longest lease with an end that the engine keeps: 2.2 years.
pub const SPAN_MS_MAX: u64 = 1 << 36;

/// Longest wait in a queue: one day.
pub const WAIT_MS_MAX: u32 = 86_400_000;

/// Longest time that a session outlives its last sign of life: one day.
pub const SESSION_TTL_MS_MAX: u32 = 86_400_000;

const _: () = assert!(METADATA_BYTES_MAX <= NOTE_BYTES_MAX);
const _: () = assert!(TTL_MS_MAX as u64 <= SPAN_MS_MAX);
// Times on the wire are u32 and must survive the arithmetic of clients that have only signed
// integers.
const _: () = assert!(TTL_MS_MAX <= i32::MAX as u32 && WAIT_MS_MAX <= i32::MAX as u32);

/// Why a value was refused when it was made. The caller that offered it acts on it; nothing has
/// been sent or kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// It must have at least one byte.
    Empty {
        /// What it is.
        field: &'static str,
    },
    /// It has too many bytes.
    TooLong {
        /// What it is.
        field: &'static str,
        /// As given.
        bytes: usize,
        /// The most that is allowed.
        bytes_max: usize,
    },
    /// There are too many of them.
    TooMany {
        /// What they are.
        field: &'static str,
        /// As given.
        count: usize,
        /// The most that is allowed.
        count_max: u16,
    },
}

/// Refuses a value of `bytes` bytes outside `bytes_min..=bytes_max`. `field` names it in the error.
#[inline]
pub const fn check_length(
    field: &'static str,
    bytes: usize,
    bytes_min: usize,
    bytes_max: usize,
) -> Result<(), LimitError> {
    if bytes < bytes_min {
        return Err(LimitError::Empty { field });
    }
    if bytes > bytes_max {
        return Err(LimitError::TooLong {
            field,
            bytes,
            bytes_max,
        });
    }
    Ok(())
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty { field } => write!(f, "{field} must not be empty"),
            Self::TooLong {
                field,
                bytes,
                bytes_max,
            } => write!(
                f,
                "{field} has {bytes} bytes, at most {bytes_max} are allowed"
            ),
            Self::TooMany {
                field,
                count,
                count_max,
            } => write!(
                f,
                "there are {count} {field}, at most {count_max} are allowed"
            ),
        }
    }
}

impl std::error::Error for LimitError {}
