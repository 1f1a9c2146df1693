//! The commands on a data directory: they look at it and, when told to, replace a damaged log with
//! a new one. They talk to no server, and refuse a directory that a server uses.

mod json;

use super::failure::{Code, Failure, print};
use super::reading::Reading;
use super::text::time;
use super::view::to_line;
use clap::{Args, Subcommand};
use json::{DumpLine, VerifyReport};
use protocol::limits::{SESSION_TTL_MS_MAX, TTL_MS_MAX};
use server::config::parse_time;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use wal::{IoFailure, NewLog, Repair, RepairError, Repaired, ReplayError, Utc, WalError};

/// The longest lease that any server can have granted.
const LEASE_MAX: Duration = Duration::from_millis(if TTL_MS_MAX > SESSION_TTL_MS_MAX {
    TTL_MS_MAX as u64
} else {
    SESSION_TTL_MS_MAX as u64
});

const NOTES: &str = "\
The directory must not be in use: stop its server, or work on a copy. `verify` and `dump` change nothing.

Examples:
  The server refuses to start. What is wrong, and how much is there:
    fencepost wal verify fencepost-data

  What was written about one key:
    fencepost wal dump fencepost-data | grep orders/42
    fencepost wal dump fencepost-data --json | jq 'select(.key == \"orders/42\")'

  There is no copy from after the last stop to put back. Start above every fence that can have been issued:
    fencepost wal repair fencepost-data                 # says what it would do
    fencepost wal repair fencepost-data --accept-loss

`verify` says so if the directory is that of a cluster's node, and whether that is sound; `repair` leaves such a one alone.

Exit codes:
  0  a server starts with this log; after repair: now it does
  1  a server does not start with it: it is damaged, or a newer version wrote it; repair: or it is that of a node
  2  nothing was looked at or done: a wrong flag, no log there, in use, not readable, or no --accept-loss";

/// Look at a data directory, or repair it
#[derive(Args)]
#[command(after_help = NOTES, disable_help_subcommand = true)]
pub(super) struct WalArgs {
    #[command(subcommand)]
    command: WalCommand,
}

#[derive(Subcommand)]
enum WalCommand {
    Verify(VerifyArgs),
    Dump(DumpArgs),
    Repair(RepairArgs),
}

/// Read everything as a server would, and report
#[derive(Args)]
#[command(after_help = "\
A write that a crash cut short at the very end is reported and is no damage: no client had been told that it succeeded.

Exit codes: 0 sound, 1 damaged or from a newer version, 2 not looked at.")]
struct VerifyArgs {
    /// The data directory
    dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Print every record: file, offset and contents
#[derive(Args)]
#[command(after_help = "\
Records come in the order in which a server reads them: the newest snapshot, then the log behind it. At damage the dump \
says so, and goes on with every whole record that can be found in any file; with --json that is an object with \"damage\", \
and \"salvaged\" is true in those that follow. Times are UTC; in JSON they are milliseconds since 1970.

Exit codes: 0 sound, 1 damaged or from a newer version, 2 not looked at.")]
struct DumpArgs {
    /// The data directory
    dir: PathBuf,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Put a new log in the place of a damaged one, above every fence that can have been issued
#[derive(Args)]
#[command(after_help = "\
Put the directory back from a copy instead, if there is one from after the server's last stop. An older copy will not do: \
fences would come again.

What is lost: all leases and sessions. What is not: the order of fences. The next server begins far above the highest one \
that is found anywhere. As after a crash it grants nothing new until no old lease can be left, and lets holders claim what \
they have; if no lease was longer than, say, a minute, --lease-max 1m shortens that. The damaged files stay, under other names.

Exit codes: 0 repaired, or there was nothing to repair; 1 it cannot be repaired; 2 nothing was done.")]
struct RepairArgs {
    /// The data directory
    dir: PathBuf,
    /// Accept the loss and repair. Without this the command only says what it would do
    #[arg(long)]
    accept_loss: bool,
    /// No lease and no session had a longer time to live than this
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "24h")]
    lease_max: Duration,
}

pub(super) fn run(args: &WalArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        WalCommand::Verify(args) => verify(args),
        WalCommand::Dump(args) => dump(args),
        WalCommand::Repair(args) => repair(args),
    }
}

fn verify(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let reading = read_all(&args.dir);
    let report = wal::verify(&args.dir).map_err(|error| not_looked_at(&args.dir, error))?;
    drop(reading);
    if report.files.is_empty() && report.outcome.is_ok() {
        return Err(no_log(&args.dir));
    }
    if let Err(ReplayError::Io(failure)) = &report.outcome {
        return Err(not_readable(failure));
    }
    print(&match args.json {
        true => to_line(&VerifyReport::new(&report)),
        false => report.to_string(),
    })?;
    Ok(code_of(report.outcome.is_ok()))
}

/// All files of a log are read.
fn read_all(dir: &Path) -> Reading {
    Reading::begin(dir, |_| true)
}

fn dump(args: &DumpArgs) -> Result<ExitCode, Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut count = 0_u64;
    let dumped = wal::dump(&args.dir, &mut |entry| {
        count += 1;
        match args.json {
            true => out.write_all(to_line(&DumpLine::new(entry)).as_bytes()),
            false => writeln!(out, "{entry}"),
        }
    });
    let flushed = out.flush();
    let damage = match dumped {
        // A reader that stops early, like `head`, is no failure.
        Err(WalError::Io(failure)) if failure.source.kind() == io::ErrorKind::BrokenPipe => None,
        Err(error) => return Err(not_looked_at(&args.dir, error)),
        Ok(damage) => damage,
    };
    if let Err(error) = flushed
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let message = format_args!("cannot write to standard output: {error}");
        return Err(Failure::new(Code::Internal, message));
    }
    match damage {
        Some(ReplayError::Io(failure)) => Err(not_readable(&failure)),
        None if count == 0 => Err(no_log(&args.dir)),
        damage => Ok(code_of(damage.is_none())),
    }
}

fn repair(args: &RepairArgs) -> Result<ExitCode, Failure> {
    if args.lease_max > LEASE_MAX {
        return Err(Failure::usage(format_args!(
            "--lease-max: no lease can be longer than {}",
            time(LEASE_MAX)
        )));
    }
    let dir = args.dir.display();
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since_1970 = since_1970.map_err(|_| {
        Failure::usage("the clock of this machine shows a time before 1970; set it first")
    })?;
    let wish = Repair {
        accept_loss: args.accept_loss,
        now_unix_ms: since_1970.as_millis() as u64,
        lease_ms_max: args.lease_max.as_millis() as u64,
    };
    let reading = read_all(&args.dir);
    let repaired = wal::repair(&args.dir, &wish);
    drop(reading);
    match repaired {
        Ok(repaired) => {
            print(&format!(
                "repaired {dir}\n{}",
                outcome("kept as", &repaired)
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(RepairError::Sound) => {
            // An empty directory counts as sound too, and is most often the wrong one.
            let report = wal::verify(&args.dir).map_err(|error| not_looked_at(&args.dir, error))?;
            if report.files.is_empty() {
                return Err(no_log(&args.dir));
            }
            print(&format!(
                "{dir} is sound: a server starts with it as it is. Nothing was changed.\n"
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(RepairError::LossNotAccepted { damage, plan }) => {
            print(&format!(
                "what is wrong    {damage}\n\nWith --accept-loss this would be done:\n{}",
                outcome("would keep", &plan)
            ))?;
            let lost = match plan.log {
                Some(_) => "all leases and sessions",
                None => "all sessions",
            };
            Err(Failure::usage(format_args!(
                "nothing was changed: {lost} in {dir} would be lost, and --accept-loss was not given"
            )))
        }
        Err(RepairError::Wal(error)) => Err(not_looked_at(&args.dir, error)),
        Err(
            error @ (RepairError::Newer(_)
            | RepairError::OfACluster { .. }
            | RepairError::NoFencesLeft { .. }),
        ) => Err(Failure::new(Code::No, error)),
    }
}

/// What a repair does or did, as text.
fn outcome(kept: &str, repaired: &Repaired) -> String {
    let Repaired {
        log,
        is_key_new,
        moved,
    } = repaired;
    let mut text = match log {
        Some(NewLog {
            fence_found,
            ceiling,
            horizon_unix_ms,
        }) => format!(
            "highest fence    {fence_found} is the highest that was found\n\
             next fence       above {ceiling}\n\
             leases           all lost; none ends after {}\n\
             sessions         all lost\n",
            Utc(*horizon_unix_ms)
        ),
        None => "log              sound, and stays as it is\n\
                 leases           stay until they end\n\
                 sessions         none can be resumed\n"
            .to_owned(),
    };
    if *is_key_new {
        text.push_str("session key      a new one\n");
    }
    for name in moved {
        text.push_str(&format!("{kept:15}  {name}\n"));
    }
    text
}

fn code_of(is_sound: bool) -> ExitCode {
    match is_sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Code::No as u8),
    }
}

fn no_log(dir: &Path) -> Failure {
    Failure::usage(format_args!(
        "there is no log in {}; is it the right directory? A server that is started with it begins from nothing",
        dir.display()
    ))
}

fn not_readable(failure: &IoFailure) -> Failure {
    Failure::usage(format_args!(
        "{failure}. Whether the log is sound is not known; run this as the user that the server runs as"
    ))
}

fn not_looked_at(dir: &Path, error: WalError) -> Failure {
    let dir = dir.display();
    match error {
        WalError::Locked { .. } => Failure::usage(format_args!(
            "{dir} is in use. Stop its server first, or work on a copy of the directory"
        )),
        WalError::Io(failure) if failure.source.kind() == io::ErrorKind::NotFound => {
            Failure::usage(format_args!("{failure}. Give the server's --data-dir here"))
        }
        error => Failure::usage(error),
    }
}
