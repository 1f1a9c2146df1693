//! `SET` and its options, in any order.

use super::{Call, is};
use crate::redis::refusal::Refusal;
use crate::redis::section::{Entry, Expiry, Held};
use crate::redis::times::{Unit, expiry_of};
use crate::session::redis_form::Value;
use protocol::resp::Writer;

/// The condition under which the key is set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition<'a> {
    Always,
    IfAbsent,
    IfPresent,
    IfEqual(&'a [u8]),
    IfDifferent(&'a [u8]),
}

/// The key's time to live.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Time<'a> {
    Forever,
    Keep,
    For(&'a [u8], Unit),
}

struct Options<'a> {
    condition: Condition<'a>,
    time: Time<'a>,
    wants_old: bool,
}

impl<'a> Options<'a> {
    fn parse(args: &[&'a [u8]]) -> Result<Self, Refusal> {
        let mut options = Options {
            condition: Condition::Always,
            time: Time::Forever,
            wants_old: false,
        };
        let mut args = args.iter().copied();
        while let Some(option) = args.next() {
            if is(option, "GET") {
                options.wants_old = true;
                continue;
            }
            let mut value = || args.next().ok_or(Refusal::Syntax);
            let condition = if is(option, "NX") {
                Some(Condition::IfAbsent)
            } else if is(option, "XX") {
                Some(Condition::IfPresent)
            } else if is(option, "IFEQ") {
                Some(Condition::IfEqual(value()?))
            } else if is(option, "IFNE") {
                Some(Condition::IfDifferent(value()?))
            } else {
                None
            };
            if let Some(condition) = condition {
                // The same one twice is fine. Two different ones contradict each other.
                if options.condition != Condition::Always && options.condition != condition {
                    return Err(Refusal::Syntax);
                }
                options.condition = condition;
                continue;
            }
            let time = if is(option, "KEEPTTL") {
                Time::Keep
            } else if is(option, "EX") {
                Time::For(value()?, Unit::Seconds)
            } else if is(option, "PX") {
                Time::For(value()?, Unit::Milliseconds)
            } else if is(option, "EXAT") {
                Time::For(value()?, Unit::UnixSeconds)
            } else if is(option, "PXAT") {
                Time::For(value()?, Unit::UnixMilliseconds)
            } else {
                return Err(Refusal::Syntax);
            };
            // Of two in the same unit the last one counts, as in Redis.
            let agrees = match (options.time, time) {
                (Time::Forever, _) | (Time::Keep, Time::Keep) => true,
                (Time::For(_, unit), Time::For(_, again)) => unit == again,
                _ => false,
            };
            if !agrees {
                return Err(Refusal::Syntax);
            }
            options.time = time;
        }
        Ok(options)
    }
}

/// Whether a `SET` with these arguments answers with the value that was there.
pub(crate) fn wants_old(args: &[&[u8]]) -> bool {
    let options = args.get(3..).map(Options::parse);
    matches!(options, Some(Ok(options)) if options.wants_old)
}

pub(super) fn set(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let options = Options::parse(&call.args[3..])?;
    let name = call.name();
    let value = Value::Text(call.args[2]);
    let expiry = match options.time {
        Time::Forever => Expiry::Never,
        // Replaced below, once it is known what is there.
        Time::Keep => Expiry::Never,
        Time::For(number, unit) => expiry_of(number, unit, "set")?,
    };
    // The command that nearly every lock library sends.
    if options.condition == Condition::IfAbsent && !options.wants_old {
        match call.section.add(name, &value, expiry)? {
            Some(grant) => {
                if expiry == Expiry::Never {
                    call.note_endless(Some(&grant));
                }
                end_if_past(call, expiry)?;
                out.simple("OK");
            }
            None => out.null(),
        }
        return Ok(());
    }
    let entry = call.section.look(name)?;
    let old = match (options.wants_old, &entry) {
        (true, Entry::Hash(_) | Entry::List | Entry::Set) => return Err(Refusal::WrongType),
        (true, _) => call.section.value(name)?,
        (false, _) => None,
    };
    let expiry = match options.time {
        Time::Keep => kept(call)?,
        _ => expiry,
    };
    let is_set = match (options.condition, entry) {
        (Condition::Always, _) => {
            call.section.overwrite(name, &value, expiry)?;
            true
        }
        (Condition::IfAbsent, _) => call.section.add(name, &value, expiry)?.is_some(),
        (Condition::IfPresent, Entry::Absent) => false,
        (Condition::IfPresent, _) => {
            call.section.overwrite(name, &value, expiry)?;
            true
        }
        (
            Condition::IfEqual(_) | Condition::IfDifferent(_),
            Entry::Hash(_) | Entry::List | Entry::Set,
        ) => {
            return Err(Refusal::WrongType);
        }
        (Condition::IfEqual(expected), Entry::Text(held)) if *held.value == *expected => {
            set_own(call, &held, &value, expiry)?
        }
        (Condition::IfEqual(_), _) => false,
        (Condition::IfDifferent(other), Entry::Text(held)) if *held.value == *other => false,
        (Condition::IfDifferent(_), _) => {
            call.section.overwrite(name, &value, expiry)?;
            true
        }
    };
    if is_set {
        end_if_past(call, expiry)?;
    }
    match (options.wants_old, is_set) {
        (true, _) => match old {
            Some(old) => out.bulk(&old),
            None => out.null(),
        },
        (false, true) => out.simple("OK"),
        (false, false) => out.null(),
    }
    Ok(())
}

/// Sets a lock for a caller that has shown its token. Setting the same value is a renewal and keeps
/// the fence.
fn set_own(
    call: &mut Call<'_, '_>,
    held: &Held,
    value: &Value<'_>,
    expiry: Expiry,
) -> Result<bool, Refusal> {
    let name = call.name();
    if value.token() == Some(&*held.value) {
        return call.section.renew(name, held, expiry);
    }
    let grant = call.section.put(name, value, expiry, Some(held.fence))?;
    Ok(grant.is_some())
}

/// Ends a key again whose Unix time had passed when it was set. No other command sees it.
fn end_if_past(call: &mut Call<'_, '_>, expiry: Expiry) -> Result<(), Refusal> {
    if expiry == Expiry::Ms(0)
        && let Some(held) = call.section.own(call.name(), call.args[2])?
    {
        call.section.release(call.name(), &held);
    }
    Ok(())
}

/// The time to live of what is there, for `KEEPTTL`.
fn kept(call: &mut Call<'_, '_>) -> Result<Expiry, Refusal> {
    Ok(match call.section.pttl(call.name())? {
        left_ms @ 0.. => Expiry::Ms(left_ms.max(1) as u64),
        _ => Expiry::Never,
    })
}
