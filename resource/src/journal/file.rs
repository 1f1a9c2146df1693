//! The file of the log: opening and reading it, appending to it, rewriting it.
//!
//! There is one file, `fences.log`. It is rewritten into `fences.new`, which takes its name once it
//! is whole and synced. So there is a whole log under the first name at every moment, and what lies
//! under the second is never read.
//!
//! # What a crash leaves, and what is done about it
//!
//! Every frame is synced before the next is written, so a crash damages the last one only. That one
//! was not acknowledged: it is cut off. Damage with a whole frame behind it, or more of it than a
//! frame can be long, is damage to what was acknowledged; then the log does not open. A last frame
//! that was acknowledged and later rots looks like a torn one; the two cannot be told apart.

use super::frame::{self, FRAME_HEAD_BYTES, Frame, HEADER_BYTES, Header};
use crate::ledger::{Bounds, Ledger, Seed, Value};
use crate::limits::{BATCH_BYTES, FRAME_BODY_BYTES_MAX};
use crate::refusal::JournalError;
use disk::{Disk, DiskFile};
use parking_lot::Mutex;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

const NAME: &str = "fences.log";
const NEW_NAME: &str = "fences.new";

/// A log that was read and can be appended to.
pub(super) struct LogFile {
    disk: Box<dyn Disk>,
    file: Box<dyn DiskFile>,
    header: Header,
    end: End,
    /// How long the log was when it was last rewritten, or opened.
    bytes_when_new: u64,
    /// The directory is ours for as long as this lives.
    _lock: Box<dyn Send + Sync>,
}

/// Where a log ends.
#[derive(Clone, Copy)]
struct End {
    bytes: u64,
    sequence: u64,
}

impl LogFile {
    /// Locks the directory, opens the log in it, or begins one, and reads it.
    pub(super) fn open<V: Value>(
        disk: Box<dyn Disk>,
        bounds: Bounds,
    ) -> Result<(Self, Ledger<V>), JournalError> {
        let lock = disk.lock().map_err(blame("open", disk.dir()))?;
        let lock = lock.ok_or_else(|| JournalError::InUse {
            path: disk.dir().to_owned(),
        })?;
        let path = disk.dir().join(NAME);
        let file = match disk.open_write(NAME) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(&*disk, V::KIND).map_err(blame("make", &path))?
            }
            opened => opened.map_err(blame("open", &path))?,
        };
        let (header, ledger, end) = read(&*file, bounds, path)?;
        let log = LogFile {
            disk,
            file,
            header,
            end,
            bytes_when_new: end.bytes,
            _lock: lock,
        };
        Ok((log, ledger))
    }

    /// Appends one frame and waits until it is on the disk.
    pub(super) fn commit(&mut self, frame: &mut Frame) -> Result<(), JournalError> {
        let bytes = frame.seal(&self.header.seed, self.end.sequence + 1);
        let path = self.disk.dir().join(NAME);
        self.file
            .write_at(bytes, self.end.bytes)
            .map_err(blame("write", &path))?;
        self.file.sync_data().map_err(blame("sync", &path))?;
        self.end.sequence += 1;
        self.end.bytes += bytes.len() as u64;
        frame.clear();
        Ok(())
    }

    /// Whether it is worth rewriting: most of it says what no longer holds.
    pub(super) fn wants_rewriting(&self, compact_bytes_min: u64) -> bool {
        self.end.bytes >= compact_bytes_min && self.end.bytes >= 2 * self.bytes_when_new
    }

    /// Writes a new log that says what `ledger` knows, and goes on in that one.
    ///
    /// If it fails before the new log has taken the old one's name, nothing has changed, and the
    /// old one is used until it has doubled again.
    pub(super) fn rewrite<V: Value>(
        &mut self,
        ledger: &Mutex<Ledger<V>>,
    ) -> Result<(), JournalError> {
        let Ok((file, end)) = write_new(&*self.disk, self.header, ledger) else {
            self.bytes_when_new = self.end.bytes;
            // It would only be in the way; the next attempt replaces it if this fails.
            let _ = self.disk.remove(NEW_NAME);
            return Ok(());
        };
        let path = self.disk.dir().join(NAME);
        self.disk
            .rename(NEW_NAME, NAME)
            .map_err(blame("replace", &path))?;
        self.disk.sync_dir().map_err(blame("replace", &path))?;
        (self.file, self.end, self.bytes_when_new) = (file, end, end.bytes);
        Ok(())
    }
}

/// Begins a log. It is whole when it gets its name.
fn create(disk: &dyn Disk, kind: u8) -> io::Result<Box<dyn DiskFile>> {
    let file = disk.create(NEW_NAME, 0)?;
    let seed = random_seed();
    file.write_at(&Header { kind, seed }.to_bytes(), 0)?;
    file.sync_data()?;
    disk.rename(NEW_NAME, NAME)?;
    disk.sync_dir()?;
    Ok(file)
}

/// Writes a whole log under the name that does not count yet.
fn write_new<V: Value>(
    disk: &dyn Disk,
    header: Header,
    ledger: &Mutex<Ledger<V>>,
) -> io::Result<(Box<dyn DiskFile>, End)> {
    let file = disk.create(NEW_NAME, 0)?;
    file.write_at(&header.to_bytes(), 0)?;
    let mut end = End {
        bytes: HEADER_BYTES as u64,
        sequence: 0,
    };
    let mut frame = Frame::new();
    let mut flush = |frame: &mut Frame, least: usize| {
        if frame.body_bytes() >= least {
            end.sequence += 1;
            let sealed = frame.seal(&header.seed, end.sequence);
            file.write_at(sealed, end.bytes)?;
            end.bytes += sealed.len() as u64;
            frame.clear();
        }
        io::Result::Ok(())
    };
    {
        // Held while memory is copied to the kernel, not while the disk works. Only this thread
        // changes the ledger.
        let ledger = ledger.lock();
        // Keys first: a key that is new to the ledger begins on its floor, and these are remembered
        // more exactly than that.
        for (key, fence, value) in ledger.entries() {
            frame.push_write(key, fence, value.as_bytes());
            flush(&mut frame, BATCH_BYTES)?;
        }
        for (cell, fence) in ledger.floors() {
            frame.push_floor(cell, fence);
            flush(&mut frame, BATCH_BYTES)?;
        }
    }
    flush(&mut frame, 1)?;
    file.sync_data()?;
    Ok((file, end))
}

/// Reads everything, and cuts off a torn end.
fn read<V: Value>(
    file: &dyn DiskFile,
    bounds: Bounds,
    path: PathBuf,
) -> Result<(Header, Ledger<V>, End), JournalError> {
    let damaged = |offset, what| JournalError::Damaged {
        path: path.clone(),
        offset,
        what,
    };
    let file_bytes = file.bytes().map_err(blame("read", &path))?;
    let mut reader = BufReader::new(FileReader {
        file,
        offset: 0,
        file_bytes,
    });
    let mut header = [0; HEADER_BYTES];
    if file_bytes < header.len() as u64 {
        return Err(damaged(0, "it is shorter than its header"));
    }
    reader
        .read_exact(&mut header)
        .map_err(blame("read", &path))?;
    let header = Header::from_bytes(&header).map_err(|what| damaged(0, what))?;
    if header.kind != V::KIND {
        return Err(JournalError::OtherKind { path });
    }

    let mut ledger = Ledger::new(bounds, header.seed);
    let mut end = End {
        bytes: HEADER_BYTES as u64,
        sequence: 0,
    };
    let mut window = Vec::new();
    while end.bytes < file_bytes {
        window.clear();
        read_up_to(&mut reader, &mut window, FRAME_HEAD_BYTES).map_err(blame("read", &path))?;
        // As much as the frame can take: its length field is not to be trusted yet.
        let claimed = frame_bytes_claimed(&window);
        read_up_to(&mut reader, &mut window, claimed).map_err(blame("read", &path))?;
        let Some((sequence, body)) = frame::split(&window, &header.seed) else {
            if file_bytes - end.bytes > (FRAME_HEAD_BYTES + FRAME_BODY_BYTES_MAX) as u64 {
                return Err(damaged(
                    end.bytes,
                    "more follows than one torn frame can account for",
                ));
            }
            read_up_to(&mut reader, &mut window, usize::MAX).map_err(blame("read", &path))?;
            if frame::holds_any(&window[1..], &header.seed) {
                return Err(damaged(
                    end.bytes,
                    "a frame is damaged, and whole ones follow",
                ));
            }
            break;
        };
        if sequence != end.sequence + 1 {
            return Err(damaged(end.bytes, "a frame is missing"));
        }
        frame::replay(body, &mut ledger).map_err(|what| damaged(end.bytes, what))?;
        end.sequence = sequence;
        end.bytes += (FRAME_HEAD_BYTES + body.len()) as u64;
    }
    if end.bytes < file_bytes {
        // The next frame may be shorter. Nothing of this one may be left behind it.
        file.shorten(end.bytes).map_err(blame("shorten", &path))?;
        file.sync_data().map_err(blame("sync", &path))?;
    }
    Ok((header, ledger, end))
}

/// How many bytes the frame wants to have, as far as it can be believed.
fn frame_bytes_claimed(head: &[u8]) -> usize {
    let Some(length) = head.get(4..8) else {
        return FRAME_HEAD_BYTES;
    };
    let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
    FRAME_HEAD_BYTES + length.min(FRAME_BODY_BYTES_MAX)
}

/// Reads until `window` has `count` bytes or the file ends.
fn read_up_to(reader: &mut impl Read, window: &mut Vec<u8>, count: usize) -> io::Result<()> {
    let wanted = count.saturating_sub(window.len()) as u64;
    reader.take(wanted).read_to_end(window)?;
    Ok(())
}

struct FileReader<'a> {
    file: &'a dyn DiskFile,
    offset: u64,
    file_bytes: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.file_bytes - self.offset;
        let count = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        self.file.read_at(&mut buffer[..count], self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

pub(super) fn random_seed() -> Seed {
    let mut seed = Seed::default();
    getrandom::fill(&mut seed).expect("the system has random numbers");
    seed
}

fn blame(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Io {
        action,
        path,
        source,
    }
}
