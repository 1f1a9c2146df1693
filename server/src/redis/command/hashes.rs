//! What Redisson reads of its lock, which is a hash to it: the holder, and how often it holds the
//! lock.

use super::Call;
use crate::redis::refusal::Refusal;
use protocol::resp::Writer;

pub(super) fn hget(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    match call.section.own_hash(call.name(), call.args[2])? {
        Some(held) => out.bulk(held.count.to_string().as_bytes()),
        None => out.null(),
    }
    Ok(())
}

pub(super) fn hexists(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let held = call.section.own_hash(call.name(), call.args[2])?;
    out.integer(i64::from(held.is_some()));
    Ok(())
}
