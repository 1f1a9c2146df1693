//! Fencepost on several nodes: the record stream of `--durability lease` as a replicated log.
//!
//! Consensus is openraft's. What is ours is listed here; `docs/cluster.md` says how it fits
//! together and what is promised.
//!
//! | file         | what                                                                         |
//! |--------------|------------------------------------------------------------------------------|
//! | `address.rs` | which addresses other machines can dial                                      |
//! | `types.rs`   | the types that openraft is built with                                        |
//! | `codec.rs`   | its values as bytes, on disk and between nodes                               |
//! | `entry.rs`   | what entries say, and which of them count                                    |
//! | `store.rs`   | openraft's log on this node's write-ahead log                                |
//! | `ledger.rs`  | what is held, on every node, as openraft's state machine, and its images     |
//! | `clock.rs`   | the cluster's clock, as a node knows it                                      |
//! | `propose.rs` | the journal of one leadership: from records to entries, and when they settle |
//! | `peer/`      | everything that goes between nodes                                           |
//! | `host.rs`    | what a node takes from its machine: time and threads                         |
//! | `node.rs`    | a node: openraft with all of this around it; `gate.rs`: which peers it takes |
//! | `standing.rs`| whether a node hears its cluster, keeps up with it, and belongs to it        |
//! | `numbers.rs` | what a node counts, for metrics                                              |
//! | `start.rs`   | how it is put together, and the tasks that look after it                     |
//! | `question.rs`| what tools ask, and what nodes answer                                        |
//! | `members.rs` | who belongs to the cluster: status, add, remove, hand over                   |
//! | `backup.rs`  | an image of the ledger for a file; `kept_image.rs`: while it is fetched      |
//! | `founding.rs`| a new cluster from a backup, a node's directory, or a single server's        |
//! | `fuzzing.rs` | a leader's entries and images with any bytes                                 |

#![forbid(unsafe_code)]

pub mod address;
pub mod backup;
pub mod clock;
pub mod codec;
pub mod entry;
pub mod founding;
#[doc(hidden)]
pub mod fuzzing;
pub mod gate;
mod host;
mod kept_image;
pub mod ledger;
pub mod members;
pub mod node;
pub mod numbers;
pub mod peer;
pub mod propose;
pub mod question;
mod random;
#[cfg(feature = "simulation")]
pub mod simulation;
#[cfg(not(feature = "simulation"))]
mod simulation;
pub mod standing;
pub mod start;
pub mod store;
pub mod types;
