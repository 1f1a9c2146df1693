//! The cluster key: 32 bytes that all nodes of a cluster and their operators' tools know.
//!
//! The file holds 64 hexadecimal digits and perhaps a line's end, and is readable by the server's
//! user alone. The key itself is never sent; `hello.rs` proves that it is known.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;

/// Bytes of a key, and of a proof.
pub(super) const KEY_BYTES: usize = 32;

/// A longer file is no key: nothing more of it is read.
const FILE_BYTES_MAX: u64 = 256;

const HOW_TO_MAKE_ONE: &str = "make one with `(umask 077; head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' > FILE)` \
     and copy it to all nodes of the cluster";

/// What all nodes of a cluster know, and what they prove to each other that they know.
#[derive(Clone)]
pub struct ClusterKey([u8; KEY_BYTES]);

/// Why a key file cannot be used. The node does not start.
#[derive(Debug)]
pub enum KeyError {
    /// It cannot be read.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Its content is no key.
    NotHex {
        /// The file.
        file: PathBuf,
        /// What it has instead of 64 digits.
        found: String,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Unreadable { file, error } if error.kind() == io::ErrorKind::NotFound => {
                write!(
                    f,
                    "there is no cluster key file {}: {HOW_TO_MAKE_ONE}",
                    file.display()
                )
            }
            KeyError::Unreadable { file, error } => {
                write!(
                    f,
                    "cannot read the cluster key file {}: {error}",
                    file.display()
                )
            }
            KeyError::NotHex { file, found } => write!(
                f,
                "the cluster key file {} must hold 64 hexadecimal digits, and has {found}: \
                 {HOW_TO_MAKE_ONE}",
                file.display()
            ),
        }
    }
}

impl std::error::Error for KeyError {}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey")
    }
}

impl ClusterKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        ClusterKey(bytes)
    }

    /// Reads a key file. Warns if other users of the machine can read it, too.
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        let unreadable = |error| KeyError::Unreadable {
            file: path.to_path_buf(),
            error,
        };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        if let Some(warning) = ClusterKey::warning(path) {
            tracing::warn!("{warning}");
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX)
            .read_to_end(&mut text)
            .map_err(unreadable)?;
        Self::from_hex(text.trim_ascii()).map_err(|found| KeyError::NotHex {
            file: path.to_path_buf(),
            found,
        })
    }

    /// What to say of a key file that other users of the machine can read or change. For programs
    /// that write no log.
    #[cfg(unix)]
    pub fn warning(path: &Path) -> Option<String> {
        use std::os::unix::fs::PermissionsExt;
        /// Read or write, by the group or by others.
        const OTHERS: u32 = 0o066;
        let mode = std::fs::metadata(path).ok()?.permissions().mode();
        (mode & OTHERS != 0).then(|| {
            format!(
                "other users of this machine can read or change the cluster key file {}: chmod 600 it, and make a new key \
                 if they may have",
                path.display()
            )
        })
    }

    #[cfg(not(unix))]
    pub fn warning(_path: &Path) -> Option<String> {
        None
    }

    /// Never says what the digits are: the sentence goes to a log.
    fn from_hex(text: &[u8]) -> Result<Self, String> {
        if text.len() != 2 * KEY_BYTES {
            return Err(format!("{} characters", text.len()));
        }
        let mut bytes = [0; KEY_BYTES];
        for (place, (byte, pair)) in bytes.iter_mut().zip(text.chunks_exact(2)).enumerate() {
            let digit = |character: u8| (character as char).to_digit(16);
            match (digit(pair[0]), digit(pair[1])) {
                (Some(high), Some(low)) => *byte = (high * 16 + low) as u8,
                _ => {
                    return Err(format!(
                        "another character at place {} or {}",
                        2 * place + 1,
                        2 * place + 2
                    ));
                }
            }
        }
        Ok(ClusterKey(bytes))
    }

    /// What only a peer that has the key can say of these bytes.
    pub(super) fn prove(&self, parts: &[&[u8]]) -> [u8; KEY_BYTES] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    /// Whether a proof is the right one. Takes the same time for every wrong one.
    pub(super) fn is_proof(&self, parts: &[&[u8]], proof: &[u8; KEY_BYTES]) -> bool {
        self.prove(parts).ct_eq(proof).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8]) -> Result<ClusterKey, KeyError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.key");
        std::fs::write(&path, text).unwrap();
        ClusterKey::from_file(&path)
    }

    #[test]
    fn sixty_four_digits_are_a_key() {
        let lower =
            of(b"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff").unwrap();
        let upper =
            of(b"000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1EFF\n").unwrap();
        assert_eq!(lower.0, upper.0);
        assert_eq!(lower.0[10], 0x0a);
        assert_eq!(lower.0[31], 0xff);
    }

    #[test]
    fn anything_else_is_refused_with_the_way_to_make_one() {
        let long = [b'a'; 1000];
        let wrong = [b'g'; 64];
        for text in [&b""[..], b"abc", &long, &wrong, &[0xff; 64]] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains("64 hexadecimal digits"), "{error}");
            assert!(error.contains("/dev/urandom"), "{error}");
        }
        let missing = ClusterKey::from_file(Path::new("/nowhere/cluster.key")).unwrap_err();
        assert!(missing.to_string().contains("/dev/urandom"), "{missing}");
    }

    #[cfg(unix)]
    #[test]
    fn a_key_file_that_others_can_read_is_warned_of() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.key");
        std::fs::write(&path, [b'a'; 64]).unwrap();
        for (mode, is_warned_of) in [(0o600, false), (0o640, true), (0o644, true), (0o622, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let warning = ClusterKey::warning(&path);
            assert_eq!(warning.is_some(), is_warned_of, "{mode:o}: {warning:?}");
        }
    }

    #[test]
    fn a_proof_is_of_one_key_and_one_text() {
        let key = ClusterKey::new([7; KEY_BYTES]);
        let proof = key.prove(&[b"one", b"two"]);
        assert!(key.is_proof(&[b"onetwo"], &proof));
        assert!(!key.is_proof(&[b"one"], &proof));
        assert!(!ClusterKey::new([8; KEY_BYTES]).is_proof(&[b"onetwo"], &proof));
    }
}
