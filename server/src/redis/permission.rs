//! What a command needs of its sender's entitlement. Asked only for senders that have bounds,
//! before the command does anything; in a transaction when it is queued, and again by `EXEC`.
//!
//! Channels are bounded by the same prefixes as keys. A library that puts something of its own in
//! front of a key, in the name of a key or of a channel, needs that beginning among the prefixes.

use super::channels;
use super::command::{Command, Needs, set_wants_old};
use super::naming::Target;
use super::refusal::Refusal;
use crate::rights::{Entitlement, Role};
use engine::Tick;

/// Whether a command may be sent at all, with whatever keys. For one that is queued.
pub(super) fn check_role(
    entitlement: &Entitlement,
    command: &Command,
    args: &[&[u8]],
) -> Result<(), Refusal> {
    let has = |role| entitlement.has(role);
    let is_allowed = match command.needs {
        Needs::Nothing => true,
        // With the option GET it shows the owner token, with which a lock can be released.
        Needs::Lock if command.name == "set" && set_wants_old(args) => {
            has(Role::Lock) && has(Role::Read)
        }
        Needs::Lock | Needs::Publish => has(Role::Lock),
        Needs::Read | Needs::Listing => has(Role::Read),
        Needs::LockOrRead | Needs::Script | Needs::Channel | Needs::Pattern => {
            has(Role::Lock) || has(Role::Read)
        }
        Needs::Force => has(Role::Operate),
        Needs::Operate => entitlement.may_operate(),
        Needs::Scripts => {
            let is_flush = (args.get(1)).is_some_and(|word| word.eq_ignore_ascii_case(b"FLUSH"));
            !is_flush || entitlement.may_operate()
        }
        Needs::Client => {
            let is_list = (args.get(1)).is_some_and(|word| word.eq_ignore_ascii_case(b"LIST"));
            !is_list || entitlement.may_read_all()
        }
    };
    match is_allowed {
        true => Ok(()),
        false => Err(Refusal::Forbidden {
            name: entitlement.name().clone(),
            command: command.name,
        }),
    }
}

/// Whether a command may be carried out at its keys and channels.
pub(super) fn check(
    entitlement: &Entitlement,
    command: &Command,
    args: &[&[u8]],
    target: &Target<'_>,
) -> Result<(), Refusal> {
    check_role(entitlement, command, args)?;
    let all_keys = || (target.names.iter()).all(|name| entitlement.covers(name.bytes()));
    let (is_allowed, what) = match command.needs {
        Needs::Nothing | Needs::Listing | Needs::Operate | Needs::Scripts | Needs::Client => {
            return Ok(());
        }
        Needs::Lock | Needs::Read | Needs::LockOrRead | Needs::Force => (all_keys(), "a key"),
        Needs::Script => {
            let script = target.script.and_then(|recognised| recognised.script);
            let only_reads = script.is_none_or(|script| script.is_read_only());
            let role = if only_reads { Role::Read } else { Role::Lock };
            if !entitlement.has(role) && script.is_some() {
                return Err(Refusal::Forbidden {
                    name: entitlement.name().clone(),
                    command: command.name,
                });
            }
            (all_keys(), "a key")
        }
        Needs::Channel => (
            args[1..]
                .iter()
                .all(|name| channels::is_own(name) || entitlement.covers(name)),
            "a channel",
        ),
        Needs::Pattern => {
            let may_hear = |pattern: &[u8]| {
                channels::is_own_pattern(pattern) || entitlement.covers(literal_head(pattern))
            };
            (
                args[1..].iter().all(|pattern| may_hear(pattern)),
                "a channel",
            )
        }
        Needs::Publish => (entitlement.covers(args[1]), "a channel"),
    };
    match is_allowed {
        true => Ok(()),
        false => Err(Refusal::OutOfReach {
            name: entitlement.name().clone(),
            what,
        }),
    }
}

/// Pays for a command. What gives back or keeps is never refused; a script may do either, and is.
pub(super) fn charge(
    entitlement: &Entitlement,
    command: &Command,
    now: Tick,
) -> Result<(), Refusal> {
    // What opens, keeps up or ends a connection or a transaction, and has a short answer.
    const LEAVING: [&str; 11] = [
        "auth",
        "hello",
        "ping",
        "quit",
        "reset",
        "unsubscribe",
        "punsubscribe",
        "multi",
        "exec",
        "discard",
        "unwatch",
    ];
    const KEEPING: [&str; 10] = [
        "del",
        "unlink",
        "delex",
        "delifeq",
        "expire",
        "pexpire",
        "expireat",
        "pexpireat",
        "lock.renew",
        "lock.release",
    ];
    let must = KEEPING.contains(&command.name) || LEAVING.contains(&command.name);
    entitlement.charge(now, must).map_err(Refusal::Quota)
}

/// What every channel begins with that a pattern matches, as far as the pattern says.
fn literal_head(pattern: &[u8]) -> &[u8] {
    let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
    let end = pattern.iter().position(is_special);
    &pattern[..end.unwrap_or(pattern.len())]
}
