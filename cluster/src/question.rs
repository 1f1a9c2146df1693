//! What tools ask a node, and what it answers. JSON, so that a tool of one version can talk to a
//! node of another.

use crate::types::NodeId;
use serde::{Deserialize, Serialize};

/// What a tool asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// How it stands.
    Status,
    /// Adds a node: it learns, catches up, then votes.
    Add {
        /// Its id.
        node: NodeId,
        /// Where peers reach it.
        peer: String,
        /// Where clients do.
        client: String,
        /// Where clients of Redis do, or nothing.
        redis: String,
    },
    /// Takes a node out.
    Remove {
        /// Its id.
        node: NodeId,
    },
    /// A node says where it is reached.
    Announce {
        /// Its id.
        node: NodeId,
        /// By peers.
        peer: String,
        /// By clients.
        client: String,
        /// By clients of Redis, or nothing.
        redis: String,
    },
    /// Hands the leadership over.
    Transfer {
        /// To this node.
        to: NodeId,
    },
    /// A part of an image of the ledger.
    Image {
        /// The image that was begun; nothing begins a new one.
        id: Option<u64>,
        /// Where the part begins.
        from: u64,
    },
}

/// What a node answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// How it stands.
    Status(Status),
    /// It is done.
    Done(String),
    /// It is not, and why, and what to do.
    Error(String),
    /// Ask this node: it leads.
    Leader {
        /// Its id.
        node: NodeId,
        /// Where peers and tools reach it.
        peer: String,
    },
    /// A part of an image.
    Image {
        /// The image's number.
        id: u64,
        /// Bytes of the whole image.
        bytes: u64,
        /// This part's bytes, as hexadecimal digits.
        part: String,
    },
}

/// How a node stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its id.
    pub node: NodeId,
    /// `leader`, `follower`, `candidate` or `learner`. A leader that is cut off keeps that role.
    pub role: String,
    /// Since when it has had that role, by its own wall clock, in milliseconds since 1970; 0 if the
    /// node is of a version that does not tell.
    #[serde(default)]
    pub role_since_unix_ms: u64,
    /// The term.
    pub term: u64,
    /// The leader, while this node hears it; itself, while it hears a majority.
    pub leader: Option<NodeId>,
    /// The cluster's id, in hexadecimal digits; nothing before its birth.
    pub cluster: String,
    /// The last entry in this node's log.
    pub last_index: u64,
    /// The last entry that is committed: on the leader, as a majority has confirmed it; on the
    /// others, as a leader told them since their start. 0 before that, and if the node is of a
    /// version that does not tell.
    #[serde(default)]
    pub committed_index: u64,
    /// The last entry that it has applied.
    pub applied_index: u64,
    /// The last entry that a snapshot covers.
    pub snapshot_index: u64,
    /// The last entry that it has no more.
    pub purged_index: u64,
    /// Which entries may stand in the log ([`crate::entry::Format`]); 0 if the node is of a version
    /// that does not tell.
    #[serde(default)]
    pub format: u16,
    /// The cluster's clock, as this node knows it, in milliseconds since 1970.
    pub clock_ms: u64,
    /// The latest hash of the ledger that all nodes agreed on.
    pub hash: u64,
    /// Keys in the ledger, those that are over and not forgotten yet included.
    pub keys: u64,
    /// Batches that counted for nothing.
    pub ignored: u64,
    /// Reigns that this node has learned of since it started.
    pub reigns: u64,
    /// All nodes.
    pub members: Vec<MemberStatus>,
}

impl Status {
    /// Whether the node leads a majority. Its role does not say that.
    pub fn leads(&self) -> bool {
        self.leader == Some(self.node)
    }
}

/// How a member stands, as the leader sees it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its id.
    pub node: NodeId,
    /// Whether it has a vote.
    pub votes: bool,
    /// Where it is reached.
    pub peer: String,
    /// By clients.
    pub client: String,
    /// By clients of Redis.
    pub redis: String,
    /// The last entry that it has confirmed; only the leader knows.
    pub matched_index: Option<u64>,
    /// How long ago it was heard from; only the leader knows.
    pub heard_ms: Option<u64>,
}
