//! Scripts, which are recognised and not interpreted: see `redis/script`.

use super::{Call, Names, Scope, is, unknown_subcommand, wrong_arity};
use crate::redis::name::Name;
use crate::redis::port::{Port, Sha};
use crate::redis::refusal::Refusal;
use crate::redis::script::{self, Script, ScriptCall};
use protocol::resp::{Writer, parse_integer};

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

fn names_by_sha(args: &[&[u8]]) -> bool {
    args[0].len() >= 7 && args[0][..7].eq_ignore_ascii_case(b"evalsha")
}

/// The script that a call names.
fn find(args: &[&[u8]], port: &Port) -> Option<Script> {
    match names_by_sha(args) {
        true => parse_sha(args[1]).and_then(|sha| port.script(&sha)),
        false => script::recognise_text(args[1]).1,
    }
}

fn parse_sha(text: &[u8]) -> Option<Sha> {
    let mut sha = Sha::default();
    if text.len() != 2 * sha.len() {
        return None;
    }
    for (byte, digits) in sha.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(sha)
}

pub(super) fn show_sha(sha: &Sha) -> String {
    sha.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How many of the arguments are keys.
fn key_count(args: &[&[u8]]) -> Result<usize, Refusal> {
    let count = parse_integer(args[2]).ok_or(Refusal::NotAnInteger)?;
    let count = usize::try_from(count)
        .map_err(|_| Refusal::text("ERR Number of keys can't be negative"))?;
    if count > args.len() - 3 {
        return Err(Refusal::text(
            "ERR Number of keys can't be greater than number of args",
        ));
    }
    Ok(count)
}

/// The keys of a script: those it is given, and those it will look for by itself.
pub(super) fn names<'a>(args: &[&'a [u8]], scope: &Scope<'_>) -> Result<Names<'a>, Refusal> {
    // What cannot be a SHA-1 names no script, however its keys are counted.
    if names_by_sha(args) && parse_sha(args[1]).is_none() {
        return Ok(Names::new());
    }
    let (keys, values) = args[3..].split_at(key_count(args)?);
    let Some(script) = find(args, scope.port) else {
        // It will be refused, whatever its keys.
        return Ok(Names::new());
    };
    let db = script::database(script, scope.db, values);
    let names = keys.iter().map(|key| Name::new(db, key));
    let mut names = names.collect::<Result<Names<'a>, Refusal>>()?;
    names.extend(script::more_names(script, scope.core, scope.port, db)?);
    Ok(names)
}

pub(super) fn eval(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    eval_with(call, false, out)
}

pub(super) fn eval_ro(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    eval_with(call, true, out)
}

pub(super) fn evalsha(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    evalsha_with(call, false, out)
}

pub(super) fn evalsha_ro(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    evalsha_with(call, true, out)
}

fn eval_with(
    call: &mut Call<'_, '_>,
    only_reads: bool,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let (sha, script) = script::recognise_text(call.args[1]);
    let script = script.ok_or_else(|| unknown_script(call, &sha))?;
    call.section.port.load(sha, script);
    run(call, script, only_reads, out)
}

fn evalsha_with(
    call: &mut Call<'_, '_>,
    only_reads: bool,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let port = call.section.port;
    let script = parse_sha(call.args[1]).and_then(|sha| port.script(&sha));
    let script = script.ok_or_else(|| Refusal::text(NO_SCRIPT))?;
    run(call, script, only_reads, out)
}

fn run(
    call: &mut Call<'_, '_>,
    script: Script,
    only_reads: bool,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    if only_reads && !script.is_read_only() {
        return Err(Refusal::text(
            "ERR Write commands are not allowed from read-only scripts.",
        ));
    }
    let count = key_count(call.args)?;
    // Its keys were looked for before it was loaded, by somebody else and a moment ago.
    let (keys, more_keys) = call
        .names
        .split_at_checked(count)
        .ok_or_else(|| Refusal::text(NO_SCRIPT))?;
    let script_call = ScriptCall {
        keys,
        more_keys,
        args: &call.args[3 + count..],
    };
    script::run(script, call.section, &script_call, out)
}

fn unknown_script(call: &Call<'_, '_>, sha: &Sha) -> Refusal {
    call.section.core().metrics().redis_unknown_scripts.bump();
    let sha = show_sha(sha);
    tracing::info!(sha1 = %sha, client = call.client.card.id, "a script that is not known was refused");
    Refusal::text(format!(
        "ERR unknown script {sha}: this port runs no Lua, it knows the published lock scripts. See docs/redis.md, section Scripts"
    ))
}

pub(super) fn script(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let port = call.section.port;
    let subcommand = call.args[1];
    if is(subcommand, "LOAD") {
        let [_, _, text] = call.args else {
            return Err(wrong_arity("script|load"));
        };
        let (sha, script) = script::recognise_text(text);
        let script = script.ok_or_else(|| unknown_script(call, &sha))?;
        port.load(sha, script);
        out.bulk(show_sha(&sha).as_bytes());
    } else if is(subcommand, "EXISTS") {
        if call.args.len() < 3 {
            return Err(wrong_arity("script|exists"));
        }
        out.array(call.args.len() - 2);
        for text in &call.args[2..] {
            let known = parse_sha(text).is_some_and(|sha| port.script(&sha).is_some());
            out.integer(i64::from(known));
        }
    } else if is(subcommand, "FLUSH") {
        match call.args[2..] {
            [] => {}
            [mode] if is(mode, "SYNC") || is(mode, "ASYNC") => {}
            _ => {
                return Err(Refusal::text(
                    "ERR SCRIPT FLUSH only support SYNC|ASYNC option",
                ));
            }
        }
        port.flush_scripts();
        out.simple("OK");
    } else {
        return Err(unknown_subcommand(subcommand, "SCRIPT"));
    }
    Ok(())
}
