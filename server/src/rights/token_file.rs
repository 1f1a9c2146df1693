//! `auth_token_file`: tokens as they are, one per line. Each of them has all rights.

use super::error::AuthError;
use super::{TOKEN_BYTES_MIN, TokenDigest, digest, read};
use protocol::limits::TOKEN_BYTES_MAX;
use std::path::Path;

/// Rotation needs two; this is room for one per team. Every hello is compared with all of them.
pub(super) const TOKENS_MAX: usize = 64;
/// The most that is read of the file: tokens, and as much again for comments.
pub(super) const FILE_BYTES_MAX: u64 = (TOKENS_MAX * TOKEN_BYTES_MAX * 2) as u64;

/// Reads the file: one token per line, blank lines and lines that start with `#` do not count,
/// neither do spaces around a token. Logs a warning about a file that every user can read.
pub(super) fn load(path: &Path) -> Result<Vec<TokenDigest>, AuthError> {
    let (bytes, mode) = read(path, FILE_BYTES_MAX)?;
    if mode.is_world_readable {
        tracing::warn!(
            "every user of this machine can read the tokens in {}; `chmod 600` it",
            path.display()
        );
    }
    parse(&bytes, path)
}

fn parse(bytes: &[u8], path: &Path) -> Result<Vec<TokenDigest>, AuthError> {
    let mut digests = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let token = line.trim_ascii();
        if token.is_empty() || token.starts_with(b"#") {
            continue;
        }
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
            return Err(AuthError::TokenLength {
                path: path.to_owned(),
                line: index + 1,
                token_bytes: token.len(),
            });
        }
        if digests.len() == TOKENS_MAX {
            return Err(AuthError::TooMany {
                path: path.to_owned(),
                most: TOKENS_MAX,
            });
        }
        digests.push(digest(token));
    }
    if digests.is_empty() {
        return Err(AuthError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(digests)
}
