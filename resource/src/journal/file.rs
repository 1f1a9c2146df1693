//! The file of the log: opening and reading it, appending to it, rewriting it.
//!
//! There is one file, `fences.log`, and its directory is locked while it is open. It is rewritten into `fences.new`, which
//! takes its name once it is whole and synced; so there is a whole log under the first name at every moment, and what lies
//! under the second is of no worth to anybody who finds it.
//!
//! # What a crash leaves, and what is done about it
//!
//! Every frame is synced before the next is written, so a crash damages the last one only, and that one was not acknowledged:
//! it is cut off. Damage with a whole frame behind it, or more of it than a frame can be long, is damage to what was
//! acknowledged. Nothing opens then. A last frame that was acknowledged and later rots looks like one that was torn; that
//! cannot be told apart.

use super::frame::{self, FRAME_HEAD_BYTES, Frame, HEADER_BYTES, Header};
use crate::ledger::{Bounds, Ledger, Seed, Value};
use crate::limits::{BATCH_BYTES, FRAME_BODY_BYTES_MAX};
use crate::refusal::JournalError;
use parking_lot::Mutex;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const NAME: &str = "fences.log";
const NEW_NAME: &str = "fences.new";

pub(super) struct LogFile {
    dir: PathBuf,
    path: PathBuf,
    file: File,
    /// The lock on the directory is this handle's; it also syncs the names in it.
    dir_handle: File,
    header: Header,
    bytes: u64,
    sequence: u64,
    /// How long the log was when it was last rewritten, or opened.
    bytes_when_new: u64,
}

impl LogFile {
    /// Opens the log in `dir`, which is made if need be, and reads it.
    pub(super) fn open<V: Value>(
        dir: &Path,
        bounds: Bounds,
    ) -> Result<(Self, Ledger<V>), JournalError> {
        create_dir(dir).map_err(blame("make", dir))?;
        let dir_handle = File::open(dir).map_err(blame("open", dir))?;
        match dir_handle.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::InUse {
                    path: dir.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(blame("lock", dir)(error)),
        }
        let path = dir.join(NAME);
        let is_there = path.try_exists().map_err(blame("look for", &path))?;
        let mut log = if is_there {
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .open(&path)
                .map_err(blame("open", &path))?;
            let header = Header {
                kind: V::KIND,
                seed: Seed::default(),
            };
            LogFile {
                dir: dir.to_owned(),
                path,
                file,
                dir_handle,
                header,
                bytes: 0,
                sequence: 0,
                bytes_when_new: 0,
            }
        } else {
            let header = Header {
                kind: V::KIND,
                seed: random_seed(),
            };
            Self::create(dir, dir_handle, header)?
        };
        let ledger = log.read(bounds)?;
        Ok((log, ledger))
    }

    /// Makes a log without entries. Whoever finds it under its name finds it whole.
    fn create(dir: &Path, dir_handle: File, header: Header) -> Result<Self, JournalError> {
        let (path, new) = (dir.join(NAME), dir.join(NEW_NAME));
        let mut file = create_new(&new).map_err(blame("make", &new))?;
        file.write_all(&header.to_bytes())
            .map_err(blame("write", &new))?;
        file.sync_all().map_err(blame("sync", &new))?;
        fs::rename(&new, &path).map_err(blame("rename to", &path))?;
        dir_handle.sync_all().map_err(blame("sync", dir))?;
        Ok(LogFile {
            dir: dir.to_owned(),
            path,
            file,
            dir_handle,
            header,
            bytes: HEADER_BYTES as u64,
            sequence: 0,
            bytes_when_new: HEADER_BYTES as u64,
        })
    }

    /// Reads everything, cuts off a torn end, and leaves the file ready to be appended to.
    fn read<V: Value>(&mut self, bounds: Bounds) -> Result<Ledger<V>, JournalError> {
        let path = self.path.clone();
        let file_bytes = self.file.metadata().map_err(blame("look at", &path))?.len();
        self.file.rewind().map_err(blame("read", &path))?;
        let mut reader = BufReader::new(&self.file);
        let damaged = |offset, what| JournalError::Damaged {
            path: path.clone(),
            offset,
            what,
        };

        let mut header = [0; HEADER_BYTES];
        if file_bytes < header.len() as u64 {
            return Err(damaged(0, "it is shorter than its header"));
        }
        reader
            .read_exact(&mut header)
            .map_err(blame("read", &path))?;
        let header = Header::from_bytes(&header).map_err(|what| damaged(0, what))?;
        if header.kind != V::KIND {
            return Err(JournalError::OtherKind { path: path.clone() });
        }
        let mut ledger = Ledger::new(bounds, header.seed);
        let (mut end, mut sequence) = (HEADER_BYTES as u64, 0);
        let mut window = Vec::new();
        while end < file_bytes {
            let rest = file_bytes - end;
            // As much as the frame at `end` can take; what its length field says is not to be trusted yet.
            read_up_to(&mut reader, &mut window, FRAME_HEAD_BYTES).map_err(blame("read", &path))?;
            let claimed = frame_bytes_claimed(&window);
            read_up_to(&mut reader, &mut window, claimed).map_err(blame("read", &path))?;
            let Some((found, body)) = frame::split(&window, &header.seed) else {
                if rest > (FRAME_HEAD_BYTES + FRAME_BODY_BYTES_MAX) as u64 {
                    return Err(damaged(
                        end,
                        "more follows than one torn frame can account for",
                    ));
                }
                read_up_to(&mut reader, &mut window, usize::MAX).map_err(blame("read", &path))?;
                if frame::holds_any(&window[1..], &header.seed) {
                    return Err(damaged(end, "a frame is damaged, and whole ones follow"));
                }
                break;
            };
            if found != sequence + 1 {
                return Err(damaged(end, "a frame is missing"));
            }
            frame::replay(body, &mut ledger).map_err(|what| damaged(end, what))?;
            sequence = found;
            end += (FRAME_HEAD_BYTES + body.len()) as u64;
            window.clear();
        }
        drop(reader);
        if end < file_bytes {
            // Cut off before anything is appended: a whole frame behind a torn one would look like damage.
            self.file.set_len(end).map_err(blame("shorten", &path))?;
            self.file.sync_all().map_err(blame("sync", &path))?;
        }
        self.file
            .seek(SeekFrom::Start(end))
            .map_err(blame("read", &path))?;
        (self.header, self.bytes, self.sequence, self.bytes_when_new) =
            (header, end, sequence, end);
        Ok(ledger)
    }

    /// Appends one frame and waits until it is on the disk.
    pub(super) fn commit(&mut self, frame: &mut Frame) -> Result<(), JournalError> {
        let bytes = frame.seal(&self.header.seed, self.sequence + 1);
        self.file
            .write_all(bytes)
            .map_err(blame("write", &self.path))?;
        self.file.sync_data().map_err(blame("sync", &self.path))?;
        self.sequence += 1;
        self.bytes += bytes.len() as u64;
        frame.clear();
        Ok(())
    }

    /// Whether it is worth rewriting: most of it says what no longer holds.
    pub(super) fn wants_rewriting(&self, compact_bytes_min: u64) -> bool {
        self.bytes >= compact_bytes_min && self.bytes >= 2 * self.bytes_when_new
    }

    /// Writes a new log that says what `ledger` knows, and goes on in that one.
    ///
    /// If it fails before the new log has taken the old one's name, nothing has changed and the old one is used further,
    /// until it has doubled again.
    pub(super) fn rewrite<V: Value>(
        &mut self,
        ledger: &Mutex<Ledger<V>>,
    ) -> Result<(), JournalError> {
        let new = self.dir.join(NEW_NAME);
        let Ok((file, bytes, sequence)) = self.write_new(&new, ledger) else {
            self.bytes_when_new = self.bytes;
            // It would only be in the way; the next attempt replaces it if this fails.
            let _ = fs::remove_file(&new);
            return Ok(());
        };
        fs::rename(&new, &self.path).map_err(blame("rename to", &self.path))?;
        self.dir_handle
            .sync_all()
            .map_err(blame("sync", &self.dir))?;
        (self.file, self.bytes, self.bytes_when_new, self.sequence) =
            (file, bytes, bytes, sequence);
        Ok(())
    }

    fn write_new<V: Value>(
        &self,
        new: &Path,
        ledger: &Mutex<Ledger<V>>,
    ) -> io::Result<(File, u64, u64)> {
        let mut out = BufWriter::new(create_new(new)?);
        out.write_all(&self.header.to_bytes())?;
        let (mut bytes, mut sequence) = (HEADER_BYTES as u64, 0);
        let mut frame = Frame::new();
        let mut flush = |frame: &mut Frame, least: usize| {
            if frame.body_bytes() >= least {
                sequence += 1;
                let sealed = frame.seal(&self.header.seed, sequence);
                bytes += sealed.len() as u64;
                out.write_all(sealed)?;
                frame.clear();
            }
            io::Result::Ok(())
        };
        // Held while memory is copied to the kernel, not while the disk works. Nobody else changes the ledger meanwhile:
        // that is done on this thread only.
        let ledger = ledger.lock();
        // Keys first: a key that is new to the ledger begins on its floor, and these are remembered more exactly than that.
        for (key, fence, value) in ledger.entries() {
            frame.push_write(key, fence, value.as_bytes());
            flush(&mut frame, BATCH_BYTES)?;
        }
        for (cell, fence) in ledger.floors() {
            frame.push_floor(cell, fence);
            flush(&mut frame, BATCH_BYTES)?;
        }
        drop(ledger);
        flush(&mut frame, 1)?;
        let file = out.into_inner().map_err(|error| error.into_error())?;
        file.sync_all()?;
        Ok((file, bytes, sequence))
    }
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

/// Makes a directory and those above it. Their names must outlast a power cut, as what lies in them does.
fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = dir.parent().filter(|above| *above != Path::new(""));
    let above = above.unwrap_or(Path::new("."));
    create_dir(above)?;
    DirBuilder::new().mode(0o700).create(dir)?;
    File::open(above)?.sync_all()
}

/// Values are nobody else's business: the file is for its owner only.
fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    options.mode(0o600).open(path)
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
