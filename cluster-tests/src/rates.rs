//! Clocks that run too fast: Debian's `faketime` between a node and all its clocks, the monotonic
//! one included.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Where libfaketime keeps two files for each process, which it forgets when the process is killed.
const SHARED_MEMORY: &str = "/dev/shm";

/// How fast the clocks of a node run.
#[derive(Clone, Debug)]
pub struct Rate {
    library: OsString,
    /// As a part of the right rate: 1.005 is half a percent too fast.
    rate: f64,
}

impl Rate {
    /// Clocks that run at this rate. The error says what to install.
    pub fn new(rate: f64) -> Result<Rate, String> {
        let asked = Command::new("faketime")
            .args(["-m", "-f", "+0", "printenv", "LD_PRELOAD"])
            .output();
        let missing = |why: &str| format!("faketime: {why}; install Debian's package faketime");
        let output = asked.map_err(|error| missing(&error.to_string()))?;
        let library = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match library.is_empty() {
            true => Err(missing("it does not say where its library is")),
            false => Ok(Rate {
                library: library.into(),
                rate,
            }),
        }
    }

    /// What a process needs in its environment to have them.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.library.clone()),
            ("FAKETIME", format!("+0 x{}", self.rate).into()),
        ]
    }
}

/// Removes what libfaketime leaves behind of a process that was killed. The process must have been
/// ours, and be gone.
pub fn tidy(pid: u32) {
    for name in [
        format!("faketime_shm_{pid}"),
        format!("sem.faketime_sem_{pid}"),
    ] {
        // It is not there if the process never looked at a clock.
        let _ = std::fs::remove_file(Path::new(SHARED_MEMORY).join(name));
    }
}
