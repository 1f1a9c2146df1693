//! Holders, locks, sessions and statistics, as they appear inside replies.
//!
//! A record is a `u16` length and then, like a message, its fixed fields and its optional ones: a
//! reader that knows less skips the rest. A list is a `u16` count and its records.

use crate::codec::{
    OPTION_HEADER_BYTES, Reader, Writer, mode_flags, mode_of, option_array, read_hold_count,
    read_recovering, tag, write_hold_count, write_recovering,
};
use crate::error::{DecodeError, LimitError};
use crate::field::{Address, ClientName, Fence, Key, Metadata, Mode, SessionId, StatName};
use crate::limits;
use std::fmt;

const FLAG_SESSION_BOUND: u8 = 0x02;
const FLAG_YOU: u8 = 0x04;
const FLAG_ENDS_WITH_SESSION: u8 = 0x10;

/// As a `remaining_ms`: it has no end. A longer time than fits is one less than this.
pub const NO_END_MS: u32 = u32::MAX;

/// An element of a list. Implemented by this module's types only.
pub trait Record<'a>: Copy + sealed::Fields<'a> {}

/// Keeps the reading and writing of fields out of the crate's interface.
pub(crate) mod sealed {
    use super::{DecodeError, Reader, Writer};

    pub trait Fields<'a>: Sized {
        const NAME: &'static str;
        /// The most that a list of them holds.
        const COUNT_MAX: u16;
        /// The longest one, its length field included.
        const BYTES_MAX: usize;
        fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;
        fn write(&self, writer: &mut Writer<'_>);
    }
}
use sealed::Fields;

/// One holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// Its grant's fence.
    pub fence: Fence,
    /// Its session.
    pub session_id: SessionId,
    /// How long it has held the lock, renewals included.
    pub held_ms: u64,
    /// How much longer it may, unless it renews and keeps its session alive; or [`NO_END_MS`].
    pub remaining_ms: u32,
    /// Its session ends then; its own lease, if it has one, lasts longer.
    pub ends_with_session: bool,
    /// Alone or with others.
    pub mode: Mode,
    /// Its lease lives by its session.
    pub is_session_bound: bool,
    /// It is the session that asked.
    pub is_you: bool,
    /// How often it holds the lock: more than once only if it acquired it reentrantly.
    pub hold_count: u32,
    /// What its client calls itself.
    pub client_name: ClientName<'a>,
    /// What it says about its lock.
    pub metadata: Metadata<'a>,
}

impl<'a> Record<'a> for Holder<'a> {}

impl<'a> Fields<'a> for Holder<'a> {
    const NAME: &'static str = "holders";
    const COUNT_MAX: u16 = limits::HOLDERS_MAX;
    const BYTES_MAX: usize = 2
        + (8 + 8 + 8 + 4 + 1)
        + (2 + limits::CLIENT_NAME_BYTES_MAX)
        + (2 + limits::METADATA_BYTES_MAX)
        + (OPTION_HEADER_BYTES + 4);

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let fence = reader.fence()?;
        let session_id = SessionId::new(reader.u64("session id")?);
        let held_ms = reader.u64("held_ms")?;
        let remaining_ms = reader.u32("remaining_ms")?;
        let flags = reader.u8("flags of a holder")?;
        let client_name = ClientName::read(reader)?;
        let metadata = Metadata::read(reader)?;
        let mut hold_count = 1;
        let mut options = reader.options();
        while let Some((tag, value)) = options.next()? {
            if tag == tag::HOLD_COUNT {
                hold_count = read_hold_count(value)?;
            }
        }
        Ok(Self {
            fence,
            session_id,
            held_ms,
            remaining_ms,
            ends_with_session: flags & FLAG_ENDS_WITH_SESSION != 0,
            mode: mode_of(flags),
            is_session_bound: flags & FLAG_SESSION_BOUND != 0,
            is_you: flags & FLAG_YOU != 0,
            hold_count,
            client_name,
            metadata,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        let mut flags = mode_flags(self.mode);
        if self.is_session_bound {
            flags |= FLAG_SESSION_BOUND;
        }
        if self.is_you {
            flags |= FLAG_YOU;
        }
        if self.ends_with_session {
            flags |= FLAG_ENDS_WITH_SESSION;
        }
        writer.u64(self.fence.get());
        writer.u64(self.session_id.get());
        writer.u64(self.held_ms);
        writer.u32(self.remaining_ms);
        writer.u8(flags);
        writer.bytes(self.client_name.as_bytes());
        writer.bytes(self.metadata.as_bytes());
        write_hold_count(self.hold_count, writer);
    }
}

/// What stands between a client and a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contention<'a> {
    /// How many hold it; more than one only when shared.
    pub holder_count: u32,
    /// How many wait for it.
    pub queue_length: u32,
    /// One of the holders. `None` when the lock changed hands while the answer was written, or
    /// while the server recovers and no holder has claimed it.
    pub holder: Option<Holder<'a>>,
    /// The server was restarted and does not know all holders for this much longer: there may be
    /// more than are counted here, or one although none is. `None` for a lock in a list: the page
    /// says it for all its locks.
    pub recovering_ms: Option<u32>,
}

impl<'a> Contention<'a> {
    pub(crate) const BYTES_MAX: usize = 4 + 4 + Holder::BYTES_MAX;

    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            holder_count: reader.u32("holder_count")?,
            queue_length: reader.u32("queue_length")?,
            // A record of no bytes: there is no holder to show.
            holder: match reader.bytes("a holder")? {
                [] => None,
                bytes => Some(read_content(bytes)?),
            },
            recovering_ms: None,
        })
    }

    /// Reads the body of a reply, to the end of the frame.
    pub(crate) fn read_reply(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let contention = Self::read(reader)?;
        Ok(Self {
            recovering_ms: read_recovering(reader)?,
            ..contention
        })
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(self.holder_count);
        writer.u32(self.queue_length);
        writer.sized(|writer| {
            if let Some(holder) = &self.holder {
                holder.write(writer);
            }
        });
    }

    /// Writes the body of a reply.
    pub(crate) fn write_reply(&self, writer: &mut Writer<'_>) {
        self.write(writer);
        write_recovering(self.recovering_ms, writer);
    }
}

/// One lock of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockEntry<'a> {
    /// What is locked.
    pub key: Key<'a>,
    /// Its holders and waiters.
    pub contention: Contention<'a>,
    /// The fence of its last grant, which may have ended. `None`: an older server does not say.
    pub last_fence: Option<Fence>,
}

impl<'a> Record<'a> for LockEntry<'a> {}

impl<'a> Fields<'a> for LockEntry<'a> {
    const NAME: &'static str = "locks";
    const COUNT_MAX: u16 = limits::LIST_PAGE_MAX;
    const BYTES_MAX: usize =
        2 + Contention::BYTES_MAX + (2 + limits::KEY_BYTES_MAX) + (OPTION_HEADER_BYTES + 8);

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let contention = Contention::read(reader)?;
        let key = reader.key()?;
        let mut last_fence = None;
        let mut options = reader.options();
        while let Some((tag, value)) = options.next()? {
            if tag == tag::LAST_FENCE {
                last_fence = Fence::new(u64::from_le_bytes(option_array(tag, value)?));
            }
        }
        Ok(Self {
            contention,
            key,
            last_fence,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        self.contention.write(writer);
        writer.bytes(self.key.as_bytes());
        if let Some(last_fence) = self.last_fence {
            writer.option(tag::LAST_FENCE, &last_fence.get().to_le_bytes());
        }
    }
}

/// One session of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEntry<'a> {
    /// Its id.
    pub session_id: SessionId,
    /// How long ago it began.
    pub age_ms: u64,
    /// How long it outlives its last sign of life.
    pub ttl_ms: u32,
    /// How long it still lives if nothing more is heard of it; or [`NO_END_MS`].
    pub remaining_ms: u32,
    /// Its connections.
    pub connection_count: u32,
    /// The locks it holds.
    pub lock_count: u32,
    /// The locks it waits for.
    pub waiter_count: u32,
    /// What its client calls itself.
    pub client_name: ClientName<'a>,
    /// Where it last connected from.
    pub address: Address<'a>,
}

impl<'a> Record<'a> for SessionEntry<'a> {}

impl<'a> Fields<'a> for SessionEntry<'a> {
    const NAME: &'static str = "sessions";
    const COUNT_MAX: u16 = limits::SESSIONS_PAGE_MAX;
    const BYTES_MAX: usize = 2
        + (8 + 8 + 4 + 4 + 4 + 4 + 4)
        + (2 + limits::CLIENT_NAME_BYTES_MAX)
        + (2 + limits::ADDRESS_BYTES_MAX);

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            session_id: SessionId::new(reader.u64("session id")?),
            age_ms: reader.u64("age_ms")?,
            ttl_ms: reader.u32("ttl_ms")?,
            remaining_ms: reader.u32("remaining_ms")?,
            connection_count: reader.u32("connection_count")?,
            lock_count: reader.u32("lock_count")?,
            waiter_count: reader.u32("waiter_count")?,
            client_name: ClientName::read(reader)?,
            address: Address::read(reader)?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.session_id.get());
        writer.u64(self.age_ms);
        writer.u32(self.ttl_ms);
        writer.u32(self.remaining_ms);
        writer.u32(self.connection_count);
        writer.u32(self.lock_count);
        writer.u32(self.waiter_count);
        writer.bytes(self.client_name.as_bytes());
        writer.bytes(self.address.as_bytes());
    }
}

/// One number about the server. Its name carries its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatEntry<'a> {
    /// As in the server's metrics.
    pub name: StatName<'a>,
    /// Its value.
    pub value: u64,
}

impl<'a> Record<'a> for StatEntry<'a> {}

impl<'a> Fields<'a> for StatEntry<'a> {
    const NAME: &'static str = "statistics";
    const COUNT_MAX: u16 = limits::STATS_MAX;
    const BYTES_MAX: usize = 2 + 8 + (2 + limits::STAT_NAME_BYTES_MAX);

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            value: reader.u64("value")?,
            name: StatName::read(reader)?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.value);
        writer.bytes(self.name.as_bytes());
    }
}

/// A list of records: a slice on its way out, bytes of the buffer on its way in. Neither way
/// allocates.
#[derive(Clone, Copy)]
pub struct Records<'a, T> {
    source: Source<'a, T>,
}

#[derive(Clone, Copy)]
enum Source<'a, T> {
    Slice(&'a [T]),
    /// `count` records, each of which has been read once: reading it again cannot fail.
    Wire {
        count: u16,
        bytes: &'a [u8],
    },
}

impl<'a, T: Record<'a>> Records<'a, T> {
    /// The largest list of these, its count included.
    pub(crate) const BYTES_MAX: usize = 2 + T::COUNT_MAX as usize * T::BYTES_MAX;

    /// A list to be sent. Refuses more than [`crate::limits`] allows.
    pub fn new(records: &'a [T]) -> Result<Self, LimitError> {
        if records.len() > usize::from(T::COUNT_MAX) {
            return Err(LimitError::TooMany {
                field: T::NAME,
                count: records.len(),
                count_max: T::COUNT_MAX,
            });
        }
        Ok(Self {
            source: Source::Slice(records),
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self.source {
            Source::Slice(records) => records.len(),
            Source::Wire { count, .. } => usize::from(count),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The records, in order.
    pub fn iter(&self) -> RecordsIter<'a, T> {
        RecordsIter {
            source: self.source,
        }
    }

    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = reader.u16(T::NAME)?;
        crate::codec::at_most(T::NAME, count.into(), T::COUNT_MAX.into())?;
        let before = reader.rest();
        for _ in 0..count {
            read_record::<T>(reader)?;
        }
        Ok(Self {
            source: Source::Wire {
                count,
                bytes: &before[..before.len() - reader.rest().len()],
            },
        })
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        let count = u16::try_from(self.len()).expect("both ways to make a list bound its count");
        writer.u16(count);
        for record in self.iter() {
            writer.sized(|writer| record.write(writer));
        }
    }
}

fn read_record<'a, T: Record<'a>>(reader: &mut Reader<'a>) -> Result<T, DecodeError> {
    read_content(reader.bytes(T::NAME)?)
}

fn read_content<'a, T: Record<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    let reader = &mut Reader::new(bytes);
    let record = T::read(reader)?;
    reader.skip_options()?;
    Ok(record)
}

impl<'a, T: Record<'a>> IntoIterator for Records<'a, T> {
    type Item = T;
    type IntoIter = RecordsIter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T: Record<'a> + PartialEq> PartialEq for Records<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Record<'a> + Eq> Eq for Records<'a, T> {}

impl<'a, T: Record<'a> + fmt::Debug> fmt::Debug for Records<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Iterates over a list, decoding each record when it is asked for.
#[derive(Clone)]
pub struct RecordsIter<'a, T> {
    source: Source<'a, T>,
}

impl<'a, T: Record<'a>> Iterator for RecordsIter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match &mut self.source {
            Source::Slice(records) => {
                let (first, rest) = records.split_first()?;
                *records = rest;
                Some(*first)
            }
            Source::Wire { count, bytes } => {
                *count = count.checked_sub(1)?;
                let mut reader = Reader::new(bytes);
                let record = read_record(&mut reader).expect("read before, in Records::read");
                *bytes = reader.rest();
                Some(record)
            }
        }
    }
}

#[cfg(test)]
mod tests;
