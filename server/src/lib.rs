//! Fencepost's server, as a library: what the `fencepost` binary runs, and what tests, benches and
//! other programs embed.
//!
//! ```no_run
//! let listen = "127.0.0.1:0".parse().unwrap();
//! let server = fencepost_server::Server::builder().listen(listen).start().unwrap();
//! println!("locks at {}", server.local_addr());
//! server.shutdown();
//! ```
//!
//! # The folders
//!
//! Calls go one way:
//! `run -> node -> start -> native|redis -> serve -> core -> conn -> session, storage, engine`.
//! No folder imports one that imports it (`tests/house/measure.py --cycles`).
//!
//! | folder        | what                                                                        |
//! |---------------|-----------------------------------------------------------------------------|
//! | `run.rs`      | the program: a server, or a node, until a signal stops it                   |
//! | `start/`      | starting and stopping: what can fail, before the first write; threads       |
//! | `node/`       | a server that is a node of a cluster: leading and following                 |
//! | `config/`     | settings, checked once at start                                             |
//! | `native/`     | requests of `docs/protocol.md`, from bytes to the engine and back           |
//! | `redis/`      | the Redis-compatible port (`docs/redis.md`)                                 |
//! | `serve/`      | connections of either protocol: listeners, the one loop, the end            |
//! | `core/`       | one I/O thread: its connections, its mail, its share of the wheels; what it |
//! |               | writes down, and the replies that wait for the disk                         |
//! | `conn/`       | what a connection is made of: socket, with TLS or without, out-buffer,      |
//! |               | place, dialect                                                              |
//! | `rights/`     | who may do what: tokens, certificates, roles, prefixes (`docs/security.md`) |
//! | `session/`    | names, secrets, connections, waits and remembered outcomes of sessions      |
//! | `storage/`    | the log as the cores append to it: ceilings, horizon, grace period          |
//! | `durability/` | reading it at the start, putting locks back, raising ceilings, snapshots    |
//! | `observe/`    | counters, the audit log (and reading it back), log lines                    |
//! | `report/`     | what operators are shown of it: the metrics page, HTTP                      |
//! | `system/`     | clocks, threads, panics                                                     |
//! | `cli/`        | the other commands of the program (a part of the binary, not the library)   |

#![forbid(unsafe_code)]

pub mod config;
mod conn;
mod core;
mod durability;
#[doc(hidden)]
pub mod fuzzing;
mod native;
mod node;
mod observe;
mod redis;
mod report;
mod rights;
mod run;
mod serve;
mod session;
mod start;
mod storage;
mod system;

#[doc(hidden)]
pub use cluster::ledger::{
    compare_every as compare_ledgers_every, let_hashes_differ as let_ledger_differ,
};
pub use config::Config;
#[doc(hidden)]
pub use core::pauses::Pause;
pub use node::{EXIT_DIFFERS, NodeServer};
pub use observe::history;
pub use rights::{AuthEntry, check_auth_file, hash_token};
pub use run::{check, run, run_with};
pub use start::{Builder, Server, StartError};
pub use storage::EXIT_DISK;
pub use system::panics::{EXIT_PANIC, OnPanic};
pub use system::wall_clock::shift_wall_clock;
