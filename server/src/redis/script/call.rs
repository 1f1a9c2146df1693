//! The keys and arguments of a call, as a script sees them. Some may be missing, and what should be
//! a number may be none.

use crate::redis::name::{self, Name};
use crate::redis::refusal::Refusal;
use crate::redis::section::{Expiry, Held, Section};
use crate::redis::times::{Unit, expiry_of, time_of};
use protocol::resp::{Writer, parse_integer};

/// From here on Lua writes a number in a way that Redis does not read as an integer.
const EXACT_MAX: f64 = 1e17;

/// What a script is called with.
pub(crate) struct ScriptCall<'a> {
    /// The keys that it is given.
    pub(crate) keys: &'a [Name<'a>],
    /// The keys that it finds by itself.
    pub(crate) more_keys: &'a [Name<'a>],
    pub(crate) args: &'a [&'a [u8]],
}

impl<'a> ScriptCall<'a> {
    /// `KEYS[number]`, given to a command.
    pub(super) fn key(&self, number: usize) -> Result<&'a Name<'a>, Refusal> {
        self.keys.get(number - 1).ok_or_else(missing)
    }

    /// The bytes of `KEYS[number]`, for a channel or a number that stands among the keys.
    pub(super) fn key_bytes(&self, number: usize) -> Result<&'a [u8], Refusal> {
        Ok(name::split(self.key(number)?.bytes()).1)
    }

    /// `ARGV[number]`, given to a command.
    pub(super) fn arg(&self, number: usize) -> Result<&'a [u8], Refusal> {
        self.args.get(number - 1).copied().ok_or_else(missing)
    }

    /// Whether `ARGV[number]` is this very word.
    pub(super) fn arg_is(&self, number: usize, word: &[u8]) -> bool {
        self.args.get(number - 1) == Some(&word)
    }

    /// `ARGV[number]` as the time to live of a value that is set, in milliseconds, above zero.
    pub(super) fn set_ms(&self, number: usize) -> Result<Expiry, Refusal> {
        expiry_of(self.arg(number)?, Unit::Milliseconds, "set")
    }

    /// As `set_ms`, in seconds, for `SETEX`.
    pub(super) fn setex_seconds(&self, number: usize) -> Result<Expiry, Refusal> {
        expiry_of(self.arg(number)?, Unit::Seconds, "setex")
    }

    /// `ARGV[number]` as a time for `PEXPIRE`, in milliseconds. Zero or less ends the key.
    pub(super) fn pexpire_ms(&self, number: usize) -> Result<i64, Refusal> {
        pexpire_ms(self.arg(number)?)
    }

    /// `ARGV[number]` as a time for `EXPIRE`, in milliseconds.
    pub(super) fn expire_ms(&self, number: usize) -> Result<i64, Refusal> {
        time_of(self.arg(number)?, Unit::Seconds, "expire")
    }

    /// `tonumber(ARGV[number])`.
    pub(super) fn lua_number(&self, number: usize) -> Option<f64> {
        self.args.get(number - 1).and_then(|text| lua_number(text))
    }

    /// The lock at a key, if its value is `ARGV[number]`. A missing argument equals no value.
    pub(super) fn own(
        &self,
        section: &mut Section<'_>,
        name: &Name<'_>,
        number: usize,
    ) -> Result<Option<Held>, Refusal> {
        match self.args.get(number - 1) {
            Some(token) => section.own(name, token),
            None => section.value(name).map(|_| None),
        }
    }
}

/// Redis's error for a missing argument.
pub(super) fn missing() -> Refusal {
    Refusal::text("ERR Lua redis lib command arguments must be strings or integers")
}

/// Lua's error for a calculation with something that is no number.
pub(super) fn lua_error(what: &str) -> Refusal {
    Refusal::text(format!("ERR user_script: {what}"))
}

/// A time for `PEXPIRE`, in milliseconds.
pub(super) fn pexpire_ms(text: &[u8]) -> Result<i64, Refusal> {
    time_of(text, Unit::Milliseconds, "pexpire")
}

/// What `tonumber` makes of a string.
pub(super) fn lua_number(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16)
            .ok()
            .map(|number| number as f64),
        None => text.parse().ok(),
    }
}

/// The integer that Redis reads where Lua gives a number to a command.
pub(super) fn integer_of(number: f64) -> Result<i64, Refusal> {
    let is_whole = number.fract() == 0.0 && number.abs() < EXACT_MAX;
    is_whole
        .then_some(number as i64)
        .ok_or(Refusal::NotAnInteger)
}

/// Milliseconds as seconds, rounded as `TTL` rounds them. The negative answers of `PTTL` stay.
pub(super) fn seconds(left_ms: i64) -> i64 {
    if left_ms < 0 {
        left_ms
    } else {
        left_ms.saturating_add(500) / 1_000
    }
}

/// `PEXPIRE` on a lock that was seen: sets its end, or ends it now. `false`: it had ended.
pub(super) fn set_end(
    section: &mut Section<'_>,
    name: &Name<'_>,
    held: &Held,
    ms: i64,
) -> Result<bool, Refusal> {
    match ms {
        1.. => section.renew(name, held, Expiry::Ms(ms as u64)),
        _ => Ok(section.end(name, held)),
    }
}

/// Writes what a script returns as `true` or `false`.
pub(super) fn write_bool(value: bool, out: &mut Writer<'_>) {
    match value {
        true => out.integer(1),
        false => out.null(),
    }
}

/// Writes what a script returns as `tonumber(text)`.
pub(super) fn write_number(text: &[u8], out: &mut Writer<'_>) {
    let number = parse_integer(text).or_else(|| lua_number(text).map(|number| number as i64));
    match number {
        Some(number) => out.integer(number),
        None => out.null(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_lua_takes_for_numbers() {
        let cases: [(&[u8], Option<f64>); 8] = [
            (b"10", Some(10.0)),
            (b" -1.5 ", Some(-1.5)),
            (b"1e3", Some(1000.0)),
            (b"0x10", Some(16.0)),
            (b"", None),
            (b"abc", None),
            (b"1 2", None),
            (b"\xff", None),
        ];
        for (text, expected) in cases {
            assert_eq!(lua_number(text), expected, "{text:?}");
        }
    }

    #[test]
    fn only_whole_numbers_are_integers() {
        assert_eq!(integer_of(5000.0), Ok(5000));
        assert_eq!(integer_of(-3.0), Ok(-3));
        for wrong in [1.5, 1e17, f64::NAN, f64::INFINITY] {
            assert_eq!(integer_of(wrong), Err(Refusal::NotAnInteger), "{wrong}");
        }
    }

    #[test]
    fn seconds_are_rounded_as_redis_does() {
        assert_eq!(
            [-2, -1, 0, 499, 500, 2_600].map(seconds),
            [-2, -1, 0, 0, 1, 3]
        );
    }
}
