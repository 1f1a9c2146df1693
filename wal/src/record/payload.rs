//! From records to the bytes of their payloads and back. The two directions stand one above the
//! other, field by field.

use crate::record::{
    EntryId, FENCE_MAX, KEY_BYTES_MAX, Lease, NAME_BYTES_MAX, NOTE_BYTES_MAX, PART_BYTES_MAX,
    Record, SESSION_BOUND, SHARED, Scope, kind,
};
use std::fmt;
use types::Mode;

/// Why a record that is whole says nothing to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordError {
    /// A kind we do not know: a newer server wrote it.
    UnknownKind {
        /// The kind.
        kind: u8,
    },
    /// A known kind with something in it that we would not have written.
    Malformed {
        /// The kind.
        kind: u8,
        /// The first field that is wrong.
        field: &'static str,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::UnknownKind { kind } => write!(
                f,
                "a record of kind {kind:#04x}, which this version does not know"
            ),
            RecordError::Malformed { kind, field } => write!(
                f,
                "a record of kind {kind:#04x} whose {field} no server of this version can have written"
            ),
        }
    }
}

impl std::error::Error for RecordError {}

impl<'a> Record<'a> {
    /// Appends the payload.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Record::Started { unix_ms, scope } | Record::SnapshotBegin { unix_ms, scope } => {
                out.extend_from_slice(&unix_ms.to_le_bytes());
                out.push(scope.code());
            }
            Record::CleanStop { unix_ms } => out.extend_from_slice(&unix_ms.to_le_bytes()),
            Record::Horizon {
                unix_ms,
                lease_ms_max,
            } => {
                out.extend_from_slice(&unix_ms.to_le_bytes());
                if let Some(lease_ms_max) = lease_ms_max {
                    out.extend_from_slice(&lease_ms_max.to_le_bytes());
                }
            }
            Record::Clock {
                unix_ms,
                wall_unix_ms,
            } => {
                out.extend_from_slice(&unix_ms.to_le_bytes());
                if let Some(wall_unix_ms) = wall_unix_ms {
                    out.extend_from_slice(&wall_unix_ms.to_le_bytes());
                }
            }
            Record::Ceiling { shard, fence } => {
                assert!(fence <= FENCE_MAX, "{fence} is no fence");
                out.extend_from_slice(&shard.to_le_bytes());
                out.extend_from_slice(&fence.to_le_bytes());
            }
            Record::SessionOpened {
                session,
                ttl_ms,
                deadline_unix_ms,
                name,
            } => {
                assert!(name.len() <= NAME_BYTES_MAX, "name: {} bytes", name.len());
                out.extend_from_slice(&session.to_le_bytes());
                out.extend_from_slice(&deadline_unix_ms.to_le_bytes());
                out.extend_from_slice(&ttl_ms.to_le_bytes());
                out.extend_from_slice(name);
            }
            Record::SessionKept {
                session,
                deadline_unix_ms,
            } => {
                out.extend_from_slice(&session.to_le_bytes());
                out.extend_from_slice(&deadline_unix_ms.to_le_bytes());
            }
            Record::SessionEnded { session } => out.extend_from_slice(&session.to_le_bytes()),
            Record::Granted(lease) | Record::GrantedLong(lease) => lease.encode(out),
            Record::Renewed {
                key,
                fence,
                until_unix_ms,
            } => {
                out.extend_from_slice(&fence.to_le_bytes());
                out.extend_from_slice(&until_unix_ms.to_le_bytes());
                encode_key(key, out);
            }
            Record::Released {
                key,
                fence,
                count_left,
            } => {
                out.extend_from_slice(&fence.to_le_bytes());
                out.extend_from_slice(&count_left.to_le_bytes());
                encode_key(key, out);
            }
            Record::Downgraded { key, fence } => {
                out.extend_from_slice(&fence.to_le_bytes());
                encode_key(key, out);
            }
            Record::SnapshotEnd {
                records,
                log_end,
                chain,
            } => {
                out.extend_from_slice(&records.to_le_bytes());
                out.extend_from_slice(&log_end.to_le_bytes());
                out.extend_from_slice(&chain.to_le_bytes());
            }
            Record::SnapshotShows { log_position } => {
                out.extend_from_slice(&log_position.to_le_bytes());
            }
            Record::Continued { sequence } => out.extend_from_slice(&sequence.to_le_bytes()),
            Record::Synced | Record::TurnsEnded => {}
            Record::Answered {
                session,
                request,
                fence,
                count,
            } => {
                out.extend_from_slice(&session.to_le_bytes());
                out.extend_from_slice(&request.to_le_bytes());
                out.extend_from_slice(&fence.to_le_bytes());
                out.extend_from_slice(&count.to_le_bytes());
            }
            Record::NodeIs { node, disk } => {
                out.extend_from_slice(&node.to_le_bytes());
                out.extend_from_slice(&disk.to_le_bytes());
            }
            Record::Vote {
                group,
                term,
                node,
                is_committed,
            } => {
                out.extend_from_slice(&group.to_le_bytes());
                out.extend_from_slice(&term.to_le_bytes());
                out.extend_from_slice(&node.to_le_bytes());
                out.push(u8::from(is_committed));
            }
            Record::EntryBegin {
                group,
                id,
                bytes,
                part,
            } => {
                out.extend_from_slice(&group.to_le_bytes());
                id.encode(out);
                out.extend_from_slice(&bytes.to_le_bytes());
                encode_part(part, out);
            }
            Record::EntryPart { group, part } | Record::ImagePart { group, part } => {
                out.extend_from_slice(&group.to_le_bytes());
                encode_part(part, out);
            }
            Record::Truncated { group, from } => {
                out.extend_from_slice(&group.to_le_bytes());
                out.extend_from_slice(&from.to_le_bytes());
            }
            Record::Purged { group, id } => {
                out.extend_from_slice(&group.to_le_bytes());
                id.encode(out);
            }
        }
    }

    /// Reads the payload of a record of this kind.
    pub fn decode(kind: u8, payload: &'a [u8]) -> Result<Record<'a>, RecordError> {
        let mut fields = Fields {
            kind,
            rest: payload,
        };
        let record = match kind {
            kind::STARTED => Record::Started {
                unix_ms: fields.u64("time")?,
                scope: fields.scope()?,
            },
            kind::CLEAN_STOP => Record::CleanStop {
                unix_ms: fields.u64("time")?,
            },
            kind::CEILING => Record::Ceiling {
                shard: fields.u16("shard")?,
                fence: fields.fence()?,
            },
            kind::HORIZON => Record::Horizon {
                unix_ms: fields.u64("time")?,
                lease_ms_max: None,
            },
            kind::HORIZON_BOUNDED => Record::Horizon {
                unix_ms: fields.u64("time")?,
                lease_ms_max: Some(fields.u32("longest lease")?),
            },
            kind::CLOCK => Record::Clock {
                unix_ms: fields.u64("time")?,
                wall_unix_ms: None,
            },
            kind::CLOCK_PAIR => Record::Clock {
                unix_ms: fields.u64("time")?,
                wall_unix_ms: Some(fields.u64("wall clock")?),
            },
            kind::SESSION_OPENED => Record::SessionOpened {
                session: fields.u64("session")?,
                deadline_unix_ms: fields.u64("deadline")?,
                ttl_ms: fields.u32("ttl")?,
                name: fields.rest("name", 0, NAME_BYTES_MAX)?,
            },
            kind::SESSION_KEPT => Record::SessionKept {
                session: fields.u64("session")?,
                deadline_unix_ms: fields.u64("deadline")?,
            },
            kind::SESSION_ENDED => Record::SessionEnded {
                session: fields.u64("session")?,
            },
            kind::GRANTED => Record::Granted(Lease::decode(&mut fields)?),
            kind::GRANTED_LONG => Record::GrantedLong(Lease::decode(&mut fields)?),
            kind::RENEWED => Record::Renewed {
                fence: fields.fence()?,
                until_unix_ms: fields.u64("end")?,
                key: fields.rest("key", 1, KEY_BYTES_MAX)?,
            },
            kind::RELEASED => Record::Released {
                fence: fields.fence()?,
                count_left: fields.u32("count")?,
                key: fields.rest("key", 1, KEY_BYTES_MAX)?,
            },
            kind::DOWNGRADED => Record::Downgraded {
                fence: fields.fence()?,
                key: fields.rest("key", 1, KEY_BYTES_MAX)?,
            },
            kind::SNAPSHOT_BEGIN => Record::SnapshotBegin {
                unix_ms: fields.u64("time")?,
                scope: fields.scope()?,
            },
            kind::SNAPSHOT_END => Record::SnapshotEnd {
                records: fields.u64("records")?,
                log_end: fields.u64("end of the log")?,
                chain: fields.u32("chain")?,
            },
            kind::SNAPSHOT_SHOWS => Record::SnapshotShows {
                log_position: fields.u64("position")?,
            },
            kind::CONTINUED => Record::Continued {
                sequence: fields.u64("sequence")?,
            },
            kind::SYNCED => Record::Synced,
            kind::TURNS_ENDED => Record::TurnsEnded,
            kind::ANSWERED => Record::Answered {
                session: fields.u64("session")?,
                request: fields.u64("request")?,
                fence: fields.fence()?,
                count: fields.u32("count")?,
            },
            kind::NODE_IS => Record::NodeIs {
                node: fields.u64("node")?,
                disk: fields.u64("disk")?,
            },
            kind::VOTE => Record::Vote {
                group: fields.u16("group")?,
                term: fields.u64("term")?,
                node: fields.u64("node")?,
                is_committed: match fields.u8("whether it is committed")? {
                    0 => false,
                    1 => true,
                    _ => return Err(fields.malformed("whether it is committed")),
                },
            },
            kind::ENTRY_BEGIN => Record::EntryBegin {
                group: fields.u16("group")?,
                id: EntryId::decode(&mut fields)?,
                bytes: fields.u32("length of the entry")?,
                part: fields.rest("part", 0, PART_BYTES_MAX)?,
            },
            kind::ENTRY_PART => Record::EntryPart {
                group: fields.u16("group")?,
                part: fields.rest("part", 1, PART_BYTES_MAX)?,
            },
            kind::TRUNCATED => Record::Truncated {
                group: fields.u16("group")?,
                from: fields.u64("index")?,
            },
            kind::PURGED => Record::Purged {
                group: fields.u16("group")?,
                id: EntryId::decode(&mut fields)?,
            },
            kind::IMAGE_PART => Record::ImagePart {
                group: fields.u16("group")?,
                part: fields.rest("part", 1, PART_BYTES_MAX)?,
            },
            _ => return Err(RecordError::UnknownKind { kind }),
        };
        fields.end()?;
        Ok(record)
    }
}

impl<'a> Lease<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        assert!(
            (1..=FENCE_MAX).contains(&self.fence),
            "{} was never granted",
            self.fence
        );
        assert!(self.count > 0, "a lock that is held is held once at least");
        assert!(
            self.note.len() <= NOTE_BYTES_MAX,
            "note: {} bytes",
            self.note.len()
        );
        let shared = match self.mode {
            Mode::Exclusive => 0,
            Mode::Shared => SHARED,
        };
        let session_bound = if self.is_session_bound {
            SESSION_BOUND
        } else {
            0
        };
        out.extend_from_slice(&self.fence.to_le_bytes());
        out.extend_from_slice(&self.session.to_le_bytes());
        out.extend_from_slice(&self.until_unix_ms.to_le_bytes());
        out.extend_from_slice(&self.granted_unix_ms.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.push(shared | session_bound);
        out.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        encode_key(self.key, out);
        out.extend_from_slice(self.note);
    }

    fn decode(fields: &mut Fields<'a>) -> Result<Lease<'a>, RecordError> {
        let fence = fields.fence()?;
        let session = fields.u64("session")?;
        let until_unix_ms = fields.u64("end")?;
        let granted_unix_ms = fields.u64("beginning")?;
        let count = fields.u32("count")?;
        let flags = fields.u8("flags")?;
        if fence == 0 {
            return Err(fields.malformed("fence"));
        }
        if count == 0 {
            return Err(fields.malformed("count"));
        }
        if flags & !(SHARED | SESSION_BOUND) != 0 {
            return Err(fields.malformed("flags"));
        }
        let key_bytes = usize::from(fields.u16("length of the key")?);
        if !(1..=KEY_BYTES_MAX).contains(&key_bytes) {
            return Err(fields.malformed("length of the key"));
        }
        Ok(Lease {
            fence,
            session,
            until_unix_ms,
            granted_unix_ms,
            count,
            mode: Mode::from_is_shared(flags & SHARED != 0),
            is_session_bound: flags & SESSION_BOUND != 0,
            key: fields.take("key", key_bytes)?,
            note: fields.rest("note", 0, NOTE_BYTES_MAX)?,
        })
    }
}

impl EntryId {
    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.term.to_le_bytes());
        out.extend_from_slice(&self.node.to_le_bytes());
        out.extend_from_slice(&self.index.to_le_bytes());
    }

    fn decode(fields: &mut Fields<'_>) -> Result<EntryId, RecordError> {
        Ok(EntryId {
            term: fields.u64("term")?,
            node: fields.u64("node")?,
            index: fields.u64("index")?,
        })
    }
}

fn encode_part(part: &[u8], out: &mut Vec<u8>) {
    assert!(
        part.len() <= PART_BYTES_MAX,
        "a part of {} bytes",
        part.len()
    );
    out.extend_from_slice(part);
}

fn encode_key(key: &[u8], out: &mut Vec<u8>) {
    assert!(
        (1..=KEY_BYTES_MAX).contains(&key.len()),
        "a key has 1 to {KEY_BYTES_MAX} bytes, this one {}",
        key.len()
    );
    out.extend_from_slice(key);
}

/// What is left to read of a payload.
struct Fields<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn malformed(&self, field: &'static str) -> RecordError {
        RecordError::Malformed {
            kind: self.kind,
            field,
        }
    }

    fn take(&mut self, field: &'static str, bytes: usize) -> Result<&'a [u8], RecordError> {
        let Some((taken, rest)) = self.rest.split_at_checked(bytes) else {
            return Err(self.malformed(field));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], RecordError> {
        Ok(self.take(field, N)?.try_into().expect("N bytes were taken"))
    }

    fn u8(&mut self, field: &'static str) -> Result<u8, RecordError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    fn u16(&mut self, field: &'static str) -> Result<u16, RecordError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, RecordError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    fn u64(&mut self, field: &'static str) -> Result<u64, RecordError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    fn fence(&mut self) -> Result<u64, RecordError> {
        let fence = self.u64("fence")?;
        if fence > FENCE_MAX {
            return Err(self.malformed("fence"));
        }
        Ok(fence)
    }

    fn scope(&mut self) -> Result<Scope, RecordError> {
        let code = self.u8("scope")?;
        Scope::from_code(code).ok_or_else(|| self.malformed("scope"))
    }

    fn rest(
        &mut self,
        field: &'static str,
        bytes_min: usize,
        bytes_max: usize,
    ) -> Result<&'a [u8], RecordError> {
        if !(bytes_min..=bytes_max).contains(&self.rest.len()) {
            return Err(self.malformed(field));
        }
        Ok(std::mem::take(&mut self.rest))
    }

    fn end(&self) -> Result<(), RecordError> {
        match self.rest {
            [] => Ok(()),
            _ => Err(self.malformed("length")),
        }
    }
}
