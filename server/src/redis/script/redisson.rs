//! Redisson's `RLock` and `RFencedLock`: a hash of one field, the holder, with the number of its
//! holds. Here the engine counts them. Redisson's waiters listen to a channel.
//!
//! An unlock leaves a latch, a key that keeps the answer for a while. A retry whose first answer
//! was lost finds it there. An `RFencedLock` numbers its grants in a key of its own. Here the
//! number is the grant's fence, which no crash sets back, and that key is not kept.
//!
//! To other commands a lock of a native client is a string. To these scripts it is a lock with
//! another holder, so that Redisson waits for it as for its own.

use super::call::{ScriptCall, set_end, write_number};
use crate::redis::channels;
use crate::redis::name::{self, Name};
use crate::redis::refusal::Refusal;
use crate::redis::section::{Entry, Expiry, Held, Section};
use crate::session::redis_form::Value;
use engine::Fence;
use protocol::resp::Writer;

/// The prefix of the key with an `RFencedLock`'s number. The name of the lock follows.
const TOKEN: &[u8] = b"redisson_lock_token:";

/// How often an acquire looks again at a lock that ended meanwhile.
const LOOKS_MAX: u32 = 8;

/// What is done with the lock `KEYS[1]`. `KEYS[2]` is its channel where there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Redisson {
    /// Hold it, or hold it once more, for `ARGV[1]` milliseconds as `ARGV[2]`: nil, or the
    /// milliseconds that another holder has left.
    Lock,
    /// As `Lock`: -1 and the fence, or the milliseconds that another holder has left and -1.
    LockAndToken,
    /// Release one hold of `ARGV[3]`. After the last one, publish `ARGV[1]`; before, set the end,
    /// `ARGV[2]` milliseconds from now: 1 for the last, 0 for another, nil if another holder has
    /// it.
    Unlock(Unlocking),
    /// Delete it without comparing, and publish `ARGV[1]`: 1, or 0 if it was free.
    Force(Publishing),
    /// Set the end of `ARGV[2]`'s hold, `ARGV[1]` milliseconds from now: 1 or 0.
    Renew,
    /// As `Renew` for all of `KEYS`, whose holders are `ARGV[2]` and so on: 1 or 0 for each.
    RenewAll,
}

/// The versions of an unlock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unlocking {
    /// A free lock counts as released, and that is published.
    OrAbsent,
    Simple,
    /// `ARGV[4]` is the command to publish by.
    Via,
    /// As `Via`, and the latch `KEYS[3]` keeps the answer for `ARGV[5]` milliseconds.
    Latched,
}

/// How a forced release is published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Publishing {
    Fixed,
    /// `ARGV[2]` is the command to publish by.
    Chosen,
}

/// The holder of a lock.
enum Holding {
    Free,
    Caller(Held),
    Other,
}

pub(super) fn run(
    script: Redisson,
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    match script {
        Redisson::Lock => match lock(section, call)? {
            Ok(_) => out.null(),
            Err(left_ms) => out.integer(left_ms),
        },
        Redisson::LockAndToken => {
            let (left_ms, token) = match lock(section, call)? {
                Ok(fence) => (-1, fence.get() as i64),
                Err(left_ms) => (left_ms, -1),
            };
            out.array(2);
            out.integer(left_ms);
            out.integer(token);
        }
        Redisson::Unlock(version) => unlock(section, call, version, out)?,
        Redisson::Force(version) => out.integer(i64::from(force(section, call, version)?)),
        Redisson::Renew => {
            let (name, field) = (call.key(1)?, call.arg(2)?);
            let done = match holding(section, name, field)? {
                Holding::Caller(held) => set_end(section, name, &held, call.pexpire_ms(1)?)?,
                Holding::Free | Holding::Other => false,
            };
            out.integer(i64::from(done));
        }
        Redisson::RenewAll => renew_all(section, call, out)?,
    }
    Ok(())
}

fn holding(section: &mut Section<'_>, name: &Name<'_>, field: &[u8]) -> Result<Holding, Refusal> {
    match section.look(name)? {
        Entry::Absent => Ok(Holding::Free),
        Entry::Hash(held) if *held.value == *field => Ok(Holding::Caller(held)),
        Entry::Hash(_) | Entry::Foreign(_) => Ok(Holding::Other),
        Entry::Text(_) | Entry::List | Entry::Set => Err(Refusal::WrongType),
    }
}

/// The fence under which the caller holds the lock, or the milliseconds that another holder has
/// left.
fn lock(section: &mut Section<'_>, call: &ScriptCall<'_>) -> Result<Result<Fence, i64>, Refusal> {
    let (name, field) = (call.key(1)?, call.arg(2)?);
    for _ in 0..LOOKS_MAX {
        let fence = match holding(section, name, field)? {
            Holding::Free => hold(section, name, field, call.pexpire_ms(1)?)?,
            Holding::Caller(held) => hold_again(section, name, &held, call.pexpire_ms(1)?)?,
            Holding::Other => None,
        };
        if let Some(fence) = fence {
            return Ok(Ok(fence));
        }
        let left_ms = section.pttl(name)?;
        if left_ms != -2 {
            return Ok(Err(left_ms));
        }
    }
    // It is taken and released all the time. The client is to ask again at once.
    Ok(Err(0))
}

fn hold(
    section: &mut Section<'_>,
    name: &Name<'_>,
    field: &[u8],
    ms: i64,
) -> Result<Option<Fence>, Refusal> {
    let expiry = Expiry::Ms(ms.max(1) as u64);
    let grant = section.add(name, &Value::Hash(field), expiry)?;
    if let (Some(grant), ..=0) = (grant, ms) {
        // Taken and ended in one step.
        section.give_back(name, grant.fence);
    }
    Ok(grant.map(|grant| grant.fence))
}

fn hold_again(
    section: &mut Section<'_>,
    name: &Name<'_>,
    held: &Held,
    ms: i64,
) -> Result<Option<Fence>, Refusal> {
    let done = match ms {
        1.. => section.reenter(name, held, Expiry::Ms(ms as u64))?,
        _ => section.end(name, held),
    };
    Ok(done.then_some(held.fence))
}

fn unlock(
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    version: Unlocking,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let is_latched = version == Unlocking::Latched;
    if is_latched && let Some(answer) = section.value(call.key(3)?)? {
        write_number(&answer, out);
        return Ok(());
    }
    let name = call.key(1)?;
    if version == Unlocking::OrAbsent && !section.exists(name)? {
        let message = message(call, None)?;
        section.publish(message.channel, message.payload);
        out.integer(1);
        return Ok(());
    }
    let Holding::Caller(held) = holding(section, name, call.arg(3)?)? else {
        out.null();
        return Ok(());
    };
    let is_last = held.count <= 1;
    let (message, ms) = match (is_last, version) {
        (false, _) => (None, call.pexpire_ms(2)?),
        (true, Unlocking::OrAbsent | Unlocking::Simple) => (Some(message(call, None)?), 0),
        (true, Unlocking::Via | Unlocking::Latched) => (Some(message(call, Some(4))?), 0),
    };
    let latch = match is_latched {
        true => Some((call.key(3)?, call.set_ms(5)?)),
        false => None,
    };
    if section.release(name, &held).is_none() {
        // It ended after the look.
        out.null();
        return Ok(());
    }
    match message {
        Some(message) => {
            section.publish(message.channel, message.payload);
        }
        None => {
            let count = held.count - 1;
            set_end(section, name, &Held { count, ..held }, ms)?;
        }
    }
    if let Some((latch, expiry)) = latch {
        // Without room for the latch the lock is released all the same: only a retry needs it.
        let answer: &[u8] = if is_last { b"1" } else { b"0" };
        let _ = section.add(latch, &Value::Text(answer), expiry);
    }
    out.integer(i64::from(is_last));
    Ok(())
}

fn force(
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    version: Publishing,
) -> Result<bool, Refusal> {
    let name = call.key(1)?;
    if !section.exists(name)? {
        return Ok(false);
    }
    let message = match version {
        Publishing::Fixed => message(call, None)?,
        Publishing::Chosen => message(call, Some(2))?,
    };
    let is_removed = section.remove(name)?;
    if is_removed {
        section.publish(message.channel, message.payload);
    }
    Ok(is_removed)
}

/// Looks at all holders before it renews the first lock, so that a key of the wrong type changes
/// nothing.
fn renew_all(
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let mut ms = 0;
    for (at, name) in call.keys.iter().enumerate() {
        if let Holding::Caller(_) = holding(section, name, call.arg(at + 2)?)? {
            ms = call.pexpire_ms(1)?;
        }
    }
    out.array(call.keys.len());
    for (name, field) in call.keys.iter().zip(&call.args[1.min(call.args.len())..]) {
        let done = match holding(section, name, field) {
            Ok(Holding::Caller(held)) => set_end(section, name, &held, ms).unwrap_or(false),
            _ => false,
        };
        out.integer(i64::from(done));
    }
    Ok(())
}

struct Message<'a> {
    channel: &'a [u8],
    payload: &'a [u8],
}

/// `ARGV[1]` for the channel `KEYS[2]`, sent by the command that `ARGV[command]` names, or by
/// `PUBLISH`. `SPUBLISH` is the same here, where channels have no shards.
fn message<'a>(call: &ScriptCall<'a>, command: Option<usize>) -> Result<Message<'a>, Refusal> {
    let command = match command {
        Some(number) => call.arg(number)?,
        None => b"publish",
    };
    let known: [&[u8]; 2] = [b"publish", b"spublish"];
    if !known
        .iter()
        .any(|known| command.eq_ignore_ascii_case(known))
    {
        return Err(Refusal::text(
            "ERR Unknown Redis command called from script",
        ));
    }
    let (channel, payload) = (call.key_bytes(2)?, call.arg(1)?);
    channels::check_message(channel, payload)?;
    Ok(Message { channel, payload })
}

/// What `GET` gives for the key with an `RFencedLock`'s number, while the lock is held: its fence.
/// `None`: this is no such key, or the lock is free.
pub(crate) fn fenced_token(section: &Section<'_>, name: &Name<'_>) -> Option<u64> {
    let (db, key) = name::split(name.bytes());
    let lock = key.strip_prefix(TOKEN)?;
    // Redisson puts braces around a name that has none.
    let bare = lock
        .strip_prefix(b"{")
        .and_then(|lock| lock.strip_suffix(b"}"));
    let fence_of = |lock: &[u8]| {
        let lock = section.name(db, lock).ok()?;
        let state = section
            .core()
            .shared
            .engine
            .query(lock.key(), section.now)?;
        let holder = state.holders.first()?;
        let is_hash = matches!(Value::decode(&holder.metadata), Value::Hash(_));
        let is_ours = holder.owner == Some(section.space.session.id);
        (is_ours && is_hash).then_some(holder.fence.get())
    };
    bare.and_then(fence_of).or_else(|| fence_of(lock))
}
