//! Questions that clients and tools ask a server before they start, answered as far as they need
//! it.

use super::listing::flush;
use super::{Call, count, is, unknown_subcommand, wrong_arity};
use crate::redis::glob;
use crate::redis::name::DATABASES;
use crate::redis::refusal::Refusal;
use crate::storage::unix_now_ms;
use protocol::resp::Writer;
use std::time::{SystemTime, UNIX_EPOCH};

/// `COMMAND` and its subcommands. Clients need an answer, and no more than that.
pub(super) fn command(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    match call.args[1..] {
        [] => out.array(0),
        [subcommand] if is(subcommand, "COUNT") => out.integer(count() as i64),
        [subcommand, ..] if is(subcommand, "DOCS") => out.map(0),
        [subcommand, ref names @ ..] if is(subcommand, "INFO") => {
            out.array(names.len());
            names.iter().for_each(|_| out.null_array());
        }
        [subcommand] if is(subcommand, "LIST") => out.array(0),
        [subcommand, ..] => return Err(unknown_subcommand(subcommand, "COMMAND")),
    }
    Ok(())
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

pub(super) fn role(_: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    out.array(3);
    out.bulk(b"master");
    out.integer(0);
    out.array(0);
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

pub(super) fn cluster(_: &mut Call<'_, '_>, _: &mut Writer<'_>) -> Result<(), Refusal> {
    Err(Refusal::text(
        "ERR This instance has cluster support disabled",
    ))
}
