//! Ties the command under a lock to the program that holds the lock: if `fencepost lock` is ended
//! by KILL, the kernel ends its command, too. Otherwise the command would work on, and another
//! holder would join it when the lease is over.
//!
//! The kernel's means is the parent-death signal (`PR_SET_PDEATHSIG`). A process can ask for it
//! only for itself, and between fork and exec only unsafe code runs. So `lock` starts this program
//! once more, with the hidden command `tied`: it asks for the signal, which stays over an exec, and
//! becomes the command.
//!
//! What it does not reach: what the command has started in turn, and a command that the kernel
//! frees of the signal because it runs with other rights (set-user-ID, set-group-ID, capabilities).

use super::failure::{Code, Failure};
use clap::Args;
use rustix::process::{Pid, getppid};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// This program, also where its file has been replaced since it was started.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Become a command that ends with this parent
#[derive(Args)]
pub(super) struct TiedArgs {
    /// The process that started this one
    parent: i32,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The command line that runs `command` tied to this process. The command itself where there is no
/// `/proc` to start this program from.
pub(super) fn tie(command: &[OsString]) -> Command {
    if !cfg!(target_os = "linux") || !Path::new(THIS_PROGRAM).exists() {
        let (program, arguments) = command.split_first().expect("clap asks for one at least");
        let mut plain = Command::new(program);
        plain.args(arguments);
        return plain;
    }
    let parent = std::process::id().to_string();
    let mut tied = Command::new(THIS_PROGRAM);
    tied.arg0("fencepost")
        .args([OsStr::new("tied"), OsStr::new(&parent), OsStr::new("--")])
        .args(command);
    tied
}

/// Becomes the command. Returns only if it cannot.
pub(super) fn run(args: &TiedArgs) -> Result<ExitCode, Failure> {
    tie_to_parent(args.parent)?;
    let (program, arguments) = args
        .command
        .split_first()
        .expect("clap asks for one at least");
    let error = Command::new(program).args(arguments).exec();
    Err(cannot_run(program, &error))
}

fn tie_to_parent(parent: i32) -> Result<(), Failure> {
    // KILL: no later signal could follow one that the command takes its time with.
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| {
            let sentence = format_args!("cannot tie the command to its lock: {error}");
            Failure::new(Code::Internal, sentence)
        })?;
    }
    // A parent that died before that sends nothing; by now this process has another.
    match getppid().map(Pid::as_raw_pid) == Some(parent) {
        true => Ok(()),
        false => Err(Failure::new(
            Code::Lost,
            "the program that held the lock is gone; the command was not started",
        )),
    }
}

/// Why a command was not started.
pub(super) fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::NotFound,
        _ => Code::NotExecutable,
    };
    let program = program.display();
    Failure::new(code, format_args!("cannot run {program}: {error}"))
}
