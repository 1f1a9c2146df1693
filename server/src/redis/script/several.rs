//! Scripts with many keys, all or nothing. They look at all keys before they change one. If the
//! engine refuses a key half-way, the grants before it are released.

use super::call::{ScriptCall, lua_number, set_end};
use super::claimed::set_value;
use super::prefix::Prefix;
use crate::redis::name::{DATABASES, Name};
use crate::redis::refusal::Refusal;
use crate::redis::section::{Entry, Expiry, Section};
use crate::session::redis_form::Value;
use engine::Grant;
use hashbrown::HashSet;
use protocol::resp::Writer;

/// What is done with all of `KEYS`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Several {
    /// Take them all, if none is taken, for a token and a time in milliseconds: how many, or 0.
    Acquire(Arguments),
    /// Renew them all, if all are the caller's: how many, or 0.
    Extend(Arguments),
    /// Delete those that are the caller's: how many.
    Release(Arguments),

    /// Take them all, if none is taken, or if the first `ARGV[2]` bytes of all values are those of
    /// `ARGV[1]`; for `ARGV[3]` milliseconds: OK or nil.
    Obtain,
    /// Set the end of all, `ARGV[2]` milliseconds from now, if the value of all is `ARGV[1]`: OK or
    /// nil.
    Refresh,
    /// Delete all, if the value of all is `ARGV[1]`: OK or nil.
    Free,
    /// The milliseconds until the first of them ends, if the value of all is `ARGV[1]`: 0 if none
    /// ends, or nil.
    TimeLeft,
}

/// What stands before token and time among the arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arguments {
    Plain,
    /// The number of a database.
    InDatabase,
}

impl Arguments {
    fn token(self) -> usize {
        match self {
            Arguments::Plain => 1,
            Arguments::InDatabase => 2,
        }
    }

    fn time(self) -> usize {
        self.token() + 1
    }
}

impl Several {
    /// The database that it works in.
    pub(super) fn database(self, db: u8, args: &[&[u8]]) -> u8 {
        let in_database = Arguments::InDatabase;
        let named = [
            Several::Acquire(in_database),
            Several::Extend(in_database),
            Several::Release(in_database),
        ];
        let number = match args.first() {
            Some(text) if named.contains(&self) => lua_number(text),
            _ => None,
        };
        let numbers = 0..DATABASES;
        numbers
            .into_iter()
            .find(|&other| number == Some(other.into()))
            .unwrap_or(db)
    }
}

pub(super) fn run(
    script: Several,
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let all = call.keys.len() as i64;
    match script {
        Several::Acquire(arguments) => {
            let done = acquire(section, call, arguments)?;
            out.integer(if done { all } else { 0 });
        }
        Several::Extend(arguments) => {
            let done = extend(section, call, arguments)?;
            out.integer(if done { all } else { 0 });
        }
        Several::Release(arguments) => out.integer(release(section, call, arguments)?),
        Several::Obtain | Several::Refresh | Several::Free | Several::TimeLeft => {
            // `MSETNX` with keys and no value is refused too. Redis would count keys as values.
            let has_value = script != Several::Obtain || !call.args.is_empty();
            if call.keys.is_empty() || !has_value {
                return Err(Refusal::text(
                    "ERR Wrong number of args calling Redis command from script",
                ));
            }
            let done = match script {
                Several::Obtain => obtain(section, call)?,
                _ if !are_all_own(section, call) => false,
                Several::Refresh => refresh(section, call)?,
                Several::Free => free(section, call)?,
                _ => {
                    out.integer(time_left(section, call)?);
                    return Ok(());
                }
            };
            match done {
                true => out.simple("OK"),
                false => out.null(),
            }
        }
    }
    Ok(())
}

/// The keys, each once.
fn distinct<'a>(call: &ScriptCall<'a>) -> impl Iterator<Item = &'a Name<'a>> + use<'a> {
    let mut seen = HashSet::new();
    call.keys
        .iter()
        .filter(move |name| seen.insert(name.bytes()))
}

/// Releases what was granted.
fn undo(section: &mut Section<'_>, granted: &[(&Name<'_>, Grant)]) {
    for (name, grant) in granted {
        section.give_back(name, grant.fence);
    }
}

fn acquire(
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    arguments: Arguments,
) -> Result<bool, Refusal> {
    if call.keys.is_empty() || section.any_exists(call.keys)? {
        return Ok(false);
    }
    let value = call.arg(arguments.token())?;
    let expiry = call.set_ms(arguments.time())?;
    add_all(section, call, value, expiry)
}

/// Takes all keys, which are free, or none of them.
fn add_all(
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    value: &[u8],
    expiry: Expiry,
) -> Result<bool, Refusal> {
    let mut granted = Vec::with_capacity(call.keys.len());
    for name in distinct(call) {
        match section.add(name, &Value::Text(value), expiry) {
            Ok(Some(grant)) => granted.push((name, grant)),
            Ok(None) => {
                undo(section, &granted);
                return Ok(false);
            }
            Err(refusal) => {
                undo(section, &granted);
                return Err(refusal);
            }
        }
    }
    Ok(true)
}

/// If one renewal comes too late, the others stay: those locks are the caller's, and end by
/// themselves.
fn extend(
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    arguments: Arguments,
) -> Result<bool, Refusal> {
    for name in call.keys {
        if call.own(section, name, arguments.token())?.is_none() {
            return Ok(false);
        }
    }
    let mut are_all_held = true;
    for name in call.keys {
        let expiry = call.set_ms(arguments.time())?;
        are_all_held &= match call.own(section, name, arguments.token())? {
            Some(held) => section.renew(name, &held, expiry)?,
            None => false,
        };
    }
    Ok(are_all_held)
}

fn release(
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    arguments: Arguments,
) -> Result<i64, Refusal> {
    for name in call.keys {
        call.own(section, name, arguments.token())?;
    }
    let mut count = 0;
    for name in call.keys {
        if let Some(held) = call.own(section, name, arguments.token())? {
            count += i64::from(section.release(name, &held).is_some());
        }
    }
    Ok(count)
}

// ---- bsm/redislock

fn obtain(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<bool, Refusal> {
    let value = call.arg(1)?;
    let are_free = !section.any_exists(call.keys)?;
    if !are_free {
        let prefix = Prefix::of(call)?;
        for name in call.keys {
            let is_own = match section.look(name)? {
                Entry::Text(held) => prefix.is_same(&held.value, value),
                Entry::Absent => prefix.is_same(b"", value),
                Entry::Foreign(_) => false,
                Entry::Hash(_) | Entry::List | Entry::Set => return Err(Refusal::WrongType),
            };
            if !is_own {
                return Ok(false);
            }
        }
    }
    let ms = call.pexpire_ms(3)?;
    let Ok(ms @ 1..) = u64::try_from(ms) else {
        // Taken and ended in one step.
        for name in call.keys {
            if let Entry::Text(held) = section.look(name)? {
                section.end(name, &held);
            }
        }
        return Ok(true);
    };
    if are_free {
        return add_all(section, call, value, Expiry::Ms(ms));
    }
    set_all(section, call, value, Expiry::Ms(ms))
}

/// Sets keys that are the caller's or free. If one is refused, those that were free are released.
/// Those that were the caller's stay, with the new value.
fn set_all(
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    value: &[u8],
    expiry: Expiry,
) -> Result<bool, Refusal> {
    let mut granted = Vec::new();
    for name in distinct(call) {
        let done = match section.look(name) {
            Err(refusal) => Err(refusal),
            Ok(Entry::Text(held)) => set_value(section, name, &held, value, expiry),
            Ok(_) => section.add(name, &Value::Text(value), expiry).map(|grant| {
                granted.extend(grant.map(|grant| (name, grant)));
                grant.is_some()
            }),
        };
        if done != Ok(true) {
            undo(section, &granted);
            return done;
        }
    }
    Ok(true)
}

/// Whether the value of all is `ARGV[1]`. To `MGET` a key that is no string is absent.
fn are_all_own(section: &mut Section<'_>, call: &ScriptCall<'_>) -> bool {
    let mut names = call.keys.iter();
    names.all(|name| matches!(call.own(section, name, 1), Ok(Some(_))))
}

fn refresh(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<bool, Refusal> {
    let ms = call.pexpire_ms(2)?;
    let mut are_all_held = true;
    for name in distinct(call) {
        are_all_held &= match call.own(section, name, 1)? {
            Some(held) => set_end(section, name, &held, ms)?,
            None => false,
        };
    }
    Ok(are_all_held)
}

fn free(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<bool, Refusal> {
    for name in call.keys {
        if let Some(held) = call.own(section, name, 1)? {
            section.release(name, &held);
        }
    }
    Ok(true)
}

fn time_left(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<i64, Refusal> {
    let mut least_ms = None;
    for name in call.keys {
        let left_ms = section.pttl(name)?;
        if left_ms > 0 && least_ms.is_none_or(|least_ms| left_ms < least_ms) {
            least_ms = Some(left_ms);
        }
    }
    Ok(least_ms.unwrap_or(0))
}
