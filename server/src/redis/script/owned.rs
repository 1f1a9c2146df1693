//! Scripts that compare the value of one key with the caller's token and act if they are equal.
//! Most libraries release with `Delete` and renew with `Expire`.

use super::call::{ScriptCall, integer_of, lua_error, seconds, set_end, write_bool};
use crate::redis::channels;
use crate::redis::refusal::Refusal;
use crate::redis::section::{Expiry, Section};
use engine::Tick;
use protocol::resp::Writer;

/// What to do with the caller's lock, and the answer. `KEYS[1]` is the lock and `ARGV[1]` the token
/// unless another meaning is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owned {
    /// Delete: 1 or 0.
    Delete,
    /// Delete: 1, 0, or -1 if it is free.
    DeleteOrAbsent,
    /// Delete: 1, OK if it is free, an error if it has another owner.
    DeleteOrError,
    /// Delete: true or false.
    DeleteTrue,
    /// Delete and publish that on the channel `ARGV[2]`: true or false.
    DeletePublish,
    /// Delete and publish that on the channel `KEYS[2]`: true or false.
    DeletePublishKey,
    /// Delete without comparing, and publish that on the channel `ARGV[1]`: true or false.
    RemovePublish,

    /// Set the end, `ARGV[2]` milliseconds from now: 1 or 0.
    Expire,
    /// As `Expire`: true or false.
    ExpireTrue,
    /// As `Expire`, for a lock that has an end.
    ExpireLimited,
    /// Move the end of a lock that has one by `ARGV[2]` milliseconds: 1 or 0.
    ExpireLater,
    /// As `ExpireLater` if `ARGV[3]` is "0", and as `Expire` otherwise.
    ExpireLaterOrSet,
    /// Set the end, `ARGV[2]` seconds from now: 1 or 0.
    ExpireSeconds,
    /// As `ExpireSeconds`: 0 if the end was set and 1 if not.
    ExpireSecondsZero,
    /// As `ExpireSeconds`, and zero or less takes the end away: 1 or 0.
    ExpireSecondsOrPersist,
    /// Set the same value again, with an end: 1 or 0.
    SetAgain,
    /// As `SetAgain`: OK, or the word "ERR", which is no error.
    SetAgainOk,

    /// The milliseconds that it has left: zero if it has no end or is not the caller's.
    TimeLeftOrZero,
    /// The milliseconds that it has left, -3 if it is not the caller's.
    TimeLeft,
    /// The seconds that it has left; an error if it is not the caller's.
    Seconds,
    /// Its value, and the milliseconds that it has left. Nothing is compared.
    ValueAndTimeLeft,
}

/// The answer of a script that returns 1 or 0.
fn write_one(done: bool, out: &mut Writer<'_>) {
    out.integer(i64::from(done));
}

/// The error of aioredlock's scripts, which make their own.
pub(super) const ERROR: &str = "ERR ERROR";

pub(super) fn run(
    script: Owned,
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    match script {
        Owned::Delete => write_one(delete(section, call)?, out),
        Owned::DeleteTrue => write_bool(delete(section, call)?, out),
        Owned::DeleteOrAbsent => match section.exists(call.key(1)?)? {
            true => write_one(delete(section, call)?, out),
            false => out.integer(-1),
        },
        Owned::DeleteOrError => match section.exists(call.key(1)?)? {
            true if delete(section, call)? => out.integer(1),
            true => out.error(ERROR),
            false => out.simple("OK"),
        },
        Owned::DeletePublish => {
            write_bool(delete_and_tell(section, call, |call| call.arg(2))?, out)
        }
        Owned::DeletePublishKey => {
            write_bool(
                delete_and_tell(section, call, |call| call.key_bytes(2))?,
                out,
            );
        }
        Owned::RemovePublish => write_bool(remove_and_tell(section, call)?, out),

        Owned::Expire => write_one(expire(section, call, || call.pexpire_ms(2))?, out),
        Owned::ExpireTrue => write_bool(expire(section, call, || call.pexpire_ms(2))?, out),
        Owned::ExpireLimited | Owned::ExpireLater | Owned::ExpireLaterOrSet => {
            write_one(expire_limited(script, section, call)?, out);
        }
        Owned::ExpireSeconds => write_one(expire(section, call, || call.expire_ms(2))?, out),
        Owned::ExpireSecondsZero => write_one(!expire(section, call, || call.expire_ms(2))?, out),
        Owned::ExpireSecondsOrPersist => write_one(expire_or_persist(section, call)?, out),
        Owned::SetAgain => write_one(set_again(section, call)?, out),
        Owned::SetAgainOk => match set_again(section, call)? {
            true => out.simple("OK"),
            false => out.bulk(b"ERR"),
        },

        Owned::TimeLeftOrZero => out.integer(time_left(section, call)?.map_or(0, |ms| ms.max(0))),
        Owned::TimeLeft => out.integer(time_left(section, call)?.unwrap_or(-3)),
        Owned::Seconds => match time_left(section, call)? {
            Some(left_ms) => out.integer(seconds(left_ms)),
            None => out.error(ERROR),
        },
        Owned::ValueAndTimeLeft => {
            let name = call.key(1)?;
            let value = section.value(name)?;
            out.array(2);
            match value {
                Some(value) => out.bulk(&value),
                None => out.null(),
            }
            out.integer(section.pttl(name)?);
        }
    }
    Ok(())
}

fn delete(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<bool, Refusal> {
    let name = call.key(1)?;
    let held = call.own(section, name, 1)?;
    Ok(held.is_some_and(|held| section.release(name, &held).is_some()))
}

fn delete_and_tell<'a>(
    section: &mut Section<'_>,
    call: &ScriptCall<'a>,
    channel: impl Fn(&ScriptCall<'a>) -> Result<&'a [u8], Refusal>,
) -> Result<bool, Refusal> {
    let name = call.key(1)?;
    let Some(held) = call.own(section, name, 1)? else {
        return Ok(false);
    };
    let channel = channel(call)?;
    channels::check_published(channel)?;
    section.check_channel(channel)?;
    let is_released = section.release(name, &held).is_some();
    if is_released {
        section.publish(channel, call.key_bytes(1)?);
    }
    Ok(is_released)
}

fn remove_and_tell(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<bool, Refusal> {
    let name = call.key(1)?;
    if !section.exists(name)? {
        return Ok(false);
    }
    let channel = call.arg(1)?;
    channels::check_published(channel)?;
    section.check_channel(channel)?;
    let is_removed = section.remove(name)?;
    if is_removed {
        section.publish(channel, call.key_bytes(1)?);
    }
    Ok(is_removed)
}

/// Sets the end of the caller's lock. `ms` is read for that one only.
fn expire(
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    ms: impl FnOnce() -> Result<i64, Refusal>,
) -> Result<bool, Refusal> {
    let name = call.key(1)?;
    match call.own(section, name, 1)? {
        Some(held) => set_end(section, name, &held, ms()?),
        None => Ok(false),
    }
}

fn expire_limited(
    script: Owned,
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
) -> Result<bool, Refusal> {
    let name = call.key(1)?;
    let Some(held) = call.own(section, name, 1)? else {
        return Ok(false);
    };
    if held.until == Tick::NEVER {
        return Ok(false);
    }
    let is_later =
        script == Owned::ExpireLater || script == Owned::ExpireLaterOrSet && call.arg_is(3, b"0");
    let ms = if is_later {
        let kind = if call.args.len() < 2 { "nil" } else { "string" };
        let more_ms = call.lua_number(2).ok_or_else(|| {
            let field = format!("attempt to perform arithmetic on field '?' (a {kind} value)");
            lua_error(&field)
        })?;
        integer_of(section.pttl(name)? as f64 + more_ms)?
    } else {
        call.pexpire_ms(2)?
    };
    set_end(section, name, &held, ms)
}

fn expire_or_persist(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<bool, Refusal> {
    let name = call.key(1)?;
    let Some(held) = call.own(section, name, 1)? else {
        return Ok(false);
    };
    let number = call.lua_number(2);
    let number = number.ok_or_else(|| lua_error("attempt to compare number with nil"))?;
    if number > 0.0 {
        let ms = call.expire_ms(2)?;
        set_end(section, name, &held, ms)
    } else {
        section.renew(name, &held, Expiry::Never)
    }
}

/// The value is the same, so this is a renewal: the fence stays.
pub(super) fn set_again(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<bool, Refusal> {
    let name = call.key(1)?;
    match call.own(section, name, 1)? {
        Some(held) => section.renew(name, &held, call.set_ms(2)?),
        None => Ok(false),
    }
}

/// The milliseconds that the caller's lock has left, -1 without an end. `None`: it is not the
/// caller's.
fn time_left(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<Option<i64>, Refusal> {
    let name = call.key(1)?;
    let held = call.own(section, name, 1)?;
    held.map(|_| section.pttl(name)).transpose()
}
