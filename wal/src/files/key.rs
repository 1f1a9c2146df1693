//! The file `session.key`: what the server signs its sessions' secrets with (`secret.rs`), and the
//! mark of a directory that a server has used.
//!
//! ```text
//! 0   key       32 random bytes
//! 32  checksum  u32  CRC32C of the key
//! ```
//!
//! The key is made once. It gets its name after the first segment has its own, and before the first
//! record is written. So a key without any segment shows that the log was lost, and a log with a
//! ceiling but without a key shows that the key was. A crash during the first start leaves neither:
//! without a ceiling no fence was granted and no session opened, and a new key is as good as the
//! one that never came to be.
//!
//! Earlier servers wrote the 32 bytes alone. Such a key is believed once, and written again with
//! its checksum.
//!
//! A cluster's sessions are signed with the key in its log. In the directory of a node this file is
//! only the mark.

use crate::error::{Blame, IoFailure, ReplayError};
use disk::Disk;
use std::io;

/// In the data directory.
pub(crate) const KEY_FILE: &str = "session.key";

/// What the key is called until all of it is on the disk.
const DRAFT: &str = "session.new";

/// Bytes of the key that sessions are signed with.
pub const KEY_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 4;
pub(crate) const FILE_BYTES: usize = KEY_BYTES + CHECKSUM_BYTES;

/// A key, and whether the disk has it with its checksum.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SessionKey {
    pub(crate) bytes: [u8; KEY_BYTES],
    is_kept: bool,
}

impl SessionKey {
    /// A key that no other directory has.
    fn random() -> Self {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
        SessionKey {
            bytes,
            is_kept: false,
        }
    }

    /// Reads the key of a log whose highest ceiling is `ceiling_max`, or makes one up for a log
    /// that granted nothing yet. Changes nothing.
    pub(crate) fn find(disk: &dyn Disk, ceiling_max: u64) -> Result<Self, ReplayError> {
        let path = || disk.dir().join(KEY_FILE);
        let damaged = |offset: usize, what| ReplayError::SessionKey {
            file: path(),
            offset: offset as u64,
            what,
        };
        let file = match disk.open_read(KEY_FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && ceiling_max == 0 => {
                return Ok(Self::random());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ReplayError::MissingSessionKey { file: path() });
            }
            opened => opened.blame("open", disk, KEY_FILE)?,
        };
        let length = file.bytes().blame("read", disk, KEY_FILE)? as usize;
        if length < KEY_BYTES || (length != KEY_BYTES && length < FILE_BYTES) {
            return Err(damaged(length, "it ends there, and should have 36 bytes"));
        }
        if length > FILE_BYTES {
            return Err(damaged(
                FILE_BYTES,
                "it goes on there, and should have 36 bytes",
            ));
        }
        let mut bytes = [0; FILE_BYTES];
        let read = file.read_at(&mut bytes[..length], 0);
        read.blame("read", disk, KEY_FILE)?;
        let (key, checksum) = bytes
            .split_first_chunk()
            .expect("a key is shorter than its file");
        let is_kept = length == FILE_BYTES;
        if is_kept && *checksum != crc32c::crc32c(key).to_le_bytes() {
            return Err(damaged(0, "its checksum does not match its bytes"));
        }
        Ok(SessionKey {
            bytes: *key,
            is_kept,
        })
    }

    /// The key that the directory of a cluster's node gets as its mark, if it has none yet. A node
    /// signs with the key of its cluster, so one that is there is not read: its damage costs
    /// nothing, and must not cost the node.
    pub(crate) fn for_node(disk: &dyn Disk) -> Result<Option<Self>, IoFailure> {
        let names = disk.list().blame("list", disk, "")?;
        let is_marked = names.iter().any(|name| name == KEY_FILE);
        Ok((!is_marked).then(Self::random))
    }

    /// Makes the key durable unless it is. Written under another name first, so that there is never
    /// half a key.
    pub(crate) fn keep(&mut self, disk: &dyn Disk) -> Result<(), IoFailure> {
        if self.is_kept {
            return Ok(());
        }
        let file = disk.create(DRAFT, 0).blame("create", disk, DRAFT)?;
        let mut bytes = self.bytes.to_vec();
        bytes.extend_from_slice(&crc32c::crc32c(&self.bytes).to_le_bytes());
        file.write_at(&bytes, 0).blame("write", disk, DRAFT)?;
        file.sync_data().blame("sync", disk, DRAFT)?;
        disk.rename(DRAFT, KEY_FILE).blame("rename", disk, DRAFT)?;
        disk.sync_dir().blame("sync", disk, "")?;
        self.is_kept = true;
        Ok(())
    }

    /// Puts a new key in the place of one that is lost. What is left of the old one is kept under
    /// the name `kept`.
    pub(crate) fn replace(disk: &dyn Disk, kept: Option<&str>) -> Result<(), IoFailure> {
        if let Some(kept) = kept {
            disk.rename(KEY_FILE, kept)
                .blame("rename", disk, KEY_FILE)?;
        }
        Self::random().keep(disk)
    }
}

#[cfg(test)]
mod tests;
