//! What the entries of the replicated log say. openraft carries them as bytes.
//! `docs/cluster-wire.md` is the register of kinds, and has their bytes.
//!
//! # Formats
//!
//! A [`Format`] says which entries and records may stand in a log. A later version of Fencepost
//! that has new ones raises [`Format::NEWEST`], and its leader writes them only when the log says
//! so: a `Format` is proposed once all members have said that they read it. So nodes are upgraded
//! one by one, and until the last of them is, each can go back.
//!
//! # The rule of the log
//!
//! A `Reign` is the marker with which a leadership begins; its index names the reign. A `Batch`
//! counts if its reign is the index of the latest marker, its seq is the next of that reign, and
//! its stamp is not below the last one. Every node ignores anything else
//! (`apply_batch` in `ledger.rs`). So what an old leader
//! still brings into the log, what comes twice, and what comes behind a gap, does nothing.

use crate::codec::{DecodeError, Reader};
use crate::types::{Command, NodeId};
use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of records that one batch carries, but for its last turn.
pub const BATCH_BYTES: usize = 64 << 10;

/// Bytes of the key that sessions are signed with.
pub const SESSION_KEY_BYTES: usize = 32;

/// Bytes of a batch before its records.
const BATCH_HEAD_BYTES: usize = 1 + 8 + 8 + 8;

const BORN: u8 = 1;
const REIGN: u8 = 2;
const BATCH: u8 = 3;
const JOINED: u8 = 4;
const CHECKED: u8 = 5;
const FORMAT: u8 = 6;

/// Which entries and records may stand in a log, and what records add up to: see the module. Nodes
/// that come to different sums stop, so a new rule of replay waits for its format like a new kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Format(pub u16);

impl Format {
    /// That of a log that says nothing of it.
    pub const FIRST: Format = Format(1);

    /// What this version of Fencepost reads, and writes when it may.
    pub const NEWEST: Format = Format(1);
}

impl Default for Format {
    fn default() -> Self {
        Format::FIRST
    }
}

/// One entry, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// The cluster begins. The first one counts.
    Born(Birth),
    /// A leadership begins.
    Reign {
        /// That of this node.
        node: NodeId,
    },
    /// Records of the leader.
    Batch(BatchItem),
    /// A node has this disk. The first one counts: a node that comes with another has lost its own.
    Joined {
        /// The node.
        node: NodeId,
        /// The random number of its data directory.
        disk: u64,
    },
    /// What the leader's ledger was when it had applied this entry.
    Checked {
        /// The entry.
        index: u64,
        /// The hash.
        hash: u64,
    },
    /// All members read this format: from now on it may be written. It never falls.
    Format(Format),
}

/// What all nodes of a cluster share from its beginning.
#[derive(Clone, PartialEq, Eq)]
pub struct Birth {
    /// Random.
    pub cluster_id: u128,
    /// Signs the secrets of sessions, so that each node knows those of the others.
    pub session_key: [u8; SESSION_KEY_BYTES],
    /// What the wall clock showed. The cluster's clock begins with it.
    pub birth_unix_ms: u64,
}

impl std::fmt::Debug for Birth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the key.
        write!(f, "Birth({:032x})", self.cluster_id)
    }
}

/// Records of one reign.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BatchItem {
    /// The index of the marker it belongs to.
    pub reign: u64,
    /// 1, 2, 3 within the reign.
    pub seq: u64,
    /// The cluster's clock.
    pub stamp_ms: u64,
    /// The records, as [`wal::Batch`] has them.
    pub records: Bytes,
}

impl Item {
    /// As openraft carries it.
    pub fn encode(&self) -> Command {
        let mut out = BytesMut::new();
        match self {
            Item::Born(birth) => {
                out.put_u8(BORN);
                out.put_u128_le(birth.cluster_id);
                out.put_slice(&birth.session_key);
                out.put_u64_le(birth.birth_unix_ms);
            }
            Item::Reign { node } => {
                out.put_u8(REIGN);
                out.put_u64_le(*node);
            }
            Item::Batch(batch) => {
                let mut head = begin_batch(batch.reign, batch.seq, batch.stamp_ms, 0);
                head.extend_from_slice(&batch.records);
                out = head;
            }
            Item::Joined { node, disk } => {
                out.put_u8(JOINED);
                out.put_u64_le(*node);
                out.put_u64_le(*disk);
            }
            Item::Checked { index, hash } => {
                out.put_u8(CHECKED);
                out.put_u64_le(*index);
                out.put_u64_le(*hash);
            }
            Item::Format(format) => {
                out.put_u8(FORMAT);
                out.put_u16_le(format.0);
            }
        }
        Command(out.freeze())
    }

    /// Reads it back.
    pub fn decode(command: &Command) -> Result<Item, DecodeError> {
        let mut reader = Reader::new(command.0.clone());
        let item = match reader.u8("kind of an entry")? {
            BORN => {
                let id = reader.take(16, "cluster id")?;
                let key = reader.take(SESSION_KEY_BYTES, "session key")?;
                Item::Born(Birth {
                    cluster_id: u128::from_le_bytes(id[..].try_into().expect("16 bytes")),
                    session_key: key[..].try_into().expect("32 bytes"),
                    birth_unix_ms: reader.u64("birth")?,
                })
            }
            REIGN => Item::Reign {
                node: reader.u64("node")?,
            },
            BATCH => Item::Batch(BatchItem {
                reign: reader.u64("reign")?,
                seq: reader.u64("seq")?,
                stamp_ms: reader.u64("stamp")?,
                records: reader.rest(),
            }),
            JOINED => Item::Joined {
                node: reader.u64("node")?,
                disk: reader.u64("disk")?,
            },
            CHECKED => Item::Checked {
                index: reader.u64("index")?,
                hash: reader.u64("hash")?,
            },
            FORMAT => {
                let version = reader.take(2, "format")?;
                let version = version[..].try_into().expect("2 bytes");
                Item::Format(Format(u16::from_le_bytes(version)))
            }
            _ => {
                return Err(DecodeError {
                    field: "kind of an entry",
                });
            }
        };
        reader.end("entry")?;
        Ok(item)
    }
}

/// The head of a batch, to which its records are appended.
pub(crate) fn begin_batch(reign: u64, seq: u64, stamp_ms: u64, records_bytes: usize) -> BytesMut {
    let mut out = BytesMut::with_capacity(BATCH_HEAD_BYTES + records_bytes);
    out.put_u8(BATCH);
    out.put_u64_le(reign);
    out.put_u64_le(seq);
    out.put_u64_le(stamp_ms);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_were_and_have_these_bytes() {
        let born = Item::Born(Birth {
            cluster_id: 0x0102,
            session_key: [7; 32],
            birth_unix_ms: 3,
        });
        let batch = Item::Batch(BatchItem {
            reign: 4,
            seq: 5,
            stamp_ms: 6,
            records: Bytes::from_static(b"records"),
        });
        let checked = Item::Checked { index: 8, hash: 9 };
        for item in [
            born,
            batch.clone(),
            checked,
            Item::Format(Format(10)),
            Item::Reign { node: 2 },
            Item::Joined { node: 1, disk: 7 },
        ] {
            let command = item.encode();
            assert_eq!(Item::decode(&command), Ok(item));
            let head_bytes = match command.0[0] {
                BATCH => BATCH_HEAD_BYTES,
                _ => command.0.len(),
            };
            for cut in 0..head_bytes {
                let cut = Command(command.0.slice(..cut));
                assert!(Item::decode(&cut).is_err());
            }
        }
        let bytes = batch.encode().0;
        assert_eq!(bytes[..10], [3, 4, 0, 0, 0, 0, 0, 0, 0, 5]);
    }
}
