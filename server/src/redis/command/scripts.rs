//! `EVAL`, `EVALSHA`, `SCRIPT`. Scripts are recognised and not interpreted: see `redis/script`. A
//! text is recognised once, when the command that sends it is named.

use super::{Call, is, unknown_subcommand, wrong_arity};
use crate::redis::naming::{Foreseen, Names, Naming, Target};
use crate::redis::refusal::Refusal;
use crate::redis::script::{self, Recognised, Script, ScriptCall, Sha};
use protocol::resp::{Writer, parse_integer};

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

fn names_by_sha(args: &[&[u8]]) -> bool {
    args[0].len() >= 7 && args[0][..7].eq_ignore_ascii_case(b"evalsha")
}

/// The script that a call sends or names. `None`: it names one that is not loaded.
fn find(args: &[&[u8]], naming: &Naming<'_, '_>) -> Option<Recognised> {
    if !names_by_sha(args) {
        return Some(naming.recognise(args[1]));
    }
    let sha = parse_sha(args[1])?;
    let script = Some(naming.script(&sha)?);
    Some(Recognised { sha, script })
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

/// The script and its keys: those that it is given, and those that it finds by itself.
pub(super) fn target<'a>(
    args: &[&'a [u8]],
    naming: &mut Naming<'_, '_>,
) -> Result<Target<'a>, Refusal> {
    // What cannot be a SHA-1 names no script. Redis says so before it counts keys.
    if names_by_sha(args) && parse_sha(args[1]).is_none() {
        return Ok(Target::default());
    }
    let (keys, values) = args[3..].split_at(key_count(args)?);
    let recognised = find(args, naming);
    let Some(script) = recognised.and_then(|recognised| recognised.script) else {
        // It will be refused, whatever its keys.
        return Ok(Target {
            names: Names::default(),
            script: recognised,
        });
    };
    let db = script::database(script, naming.db, values);
    let names = keys.iter().map(|key| naming.keyspace.name(db, key));
    let mut names = names.collect::<Result<Names<'a>, Refusal>>()?;
    names.extend(script::more_names(
        script,
        naming.keyspace,
        naming.in_front(),
        db,
    )?);
    Ok(Target {
        names,
        script: recognised,
    })
}

/// The script that `SCRIPT LOAD` sends. The other subcommands send none.
pub(super) fn load_target<'a>(args: &[&'a [u8]], naming: &Naming<'_, '_>) -> Target<'a> {
    Target {
        names: Names::default(),
        script: loaded_text(args).map(|text| naming.recognise(text)),
    }
}

fn loaded_text<'a>(args: &[&'a [u8]]) -> Option<&'a [u8]> {
    match *args {
        [_, subcommand, text] if is(subcommand, "LOAD") => Some(text),
        _ => None,
    }
}

/// Foresees that a `SCRIPT` command forgets what is loaded. What it loads is in its target.
pub(super) fn foresee_flush(args: &[&[u8]], foreseen: &mut Foreseen<'_>) {
    match *args {
        [_, subcommand, ref mode @ ..] if is(subcommand, "FLUSH") && check_mode(mode).is_ok() => {
            foreseen.flush_scripts();
        }
        _ => {}
    }
}

/// The modes that `SCRIPT FLUSH` takes.
fn check_mode(mode: &[&[u8]]) -> Result<(), Refusal> {
    match *mode {
        [] => Ok(()),
        [mode] if is(mode, "SYNC") || is(mode, "ASYNC") => Ok(()),
        _ => Err(Refusal::text(
            "ERR SCRIPT FLUSH only support SYNC|ASYNC option",
        )),
    }
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
    let (_, script) = load(call)?;
    run(call, script, only_reads, out)
}

/// Remembers the script that a command has sent, for `EVALSHA`. Refused if it is not known.
fn load(call: &Call<'_, '_>) -> Result<(Sha, Script), Refusal> {
    let Recognised { sha, script } = call.script.ok_or(Refusal::NotNamed)?;
    let script = script.ok_or_else(|| unknown_script(call, &sha))?;
    call.port.load(sha, script);
    Ok((sha, script))
}

fn evalsha_with(
    call: &mut Call<'_, '_>,
    only_reads: bool,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let script = call.script.and_then(|recognised| recognised.script);
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
    let client = call.client.card.id;
    tracing::info!(sha1 = %sha, client, "refused an EVAL or SCRIPT LOAD of an unknown script");
    Refusal::text(format!(
        "ERR unknown script {sha}: this port runs no Lua, it knows the published lock scripts. See docs/redis.md, section Scripts"
    ))
}

pub(super) fn check_subcommand(subcommand: &[u8], arguments: usize) -> Result<(), Refusal> {
    if is(subcommand, "LOAD") && arguments != 1 {
        return Err(wrong_arity("script|load"));
    }
    if is(subcommand, "EXISTS") && arguments == 0 {
        return Err(wrong_arity("script|exists"));
    }
    let known = ["LOAD", "EXISTS", "FLUSH"];
    match known.iter().any(|known| is(subcommand, known)) {
        true => Ok(()),
        false => Err(unknown_subcommand(subcommand, "SCRIPT")),
    }
}

pub(super) fn script(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    check_subcommand(call.args[1], call.args.len() - 2)?;
    let port = call.port;
    let subcommand = call.args[1];
    if is(subcommand, "LOAD") {
        let (sha, _) = load(call)?;
        out.bulk(show_sha(&sha).as_bytes());
    } else if is(subcommand, "EXISTS") {
        out.array(call.args.len() - 2);
        for text in &call.args[2..] {
            let known = parse_sha(text).is_some_and(|sha| port.script(&sha).is_some());
            out.integer(i64::from(known));
        }
    } else if is(subcommand, "FLUSH") {
        check_mode(&call.args[2..])?;
        port.flush_scripts();
        out.simple("OK");
    } else {
        return Err(unknown_subcommand(subcommand, "SCRIPT"));
    }
    Ok(())
}
