//! Scripts that take one key if it is free. Some of them also keep one that is the caller's.

use super::call::{ScriptCall, set_end, write_bool};
use super::owned::{ERROR, set_again};
use super::prefix::Prefix;
use crate::redis::name::Name;
use crate::redis::refusal::Refusal;
use crate::redis::section::{Entry, Expiry, Held, Section};
use crate::session::redis_form::Value;
use protocol::resp::Writer;

/// How a key is taken, and the answer. `KEYS[1]` is the lock, `ARGV[1]` the token and `ARGV[2]` a
/// time in milliseconds, unless another meaning is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claimed {
    /// If it is free: OK or nil.
    New,
    /// If it is free; without an end if `ARGV[2]` is empty: 1 or 0.
    NewOrEndless,
    /// If it is free, for seconds: OK or nil.
    NewSeconds,
    /// If it is free or the caller's: OK or nil.
    NewOrOwn,
    /// As `NewOrOwn`: OK or an error.
    NewOrOwnError,
    /// If it is free and `ARGV[3]` is "yes", or if it is the caller's: OK or nil.
    OwnOrNewIfYes,
    /// As `NewOrOwn`, and a time of zero or less releases the caller's lock: true or false.
    NewOrRenew,
    /// As `NewOrRenew`, in the other order: 1 or 0.
    RenewOrNew,
    /// If it is free, or if the first `ARGV[2]` bytes of its value are those of `ARGV[1]`; for
    /// `ARGV[3]` milliseconds: OK or nil.
    NewOrSamePrefix,
}

pub(super) fn run(
    script: Claimed,
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    match script {
        Claimed::New => write_ok(add(section, call, || call.set_ms(2))?, out),
        Claimed::NewSeconds => write_ok(new_for_seconds(section, call)?, out),
        Claimed::NewOrEndless => out.integer(i64::from(new_or_endless(section, call)?)),
        Claimed::NewOrOwn => write_ok(new_or_own(section, call, true)?, out),
        Claimed::OwnOrNewIfYes => {
            write_ok(new_or_own(section, call, call.arg_is(3, b"yes"))?, out);
        }
        Claimed::NewOrOwnError => match new_or_own(section, call, true)? {
            true => out.simple("OK"),
            false => out.error(ERROR),
        },
        Claimed::NewOrRenew => write_bool(new_or_renew(section, call)?, out),
        Claimed::RenewOrNew => out.integer(i64::from(renew_or_new(section, call)?)),
        Claimed::NewOrSamePrefix => write_ok(new_or_same_prefix(section, call)?, out),
    }
    Ok(())
}

fn write_ok(done: bool, out: &mut Writer<'_>) {
    match done {
        true => out.simple("OK"),
        false => out.null(),
    }
}

/// Takes the key if it is free. The time is read last, as in Redis.
fn add(
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    expiry: impl FnOnce() -> Result<Expiry, Refusal>,
) -> Result<bool, Refusal> {
    let (name, value) = (call.key(1)?, Value::Text(call.arg(1)?));
    let grant = section.add(name, &value, expiry()?)?;
    Ok(grant.is_some())
}

fn new_for_seconds(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<bool, Refusal> {
    let is_free = !section.exists(call.key(1)?)?;
    Ok(is_free && add(section, call, || call.setex_seconds(2))?)
}

fn new_or_endless(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<bool, Refusal> {
    call.arg(1)?;
    if section.exists(call.key(1)?)? {
        return Ok(false);
    }
    if call.arg_is(2, b"") {
        return add(section, call, || Ok(Expiry::Never));
    }
    match call.pexpire_ms(2)? {
        ms @ 1.. => add(section, call, || Ok(Expiry::Ms(ms as u64))),
        // Taken and ended in one step.
        _ => Ok(true),
    }
}

fn new_or_own(
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    may_be_new: bool,
) -> Result<bool, Refusal> {
    if may_be_new && !section.exists(call.key(1)?)? {
        return add(section, call, || call.set_ms(2));
    }
    set_again(section, call)
}

fn new_or_renew(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<bool, Refusal> {
    let name = call.key(1)?;
    match call.own(section, name, 1)? {
        Some(held) => set_end(section, name, &held, call.pexpire_ms(2)?),
        None => Ok(!section.exists(name)? && add(section, call, || call.set_ms(2))?),
    }
}

fn renew_or_new(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<bool, Refusal> {
    let name = call.key(1)?;
    match call.own(section, name, 1)? {
        Some(held) => set_end(section, name, &held, call.pexpire_ms(2)?),
        // An invalid time is refused even if another owner has the lock.
        None => add(section, call, || call.set_ms(2)),
    }
}

fn new_or_same_prefix(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<bool, Refusal> {
    let (name, value) = (call.key(1)?, call.arg(1)?);
    let expiry = call.set_ms(3)?;
    if add(section, call, || Ok(expiry))? {
        return Ok(true);
    }
    let prefix = Prefix::of(call)?;
    match section.look(name)? {
        Entry::Text(held) if prefix.is_same(&held.value, value) => {
            set_value(section, name, &held, value, expiry)
        }
        Entry::Text(_) | Entry::Foreign(_) | Entry::Absent => Ok(false),
        Entry::Hash(_) | Entry::List | Entry::Set => Err(Refusal::WrongType),
    }
}

/// Gives the caller's lock a value and an end. With the value that it has, this is a renewal. With
/// another one it is a takeover from itself, under a new fence. `false`: it had ended.
pub(super) fn set_value(
    section: &mut Section<'_>,
    name: &Name<'_>,
    held: &Held,
    value: &[u8],
    expiry: Expiry,
) -> Result<bool, Refusal> {
    if *held.value == *value {
        return section.renew(name, held, expiry);
    }
    let grant = section.put(name, &Value::Text(value), expiry, Some(held.fence))?;
    Ok(grant.is_some())
}
