//! The types that openraft is built with here, under short names. Everything that is written or
//! sent of them goes through `codec.rs`.

use bytes::Bytes;
use std::fmt;

/// A node of the cluster. Never given to a second node, not even after its disk was lost.
pub type NodeId = u64;

openraft::declare_raft_types!(
    /// What openraft is built with.
    pub Types:
        D = Command,
        R = Applied,
        NodeId = u64,
        Node = Member,
);

/// The latest leader that a node has accepted, or is a candidate for.
pub type Vote = openraft::type_config::alias::VoteOf<Types>;
/// Who leads: a term and a node.
pub type LeaderId = openraft::type_config::alias::LeaderIdOf<Types>;
/// An entry's place: the leader that proposed it, and its index.
pub type LogId = openraft::type_config::alias::LogIdOf<Types>;
/// One entry of the replicated log.
pub type Entry = openraft::type_config::alias::EntryOf<Types>;
/// What an entry carries: nothing, a command, or a membership.
pub type Payload = openraft::EntryPayload<Command, u64, Member>;
/// Voters and learners.
pub type Membership = openraft::Membership<u64, Member>;
/// The same, with the entry that it stands in.
pub type StoredMembership = openraft::type_config::alias::StoredMembershipOf<Types>;
/// What a snapshot covers.
pub type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<Types>;

/// What the cluster replicates: an entry of ours as bytes (`entry.rs`). openraft never looks into
/// it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Command(pub Bytes);

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({} bytes)", self.0.len())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What the ledger says of an entry that it applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Applied {
    /// By the rule of the log; an entry that does not count is ignored by every node.
    pub counts: bool,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.counts {
            true => "counts",
            false => "ignored",
        })
    }
}

/// Where a node is reached.
#[derive(Clone, PartialEq, Eq, Debug, Default, PartialOrd, Ord, Hash)]
pub struct Member {
    /// By the other nodes: host and port.
    pub peer: String,
    /// By native clients: host and port.
    pub client: String,
    /// By clients of Redis. Empty: they are not served.
    pub redis: String,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.peer)
    }
}

/// The longest address of a member.
pub const ADDRESS_BYTES_MAX: usize = 255;

/// How many nodes a cluster has at most, learners included.
pub const NODES_MAX: usize = 16;
