//! The write-ahead log: how fences and leases survive a crash. Format and rules are in
//! `docs/wal.md`.
//!
//! ```text
//! let (log, recovered) = wal::open(dir, &Options::new(Scope::Leases, now_unix_ms))?;
//! // ... build the server from `recovered` ...
//! let wal = log.start(listener)?;      // the first write; `listener` hears what is synced
//! let ticket = wal.append(&record);    // never waits
//! // ... when the listener hears `ticket` or a later one, the reply may leave ...
//! if wal.wants_snapshot() { /* begin_snapshot, add everything, finish */ }
//! wal.close(now_unix_ms)?;             // a clean stop
//! ```
//!
//! # The files
//!
//! | file        | what                                                                          |
//! |-------------|-------------------------------------------------------------------------------|
//! | `wal.rs`    | an open log, as its users see it                                              |
//! | `record.rs` | what the log says; `record/payload.rs`: as bytes                              |
//! |             | `record/frame.rs`: how bytes prove that they are a record                     |
//! | `files.rs`  | `files/segment.rs`: the log's files: names, first pages, segments, spares     |
//! |             | `files/key.rs`: the key that sessions are signed with; marks a used directory |
//! | `log.rs`    | the log without threads: read, start, commit, go on in the next segment       |
//! |             | `log/queue.rs`: from appenders to the writer; `log/writer.rs`: the thread     |
//! |             | `log/snapshot.rs`: writing snapshots; `log/room.rs`: room on the disk         |
//! | `replay.rs` | reading everything back; `replay/survey.rs`: which files are needed           |
//! |             | `replay/state.rs`, `replay/leases.rs`: what it adds up to                     |
//! |             | `replay/sessions.rs`: the sessions among it                                   |
//! |             | `replay/ledger.rs`: the same for a replicated log, kept while a node runs     |
//! |             | `replay/node.rs`: the log of a cluster's node                                 |
//! |             | `replay/recovered.rs`: what a server finds; `replay/highest.rs`: fences only  |
//! | `tools.rs`  | verify and dump; `tools/show.rs`: a record as a line for people               |
//! |             | `tools/scan.rs`: whole records of damaged files; `tools/repair.rs`: a new log |
//! | `error.rs`  | what can go wrong; `metrics.rs`: what is counted                              |
//!
//! The disk underneath, real or forgetful, is the crate `disk`.
//!
//! # Ground rules
//!
//! - A record is appended **after** what it says has taken effect, and acknowledged only when it is
//!   on the disk.
//! - A fence is granted only below a ceiling that is on the disk already. The writer asserts it for
//!   every grant.
//! - The first error is the last: nothing is tried again, and nothing is reported as synced
//!   afterwards. The one exception is a disk without room for the next segment or a snapshot: the
//!   log goes on as long as the segment in use has room (`log/room.rs`).
//! - Nothing that replay does not believe is ever changed. Only `repair` writes over a damaged log,
//!   and only when told to.

#![forbid(unsafe_code)]

mod error;
mod files;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod fuzzing;
mod log;
mod metrics;
mod record;
mod replay;
mod tools;
mod wal;

#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "testing"))]
pub use disk::forgetful;
pub use disk::{DirDisk, Disk, DiskFile};
pub use error::{BrokenRule, IoFailure, Owner, Proof, ReplayError, WalError};
pub use files::key::KEY_BYTES;
pub use files::segment::{SEGMENT_BYTES, VERSION};
pub use log::queue::{Batch, QUEUE_BYTES_MAX, Ticket};
pub use log::room::check_room_for_new;
pub use log::writer::Listener;
pub use log::{Options, SNAPSHOT_LOG_BYTES, SPARES_MAX};
pub use metrics::{BUCKETS, Metrics, Number};
pub use record::frame::{Flaw, Position, RECORD_BYTES_MAX};
pub use record::payload::RecordError;
pub use record::{
    EntryId, FENCE_MAX, KEY_BYTES_MAX, Lease, NAME_BYTES_MAX, NOTE_BYTES_MAX, PART_BYTES_MAX,
    Record, Scope, records,
};
pub use replay::Torn;
pub use replay::highest::Highest;
pub use replay::leases::Leases;
pub use replay::ledger::{ImageUnderWay, Ledger, LedgerError, PARTS as LEDGER_PARTS};
pub use replay::node::{FoundEntry, GroupLog, NodeLog};
pub use replay::recovered::Recovered;
pub use replay::sessions::{ANSWERS_MAX, Answer, RecoveredSession};
pub use tools::repair::{FENCES_MARGIN, NewLog, Repair, RepairError, Repaired, repair, repair_on};
pub use tools::show::Utc;
pub use tools::{Contents, Entry, FileReport, Report, dump, verify};
pub use wal::{Opened, Snapshot, Wal, open, open_node, open_node_on, open_on};
