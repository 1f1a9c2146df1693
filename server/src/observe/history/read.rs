//! The lines of all files of a log, one after the other, oldest first.
//!
//! One line is in memory at a time. The file that is written is opened before the others are
//! listed and read last: if the server renames it meanwhile, nothing is read twice or missed.

use super::files::{self, LINE_BYTES_MAX};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// How many gaps are kept one by one. Further ones are counted.
const GAPS_MAX: usize = 100;

/// How many files are named that could not be read.
const UNREAD_MAX: usize = 100;

/// What the files of a log cover, and what they cannot tell.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Coverage {
    /// How many files were read.
    pub files: usize,
    /// How many lines they have.
    pub lines: u64,
    /// The time of the first line, and of the last.
    pub first_time: Option<String>,
    /// The time of the last line.
    pub last_time: Option<String>,
    /// Events that the server dropped, as it says itself.
    pub dropped: u64,
    /// Numbers that no line has.
    pub missing: u64,
    /// Where they are missing: between these lines. At most a hundred of them.
    pub gaps: Vec<Gap>,
    /// Lines that are cut off or no JSON.
    pub damaged: u64,
    /// Files that were not read, and why.
    pub unread: Vec<String>,
}

/// Lines that are missing.
#[derive(Clone, Debug, Serialize)]
pub struct Gap {
    /// The number of the last line before.
    pub after_seq: u64,
    /// Its time.
    pub after_time: String,
    /// The number of the next line there is.
    pub before_seq: u64,
    /// How many there are between them.
    pub missing: u64,
}

impl Coverage {
    /// Whether lines may be missing.
    pub fn is_whole(&self) -> bool {
        self.dropped == 0 && self.missing == 0 && self.damaged == 0 && self.unread.is_empty()
    }
}

/// What comes next in the files.
pub(super) enum Piece<'a> {
    /// A whole line.
    Line {
        bytes: &'a [u8],
        /// The time of the line before it; empty if there is none.
        before: &'a str,
    },
    /// Lines are missing here, or may be.
    Gap,
}

/// A file that is to be read.
struct Source {
    path: PathBuf,
    first_seq: u64,
    /// Opened already, if it is the one that is written.
    file: Option<File>,
}

/// Reads all lines. `see` gets them in order; the coverage is complete when it returns.
pub(super) fn read_log(
    log: &Path,
    mut see: impl FnMut(Piece<'_>, &mut Coverage),
) -> io::Result<Coverage> {
    let mut coverage = Coverage::default();
    let mut last = Last::default();
    for source in sources(log, &mut coverage)? {
        let file = match source.file {
            Some(file) => file,
            None => match File::open(&source.path) {
                Ok(file) => file,
                Err(error) => {
                    // Removed since it was listed, most likely.
                    coverage.leave_unread(&source.path, &error.to_string());
                    continue;
                }
            },
        };
        coverage.files += 1;
        read_file(file, &mut last, &mut coverage, &mut see)?;
    }
    Ok(coverage)
}

impl Coverage {
    fn leave_unread(&mut self, path: &Path, why: &str) {
        if self.unread.len() < UNREAD_MAX {
            self.unread.push(format!("{}: {why}", path.display()));
        }
    }
}

/// The files in the order of their lines.
fn sources(log: &Path, coverage: &mut Coverage) -> io::Result<Vec<Source>> {
    let current = match File::open(log) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let renamed = files::renamed_files(log)?;
    if current.is_none() && renamed.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut sources = Vec::new();
    for path in renamed {
        if files::is_compressed(&path) {
            coverage.leave_unread(&path, "it is compressed; uncompress it to have it read");
            continue;
        }
        // Not one of ours, or an empty one, if it has no numbered line.
        let first_seq = File::open(&path).and_then(|file| files::first_seq(&file));
        match first_seq {
            Ok(Some(first_seq)) => sources.push(Source {
                path,
                first_seq,
                file: None,
            }),
            Ok(None) => {}
            Err(error) => coverage.leave_unread(&path, &error.to_string()),
        }
    }
    sources.sort_by_key(|source| source.first_seq);
    if let Some(file) = current {
        sources.push(Source {
            path: log.to_owned(),
            first_seq: u64::MAX,
            file: Some(file),
        });
    }
    Ok(sources)
}

/// The last numbered line.
#[derive(Default)]
struct Last {
    seq: u64,
    time: String,
}

fn read_file(
    file: File,
    last: &mut Last,
    coverage: &mut Coverage,
    see: &mut impl FnMut(Piece<'_>, &mut Coverage),
) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader)
            .take(LINE_BYTES_MAX as u64)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let is_whole = line.pop_if(|byte| *byte == b'\n').is_some();
        if line.is_empty() && is_whole {
            // Stands where an earlier write failed.
            continue;
        }
        let Some(seq) = files::seq_of(&line).filter(|_| is_whole) else {
            // The server may be in the middle of writing the very last one.
            if is_whole || !reader.fill_buf()?.is_empty() {
                coverage.damaged += 1;
                see(Piece::Gap, coverage);
            }
            continue;
        };
        coverage.lines += 1;
        let time = time_of(&line).unwrap_or_default();
        if last.seq != 0 && seq != last.seq + 1 {
            // A lower number: the files of several logs are mixed, or numbering began anew.
            let missing = seq.saturating_sub(last.seq + 1);
            coverage.missing += missing;
            if coverage.gaps.len() < GAPS_MAX {
                coverage.gaps.push(Gap {
                    after_seq: last.seq,
                    after_time: last.time.clone(),
                    before_seq: seq,
                    missing,
                });
            }
            see(Piece::Gap, coverage);
        }
        last.seq = seq;
        if coverage.first_time.is_none() {
            coverage.first_time = Some(time.to_owned());
        }
        match &mut coverage.last_time {
            Some(last_time) => {
                last_time.clear();
                last_time.push_str(time);
            }
            empty => *empty = Some(time.to_owned()),
        }
        let (bytes, before) = (&*line, &*last.time);
        see(Piece::Line { bytes, before }, coverage);
        last.time.clear();
        last.time.push_str(time);
    }
}

/// The time that stands behind the number.
fn time_of(line: &[u8]) -> Option<&str> {
    let start = memchr::memmem::find(line, b",\"time\":\"")? + 9;
    let length = line[start..].iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(&line[start..start + length]).ok()
}
