//! The Rust client of Fencepost, a lock server.
//!
//! A lock is asked for by key and for a time. What comes back is a [`Guard`] with a [`Fence`]: a number larger than that of
//! every earlier grant of the same key. Send it along with everything you do under the lock, and have the protected
//! resource refuse smaller ones; then a holder that was paused for too long can do no harm, whatever its clock says.
//!
//! ```no_run
//! use fencepost::{Acquisition, Client};
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder().address("127.0.0.1:7400").name("billing").connect().await?;
//!
//! // Stand in line for up to ten seconds. The guard renews itself, and releases when it is dropped.
//! let guard = client.lock("orders/42").ttl(Duration::from_secs(30)).wait(Duration::from_secs(10)).acquire().await?;
//! println!("fence {}, ours until {:?}", guard.fence(), guard.valid_until());
//! guard.release().await?;
//!
//! // Or ask once: contention is a value.
//! match client.lock("orders/42").try_acquire().await? {
//!     Acquisition::Acquired(guard) => drop(guard),
//!     Acquisition::Held(contention) => println!("{contention}"),
//! }
//!
//! // Or have the work stopped when the lock is lost.
//! client.with_lock("orders/42", |fence| async move { println!("working under {fence}") }).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! - **It fails closed.** [`Guard::valid_until`] is never later than the end of the lease on the server, by a rule that
//!   needs no synchronised clocks: it counts from the moment a request was *sent*. When the server is out of reach,
//!   [`Guard::lost`] completes then at the latest. What is lost stays lost.
//! - **It cleans up.** A dropped guard is released, a dropped acquire leaves the queue, and a grant that crosses with its
//!   cancellation is released at once, in and outside a runtime.
//! - **It reconnects**, at once and then with growing, jittered pauses, and resumes its session, so a short break costs no
//!   lock. Requests that were under way are repeated and take effect once. If the server has forgotten the session, all
//!   guards are lost at once.
//! - **It waits for nothing without a bound**: requests have a timeout, queues a limit, pauses a cap.
//! - Many tasks share a few pipelined connections. Requests for one key keep their order.
//!
//! It runs on a tokio runtime with I/O and time enabled; [`blocking`] brings its own.
//!
//! # What it does not promise
//!
//! A guard that is valid now may be forced from outside a moment later, and a process can be stopped between looking at
//! the guard and acting. Only the resource's own check of the fence protects against that.
//!
//! # The files
//!
//! | file            | what                                                                                        |
//! |-----------------|---------------------------------------------------------------------------------------------|
//! | `client.rs`     | the handle; `builder.rs`: settings, connecting; `lock.rs`: asking for a lock                |
//! | `guard.rs`      | a lock that is held; `lease.rs`: until when, and how it ended (**the rule of valid_until**) |
//! | `leases.rs`     | all leases, by name and by next renewal; `watchdog.rs`: renews them                         |
//! | `pool.rs`       | what everything shares: lanes, session, leases; which lane for which key                    |
//! | `lane.rs`       | the queues in front of one connection; `call.rs`: one request on its way                    |
//! | `connection.rs` | the task that owns a socket: batches, replies, reconnecting, repeating                      |
//! | `clock.rs`      | the clock that leases are counted on                                                        |
//! | `settle.rs`     | what each answer does; `session.rs`: hello, welcome, resuming                               |
//! | `operator.rs`   | questions of operators; `info.rs`: what the server tells                                    |
//! | `error.rs`      | what can go wrong; `limits.rs`: every bound; `retry.rs`: backoff; `blocking.rs`: not async  |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod blocking;
mod builder;
mod call;
mod client;
mod clock;
mod connection;
mod error;
mod guard;
mod info;
mod lane;
mod lease;
mod leases;
mod limits;
mod lock;
mod operator;
mod pool;
mod retry;
mod session;
mod settle;
mod watchdog;

pub use builder::Builder;
pub use client::Client;
pub use error::{ConnectError, Error, LockError, Loss};
pub use guard::{Guard, LockHandle, Release};
pub use info::{Contention, Holder, KeyState, LockInfo, REMAINING_MAX, SessionInfo, Stat};
pub use lock::{Acquisition, LockRequest};
pub use operator::{ForceRelease, Pages};
pub use protocol::{
    BusyBound, DecodeError, ErrorCode, Fence, LimitError, Mode, NotHeldReason, UnavailableReason,
};
