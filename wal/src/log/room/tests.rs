//! A disk that becomes full: what cannot be made, what goes on all the same, and what is said.

use super::*;
use crate::files::segment::{Name, SEGMENT_BYTES_MIN, UNFINISHED};
use crate::record::{Record, Scope};
use crate::{Options, Wal, WalError, open_on};
use disk::forgetful::ForgetfulDisk;
use disk::{Disk, DiskFile};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A disk on which nothing new finds room while it is full. What is there can be written over.
#[derive(Clone)]
struct SmallDisk {
    disk: ForgetfulDisk,
    /// No room for a segment.
    is_full: Arc<AtomicBool>,
    /// Nor for a byte more of anything.
    is_overfull: Arc<AtomicBool>,
    room: Option<u64>,
}

struct SmallFile {
    file: Box<dyn DiskFile>,
    is_overfull: Arc<AtomicBool>,
}

impl SmallDisk {
    fn new(room: Option<u64>) -> Self {
        SmallDisk {
            disk: ForgetfulDisk::new(),
            is_full: Arc::default(),
            is_overfull: Arc::default(),
            room,
        }
    }

    fn set_full(&self, is_full: bool, is_overfull: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
        self.is_overfull.store(is_overfull, Ordering::Relaxed);
    }

    fn wrap(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(SmallFile {
            file,
            is_overfull: self.is_overfull.clone(),
        })
    }

    fn start(&self) -> Wal {
        let (opened, _) = open_on(Arc::new(self.clone()), &options()).unwrap();
        opened.start(()).unwrap()
    }

    fn spares(&self) -> usize {
        let names = self.disk.list().unwrap();
        let is_spare = |name: &&String| matches!(Name::parse(name), Some(Name::Spare(_)));
        names.iter().filter(is_spare).count()
    }
}

impl Disk for SmallDisk {
    fn dir(&self) -> &Path {
        self.disk.dir()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.disk.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open_read(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open_read(name)
    }

    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.wrap(self.disk.open_write(name)?))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        if bytes > 0 && self.is_full.load(Ordering::Relaxed) {
            // As a real one: the file is there, with as many zeros as there was room for.
            self.disk.create(name, 0)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(self.wrap(self.disk.create(name, bytes)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn room(&self) -> io::Result<Option<u64>> {
        Ok(self.room)
    }
}

impl DiskFile for SmallFile {
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let grows = offset + bytes.len() as u64 > self.file.bytes()?;
        if grows && self.is_overfull.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES_MIN,
        spares_max: 2,
        snapshot_log_bytes: 1 << 30,
        ..Options::new(Scope::Leases, 5)
    }
}

const CLOCK: Record<'_> = Record::Clock {
    unix_ms: 1,
    wall_unix_ms: None,
};

fn snapshot(wal: &Wal) -> Result<(), WalError> {
    let mut snapshot = wal.begin_snapshot(1)?;
    snapshot.add(&CLOCK)?;
    snapshot.finish()
}

#[test]
fn without_room_for_a_spare_the_log_goes_on_to_the_end_of_its_segment() {
    let disk = SmallDisk::new(None);
    let wal = disk.start();
    disk.set_full(true, true);
    wal.restock().unwrap();
    assert_eq!(wal.metrics().no_room.get(), 1);
    assert_eq!((wal.spare_count(), disk.spares()), (0, 0), "half a spare");
    let mut synced = 0;
    let error = loop {
        match wal.wait(wal.append(&CLOCK)) {
            Ok(()) => synced += 1,
            Err(error) => break error,
        }
    };
    assert!(synced > 10, "{synced} records in the rest of a segment");
    assert!(error.is_for_want_of_room());
    let sentence = error.to_string();
    assert!(
        sentence.contains("the file system at / is full"),
        "{sentence}"
    );
    drop(wal);
    disk.set_full(false, false);
    let (_, recovered) = open_on(Arc::new(disk), &options()).unwrap();
    assert_eq!(recovered.records, synced + 1, "with the start");
}

#[test]
fn room_that_comes_back_is_used_after_a_while() {
    let disk = SmallDisk::new(None);
    let wal = disk.start();
    let now = Instant::now();
    disk.set_full(true, false);
    wal.restock_at(now).unwrap();
    disk.set_full(false, false);
    wal.restock_at(now + RETRY / 2).unwrap();
    assert_eq!(wal.spare_count(), 0, "it is not tried all the time");
    wal.restock_at(now + RETRY).unwrap();
    assert_eq!(wal.spare_count(), 1);
    assert_eq!(wal.metrics().no_room.get(), 1);
}

#[test]
fn a_snapshot_without_room_leaves_the_log_as_it_was() {
    let disk = SmallDisk::new(None);
    let wal = disk.start();
    disk.set_full(false, true);
    let error = snapshot(&wal).unwrap_err();
    assert!(error.is_for_want_of_room(), "{error}");
    assert!(wal.failure().is_none());
    assert!(!disk.list().unwrap().contains(&UNFINISHED.to_owned()));
    wal.wait(wal.append(&CLOCK)).unwrap();
    disk.set_full(false, false);
    snapshot(&wal).unwrap();
    wal.close(9).unwrap();
}

#[test]
fn a_snapshot_sets_segments_free_when_there_is_no_room_for_a_new_one() {
    let disk = SmallDisk::new(None);
    let wal = disk.start();
    while wal.metrics().segments.get() < 3 {
        wal.wait(wal.append(&CLOCK)).unwrap();
    }
    assert!(!wal.wants_snapshot());
    disk.set_full(true, false);
    wal.restock().unwrap();
    assert!(wal.wants_snapshot());
    snapshot(&wal).unwrap();
    assert!(!wal.wants_snapshot());
    // Two segments are free: the log goes on in them.
    assert_eq!(wal.spare_count(), 2);
    while wal.metrics().segments.get() < 3 {
        wal.wait(wal.append(&CLOCK)).unwrap();
    }
}

#[test]
fn a_snapshot_that_found_no_room_is_not_tried_all_the_time() {
    let disk = SmallDisk::new(None);
    let wal = disk.start();
    while wal.metrics().segments.get() < 2 {
        wal.wait(wal.append(&CLOCK)).unwrap();
    }
    disk.set_full(true, true);
    wal.restock().unwrap();
    assert!(wal.wants_snapshot());
    snapshot(&wal).unwrap_err();
    assert!(!wal.wants_snapshot());
    assert!(wal.wants_snapshot_at(Instant::now() + RETRY));
}

#[test]
fn a_server_does_not_start_without_room_for_what_it_will_write() {
    let segment = options().segment_bytes;
    let new = SmallDisk::new(Some(2 * segment));
    let Err(error) = open_on(Arc::new(new.clone()), &options()) else {
        panic!("there is no room for a snapshot");
    };
    assert!(matches!(error, WalError::NoRoom { .. }), "{error}");
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("the file system at / has "),
        "{sentence}"
    );
    assert_eq!(new.disk.changes(), 0, "nothing was touched");

    let enough = SmallDisk::new(Some(2 * segment + SNAPSHOT_ROOM_BYTES));
    let wal = enough.start();
    wal.restock().unwrap();
    wal.close(9).unwrap();
    // The segment and its spare are there, and need no room any more.
    let later = SmallDisk {
        room: Some(SNAPSHOT_ROOM_BYTES),
        ..enough
    };
    drop(later.start());
    let too_late = SmallDisk {
        room: Some(SNAPSHOT_ROOM_BYTES - 1),
        ..later
    };
    assert!(open_on(Arc::new(too_late), &options()).is_err());
}
