//! The other half of fencing. A lock with a time limit is a hint: its holder may be paused, wake up
//! after the limit, and write. What keeps it from doing harm stands at the resource and compares
//! fences. This crate is that part.
//!
//! | what                | for                                                                  |
//! |---------------------|----------------------------------------------------------------------|
//! | [`FenceGuard`]      | anything that a closure can write; in memory, or with a log on disk  |
//! | [`FenceLayer`]      | an axum or tower service: `.layer(FenceLayer::new(guard))`           |
//! | `postgres`          | rows of a database, in the transaction that writes them              |
//! | [`Store`], [`http`] | a small key-value service behind a guard, and the program `resource` |
//!
//! # The files
//!
//! | file          | what                                                                         |
//! |---------------|------------------------------------------------------------------------------|
//! | `guard.rs`    | the guard; `layer.rs`: for HTTP services; `postgres.rs`: for transactions    |
//! | `register.rs` | turn, decision, disk, in this order: guard and store have it in common       |
//! | `ledger.rs`   | what is remembered; `ledger/floors.rs`: what is left of what was forgotten   |
//! | `turns.rs`    | one write of a key at a time                                                 |
//! | `journal.rs`  | the log's thread; `journal/file.rs`: its file; `journal/frame.rs`: its bytes |
//! | `refusal.rs`  | policies, refusals, errors; `limits.rs`: every bound; `token.rs`: the header |
//! | `store.rs`    | values behind a guard; `http.rs`, `serve.rs`, `metrics.rs`: the service      |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod guard;
pub mod http;
mod journal;
mod layer;
mod ledger;
pub mod limits;
mod metrics;
#[cfg(feature = "postgres")]
pub mod postgres;
mod refusal;
mod register;
mod serve;
mod store;
mod token;
mod turns;

pub use guard::{Builder, Counts, FenceGuard};
pub use layer::{FenceLayer, FenceService};
pub use ledger::{Seen, WhenFull};
pub use limits::{COMPACT_BYTES_DEFAULT, KEYS_DEFAULT, LAYER_BODY_BYTES_DEFAULT, WRITES_DEFAULT};
pub use protocol::Fence;
pub use refusal::{Full, JournalError, Policy, Refusal, Stale};
pub use serve::serve;
pub use store::{Enforcement, Store, StoreSettings, Written};
pub use token::{FENCE_HEADER, TokenError, fence_of};
