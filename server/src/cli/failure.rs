//! How a command fails: a sentence on standard error, and an exit code for scripts.

use std::fmt;
use std::process::ExitCode;

/// The program's own exit codes. Where `sysexits.h` has one, it is that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The server did its part, and the answer is no.
    No = 1,
    /// A flag, a setting or an argument is wrong. Nothing was done.
    Usage = 2,
    /// The server cannot be reached.
    Unreachable = 69,
    /// The server or this program failed.
    Internal = 70,
    /// The server cannot listen where it is to.
    Listen = 71,
    /// The server's disk is full. A running server whose disk fails ends with the same code.
    Disk = server::EXIT_DISK as isize,
    /// The lock could not be had in time.
    NotAcquired = 75,
    /// The lock was lost while the command ran, but the command ended with 0.
    Lost = 76,
    /// The server does not accept the token.
    Refused = 77,
    /// The command under the lock cannot be started.
    NotExecutable = 126,
    /// There is no such command.
    NotFound = 127,
}

#[cfg(test)]
impl Code {
    pub(crate) const ALL: [Code; 11] = [
        Code::No,
        Code::Usage,
        Code::Unreachable,
        Code::Internal,
        Code::Listen,
        Code::Disk,
        Code::NotAcquired,
        Code::Lost,
        Code::Refused,
        Code::NotExecutable,
        Code::NotFound,
    ];
}

/// What went wrong and what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Code::Usage, message)
    }

    /// Says it on standard error, in one line.
    pub(crate) fn report(&self) -> ExitCode {
        complain(&self.message);
        ExitCode::from(self.code as u8)
    }
}

/// Writes one line to standard error. A closed standard error is ignored.
pub(crate) fn complain(message: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "fencepost: {message}");
}

/// Writes to standard output. A reader that stops early, like `head`, is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    use std::io::{ErrorKind, Write};
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(
            Code::Internal,
            format_args!("cannot write to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}
