//! A disk that loses what was not synced, stopped at each of its steps in turn.
//!
//! A crash keeps all that was synced, and of the rest what it likes: of a file's new bytes a part, with other bytes among
//! them; of changed names the first few changes. What the log then says must be what was acknowledged, or that and the one
//! batch that was under way.

use super::{Contents, apply, batches, bounds, contents};
use crate::journal::disk::{Disk, DiskFile};
use crate::journal::file::LogFile;
use crate::journal::frame::Frame;
use crate::ledger::Ledger;
use bytes::Bytes;
use parking_lot::Mutex;
use protocol::Fence;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Ways in which every crash is tried.
const TRIES: u64 = 40;

#[derive(Clone, Default)]
struct Forgetful {
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Default)]
struct State {
    files: Vec<Contested>,
    names: BTreeMap<String, usize>,
    names_synced: BTreeMap<String, usize>,
    /// Names since, after each change.
    names_since: Vec<BTreeMap<String, usize>>,
    /// Changes that still succeed.
    steps_left: usize,
}

/// A file as programs see it, and as a crash would leave it at least.
#[derive(Clone, Default)]
struct Contested {
    bytes: Vec<u8>,
    synced: Vec<u8>,
}

struct Handle {
    disk: Forgetful,
    file: usize,
}

impl Forgetful {
    fn with_steps(steps_left: usize) -> Self {
        let disk = Forgetful::default();
        disk.state.lock().steps_left = steps_left;
        disk
    }

    /// Does one step, unless the crash has come.
    fn step<T>(&self, change: impl FnOnce(&mut State) -> T) -> io::Result<T> {
        let mut state = self.state.lock();
        state.steps_left = state
            .steps_left
            .checked_sub(1)
            .ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(change(&mut state))
    }

    fn rename_or_remove(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, usize>),
    ) -> io::Result<()> {
        self.step(|state| {
            change(&mut state.names);
            state.names_since.push(state.names.clone());
        })
    }

    /// What a crash leaves.
    fn after_crash(&self, random: &mut fastrand::Rng) -> Forgetful {
        let mut state = self.state.lock().clone();
        let kept = random.usize(..=state.names_since.len());
        state.names = match kept {
            0 => state.names_synced.clone(),
            kept => state.names_since[kept - 1].clone(),
        };
        state.names_since.clear();
        state.names_synced = state.names.clone();
        for file in &mut state.files {
            file.bytes = survivor(file, random);
            file.synced = file.bytes.clone();
        }
        state.steps_left = usize::MAX;
        Forgetful {
            state: Arc::new(Mutex::new(state)),
        }
    }
}

fn survivor(file: &Contested, random: &mut fastrand::Rng) -> Vec<u8> {
    if !file.bytes.starts_with(&file.synced) {
        // It was cut shorter: that has happened or has not.
        return if random.bool() {
            file.bytes.clone()
        } else {
            file.synced.clone()
        };
    }
    let kept = random.usize(file.synced.len()..=file.bytes.len());
    let mut bytes = file.bytes[..kept].to_vec();
    if random.bool() && kept > file.synced.len() {
        // The file grew, and what should be in it did not all arrive.
        for byte in &mut bytes[random.usize(file.synced.len()..kept)..] {
            *byte = 0;
        }
    }
    bytes
}

impl Disk for Forgetful {
    type File = Handle;

    fn path(&self, name: &str) -> PathBuf {
        name.into()
    }

    fn open(&self, name: &str) -> io::Result<Option<Handle>> {
        let file = self.state.lock().names.get(name).copied();
        Ok(file.map(|file| Handle {
            disk: self.clone(),
            file,
        }))
    }

    fn create(&self, name: &str) -> io::Result<Handle> {
        let file = self.step(|state| {
            state.files.push(Contested::default());
            let file = state.files.len() - 1;
            state.names.insert(name.to_owned(), file);
            state.names_since.push(state.names.clone());
            file
        })?;
        Ok(Handle {
            disk: self.clone(),
            file,
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.rename_or_remove(|names| {
            let file = names.remove(from).expect("it is there");
            names.insert(to.to_owned(), file);
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.rename_or_remove(|names| {
            names.remove(name);
        })
    }

    fn sync_names(&self) -> io::Result<()> {
        self.step(|state| {
            state.names_synced = state.names.clone();
            state.names_since.clear();
        })
    }
}

impl DiskFile for Handle {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.disk.state.lock().files[self.file].bytes.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state.lock();
        let rest = &state.files[self.file].bytes[offset as usize..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.step(|state| {
            let file = &mut state.files[self.file].bytes;
            assert_eq!(file.len() as u64, offset, "a log only grows at its end");
            file.extend(bytes);
        })
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        self.disk
            .step(|state| state.files[self.file].bytes.truncate(bytes as usize))
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.step(|state| {
            let file = &mut state.files[self.file];
            file.synced = file.bytes.clone();
        })
    }
}

/// A life: batch after batch, with the log rewritten in between. Stops at the first failure. Tells what was acknowledged, and
/// what may be there besides.
fn live(disk: Forgetful) -> Vec<Contents> {
    let mut ledger = Ledger::<Bytes>::new(bounds(2), [0; 16]);
    // Before the log was there, nothing was; floors are told by the seed of the log, which is another one in each life.
    let nothing = vec![contents(&ledger)];
    let Ok((mut log, opened)) = LogFile::open(disk, bounds(2)) else {
        return nothing;
    };
    ledger = opened;
    let mut acknowledged = contents(&ledger);
    for (round, batch) in batches().iter().enumerate() {
        let mut frame = Frame::new();
        for (key, fence, value) in batch {
            frame.push_write(key, Fence::new(*fence).unwrap(), value);
        }
        let committed = log.commit(&mut frame);
        apply(&mut ledger, batch);
        if committed.is_err() {
            return vec![acknowledged, contents(&ledger)];
        }
        acknowledged = contents(&ledger);
        if round % 2 == 1 {
            let shared = Mutex::new(ledger);
            let rewritten = log.rewrite(&shared);
            ledger = shared.into_inner();
            if rewritten.is_err() {
                break;
            }
        }
    }
    vec![acknowledged]
}

#[test]
fn whatever_the_disk_forgets_it_knows_what_was_acknowledged() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut crashes = 0;
    for steps in 0.. {
        let disk = Forgetful::with_steps(steps);
        let expected = live(disk.clone());
        for _ in 0..TRIES {
            let survivor = disk.after_crash(&mut random);
            let (_, ledger) = LogFile::open::<Bytes>(survivor, bounds(2)).unwrap();
            let found = contents(&ledger);
            assert!(
                expected.contains(&found),
                "after {steps} steps: {found:?} instead of {expected:?}"
            );
        }
        if disk.state.lock().steps_left > 0 {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 15, "a life has more steps than {crashes}");
}

/// Cutting off a torn end is a change like any other: a crash may undo it.
#[test]
fn a_crash_during_the_start_changes_nothing() {
    let mut random = fastrand::Rng::with_seed(7);
    for steps in 0..12 {
        let disk = Forgetful::with_steps(steps);
        let expected = live(disk.clone());
        for _ in 0..TRIES {
            let torn = disk.after_crash(&mut random);
            for start_steps in 0..3 {
                torn.state.lock().steps_left = start_steps;
                // It may not come up; that must do no harm.
                let _ = LogFile::open::<Bytes>(torn.clone(), bounds(2));
                let survivor = torn.after_crash(&mut random);
                let (_, ledger) = LogFile::open::<Bytes>(survivor, bounds(2)).unwrap();
                assert!(expected.contains(&contents(&ledger)));
            }
        }
    }
}
