//! Clocks that are moved: Debian's `faketime` between a server and its wall clock.
//!
//! libfaketime is loaded into the server and reads a file whenever the server asks for the time, so
//! the clock of a running server can be set by writing to that file. The monotonic clock is left
//! alone: no program can set that one either.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What to install where it is missing.
const PACKAGE: &str = "faketime";

/// Where libfaketime keeps two files for each process, which it forgets when the process is killed.
const SHARED_MEMORY: &str = "/dev/shm";

/// The wall clock of one server.
pub(crate) struct FakeClock {
    library: String,
    file: PathBuf,
}

impl FakeClock {
    /// A clock that is right, for now. `directory` is where its setting is kept. The error says
    /// what to install.
    pub(crate) fn new(directory: &Path) -> Result<FakeClock, String> {
        let clock = FakeClock {
            library: library()?,
            file: directory.join("clock"),
        };
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets it so many seconds ahead of the right time, or behind it.
    pub(crate) fn set(&self, ahead_s: i64) -> Result<(), String> {
        // In one step, since the server may look at any time.
        let draft = self.file.with_extension("draft");
        std::fs::write(&draft, setting(ahead_s))
            .and_then(|()| std::fs::rename(&draft, &self.file))
            .map_err(|error| format!("{}: {error}", self.file.display()))
    }

    /// Has the program see this clock.
    pub(crate) fn put_under(&self, command: &mut Command) {
        command
            // Debian's Redis brings an allocator (jemalloc) that asks for the time before
            // libfaketime is ready to answer, and would hang. With libc named before it, libc's own
            // allocator is used instead.
            .env("LD_PRELOAD", format!("{}:libc.so.6", self.library))
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            // The same by its older and its newer name.
            .env("DONT_FAKE_MONOTONIC", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    /// Removes what libfaketime leaves behind of a process that was killed. The process must have
    /// been ours, and be gone.
    pub(crate) fn tidy(pid: u32) {
        for name in [
            format!("faketime_shm_{pid}"),
            format!("sem.faketime_sem_{pid}"),
        ] {
            // It is not there if the process never looked at the clock.
            let _ = std::fs::remove_file(Path::new(SHARED_MEMORY).join(name));
        }
    }
}

/// What libfaketime wants to read.
fn setting(ahead_s: i64) -> String {
    format!("{ahead_s:+}\n")
}

/// Where the library is, by the program that comes with it.
fn library() -> Result<String, String> {
    let asked = Command::new("faketime")
        .args(["-f", "+0", "printenv", "LD_PRELOAD"])
        .output();
    let missing =
        |why: String| format!("faketime: {why}; Debian's package {PACKAGE} brings a working one");
    let output = asked.map_err(|error| missing(error.to_string()))?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match path.is_empty() {
        true => Err(missing("it does not say where its library is".to_owned())),
        false => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_always_has_a_sign_since_without_one_it_would_be_a_date() {
        assert_eq!(setting(3_600), "+3600\n");
        assert_eq!(setting(-60), "-60\n");
        assert_eq!(setting(0), "+0\n");
    }

    #[test]
    fn a_program_sees_the_clock_that_was_put_under_it() {
        let directory = tempfile::tempdir().unwrap();
        let clock = match FakeClock::new(directory.path()) {
            Ok(clock) => clock,
            Err(why) => {
                assert!(why.contains(PACKAGE), "{why}");
                return eprintln!("NOT TESTED: a clock that is moved: {why}");
            }
        };
        let year = |ahead_s: i64| -> i32 {
            clock.set(ahead_s).unwrap();
            let mut command = Command::new("date");
            clock.put_under(command.arg("+%Y"));
            let output = command.output().unwrap();
            String::from_utf8(output.stdout)
                .unwrap()
                .trim()
                .parse()
                .unwrap()
        };
        let decade_s = 10 * 366 * 24 * 3_600;
        assert!(year(decade_s) - year(0) >= 10);
    }
}
