//! Commands that look at all keys: `LOCK.LS`, `KEYS`, `SCAN`, `DBSIZE`, and the flushing ones. They
//! read a part of the table at a time. Only a small table is read in one go, because a core serves
//! no other client meanwhile.
//!
//! While the server recovers, all of them are refused: not every lock is known, so no list or count
//! would be complete.

use super::locks::write_state;
use super::{Call, integer, is};
use crate::redis::glob;
use crate::redis::name::{self, Name};
use crate::redis::naming::{Names, Naming, Target};
use crate::redis::refusal::Refusal;
use engine::{Cursor, Fence, Key, KeyState, Page};
use protocol::resp::{Writer, parse_integer};
use std::ops::RangeInclusive;

/// Up to so many keys, `KEYS` and `FLUSHDB` read the whole table at once.
const KEYS_AT_ONCE_MAX: u64 = 1 << 20;

/// How many keys `SCAN` lists unless asked otherwise, and how many it and `LOCK.LS` list at most.
const PAGE: usize = 10;
const PAGE_MAX: usize = 1_000;

/// In a table of up to so many keys, one page may come from all of it. In a larger one it comes
/// from as much as the engine looks at in one go.
const SMALL_MAX: u64 = 100_000;

/// How many keys of the table the commands that read all of it list in one step.
const STEP: usize = 4_096;

/// Calls `visit` with every held lock of a database and its state. Refused if there are too many.
pub(super) fn for_each_lock(
    call: &Call<'_, '_>,
    db: u8,
    mut visit: impl FnMut(&[u8], &KeyState),
) -> Result<(), Refusal> {
    let engine = &call.section.core().shared.engine;
    if engine.keys() > KEYS_AT_ONCE_MAX {
        return Err(Refusal::text(format!(
            "ERR there are more than {KEYS_AT_ONCE_MAX} keys, too many to be looked at in one go; use SCAN or LOCK.LS"
        )));
    }
    let prefix = name::prefix(db);
    let mut next = Some(Cursor::default());
    while let Some(cursor) = next {
        let page = engine.list(&prefix, cursor, STEP, call.section.now);
        next = page.next;
        for (found, state) in &page.keys {
            if name::split(found).0 == db && state.holder_count > 0 && is_shown(call, found) {
                visit(found, state);
            }
        }
    }
    Ok(())
}

/// The target of a command that looks at all keys: the signal lists of these databases. Refused in
/// a transaction, whose keys are named before its first command has made any.
pub(super) fn target<'a>(
    naming: &mut Naming<'_, '_>,
    dbs: RangeInclusive<u8>,
) -> Result<Target<'a>, Refusal> {
    if naming.foreseen.is_some() {
        return Err(Refusal::text(
            "ERR this command looks at all keys, and is not allowed in a transaction",
        ));
    }
    let keyspace = &mut *naming.keyspace;
    let lists = keyspace.lists(|list| dbs.contains(&name::split(list).0));
    let names = lists.iter().map(|list| -> Result<Name<'a>, Refusal> {
        let (db, key) = name::split(list);
        Ok(keyspace.name(db, key)?.into_owned())
    });
    Ok(names.collect::<Result<Names<'a>, Refusal>>()?.into())
}

/// The target of `SCAN`. Signal lists are few, and all come with the first page. In a transaction
/// they are left out.
pub(super) fn first_page_target<'a>(
    args: &[&'a [u8]],
    naming: &mut Naming<'_, '_>,
) -> Result<Target<'a>, Refusal> {
    let is_first = cursor(args[1]).is_ok_and(|cursor| cursor == Cursor::default());
    match is_first && naming.foreseen.is_none() {
        true => target(naming, naming.db..=naming.db),
        false => Ok(Target::default()),
    }
}

/// The signal lists that are the command's target.
fn lists(call: &Call<'_, '_>) -> Vec<Box<[u8]>> {
    let lists = call.names.iter().map(|name| Box::from(name.bytes()));
    lists.filter(|list| is_shown(call, list)).collect()
}

/// Whether the sender may see this key.
fn is_shown(call: &Call<'_, '_>, key: &[u8]) -> bool {
    (call.section.bounds).is_none_or(|bounds| bounds.may_read(key))
}

/// All keys of a database, with its prefix.
fn all(call: &Call<'_, '_>, db: u8) -> Result<Vec<Box<[u8]>>, Refusal> {
    let mut keys = lists(call);
    for_each_lock(call, db, |found, _| keys.push(found.into()))?;
    Ok(keys)
}

pub(super) fn keys(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    glob::check(call.args[1])?;
    call.check_all_known()?;
    let mut keys = all(call, call.client.db)?;
    keys.retain(|found| glob::matches(call.args[1], name::split(found).1));
    out.array(keys.len());
    for found in keys {
        out.bulk(name::split(&found).1);
    }
    Ok(())
}

pub(super) fn dbsize(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    call.check_all_known()?;
    let size = match all(call, call.client.db) {
        Ok(keys) => keys.len() as u64,
        // Too many to count in one go: the locks of this port in all databases.
        Err(_) if call.section.bounds.is_none() => u64::from(call.section.space.session.held()),
        Err(refusal) => return Err(refusal),
    };
    out.integer(size as i64);
    Ok(())
}

/// Ends all locks of this port and all lists in these databases. Locks of native clients stay.
pub(super) fn flush(call: &mut Call<'_, '_>, dbs: impl Iterator<Item = u8>) -> Result<(), Refusal> {
    call.check_all_known()?;
    let ours = Some(call.section.space.session.id);
    let mut found: Vec<(Box<[u8]>, Vec<Fence>)> = Vec::new();
    for db in dbs {
        for_each_lock(call, db, |key, state| {
            let mut all = None;
            if state.holder_count as usize > state.holders.len() {
                let engine = &call.section.core().shared.engine;
                all = Key::new(key)
                    .ok()
                    .and_then(|key| engine.query_up_to(key, usize::MAX, call.section.now));
            }
            let state = all.as_ref().unwrap_or(state);
            let holders = state.holders.iter().filter(|holder| holder.owner == ours);
            let fences: Vec<Fence> = holders.map(|holder| holder.fence).collect();
            if !fences.is_empty() {
                found.push((key.into(), fences));
            }
        })?;
    }
    let now = call.section.now;
    for list in call.names {
        call.section.signals(list)?.remove(list.bytes(), now);
    }
    if !found.is_empty() {
        call.section.force()?;
    }
    for (key, fences) in found {
        let (db, key) = name::split(&key);
        let name = call.section.name(db, key)?;
        call.section.take_away(&name, &fences);
    }
    Ok(())
}

/// `SCAN cursor [MATCH pattern] [COUNT n] [TYPE t]`.
pub(super) fn scan(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let cursor = cursor(call.args[1])?;
    let mut pattern: &[u8] = b"*";
    let mut count = PAGE;
    let mut kind: Option<&[u8]> = None;
    let mut options = call.args[2..].iter().copied();
    while let Some(option) = options.next() {
        let value = options.next().ok_or(Refusal::Syntax)?;
        if is(option, "MATCH") {
            glob::check(value)?;
            pattern = value;
        } else if is(option, "COUNT") {
            count = page_size(value)?;
        } else if is(option, "TYPE") {
            kind = Some(value);
        } else {
            return Err(Refusal::Syntax);
        }
    }
    call.check_all_known()?;
    let db = call.client.db;
    let page = page(call, &name::prefix(db), cursor, count);
    let ours = Some(call.section.space.session.id);
    let kind_of = |state: &KeyState| -> Option<&'static str> {
        let holder = state.holders.first()?;
        let entry = crate::session::redis_form::Value::decode(&holder.metadata);
        let is_hash = holder.owner == ours && entry.token().is_none();
        Some(if is_hash { "hash" } else { "string" })
    };
    let mut keys: Vec<Box<[u8]>> = Vec::new();
    for (found, state) in &page.keys {
        let Some(is_a) = kind_of(state) else { continue };
        let is_wanted = kind.is_none_or(|kind| is(kind, is_a)) && is_shown(call, found);
        if name::split(found).0 == db && is_wanted {
            keys.push(found.clone());
        }
    }
    if kind.is_none_or(|kind| is(kind, "list")) {
        keys.extend(lists(call));
    }
    keys.retain(|found| glob::matches(pattern, name::split(found).1));
    out.array(2);
    write_cursor(page.next, out);
    out.array(keys.len());
    for found in keys {
        out.bulk(name::split(&found).1);
    }
    Ok(())
}

/// `LOCK.LS [prefix] [COUNT n] [CURSOR c]`: `[next cursor, [key, state, key, state, ...]]`.
pub(super) fn ls(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let mut options = call.args[1..].iter().copied().peekable();
    let mut prefix: &[u8] = &[];
    if let Some(first) = options.next_if(|first| !is(first, "COUNT") && !is(first, "CURSOR")) {
        prefix = first;
    }
    let mut count = PAGE_MAX / PAGE;
    let mut from = Cursor::default();
    while let Some(option) = options.next() {
        let value = options.next().ok_or(Refusal::Syntax)?;
        if is(option, "COUNT") {
            count = page_size(value)?;
        } else if is(option, "CURSOR") {
            from = cursor(value)?;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    call.check_all_known()?;
    let db = call.client.db;
    let full_prefix = [&name::prefix(db), prefix].concat();
    let page = page(call, &full_prefix, from, count);
    let mut keys = page.keys;
    keys.retain(|(found, _)| name::split(found).0 == db && is_shown(call, found));
    out.array(2);
    write_cursor(page.next, out);
    out.array(keys.len() * 2);
    for (found, state) in keys {
        out.bulk(name::split(&found).1);
        write_state(call.section, &state, out);
    }
    Ok(())
}

/// A page of the engine's table. A small table is read part after part until the page is full.
fn page(call: &Call<'_, '_>, prefix: &[u8], from: Cursor, count: usize) -> Page {
    let engine = &call.section.core().shared.engine;
    let mut page = engine.list(prefix, from, count, call.section.now);
    let looks = match engine.keys() {
        0..=SMALL_MAX => engine.shard_count(),
        _ => 1,
    };
    for _ in 1..looks {
        let (true, Some(next)) = (page.keys.len() < count, page.next) else {
            break;
        };
        let more = engine.list(prefix, next, count - page.keys.len(), call.section.now);
        page.next = more.next;
        page.keys.extend(more.keys);
    }
    page
}

fn cursor(text: &[u8]) -> Result<Cursor, Refusal> {
    let bits = parse_integer(text).and_then(|bits| u32::try_from(bits).ok());
    bits.map(Cursor::from_bits)
        .ok_or_else(|| Refusal::text("ERR invalid cursor"))
}

/// Writes the next cursor. Zero is the end, as it is the beginning.
fn write_cursor(next: Option<Cursor>, out: &mut Writer<'_>) {
    let bits = next.map_or(0, Cursor::bits);
    out.bulk(bits.to_string().as_bytes());
}

fn page_size(text: &[u8]) -> Result<usize, Refusal> {
    match integer(text)? {
        count @ 1.. => Ok((count as usize).min(PAGE_MAX)),
        _ => Err(Refusal::Syntax),
    }
}
