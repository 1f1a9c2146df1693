//! python-redis-lock: the lock `KEYS[1]` has a signal list, `KEYS[2]`. The releaser leaves one
//! element there, and one waiter takes it and tries again.

use super::call::{ScriptCall, pexpire_ms, seconds, set_end};
use crate::redis::name::{self, Name};
use crate::redis::refusal::Refusal;
use crate::redis::section::{Entry, Expiry, Keyspace, Section};
use engine::Cursor;
use protocol::resp::Writer;

/// The prefixes of this library's locks and lists.
const LOCK: &[u8] = b"lock:";
const SIGNAL: &[u8] = b"lock-signal:";

/// Up to so many locks are reset at once.
const LOCKS_MAX: usize = 100_000;

/// How many keys of the table are listed in one step.
const STEP: usize = 4_096;

/// How long a signal lasts in the versions that do not let the caller choose.
const SIGNAL_MS: u64 = 1_000;

/// What is done with lock and list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signalled {
    /// Delete the lock if its value is `ARGV[1]`, and add a signal to the list: 1 or 0.
    ReleaseAndAdd,
    /// As `ReleaseAndAdd`, and the list has one signal at most: 1 or 0.
    Release,
    /// As `Release`: 0 if the lock was released and 1 if not.
    Unlock(Lasting),
    /// Delete the lock without comparing, and signal: 1, or 0 if it was free.
    Reset(Lasting),
    /// Reset all locks of this library: how many.
    ResetAll,
    /// Set the end of a lock whose value is `ARGV[1]`, `ARGV[2]` seconds from now: 0, 1 if it is
    /// not the caller's, 2 if it has no end.
    Extend,
    /// As `Extend`, with the two arguments in the other order.
    ExtendReversed,
}

/// How long a signal lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lasting {
    Forever,
    OneSecond,
    /// As many milliseconds as `KEYS[3]` says.
    Key,
    /// As many milliseconds as `ARGV[2]` says.
    Argument,
}

impl Lasting {
    /// `None`: it ends as soon as it is given.
    fn read(self, call: &ScriptCall<'_>) -> Result<Option<Expiry>, Refusal> {
        let ms = match self {
            Lasting::Forever => return Ok(Some(Expiry::Never)),
            Lasting::OneSecond => return Ok(Some(Expiry::Ms(SIGNAL_MS))),
            Lasting::Key => pexpire_ms(call.key_bytes(3)?)?,
            Lasting::Argument => call.pexpire_ms(2)?,
        };
        Ok((ms > 0).then_some(Expiry::Ms(ms as u64)))
    }
}

pub(super) fn run(
    script: Signalled,
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    out.integer(match script {
        Signalled::ReleaseAndAdd => i64::from(release_and_add(section, call)?),
        Signalled::Release => i64::from(release(section, call, Lasting::Forever)?),
        Signalled::Unlock(lasting) => i64::from(!release(section, call, lasting)?),
        Signalled::Reset(lasting) => {
            let (lock, signal) = (call.key(1)?, call.key(2)?);
            let lasting = lasting.read(call)?;
            let is_removed = reset(section, lock, signal, lasting)?;
            // Where lock and list are one key, the list is what is deleted.
            i64::from(if lock == signal {
                lasting.is_some()
            } else {
                is_removed
            })
        }
        Signalled::ResetAll => reset_all(section, call)?,
        Signalled::Extend => extend(section, call, 1, 2)?,
        Signalled::ExtendReversed => extend(section, call, 2, 1)?,
    });
    Ok(())
}

/// Leaves one element in a new list, unless it would end at once. Without room for it no waiter is
/// woken, and waiters try again when their time is up. That is no reason to keep the lock.
fn leave_signal(section: &mut Section<'_>, signal: &Name<'_>, lasting: Option<Expiry>) {
    let Some(lasting) = lasting else { return };
    if section.push(signal, &[b"1"]).is_ok() && lasting != Expiry::Never {
        let _ = section.expire(signal, lasting);
    }
}

/// `false`: the lock is not the caller's.
fn release(
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    lasting: Lasting,
) -> Result<bool, Refusal> {
    let lock = call.key(1)?;
    let Some(held) = call.own(section, lock, 1)? else {
        return Ok(false);
    };
    let (signal, lasting) = (call.key(2)?, lasting.read(call)?);
    if signal != lock {
        section.remove(signal)?;
    }
    let is_released = section.release(lock, &held).is_some();
    if is_released && signal != lock {
        leave_signal(section, signal, lasting);
    }
    Ok(is_released)
}

fn release_and_add(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<bool, Refusal> {
    let lock = call.key(1)?;
    let Some(held) = call.own(section, lock, 1)? else {
        return Ok(false);
    };
    let signal = call.key(2)?;
    if !matches!(section.look(signal)?, Entry::Absent | Entry::List) {
        return Err(Refusal::WrongType);
    }
    let is_released = section.release(lock, &held).is_some();
    if is_released {
        leave_signal(section, signal, Some(Expiry::Never));
    }
    Ok(is_released)
}

/// `false`: the lock was free. The signal is left all the same.
fn reset(
    section: &mut Section<'_>,
    lock: &Name<'_>,
    signal: &Name<'_>,
    lasting: Option<Expiry>,
) -> Result<bool, Refusal> {
    let is_removed = section.remove(lock)?;
    if signal != lock {
        section.remove(signal)?;
        leave_signal(section, signal, lasting);
    }
    Ok(is_removed)
}

fn extend(
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    token: usize,
    time: usize,
) -> Result<i64, Refusal> {
    let name = call.key(1)?;
    let Some(held) = call.own(section, name, token)? else {
        return Ok(1);
    };
    if seconds(section.pttl(name)?) < 0 {
        return Ok(2);
    }
    let is_held = set_end(section, name, &held, call.expire_ms(time)?)?;
    Ok(i64::from(!is_held))
}

/// The locks are those that existed when the command was named, each followed by its list.
fn reset_all(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<i64, Refusal> {
    let mut count = 0;
    for pair in call.more_keys.chunks_exact(2) {
        let [lock, signal] = pair else { continue };
        if section.exists(lock)? {
            reset(section, lock, signal, Some(Expiry::Ms(SIGNAL_MS)))?;
            count += 1;
        }
    }
    Ok(count)
}

/// All locks of this library in a database, each followed by its list. A lock whose list would have
/// too long a name is followed by itself. Locks that earlier commands of the transaction may make
/// are included. Refused while the server recovers: not all locks are known.
pub(super) fn all_names(
    keyspace: &mut Keyspace<'_>,
    in_front: &[Name<'_>],
    db: u8,
) -> Result<Vec<Name<'static>>, Refusal> {
    if let Some(refusal) = Refusal::while_recovering(keyspace.core, keyspace.now) {
        return Err(refusal);
    }
    let (engine, now) = (&keyspace.core.shared.engine, keyspace.now);
    let prefix = [&name::prefix(db), LOCK].concat();
    let mut found: Vec<Box<[u8]>> = Vec::new();
    let mut next = Some(Cursor::default());
    while let Some(cursor) = next {
        let page = engine.list(&prefix, cursor, STEP, now);
        found.extend(page.keys.into_iter().map(|(key, _)| key));
        next = page.next;
        if found.len() > LOCKS_MAX {
            return Err(Refusal::text(format!(
                "ERR there are more than {LOCKS_MAX} locks to be reset, too many for one command"
            )));
        }
    }
    found.extend(keyspace.lists(|list| list.starts_with(&prefix)));
    let in_front = in_front.iter();
    let in_front = in_front.filter(|name| name.bytes().starts_with(&prefix));
    found.extend(in_front.map(|name| Box::from(name.bytes())));
    let mut names = Vec::with_capacity(2 * found.len());
    for key in &found {
        let (of, key) = name::split(key);
        if of != db {
            continue;
        }
        let signal = [SIGNAL, &key[LOCK.len()..]].concat();
        let lock = keyspace.name(db, key)?.into_owned();
        let signal = keyspace.name(db, &signal);
        let signal = signal.map_or_else(|_| lock.clone(), Name::into_owned);
        names.extend([lock, signal]);
    }
    Ok(names)
}
