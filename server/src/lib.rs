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
//! Calls go one way: `start -> conn -> native|redis -> core -> session, storage, engine`.
//!
//! | folder     | what                                                                           |
//! |------------|--------------------------------------------------------------------------------|
//! | `start/`   | starting and stopping: what can fail, before the first write; threads; signals |
//! | `config/`  | settings, checked once at start                                                |
//! | `core/`    | one I/O thread: its connections, its mail, its share of the wheels; what it    |
//! |            | writes down, and the replies that wait for the disk                            |
//! | `conn/`    | connections of either protocol: listeners, places, read and write, the end     |
//! | `native/`  | requests of `docs/protocol.md`, from bytes to the engine and back              |
//! | `redis/`   | the Redis-compatible port (`docs/redis.md`)                                    |
//! | `session/` | names, secrets, connections and remembered outcomes of sessions                |
//! | `storage/` | what survives: ceilings, horizon, grace period, snapshots, putting locks back  |
//! | `observe/` | counters, the metrics page, HTTP, the audit log                                |
//! | `system/`  | clocks, threads, panics                                                        |
//! | `cli/`     | the other commands of the program (a part of the binary, not of the library)   |

#![forbid(unsafe_code)]

pub mod config;
mod conn;
mod core;
#[doc(hidden)]
pub mod fuzzing;
mod native;
mod observe;
mod redis;
mod session;
mod start;
mod storage;
mod system;

pub use config::Config;
#[doc(hidden)]
pub use core::pauses::Pause;
pub use start::{Builder, Server, StartError, check, run, run_with};
pub use storage::EXIT_DISK;
pub use system::panics::{EXIT_PANIC, OnPanic};
pub use system::wall_clock::shift_wall_clock;
