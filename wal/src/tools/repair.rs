//! A new log in place of a damaged one, above every fence that can have been issued.
//!
//! # What can be trusted
//!
//! A whole record can: its checksum and its position say that we wrote it there. That something is
//! *missing* cannot be seen, so no lease can be trusted to be still held, and no key to be free.
//! What remains is a bound:
//!
//! - **Fences.** The damaged part may have raised ceilings. So the new ceiling lies
//!   [`FENCES_MARGIN`] above the highest ceiling or fence in any whole record of any file, and
//!   above a million for every second since 1970, which is where a server began that started from
//!   nothing, if no record at all is left. Each repair before this one has raised fences by as
//!   much, and may be all that is known of them: it counts once more.
//! - **Leases.** Every lease was granted before now, so none ends later than now and the longest
//!   lease. The next server finds that as its horizon, and a log whose last server wrote down
//!   fences only and did not stop in good order: it waits until then, and holders claim what they
//!   have.
//! - **The sessions' key.** It stays if it is sound. If it is lost, a new one takes its place; and
//!   if it is all that is lost, the log and the leases in it stay as they are.
//!
//! # In which order
//!
//! The new log begins far behind every position that was ever used. First its segment gets its
//! name, then its snapshot: at that moment everything before it is obsolete and the log is sound. A
//! crash before leaves the damaged log as it was, and repair can be run again. Then the old files
//! are renamed, not removed. The key comes last: a crash before leaves a sound log without its key,
//! and repair can be run again.

use crate::error::{Blame, IoFailure, NODE_ADVICE, ReplayError, WalError};
use crate::files::key::{KEY_FILE, SessionKey};
use crate::files::segment::{Name, SEGMENT_BYTES, Shelf};
use crate::log;
use crate::log::snapshot::SnapshotFile;
use crate::record::frame::Position;
use crate::record::{FENCE_MAX, Record, Scope};
use crate::replay;
use crate::replay::recovered::Recovered;
use crate::replay::state::State;
use crate::tools::scan::scan;
use crate::tools::show;
use disk::Disk;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// How far above the highest known ceiling a repaired log begins: as many fences as a million
/// grants a second use up in two hundred days, and one in five hundred of all there are.
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
    /// The new log. `None`: the log is sound, and stays as it is.
    pub log: Option<NewLog>,
    /// Sessions are signed with a new key: none from before can be resumed.
    pub is_key_new: bool,
    /// What the old files are called now. They may be removed.
    pub moved: Vec<String>,
}

/// A log in place of a damaged one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewLog {
    /// The highest ceiling or fence that was found.
    pub fence_found: u64,
    /// The next server grants above this.
    pub ceiling: u64,
    /// Until then it waits for holders to claim their locks.
    pub horizon_unix_ms: u64,
}

impl fmt::Display for Repaired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.log {
            Some(log) => write!(
                f,
                "The highest fence that was found is {}; the next server grants above {}. All leases and sessions are \
                 lost; none that was granted ends after {}.",
                log.fence_found,
                log.ceiling,
                show::Utc(log.horizon_unix_ms)
            )?,
            None => write!(f, "The log is sound and stays as it is.")?,
        }
        if self.is_key_new {
            write!(
                f,
                " The sessions' key is new: no session from before can be resumed, and what it holds ends with its lease."
            )?;
        }
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
    /// The directory belongs to a node of a cluster, whose votes a new log would forget.
    OfACluster {
        /// Which.
        dir: PathBuf,
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
                "repair loses what cannot be told from damage, and wants to hear --accept-loss. What is wrong: {damage}"
            ),
            RepairError::OfACluster { dir } => write!(
                f,
                "{} belongs to a node of a cluster, and a node is not repaired: without its log it could vote twice. \
                 Nothing was changed. See with `fencepost wal verify {0}` whether it is sound. If not: {NODE_ADVICE}",
                dir.display()
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
    let disk = log::open_dir(dir).map_err(RepairError::Wal)?;
    repair_on(Arc::new(disk), SEGMENT_BYTES, wish)
}

/// The same on any disk, with a first segment of `segment_bytes`.
pub fn repair_on(
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    wish: &Repair,
) -> Result<Repaired, RepairError> {
    let _lock = log::lock(&*disk).map_err(RepairError::Wal)?;
    let mut state = State::default();
    let read = replay::walk(&*disk, &mut state)
        .and_then(|layout| Recovered::new(state, &layout, Instant::now(), &*disk));
    let damage = match read {
        Ok(_) => return Err(RepairError::Sound),
        Err(ReplayError::Io(failure)) => return Err(failure.into()),
        Err(damage) => damage,
    };
    if damage.is_newer() {
        return Err(RepairError::Newer(damage));
    }

    let kept = |name: &str| format!("damaged-{}-{name}", wish.now_unix_ms);
    let key = LostKey::look(&*disk)?;
    let mut plan = Repaired {
        log: None,
        is_key_new: key.is_some(),
        moved: Vec::new(),
    };
    let mut found = None;
    if !damage.is_of_session_key() {
        let found = found.insert(Found::look(&*disk)?);
        if found.is_of_node {
            let dir = disk.dir().to_owned();
            return Err(RepairError::OfACluster { dir });
        }
        plan.log = Some(found.new_log(wish)?);
        plan.moved.extend(found.names.iter().map(|name| kept(name)));
    }
    let kept_key = (key == Some(LostKey::Damaged)).then(|| kept(KEY_FILE));
    plan.moved.extend(kept_key.clone());
    if !wish.accept_loss {
        return Err(RepairError::LossNotAccepted {
            damage,
            plan: Box::new(plan),
        });
    }

    if let (Some(found), Some(log)) = (&found, &plan.log) {
        write_log(&disk, segment_bytes, wish, found, log)?;
        // Neither of the new files is among them: their numbers are higher than those of all that
        // were there.
        for (name, kept) in found.names.iter().zip(&plan.moved) {
            disk.rename(name, kept).blame("rename", &*disk, name)?;
        }
        disk.sync_dir().blame("sync", &*disk, "")?;
    }
    if plan.is_key_new {
        SessionKey::replace(&*disk, kept_key.as_deref())?;
    }
    Ok(plan)
}

/// Writes the new log: a segment with nothing in it, and a snapshot of what is known.
fn write_log(
    disk: &Arc<dyn Disk>,
    segment_bytes: u64,
    wish: &Repair,
    found: &Found,
    log: &NewLog,
) -> Result<(), IoFailure> {
    let begin = found.end.plus(POSITIONS_MARGIN);
    let shelf = Shelf::new(segment_bytes, 0);
    shelf.number_spares_from(found.spare_next);
    shelf.begin_segment(&**disk, found.sequence_next, begin)?;
    let now_unix_ms = found.now_unix_ms(wish);
    let mut snapshot = SnapshotFile::create(disk.clone(), begin, now_unix_ms, Scope::Fences)?;
    snapshot.add(&Record::Ceiling {
        shard: 0,
        fence: log.ceiling,
    })?;
    snapshot.add(&Record::Clock {
        unix_ms: now_unix_ms,
        wall_unix_ms: Some(wish.now_unix_ms),
    })?;
    snapshot.add(&Record::Horizon {
        unix_ms: log.horizon_unix_ms,
        lease_ms_max: None,
    })?;
    snapshot.finish(begin)?;
    Ok(())
}

/// How a key is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LostKey {
    Missing,
    Damaged,
}

impl LostKey {
    fn look(disk: &dyn Disk) -> Result<Option<LostKey>, IoFailure> {
        // Whatever the log said, a server has used the directory.
        match SessionKey::find(disk, FENCE_MAX) {
            Ok(_) => Ok(None),
            Err(ReplayError::MissingSessionKey { .. }) => Ok(Some(LostKey::Missing)),
            Err(ReplayError::Io(failure)) => Err(failure),
            Err(_) => Ok(Some(LostKey::Damaged)),
        }
    }
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
    /// When it was repaired before, by the names of what was put aside.
    repairs: BTreeSet<String>,
    /// A record is there that only a node of a cluster writes.
    is_of_node: bool,
}

impl Found {
    fn new_log(&self, wish: &Repair) -> Result<NewLog, RepairError> {
        let fence_found = self.fence_max;
        let by_clock = (wish.now_unix_ms / 1000) << 20;
        let margin = FENCES_MARGIN.saturating_mul(1 + self.repairs.len() as u64);
        let ceiling = fence_found.max(by_clock).saturating_add(margin);
        if ceiling >= FENCE_MAX {
            return Err(RepairError::NoFencesLeft { fence_found });
        }
        Ok(NewLog {
            fence_found,
            ceiling,
            horizon_unix_ms: self.now_unix_ms(wish) + wish.lease_ms_max,
        })
    }

    /// The new log's clock goes on from the latest time that was found, as a server's would.
    fn now_unix_ms(&self, wish: &Repair) -> u64 {
        wish.now_unix_ms.max(self.clock_unix_ms)
    }

    fn look(disk: &dyn Disk) -> Result<Found, IoFailure> {
        let mut found = Found::default();
        for name in disk.list().blame("list", disk, "")? {
            let kept = name.strip_prefix("damaged-");
            if let Some((time, _)) = kept.and_then(|kept| kept.split_once('-')) {
                found.repairs.insert(time.to_owned());
            }
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
            // A spare may have been a segment of anything before.
            found.is_of_node |= record.is_of_node() && !matches!(place.file, Name::Spare(_));
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

#[cfg(test)]
mod tests;
