//! Times, as commands and scripts give them.

use super::refusal::Refusal;
use super::section::Expiry;
use crate::storage::unix_now_ms;
use protocol::resp::parse_integer;

/// How a time is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl Unit {
    /// The time in milliseconds from now, negative if it has passed. `None`: it overflows.
    fn ms_from_now(self, number: i64) -> Option<i64> {
        // As a Unix time it must not overflow either. The clock is read only where it might.
        let is_countable =
            |ms: &i64| *ms <= COUNTABLE_MS || ms.checked_add(unix_now_ms() as i64).is_some();
        match self {
            Unit::Seconds => number.checked_mul(1_000).filter(is_countable),
            Unit::Milliseconds => Some(number).filter(is_countable),
            Unit::UnixSeconds => {
                let ms = number.checked_mul(1_000)?;
                Some(ms.saturating_sub(unix_now_ms() as i64))
            }
            Unit::UnixMilliseconds => Some(number.saturating_sub(unix_now_ms() as i64)),
        }
    }
}

/// A time up to this from now does not overflow as a Unix time in the next hundred million years.
const COUNTABLE_MS: i64 = i64::MAX / 2;

/// Reads the time that comes with a value that is set. A duration must be above zero, and so must a
/// Unix time, which may have passed.
pub(crate) fn expiry_of(text: &[u8], unit: Unit, command: &'static str) -> Result<Expiry, Refusal> {
    let number = parse_integer(text).ok_or(Refusal::NotAnInteger)?;
    let invalid = || Refusal::InvalidExpire {
        command: command.into(),
    };
    if number <= 0 {
        return Err(invalid());
    }
    let ms = unit.ms_from_now(number).ok_or_else(invalid)?;
    // Zero: the Unix time has passed.
    Ok(Expiry::Ms(ms.max(0) as u64))
}

/// Reads the time that `EXPIRE` gives to a key, in milliseconds from now. Zero or less ends the
/// key.
pub(crate) fn time_of(text: &[u8], unit: Unit, command: &'static str) -> Result<i64, Refusal> {
    let number = parse_integer(text).ok_or(Refusal::NotAnInteger)?;
    unit.ms_from_now(number)
        .ok_or_else(|| Refusal::InvalidExpire {
            command: command.into(),
        })
}
