//! The bytes of the log.
//!
//! ```text
//! file    header, frame, frame, ...
//! header  "FPMARKS\n" | version u8 | kind u8 | zero u16 | seed 16 bytes | crc u32   32 bytes
//! frame   "FMRK" | body_bytes u32 | sequence u64 | crc u32 | body
//! body    entry, entry, ...                                                     at least one
//! entry   1 | fence u64 | key_bytes u16 | value_bytes u32 | key | value         a write
//!         2 | fence u64 | cell u32                                              a floor
//! ```
//!
//! All numbers little-endian. A frame is one batch: what was written together and synced together,
//! so it is there as a whole or was never acknowledged. Its checksum (CRC32C) covers the file's
//! seed, the sequence, the length and the body. The seed is random and never leaves the machine: no
//! client can send a value that looks like a frame of this file.

use crate::ledger::{Ledger, Seed, Value};
use crate::limits::{FRAME_BODY_BYTES_MAX, KEY_BYTES_MAX};
use protocol::Fence;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"FPMARKS\n";
const VERSION: u8 = 1;
const FRAME_MAGIC: &[u8; 4] = b"FMRK";

pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const FRAME_HEAD_BYTES: usize = 20;

const TAG_WRITE: u8 = 1;
const TAG_FLOOR: u8 = 2;

/// Kind and seed of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    pub(crate) seed: Seed,
}

impl Header {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8] = VERSION;
        bytes[9] = self.kind;
        bytes[12..28].copy_from_slice(&self.seed);
        let crc = crc32c::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self, &'static str> {
        if &bytes[..8] != MAGIC {
            return Err("this is not a log of fences");
        }
        if crc32c::crc32c(&bytes[..28]) != u32_at(bytes, 28) {
            return Err("the header's checksum is wrong");
        }
        if bytes[8] != VERSION {
            return Err("the log is of a version that this program does not know");
        }
        let mut seed = Seed::default();
        seed.copy_from_slice(&bytes[12..28]);
        Ok(Header {
            kind: bytes[9],
            seed,
        })
    }
}

/// A batch in the making.
pub(crate) struct Frame {
    bytes: Vec<u8>,
}

impl Frame {
    pub(crate) fn new() -> Self {
        Frame {
            bytes: vec![0; FRAME_HEAD_BYTES],
        }
    }

    pub(crate) fn body_bytes(&self) -> usize {
        self.bytes.len() - FRAME_HEAD_BYTES
    }

    pub(crate) fn push_write(&mut self, key: &[u8], fence: Fence, value: &[u8]) {
        self.bytes.push(TAG_WRITE);
        self.bytes.extend(fence.get().to_le_bytes());
        let key_bytes = u16::try_from(key.len()).expect("keys are shorter: see KEY_BYTES_MAX");
        self.bytes.extend(key_bytes.to_le_bytes());
        let value_bytes =
            u32::try_from(value.len()).expect("values are shorter: see VALUE_BYTES_CAP");
        self.bytes.extend(value_bytes.to_le_bytes());
        self.bytes.extend(key);
        self.bytes.extend(value);
    }

    pub(crate) fn push_floor(&mut self, cell: u32, fence: Fence) {
        self.bytes.push(TAG_FLOOR);
        self.bytes.extend(fence.get().to_le_bytes());
        self.bytes.extend(cell.to_le_bytes());
    }

    /// Closes the frame. Its bytes are to be written as they are; it is empty again after
    /// [`Frame::clear`].
    pub(crate) fn seal(&mut self, seed: &Seed, sequence: u64) -> &[u8] {
        let body_bytes = self.body_bytes();
        assert!(
            (1..=FRAME_BODY_BYTES_MAX).contains(&body_bytes),
            "a frame of {body_bytes} bytes could not be read back"
        );
        let length = u32::try_from(body_bytes).expect("the bound fits");
        let (head, body) = self.bytes.split_at_mut(FRAME_HEAD_BYTES);
        head[..4].copy_from_slice(FRAME_MAGIC);
        head[4..8].copy_from_slice(&length.to_le_bytes());
        head[8..16].copy_from_slice(&sequence.to_le_bytes());
        let crc = checksum(seed, &head[4..16], body);
        head[16..].copy_from_slice(&crc.to_le_bytes());
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(FRAME_HEAD_BYTES);
    }
}

/// The frame at the beginning of `bytes`: its sequence and its body. `None`: there is no whole
/// frame here.
pub(crate) fn split<'a>(bytes: &'a [u8], seed: &Seed) -> Option<(u64, &'a [u8])> {
    let head = bytes.get(..FRAME_HEAD_BYTES)?;
    let body_bytes = u32_at(head, 4) as usize;
    if &head[..4] != FRAME_MAGIC || !(1..=FRAME_BODY_BYTES_MAX).contains(&body_bytes) {
        return None;
    }
    let body = bytes.get(FRAME_HEAD_BYTES..FRAME_HEAD_BYTES + body_bytes)?;
    (checksum(seed, &head[4..16], body) == u32_at(head, 16)).then(|| (u64_at(head, 8), body))
}

/// Whether a whole frame of this file begins anywhere in `bytes`.
pub(crate) fn holds_any(bytes: &[u8], seed: &Seed) -> bool {
    (0..bytes.len()).any(|offset| split(&bytes[offset..], seed).is_some())
}

/// Does again what a body says. An error says what is wrong with it.
pub(crate) fn replay<V: Value>(
    mut body: &[u8],
    ledger: &mut Ledger<V>,
) -> Result<(), &'static str> {
    while let Some((&tag, rest)) = body.split_first() {
        body = rest;
        let fence = u64::from_le_bytes(take_array(&mut body)?);
        let fence = Fence::new(fence).ok_or("a fence is zero")?;
        match tag {
            TAG_WRITE => {
                let key_bytes = usize::from(u16::from_le_bytes(take_array(&mut body)?));
                let value_bytes = u32::from_le_bytes(take_array(&mut body)?) as usize;
                if key_bytes > KEY_BYTES_MAX {
                    return Err("a key is too long");
                }
                let key = Arc::from(take(&mut body, key_bytes)?);
                let value = V::from_bytes(take(&mut body, value_bytes)?);
                ledger.restore(&key, fence, value.ok_or("a value is not of this kind")?);
            }
            TAG_FLOOR => {
                let cell = u32::from_le_bytes(take_array(&mut body)?);
                if !ledger.restore_floor(cell, fence) {
                    return Err("there is no such floor");
                }
            }
            _ => return Err("an entry is of a kind that this program does not know"),
        }
    }
    Ok(())
}

fn checksum(seed: &Seed, head: &[u8], body: &[u8]) -> u32 {
    let crc = crc32c::crc32c(seed);
    crc32c::crc32c_append(crc32c::crc32c_append(crc, head), body)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], &'static str> {
    let (taken, rest) = bytes
        .split_at_checked(count)
        .ok_or("an entry is cut short")?;
    *bytes = rest;
    Ok(taken)
}

fn take_array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], &'static str> {
    Ok(take(bytes, N)?.try_into().expect("N bytes were taken"))
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}
