//! The names and secrets of sessions, such that a restarted server knows its own.
//!
//! A session's secret is the beginning of HMAC-SHA-256 over its public id, under a key that only this server has. So nothing
//! needs to be written down for a session, and a server that has lost its memory and not its key can still tell whether
//! it is the session's owner who comes back. The key lies in the data directory, readable by nobody else; without one
//! (`durability = none`) it is made anew at every start.

use hmac::{Hmac, KeyInit, Mac};
use protocol::SessionSecret;
use sha2::Sha256;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// In the data directory.
pub(crate) const KEY_FILE: &str = "session.key";
const KEY_BYTES: usize = 32;

/// Public ids are numbers that JavaScript holds exactly.
const PUBLIC_ID_BITS: u32 = 53;

/// What this server signs its sessions with.
pub(crate) struct SessionKeys {
    key: [u8; KEY_BYTES],
}

impl SessionKeys {
    /// Keys that end with this process.
    pub(crate) fn fleeting() -> Self {
        let mut key = [0; KEY_BYTES];
        fill(&mut key);
        SessionKeys { key }
    }

    /// Those of an earlier server, or new ones that later servers will find. The caller has the directory to itself.
    pub(crate) fn load_or_create(dir: &Path) -> io::Result<Self> {
        let path = dir.join(KEY_FILE);
        match read(&path) {
            Ok(key) => Ok(SessionKeys { key }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let keys = Self::fleeting();
                keys.save(dir, &path)?;
                Ok(keys)
            }
            Err(error) => Err(error),
        }
    }

    /// Those of an earlier server, or new ones that end with this process. Writes nothing.
    pub(crate) fn load_if_there(dir: &Path) -> io::Result<Self> {
        match read(&dir.join(KEY_FILE)) {
            Ok(key) => Ok(SessionKeys { key }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::fleeting()),
            Err(error) => Err(error),
        }
    }

    /// Under another name first, so that there is never half a key.
    fn save(&self, dir: &Path, path: &Path) -> io::Result<()> {
        let draft = path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&draft)?;
        file.write_all(&self.key)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        File::open(dir)?.sync_all()
    }

    /// A name that no session has had, and its secret.
    pub(crate) fn new_session(&self) -> (u64, SessionSecret) {
        loop {
            let mut bytes = [0; 8];
            fill(&mut bytes);
            let public_id = u64::from_le_bytes(bytes) >> (u64::BITS - PUBLIC_ID_BITS);
            // Zero stands for no session.
            if public_id != 0 {
                return (public_id, self.secret(public_id));
            }
        }
    }

    /// The secret of the session with this name, whether there ever was one.
    pub(crate) fn secret(&self, public_id: u64) -> SessionSecret {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.key).expect("a key of any length will do");
        mac.update(b"fencepost session");
        mac.update(&public_id.to_le_bytes());
        let tag = mac.finalize().into_bytes();
        let (secret, _) = tag.split_first_chunk().expect("a tag has 32 bytes");
        SessionSecret::new(*secret)
    }
}

fn read(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let mut bytes = Vec::new();
    // One more than there should be, to notice.
    let file = File::open(path)?;
    file.take(KEY_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    bytes.try_into().map_err(|bytes: Vec<u8>| {
        let sentence = format!(
            "it has {} bytes and should have {KEY_BYTES}; remove it, and sessions from before are not known any more",
            bytes.len()
        );
        io::Error::new(io::ErrorKind::InvalidData, sentence)
    })
}

fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel gives random bytes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_again_and_knows_its_sessions() {
        let dir = tempfile::tempdir().unwrap();
        let first = SessionKeys::load_or_create(dir.path()).unwrap();
        let (public_id, secret) = first.new_session();
        let again = SessionKeys::load_or_create(dir.path()).unwrap();
        assert!(again.secret(public_id) == secret);
        assert!(again.secret(public_id + 1) != secret);
        assert!(SessionKeys::fleeting().secret(public_id) != secret);
    }

    #[test]
    fn a_key_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        SessionKeys::load_or_create(dir.path()).unwrap();
        let mode = fs::metadata(dir.path().join(KEY_FILE))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn half_a_key_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(KEY_FILE);
        fs::write(&path, [7; 16]).unwrap();
        let error = SessionKeys::load_or_create(dir.path()).err().unwrap();
        assert!(error.to_string().contains("16 bytes"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), [7; 16]);
    }
}
