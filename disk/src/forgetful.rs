//! A disk in memory that forgets what was not synced, the way real ones do: all of it, or some
//! sectors of it, in any combination. It can stop in the middle of any operation, and it can
//! refuse.
//!
//! Every file has a live image, which reads see, and a durable one. A write changes the live image
//! and marks its sectors; a sync copies them. Names are the same: changed at once, durable after a
//! sync of the directory, and a power cut keeps any of the changes since.

mod dice;
mod image;

pub use dice::Dice;
pub use image::Keep;

use crate::{Disk, DiskFile};
use image::{Image, SECTOR_BYTES};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Operations that change something, and those that open or list, are counted, and one of them may
/// go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    Nothing,
    /// This operation and everything after it never happens: the process is dead.
    StopAt(u64),
    /// This one fails, and only this one.
    FailAt(u64, FailKind),
}

/// How an operation fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailKind {
    /// A write or a sync meets a broken disk.
    Broken,
    /// A write or a creation finds no room; a sync does too, on file systems that decide late.
    Full,
    /// A change of names takes effect, and is reported as failed all the same.
    Late,
}

#[derive(Clone, Debug)]
enum NameChange {
    Set(String, usize),
    Remove(String),
    /// From, to, and which file: a directory knows files by number, whatever became of earlier
    /// changes.
    Rename(String, String, usize),
}

struct State {
    files: Vec<Image>,
    live: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    /// Changes of names since the last sync of the directory.
    pending: Vec<NameChange>,
    plan: Plan,
    operations: u64,
    /// Those of them that change something.
    changes: u64,
    has_failed: bool,
    is_locked: bool,
    /// Whether a file may be written at its end only.
    only_grows: bool,
}

/// The disk. Clones are the same disk.
#[derive(Clone)]
pub struct ForgetfulDisk(Arc<Mutex<State>>);

impl Default for ForgetfulDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl ForgetfulDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::with(Vec::new(), BTreeMap::new())
    }

    /// A disk with these files, all of them durable.
    pub fn with_files(files: &[(String, Vec<u8>)]) -> Self {
        let images = files.iter().map(|(_, bytes)| Image::synced(bytes.clone()));
        let names = files.iter().enumerate();
        let names = names.map(|(file, (name, _))| (name.clone(), file));
        Self::with(images.collect(), names.collect())
    }

    /// Panics from now on when a file is written anywhere but at its end.
    pub fn only_grows(self) -> Self {
        self.0.lock().only_grows = true;
        self
    }

    fn with(files: Vec<Image>, names: BTreeMap<String, usize>) -> Self {
        ForgetfulDisk(Arc::new(Mutex::new(State {
            files,
            live: names.clone(),
            durable: names,
            pending: Vec::new(),
            plan: Plan::Nothing,
            operations: 0,
            changes: 0,
            has_failed: false,
            is_locked: false,
            only_grows: false,
        })))
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// Operations so far that changed something, or would have.
    pub fn changes(&self) -> u64 {
        self.0.lock().changes
    }

    /// Whether the operation that was to fail has come.
    pub fn has_failed(&self) -> bool {
        self.0.lock().has_failed
    }

    /// Kills the process at its n-th operation from the beginning of the disk, counted from 0.
    pub fn stop_at(&self, operation: u64) {
        self.0.lock().plan = Plan::StopAt(operation);
    }

    /// Makes the n-th operation fail.
    pub fn fail_at(&self, operation: u64, kind: FailKind) {
        self.0.lock().plan = Plan::FailAt(operation, kind);
    }

    /// The process is killed and the machine lives: what was written is in the cache, still not
    /// synced.
    pub fn kill(&self) -> ForgetfulDisk {
        let state = self.0.lock();
        let killed = Self::with(state.files.clone(), state.live.clone());
        {
            let mut after = killed.0.lock();
            after.only_grows = state.only_grows;
            after.durable = state.durable.clone();
            after.pending = state.pending.clone();
        }
        killed
    }

    /// The power fails: what the next boot finds.
    pub fn cut_power(&self, keep: Keep, dice: &mut Dice) -> ForgetfulDisk {
        let state = self.0.lock();
        let files = state
            .files
            .iter()
            .map(|image| image.after_power_cut(keep, dice))
            .collect();
        let mut names = state.durable.clone();
        for change in &state.pending {
            let is_kept = match keep {
                Keep::Nothing => false,
                Keep::Everything => true,
                Keep::Prefix | Keep::Some | Keep::Torn => dice.flip(),
            };
            if is_kept {
                change.apply(&mut names);
            }
        }
        let after = Self::with(files, names);
        after.0.lock().only_grows = state.only_grows;
        after
    }

    /// The names of all files, sorted.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().live.keys().cloned().collect()
    }

    /// The bytes of a file, as a reader sees them.
    pub fn read(&self, name: &str) -> Vec<u8> {
        let state = self.0.lock();
        state.files[state.live[name]].live.clone()
    }

    /// Replaces a file, as if it had always been so.
    pub fn tamper(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.0.lock();
        let file = state.live[name];
        state.files[file] = Image::synced(bytes);
    }

    /// Removes a file, as if it had never been there.
    pub fn lose(&self, name: &str) {
        let mut state = self.0.lock();
        state.live.remove(name);
        state.durable.remove(name);
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Set(name, file) => {
                names.insert(name.clone(), *file);
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
            NameChange::Rename(from, to, file) => {
                if names.get(from) == Some(file) {
                    names.remove(from);
                }
                names.insert(to.clone(), *file);
            }
        }
    }
}

impl State {
    /// Counts an operation that changes nothing.
    fn look(&mut self) -> io::Result<()> {
        let looked = self.count();
        looked.map_err(|(error, _)| error)
    }

    /// Counts an operation. `Err`: it fails. The flag says whether it has its effect all the same:
    /// an operation that a crash cut short may.
    fn operate(&mut self) -> Result<(), (io::Error, bool)> {
        self.changes += 1;
        self.count()
    }

    fn count(&mut self) -> Result<(), (io::Error, bool)> {
        let operation = self.operations;
        self.operations += 1;
        match self.plan {
            Plan::StopAt(stop) if operation >= stop => {
                let is_half_done = operation == stop;
                Err((io::Error::other("the process is dead"), is_half_done))
            }
            Plan::FailAt(fail, kind) if operation == fail => {
                self.has_failed = true;
                let error = match kind {
                    FailKind::Broken | FailKind::Late => io::Error::from_raw_os_error(5),
                    FailKind::Full => io::Error::from_raw_os_error(28),
                };
                Err((error, true))
            }
            _ => Ok(()),
        }
    }

    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        let operated = self.operate();
        if let Err((error, is_half_done)) = operated {
            // A change of names that was begun may survive.
            let is_late = matches!(self.plan, Plan::StopAt(_) | Plan::FailAt(_, FailKind::Late));
            if is_half_done && is_late {
                change.apply(&mut self.live);
                self.pending.push(change);
            }
            return Err(error);
        }
        change.apply(&mut self.live);
        self.pending.push(change);
        Ok(())
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        let found = self.live.get(name).copied();
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

impl Disk for ForgetfulDisk {
    fn dir(&self) -> &Path {
        Path::new("/forgetful")
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let mut state = self.0.lock();
        if std::mem::replace(&mut state.is_locked, true) {
            return Ok(None);
        }
        Ok(Some(Box::new(Unlock(self.clone()))))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.lock().look()?;
        Ok(self.names())
    }

    fn open_read(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.open_write(name)
    }

    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.0.lock();
        state.look()?;
        let file = state.find(name)?;
        Ok(Box::new(ForgetfulFile {
            disk: self.clone(),
            file,
        }))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        let file = {
            let mut state = self.0.lock();
            let file = state.files.len();
            state.files.push(Image::default());
            state.change_name(NameChange::Set(name.to_owned(), file))?;
            file
        };
        let file = Box::new(ForgetfulFile {
            disk: self.clone(),
            file,
        });
        if bytes > 0 {
            file.write_at(&vec![0; bytes as usize], 0)?;
        }
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        let file = state.find(from)?;
        state.change_name(NameChange::Rename(from.to_owned(), to.to_owned(), file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.find(name)?;
        state.change_name(NameChange::Remove(name.to_owned()))
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operate().map_err(|(error, _)| error)?;
        state.durable = state.live.clone();
        state.pending.clear();
        Ok(())
    }
}

struct Unlock(ForgetfulDisk);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.0.lock().is_locked = false;
    }
}

struct ForgetfulFile {
    disk: ForgetfulDisk,
    file: usize,
}

impl DiskFile for ForgetfulFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().files[self.file].live.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.disk.0.lock();
        let live = &state.files[self.file].live;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let Some(bytes) = live.get(start..start.saturating_add(buffer.len())) else {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        };
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let operated = state.operate();
        if !matches!(operated, Err((_, false))) {
            let only_grows = state.only_grows;
            let image = &mut state.files[self.file];
            let start = offset as usize;
            let end = start + bytes.len();
            assert!(
                !only_grows || start == image.live.len(),
                "a log that only grows is written at {start}"
            );
            if image.live.len() < end {
                image.live.resize(end, 0);
            }
            image.live[start..end].copy_from_slice(bytes);
            image
                .dirty
                .extend(start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
        }
        operated.map_err(|(error, _)| error)
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let operated = state.operate();
        if !matches!(operated, Err((_, false))) {
            let image = &mut state.files[self.file];
            let length = bytes as usize;
            assert!(length <= image.live.len(), "{length} bytes are not fewer");
            image.live.truncate(length);
            image.dirty.retain(|&sector| sector * SECTOR_BYTES < length);
            image.shortened = Some(image.shortened.map_or(length, |least| least.min(length)));
        }
        operated.map_err(|(error, _)| error)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let operated = state.operate();
        let is_dead = matches!(state.plan, Plan::StopAt(_)) && operated.is_err();
        let image = &mut state.files[self.file];
        match operated {
            Ok(()) => {
                image.sync();
                Ok(())
            }
            Err((error, _)) => {
                // A sync that fails for a live process forgets what it could not write: the cache
                // still shows it, and the next sync finds nothing to do.
                if !is_dead {
                    image.dirty.clear();
                    image.shortened = None;
                }
                Err(error)
            }
        }
    }
}
