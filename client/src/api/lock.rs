//! Asking for a lock.

use crate::api::guard::Guard;
use crate::backoff::spread;
use crate::clock::Moment;
use crate::error::{Error, LockError};
use crate::info::Contention;
use crate::limits::{DISCONNECTED_MIN, RETRY_FIRST, TIMEOUT_MAX};
use crate::link::call::{Answer, Ask, Wish};
use crate::link::pool::{Handle, Patience};
use crate::metrics::AcquireEnd;
use crate::session::grant::Grant;
use crate::settings::millis;
use crate::spans;
use protocol::{Fence, Key, Metadata, Mode, TraceId, UnavailableReason, limits};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A request for a lock, from [`Client::lock`](crate::Client::lock). Nothing is asked until one of
/// [`try_acquire`](Self::try_acquire), [`acquire`](Self::acquire) and [`with`](Self::with) is
/// awaited.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example(client: fencepost::Client) -> Result<(), fencepost::LockError> {
/// let guard = client
///     .lock("orders/42")
///     .ttl(Duration::from_secs(10))
///     .wait(Duration::from_secs(2))
///     .metadata(b"settling the bill")
///     .acquire()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "asks for nothing until try_acquire(), acquire() or with() is awaited"]
pub struct LockRequest {
    client: Arc<Handle>,
    key: Arc<[u8]>,
    ttl: Duration,
    wait: Duration,
    request_timeout: Duration,
    mode: Mode,
    is_session_bound: bool,
    is_reentrant: bool,
    is_detached: bool,
    is_auto_renewed: bool,
    metadata: Arc<[u8]>,
    trace_id: Option<Arc<str>>,
}

/// What came of [`LockRequest::try_acquire`].
#[derive(Debug)]
pub enum Acquisition {
    /// The lock is yours.
    Acquired(Guard),
    /// Another session has it, or this one under another guard.
    Held(Contention),
}

impl Acquisition {
    /// The guard, if the lock was acquired.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// if let Some(guard) = client.lock("nightly-report").try_acquire().await?.acquired() {
    ///     println!("it is on us tonight, under fence {}", guard.fence());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquired(self) -> Option<Guard> {
        match self {
            Self::Acquired(guard) => Some(guard),
            Self::Held(_) => None,
        }
    }
}

impl LockRequest {
    pub(crate) fn new(client: Arc<Handle>, key: &[u8]) -> Self {
        let settings = &client.pool().settings;
        Self {
            ttl: settings.ttl,
            wait: settings.wait,
            request_timeout: settings.request_timeout,
            key: key.into(),
            mode: Mode::Exclusive,
            is_session_bound: false,
            is_reentrant: false,
            is_detached: false,
            is_auto_renewed: true,
            metadata: Arc::default(),
            trace_id: None,
            client,
        }
    }

    /// How long the lock lasts without renewal: at least 1 ms, at most a day, in whole
    /// milliseconds. Without this, the client's [`default_ttl`](crate::Builder::default_ttl).
    ///
    /// It is also how long the key stays locked after its holder crashed, except that no lock
    /// outlives its session: the earlier end of this and
    /// [`session_ttl`](crate::Builder::session_ttl) counts. A few seconds are a good choice: the
    /// watchdog renews the lock while the holder lives.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::Client) {
    /// let request = client.lock("orders/42").ttl(std::time::Duration::from_secs(5));
    /// # }
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self.is_session_bound = false;
        self
    }

    /// Has the lock last as long as the client's session, instead of by a ttl of its own. One
    /// keep-alive then renews any number of locks.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::Client) {
    /// let request = client.lock("workers/7").session_bound();
    /// # }
    /// ```
    pub fn session_bound(mut self) -> Self {
        self.is_session_bound = true;
        self
    }

    /// How long [`acquire`](Self::acquire) stands in line: at most a day; zero asks once. Without
    /// this, the client's [`default_wait`](crate::Builder::default_wait).
    ///
    /// ```no_run
    /// # fn example(client: fencepost::Client) {
    /// let request = client.lock("orders/42").wait(std::time::Duration::from_millis(200));
    /// # }
    /// ```
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long the way there and back may take, besides the wait; more than zero and at most an
    /// hour. Without this, the client's [`request_timeout`](crate::Builder::request_timeout). For a
    /// caller that would rather do without the lock than wait for a server that does not answer.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::Client) {
    /// let tenth = std::time::Duration::from_millis(100);
    /// let request = client.lock("orders/42").wait(tenth).request_timeout(tenth);
    /// # }
    /// ```
    pub fn request_timeout(mut self, request_timeout: Duration) -> Self {
        self.request_timeout = request_timeout;
        self
    }

    /// Shares the lock with all other holders that ask for it shared, instead of having it alone.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::Client) {
    /// let request = client.lock("catalogue").shared();
    /// # }
    /// ```
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// If this client holds the lock already, counts one more hold under the same fence, instead of
    /// refusing. The lock is free when all its guards are gone.
    ///
    /// All tasks of a client are one holder here: this is for code that calls itself, not for
    /// keeping tasks apart.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::LockError> {
    /// let outer = client.lock("orders/42").acquire().await?;
    /// let inner = client.lock("orders/42").reentrant().acquire().await?;
    /// assert_eq!(outer.fence(), inner.fence());
    /// # Ok(())
    /// # }
    /// ```
    pub fn reentrant(mut self) -> Self {
        self.is_reentrant = true;
        self
    }

    /// Text that waiters and operators see beside the lock, up to 256 bytes.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::Client) {
    /// let request = client.lock("orders/42").metadata(b"settling the bill");
    /// # }
    /// ```
    pub fn metadata(mut self, metadata: impl AsRef<[u8]>) -> Self {
        self.metadata = metadata.as_ref().into();
        self
    }

    /// Ties the grant to a trace in the server's audit log: up to 64 bytes, best the value of a W3C
    /// `traceparent` header. [`Builder::trace_context`](crate::Builder::trace_context) does so for
    /// all locks of a client.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::Client) {
    /// let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// let request = client.lock("orders/42").trace_id(traceparent);
    /// # }
    /// ```
    pub fn trace_id(mut self, trace_id: impl AsRef<str>) -> Self {
        self.trace_id = Some(trace_id.as_ref().into());
        self
    }

    /// Leaves renewing to the caller: the lock ends after its ttl unless [`Guard::renew`] is
    /// called.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::Client) {
    /// let minute = std::time::Duration::from_secs(60);
    /// let request = client.lock("once-a-minute").ttl(minute).no_renew();
    /// # }
    /// ```
    pub fn no_renew(mut self) -> Self {
        self.is_auto_renewed = false;
        self
    }

    /// Takes a lock that outlives this client and its process: it lives by its [`ttl`](Self::ttl)
    /// only, the watchdog does not renew it, and dropping its guard does not release it. Any client
    /// that knows its key and fence may release it: [`Guard::handle`] gives the two,
    /// [`Client::release_detached`](crate::Client::release_detached) takes them.
    ///
    /// For work that is handed on: a job that one process starts and another finishes. Choose the
    /// ttl for the whole of it. The lock belongs to no session, so the server refuses it together
    /// with [`session_bound`](Self::session_bound) or [`reentrant`](Self::reentrant).
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let hour = std::time::Duration::from_secs(3600);
    /// let guard = client.lock("jobs/nightly").ttl(hour).detached().acquire().await?;
    /// let handle = guard.handle();
    /// println!("start the job with {} {}", String::from_utf8_lossy(&handle.key), handle.fence);
    /// // ... and where the job ends, perhaps on another machine:
    /// client.release_detached(&handle).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn detached(mut self) -> Self {
        self.is_detached = true;
        self.is_auto_renewed = false;
        self
    }

    /// Asks once. Contention is an answer, not an error.
    ///
    /// Cancel safe: a grant that comes after the drop is released at once.
    ///
    /// # Errors
    /// The server could not be asked, or did not decide.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// use fencepost::Acquisition;
    ///
    /// match client.lock("orders/42").try_acquire().await? {
    ///     Acquisition::Acquired(guard) => println!("ours, fence {}", guard.fence()),
    ///     Acquisition::Held(contention) => println!("not now: {contention}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(self) -> Result<Acquisition, Error> {
        let request = self.in_its_trace();
        let counting = request.client.pool().session.counters.begin_acquire();
        let asked = request.try_acquire_counted();
        let asked = spans::acquiring(&request.key, request.trace_id.as_deref(), asked).await;
        counting.end(match &asked {
            Ok(Acquisition::Acquired(_)) => AcquireEnd::Granted,
            Ok(Acquisition::Held(_)) => AcquireEnd::Contended,
            Err(_) => AcquireEnd::Failed,
        });
        asked
    }

    async fn try_acquire_counted(&self) -> Result<Acquisition, Error> {
        self.check_request_timeout()?;
        let patience = Patience::until(Instant::now() + self.request_timeout);
        match self.ask(self.wish(None)?, patience).await? {
            Answer::Granted(grant) => Ok(Acquisition::Acquired(self.guard(grant))),
            Answer::Contended(contention) => Ok(Acquisition::Held(contention)),
            answer => Err(not_decided(answer)),
        }
    }

    /// Stands in line until the lock is free, at most as long as [`wait`](Self::wait) says. The
    /// line is the server's: first come, first served, and the lock is handed over, not raced for.
    ///
    /// Besides the wait, the request has its [`request_timeout`](Self::request_timeout) for the way
    /// there and back. That is for a server that is there: while no connection can be had, the
    /// acquire ends with its wait (or after a quarter of a second, if that is longer), and
    /// [`Error::Disconnected`] says why. If the server grants nothing at the moment because it is
    /// about to stop, has just restarted or waits for its disk, the client repeats the request
    /// within the wait: a restart of the server costs a waiter its place in the line, and nothing
    /// else.
    ///
    /// Cancel safe: dropping it takes the request out of the line, and a grant that was under way
    /// is released at once.
    ///
    /// # Errors
    /// [`LockError::NotAcquired`] if the lock was not free in time; the other variants are losses
    /// and failures.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::LockError> {
    /// use fencepost::LockError;
    ///
    /// let guard = match client.lock("orders/42").acquire().await {
    ///     Ok(guard) => guard,
    ///     Err(LockError::NotAcquired(contention)) => {
    ///         println!("still busy: {contention}");
    ///         return Ok(());
    ///     }
    ///     Err(failure) => return Err(failure),
    /// };
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(self) -> Result<Guard, LockError> {
        let request = self.in_its_trace();
        let counting = request.client.pool().session.counters.begin_acquire();
        let acquired = request.acquire_counted();
        let acquired = spans::acquiring(&request.key, request.trace_id.as_deref(), acquired).await;
        counting.end(match &acquired {
            Ok(_) => AcquireEnd::Granted,
            Err(LockError::NotAcquired(_)) => AcquireEnd::Contended,
            Err(_) => AcquireEnd::Failed,
        });
        acquired
    }

    async fn acquire_counted(&self) -> Result<Guard, LockError> {
        let wait = self.checked_wait()?;
        self.check_request_timeout()?;
        let start = Moment::now();
        let wait_until = start + wait;
        let mut waits_since = None;
        let now = Instant::now();
        let deadline = now + wait + self.request_timeout;
        let patience = Patience {
            connected_by: deadline.min(now + wait.max(DISCONNECTED_MIN)),
            deadline,
        };
        loop {
            let is_waiting = wait_until > Moment::now();
            let mut wish = self.wish(is_waiting.then_some(wait_until))?;
            wish.waits_since = waits_since;
            let retry_after = match self.ask(wish, patience).await {
                Ok(Answer::Granted(grant)) => return Ok(self.guard(grant)),
                Ok(Answer::Contended(contention)) => {
                    return Err(LockError::NotAcquired(contention));
                }
                Ok(Answer::Lost(loss)) => return Err(LockError::Lost(loss)),
                Ok(answer) => return Err(not_decided(answer).into()),
                Err(Error::Unavailable {
                    reason:
                        UnavailableReason::RECOVERING
                        | UnavailableReason::AT_CEILING
                        | UnavailableReason::SHUTTING_DOWN
                        | UnavailableReason::NO_QUORUM,
                    retry_after,
                }) if is_waiting => retry_after,
                Err(error) => return Err(error.into()),
            };
            waits_since = Some(start);
            let pause = retry_after.unwrap_or(RETRY_FIRST);
            let pause = pause + spread(pause / 2, 1.0);
            sleep(pause.min(wait_until.since(Moment::now()))).await;
        }
    }

    /// Acquires the lock as [`acquire`](Self::acquire) does, does the work, and releases the lock.
    /// If the lock is lost meanwhile, the work is dropped where it stands and [`LockError::Lost`]
    /// tells why.
    ///
    /// The work gets the fence, to send along with every write, and may borrow what it needs:
    /// `async |fence| ..`. A closure that returns a future will do as well, `|fence| async move {
    /// .. }`. The release goes out in the background.
    ///
    /// Cancel safe: dropping it drops the work and releases the lock.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`LockError::Lost`] if the work was stopped. What the
    /// work itself returns is passed on as it is.
    ///
    /// ```no_run
    /// # async fn settle(order: u32, fence: fencepost::Fence) -> std::io::Result<()> { Ok(()) }
    /// # async fn example(client: fencepost::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// client
    ///     .lock("orders/42")
    ///     .ttl(std::time::Duration::from_secs(5))
    ///     .with(async |fence| settle(42, fence).await)
    ///     .await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn with<T>(self, work: impl AsyncFnOnce(Fence) -> T) -> Result<T, LockError> {
        let request = self.in_its_trace();
        let (key, trace_id) = (Arc::clone(&request.key), request.trace_id.clone());
        let guard = request.acquire().await?;
        let fence = guard.fence();
        let lost = guard.lost();
        tokio::select! {
            // A lock already lost must not even let the work begin its next step.
            biased;
            loss = lost => Err(LockError::Lost(loss)),
            value = spans::working(&key, fence, trace_id.as_deref(), work(fence)) => Ok(value),
        }
    }

    /// Names the trace that the caller is part of, unless one is named already.
    fn in_its_trace(mut self) -> Self {
        if self.trace_id.is_none() {
            self.trace_id = self.client.pool().settings.current_trace();
        }
        self
    }

    fn guard(&self, grant: Grant) -> Guard {
        let guard = Guard::new(grant, Arc::clone(&self.client));
        spans::granted(guard.fence());
        guard
    }

    async fn ask(&self, wish: Wish, patience: Patience) -> Result<Answer, Error> {
        let pool = self.client.pool();
        let lane = pool.lane_of(&self.key);
        pool.call(lane, Ask::Acquire(wish), None, patience).await
    }

    fn wish(&self, wait_until: Option<Moment>) -> Result<Wish, Error> {
        Key::new(&self.key)?;
        Metadata::new(&self.metadata)?;
        TraceId::new(self.trace_id.as_deref().unwrap_or_default())?;
        Ok(Wish {
            key: Arc::clone(&self.key),
            mode: self.mode,
            lease: if self.is_session_bound {
                protocol::Lease::Session
            } else {
                protocol::Lease::Ttl {
                    ttl_ms: millis("ttl", self.ttl, 1, limits::TTL_MS_MAX)?,
                }
            },
            wait_until,
            waits_since: None,
            is_reentrant: self.is_reentrant,
            is_detached: self.is_detached,
            is_auto_renewed: self.is_auto_renewed,
            metadata: Arc::clone(&self.metadata),
            trace_id: self.trace_id.clone(),
        })
    }

    fn check_request_timeout(&self) -> Result<(), Error> {
        let time = self.request_timeout;
        match time.is_zero() || time > TIMEOUT_MAX {
            false => Ok(()),
            true => Err(Error::OutOfRange {
                field: "request_timeout",
                given: time,
                max: TIMEOUT_MAX,
            }),
        }
    }

    fn checked_wait(&self) -> Result<Duration, Error> {
        millis("wait", self.wait, 0, limits::WAIT_MS_MAX)?;
        Ok(self.wait)
    }
}

/// An answer to an acquire that is neither a lock nor contention.
fn not_decided(answer: Answer) -> Error {
    match answer {
        Answer::Lost(loss) => Error::Lost(loss),
        Answer::Cancelled => Error::Cancelled,
        _ => Error::Unexpected {
            request: "an acquire",
        },
    }
}
