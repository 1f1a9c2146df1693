//! What can go wrong between us and the disk, in sentences that an operator can act on.

use crate::record::frame::{Flaw, Position};
use crate::record::payload::RecordError;
use disk::Disk;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A call to the file system that failed.
#[derive(Clone, Debug)]
pub struct IoFailure {
    /// What was tried.
    pub action: &'static str,
    /// With which file or directory.
    pub path: PathBuf,
    /// What the system said. Shared, since every later caller is told the same.
    pub source: Arc<io::Error>,
}

impl fmt::Display for IoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IoFailure {
            action,
            path,
            source,
        } = self;
        write!(f, "cannot {action} {}: {source}", path.display())?;
        if self.is_for_want_of_room() {
            let mount_point = disk::mount_point(path);
            write!(f, "; the file system at {} is full", mount_point.display())?;
        }
        Ok(())
    }
}

impl IoFailure {
    /// Whether the file system is full, or the user's share of it.
    pub fn is_for_want_of_room(&self) -> bool {
        disk::is_full(&self.source)
    }
}

/// Adds to a failure what was tried, and with what.
pub(crate) trait Blame<T> {
    fn blame(self, action: &'static str, disk: &dyn Disk, name: &str) -> Result<T, IoFailure>;
}

impl<T> Blame<T> for io::Result<T> {
    fn blame(self, action: &'static str, disk: &dyn Disk, name: &str) -> Result<T, IoFailure> {
        self.map_err(|error| IoFailure {
            action,
            path: disk.dir().join(name),
            source: Arc::new(error),
        })
    }
}

/// Why the log cannot be opened, or writes no more. The server stops: nothing that was not reported
/// as synced may be acknowledged, now or later.
#[derive(Clone, Debug)]
pub enum WalError {
    /// Another process has the directory.
    Locked {
        /// Which.
        dir: PathBuf,
    },
    /// The disk refused something. Nothing is tried twice: after a failed sync the system may drop
    /// what it could not write and report success the next time.
    Io(IoFailure),
    /// What is in the directory cannot be believed, or not be read.
    Replay(ReplayError),
    /// The file system has no room for what a server writes. Nothing was changed.
    NoRoom {
        /// The directory of the log.
        dir: PathBuf,
        /// Where its file system is mounted.
        mount_point: PathBuf,
        /// What is free there.
        free_bytes: u64,
        /// What is needed.
        needed_bytes: u64,
    },
    /// There is one snapshot at a time.
    SnapshotUnderWay,
    /// The writer thread panicked.
    WriterGone,
    /// The log was closed.
    Closed,
}

impl fmt::Display for WalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WalError::Locked { dir } => write!(
                f,
                "another server is using {}; give each server a directory of its own",
                dir.display()
            ),
            WalError::Io(failure) => failure.fmt(f),
            WalError::Replay(error) => error.fmt(f),
            WalError::NoRoom {
                dir,
                mount_point,
                free_bytes,
                needed_bytes,
            } => write!(
                f,
                "the file system at {} has {} MiB free, and a log in {} needs {} MiB: for a segment, a spare one and a \
                 snapshot. Make room there, or put data_dir on another file system",
                mount_point.display(),
                free_bytes >> 20,
                dir.display(),
                needed_bytes.div_ceil(1 << 20),
            ),
            WalError::SnapshotUnderWay => write!(f, "another snapshot is being written"),
            WalError::WriterGone => write!(f, "the thread that writes the log is gone"),
            WalError::Closed => write!(f, "the log is closed"),
        }
    }
}

impl std::error::Error for WalError {}

impl WalError {
    /// Whether the disk is full.
    pub fn is_for_want_of_room(&self) -> bool {
        match self {
            WalError::NoRoom { .. } => true,
            WalError::Io(failure) => failure.is_for_want_of_room(),
            _ => false,
        }
    }
}

impl From<IoFailure> for WalError {
    fn from(failure: IoFailure) -> Self {
        WalError::Io(failure)
    }
}

impl From<ReplayError> for WalError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Io(failure) => WalError::Io(failure),
            error => WalError::Replay(error),
        }
    }
}

/// Why the log was not believed. The server does not start, and nothing in the directory was
/// changed.
#[derive(Clone, Debug)]
pub enum ReplayError {
    /// A file could not be read.
    Io(IoFailure),
    /// A file does not begin as it must.
    Header {
        /// Which.
        file: PathBuf,
        /// Where in its first page.
        offset: u64,
        /// What should be there.
        expected: &'static str,
    },
    /// A newer server wrote this.
    NewerVersion {
        /// Which file.
        file: PathBuf,
        /// Its version.
        version: u32,
    },
    /// A segment is longer or shorter than it was made.
    Size {
        /// Which.
        file: PathBuf,
        /// How long it is.
        bytes: u64,
        /// How long it was made.
        bytes_expected: u64,
    },
    /// The whole log is gone: there is neither a segment nor a snapshot, but a server has used the
    /// directory.
    MissingLog {
        /// The file that shows it.
        file: PathBuf,
    },
    /// The key that sessions are signed with is gone.
    MissingSessionKey {
        /// Which.
        file: PathBuf,
    },
    /// The key that sessions are signed with is damaged.
    SessionKey {
        /// Which.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A file is gone.
    MissingSegment {
        /// The file that shows it.
        file: PathBuf,
        /// The segment that is missing.
        sequence: u64,
    },
    /// The beginning of the log is gone, and no snapshot replaces it.
    MissingSnapshot {
        /// The oldest segment there is.
        file: PathBuf,
        /// Where it begins.
        position: Position,
    },
    /// Bytes that were on the disk are not there any more.
    Damaged {
        /// In which file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// The position of the record that should be there.
        position: Position,
        /// What is there instead.
        flaw: Flaw,
        /// How we know that it was there.
        proof: Proof,
    },
    /// A segment does not end where the next begins.
    Chain {
        /// The segment.
        file: PathBuf,
        /// Where it ends.
        end: Position,
        /// Where the next begins.
        next_begins: Position,
    },
    /// A snapshot does not add up.
    Snapshot {
        /// Which.
        file: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A whole record that we do not understand.
    Record {
        /// In which file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong with it.
        error: RecordError,
    },
    /// A whole record that contradicts others.
    Rule {
        /// In which file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// Which rule it breaks.
        rule: BrokenRule,
    },
    /// Nothing is wrong: the directory of a cluster's node was read as that of a single server.
    OfACluster {
        /// Which.
        dir: PathBuf,
    },
    /// Nothing is wrong: the directory of a single server was read as that of a cluster's node.
    OfASingleServer {
        /// Which.
        dir: PathBuf,
    },
    /// What was read as the log of a cluster's node is damaged. If it is one, other nodes have what
    /// it said, so the way out is another one than that of a single server.
    Node {
        /// Its directory.
        dir: PathBuf,
        /// Whose log it is.
        owner: Owner,
        /// What is wrong.
        damage: Box<ReplayError>,
    },
}

/// Whose log it is, as far as the records tell that were read before damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A cluster's node.
    Node,
    /// A single server.
    Server,
    /// No record was read that only one of them writes.
    Unknown,
}

/// How we know that a record once was on the disk: why a flaw is not just the end of a write that a
/// crash cut short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// A later write, which began only after this one had been synced, is there.
    LaterWrite {
        /// The offset of a record of it.
        offset: u64,
    },
    /// There is a later segment, and a segment is begun only after the one before it has been
    /// synced.
    LaterSegment {
        /// Which.
        sequence: u64,
    },
    /// A snapshot says how much of the log was on the disk when it was completed.
    Snapshot {
        /// Up to here.
        log_end: Position,
    },
    /// A snapshot gets its name only when all of it is on the disk.
    Named,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Proof::LaterWrite { offset } => {
                write!(f, "a later write is intact at offset {offset}")
            }
            Proof::LaterSegment { sequence } => {
                write!(f, "segment {sequence} was begun after it")
            }
            Proof::Snapshot { log_end } => write!(
                f,
                "the snapshot says that the log reached position {log_end}"
            ),
            Proof::Named => write!(f, "a snapshot has its name only once it is complete"),
        }
    }
}

/// Two records that cannot both be true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BrokenRule {
    /// Ceilings rise.
    CeilingFell {
        /// Of this shard.
        shard: u16,
        /// To this.
        fence: u64,
        /// From this, or from this as the floor of the server that wrote it.
        before: u64,
    },
    /// No fence is issued above a ceiling that was not on the disk.
    FenceAboveCeilings {
        /// The fence.
        fence: u64,
        /// The highest ceiling.
        ceiling: u64,
    },
    /// Records that belong into a snapshot stand in the log, or the other way round.
    OutOfPlace,
    /// The directory of a cluster's node, read as that of a single server.
    OfACluster,
    /// The directory of a single server, read as that of a cluster's node.
    OfASingleServer,
    /// An entry of a replicated log is not whole, and others follow it.
    EntryIncomplete {
        /// Its index.
        index: u64,
    },
    /// An entry of a replicated log is missing, and others follow it.
    EntryMissing {
        /// Its index.
        index: u64,
    },
}

impl fmt::Display for BrokenRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BrokenRule::CeilingFell {
                shard,
                fence,
                before,
            } => write!(
                f,
                "the ceiling of shard {shard} falls from {before} to {fence}"
            ),
            BrokenRule::FenceAboveCeilings { fence, ceiling } => {
                write!(
                    f,
                    "fence {fence} was granted, but the highest ceiling is {ceiling}"
                )
            }
            BrokenRule::OutOfPlace => write!(f, "a record of this kind does not belong there"),
            BrokenRule::EntryIncomplete { index } => {
                write!(f, "entry {index} is not whole, and others follow it")
            }
            BrokenRule::EntryMissing { index } => {
                write!(f, "entry {index} is missing, and others follow it")
            }
            BrokenRule::OfACluster => write!(f, "it is the log of a cluster's node"),
            BrokenRule::OfASingleServer => write!(f, "it is the log of a single server"),
        }
    }
}

/// What takes the place of a repair for a node of a cluster.
pub(crate) const NODE_ADVICE: &str = "Other nodes have what it had: take it out with `fencepost cluster remove`, and add it \
    under a new id and with an empty directory with `fencepost cluster add`. If a majority is lost for good, begin anew with \
    `fencepost cluster restore`, from a backup or with --from-dir from a node that is sound.";

impl ReplayError {
    /// A record of the log in `dir` breaks a rule, or shows whose log it is.
    pub(crate) fn broken(dir: &Path, file: PathBuf, offset: u64, rule: BrokenRule) -> ReplayError {
        let dir = dir.to_owned();
        match rule {
            BrokenRule::OfACluster => ReplayError::OfACluster { dir },
            BrokenRule::OfASingleServer => ReplayError::OfASingleServer { dir },
            rule => ReplayError::Rule { file, offset, rule },
        }
    }

    /// What was found in `dir`, which was read as that of a node, and which records say is that of
    /// `owner`.
    pub(crate) fn of_node(self, dir: &Path, owner: Owner) -> ReplayError {
        let is_damage = !matches!(
            self,
            ReplayError::Io(_) | ReplayError::OfASingleServer { .. }
        );
        match is_damage && !self.is_newer() {
            true => ReplayError::Node {
                dir: dir.to_owned(),
                owner,
                damage: Box::new(self),
            },
            false => self,
        }
    }

    /// Whether a newer version wrote it.
    pub(crate) fn is_newer(&self) -> bool {
        matches!(
            self,
            ReplayError::NewerVersion { .. }
                | ReplayError::Record {
                    error: RecordError::UnknownKind { .. },
                    ..
                }
        )
    }

    /// Whether only the sessions' key is lost, and the log is sound.
    pub(crate) fn is_of_session_key(&self) -> bool {
        matches!(
            self,
            ReplayError::MissingSessionKey { .. } | ReplayError::SessionKey { .. }
        )
    }

    fn file(&self) -> &Path {
        match self {
            ReplayError::Io(failure) => &failure.path,
            ReplayError::Header { file, .. }
            | ReplayError::NewerVersion { file, .. }
            | ReplayError::Size { file, .. }
            | ReplayError::MissingLog { file }
            | ReplayError::MissingSessionKey { file }
            | ReplayError::SessionKey { file, .. }
            | ReplayError::MissingSegment { file, .. }
            | ReplayError::MissingSnapshot { file, .. }
            | ReplayError::Damaged { file, .. }
            | ReplayError::Chain { file, .. }
            | ReplayError::Snapshot { file, .. }
            | ReplayError::Record { file, .. }
            | ReplayError::Rule { file, .. } => file,
            ReplayError::OfACluster { dir }
            | ReplayError::OfASingleServer { dir }
            | ReplayError::Node { dir, .. } => dir,
        }
    }

    /// What the operator can do.
    fn advice(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Io(_)
            | ReplayError::OfACluster { .. }
            | ReplayError::OfASingleServer { .. } => return Ok(()),
            ReplayError::Node { owner, damage, .. } => return damage.advice_to_node(*owner, f),
            newer if newer.is_newer() => return write!(f, "Start the version that wrote it."),
            _ => {}
        }
        let dir = self.file().parent().unwrap_or(Path::new("."));
        let dir = dir.display();
        if self.is_of_session_key() {
            return write!(
                f,
                "Nothing was changed. Put this one file back from a copy of the directory: the key stays the same for as \
                 long as the directory does. Or make a new key with `fencepost wal repair {dir} --accept-loss`: no client \
                 can then resume a session from before, and what those sessions hold stays locked until its lease ends."
            );
        }
        write!(
            f,
            "Nothing was changed. Put the directory back from a copy, if there is one from after the last stop; or see \
             with `fencepost wal verify {dir}` how far it goes, and start above every fence that can have been issued, \
             without any lease, after `fencepost wal repair {dir} --accept-loss`."
        )
    }

    /// What the operator of a node can do. It may be a single server that was started as one, and
    /// must not be given up then: no other has what it had.
    fn advice_to_node(&self, owner: Owner, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match owner {
            Owner::Node => return write!(f, "Nothing was changed. {NODE_ADVICE}"),
            Owner::Server => write!(
                f,
                "It belongs to a single server, and no other has what it had. "
            )?,
            Owner::Unknown => write!(
                f,
                "What could be read does not say whose it is. If it belongs to a node of a cluster: {NODE_ADVICE} If it \
                 belongs to a single server, no other has what it had. "
            )?,
        }
        self.advice(f)
    }

    /// What is wrong, and how we know.
    fn damage(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file().display();
        match self {
            ReplayError::Io(failure) => write!(f, "{failure}")?,
            ReplayError::OfACluster { .. } => write!(
                f,
                "{name} belongs to a node of a cluster; nothing was changed. Start it with --node-id, --peers and \
                 --durability lease, or give a single server a directory of its own with --data-dir."
            )?,
            ReplayError::OfASingleServer { .. } => write!(
                f,
                "{name} belongs to a single server; nothing was changed. Give a node a directory of its own with \
                 --data-dir, or make this one node 1 of a new cluster with `fencepost cluster adopt {name}`."
            )?,
            ReplayError::Node { damage, .. } => damage.damage(f)?,
            ReplayError::Header {
                offset, expected, ..
            } => write!(
                f,
                "{name} is damaged at offset {offset}: its first page should have {expected} there. "
            )?,
            ReplayError::NewerVersion { version, .. } => {
                write!(f, "{name} was written in version {version} of the format. ")?;
            }
            ReplayError::Size {
                bytes,
                bytes_expected,
                ..
            } => write!(
                f,
                "{name} is damaged at offset {}: it {} there, and was made with {bytes_expected} bytes. ",
                bytes.min(bytes_expected),
                match bytes < bytes_expected {
                    true => "ends",
                    false => "goes on",
                }
            )?,
            ReplayError::MissingLog { .. } => write!(
                f,
                "the log is gone: {name} shows that a server has used this directory, but there is no segment and no \
                 snapshot in it. "
            )?,
            ReplayError::MissingSessionKey { .. } => write!(
                f,
                "{name} is gone: the log shows that sessions were signed with it. "
            )?,
            ReplayError::SessionKey { offset, what, .. } => {
                write!(f, "{name} is damaged at offset {offset}: {what}. ")?;
            }
            ReplayError::MissingSegment { sequence, .. } => {
                write!(f, "segment {sequence} is missing, as {name} shows. ")?;
            }
            ReplayError::MissingSnapshot { position, .. } => write!(
                f,
                "the log begins with {name} at position {position}, and there is no snapshot of what came before. "
            )?,
            ReplayError::Damaged {
                offset,
                position,
                flaw,
                proof,
                ..
            } => write!(
                f,
                "{name} is damaged at offset {offset}: the record at position {position} should be there, but {flaw}. \
                 It was on the disk once: {proof}. "
            )?,
            ReplayError::Chain {
                end, next_begins, ..
            } => write!(
                f,
                "{name} ends at position {end}, but the next segment begins at {next_begins}. "
            )?,
            ReplayError::Snapshot { what, .. } => {
                write!(f, "{name} is damaged: {what}. ")?;
            }
            ReplayError::Record { offset, error, .. } => {
                write!(f, "{name} has at offset {offset} {error}. ")?;
            }
            ReplayError::Rule { offset, rule, .. } => {
                write!(f, "{name} contradicts itself at offset {offset}: {rule}. ")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.damage(f)?;
        self.advice(f)
    }
}

impl std::error::Error for ReplayError {}

impl From<IoFailure> for ReplayError {
    fn from(failure: IoFailure) -> Self {
        ReplayError::Io(failure)
    }
}
