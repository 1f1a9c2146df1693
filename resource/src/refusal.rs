//! Which fences are refused, and every other reason why a write did not happen.

use protocol::Fence;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Which fences a guard lets through. Either way one that lies below the highest seen is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// A fence is good for one write: refuses the highest seen as well. A write that is repeated is
    /// refused the second time, with `seen == got`.
    #[default]
    FirstUse,
    /// A fence is good until a higher one is seen: one grant, many writes.
    AtLeast,
}

impl Policy {
    /// Whether `got` may pass where `seen` is the highest so far.
    pub fn admits(self, seen: Fence, got: Fence) -> bool {
        match self {
            Self::FirstUse => got > seen,
            Self::AtLeast => got >= seen,
        }
    }
}

/// A fence that ran backwards. Its sender no longer holds the lock, or, under [`Policy::FirstUse`],
/// has used its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The highest fence that this key, or a floor it stands on, has let through.
    pub seen: Fence,
    /// The one that was refused.
    pub got: Fence,
    /// The key itself is not remembered: `seen` is its floor, at or above whatever the key had.
    pub is_floor: bool,
}

/// Why a write did not happen. It concerns this write only, except for [`Refusal::Broken`]. Nothing
/// was written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The fence ran backwards. Repeating the write will not help; acquiring the lock again will.
    Stale(Stale),
    /// The key is new and there is no room for another, or the value is larger than the room that
    /// is left.
    Full(Full),
    /// Too many writes are under way or waiting for their turn.
    Busy {
        /// The bound that was hit.
        writes_max: usize,
    },
    /// No key is that long.
    KeyTooLong {
        /// Its length; [`KEY_BYTES_MAX`](crate::limits::KEY_BYTES_MAX) is the bound.
        key_bytes: usize,
    },
    /// The log could not be written. What is on the disk is not known any more, so nothing is
    /// accepted until a restart.
    Broken(Arc<JournalError>),
}

/// Which room ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Room for keys.
    Keys {
        /// The bound.
        keys_max: usize,
    },
    /// Room for the bytes of keys and values.
    Bytes {
        /// The bound.
        bytes_max: u64,
    },
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stale fencing token: seen {}, got {}",
            self.seen, self.got
        )?;
        if self.is_floor {
            f.write_str(
                " (the key is not among those remembered, and this is the floor for all others; if its holder does hold the \
                 lock, remember more keys, or refuse new ones instead of forgetting old ones)",
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys { keys_max } => write!(
                f,
                "there is room for {keys_max} keys and no more; a higher bound on keys makes room"
            ),
            Self::Bytes { bytes_max } => {
                write!(f, "there is room for {bytes_max} bytes and no more")
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(stale) => stale.fmt(f),
            Self::Full(full) => full.fmt(f),
            Self::Busy { writes_max } => write!(
                f,
                "{writes_max} writes are under way or waiting, the most there may be; try again later"
            ),
            Self::KeyTooLong { key_bytes } => write!(
                f,
                "a key has at most {} bytes, this one has {key_bytes}",
                crate::limits::KEY_BYTES_MAX
            ),
            Self::Broken(error) => write!(f, "nothing is accepted until a restart: {error}"),
        }
    }
}

impl Error for Stale {}
impl Error for Refusal {}

impl From<Stale> for Refusal {
    fn from(stale: Stale) -> Self {
        Self::Stale(stale)
    }
}

/// What went wrong with the log on disk. At the start: the guard does not open. Later: it accepts
/// nothing any more.
#[derive(Debug)]
#[non_exhaustive]
pub enum JournalError {
    /// The system refused.
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another process has the directory.
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The file is damaged before its last frame. What it lost may have been a fence that was
    /// acknowledged, so going on could let an older one through.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The log is of another kind: a guard's where a service's is wanted, or the other way round.
    OtherKind {
        /// The file.
        path: PathBuf,
    },
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io {
                action,
                path,
                source,
            } => write!(f, "cannot {action} {}: {source}", path.display()),
            Self::InUse { path } => write!(f, "{} is in use by another process", path.display()),
            Self::Damaged { path, offset, what } => write!(
                f,
                "{} is damaged at byte {offset}: {what}. Fences that were acknowledged may be lost; restore the file, or \
                 begin with an empty directory once no older holder can still write",
                path.display()
            ),
            Self::OtherKind { path } => write!(
                f,
                "{} belongs to a log of another kind: guards and services do not share a directory",
                path.display()
            ),
        }
    }
}

impl Error for JournalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
