//! A new log in place of a damaged one, above every fence that can have been issued.
//!
//! # What can be trusted
//!
//! A whole record can: its checksum and its position say that we wrote it there. That something is *missing* cannot be
//! seen, so no lease can be trusted to be still held, and no key to be free. What remains is a bound:
//!
//! - **Fences.** The damaged part may have raised ceilings. So the new ceiling lies [`FENCES_MARGIN`] above the highest
//!   ceiling or fence in any whole record of any file, and not below a million for every second since 1970, which is more
//!   than a server that started from nothing can have issued, if no record at all is left.
//! - **Leases.** Every lease was granted before now, so none ends later than now and the longest lease. The next server
//!   finds that as its horizon, and a log whose last server wrote down fences only and did not stop in good order: it
//!   waits until then, and holders claim what they have.
//!
//! # In which order
//!
//! The new log begins far behind every position that was ever used. First its segment gets its name, then its snapshot: at
//! that moment everything before it is obsolete and the log is sound. A crash before leaves the damaged log as it was,
//! and repair can be run again. Then the old files are renamed, not removed.

use super::error::{IoFailure, ReplayError, WalError};
use super::file::{Blame, Disk};
use super::frame::{self, Frame, Position};
use super::log;
use super::payload::RecordError;
use super::record::{FENCE_MAX, Record, Scope};
use super::replay::{self, Place};
use super::segment::{Header, Name, PAGE_BYTES, SEGMENT_BYTES, Shelf, Sort};
use super::snapshot::SnapshotFile;
use super::state::State;
use super::tools;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// How far above the highest known ceiling a repaired log begins: as many fences as a million grants a second use up in
/// two hundred days, and one in five hundred of all there are.
pub const FENCES_MARGIN: u64 = 1 << 44;

/// How far behind the last known position a repaired log begins.
const POSITIONS_MARGIN: u64 = 1 << 40;

/// What the operator says.
#[derive(Clone, Copy, Debug)]
pub struct Repair {
    /// All leases and sessions will be lost, and that is accepted.
    pub accept_loss: bool,
    /// The wall clock.
    pub now_unix_ms: u64,
    /// No lease was longer than this.
    pub lease_ms_max: u64,
}

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repaired {
    /// The highest ceiling or fence that was found.
    pub fence_found: u64,
    /// The next server grants above this.
    pub ceiling: u64,
    /// Until then it waits for holders to claim their locks.
    pub horizon_unix_ms: u64,
    /// What the old files are called now. They may be removed.
    pub moved: Vec<String>,
}

impl fmt::Display for Repaired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "The highest fence that was found is {}; the next server grants above {}. All leases and sessions are lost; \
             none that was granted ends after {}.",
            self.fence_found,
            self.ceiling,
            tools::Utc(self.horizon_unix_ms)
        )?;
        for name in &self.moved {
            write!(f, "\nkept as {name}")?;
        }
        Ok(())
    }
}

/// Why nothing was repaired. Nothing was changed.
#[derive(Clone, Debug)]
pub enum RepairError {
    /// The directory cannot be locked, read or written.
    Wal(WalError),
    /// There is nothing to repair.
    Sound,
    /// A newer server wrote it.
    Newer(ReplayError),
    /// It was not said that the loss is accepted.
    LossNotAccepted {
        /// What is wrong.
        damage: ReplayError,
        /// What would have been done.
        plan: Box<Repaired>,
    },
    /// Above what was found there are not enough fences left.
    NoFencesLeft {
        /// The highest that was found.
        fence_found: u64,
    },
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RepairError::Wal(error) => error.fmt(f),
            RepairError::Sound => write!(f, "the log is sound; a server starts with it as it is"),
            RepairError::Newer(error) => error.fmt(f),
            RepairError::LossNotAccepted { damage, .. } => write!(
                f,
                "repair forgets all leases and sessions, and wants to hear --accept-loss. What is wrong: {damage}"
            ),
            RepairError::NoFencesLeft { fence_found } => write!(
                f,
                "fence {fence_found} was found, and there are not enough fences above it"
            ),
        }
    }
}

impl std::error::Error for RepairError {}

impl From<IoFailure> for RepairError {
    fn from(failure: IoFailure) -> Self {
        RepairError::Wal(failure.into())
    }
}

/// Puts a new log in the place of the damaged one in `dir`.
pub fn repair(dir: &Path, wish: &Repair) -> Result<Repaired, RepairError> {
    let disk = tools::open(dir).map_err(RepairError::Wal)?;
    repair_on(Arc::new(disk), SEGMENT_BYTES, wish)
}

pub(crate) fn repair_on(
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    wish: &Repair,
) -> Result<Repaired, RepairError> {
    let _lock = log::lock(&*disk).map_err(RepairError::Wal)?;
    let mut state = State::default();
    let damage = match replay::walk(&*disk, &mut state) {
        Ok(_) => return Err(RepairError::Sound),
        Err(ReplayError::Io(failure)) => return Err(failure.into()),
        Err(damage) => damage,
    };
    drop(state);
    if let ReplayError::NewerVersion { .. }
    | ReplayError::Record {
        error: RecordError::UnknownKind { .. },
        ..
    } = damage
    {
        return Err(RepairError::Newer(damage));
    }

    let found = Found::look(&*disk)?;
    let fence_found = found.fence_max;
    let by_clock = (wish.now_unix_ms / 1000) << 20;
    let ceiling = (fence_found + FENCES_MARGIN).max(by_clock);
    if ceiling >= FENCE_MAX {
        return Err(RepairError::NoFencesLeft { fence_found });
    }
    // The new log's clock goes on from the latest time that was found, as a server's would.
    let now_unix_ms = wish.now_unix_ms.max(found.clock_unix_ms);
    let kept = |name: &String| format!("damaged-{}-{name}", wish.now_unix_ms);
    let plan = Repaired {
        fence_found,
        ceiling,
        horizon_unix_ms: now_unix_ms + wish.lease_ms_max,
        moved: found.names.iter().map(kept).collect(),
    };
    if !wish.accept_loss {
        return Err(RepairError::LossNotAccepted {
            damage,
            plan: Box::new(plan),
        });
    }

    let begin = found.end.plus(POSITIONS_MARGIN);
    let shelf = Shelf::new(segment_bytes, 0);
    shelf.number_spares_from(found.spare_next);
    shelf.begin_segment(&*disk, found.sequence_next, begin)?;
    let mut snapshot = SnapshotFile::create(disk.clone(), begin, now_unix_ms, Scope::Fences)?;
    snapshot.add(&Record::Ceiling {
        shard: 0,
        fence: ceiling,
    })?;
    snapshot.add(&Record::Clock {
        unix_ms: now_unix_ms,
        wall_unix_ms: Some(wish.now_unix_ms),
    })?;
    snapshot.add(&Record::Horizon {
        unix_ms: plan.horizon_unix_ms,
        lease_ms_max: None,
    })?;
    snapshot.finish(begin)?;

    // Neither of the new files is among them: their numbers are higher than those of all that were there.
    for (name, kept) in found.names.iter().zip(&plan.moved) {
        disk.rename(name, kept).blame("rename", &*disk, name)?;
    }
    disk.sync_dir().blame("sync", &*disk, "")?;
    Ok(plan)
}

/// What is left of a damaged log.
#[derive(Default)]
struct Found {
    fence_max: u64,
    /// The latest time that a record calls the present.
    clock_unix_ms: u64,
    /// Behind every position.
    end: Position,
    sequence_next: u64,
    spare_next: u64,
    /// Segments and snapshots.
    names: Vec<String>,
}

impl Found {
    fn look(disk: &dyn Disk) -> Result<Found, IoFailure> {
        let mut found = Found::default();
        for name in disk.list().blame("list", disk, "")? {
            match Name::parse(&name) {
                Some(Name::Spare(number)) => {
                    found.spare_next = found.spare_next.max(number + 1);
                    continue;
                }
                Some(Name::Segment(sequence)) => {
                    found.sequence_next = found.sequence_next.max(sequence + 1);
                }
                Some(Name::Snapshot(position)) => {
                    found.end = found.end.max(Position::new(position));
                }
                // The new snapshot takes its place.
                Some(Name::Unfinished) | None => continue,
            }
            found.names.push(name);
        }
        scan(disk, &mut |place, frame, record| {
            let fence = match *record {
                Record::Ceiling { fence, .. } => fence,
                Record::Granted(lease) | Record::GrantedLong(lease) => lease.fence,
                Record::Renewed { fence, .. }
                | Record::Released { fence, .. }
                | Record::Downgraded { fence, .. } => fence,
                _ => 0,
            };
            found.fence_max = found.fence_max.max(fence);
            let present_ms = match *record {
                Record::Started { unix_ms, .. }
                | Record::CleanStop { unix_ms }
                | Record::SnapshotBegin { unix_ms, .. }
                | Record::Clock { unix_ms, .. } => unix_ms,
                Record::Granted(lease) | Record::GrantedLong(lease) => lease.granted_unix_ms,
                _ => 0,
            };
            found.clock_unix_ms = found.clock_unix_ms.max(present_ms);
            // In a snapshot a position is a place in the file.
            if matches!(place.file, Name::Segment(_)) {
                found.end = found.end.max(frame.position.plus(frame.bytes as u64));
            }
        })?;
        Ok(found)
    }
}

/// Shows every whole record in every file, damaged or not, spares included: the ceilings that a lost snapshot had may stand
/// in what it replaced. Reads a file at a time.
pub(crate) fn scan(
    disk: &dyn Disk,
    visit: &mut dyn FnMut(Place, &Frame<'_>, &Record<'_>),
) -> Result<(), IoFailure> {
    let names = disk.list().blame("list", disk, "")?;
    let mut names: Vec<Name> = names.iter().filter_map(|name| Name::parse(name)).collect();
    names.sort();
    for file in names {
        let name = file.to_string();
        let handle = disk.open_read(&name).blame("open", disk, &name)?;
        let length = handle.bytes().blame("read", disk, &name)?;
        let mut bytes = vec![0; length as usize];
        handle.read_at(&mut bytes, 0).blame("read", disk, &name)?;
        let header = Header::read(disk, &name, &*handle, Sort::Segment);
        let base = match (file, header) {
            // In a snapshot a record's position is its place in the file.
            (Name::Snapshot(_) | Name::Unfinished, _) => 0,
            (_, Ok(header)) => header.begin.get().wrapping_sub(PAGE_BYTES),
            (_, Err(_)) => match base_by_records(&bytes) {
                Some(base) => base,
                None => continue,
            },
        };
        let mut from = (PAGE_BYTES as usize).min(bytes.len());
        while let Some((offset, frame)) = frame::find(&bytes, from, base) {
            if let Ok(record) = Record::decode(frame.kind, frame.payload) {
                let place = Place {
                    file,
                    offset: offset as u64,
                };
                visit(place, &frame, &record);
            }
            from = offset + frame.bytes;
        }
    }
    Ok(())
}

/// The position of offset 0, by the first whole record there is: for a segment whose first page is damaged.
fn base_by_records(bytes: &[u8]) -> Option<u64> {
    (PAGE_BYTES as usize..bytes.len()).find_map(|offset| {
        let frame = frame::read_anywhere(&bytes[offset..]).ok()?;
        Some(frame.position.get().wrapping_sub(offset as u64))
    })
}

#[cfg(test)]
mod tests;
