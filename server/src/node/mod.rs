//! A server that is a node of a cluster. One node leads and serves clients; the others follow, keep
//! their ledgers, and tell clients who leads.
//!
//! | file           | what                                                                      |
//! |----------------|---------------------------------------------------------------------------|
//! | `server.rs`    | the node from its start to its stop; `hold_offices`: when it begins to    |
//! |----------------|---------------------------------------------------------------------------|
//! | `office.rs`    | one stretch of time as leader or follower: engine, cores and connections  |
//! | `hand_over.rs` | when another node should lead: this one stops, or its disk hangs          |
//! | `member.rs`    | where the node is reached, as it tells the others                         |
//! | `story.rs`     | the log lines of an election                                              |
//!
//! What connections and HTTP see of the cluster is in `core/cluster_view.rs`.
//!
//! Nothing of an office survives it. A leader's engine runs ahead of the replicated log, so what is
//! in it may never have happened; the next leader, the same node perhaps, builds a new one from its
//! ledger (`cluster/src/ledger.rs`).

mod hand_over;
mod member;
mod office;
mod server;
mod story;

pub use server::{EXIT_DIFFERS, NodeServer};
