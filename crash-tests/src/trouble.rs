//! What befalls the server and its clients besides kills.

use crate::checker::Kept;
use clap::ValueEnum;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use wal::{Repair, RepairError};

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Trouble {
    /// The server, or half of the clients, is stopped (SIGSTOP) for up to 1.5 s; the server is
    /// killed in that state now and then
    Pauses,
    /// The server's wall clock is set, by 0.3 s to an hour: in either direction while it runs, back
    /// while it does not
    Clocks,
    /// Lives in fence and in lease follow one another on one directory
    Modes,
    /// Between two lives the log is damaged and repaired, which loses all leases and sessions:
    /// holders claim what they have
    Repairs,
}

impl Trouble {
    /// Whether a server that promises this can be expected to keep it.
    pub fn applies_to(self, mode: Kept) -> bool {
        match self {
            Trouble::Pauses => true,
            // Without a log, and without waiting, a clock is all that there is.
            Trouble::Clocks | Trouble::Modes | Trouble::Repairs => mode.keeps_promises(),
        }
    }

    /// Whether there are lives that do not know what was given back in the one before.
    pub(crate) fn forgets(self) -> bool {
        matches!(self, Trouble::Modes | Trouble::Repairs)
    }
}

/// How long server or clients stand still: about as long as their leases last.
pub(crate) const PAUSE_MS: std::ops::Range<u64> = 20..1_500;

/// A clock is set by one of these, in milliseconds. The server once overlooked steps below half a
/// second.
pub const STEPS_MS: [i64; 5] = [300, 450, 2_000, 60_000, 3_600_000];

/// The server looks at its clock every 100 ms, and what happens in between it cannot know: see
/// `docs/wal.md`. On a busy machine that takes longer.
pub(crate) const STEP_NOTICED: Duration = Duration::from_millis(500);

/// No lease and no session of a run lasts longer.
const LEASE_MS_MAX: u64 = 2_500;

/// Where the first record of a segment begins, and its kind in it: see `docs/wal.md`.
const FIRST_KIND_OFFSET: u64 = 4_096 + 20;

/// Damages the log in a way that a server notices, and repairs it. `false`: there was too little of
/// it.
pub(crate) fn damage_and_repair(dir: &Path, now_unix_ms: u64) -> Result<bool, String> {
    let system = |error: std::io::Error| format!("cannot damage the log: {error}");
    let names = || -> std::io::Result<Vec<String>> {
        let names = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().into_string()));
        let names: std::io::Result<Vec<_>> = names.collect();
        Ok(names?.into_iter().flatten().collect())
    };
    let newest = names().map_err(system)?.into_iter();
    let newest = newest.filter(|name| name.starts_with("segment-")).max();
    let Some(newest) = newest else {
        return Ok(false);
    };
    let mut open = OpenOptions::new();
    let file = open.read(true).write(true).open(dir.join(newest));
    let file = file.map_err(system)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, FIRST_KIND_OFFSET)
        .map_err(system)?;
    let flipped = [byte[0] ^ 0x80];
    file.write_all_at(&flipped, FIRST_KIND_OFFSET)
        .map_err(system)?;
    let wish = Repair {
        accept_loss: true,
        now_unix_ms,
        lease_ms_max: LEASE_MS_MAX,
    };
    match wal::repair(dir, &wish) {
        Ok(_) => {}
        // Nothing stands behind the damage that proves it: a server would take it for an unfinished
        // write.
        Err(RepairError::Sound) => {
            file.write_all_at(&byte, FIRST_KIND_OFFSET)
                .map_err(system)?;
            return Ok(false);
        }
        Err(error) => return Err(format!("cannot repair the log: {error}")),
    }
    // A long run would fill the disk with what repair puts aside.
    for name in names().map_err(system)? {
        if name.starts_with("damaged-") {
            fs::remove_file(dir.join(name)).map_err(system)?;
        }
    }
    Ok(true)
}
