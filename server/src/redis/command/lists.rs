//! Signal lists: `LPUSH` leaves an element, `BLPOP` waits for one. Waiters are served in order of
//! arrival.

use super::Call;
use crate::redis::client::Blocked;
use crate::redis::name::{self, Name};
use crate::redis::refusal::Refusal;
use crate::redis::section::{Entry, Section};
use crate::session::ConnectionId;
use protocol::resp::Writer;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// How many lists one command may wait for. It stands in the queue of each.
const WAITED_FOR_MAX: usize = 64;

/// The longest wait, in seconds: about thirty years.
const WAIT_SECONDS_MAX: f64 = 1e9;

pub(super) fn lpush(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let length = call.section.push(call.name(), &call.args[2..])?;
    out.integer(length as i64);
    Ok(())
}

/// Makes a key that is neither a lock nor a signal list. Libraries' own tests try their locks
/// against one.
pub(super) fn sadd(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let added = call.section.add_members(call.name(), &call.args[2..])?;
    out.integer(added as i64);
    Ok(())
}

pub(super) fn llen(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let (name, now) = (call.name(), call.section.now);
    let length = match call.section.look(name)? {
        Entry::Absent => 0,
        Entry::List => call.section.signals(name)?.len(name.bytes(), now),
        Entry::Text(_) | Entry::Hash(_) | Entry::Set | Entry::Foreign(_) => {
            return Err(Refusal::WrongType);
        }
    };
    out.integer(length as i64);
    Ok(())
}

pub(super) fn blpop(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let timeout = timeout(call.args[call.args.len() - 1])?;
    if call.names.len() > WAITED_FOR_MAX {
        return Err(Refusal::text(format!(
            "ERR a command waits for at most {WAITED_FOR_MAX} lists here"
        )));
    }
    for name in call.names {
        if !matches!(call.section.look(name)?, Entry::Absent | Entry::List) {
            return Err(Refusal::WrongType);
        }
        let is_behind = {
            let signals = call.section.signals(name)?;
            signals.is_behind(name.bytes(), call.connection.id)
        };
        // A command inside a transaction never waits, so it goes past the queue.
        if (!is_behind || !call.may_block) && pop(call.section, name, out)? {
            return Ok(());
        }
    }
    if !call.may_block {
        out.null_array();
        return Ok(());
    }
    let counted = match (call.section.bounds, call.names.first()) {
        (Some(bounds), Some(first)) => Some(bounds.reserve_wait(first.bytes())),
        _ => None,
    };
    let counted = counted.transpose().map_err(Refusal::Quota)?;
    for name in call.names {
        let signals = call.section.signals(name)?;
        signals.wait(name.bytes(), call.connection.id);
    }
    let waiting = &call.section.space.list_waiters;
    waiting.fetch_add(1, Ordering::Relaxed);
    call.client.blocked = Some(Blocked::Lists {
        names: call
            .names
            .iter()
            .map(|name| name.clone().into_owned())
            .collect(),
        _counted: counted,
        until: timeout.map(|timeout| Instant::now() + timeout),
    });
    Ok(())
}

/// `None`: for ever.
fn timeout(text: &[u8]) -> Result<Option<Duration>, Refusal> {
    let seconds = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<f64>().ok());
    match seconds {
        Some(seconds) if seconds < 0.0 => Err(Refusal::text("ERR timeout is negative")),
        Some(0.0) => Ok(None),
        Some(seconds) if seconds <= WAIT_SECONDS_MAX => Ok(Some(Duration::from_secs_f64(seconds))),
        _ => Err(Refusal::text("ERR timeout is not a float or out of range")),
    }
}

/// Takes the first element of a list and writes `BLPOP`'s answer. `false`: there is none.
fn pop(section: &mut Section<'_>, name: &Name<'_>, out: &mut Writer<'_>) -> Result<bool, Refusal> {
    let now = section.now;
    let Some(element) = section.signals(name)?.pop(name.bytes(), now) else {
        return Ok(false);
    };
    out.array(2);
    out.bulk(name::split(name.bytes()).1);
    out.bulk(&element);
    Ok(true)
}

/// Takes an element of one of the lists that a connection waits for, if it is the connection's
/// turn. `true`: the wait is answered and over.
pub(crate) fn retry_pop(
    section: &mut Section<'_>,
    names: &[Name<'static>],
    connection: ConnectionId,
    out: &mut Writer<'_>,
) -> Result<bool, Refusal> {
    for name in names {
        let is_behind = section.signals(name)?.is_behind(name.bytes(), connection);
        if !is_behind && pop(section, name, out)? {
            give_up_waiting(section, names, connection)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Leaves the queues of all lists, once for each command that waits. Wakes the next waiter of each
/// list that has an element.
pub(crate) fn give_up_waiting(
    section: &mut Section<'_>,
    names: &[Name<'static>],
    connection: ConnectionId,
) -> Result<(), Refusal> {
    section.space.list_waiters.fetch_sub(1, Ordering::Relaxed);
    let now = section.now;
    for name in names {
        section.signals(name)?.leave(name.bytes(), connection);
        if section.signals(name)?.exists(name.bytes(), now) {
            section.wake_first(name)?;
        }
    }
    Ok(())
}
