//! How far a command is that reads large files, and how long it still takes: a line on a terminal,
//! nothing elsewhere. It goes to standard error and is gone when the command is done.
//!
//! How much has been read is the kernel's count for this process, so the code that reads reports
//! nothing. Where the kernel does not count (no `/proc`), no line is shown.

use super::text::time;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The first line comes after this, so that short commands show none, and the next ones as often.
const TICK: Duration = Duration::from_secs(1);

/// A command that reads. Its end takes the line away.
pub(super) struct Reading {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reading {
    /// Of the files in a directory that have such names.
    pub(super) fn begin(dir: &Path, is_read: impl Fn(&str) -> bool) -> Reading {
        let total = bytes_of(dir, is_read);
        let (end, ended) = mpsc::channel();
        let thread = std::io::stderr().is_terminal().then(|| {
            std::thread::spawn(move || {
                let begun = Instant::now();
                let Some(before) = bytes_read() else {
                    return;
                };
                let mut stderr = std::io::stderr();
                while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TICK) {
                    let read = bytes_read().unwrap_or(before).saturating_sub(before);
                    let text = line(read, total, begun.elapsed());
                    // A terminal that is gone wants no line.
                    let _ = write!(stderr, "\r\x1b[K{text}");
                }
                if begun.elapsed() >= TICK {
                    let _ = write!(stderr, "\r\x1b[K");
                }
            })
        });
        Reading {
            end: Some(end),
            thread,
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to say any more.
            let _ = thread.join();
        }
    }
}

/// What the files take. What cannot be looked at does not count.
fn bytes_of(dir: &Path, is_read: impl Fn(&str) -> bool) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let read = entries.filter(|entry| entry.file_name().to_str().is_some_and(&is_read));
    let sizes = read.filter_map(|entry| entry.metadata().ok());
    sizes.map(|file| file.len()).sum()
}

/// How many bytes this process has asked files for, whether or not they came from a disk.
fn bytes_read() -> Option<u64> {
    let counts = std::fs::read_to_string("/proc/self/io").ok()?;
    let count = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
    count?.parse().ok()
}

fn line(read: u64, total: u64, after: Duration) -> String {
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let mut text = format!("read {:.1} of {:.1} GB", gb(read), gb(total));
    if read > 0 && read < total {
        let left = after.mul_f64((total - read) as f64 / read as f64);
        let left = Duration::from_secs(left.as_secs().max(1));
        text.push_str(&format!(", {} left", time(left)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_and_how_long() {
        let after = Duration::from_secs(10);
        let two = 2_000_000_000;
        assert_eq!(line(two, 3 * two, after), "read 2.0 of 6.0 GB, 20.0s left");
        assert_eq!(line(two, two, after), "read 2.0 of 2.0 GB");
        assert_eq!(line(0, two, after), "read 0.0 of 2.0 GB");
    }

    #[test]
    fn the_kernel_counts_what_is_read_and_only_the_files_that_count_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        std::fs::write(&path, vec![b'x'; 100_000]).unwrap();
        std::fs::write(directory.path().join("other"), "y").unwrap();
        let total = bytes_of(directory.path(), |name| name.starts_with("audit.log"));
        assert_eq!(total, 100_000);
        if let Some(before) = bytes_read() {
            std::fs::read(&path).unwrap();
            assert!(bytes_read().unwrap() >= before + total);
        }
    }
}
