//! The Rust client of Fencepost, a lock server.
//!
//! A client asks for a lock by key and for a time. It gets a [`Guard`] with a [`Fence`]: a number
//! larger than that of every earlier grant of the same key. Send the fence along with every write
//! that the lock protects, and have the resource refuse smaller ones. Then a holder that was paused
//! for too long can do no harm, whatever its clock says.
//!
//! # A tour in five minutes
//!
//! Start a server (`fencepost serve --listen 127.0.0.1:7400`), connect, take a lock:
//!
//! ```no_run
//! use fencepost::Client;
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder().address("127.0.0.1:7400").name("billing").connect().await?;
//!
//! // Stand in line for up to ten seconds.
//! let wait = Duration::from_secs(10);
//! let guard = client.lock("orders/42").ttl(Duration::from_secs(30)).wait(wait).acquire().await?;
//! println!("fence {}, ours until {:?}", guard.fence(), guard.valid_until());
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! One client serves a whole program: clone it freely. The guard renews itself in the background
//! and releases the lock when it is dropped; [`Guard::release`] also waits for the server's answer.
//!
//! **Ask once.** Contention is a value, not an error:
//!
//! ```no_run
//! # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
//! use fencepost::Acquisition;
//!
//! match client.lock("nightly-report").try_acquire().await? {
//!     Acquisition::Acquired(guard) => println!("ours, fence {}", guard.fence()),
//!     // For example: held by reports:4711 for 3.2s, up to 27s more, 2 waiting
//!     Acquisition::Held(contention) => println!("{contention}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Stop when the lock is lost.** [`Client::with_lock`] drops the work where it stands;
//! [`Guard::lost`] leaves the reaction to you:
//!
//! ```no_run
//! # async fn write(fence: fencepost::Fence) {}
//! # async fn example(client: fencepost::Client) -> Result<(), fencepost::LockError> {
//! client.with_lock("orders/42", async |fence| write(fence).await).await?;
//!
//! let guard = client.lock("orders/42").acquire().await?;
//! tokio::select! {
//!     () = write(guard.fence()) => println!("done"),
//!     loss = guard.lost() => println!("stopped half-way: {loss}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Check the fence where you write.** In SQL it takes one column; the crate `resource` has guards
//! for other stores:
//!
//! ```sql
//! UPDATE orders SET state = 'paid', fence = 7 WHERE id = 42 AND fence < 7
//! ```
//!
//! **Other kinds of locks**: [`shared`](LockRequest::shared) for readers,
//! [`reentrant`](LockRequest::reentrant) for code that calls itself,
//! [`session_bound`](LockRequest::session_bound) for locks that live as long as the client, and
//! [`detached`](LockRequest::detached) for locks that outlive it.
//!
//! **A cluster** is a server with several addresses. Give those of some nodes, or of all: the
//! client finds the one that leads, and follows when another does.
//!
//! ```no_run
//! # async fn example() -> Result<(), fencepost::ConnectError> {
//! let nodes = ["10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"];
//! let client = fencepost::Client::builder().addresses(nodes).connect().await?;
//! # Ok(())
//! # }
//! ```
//!
//! **TLS**, where the server has a certificate (feature `tls`, which is on by default):
//!
//! ```no_run
//! # async fn example() -> Result<(), fencepost::ConnectError> {
//! let tls = fencepost::Tls::with_ca("/etc/fencepost/ca.pem");
//! let builder = fencepost::Client::builder().address("locks.internal:7400");
//! let client = builder.tls(tls).connect().await?;
//! # Ok(())
//! # }
//! ```
//!
//! **Without async**: [`blocking`] has the same client for threads. **For operators**:
//! [`Client::query`], [`Client::list`], [`Client::sessions`] and [`Client::force_release`].
//!
//! **To watch it**: [`Client::metrics`] is what the client counts. With the feature
//! `tracing` an acquire is a span `lock_acquire` and the work of [`Client::with_lock`] a span
//! `locked`, both with key, fence and trace id; losses are warnings.
//! [`Builder::trace_context`] sends the trace along, and the server's audit log has it.
//!
//! The folder `examples/` has three whole programs: a booking service, a job that runs once per
//! period, and a leader that steps down.
//!
//! # What it promises
//!
//! - **It fails closed.** [`Guard::valid_until`] is never later than the end of the lease on the
//!   server. That needs no synchronised clocks: the client counts from the moment a request was
//!   *sent*. While the server is out of reach, [`Guard::lost`] completes then at the latest. A lost
//!   lock stays lost.
//! - **It cleans up.** A dropped guard is released, a dropped acquire leaves the queue, and a grant
//!   that crosses with its cancellation is released at once, in and outside a runtime.
//! - **It reconnects**, at once and then with growing, jittered pauses, and resumes its session, so
//!   a short break or a restart of the server costs no lock. Unanswered requests are repeated and
//!   take effect once. If the server has forgotten the session, all guards are lost at once.
//! - **It follows the leader of a cluster.** While there is none it goes on asking, and no lock is
//!   lost for that: a guard ends by its own clock, or because a leader says so. The next leader
//!   resumes the session, the watchdog renews first thing, and waiting acquires stand in line again
//!   with the age they have. An election takes a second or two, so use a ttl, and a
//!   [`session_ttl`](Builder::session_ttl), of some seconds more.
//! - **It waits for nothing without a bound**: requests have a timeout, queues a limit, pauses a
//!   cap.
//! - **It keeps order.** Many tasks share a few pipelined connections; requests for one key keep
//!   their order.
//!
//! It runs on a tokio runtime with I/O and time enabled; [`blocking`] brings its own.
//!
//! # What it does not promise
//!
//! An operator may take away a lock a moment after its guard was valid, and a process can be
//! stopped between looking at the guard and acting. Only the resource's own check of the fence
//! protects against that.
//!
//! # Errors
//!
//! [`LockError`] tells contention, losses and failures apart; [`Error`] says why a request got no
//! answer; [`Loss`] says why a lock is gone; [`ConnectError`] says why there is no connection.
//! Every message ends with what to do about it.

// The source, for maintainers. Imports go down this table only, never up.
//
// | folder     | what                                                                             |
// |------------|----------------------------------------------------------------------------------|
// | `api/`     | what users call: client, builder, locks, guards, operators' questions, blocking  |
// | `link/`    | the way to the server and back: queues, connections, replies, the watchdog       |
// | `session/` | what the server promised: the session, and each lease (the rule of valid_until)  |
// | `*.rs`     | what all of them use: errors, answers, bounds, settings, the clock, backoff,     |
// |            | metrics, spans                                                                   |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod api;
mod backoff;
mod clock;
mod error;
mod info;
mod limits;
mod link;
mod metrics;
mod session;
mod settings;
mod spans;
mod stream;
#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "tls")]
pub use self::tls::Tls;
pub use api::blocking;
pub use api::builder::Builder;
pub use api::client::Client;
pub use api::guard::{Guard, LockHandle, Release};
pub use api::lock::{Acquisition, LockRequest};
pub use api::operator::{ForceRelease, Pages};
pub use error::{ConnectError, Error, LockError, Loss};
pub use info::{Contention, Holder, KeyState, LockInfo, REMAINING_MAX, SessionInfo, Stat};
pub use metrics::{Metrics, Timings};
pub use protocol::{
    BusyBound, DecodeError, ErrorCode, Fence, LimitError, Mode, NoFence, NotHeldReason,
    UnavailableReason,
};
