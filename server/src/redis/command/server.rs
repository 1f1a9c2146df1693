//! Questions that clients and tools ask a server before they start, answered as far as they need
//! it.

use super::listing::flush;
use super::{Call, Command, all, is, unknown_subcommand, wrong_arity};
use crate::redis::glob;
use crate::redis::name::DATABASES;
use crate::redis::refusal::Refusal;
use crate::redis::topology::Topology;
use crate::storage::unix_now_ms;
use protocol::resp::Writer;
use std::time::{SystemTime, UNIX_EPOCH};

/// `COMMAND` and its subcommands. Clients in cluster mode read here where the keys of a command
/// stand; the others need an answer, and no more than that.
pub(super) fn command(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    match call.args[1..] {
        [] => describe_all(out),
        [subcommand] if is(subcommand, "COUNT") => out.integer(all().len() as i64),
        [subcommand, ..] if is(subcommand, "DOCS") => out.map(0),
        [subcommand] if is(subcommand, "INFO") => describe_all(out),
        [subcommand, ref names @ ..] if is(subcommand, "INFO") => {
            out.array(names.len());
            for name in names {
                match Command::find(name) {
                    Some(command) => describe(command, out),
                    None => out.null_array(),
                }
            }
        }
        [subcommand] if is(subcommand, "LIST") => {
            out.array(all().len());
            all()
                .iter()
                .for_each(|command| out.bulk(command.name.as_bytes()));
        }
        [subcommand, ..] => return Err(unknown_subcommand(subcommand, "COMMAND")),
    }
    Ok(())
}

fn describe_all(out: &mut Writer<'_>) {
    out.array(all().len());
    all().iter().for_each(|command| describe(command, out));
}

/// One command as Redis 7 describes it: name, number of arguments, flags, the first and the last
/// key and the step between them; then categories, tips, details of the keys and subcommands, of
/// which nothing is said.
fn describe(command: &Command, out: &mut Writer<'_>) {
    let (flags, keys) = command.described();
    out.array(10);
    out.bulk(command.name.as_bytes());
    out.integer(command.arity.into());
    out.set(flags.len());
    flags.iter().for_each(|flag| out.simple(flag));
    keys.iter().for_each(|position| out.integer(*position));
    out.set(0);
    (0..3).for_each(|_| out.array(0));
}

/// The settings of Redis that clients read, with the values that a Redis of this kind would have.
const CONFIG: [(&str, &str); 8] = [
    ("save", ""),
    ("appendonly", "no"),
    ("databases", "16"),
    ("timeout", "0"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("replica-read-only", "yes"),
    ("notify-keyspace-events", ""),
];

pub(super) fn config(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let (subcommand, args) = (call.args[1], &call.args[2..]);
    if is(subcommand, "GET") {
        if args.is_empty() {
            return Err(wrong_arity("config|get"));
        }
        for pattern in args {
            glob::check(pattern)?;
        }
        let is_asked_for = |name: &str| {
            args.iter()
                .any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
        };
        let found: Vec<_> = CONFIG
            .iter()
            .filter(|(name, _)| is_asked_for(name))
            .collect();
        out.map(found.len());
        for (name, value) in found {
            out.bulk(name.as_bytes());
            out.bulk(value.as_bytes());
        }
    } else if is(subcommand, "RESETSTAT") {
        out.simple("OK");
    } else if is(subcommand, "SET") {
        return Err(Refusal::text(
            "ERR settings are the server's: flags, environment or file. See fencepost serve --help",
        ));
    } else {
        return Err(unknown_subcommand(subcommand, "CONFIG"));
    }
    Ok(())
}

pub(super) fn role(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let Some(view) = &call.section.core().shared.cluster else {
        out.array(3);
        out.bulk(b"master");
        out.integer(0);
        out.array(0);
        return Ok(());
    };
    let topology = Topology::now(view);
    if view.leads {
        let replicas = || topology.replicas().filter(|replica| replica.is_up);
        out.array(3);
        out.bulk(b"master");
        out.integer(topology.applied_index as i64);
        out.array(replicas().count());
        for replica in replicas() {
            out.array(3);
            out.bulk(replica.host.as_bytes());
            out.bulk(replica.port.to_string().as_bytes());
            out.bulk(replica.index.to_string().as_bytes());
        }
        return Ok(());
    }
    let master = topology.master();
    out.array(5);
    out.bulk(b"slave");
    out.bulk(master.map_or("", |master| &master.host).as_bytes());
    out.integer(master.map_or(0, |master| master.port.into()));
    out.bulk(match topology.leader() {
        Some(_) => b"connected",
        None => b"connect",
    });
    out.integer(topology.applied_index as i64);
    Ok(())
}

/// Seconds, and microseconds within the second.
pub(super) fn time(_: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.map_or(u128::from(unix_now_ms()) * 1_000, |since| since.as_micros());
    out.array(2);
    out.bulk((micros / 1_000_000).to_string().as_bytes());
    out.bulk((micros % 1_000_000).to_string().as_bytes());
    Ok(())
}

pub(super) fn flushdb(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    check_mode(call)?;
    let db = call.client.db;
    flush(call, db..=db)?;
    out.simple("OK");
    Ok(())
}

pub(super) fn flushall(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    check_mode(call)?;
    flush(call, 0..=DATABASES - 1)?;
    out.simple("OK");
    Ok(())
}

fn check_mode(call: &Call<'_, '_>) -> Result<(), Refusal> {
    match call.args[1..] {
        [] => Ok(()),
        [mode] if is(mode, "SYNC") || is(mode, "ASYNC") => Ok(()),
        _ => Err(Refusal::Syntax),
    }
}
