//! Our own commands: fences and fair waiting, for any Redis driver.

use super::{Call, integer, is};
use crate::redis::client::Blocked;
use crate::redis::refusal::Refusal;
use crate::redis::section::{Expiry, Section};
use crate::redis::voice::{fence_number, left_ms, write_grant};
use crate::session::redis_form::{VALUE_BYTES_MAX, Value};
use crate::session::waiter::Waiter;
use engine::{Acquire, Fence, Holder, KeyState, Mode, Outcome, WAIT_MS_MAX};
use protocol::resp::Writer;

/// `LOCK.ACQUIRE key owner ttl_ms [WAIT ms] [SHARED] [META s]`.
struct Request<'a> {
    owner: &'a [u8],
    expiry: Expiry,
    wait_ms: u64,
    mode: Mode,
    meta: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    fn parse(args: &[&'a [u8]]) -> Result<Self, Refusal> {
        let mut request = Request {
            owner: args[2],
            expiry: ttl(args[3], "lock.acquire")?,
            wait_ms: 0,
            mode: Mode::Exclusive,
            meta: None,
        };
        let mut options = args[4..].iter().copied();
        while let Some(option) = options.next() {
            let mut value = || options.next().ok_or(Refusal::Syntax);
            if is(option, "SHARED") {
                request.mode = Mode::Shared;
            } else if is(option, "META") {
                request.meta = Some(value()?);
            } else if is(option, "WAIT") {
                let wait_ms = integer(value()?)?;
                request.wait_ms = u64::try_from(wait_ms)
                    .ok()
                    .filter(|wait_ms| *wait_ms <= WAIT_MS_MAX)
                    .ok_or_else(|| {
                        Refusal::text(format!("ERR WAIT takes 0 to {WAIT_MS_MAX} milliseconds"))
                    })?;
            } else {
                return Err(Refusal::Syntax);
            }
        }
        Ok(request)
    }

    fn value(&self) -> Value<'a> {
        match self.meta {
            None => Value::Text(self.owner),
            Some(meta) => Value::Described {
                owner: self.owner,
                meta,
            },
        }
    }
}

fn ttl(text: &[u8], command: &'static str) -> Result<Expiry, Refusal> {
    match integer(text)? {
        ms @ 1.. => Ok(Expiry::Ms(ms as u64)),
        _ => Err(Refusal::InvalidExpire {
            command: command.into(),
        }),
    }
}

pub(super) fn acquire(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let request = Request::parse(call.args)?;
    let name = call.name();
    let grant = call
        .section
        .add_as(request.mode, name, &request.value(), request.expiry)?;
    match grant {
        Some(grant) => write_grant(&grant, call.section.now, out),
        None if request.wait_ms > 0 && call.may_block => return wait(call, &request, out),
        None => out.null_array(),
    }
    Ok(())
}

/// Queues for the lock. The answer comes by mail, and the connection answers nothing else before
/// it.
fn wait(
    call: &mut Call<'_, '_>,
    request: &Request<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let name = call.name();
    let now = call.section.now;
    let value = request.value();
    if value.bytes() > VALUE_BYTES_MAX {
        return Err(Refusal::ValueLength(value.bytes()));
    }
    let mut buffer = Vec::new();
    let metadata = value.encode(&mut buffer);
    let span = call.section.span(request.expiry)?;
    let acquire = Acquire {
        key: name.key(),
        mode: request.mode,
        span,
        reentrant: false,
        metadata,
        asks_who: false,
        waited_ms: 0,
    };
    call.client.last_wait += 1;
    let request_id = call.client.last_wait;
    let (connection, session) = (call.connection.id, call.section.space.session.id);
    let waiter = || Waiter {
        connection,
        session,
        request_id,
        is_repeat: false,
        key: name.bytes().into(),
        mode: request.mode,
        span,
        note: metadata.into(),
        trace_id: None,
        asked: now,
    };
    let (outcome, reserved) = call.section.wait(&acquire, request.wait_ms, waiter)?;
    match outcome {
        // It was released a moment ago.
        Outcome::Granted(grant) => write_grant(&grant, now, out),
        Outcome::Queued { ticket, .. } => {
            call.connection.start_wait(request_id, ticket);
            if let Some(reserved) = reserved {
                call.connection.reserve(request_id, reserved);
            }
            call.client.blocked = Some(Blocked::Lock);
        }
        _ => out.null_array(),
    }
    Ok(())
}

/// The fence under which `owner` holds a key through this port. With `fence`, only that one counts.
fn hold_of(
    section: &Section<'_>,
    state: Option<&KeyState>,
    owner: &[u8],
    fence: Option<i64>,
) -> Option<Fence> {
    let holders = state.map_or(&[][..], |state| &state.holders);
    let is_asked_for = |holder: &&Holder| {
        holder.owner == Some(section.space.session.id)
            && Value::decode(&holder.metadata).token() == Some(owner)
            && fence.is_none_or(|fence| fence == fence_number(holder.fence))
    };
    holders.iter().find(is_asked_for).map(|holder| holder.fence)
}

/// `LOCK.RENEW key owner ttl_ms`: `[fence, ttl_ms]`, or nil if `owner` does not hold it.
pub(super) fn renew(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let expiry = ttl(call.args[3], "lock.renew")?;
    let name = call.name();
    let state = call.section.state(name);
    let Some(fence) = hold_of(call.section, state.as_ref(), call.args[2], None) else {
        out.null_array();
        return Ok(());
    };
    match call.section.renew_under(name, fence, expiry)? {
        Some(until) => {
            out.array(2);
            out.integer(fence_number(fence));
            out.integer(left_ms(until, call.section.now));
        }
        None => out.null_array(),
    }
    Ok(())
}

/// `LOCK.RELEASE key owner [FENCE n]`: 1, or 0 if `owner` does not hold it.
pub(super) fn release(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let fence = match call.args[3..] {
        [] => None,
        [word, fence] if is(word, "FENCE") => Some(integer(fence)?),
        _ => return Err(Refusal::Syntax),
    };
    let name = call.name();
    let state = call.section.state(name);
    let hold = hold_of(call.section, state.as_ref(), call.args[2], fence);
    let released = hold.and_then(|fence| call.section.give_back(name, fence));
    if hold.is_none() {
        call.section.core().metrics().release_by_non_owner.bump();
    }
    out.integer(i64::from(released.is_some()));
    Ok(())
}

/// `LOCK.FENCE key`: the fence under which it is held now, the highest of several holders; nil if
/// it is free.
pub(super) fn fence(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let state = call.section.state(call.name());
    let holders = state.iter().flat_map(|state| &state.holders);
    match holders.map(|holder| holder.fence).max() {
        Some(fence) => out.integer(fence_number(fence)),
        None => out.null(),
    }
    Ok(())
}

/// `LOCK.INFO key`: its fence, waiters and holders; nil if it has neither holders nor waiters.
pub(super) fn info(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let state = call.section.state(call.name());
    match state.filter(|state| !state.holders.is_empty() || state.queue_length > 0) {
        Some(state) => write_state(call.section, &state, out),
        None => out.null_array(),
    }
    Ok(())
}

/// Writes a key's state as a map.
pub(super) fn write_state(section: &Section<'_>, state: &KeyState, out: &mut Writer<'_>) {
    out.map(3);
    out.bulk(b"fence");
    out.integer(fence_number(state.fence));
    out.bulk(b"waiters");
    out.integer(i64::from(state.queue_length));
    out.bulk(b"holders");
    out.array(state.holders.len());
    for holder in &state.holders {
        write_holder(section, holder, out);
    }
}

fn write_holder(section: &Section<'_>, holder: &Holder, out: &mut Writer<'_>) {
    let mut meta: &[u8] = &[];
    let owner = match Value::decode(&holder.metadata) {
        _ if holder.owner != Some(section.space.session.id) => {
            meta = &holder.metadata;
            section.foreign_value(holder)
        }
        Value::Text(owner) | Value::Hash(owner) => owner.into(),
        Value::Described { owner, meta: own } => {
            meta = own;
            owner.into()
        }
    };
    out.map(7);
    out.bulk(b"owner");
    out.bulk(&owner);
    out.bulk(b"fence");
    out.integer(fence_number(holder.fence));
    out.bulk(b"mode");
    out.bulk(holder.mode.name().as_bytes());
    out.bulk(b"ttl_ms");
    out.integer(left_ms(holder.until, section.now));
    out.bulk(b"held_ms");
    out.integer(i64::try_from(holder.held_ms).unwrap_or(i64::MAX));
    out.bulk(b"count");
    out.integer(i64::from(holder.count));
    out.bulk(b"meta");
    out.bulk(meta);
}

/// `LOCK.FORCE key`: takes the lock away from all its holders. Answers how many there were.
pub(super) fn force(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let name = call.name();
    let state = call.section.state(name);
    let holders = state.iter().flat_map(|state| &state.holders);
    let fences: Vec<Fence> = holders.map(|holder| holder.fence).collect();
    let mut taken = 0;
    if !fences.is_empty() {
        call.section.force()?;
        for fence in fences {
            taken += i64::from(call.section.take_away(name, &[fence]));
        }
    }
    out.integer(taken);
    Ok(())
}
