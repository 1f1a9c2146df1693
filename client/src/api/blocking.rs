//! The client for code that is not async.
//!
//! It is the same client on a thread of its own, which drives the connections and the watchdog, so
//! locks are renewed while the calling thread works. Calls block the calling thread.
//!
//! It is built by the same [`Builder`](crate::Builder), and takes the nodes of a cluster likewise:
//! `Client::connect("10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400")`.
//!
//! Inside async code its calls panic, because blocking there would stall the runtime. Use
//! [`crate::Client`] there, or put the calls into `tokio::task::spawn_blocking`.
//!
//! ```no_run
//! use fencepost::blocking::Client;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("127.0.0.1:7400")?;
//! let guard = client.acquire(client.lock("orders/42").ttl(Duration::from_secs(10)))?;
//! println!("fence {}", guard.fence());
//! guard.release()?;
//! # Ok(())
//! # }
//! ```

use crate::api::builder::Builder;
use crate::api::guard::{LockHandle, Release};
use crate::api::lock::LockRequest;
use crate::api::operator::ForceRelease;
use crate::error::{ConnectError, Error, LockError, Loss};
use crate::info::{KeyState, LockInfo, SessionInfo, Stat};
use protocol::{Fence, Mode};
use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime;
use tokio::sync::oneshot;

/// A client whose calls block. See the [module](self).
#[derive(Clone)]
pub struct Client {
    // Dropped in this order: the goodbye is handed over before the runtime is told that it may end.
    client: crate::Client,
    runtime: Arc<Runtime>,
}

/// The thread that drives the connections, and the way to wait for them.
struct Runtime {
    handle: runtime::Handle,
    /// Dropped with the last user: the thread may end once the connections have.
    _stop: oneshot::Sender<()>,
}

impl Client {
    /// Connects with default settings.
    ///
    /// # Errors
    /// As [`Builder::connect`].
    ///
    /// ```no_run
    /// # fn example() -> Result<(), fencepost::ConnectError> {
    /// let client = fencepost::blocking::Client::connect("127.0.0.1:7400")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect(address: impl Into<String>) -> Result<Self, ConnectError> {
        Builder::default().address(address).connect_blocking()
    }

    /// Connects with the settings in the environment. See [`crate::Client::from_env`].
    ///
    /// # Errors
    /// As [`Builder::from_env`] and [`Builder::connect`].
    ///
    /// ```no_run
    /// # fn example() -> Result<(), fencepost::ConnectError> {
    /// let client = fencepost::blocking::Client::from_env()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_env() -> Result<Self, ConnectError> {
        Builder::from_env()?.connect_blocking()
    }

    fn start(builder: Builder) -> Result<Self, ConnectError> {
        let (report, reported) = mpsc::sync_channel(1);
        let spawned = thread::Builder::new()
            .name("fencepost-client".to_owned())
            .spawn(move || drive(builder, &report));
        let no_thread = |error: io::Error| ConnectError::NoRuntime {
            message: error.to_string(),
        };
        spawned.map_err(no_thread)?;
        match reported.recv() {
            Ok(result) => result,
            Err(_) => Err(no_thread(io::Error::other("its thread ended early"))),
        }
    }

    /// What this client has counted so far. See [`Client::metrics`](crate::Client::metrics).
    ///
    /// ```no_run
    /// # fn example(client: fencepost::blocking::Client) {
    /// println!("{} locks lost", client.metrics().losses);
    /// # }
    /// ```
    pub fn metrics(&self) -> crate::Metrics {
        self.client.metrics()
    }

    /// Begins to ask for a lock; hand the result to [`try_acquire`](Self::try_acquire) or
    /// [`acquire`](Self::acquire).
    ///
    /// ```no_run
    /// # fn example(client: fencepost::blocking::Client) {
    /// let request = client.lock("orders/42").shared();
    /// # }
    /// ```
    pub fn lock(&self, key: impl AsRef<[u8]>) -> LockRequest {
        self.client.lock(key)
    }

    /// Asks once. See [`LockRequest::try_acquire`].
    ///
    /// # Errors
    /// The server could not be asked, or did not decide.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::blocking::Client) -> Result<(), fencepost::Error> {
    /// use fencepost::blocking::Acquisition;
    ///
    /// match client.try_acquire(client.lock("orders/42"))? {
    ///     Acquisition::Acquired(guard) => println!("ours, fence {}", guard.fence()),
    ///     Acquisition::Held(contention) => println!("not now: {contention}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire(&self, request: LockRequest) -> Result<Acquisition, Error> {
        Ok(match self.runtime.wait(request.try_acquire())? {
            crate::Acquisition::Acquired(guard) => Acquisition::Acquired(self.guard(guard)),
            crate::Acquisition::Held(contention) => Acquisition::Held(contention),
        })
    }

    /// Stands in line. See [`LockRequest::acquire`].
    ///
    /// # Errors
    /// As [`LockRequest::acquire`].
    ///
    /// ```no_run
    /// # fn example(client: fencepost::blocking::Client) -> Result<(), fencepost::LockError> {
    /// let one_second = std::time::Duration::from_secs(1);
    /// let guard = client.acquire(client.lock("orders/42").wait(one_second))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire(&self, request: LockRequest) -> Result<Guard, LockError> {
        let guard = self.runtime.wait(request.acquire())?;
        Ok(self.guard(guard))
    }

    /// Does some work under a lock and releases it. Nothing can stop the work from outside: work
    /// that takes long should look at [`Guard::is_valid`] now and then.
    ///
    /// # Errors
    /// As [`LockRequest::acquire`].
    ///
    /// ```no_run
    /// # fn example(client: fencepost::blocking::Client) -> Result<(), fencepost::LockError> {
    /// client.with_lock("orders/42", |guard| println!("fence {}", guard.fence()))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_lock<T>(
        &self,
        key: impl AsRef<[u8]>,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<T, LockError> {
        let guard = self.acquire(self.lock(key))?;
        Ok(work(&guard))
    }

    /// See [`crate::Client::query`].
    ///
    /// # Errors
    /// No answer came.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::blocking::Client) -> Result<(), fencepost::Error> {
    /// println!("{} waiting", client.query("orders/42")?.queue_length);
    /// # Ok(())
    /// # }
    /// ```
    pub fn query(&self, key: impl AsRef<[u8]>) -> Result<KeyState, Error> {
        self.runtime.wait(self.client.query(key))
    }

    /// All held keys that begin with `prefix`. See [`crate::Client::list`].
    ///
    /// # Errors
    /// No answer came.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::blocking::Client) -> Result<(), fencepost::Error> {
    /// println!("{} orders are locked", client.list("orders/")?.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self, prefix: impl AsRef<[u8]>) -> Result<Vec<LockInfo>, Error> {
        self.runtime.wait(self.client.list(prefix).all())
    }

    /// All sessions. See [`crate::Client::sessions`].
    ///
    /// # Errors
    /// No answer came.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::blocking::Client) -> Result<(), fencepost::Error> {
    /// println!("{} clients", client.sessions()?.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, Error> {
        self.runtime.wait(self.client.sessions().all())
    }

    /// See [`crate::Client::stats`].
    ///
    /// # Errors
    /// No answer came.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::blocking::Client) -> Result<(), fencepost::Error> {
    /// println!("{} numbers", client.stats()?.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn stats(&self) -> Result<Vec<Stat>, Error> {
        self.runtime.wait(self.client.stats())
    }

    /// See [`crate::Client::force_release`].
    ///
    /// # Errors
    /// No answer came; the lock may or may not have been taken away.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::blocking::Client) -> Result<(), fencepost::Error> {
    /// if let Some(holder) = client.query("orders/42")?.holders.first() {
    ///     client.force_release("orders/42", holder.fence)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn force_release(
        &self,
        key: impl AsRef<[u8]>,
        fence: Fence,
    ) -> Result<ForceRelease, Error> {
        self.runtime.wait(self.client.force_release(key, fence))
    }

    /// See [`crate::Client::end_session`].
    ///
    /// # Errors
    /// No answer came, or the token does not allow it.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::blocking::Client) -> Result<(), fencepost::Error> {
    /// let has_ended = client.end_session(4711)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn end_session(&self, session_id: u64) -> Result<bool, Error> {
        self.runtime.wait(self.client.end_session(session_id))
    }

    /// See [`crate::Client::release_detached`].
    ///
    /// # Errors
    /// No answer came; the lock may or may not have been released.
    ///
    /// ```no_run
    /// # use fencepost::{Error, LockHandle, blocking::Client};
    /// # fn example(client: Client, handle: LockHandle) -> Result<(), Error> {
    /// client.release_detached(&handle)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn release_detached(&self, handle: &LockHandle) -> Result<Release, Error> {
        self.runtime.wait(self.client.release_detached(handle))
    }

    /// See [`crate::Client::ping`].
    ///
    /// # Errors
    /// No answer came.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::blocking::Client) -> Result<(), fencepost::Error> {
    /// println!("{:?}", client.ping()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn ping(&self) -> Result<Duration, Error> {
        self.runtime.wait(self.client.ping())
    }

    /// Ends the session and waits for the server to confirm it. See [`crate::Client::close`].
    ///
    /// # Errors
    /// The server could not be told. The session then ends there when its time is up.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::blocking::Client) -> Result<(), fencepost::Error> {
    /// client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(self) -> Result<(), Error> {
        self.runtime.wait(self.client.close())
    }

    fn guard(&self, guard: crate::Guard) -> Guard {
        Guard {
            guard,
            runtime: Arc::clone(&self.runtime),
        }
    }
}

impl Builder {
    /// Connects for code that is not async: see [`blocking::Client`](Client).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// ```no_run
    /// # fn example() -> Result<(), fencepost::ConnectError> {
    /// let client = fencepost::Client::builder().address("127.0.0.1:7400").connect_blocking()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_blocking(self) -> Result<Client, ConnectError> {
        Client::start(self)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

/// What came of [`Client::try_acquire`].
#[derive(Debug)]
pub enum Acquisition {
    /// The lock is yours.
    Acquired(Guard),
    /// Another session has it, or this one under another guard.
    Held(crate::Contention),
}

/// A lock that is held, for code that is not async. Releases it when dropped, without blocking. See
/// [`crate::Guard`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    guard: crate::Guard,
    runtime: Arc<Runtime>,
}

impl Guard {
    /// See [`crate::Guard::key`].
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::blocking::Guard) {
    /// assert_eq!(guard.key(), b"orders/42");
    /// # }
    /// ```
    pub fn key(&self) -> &[u8] {
        self.guard.key()
    }

    /// See [`crate::Guard::fence`].
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::blocking::Guard) {
    /// println!("X-Fence-Token: {}", guard.fence());
    /// # }
    /// ```
    pub fn fence(&self) -> Fence {
        self.guard.fence()
    }

    /// See [`crate::Guard::handle`].
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::blocking::Guard) {
    /// println!("{:?}", guard.handle());
    /// # }
    /// ```
    pub fn handle(&self) -> LockHandle {
        self.guard.handle()
    }

    /// See [`crate::Guard::mode`].
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::blocking::Guard) {
    /// assert_eq!(guard.mode(), fencepost::Mode::Exclusive);
    /// # }
    /// ```
    pub fn mode(&self) -> Mode {
        self.guard.mode()
    }

    /// See [`crate::Guard::valid_until`].
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::blocking::Guard) {
    /// let two_seconds = std::time::Duration::from_secs(2);
    /// let fits = guard.valid_until() > std::time::Instant::now() + two_seconds;
    /// # }
    /// ```
    pub fn valid_until(&self) -> Instant {
        self.guard.valid_until()
    }

    /// See [`crate::Guard::remaining`].
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::blocking::Guard) {
    /// println!("{:?} left", guard.remaining());
    /// # }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// See [`crate::Guard::is_valid`].
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::blocking::Guard) {
    /// assert!(guard.is_valid(), "another holder may be at work");
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// Waits until the lock is gone, at most for `timeout`; `None` if it is still held then. For a
    /// thread of its own, next to the one that works.
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::blocking::Guard) {
    /// if let Some(loss) = guard.wait_lost(std::time::Duration::from_secs(1)) {
    ///     eprintln!("{loss}");
    /// }
    /// # }
    /// ```
    pub fn wait_lost(&self, timeout: Duration) -> Option<Loss> {
        let lost = self.guard.lost();
        let waited = async { tokio::time::timeout(timeout, lost).await };
        self.runtime.wait(waited).ok()
    }

    /// See [`crate::Guard::renew`].
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is gone. Any other error leaves the guard as valid as it was.
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::blocking::Guard) -> Result<(), fencepost::Error> {
    /// let valid_until = guard.renew()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn renew(&self) -> Result<Instant, Error> {
        self.runtime.wait(self.guard.renew())
    }

    /// See [`crate::Guard::downgrade`].
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is gone. Any other error leaves the guard as it was.
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::blocking::Guard) -> Result<(), fencepost::Error> {
    /// let fence = guard.downgrade()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn downgrade(&self) -> Result<Fence, Error> {
        self.runtime.wait(self.guard.downgrade())
    }

    /// Releases the lock and waits for the server to say so. See [`crate::Guard::release`].
    ///
    /// # Errors
    /// The release may not have arrived; the lock then ends with its lease.
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::blocking::Guard) -> Result<(), fencepost::Error> {
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(self) -> Result<Release, Error> {
        self.runtime.wait(self.guard.release())
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// What a caller is told that would stall its own runtime.
const INSIDE_A_RUNTIME: &str = "fencepost::blocking was called inside async code, where it would stall the runtime. \
     Use fencepost::Client there and await its calls, or move this call into tokio::task::spawn_blocking";

impl Runtime {
    #[track_caller]
    fn wait<F: Future>(&self, future: F) -> F::Output {
        // Threads for blocking work know their runtime, too, and may block. tokio tells the two
        // apart only by a panic of its own, which does not say what to do.
        if runtime::Handle::try_current().is_ok() {
            let probe = panic::catch_unwind(AssertUnwindSafe(|| self.handle.block_on(async {})));
            assert!(probe.is_ok(), "{INSIDE_A_RUNTIME}");
        }
        self.handle.block_on(future)
    }
}

/// The thread: connects, reports, and drives the connections until they have ended and the last
/// handle is gone.
fn drive(builder: Builder, report: &mpsc::SyncSender<Result<Client, ConnectError>>) {
    let runtime = runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = error.to_string();
            return drop(report.send(Err(ConnectError::NoRuntime { message })));
        }
    };
    runtime.block_on(async {
        let client = match builder.connect().await {
            Ok(client) => client,
            Err(error) => return drop(report.send(Err(error))),
        };
        let pool = Arc::clone(client.pool());
        let (stop, stopped) = oneshot::channel();
        let client = Client {
            client,
            runtime: Arc::new(Runtime {
                handle: runtime::Handle::current(),
                _stop: stop,
            }),
        };
        drop(report.send(Ok(client)));
        pool.ended().await;
        drop(stopped.await);
    });
}
