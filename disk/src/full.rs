//! A full file system: how it answers, and where it is mounted.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Whether this is what a file system without room says, or one on which the user has none left.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Where the file system of this path is mounted, as far as that can be seen.
pub fn mount_point(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|above| above.canonicalize().ok());
    let mut at = existing.unwrap_or_else(|| PathBuf::from("/"));
    let device = |path: &Path| path.metadata().map(|file| file.dev()).ok();
    let own = device(&at);
    while let Some(above) = at.parent()
        && device(above) == own
    {
        at = above.to_owned();
    }
    at
}
