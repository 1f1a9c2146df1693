//! A ledger as bytes: what a node keeps on its disk, and sends to one that was away for long.

use super::LedgerState;
use crate::clock::ClusterClock;
use crate::codec::{self, Reader};
use crate::entry::{Birth, Format};
use crate::host;
use crate::peer::Image;
use crate::simulation::{Mistake, planted};
use crate::types::StoredMembership;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Bytes of a chunk of an image.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

/// Marks the bytes of an image.
const IMAGE_MAGIC: &[u8; 8] = b"fenceimg";

/// An image in the chunks that it is sent in.
pub(crate) fn chunks_of(mut image: Bytes) -> Image {
    let mut chunks = Vec::new();
    while image.len() > CHUNK_BYTES {
        chunks.push(image.split_to(CHUNK_BYTES));
    }
    chunks.push(image);
    Arc::new(chunks)
}

impl LedgerState {
    /// What is not in [`wal::Ledger`], as bytes, and then the ledger's own head.
    pub(super) fn put_image_head(&self, out: &mut Vec<u8>) -> wal::ImageUnderWay {
        out.put_slice(IMAGE_MAGIC);
        codec::put_option(self.applied.as_ref(), out, codec::put_log_id);
        let membership = &self.membership;
        codec::put_option(membership.log_id().as_ref(), out, codec::put_log_id);
        codec::put_membership(membership.membership(), out);
        codec::put_option(self.birth.as_ref(), out, |birth, out| {
            out.put_u128_le(birth.cluster_id);
            out.put_slice(&birth.session_key);
            out.put_u64_le(birth.birth_unix_ms);
        });
        out.put_u32_le(self.disks.len() as u32);
        for (node, disk) in &self.disks {
            out.put_u64_le(*node);
            out.put_u64_le(*disk);
        }
        out.put_u16_le(self.format.0);
        codec::put_option(self.reign.as_ref(), out, |(index, node), out| {
            out.put_u64_le(*index);
            out.put_u64_le(*node);
        });
        out.put_u64_le(self.seq);
        self.ledger.put_image_head(out)
    }

    /// An image of one moment.
    pub(crate) fn make_image(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let under_way = self.put_image_head(&mut out);
        for part in 0..wal::LEDGER_PARTS {
            self.ledger.put_image_part(&under_way, part, &mut out);
        }
        out.put_u64_le(self.shows_up_to());
        out
    }

    /// Reads an image.
    pub fn from_image(image: &[Bytes]) -> Result<LedgerState, codec::DecodeError> {
        let not_one = codec::DecodeError {
            field: "image of a ledger",
        };
        let mut bytes = BytesMut::with_capacity(image.iter().map(Bytes::len).sum());
        image
            .iter()
            .for_each(|chunk| bytes.extend_from_slice(chunk));
        let mut reader = Reader::new(bytes.freeze());
        if reader.take(IMAGE_MAGIC.len(), "image")? != IMAGE_MAGIC[..] {
            return Err(not_one);
        }
        let applied = reader.option("applied", Reader::log_id)?;
        let membership_id = reader.option("membership", Reader::log_id)?;
        let membership = StoredMembership::new(membership_id, reader.membership()?);
        let birth = reader.option("birth", |reader| {
            let id = reader.take(16, "cluster id")?;
            let key = reader.take(32, "session key")?;
            Ok(Birth {
                cluster_id: u128::from_le_bytes(id[..].try_into().expect("16 bytes")),
                session_key: key[..].try_into().expect("32 bytes"),
                birth_unix_ms: reader.u64("birth")?,
            })
        })?;
        let disk_count = reader.u32("disks")?;
        let mut disks = BTreeMap::new();
        for _ in 0..disk_count {
            disks.insert(reader.u64("node")?, reader.u64("disk")?);
        }
        let version = reader.take(2, "format")?;
        let format = Format(u16::from_le_bytes(version[..].try_into().expect("2 bytes")));
        let reign = reader.option("reign", |reader| {
            Ok((reader.u64("reign")?, reader.u64("node")?))
        })?;
        let seq = reader.u64("seq")?;
        let mut ledger = reader.rest();
        let Some(shows_at) = ledger.len().checked_sub(8) else {
            return Err(not_one);
        };
        let shows = Reader::new(ledger.split_off(shows_at)).u64("shows")?;
        let mut ledger = wal::Ledger::from_image(&ledger).map_err(|_| not_one)?;
        if planted(Mistake::SnapshotWithoutSessions) {
            for session in ledger.sessions() {
                let session = session.session;
                let ended = ledger.apply(&wal::Record::SessionEnded { session });
                ended.map_err(|_| not_one)?;
            }
        }
        let mut clock = ClusterClock::default();
        let now = host::now();
        let reign_index = reign.map_or(0, |(index, _)| index);
        clock.hear(reign_index, ledger.clock_ms(), now, now);
        Ok(LedgerState {
            ledger,
            applied,
            membership,
            birth,
            disks,
            format,
            reign,
            seq,
            clock,
            checks: VecDeque::new(),
            shows,
            own: None,
        })
    }
}
