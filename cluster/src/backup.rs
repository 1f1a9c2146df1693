//! A backup: an image of the leader's ledger, of one moment, and the file that it is kept in.
//!
//! A tool asks for an image part by part ([`Question::Image`]). The first question has the leader
//! make one; it is kept until the tool has read it, another is asked for, or ten minutes are over.
//!
//! The file, numbers in little endian:
//!
//! | bytes | what                                       |
//! |-------|--------------------------------------------|
//! | 8     | `fencebak`                                 |
//! | 2     | version of the file, [`VERSION`]           |
//! | 8     | when it was taken, in milliseconds of unix |
//! | 8     | bytes of the image                         |
//! |       | the image                                  |
//! | 32    | SHA-256 of everything before               |
//!
//! The image has the key that sessions are signed with, so the file is for the operator's eyes.
//!
//! [`Question::Image`]: crate::question::Question::Image

use crate::node::Node;
use crate::question::Answer;
use bytes::{BufMut, Bytes};
use openraft::ReadPolicy;
use sha2::{Digest, Sha256};
use std::fmt;
use std::time::Duration;
use tokio::time::timeout;

/// Bytes of an image in one answer. As hexadecimal digits they are half of what the wire carries.
pub const PART_BYTES: usize = 1 << 20;

/// How long a leader may take to hear from a majority that it still leads.
const MAJORITY_MAX: Duration = Duration::from_secs(2);

/// The newest version of the file.
pub const VERSION: u16 = 1;

const MAGIC: &[u8; 8] = b"fencebak";
const HEAD_BYTES: usize = 8 + 2 + 8 + 8;
const CHECKSUM_BYTES: usize = 32;

impl Node {
    /// A part of the image with this number, or the beginning of a new one.
    pub(crate) async fn image_part(&self, id: Option<u64>, from: u64) -> Answer {
        let kept = &self.inner.image;
        let (id, image) = match id {
            None => match self.make_image().await {
                Ok(image) => (kept.keep(image.clone()), image),
                Err(why) => return Answer::Error(why),
            },
            Some(id) => match kept.get(id) {
                Some(image) => (id, image),
                _ => {
                    return Answer::Error(
                        "this image is not kept any more: another backup was begun, or the leader has changed. Begin again"
                            .to_owned(),
                    );
                }
            },
        };
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(image.len());
        let until = (from + PART_BYTES).min(image.len());
        if until == image.len() {
            kept.forget(id);
        }
        Answer::Image {
            id,
            bytes: image.len() as u64,
            part: to_hex(&image[from..until]),
        }
    }

    /// An image that has everything that was told before it was asked for. Holds the ledger still
    /// while it is made, on a thread of its own: heartbeats go on, commits wait.
    async fn make_image(&self) -> Result<Bytes, String> {
        let confirmed = self.inner.raft.ensure_linearizable(ReadPolicy::ReadIndex);
        if !matches!(timeout(MAJORITY_MAX, confirmed).await, Ok(Ok(_))) {
            return Err(
                "this node has not heard from a majority that it still leads: try again in a moment"
                    .to_owned(),
            );
        }
        let mut state = self.ledger().hold().await;
        if state.birth.is_none() {
            return Err("the cluster has not begun yet: try again in a moment".to_owned());
        }
        let made = tokio::task::spawn_blocking(move || Bytes::from(state.make_image()));
        made.await.map_err(|error| error.to_string())
    }
}

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The bytes of a part of an image; `None`: these are no hexadecimal digits.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |character: u8| char::from(character).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some((digit(*high)? * 16 + digit(*low)?) as u8),
        _ => None,
    });
    pairs.collect()
}

/// Why bytes are no backup. The operator gives another file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotABackup {
    /// They begin otherwise.
    Magic,
    /// A newer version wrote them.
    Newer(u16),
    /// Some are missing or changed.
    Damaged,
}

impl fmt::Display for NotABackup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotABackup::Magic => f.write_str("this is no backup of a cluster"),
            NotABackup::Newer(version) => write!(
                f,
                "this backup has version {version}, and this program reads {VERSION}: use a newer one"
            ),
            NotABackup::Damaged => f.write_str(
                "this backup is damaged: its checksum does not match its bytes. Use another copy",
            ),
        }
    }
}

impl std::error::Error for NotABackup {}

/// The bytes of a file with this image.
pub fn to_file(image: &[u8], taken_unix_ms: u64) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEAD_BYTES + image.len() + CHECKSUM_BYTES);
    file.put_slice(MAGIC);
    file.put_u16_le(VERSION);
    file.put_u64_le(taken_unix_ms);
    file.put_u64_le(image.len() as u64);
    file.put_slice(image);
    let checksum = Sha256::digest(&file);
    file.put_slice(&checksum);
    file
}

/// The image in the bytes of a file, and when it was taken.
pub fn from_file(file: &[u8]) -> Result<(&[u8], u64), NotABackup> {
    let rest = file.strip_prefix(MAGIC).ok_or(NotABackup::Magic)?;
    let (version, rest) = rest.split_first_chunk().ok_or(NotABackup::Damaged)?;
    let version = u16::from_le_bytes(*version);
    if version > VERSION {
        return Err(NotABackup::Newer(version));
    }
    let (taken, rest) = rest.split_first_chunk().ok_or(NotABackup::Damaged)?;
    let (image_bytes, rest) = rest.split_first_chunk().ok_or(NotABackup::Damaged)?;
    let image_bytes = u64::from_le_bytes(*image_bytes);
    let image = rest.len().checked_sub(CHECKSUM_BYTES);
    let (image, checksum) = rest.split_at(image.ok_or(NotABackup::Damaged)?);
    let checked = &file[..file.len() - CHECKSUM_BYTES];
    if image.len() as u64 != image_bytes || Sha256::digest(checked)[..] != *checksum {
        return Err(NotABackup::Damaged);
    }
    Ok((image, u64::from_le_bytes(*taken)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_back_as_it_was_and_every_changed_byte_is_found() {
        let file = to_file(b"image", 7);
        assert_eq!(file[..10], *b"fencebak\x01\x00");
        assert_eq!(from_file(&file), Ok((&b"image"[..], 7)));
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 0x40;
            assert!(from_file(&changed).is_err(), "byte {at}");
            assert!(from_file(&file[..at]).is_err(), "cut at {at}");
        }
        let mut newer = file;
        newer[8] = 2;
        assert_eq!(from_file(&newer), Err(NotABackup::Newer(2)));
    }

    #[test]
    fn digits_come_back_as_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("0g"), None);
    }
}
