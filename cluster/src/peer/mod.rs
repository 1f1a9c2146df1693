//! Everything that goes between nodes. `docs/cluster-wire.md` gives the bytes.
//!
//! A node opens up to three connections to each peer, one per [`Lane`], and says in its hello
//! which one it is. Requests go from the side that connected to the side that accepted, replies
//! the other way; so two nodes have up to six connections between them.
//!
//! | lane     | carries                                  | replies                                |
//! |----------|------------------------------------------|----------------------------------------|
//! | append   | entries of the log, pipelined            | in order, as they are flushed          |
//! | control  | heartbeats, votes, pre-votes, transfers  | in any order, by request id            |
//! | snapshot | one image of the ledger, in parts        | one, when it is installed              |
//! | ask      | questions of tools and nodes             | in order                               |
//!
//! Heartbeats have a lane of their own so that they never wait behind large entries.
//!
//! | file            | what                                                                      |
//! |-----------------|---------------------------------------------------------------------------|
//! | `wire.rs`       | frames and messages as bytes                                              |
//! | `outbox.rs`     | frames gathered for writing                                               |
//! | `connection.rs` | frames on a stream of bytes                                               |
//! | `hello.rs`      | how two nodes prove to each other that they know the cluster key          |
//! | `key.rs`        | that key, and the file it is read from                                    |
//! | `transport.rs`  | how a stream of bytes is come by: TCP, or a simulated network             |
//! | `tls.rs`        | TCP with TLS, where each node verifies the other                          |
//! | `complaint.rs`  | log lines about peers, each at most once a minute                         |
//! | `outgoing.rs`   | [`Peers`] and its networks, as openraft takes them; [`ask`]               |
//! | `pipeline.rs`   | the append lane, sending side                                             |
//! | `control.rs`    | the control lane, sending side                                            |
//! | `image.rs`      | the snapshot lane, both sides                                             |
//! | `incoming.rs`   | [`listen`]: accepting connections, and bounding them                      |
//! | `serving.rs`    | the lanes, receiving side                                                 |
//! | `fuzzing.rs`    | all of this with any bytes                                                |
//!
//! Ground rules: nothing of a connection is parsed before its hello, except the hello. A frame
//! that no encoder of ours writes ends that one connection. Everything runs in tasks of one
//! runtime and never blocks; dropping what [`listen`] returned, or a network, ends its connections.

mod complaint;
mod connection;
mod control;
mod dialer;
#[doc(hidden)]
pub mod fuzzing;
mod hello;
mod image;
mod incoming;
mod key;
mod outbox;
mod outgoing;
mod pipeline;
mod serving;
mod tls;
mod transport;
mod wire;

pub use self::tls::{PeerFiles, PeerTls, Wire, WireStream};
pub use incoming::listen;
pub use key::{ClusterKey, KeyError};
pub use outgoing::{AskError, Network, Peers, ask};
pub use transport::{Tcp, Transport};

use crate::types::NodeId;
use bytes::Bytes;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// What this code speaks between nodes.
pub const WIRE_VERSION: u16 = 1;

/// The oldest version that it still speaks with.
pub const WIRE_VERSION_MIN: u16 = 1;

/// The node of an [`Introduction`] that is a tool's. Such a connection can only ask.
pub const TOOL: NodeId = 0;

/// The longest part of a snapshot.
pub const SNAPSHOT_PART_BYTES: usize = 1 << 20;

/// How long a connection may take to prove itself, on either side.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// How long opening a connection may take, before the hello.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A ledger's snapshot, in parts of at most [`SNAPSHOT_PART_BYTES`].
pub type Image = Arc<Vec<Bytes>>;

/// What a node says of itself when it connects or is connected to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Introduction {
    /// Zero: in no cluster yet.
    pub cluster_id: u128,
    /// The node's number, or [`TOOL`].
    pub node: NodeId,
    /// Random, made with the data directory. So a node that lost its disk is recognised.
    pub disk_id: u64,
    /// [`WIRE_VERSION`] of the node's code.
    pub version: u16,
    /// The newest format of records that the node can read.
    pub format: u16,
}

impl fmt::Display for Introduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            TOOL => write!(f, "a tool"),
            node => write!(f, "node {node}"),
        }
    }
}

/// What the node around the wire decides.
pub trait Gate: Send + Sync + 'static {
    /// What this node says of itself, now.
    fn introduce(&self) -> Introduction;

    /// Whether to talk to a peer that has proved that it knows the cluster key; asked on both
    /// sides of a connection. `Err` refuses it, with a sentence that says why and what to do next.
    /// The sentence is sent to the peer, and logged at most once a minute.
    fn admit(&self, peer: &Introduction) -> Result<(), String>;

    /// Answers a question of a tool or another node, in order on its connection.
    fn answer(&self, question: Bytes) -> impl Future<Output = Bytes> + Send;
}

/// What a connection is for, as its hello says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Lane {
    Append,
    Control,
    Snapshot,
    Ask,
}

impl Lane {
    fn code(self) -> u8 {
        match self {
            Lane::Append => 1,
            Lane::Control => 2,
            Lane::Snapshot => 3,
            Lane::Ask => 4,
        }
    }

    fn of(code: u8) -> Option<Self> {
        [Lane::Append, Lane::Control, Lane::Snapshot, Lane::Ask]
            .into_iter()
            .find(|lane| lane.code() == code)
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lane::Append => "append",
            Lane::Control => "control",
            Lane::Snapshot => "snapshot",
            Lane::Ask => "ask",
        })
    }
}

#[cfg(test)]
mod tests;
