//! The files of an audit log: the one that is written, and those that were renamed when they were
//! large enough, by the server or by a program that rotates logs.
//!
//! The server names a file that it renames by the number of its last line: `audit.log` becomes
//! `audit.log.00000000000000071342`. So names are never reused and a reader is never led astray by
//! files that move down a row. Other programs call theirs `audit.log.1` or `audit.log-20261118`;
//! those count as well, and their lines say where they belong.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// How many files are looked at.
const FILES_MAX: usize = 10_000;

/// How much of a file's end is read in search of its last line, and of its beginning in search of
/// the first. Lines are far shorter.
pub(super) const LINE_BYTES_MAX: usize = 64 << 10;

/// The digits of a line's number in a file's name.
const DIGITS: usize = 20;

/// What other programs call the files that they compress.
const COMPRESSED: [&str; 5] = ["gz", "xz", "zst", "bz2", "lz4"];

/// What a file is called whose last line has this number.
pub(crate) fn renamed(path: &Path, last_seq: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{last_seq:0DIGITS$}"));
    name.into()
}

/// The number in a file's name, if the server renamed it.
pub(crate) fn renamed_at(path: &Path, log: &Path) -> Option<u64> {
    let (name, log) = (path.file_name()?.to_str()?, log.file_name()?.to_str()?);
    let digits = name.strip_prefix(log)?.strip_prefix('.')?;
    let is_number = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// The renamed files of a log, in no order.
pub(crate) fn renamed_files(log: &Path) -> io::Result<Vec<PathBuf>> {
    let name = log.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let dir = match log.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let found = entry.file_name();
        let rest = found
            .as_encoded_bytes()
            .strip_prefix(name.as_encoded_bytes());
        let is_ours = matches!(rest, Some([b'.' | b'-', _, ..])) && entry.file_type()?.is_file();
        if !is_ours {
            continue;
        }
        if files.len() >= FILES_MAX {
            let message = format!("there are more than {FILES_MAX} files of this log");
            return Err(io::Error::other(message));
        }
        files.push(dir.join(found));
    }
    Ok(files)
}

/// Whether another program has compressed it.
pub(super) fn is_compressed(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| COMPRESSED.contains(&extension))
}

/// How a file ends.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Tail {
    /// The number of the last whole line; zero if there is none.
    pub(crate) seq: u64,
    /// That line tells of a stop in good order, and there is nothing behind it.
    pub(crate) is_stop: bool,
    /// There is half a line behind it.
    pub(crate) is_torn: bool,
}

impl Tail {
    /// Reads the end of a file.
    pub(crate) fn of(file: &mut File) -> io::Result<Tail> {
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(
            length.saturating_sub(LINE_BYTES_MAX as u64),
        ))?;
        let mut bytes = Vec::new();
        file.take(LINE_BYTES_MAX as u64).read_to_end(&mut bytes)?;
        let is_torn = bytes.last().is_some_and(|last| *last != b'\n');
        let end = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        let lines = bytes[..end].rsplit(|byte| *byte == b'\n');
        let found = lines
            .filter_map(|line| seq_of(line).map(|seq| (seq, line)))
            .next();
        let (seq, is_stop) = found.map_or((0, false), |(seq, line)| (seq, is_stop(line)));
        let is_stop = is_stop && !is_torn;
        Ok(Tail {
            seq,
            is_stop,
            is_torn,
        })
    }

    /// The end of the newest file of a log, the one that is written or, if it has no lines, the
    /// last that was renamed.
    pub(crate) fn of_log(log: &Path) -> io::Result<Tail> {
        let own = match File::open(log) {
            Ok(mut file) => Tail::of(&mut file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Tail::default(),
            Err(error) => return Err(error),
        };
        if own.seq > 0 {
            return Ok(own);
        }
        let mut newest = Tail::default();
        for path in renamed_files(log)? {
            let is_older = renamed_at(&path, log).is_some_and(|seq| seq <= newest.seq);
            if is_older || is_compressed(&path) {
                continue;
            }
            let tail = Tail::of(&mut File::open(&path)?)?;
            if tail.seq > newest.seq {
                newest = tail;
            }
        }
        let is_torn = own.is_torn;
        Ok(Tail { is_torn, ..newest })
    }
}

/// The number that a line begins with.
pub(super) fn seq_of(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"{\"seq\":")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if rest.get(digits) != Some(&b',') {
        return None;
    }
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

fn is_stop(line: &[u8]) -> bool {
    line.ends_with(b"\"event\":\"stop\"}")
}

/// The number of the first line of a file that has one.
pub(super) fn first_seq(file: &File) -> io::Result<Option<u64>> {
    let mut reader = BufReader::new(file.take(LINE_BYTES_MAX as u64));
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        if let Some(seq) = seq_of(&line) {
            return Ok(Some(seq));
        }
        line.clear();
    }
    Ok(None)
}
