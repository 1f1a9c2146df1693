//! Commands on locks that look like strings: SETNX, GET, DEL and their relatives.

use super::{Call, is};
use crate::redis::refusal::Refusal;
use crate::redis::script;
use crate::redis::section::{Entry, Expiry};
use crate::redis::times::{Unit, expiry_of};
use crate::session::redis_form::Value;
use protocol::resp::Writer;

pub(super) fn setnx(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let value = Value::Text(call.args[2]);
    let added = call.section.add(call.name(), &value, Expiry::Never)?;
    call.note_endless(added.as_ref());
    out.integer(i64::from(added.is_some()));
    Ok(())
}

pub(super) fn setex(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    set_for(call, Unit::Seconds, "setex", out)
}

pub(super) fn psetex(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    set_for(call, Unit::Milliseconds, "psetex", out)
}

fn set_for(
    call: &mut Call<'_, '_>,
    unit: Unit,
    command: &'static str,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let expiry = expiry_of(call.args[2], unit, command)?;
    let value = Value::Text(call.args[3]);
    call.section.overwrite(call.name(), &value, expiry)?;
    out.simple("OK");
    Ok(())
}

pub(super) fn get(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    match call.section.value(call.name())? {
        Some(value) => out.bulk(&value),
        None => match script::fenced_token(call.section, call.name()) {
            Some(token) => out.bulk(token.to_string().as_bytes()),
            None => out.null(),
        },
    }
    Ok(())
}

pub(super) fn mget(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    out.array(call.names.len());
    for name in call.names {
        match call.section.value(name) {
            Ok(Some(value)) => out.bulk(&value),
            Ok(None) | Err(_) => out.null(),
        }
    }
    Ok(())
}

pub(super) fn exists(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let mut count = 0;
    for name in call.names {
        count += i64::from(call.section.exists(name)?);
    }
    out.integer(count);
    Ok(())
}

pub(super) fn del(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let mut count = 0;
    for name in call.names {
        count += i64::from(call.section.remove(name)?);
    }
    out.integer(count);
    Ok(())
}

/// `DELEX key [IFEQ value | IFNE value]`.
pub(super) fn delex(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    match call.args[2..] {
        [] => del(call, out),
        [condition, value] if is(condition, "IFEQ") => delete_if_equal(call, value, out),
        [condition, value] if is(condition, "IFNE") => {
            let name = call.name();
            let differs = match call.section.look(name)? {
                Entry::Absent => false,
                Entry::Text(held) => *held.value != *value,
                Entry::Foreign(_) => true,
                Entry::Hash(_) | Entry::List | Entry::Set => return Err(Refusal::WrongType),
            };
            let removed = differs && call.section.remove(name)?;
            out.integer(i64::from(removed));
            Ok(())
        }
        [_, _] => Err(Refusal::Syntax),
        _ => Err(super::wrong_arity("delex")),
    }
}

pub(super) fn delifeq(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    delete_if_equal(call, call.args[2], out)
}

fn delete_if_equal(
    call: &mut Call<'_, '_>,
    value: &[u8],
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let name = call.name();
    let released = match call.section.own(name, value)? {
        Some(held) => call.section.release(name, &held).is_some(),
        None => false,
    };
    out.integer(i64::from(released));
    Ok(())
}

pub(super) fn type_of(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    out.simple(match call.section.look(call.name())? {
        Entry::Absent => "none",
        Entry::Text(_) | Entry::Foreign(_) => "string",
        Entry::Hash(_) => "hash",
        Entry::List => "list",
        Entry::Set => "set",
    });
    Ok(())
}
