//! The first directory of a new cluster, made from what there is: a backup, the directory of one
//! node of a cluster that lost its majority, or that of a single server.
//!
//! What comes of it is node N of a cluster with a new id and one voter. It begins with an image of
//! the ledger as its snapshot, behind an entry that is only named; the node elects itself, and
//! further nodes are added to it.
//!
//! # Fences
//!
//! What was granted behind the backup, or by the nodes that are lost, is not known. So the new
//! cluster begins [`FENCES_MARGIN`] above every fence that is known, as a repaired log does, and
//! above what a server without a log would begin with. A single server that was stopped in good
//! order has told all: its ceilings are the floor, and a million more for each second since, since
//! a server without a log may have run there meanwhile.

use crate::backup::{self, NotABackup};
use crate::codec::{DecodeError, Reader};
use crate::entry::Birth;
use crate::ledger::{LedgerState, Numbers};
use crate::node::GROUP;
use crate::random::{random_key, random_u64};
use crate::store::log_id;
use crate::types::{Entry, LogId, Member, Membership, NodeId, StoredMembership};
use bytes::Bytes;
use disk::Disk;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;
use wal::{EntryId, FENCE_MAX, FENCES_MARGIN, Options, PART_BYTES_MAX, Record, Scope, WalError};

/// The file that says of a directory that a cluster has taken over what is in it. A server by
/// itself does not start with it: it would grant what the cluster's clients hold.
pub const ADOPTED_FILE: &str = "adopted-by-a-cluster";

/// What that file is called until all of it is on the disk.
const ADOPTED_DRAFT: &str = "adopted-by-a-cluster.new";

/// What it says, for people.
const ADOPTED_TEXT: &[u8] =
    b"The locks and sessions of this directory go on in a cluster. Delete this file only to go back for good,\n\
    when no node of that cluster runs any more.\n";

/// Puts [`ADOPTED_FILE`] into the directory of a single server.
///
/// When it fails, no cluster has the directory, and its server must start again. So it leaves no
/// such file, unless the disk refuses to remove it too.
pub fn mark_adopted(disk: &dyn Disk) -> io::Result<()> {
    let marked = write_mark(disk);
    if marked.is_err() {
        // Both: a change of names may take effect and be reported as failed all the same. What
        // fails here is the same disk again, and the first error says more.
        let _ = disk.remove(ADOPTED_DRAFT);
        let _ = disk.remove(ADOPTED_FILE);
        let _ = disk.sync_dir();
    }
    marked
}

fn write_mark(disk: &dyn Disk) -> io::Result<()> {
    let file = disk.create(ADOPTED_DRAFT, 0)?;
    file.write_at(ADOPTED_TEXT, 0)?;
    file.sync_data()?;
    disk.rename(ADOPTED_DRAFT, ADOPTED_FILE)?;
    disk.sync_dir()
}

/// The entry that the first image is named after.
const FIRST: EntryId = EntryId {
    term: 1,
    node: 0,
    index: 1,
};

/// What a new cluster is made from.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// The bytes of a backup's file.
    Backup(&'a [u8]),
    /// The directory of a node. It is read only.
    Node(&'a Path),
    /// The directory of a single server that was stopped in good order. It is read only.
    Single(&'a Path),
}

/// Why no cluster was founded. Nothing was changed, unless the disk failed.
#[derive(Debug)]
pub enum FoundingError {
    /// The file is no backup.
    Backup(NotABackup),
    /// A directory cannot be read or written.
    Log(WalError),
    /// What it says cannot be read.
    Decode(DecodeError),
    /// An entry cannot be applied.
    Entry(io::Error),
    /// There is nothing in it.
    Nothing(PathBuf),
    /// The single server did not stop in good order.
    NotClean(PathBuf),
    /// The directory for the new node has files already.
    NotEmpty(PathBuf),
    /// Above what was found there are not enough fences left.
    NoFencesLeft {
        /// The highest that was found.
        fence_found: u64,
    },
}

impl fmt::Display for FoundingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FoundingError::Backup(error) => error.fmt(f),
            FoundingError::Log(error) => error.fmt(f),
            FoundingError::Decode(error) => {
                write!(f, "the image of the ledger is damaged: {error}")
            }
            FoundingError::Entry(error) => error.fmt(f),
            FoundingError::Nothing(dir) => write!(
                f,
                "there is no ledger in {}: is it the right directory?",
                dir.display()
            ),
            FoundingError::NotClean(dir) => write!(
                f,
                "the server of {} did not stop in good order, so what it held is not all known. Start it once more with the \
                 same settings, wait until `/readyz?granting` answers 200, stop it with SIGTERM, and try again",
                dir.display()
            ),
            FoundingError::NotEmpty(dir) => write!(
                f,
                "{} is not empty: give a directory that is, or one that does not exist",
                dir.display()
            ),
            FoundingError::NoFencesLeft { fence_found } => write!(
                f,
                "fence {fence_found} was found, and there are not enough fences above it"
            ),
        }
    }
}

impl std::error::Error for FoundingError {}

impl From<WalError> for FoundingError {
    fn from(error: WalError) -> Self {
        FoundingError::Log(error)
    }
}

impl From<DecodeError> for FoundingError {
    fn from(error: DecodeError) -> Self {
        FoundingError::Decode(error)
    }
}

impl From<NotABackup> for FoundingError {
    fn from(error: NotABackup) -> Self {
        FoundingError::Backup(error)
    }
}

/// A cluster that could be founded.
pub struct Founding {
    state: LedgerState,
    now_unix_ms: u64,
    /// The new cluster's id.
    pub cluster_id: u128,
    /// That of the one it is made from; 0: it was a single server.
    pub cluster_id_before: u128,
    /// When the backup was taken; `None`: it is made from a directory.
    pub taken_unix_ms: Option<u64>,
    /// The highest ceiling that was found.
    pub fence_found: u64,
    /// The new cluster grants above this.
    pub floor: u64,
    /// What its clock shows.
    pub clock_ms: u64,
    /// Sessions that go on.
    pub sessions: usize,
    /// Keys that are held.
    pub locks: usize,
}

impl Founding {
    /// Reads what there is. Nothing is changed.
    pub fn read(origin: Origin<'_>, now_unix_ms: u64) -> Result<Founding, FoundingError> {
        let (mut state, taken_unix_ms) = match origin {
            Origin::Backup(file) => {
                let (image, taken_unix_ms) = backup::from_file(file)?;
                let image = Bytes::copy_from_slice(image);
                (LedgerState::from_image(&[image])?, Some(taken_unix_ms))
            }
            Origin::Node(dir) => (read_node(dir, now_unix_ms)?, None),
            Origin::Single(dir) => return Self::read_single(dir, now_unix_ms),
        };
        let fence_found = state.ledger.ceiling_max();
        let by_clock = (now_unix_ms / 1_000) << 20;
        let floor = fence_found.max(by_clock).saturating_add(FENCES_MARGIN);
        if floor >= FENCE_MAX {
            return Err(FoundingError::NoFencesLeft { fence_found });
        }
        let before = state.birth.take();
        Ok(Self::new(state, before, taken_unix_ms, floor, now_unix_ms))
    }

    fn read_single(dir: &Path, now_unix_ms: u64) -> Result<Founding, FoundingError> {
        if !dir.is_dir() {
            return Err(FoundingError::Nothing(dir.to_owned()));
        }
        let options = Options::new(Scope::Leases, now_unix_ms);
        let (_opened, found) = wal::open(dir, &options)?;
        if found.scope.is_none() {
            return Err(FoundingError::Nothing(dir.to_owned()));
        }
        if !found.was_clean {
            return Err(FoundingError::NotClean(dir.to_owned()));
        }
        let fence_found = found.ceiling_max;
        let clock_ms = found.last_clock_unix_ms;
        let wall_ms = clock_ms.saturating_add_signed(found.wall_ahead_ms);
        let since = u128::from(now_unix_ms.saturating_sub(wall_ms)) << 20;
        let by_clock = ((u128::from(now_unix_ms) << 20) / 1_000) as u64;
        let floor = fence_found.saturating_add((since / 1_000) as u64);
        let floor = floor.max(by_clock);
        if floor >= FENCE_MAX {
            return Err(FoundingError::NoFencesLeft { fence_found });
        }
        let sessions = found.sessions.iter();
        let ledger = wal::Ledger::adopt(clock_ms, fence_found, sessions, found.leases.iter());
        let birth = Birth {
            cluster_id: 0,
            session_key: found.session_key(),
            birth_unix_ms: clock_ms,
        };
        let state = LedgerState::with_ledger(ledger);
        Ok(Self::new(state, Some(birth), None, floor, now_unix_ms))
    }

    fn new(
        mut state: LedgerState,
        before: Option<Birth>,
        taken_unix_ms: Option<u64>,
        floor: u64,
        now_unix_ms: u64,
    ) -> Founding {
        let fence_found = state.ledger.ceiling_max();
        state.ledger.raise_floor(floor);
        let cluster_id = u128::from(random_u64()) << 64 | u128::from(random_u64());
        // With the same key clients' sessions go on.
        let birth = Birth {
            cluster_id,
            session_key: before.as_ref().map_or_else(random_key, |b| b.session_key),
            birth_unix_ms: before.as_ref().map_or(now_unix_ms, |b| b.birth_unix_ms),
        };
        state.birth = Some(birth);
        Founding {
            now_unix_ms,
            cluster_id,
            cluster_id_before: before.map_or(0, |birth| birth.cluster_id),
            taken_unix_ms,
            fence_found,
            floor,
            clock_ms: state.ledger.clock_ms(),
            sessions: state.ledger.sessions().len(),
            locks: state.ledger.count_held(),
            state,
        }
    }

    /// Writes the directory of the new cluster's first node. It is made if it does not exist.
    pub fn write(mut self, dir: &Path, node: NodeId) -> Result<(), FoundingError> {
        if std::fs::read_dir(dir).is_ok_and(|mut files| files.next().is_some()) {
            return Err(FoundingError::NotEmpty(dir.to_owned()));
        }
        let options = Options::new(Scope::Leases, self.now_unix_ms);
        let (opened, _) = wal::open_node(dir, &options)?;
        let disk = random_u64();
        let first = EntryId { node, ..FIRST };
        let applied = log_id(first);
        self.state
            .begin_anew(applied, alone(node, applied), node, disk);
        let image = self.state.make_image();
        let wal = opened.start(())?;
        let mut snapshot = wal.begin_snapshot(self.now_unix_ms)?;
        snapshot.add(&Record::NodeIs { node, disk })?;
        snapshot.add(&Record::Vote {
            group: GROUP,
            term: first.term,
            node,
            is_committed: true,
        })?;
        for part in image.chunks(PART_BYTES_MAX) {
            snapshot.add(&Record::ImagePart { group: GROUP, part })?;
        }
        snapshot.add(&Record::Purged {
            group: GROUP,
            id: first,
        })?;
        snapshot.finish()?;
        wal.close(self.now_unix_ms)?;
        Ok(())
    }
}

/// A membership of one voter. Where it is reached, the node says when it starts.
fn alone(node: NodeId, log_id: LogId) -> StoredMembership {
    let voters = vec![BTreeSet::from([node])];
    let nodes = BTreeMap::from([(node, Member::default())]);
    let membership = Membership::new(voters, nodes).expect("its only voter is among its nodes");
    StoredMembership::new(Some(log_id), membership)
}

/// All that the log of a node says: also entries of which it is not known that a majority had
/// them. What they say was decided by a leader, and if it was not told, keeping it errs on "held".
fn read_node(dir: &Path, now_unix_ms: u64) -> Result<LedgerState, FoundingError> {
    let nothing = || FoundingError::Nothing(dir.to_owned());
    if !dir.is_dir() {
        return Err(nothing());
    }
    let options = Options::new(Scope::Leases, now_unix_ms);
    let (_opened, mut log) = wal::open_node(dir, &options)?;
    let group = log.groups.remove(&GROUP).ok_or_else(nothing)?;
    let mut state = match group.image.is_empty() {
        true => LedgerState::default(),
        false => LedgerState::from_image(&[Bytes::from(group.image)])?,
    };
    let (now, numbers) = (Instant::now(), Numbers::default());
    for found in group.entries.into_values() {
        if state
            .applied
            .is_some_and(|applied| found.id.index <= applied.index())
        {
            continue;
        }
        let entry = Entry {
            log_id: log_id(found.id),
            payload: Reader::new(found.payload.into()).payload()?,
        };
        let applied = state.apply(&entry, now, &numbers);
        applied.map_err(FoundingError::Entry)?;
    }
    match state.birth {
        Some(_) => Ok(state),
        None => Err(nothing()),
    }
}

#[cfg(test)]
mod tests;
