//! Fencepost's server, as a library: what the `fencepost` binary runs, and what tests, benches and other programs embed.
//!
//! ```no_run
//! let server = server::Server::builder().listen("127.0.0.1:0".parse().unwrap()).start().unwrap();
//! println!("locks at {}", server.local_addr());
//! server.shutdown();
//! ```
//!
//! # The files
//!
//! | file                | what                                                                                |
//! |---------------------|-------------------------------------------------------------------------------------|
//! | `server.rs`         | starting and stopping: threads, listeners, signals                                  |
//! | `preflight.rs`      | all of a start that can fail, before anything is written; `start_error.rs`: why it does not |
//! | `standby.rs`        | threads that wait for their work                                                    |
//! | `stock.rs`          | a thread that waits for memory so that no core has to                               |
//! | `config.rs`         | settings, checked once at start; `auth.rs`: tokens; `logging.rs`: logs              |
//! | `core.rs`           | one I/O thread: its connections, its mail, its share of the wheels                  |
//! | `net/listener.rs`   | accepting; `net/opening.rs`: hello, token, session; `net/places.rs`: how many        |
//! | `net/connection.rs` | read, decide, write once per batch; the bounds of a connection                      |
//! | `net/dispatch.rs`   | from a request to the engine and back; `net/acquire.rs`, and `net/inspect.rs`: to look |
//! | `net/record.rs`     | what is written down of which request; `net/holdback.rs`: replies wait for the disk |
//! | `net/reclaim.rs`    | claims after a restart                                                              |
//! | `net/repeat.rs`     | requests that come again; `net/reply.rs`: answers in the words of the wire          |
//! | `host.rs`           | what the engine tells the server, and the mail between cores                        |
//! | `redis/`            | the Redis-compatible port (`docs/redis.md`)                                         |
//! | `registry.rs`       | sessions: name, connections, remembered outcomes; `secret.rs`: names and secrets     |
//! | `detached.rs`       | locks that belong to no client: the session of the server's own that has them       |
//! | `metrics.rs`        | what is counted; `stats.rs`: the numbers by name                                    |
//! | `http.rs`           | the HTTP side; `http/locks.rs`: the view of the locks                               |
//! | `exposition.rs`     | the metrics page; `oldest.rs`: how old the oldest lock is                           |
//! | `audit.rs`          | the audit log; `legible.rs`: bytes in JSON                                          |
//! | `notify.rs`         | readiness for systemd; `pinning.rs`: threads on their cores                         |
//! | `panics.rs`         | what becomes of a server that panics; `open_files.rs`: what the system allows       |
//! | `notices.rs`        | log lines that a crowd of peers could bring about                                   |
//! | `storage/`          | what survives: ceilings, horizon, grace period, snapshots, putting locks back       |
//! | `fuzzing.rs`        | doors for `fuzz-tests`                                                              |
//! | `clock.rs`          | the one source of time; `wall_clock.rs`: the other, for what outlives the process   |

#![forbid(unsafe_code)]

mod audit;
mod auth;
mod clock;
pub mod config;
mod core;
mod detached;
mod exposition;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod http;
mod legible;
mod logging;
mod metrics;
mod net;
mod notices;
mod notify;
mod oldest;
mod open_files;
mod panics;
mod pinning;
mod preflight;
mod redis;
mod registry;
mod secret;
mod server;
mod shared;
mod standby;
mod start_error;
mod stats;
mod stock;
mod storage;
mod wall_clock;

pub use config::Config;
pub use panics::{EXIT_PANIC, OnPanic};
pub use server::{Builder, Server, check, run, run_with};
pub use start_error::StartError;
pub use storage::EXIT_DISK;
pub use wall_clock::shift_wall_clock;
