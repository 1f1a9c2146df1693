//! Where the writer writes to: a file, or memory in tests.

use std::io::{self, Write};

/// Where lines are written to.
pub(super) trait Sink: Write {
    /// Waits until what was written has reached the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Called between two lines, of which the last one has this number. Goes on in the next file,
    /// if there is one or this one is large enough.
    fn turn_over(&mut self, _last_seq: u64) {}
}
