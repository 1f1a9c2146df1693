//! python-redis-lock: beside the lock `KEYS[1]` stands a list, `KEYS[2]`. Whoever gives the lock back leaves one element there,
//! and one of those who wait takes it and tries again.

use super::call::{ScriptCall, pexpire_ms, seconds, set_end};
use crate::redis::name::{self, Name};
use crate::redis::plan::Naming;
use crate::redis::refusal::Refusal;
use crate::redis::section::{Entry, Expiry, Section};
use engine::Cursor;
use protocol::resp::Writer;

/// What this library's locks and lists are called.
const LOCK: &[u8] = b"lock:";
const SIGNAL: &[u8] = b"lock-signal:";

/// Up to so many locks are reset at once.
const LOCKS_MAX: usize = 100_000;

/// How many keys of the table are listed in one step.
const STEP: usize = 4_096;

/// How long the signal of a version lasts that does not let its callers choose.
const SIGNAL_MS: u64 = 1_000;

/// What is done with lock and list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signalled {
    /// Delete the lock if its value is `ARGV[1]`, and signal. The signal is added to those that are there: 1 or 0.
    ReleaseAndAdd,
    /// The same, and there is one signal at most: 1 or 0.
    Release,
    /// The same: 0 if it was done and 1 if not.
    Unlock(Lasting),
    /// Delete the lock, whosesoever it is, and signal: 1, or 0 if there was none.
    Reset(Lasting),
    /// Do that to all locks of this library's: how many.
    ResetAll,
    /// Set the end of a lock whose value is `ARGV[1]`, `ARGV[2]` seconds from now: 0, 1 if it is not the caller's, 2 if it
    /// has no end.
    Extend,
    /// The same with the two arguments in the other order.
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
    /// `None`: it is over as soon as it is given.
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
            // Where lock and list are one, it is the list that is deleted, if it was there still.
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

/// Leaves one element in a list that is not there, unless it would be over at once. If there is no room for it, nobody is
/// woken, and those who wait try again when they have waited long enough: no reason to keep a lock that was given back.
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

/// `false`: there was no lock. The signal is given all the same.
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

/// The locks are those that were there when the section was opened, each with its list behind it.
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

/// All locks of this library's in a database, each with its list behind it; a lock whose list would
/// have too long a name is followed by itself. Those that commands in front of it in a transaction
/// may yet make are among them.
pub(super) fn all_names(
    naming: &mut Naming<'_, '_>,
    db: u8,
) -> Result<Vec<Name<'static>>, Refusal> {
    let keyspace = &mut *naming.keyspace;
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
    let in_front = naming.foreseen.iter().flat_map(|front| &front.names);
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
