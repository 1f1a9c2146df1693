//! Kills the real server under real clients, again and again, and checks what they saw.
//!
//! A run starts a server as a child process on a data directory of its own, lets several clients acquire, renew, release and
//! lose locks on a few keys, kills the server with SIGKILL at random moments, also while it starts, and starts it again on the same
//! directory and port. Everything the clients were told is recorded with the time at which they asked and the time at which
//! they had the answer. Afterwards the checker looks for anything that a correct server cannot have said.
//!
//! ```sh
//! cargo run --release -p crash-tests -- --kills 1000 --durability lease
//! ```
//!
//! What this does not show: SIGKILL ends a process but not the system, so what was written and not synced survives. Lost and
//! torn writes are the business of `server/src/wal/tests/crash.rs`, which has a disk that forgets.
//!
//! # The files
//!
//! | file         | what                                                                                                 |
//! |--------------|------------------------------------------------------------------------------------------------------|
//! | `history.rs` | what was seen, and by whom                                                                           |
//! | `checker.rs` | what must be true of it, and **why nothing that it reports can be a false alarm**                    |
//! | `story.rs`   | what happened around a violation                                                                     |
//! | `driver.rs`  | one run: the lives of the server, and when they end                                                  |
//! | `worker.rs`  | what a client does all day                                                                           |
//! | `prober.rs`  | a client that speaks the wire by hand, and tries to use again what it has given back                 |
//! | `disk.rs`    | a disk that fails at a given moment, for `tests/disk.rs`                                             |
//! | `process.rs` | the server as a child process                                                                        |

#![forbid(unsafe_code)]

pub mod checker;
pub mod disk;
pub mod driver;
pub mod history;
mod prober;
mod process;
pub mod story;
mod worker;

pub use process::{Program, SNAPSHOT_EVERY, SNAPSHOT_LOG_BYTES, serve};
