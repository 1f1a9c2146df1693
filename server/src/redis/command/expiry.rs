//! `TTL`, `EXPIRE` and their relatives: reading and setting when a key ends.

use super::{Call, is};
use crate::redis::refusal::Refusal;
use crate::redis::section::{Entry, Expiry};
use crate::redis::times::{Unit, time_of};
use crate::storage::unix_now_ms;
use engine::Tick;
use protocol::resp::Writer;

pub(super) fn pttl(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    out.integer(call.section.pttl(call.name())?);
    Ok(())
}

pub(super) fn ttl(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    out.integer(match call.section.pttl(call.name())? {
        left_ms @ 0.. => left_ms.saturating_add(500) / 1_000,
        none => none,
    });
    Ok(())
}

pub(super) fn expiretime(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    out.integer(match call.section.pttl(call.name())? {
        left_ms @ 0.. => left_ms.saturating_add(unix_now_ms() as i64 + 500) / 1_000,
        none => none,
    });
    Ok(())
}

pub(super) fn pexpiretime(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    out.integer(match call.section.pttl(call.name())? {
        left_ms @ 0.. => left_ms.saturating_add(unix_now_ms() as i64),
        none => none,
    });
    Ok(())
}

pub(super) fn expire(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    set_expiry(call, Unit::Seconds, "expire", out)
}

pub(super) fn pexpire(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    set_expiry(call, Unit::Milliseconds, "pexpire", out)
}

pub(super) fn expireat(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    set_expiry(call, Unit::UnixSeconds, "expireat", out)
}

pub(super) fn pexpireat(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    set_expiry(call, Unit::UnixMilliseconds, "pexpireat", out)
}

/// The conditions under which `EXPIRE` sets a time.
#[derive(Default)]
struct Conditions {
    only_without: bool,
    only_with: bool,
    only_later: bool,
    only_earlier: bool,
}

impl Conditions {
    fn parse(args: &[&[u8]]) -> Result<Self, Refusal> {
        let mut conditions = Conditions::default();
        for option in args {
            if is(option, "NX") {
                conditions.only_without = true;
            } else if is(option, "XX") {
                conditions.only_with = true;
            } else if is(option, "GT") {
                conditions.only_later = true;
            } else if is(option, "LT") {
                conditions.only_earlier = true;
            } else {
                let shown =
                    String::from_utf8_lossy(&option[..option.len().min(super::SHOWN_BYTES_MAX)]);
                return Err(Refusal::text(format!("ERR Unsupported option {shown}")));
            }
        }
        let has_other = conditions.only_with || conditions.only_later || conditions.only_earlier;
        if conditions.only_without && has_other {
            return Err(Refusal::text(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if conditions.only_later && conditions.only_earlier {
            return Err(Refusal::text(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(conditions)
    }

    /// Whether a key that has `left_ms` left (-1: no end) may be given `ms`.
    fn allow(&self, left_ms: i64, ms: i64) -> bool {
        let left = if left_ms < 0 { i64::MAX } else { left_ms };
        !(self.only_without && left_ms >= 0
            || self.only_with && left_ms < 0
            || self.only_later && ms <= left
            || self.only_earlier && ms >= left)
    }
}

/// By how much the time that a lock has left may be rounded up.
const ROUNDED_MS: i64 = 1;

/// Asks whether the sender may give a lock an earlier end, or none, though it shows no owner token.
/// One without an end may be given one on the connection that took it: so libraries do that send
/// `SETNX` and then `EXPIRE`.
fn move_end(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let name = call.name();
    let (Entry::Text(held) | Entry::Hash(held)) = call.section.look(name)? else {
        return Ok(());
    };
    let is_own = call.client.endless.as_ref().is_some_and(|(own, fence)| {
        own.bytes() == name.bytes() && *fence == held.fence && held.until == Tick::NEVER
    });
    match is_own {
        true => Ok(()),
        false => call.section.force_end(name, held.fence),
    }
}

fn set_expiry(
    call: &mut Call<'_, '_>,
    unit: Unit,
    command: &'static str,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let conditions = Conditions::parse(&call.args[3..])?;
    let ms = time_of(call.args[2], unit, command)?;
    let name = call.name();
    let left_ms = call.section.pttl(name)?;
    let is_set = if left_ms == -2 || !conditions.allow(left_ms, ms) {
        false
    } else if ms <= 0 {
        call.section.remove(name)?
    } else {
        // Without the owner token a lock is given more time by every client that may lock, since
        // libraries renew that way, and less only by one that may take it away.
        if left_ms < 0 || ms.saturating_add(ROUNDED_MS) < left_ms {
            move_end(call)?;
        }
        call.section.expire(name, Expiry::Ms(ms as u64))?
    };
    out.integer(i64::from(is_set));
    Ok(())
}

pub(super) fn persist(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let name = call.name();
    let has_end = match call.section.look(name)? {
        Entry::Text(held) | Entry::Hash(held) => held.until != Tick::NEVER,
        Entry::List | Entry::Set => call.section.pttl(name)? >= 0,
        Entry::Absent | Entry::Foreign(_) => false,
    };
    if has_end {
        move_end(call)?;
    }
    let is_set = has_end && call.section.expire(name, Expiry::Never)?;
    out.integer(i64::from(is_set));
    Ok(())
}
