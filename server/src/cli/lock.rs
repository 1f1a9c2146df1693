//! `fencepost lock`: runs a command while holding a lock.

use super::child::{Child, Signals, exit_code};
use super::connect::{ServerArgs, run_async};
use super::failure::{Code, Failure, complain, print};
use super::text::{escaped, pairs, time};
use super::view;
use clap::Args;
use fencepost::{Client, Contention, Guard, LockError, Loss};
use protocol::{Fence, limits};
use rustix::process::Signal;
use serde::Serialize;
use server::config::{parse_time, show_time};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A shorter session would not outlive a brief failure of the network.
const SESSION_TTL_MIN: Duration = Duration::from_secs(10);

/// A lock that is not waited for needs a connection all the same, and that may take so long.
const CONNECT_MIN: Duration = Duration::from_secs(2);

/// What connecting leaves of a wait at least.
const WAIT_LEFT_MIN: Duration = Duration::from_millis(1);

/// Run a command while holding a lock
#[derive(Args)]
#[command(after_long_help = NOTES)]
pub(super) struct LockArgs {
    /// The key to lock
    key: OsString,
    /// How long the lock outlives this program if it is killed or cut off. Until then it is renewed
    /// in time
    #[arg(long, value_name = "TIME", value_parser = parse_ttl, default_value = "30s")]
    ttl: Duration,
    /// How long to wait for the lock, connecting included; 0 does not wait
    #[arg(long, value_name = "TIME", value_parser = parse_wait, default_value = "10s")]
    wait: Duration,
    /// Share the lock with other holders that ask for it shared
    #[arg(long)]
    shared: bool,
    /// A note that is shown to waiters and by `fencepost query`
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// How long the command has between TERM and KILL when the lock is lost
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5s")]
    kill_after: Duration,
    /// Run no command: take a lock that outlives this program, print its key and fence, and exit.
    /// It ends after --ttl, or when `fencepost release KEY --fence N` is run, on any machine
    #[arg(long, conflicts_with_all = ["command", "kill_after"])]
    detach: bool,
    /// The command and its arguments, after --
    #[arg(last = true, required_unless_present = "detach", value_name = "CMD")]
    command: Vec<OsString>,
    #[command(flatten)]
    server: ServerArgs,
}

// Paragraphs are single lines: clap breaks them to the width of the terminal.
const NOTES: &str = "\
The command finds the key in FENCEPOST_KEY and the fence of its lock in FENCEPOST_FENCE. Pass the fence on to the \
resource that the lock protects, and let it refuse fences smaller than one it has seen. Then a command that was stopped \
too late, or not at all, does no harm. If TRACEPARENT is set, the server's audit log has it beside the grant and the end.

When the lock is lost, because an operator released it or the server cannot be reached for too long, the command and \
what it has started get TERM, and KILL after --kill-after. At a terminal only the command itself does. TERM, INT, HUP, \
QUIT, USR1 and USR2 are passed on to the command.

If this program itself is ended by KILL, or for want of memory, the system ends the command with KILL, too (Linux). What \
the command has started in turn goes on then, and so does a command with rights of its own (set-user-ID, capabilities); \
the lock ends after --ttl, and only the fence protects against them.

Examples:
  One nightly job at a time, over all machines; the others give up at once:
    fencepost lock jobs/nightly --wait 0 -- ./nightly.sh

  Keep others out for an hour, after the end of this program too; then let them in again:
    fencepost lock maintenance --detach --ttl 1h
    fencepost release maintenance --fence 1836311903

  Hand the fence to the protected resource:
    fencepost lock reports/2026 -- sh -c 'upload --if-fence-above \"$FENCEPOST_FENCE\" report.pdf'

Exit codes: those of the command, 128+n if signal n ended it; 75 if the lock could not be had in time; 76 if the lock \
was lost and the command ended with 0 all the same; 69, 70, 77, 126 and 127 as in `fencepost --help`. If no server, or none \
that leads, is reached within --wait (2 s at least, --timeout at most), that is 69 and not 75: who holds the lock is not known.";

fn parse_ttl(text: &str) -> Result<Duration, String> {
    parse_time_within(text, Duration::from_millis(1), limits::TTL_MS_MAX)
}

fn parse_wait(text: &str) -> Result<Duration, String> {
    parse_time_within(text, Duration::ZERO, limits::WAIT_MS_MAX)
}

fn parse_time_within(text: &str, min: Duration, ms_max: u32) -> Result<Duration, String> {
    let max = Duration::from_millis(ms_max.into());
    match parse_time(text)? {
        time if (min..=max).contains(&time) => Ok(time),
        _ => Err(format!(
            "{} to {} are allowed",
            show_time(min),
            show_time(max)
        )),
    }
}

impl LockArgs {
    fn key(&self) -> view::Key {
        view::Key::new(self.key.as_bytes())
    }

    /// The client's name for the server and its waiters: the command, the process and the machine.
    fn name(&self) -> String {
        let command = self
            .command
            .first()
            .map_or(Path::new("detached"), Path::new);
        let command = command.file_name().unwrap_or(command.as_os_str());
        let machine = rustix::system::uname();
        format!(
            "{}, pid {} on {}",
            command.to_string_lossy(),
            std::process::id(),
            machine.nodename().to_string_lossy(),
        )
    }
}

pub(super) fn run(args: LockArgs) -> Result<ExitCode, Failure> {
    run_async(async {
        let mut signals = Signals::catch()?;
        // No command runs yet, so a signal ends this program. The server learns of it: a dropped
        // acquire is cancelled there, and a closed client ends its session.
        let (client, guard) = tokio::select! {
            biased;
            signal = signals.next() => return Ok(ExitCode::from(code_of(signal))),
            acquired = acquire(&args) => match acquired? {
                Some(acquired) => acquired,
                None => return Ok(ExitCode::from(Code::NotAcquired as u8)),
            },
        };
        let code = match args.detach {
            true => report_detached(&args, &guard),
            false => run_under(&args, guard, &mut signals).await,
        };
        // The lock is released or lost already. If closing fails, the session ends by itself.
        let _ = client.close().await;
        code
    })
}

/// `None`: another holder has it, and has been reported.
async fn acquire(args: &LockArgs) -> Result<Option<(Client, Guard)>, Failure> {
    // The session must not end before the lock does.
    let session_ttl = args.ttl.max(SESSION_TTL_MIN);
    let began = Instant::now();
    let connect_max = args.wait.max(CONNECT_MIN).min(args.server.timeout);
    let client = args
        .server
        .connect(&args.name(), Some(session_ttl), connect_max)
        .await?;
    let mut request = client
        .lock(args.key.as_bytes())
        .ttl(args.ttl)
        .wait(left_of(args.wait, began.elapsed()));
    if args.shared {
        request = request.shared();
    }
    if args.detach {
        request = request.detached();
    }
    if let Some(note) = &args.note {
        request = request.metadata(note.as_bytes());
    }
    match request.acquire().await {
        Ok(guard) => Ok(Some((client, guard))),
        Err(LockError::NotAcquired(contention)) => {
            report_contention(args, contention);
            let _ = client.close().await;
            Ok(None)
        }
        Err(LockError::Lost(loss)) => Err(Failure::new(
            Code::NotAcquired,
            format_args!("the lock was lost before it arrived: {}", reason_of(loss)),
        )),
        Err(LockError::Failed(error)) => Err(args.server.failure_of(error)),
        Err(error) => Err(Failure::new(Code::Internal, error)),
    }
}

/// What connecting has left of the wait. Of one that was asked for something is always left, since
/// a server answers an acquire that does not wait in another way.
fn left_of(wait: Duration, connecting: Duration) -> Duration {
    let left = wait.saturating_sub(connecting);
    left.max(wait.min(WAIT_LEFT_MIN))
}

async fn run_under(
    args: &LockArgs,
    guard: Guard,
    signals: &mut Signals,
) -> Result<ExitCode, Failure> {
    let fence = guard.fence();
    let fence_text = fence.to_string();
    let environment = [
        ("FENCEPOST_KEY", args.key.as_os_str()),
        ("FENCEPOST_FENCE", OsStr::new(&fence_text)),
    ];
    let mut child = Child::spawn(&args.command, &environment)?;
    let lost = guard.lost();
    tokio::pin!(lost);
    loop {
        tokio::select! {
            // First the command's end: an ended command is not stopped. Then the loss of the lock,
            // before any signal.
            biased;
            status = child.wait() => {
                let code = exit_code(status?);
                // If the lock was lost just now, the command had ended before.
                let _ = guard.release().await;
                return Ok(ExitCode::from(code));
            }
            loss = &mut lost => {
                report_loss(args, fence, loss);
                let status = child.stop(args.kill_after, signals).await?;
                return Ok(ExitCode::from(match exit_code(status) {
                    0 => Code::Lost as u8,
                    code => code,
                }));
            }
            signal = signals.next() => child.forward(signal),
        }
    }
}

/// Prints key and fence, which are all that a release needs. The lock outlives the guard.
fn report_detached(args: &LockArgs, guard: &Guard) -> Result<ExitCode, Failure> {
    let fence = guard.fence().get();
    let text = match args.server.json {
        true => view::to_line(&Detached {
            key: args.key(),
            fence,
            ttl_ms: args.ttl.as_millis() as u64,
        }),
        false => pairs(&[
            ("key", escaped(args.key.as_bytes())),
            ("fence", fence.to_string()),
            ("ends in", time(args.ttl)),
        ]),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn code_of(signal: Signal) -> u8 {
    128 + signal.as_raw() as u8
}

fn report_contention(args: &LockArgs, contention: Contention) {
    let queue_length = contention.queue_length;
    let recovering = contention.recovering();
    let holder = contention.holder.map(view::Holder::from);
    if args.server.json {
        complain_json(&NotAcquired {
            key: args.key(),
            acquired: false,
            holder,
            queue_length,
            recovering_ms: recovering.map(|left| left.as_millis() as u64),
        });
        return;
    }
    let holder = match (holder, recovering) {
        (Some(holder), _) => holder.describe(),
        (None, Some(left)) => format!(
            "the server is {}, and the key may be held",
            view::recovering(left)
        ),
        (None, None) => "it changed hands just now".to_owned(),
    };
    complain(&format!(
        "{} could not be had within {}: {holder}; {queue_length} waiting. Wait longer with --wait",
        escaped(args.key.as_bytes()),
        time(args.wait),
    ));
}

fn report_loss(args: &LockArgs, fence: Fence, loss: Loss) {
    if args.server.json {
        complain_json(&Lost {
            key: args.key(),
            fence: fence.get(),
            lost: true,
            reason: reason_of(loss).to_owned(),
        });
    } else {
        let key = escaped(args.key.as_bytes());
        let reason = reason_of(loss);
        complain(&format!(
            "the lock {key} with fence {fence} is lost: {reason}. Stopping the command"
        ));
    }
}

/// The reason in words for the log of a job.
fn reason_of(loss: Loss) -> &'static str {
    match loss {
        Loss::Forced => "an operator released it",
        Loss::Superseded => "after a restart of the server a newer holder claimed it",
        // The session's TTL follows --ttl, too: see `acquire`.
        Loss::Expired => {
            "its time ran out before a renewal arrived; a longer --ttl survives longer silence"
        }
        Loss::SessionEnded => {
            "the session ended on the server; a longer --ttl makes its time longer, too"
        }
        Loss::DeadlinePassed | Loss::SessionDeadlinePassed => {
            "the server did not confirm it in time: it cannot be reached, or this program was paused; a longer --ttl survives longer silence"
        }
        _ => "the server says that it is not ours",
    }
}

/// Writes to standard error, since standard output is the command's.
fn complain_json(object: &impl Serialize) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(view::to_line(object).as_bytes());
}

/// What `--json` prints of a detached lock.
#[derive(Serialize)]
struct Detached {
    #[serde(flatten)]
    key: view::Key,
    fence: u64,
    ttl_ms: u64,
}

/// What `--json` prints if the lock was not acquired.
#[derive(Serialize)]
struct NotAcquired {
    #[serde(flatten)]
    key: view::Key,
    acquired: bool,
    holder: Option<view::Holder>,
    queue_length: u32,
    /// The server recovers: it does not know all holders for this much longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovering_ms: Option<u64>,
}

/// What `--json` prints if the lock is lost and the command has to be stopped.
#[derive(Serialize)]
struct Lost {
    #[serde(flatten)]
    key: view::Key,
    fence: u64,
    lost: bool,
    reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connecting_is_taken_off_the_wait() {
        let ms = Duration::from_millis;
        assert_eq!(left_of(ms(2_000), ms(500)), ms(1_500));
        assert_eq!(left_of(ms(50), ms(60)), ms(1));
        assert_eq!(left_of(ms(0), ms(60)), ms(0));
    }
}
