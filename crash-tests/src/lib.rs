//! Kills the real server under real clients, again and again, and checks what they saw.
//!
//! A run starts a server as a child process on a data directory of its own, lets several clients
//! acquire, renew, release and lose locks on a few keys, kills the server with SIGKILL at random
//! moments, also while it starts, and starts it again on the same directory and port. Meanwhile it
//! may stop the server or some of its clients with SIGSTOP, set the server's clock, start it in
//! another mode, and damage and repair its log. The clients record what they were told, with the
//! time at which they asked and the time at which they had the answer. Afterwards the checker looks
//! for anything that a correct server cannot have said.
//!
//! ```sh
//! cargo run --release -p crash-tests -- --kills 1000 --parallel 8 --durability lease
//! ```
//!
//! What this does not show: SIGKILL ends a process but not the system, so what was written and not
//! synced survives. The log's own tests have a disk that forgets, for lost and torn writes.
//!
//! # The files
//!
//! | file         | what                                                                         |
//! |--------------|------------------------------------------------------------------------------|
//! | `history.rs` | what the clients saw, and when                                               |
//! | `checker.rs` | what must be true of it, and **why it raises no false alarm**                |
//! | `story.rs`   | what happened around a violation                                             |
//! | `driver.rs`  | one run: the lives of the server, and when they end                          |
//! | `process.rs` | the server as a child process                                                |
//! | `clients.rs` | a process of clients as the driver sees it; `crowd.rs`: the same from within |
//! | `worker.rs`  | what a client does all day                                                   |
//! | `prober.rs`  | a client that tries to use again what it gave back                           |
//! | `redis.rs`   | clients of the Redis port                                                    |
//! | `trouble.rs` | what else befalls server and clients: pauses, clocks, modes, repairs         |
//! | `disk.rs`    | a disk that fails at a given moment, for `tests/disk.rs`                     |
//! | `panics.rs`  | a server that panics at a given moment, for `tests/panic.rs`                 |

#![forbid(unsafe_code)]

pub mod checker;
pub mod clients;
pub mod crowd;
pub mod disk;
pub mod driver;
pub mod history;
pub mod panics;
pub mod prober;
pub mod process;
pub mod redis;
pub mod story;
pub mod trouble;
pub mod worker;

pub use process::{
    COMPARE_EVERY, DIFFERS, Program, READS_FORMAT, SEGMENTS_OF, SNAPSHOT_EVERY, SNAPSHOT_LOG_BYTES,
    serve,
};
