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
//! | folder     | what                                                                                             |
//! |------------|--------------------------------------------------------------------------------------------------|
//! | `api/`     | what users call: the client and its builder, locks and guards, questions of operators, `blocking` |
//! | `link/`    | the way to the server and back: queues, connections, what a reply does, the watchdog             |
//! | `session/` | what the server promised: the session, and each lease (**the rule of valid_until**)              |
//! | `*.rs`     | what all of them use: errors, answers, bounds, the clock, backoff                                |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod api;
mod backoff;
mod clock;
mod error;
mod info;
mod limits;
mod link;
mod session;
mod settings;

pub use api::blocking;
pub use api::builder::Builder;
pub use api::client::Client;
pub use api::guard::{Guard, LockHandle, Release};
pub use api::lock::{Acquisition, LockRequest};
pub use api::operator::{ForceRelease, Pages};
pub use error::{ConnectError, Error, LockError, Loss};
pub use info::{Contention, Holder, KeyState, LockInfo, REMAINING_MAX, SessionInfo, Stat};
pub use protocol::{
    BusyBound, DecodeError, ErrorCode, Fence, LimitError, Mode, NotHeldReason, UnavailableReason,
};
