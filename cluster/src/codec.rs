//! openraft's values as bytes: the same on disk and between nodes. All numbers are little-endian.
//!
//! | value      | bytes                                                                           |
//! |------------|---------------------------------------------------------------------------------|
//! | vote       | term u64, node u64, committed u8                                                |
//! | log id     | term u64, node u64, index u64                                                   |
//! | option     | 0, or 1 and the value                                                           |
//! | string     | length u8, bytes                                                                |
//! | membership | configs u8, each: nodes u8, each u64; members u8, each: node u64, three strings |
//! | payload    | kind u8: 0 blank, 1 command (bytes to the end), 2 membership                    |
//!
//! Decoding takes bytes from peers and from disks, so it refuses what no encoder writes, and never
//! allocates more than the input is long.

use crate::types::{
    ADDRESS_BYTES_MAX, Command, LeaderId, LogId, Member, Membership, NODES_MAX, Payload, Vote,
};
use bytes::{Buf, BufMut, Bytes};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Bytes that no encoder of ours writes. From a peer it ends that connection; on the disk it is
/// damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecodeError {
    /// The field that is wrong or cut off.
    pub field: &'static str,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is missing or wrong", self.field)
    }
}

impl std::error::Error for DecodeError {}

/// How many sets of voters a membership has: two while it changes.
pub(crate) const CONFIGS_MAX: usize = 2;

const BLANK: u8 = 0;
const COMMAND: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// Reads values from the front of some bytes.
pub struct Reader {
    rest: Bytes,
}

impl Reader {
    /// Reads from these bytes.
    pub fn new(bytes: Bytes) -> Self {
        Reader { rest: bytes }
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest)
    }

    /// So many bytes.
    pub fn take(&mut self, bytes: usize, field: &'static str) -> Result<Bytes, DecodeError> {
        match self.rest.len() >= bytes {
            true => Ok(self.rest.split_to(bytes)),
            false => Err(DecodeError { field }),
        }
    }

    /// One byte.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        Ok(self.take(1, field)?.get_u8())
    }

    /// A flag: 0 or 1.
    pub fn flag(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError { field }),
        }
    }

    /// Four bytes.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        Ok(self.take(4, field)?.get_u32_le())
    }

    /// Eight bytes.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        Ok(self.take(8, field)?.get_u64_le())
    }

    /// A short string.
    pub fn string(&mut self, field: &'static str) -> Result<String, DecodeError> {
        let length = usize::from(self.u8(field)?);
        let bytes = self.take(length, field)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError { field })
    }

    /// A value that may be absent.
    pub fn option<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        match self.flag(field)? {
            true => read(self).map(Some),
            false => Ok(None),
        }
    }

    /// A vote.
    pub fn vote(&mut self) -> Result<Vote, DecodeError> {
        let leader_id = LeaderId {
            term: self.u64("term of a vote")?,
            node_id: self.u64("node of a vote")?,
        };
        let committed = self.flag("whether a vote is committed")?;
        Ok(Vote {
            leader_id,
            committed,
        })
    }

    /// A log id.
    pub fn log_id(&mut self) -> Result<LogId, DecodeError> {
        let leader_id = LeaderId {
            term: self.u64("term of a log id")?,
            node_id: self.u64("node of a log id")?,
        };
        Ok(LogId::new(leader_id, self.u64("index of a log id")?))
    }

    /// A membership.
    pub fn membership(&mut self) -> Result<Membership, DecodeError> {
        let config_count = self.count("configs of a membership", CONFIGS_MAX)?;
        let mut configs = Vec::with_capacity(config_count);
        for _ in 0..config_count {
            let voters = self.count("voters of a membership", NODES_MAX)?;
            let mut config = BTreeSet::new();
            for _ in 0..voters {
                let voter = self.rising("voter", config.last().copied())?;
                config.insert(voter);
            }
            configs.push(config);
        }
        let members = self.count("members of a membership", NODES_MAX)?;
        let mut nodes = BTreeMap::new();
        for _ in 0..members {
            let last = nodes.last_key_value().map(|(node, _)| *node);
            let node = self.rising("node of a member", last)?;
            nodes.insert(node, self.member()?);
        }
        let is_empty = configs.is_empty() && nodes.is_empty();
        if is_empty {
            return Ok(Membership::default());
        }
        Membership::new(configs, nodes).map_err(|_| DecodeError {
            field: "voters of a membership",
        })
    }

    /// The next of some numbers that encoders write in order, each once.
    fn rising(&mut self, field: &'static str, last: Option<u64>) -> Result<u64, DecodeError> {
        let next = self.u64(field)?;
        match last < Some(next) {
            true => Ok(next),
            false => Err(DecodeError { field }),
        }
    }

    /// Where a node is reached.
    pub fn member(&mut self) -> Result<Member, DecodeError> {
        Ok(Member {
            peer: self.string("peer address")?,
            client: self.string("client address")?,
            redis: self.string("redis address")?,
        })
    }

    fn count(&mut self, field: &'static str, max: usize) -> Result<usize, DecodeError> {
        let count = usize::from(self.u8(field)?);
        match count <= max {
            true => Ok(count),
            false => Err(DecodeError { field }),
        }
    }

    /// The payload of an entry: everything that is left.
    pub fn payload(&mut self) -> Result<Payload, DecodeError> {
        let payload = match self.u8("kind of a payload")? {
            BLANK => Payload::Blank,
            COMMAND => Payload::Normal(Command(self.rest())),
            MEMBERSHIP => Payload::Membership(self.membership()?),
            _ => {
                return Err(DecodeError {
                    field: "kind of a payload",
                });
            }
        };
        self.end("payload")?;
        Ok(payload)
    }

    /// Nothing must follow.
    pub fn end(&self, field: &'static str) -> Result<(), DecodeError> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(DecodeError { field }),
        }
    }
}

/// Appends a vote.
pub fn put_vote(vote: &Vote, out: &mut impl BufMut) {
    out.put_u64_le(vote.leader_id.term);
    out.put_u64_le(vote.leader_id.node_id);
    out.put_u8(u8::from(vote.committed));
}

/// Appends a log id.
pub fn put_log_id(log_id: &LogId, out: &mut impl BufMut) {
    out.put_u64_le(log_id.committed_leader_id().term);
    out.put_u64_le(log_id.committed_leader_id().node_id);
    out.put_u64_le(log_id.index());
}

/// Appends a value that may be absent.
pub fn put_option<T, B: BufMut>(value: Option<&T>, out: &mut B, put: impl FnOnce(&T, &mut B)) {
    match value {
        None => out.put_u8(0),
        Some(value) => {
            out.put_u8(1);
            put(value, out);
        }
    }
}

/// Appends a membership.
pub fn put_membership(membership: &Membership, out: &mut impl BufMut) {
    let configs = membership.get_joint_config();
    assert!(configs.len() <= CONFIGS_MAX, "{} configs", configs.len());
    out.put_u8(configs.len() as u8);
    for config in configs {
        assert!(config.len() <= NODES_MAX, "{} voters", config.len());
        out.put_u8(config.len() as u8);
        config.iter().for_each(|node| out.put_u64_le(*node));
    }
    let members: Vec<_> = membership.nodes().collect();
    assert!(members.len() <= NODES_MAX, "{} members", members.len());
    out.put_u8(members.len() as u8);
    for (node, member) in members {
        out.put_u64_le(*node);
        put_member(member, out);
    }
}

/// Appends where a node is reached.
pub fn put_member(member: &Member, out: &mut impl BufMut) {
    for address in [&member.peer, &member.client, &member.redis] {
        put_string(address, out);
    }
}

/// Appends a short string.
pub fn put_string(string: &str, out: &mut impl BufMut) {
    assert!(
        string.len() <= ADDRESS_BYTES_MAX,
        "{} bytes are too long for a short string",
        string.len()
    );
    out.put_u8(string.len() as u8);
    out.put_slice(string.as_bytes());
}

/// Appends the payload of an entry, to which nothing may be appended afterwards.
pub fn put_payload(payload: &Payload, out: &mut impl BufMut) {
    match payload {
        Payload::Blank => out.put_u8(BLANK),
        Payload::Normal(command) => {
            out.put_u8(COMMAND);
            out.put_slice(&command.0);
        }
        Payload::Membership(membership) => {
            out.put_u8(MEMBERSHIP);
            put_membership(membership, out);
        }
    }
}

/// Bytes that [`put_payload`] appends.
pub fn payload_bytes(payload: &Payload) -> usize {
    match payload {
        Payload::Blank => 1,
        Payload::Normal(command) => 1 + command.0.len(),
        Payload::Membership(membership) => {
            let mut bytes = Vec::new();
            put_membership(membership, &mut bytes);
            1 + bytes.len()
        }
    }
}

#[cfg(test)]
mod tests;
