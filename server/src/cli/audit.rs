//! `fencepost audit`: what the files of an audit log tell about one key. Needs no server.

use super::failure::{Code, Failure, print};
use super::reading::Reading;
use super::text::{escaped, plural, time};
use super::view::to_line;
use clap::Args;
use serde::Serialize;
use server::config::parse_time;
use server::history::{self, Answer, AuditKey, Coverage, Entry, Hold, Party, TimeSpan};
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);

/// Tell who held a key at some time, or what happened to it, from the files of the audit log
#[derive(Args)]
#[command(after_help = "\
TIME is like 2026-11-18T10:03:17Z or \"2026-11-18 10:03:17.250\", a time of day like 10:03:17 (the last such moment), how \
long ago like 90s or 5m, or now. All times are UTC.

The files are the one that the server writes (its setting audit_log) and those beside it that were rotated; all are read, \
oldest first. The server need not run. Of a cluster each node has a log of its own, which tells of the times when it led: \
give them all, with --log for each.

Exit codes: 0 the files tell; 1 they cannot tell for certain, and the output says why; 2 a wrong argument, or no such log.

Examples:
  fencepost audit orders/42 --at 10:03:17 --log /var/log/fencepost/audit.log
  fencepost audit orders/42 --since 1h --log audit.log
  fencepost audit orders/42 --at 2026-11-18T10:03:17Z --json --log node1.log --log node2.log --log node3.log")]
pub(super) struct AuditArgs {
    /// The key
    key: OsString,
    /// Tell who held it at this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment, required_unless_present = "since", conflicts_with_all = ["since", "until"])]
    at: Option<SystemTime>,
    /// Tell what happened to it from this time on
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    since: Option<SystemTime>,
    /// Up to this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment, requires = "since")]
    until: Option<SystemTime>,
    /// The file that the server writes: its setting audit_log. May be given again, for each node of
    /// a cluster
    #[arg(
        long,
        value_name = "FILE",
        env = "FENCEPOST_AUDIT_LOG",
        hide_env_values = true,
        required = true
    )]
    log: Vec<PathBuf>,
    /// The Redis database of the key. Native clients use 0
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..16))]
    db: u8,
    /// Print JSON: one object with --at, one for each line and one for what the files cover
    /// otherwise
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &AuditArgs) -> Result<ExitCode, Failure> {
    match args.at {
        Some(at) => tell_holders(args, at),
        None => tell_lines(args),
    }
}

impl AuditArgs {
    fn key(&self) -> AuditKey<'_> {
        AuditKey {
            key: self.key.as_bytes(),
            db: self.db,
        }
    }
}

fn reading_of(log: &Path) -> Reading {
    Reading::begin(directory_of(log), |name| is_of(log, name))
}

/// Where the files of a log are.
fn directory_of(log: &Path) -> &Path {
    match log.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    }
}

/// Whether a file belongs to a log: rotated ones have its name and more.
fn is_of(log: &Path, name: &str) -> bool {
    let own = log.file_name().and_then(|own| own.to_str());
    own.is_some_and(|own| name.starts_with(own))
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    Failure::usage(match error.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no audit log {path}. Which file it is says the server's setting audit_log (`fencepost serve --print-config`)"
        ),
        _ => format!("cannot read the audit log {path}: {error}"),
    })
}

/// The JSON of `--at`, for one log.
#[derive(Serialize)]
struct OfLog<'a> {
    log: String,
    #[serde(flatten)]
    answer: &'a Answer,
}

fn tell_holders(args: &AuditArgs, at: SystemTime) -> Result<ExitCode, Failure> {
    let mut answers = Vec::new();
    for log in &args.log {
        let reading = reading_of(log);
        let answer = history::holders_at(log, args.key(), at);
        drop(reading);
        answers.push(answer.map_err(|error| cannot_read(log, &error))?);
    }
    // Of several nodes, one that knows is enough.
    let knows = |answer: &&Answer| answer.is_certain;
    let best = answers
        .iter()
        .find(|answer| answer.is_certain && !answer.holders.is_empty())
        .or_else(|| answers.iter().find(knows));
    let text = if args.json {
        let of_logs = args.log.iter().zip(&answers).map(|(log, answer)| OfLog {
            log: log.display().to_string(),
            answer,
        });
        let of_logs: Vec<OfLog<'_>> = of_logs.collect();
        match (&of_logs[..], best) {
            ([one], _) => to_line(one),
            (_, best) => to_line(&serde_json::json!({
                "is_certain": best.is_some(),
                "holders": best.map(|answer| &answer.holders),
                "logs": of_logs,
            })),
        }
    } else {
        let key = escaped(args.key.as_bytes());
        let mut text = String::new();
        match best {
            Some(best) => text.push_str(&told(&key, best)),
            None => answers
                .iter()
                .for_each(|answer| text.push_str(&told(&key, answer))),
        }
        for (log, answer) in args.log.iter().zip(&answers) {
            text.push_str(&covered(&log.display().to_string(), &answer.coverage));
        }
        text
    };
    print(&text)?;
    Ok(match best {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::from(Code::No as u8),
    })
}

/// The answer of one log, for people.
fn told(key: &str, answer: &Answer) -> String {
    let at = &answer.at;
    let mut text = match (&answer.holders[..], answer.is_certain) {
        ([], true) => format!("{key} was free at {at}\n"),
        ([], false) => format!("whether {key} was held at {at} is not certain\n"),
        ([_], true) => format!("{key} was held at {at}\n"),
        ([_], false) => format!("{key} was probably held at {at}\n"),
        (holders, _) => format!("{key} was shared by {} at {at}\n", holders.len()),
    };
    for hold in &answer.holders {
        text.push_str(&described(hold));
    }
    for note in &answer.notes {
        text.push_str(&format!("  note: {}\n", escaped(note.as_bytes())));
    }
    text
}

fn described(hold: &Hold) -> String {
    let mode = if hold.is_shared { ", shared" } else { "" };
    let known_by = match hold.known_by.as_str() {
        "grant" => "",
        "claim" => " (claimed then: it held the lock before)",
        "restore" => " (put back by a later start)",
        _ => " (from the line of its end)",
    };
    let until = match (&hold.until, &hold.ended) {
        (Some(until), Some(ended)) => format!("{until} ({})", escaped(ended.as_bytes())),
        (Some(until), None) => until.clone(),
        (None, _) => "no line tells of its end".to_owned(),
    };
    let mut text = format!(
        "  by       {}\n  fence    {}{mode}\n  since    {}{known_by}\n  until    {until}\n",
        named(&hold.party),
        hold.fence,
        hold.since,
    );
    if let Some(by) = &hold.forced_by {
        text.push_str(&format!("  taken by {}\n", named(by)));
    }
    text
}

/// A client in one line.
fn named(party: &Party) -> String {
    let mut text = match party.client_name.as_deref() {
        None => "a client whose session has ended".to_owned(),
        Some("") => "a client without a name".to_owned(),
        Some(name) => escaped(name.as_bytes()),
    };
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!(", {name} {value}"));
        }
    };
    let safe = |text: &Option<String>| text.as_ref().map(|text| escaped(text.as_bytes()));
    add("session", party.session_id.map(|id| id.to_string()));
    add("from", safe(&party.address));
    add("token", safe(&party.token_name));
    // With its bytes in hex beside it, it is escaped already.
    let owner = match party.owner_token_hex {
        Some(_) => party.owner_token.clone(),
        None => safe(&party.owner_token),
    };
    add("owner token", owner);
    add("trace", safe(&party.trace_id));
    text
}

/// What the files cover, and what is missing.
fn covered(log: &str, coverage: &Coverage) -> String {
    let (Some(first), Some(last)) = (&coverage.first_time, &coverage.last_time) else {
        return format!("{log} has no lines\n");
    };
    let files = plural(coverage.files as u64, "file");
    let lines = plural(coverage.lines, "line");
    let mut text = format!("{log}: {files}, {lines}, from {first} to {last}");
    if coverage.is_whole() {
        text.push_str("; none is missing\n");
        return text;
    }
    text.push('\n');
    if coverage.dropped > 0 {
        let dropped = plural(coverage.dropped, "event");
        text.push_str(&format!("  the server dropped {dropped}\n"));
    }
    for gap in &coverage.gaps {
        text.push_str(&format!(
            "  {} missing between number {} of {} and number {}\n",
            match gap.missing {
                0 => "numbers begin anew: lines may be".to_owned(),
                1 => "1 line is".to_owned(),
                many => format!("{many} lines are"),
            },
            gap.after_seq,
            gap.after_time,
            gap.before_seq
        ));
    }
    if coverage.damaged > 0 {
        let damaged = plural(coverage.damaged, "line");
        text.push_str(&format!("  {damaged} cannot be read\n"));
    }
    for unread in &coverage.unread {
        text.push_str(&format!("  not read: {}\n", escaped(unread.as_bytes())));
    }
    text
}

fn tell_lines(args: &AuditArgs) -> Result<ExitCode, Failure> {
    let span = TimeSpan {
        since: args.since,
        until: args.until,
    };
    let mut is_whole = true;
    for log in &args.log {
        let mut failure = None;
        // On a terminal, lines and the progress of their search would stand in each other's way.
        let reading = (!io::stdout().is_terminal()).then(|| reading_of(log));
        let coverage = history::each_entry(log, args.key(), span, |entry| {
            let text = if args.json {
                to_line(entry)
            } else {
                line(entry)
            };
            failure = print(&text).err();
            failure.is_none()
        });
        drop(reading);
        let coverage = coverage.map_err(|error| cannot_read(log, &error))?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        let name = log.display().to_string();
        print(&match args.json {
            true => to_line(&serde_json::json!({ "log": name, "coverage": coverage })),
            false => covered(&name, &coverage),
        })?;
        let is_covered = coverage.first_time.as_deref().is_some_and(|first| {
            let first = parse_moment(first).ok();
            args.since
                .zip(first)
                .is_some_and(|(since, first)| since >= first)
        });
        if !is_covered && !args.json {
            print("  the files begin later than what was asked for\n")?;
        }
        is_whole &= coverage.is_whole() && is_covered;
    }
    Ok(match is_whole {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Code::No as u8),
    })
}

/// One line of the log, for people.
fn line(entry: &Entry) -> String {
    let mut text = format!("{}  {:<10}", entry.time, entry.event);
    if entry.is_of_server() {
        let about = match entry.event.as_str() {
            "start" => format!(
                "the server started; the last stop was {}, {} put back, {} had run out{}",
                match entry.last_stop.as_deref() {
                    Some("clean") => "in good order",
                    Some("crash") => "without notice",
                    Some("none") => "not known: this is the first start",
                    _ => "not known",
                },
                plural(entry.restored.unwrap_or(0), "lock"),
                plural(entry.lapsed.unwrap_or(0), "lease"),
                match entry.grace_ms {
                    Some(grace_ms @ 1..) => format!(
                        ", holders may claim theirs for {}",
                        time(Duration::from_millis(grace_ms))
                    ),
                    _ => String::new(),
                }
            ),
            "stop" => "the server stopped in good order".to_owned(),
            "dropped" => format!(
                "the server dropped {}",
                plural(entry.dropped.unwrap_or(0), "event")
            ),
            "grace_over" => format!(
                "the grace period is over; {} claimed, and what was not is gone",
                plural(entry.claimed.unwrap_or(0), "lock")
            ),
            "lead" => format!(
                "this node leads, in term {}; {} put back",
                entry.term.unwrap_or(0),
                plural(entry.restored.unwrap_or(0), "lock")
            ),
            "follow" => "this node leads no more".to_owned(),
            _ => String::new(),
        };
        text.push_str(&about);
    } else {
        let party = Party::of(entry);
        match (&entry.what, &entry.why) {
            (Some(what), Some(why)) => {
                let (what, why) = (escaped(what.as_bytes()), escaped(why.as_bytes()));
                text.push_str(&format!("{what}: {why}"));
            }
            _ => text.push_str(&format!("fence {}", entry.fence.unwrap_or(0))),
        }
        if let Some(ended) = &entry.ended {
            text.push_str(&format!(", {}", escaped(ended.as_bytes())));
        }
        if let Some(wait_ms @ 1..) = entry.wait_ms {
            text.push_str(&format!(
                ", waited {}",
                time(Duration::from_millis(wait_ms))
            ));
        }
        if let Some(held_ms) = entry.held_ms {
            text.push_str(&format!(", held {}", time(Duration::from_millis(held_ms))));
        }
        text.push_str(&format!(", by {}", named(&party)));
    }
    let text = text.trim_end();
    format!("{text}\n")
}

/// Reads a moment.
fn parse_moment(text: &str) -> Result<SystemTime, String> {
    parse_moment_from(text, SystemTime::now())
}

fn parse_moment_from(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    if text == "now" {
        return Ok(now);
    }
    if let Ok(moment) = humantime::parse_rfc3339_weak(text) {
        return Ok(moment);
    }
    if let Ok(ago) = parse_time(text) {
        let moment = now.checked_sub(ago);
        return moment.ok_or_else(|| format!("{text} ago is before 1970"));
    }
    // A time of day, of today or, if that is yet to come, of yesterday.
    let midnight = humantime::format_rfc3339_seconds(now).to_string();
    let today = midnight.split('T').next().unwrap_or_default();
    let text_of_day = match text.matches(':').count() {
        1 => format!("{text}:00"),
        _ => text.to_owned(),
    };
    let moment = humantime::parse_rfc3339_weak(&format!("{today}T{text_of_day}"));
    match moment {
        Ok(moment) if moment > now => Ok(moment - DAY),
        Ok(moment) => Ok(moment),
        Err(_) => Err(format!(
            "{text:?} is no time, write one like 2026-11-18T10:03:17Z, 10:03:17 (UTC), 5m (ago) or now"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_in_all_forms_that_the_help_names() {
        let at = |text: &str| humantime::parse_rfc3339(text).unwrap();
        let now = at("2026-11-18T10:05:00Z");
        for (text, expected) in [
            ("now", "2026-11-18T10:05:00Z"),
            ("2026-11-18T10:03:17Z", "2026-11-18T10:03:17Z"),
            ("2026-11-18 10:03:17.250", "2026-11-18T10:03:17.250Z"),
            ("10:03:17", "2026-11-18T10:03:17Z"),
            ("10:03", "2026-11-18T10:03:00Z"),
            ("10:03:17.5", "2026-11-18T10:03:17.5Z"),
            ("23:00:00", "2026-11-17T23:00:00Z"),
            ("5m", "2026-11-18T10:00:00Z"),
        ] {
            assert_eq!(parse_moment_from(text, now), Ok(at(expected)), "{text}");
        }
        for text in ["", "yesterday", "25:00:00", "10", "2026-13-01T00:00:00Z"] {
            assert!(parse_moment_from(text, now).is_err(), "{text}");
        }
    }

    #[test]
    fn what_clients_chose_cannot_move_the_readers_cursor() {
        let party = Party {
            client_name: Some("a\x1b[2J\n".to_owned()),
            owner_token: Some("t\r".to_owned()),
            ..Party::default()
        };
        assert_eq!(named(&party), "a\\u{1b}[2J\\n, owner token t\\r");
    }
}
