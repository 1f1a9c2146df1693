//! The client's handle.

use crate::api::builder::Builder;
use crate::api::guard::{LockHandle, Release};
use crate::api::lock::LockRequest;
use crate::error::{ConnectError, Error, LockError};
use crate::link::call::{Answer, Ask};
use crate::link::connect::connect;
use crate::link::lane::Status;
use crate::link::pool::{Handle, Pool};
use crate::metrics::Metrics;
use protocol::{Fence, Key};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A client of one Fencepost server or cluster: a session, a few connections, and any number of
/// tasks that share them.
///
/// Cloning is cheap and gives another handle to the same client. When the last handle and the last
/// [`Guard`](crate::Guard) are gone, the client ends its session in the background, if its runtime
/// lives that long; [`close`](Self::close) does it and waits.
///
/// A client keeps itself connected. While it cannot, requests wait for their
/// [`request_timeout`](Builder::request_timeout) and then fail, and locks count as lost at their
/// [`valid_until`](crate::Guard::valid_until).
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
}

impl Client {
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        self.handle.pool()
    }

    /// What can be set before connecting.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), fencepost::ConnectError> {
    /// use fencepost::Client;
    ///
    /// let client = Client::builder().address("127.0.0.1:7400").name("billing").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Connects with default settings. Short for [`Builder::connect`].
    ///
    /// Cancel safe: dropping it closes what was opened.
    ///
    /// # Errors
    /// As [`Builder::connect`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), fencepost::ConnectError> {
    /// let client = fencepost::Client::connect("127.0.0.1:7400").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(address: impl Into<String>) -> Result<Self, ConnectError> {
        Self::builder().address(address).connect().await
    }

    /// Connects with the settings in the environment, which are those of the program `fencepost`:
    /// `FENCEPOST_SERVER` has the address, or those of a cluster's nodes with commas between them
    /// (without it, `127.0.0.1:7400`); `FENCEPOST_TOKEN_FILE` has the path of a file with the token
    /// to show (without it, none). Short for [`Builder::from_env`] and [`Builder::connect`].
    ///
    /// Cancel safe: dropping it closes what was opened.
    ///
    /// # Errors
    /// As [`Builder::from_env`] and [`Builder::connect`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), fencepost::ConnectError> {
    /// let client = fencepost::Client::from_env().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn from_env() -> Result<Self, ConnectError> {
        Builder::from_env()?.connect().await
    }

    /// Begins to ask for a lock. A key is 1 to 256 bytes of any kind; use UTF-8 if people shall
    /// read it.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::LockError> {
    /// let guard = client.lock("orders/42").acquire().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, key: impl AsRef<[u8]>) -> LockRequest {
        LockRequest::new(Arc::clone(&self.handle), key.as_ref())
    }

    /// Does some work under a lock, with the client's default ttl and wait, and drops the work if
    /// the lock is lost. Short for [`LockRequest::with`].
    ///
    /// Cancel safe: dropping it drops the work and releases the lock.
    ///
    /// # Errors
    /// As [`LockRequest::with`].
    ///
    /// ```no_run
    /// # async fn settle(order: u32, fence: fencepost::Fence) {}
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::LockError> {
    /// client.with_lock("orders/42", async |fence| settle(42, fence).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn with_lock<T>(
        &self,
        key: impl AsRef<[u8]>,
        work: impl AsyncFnOnce(Fence) -> T,
    ) -> Result<T, LockError> {
        self.lock(key).with(work).await
    }

    /// Releases a [detached](LockRequest::detached) lock by its key and fence. Any client with a
    /// token that the server accepts may do it, not only the one that took the lock.
    ///
    /// Cancel safe: if dropped, it may or may not take effect.
    ///
    /// # Errors
    /// No answer came; the lock may or may not have been released. [`Error::Invalid`] if the key is
    /// empty or too long.
    ///
    /// ```no_run
    /// # use fencepost::{Client, Error, LockHandle};
    /// # async fn example(client: Client, handle: LockHandle) -> Result<(), Error> {
    /// match client.release_detached(&handle).await? {
    ///     fencepost::Release::Released => {}
    ///     fencepost::Release::AlreadyLost(loss) => eprintln!("{loss}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release_detached(&self, handle: &LockHandle) -> Result<Release, Error> {
        Key::new(&handle.key)?;
        let pool = self.pool();
        let ask = Ask::Release {
            key: handle.key.as_slice().into(),
            fence: handle.fence,
            is_last: true,
        };
        let lane = pool.lane_of(&handle.key);
        match pool.call_soon(lane, ask, None).await? {
            Answer::Released => Ok(Release::Released),
            Answer::NotHeld(reason) => Ok(Release::AlreadyLost(reason.into())),
            _ => Err(Error::Unexpected {
                request: "a release",
            }),
        }
    }

    /// The id of the present session, as operators see it in lists; `None` between the loss of a
    /// session and the opening of the next.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::Client) {
    /// println!("we are session {:?}", client.session_id());
    /// # }
    /// ```
    pub fn session_id(&self) -> Option<u64> {
        self.pool().session.id()
    }

    /// Whether there is a connection at this moment. For health checks; requests find out by
    /// themselves.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::Client) {
    /// println!("healthy: {}", client.is_connected());
    /// # }
    /// ```
    pub fn is_connected(&self) -> bool {
        let lanes = self.pool().lanes();
        lanes
            .iter()
            .any(|lane| matches!(lane.status(), Status::Open))
    }

    /// What this client has counted so far: acquires and how long they took, renewals, losses,
    /// reconnects. Cheap: it reads some numbers.
    ///
    /// ```no_run
    /// # fn example(client: fencepost::Client) {
    /// let metrics = client.metrics();
    /// println!("{} locks lost, {} reconnects", metrics.losses, metrics.reconnects);
    /// # }
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.pool().metrics()
    }

    /// Ends the session: everything it holds and waits for is freed at once, and all guards of all
    /// handles are lost. Waits for the server to confirm it, at most for the
    /// [`request_timeout`](Builder::request_timeout); reconnects for that if it has to.
    ///
    /// Cancel safe: the client closes whether or not you wait.
    ///
    /// # Errors
    /// The server could not be told. The session then ends there when its time is up.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(self) -> Result<(), Error> {
        let pool = Arc::clone(self.pool());
        let start = Instant::now();
        let why = match pool.lanes()[0].status() {
            Status::Down { why, .. } => why,
            Status::Open | Status::Closed => None,
        };
        let Some(answer) = pool.close() else {
            return Err(Error::Closed);
        };
        let ended = async {
            let answer = answer.await;
            pool.ended().await;
            answer
        };
        match timeout(pool.settings.request_timeout, ended).await {
            Ok(Ok(Ok(Answer::Done))) => Ok(()),
            Ok(Ok(Ok(_))) => Err(Error::Unexpected {
                request: "a goodbye",
            }),
            // The task gave up before it had a connection or an answer.
            Ok(Ok(Err(Error::Closed)) | Err(_)) => Err(Error::Disconnected { why }),
            Ok(Ok(Err(error))) => Err(error),
            Err(_elapsed) if why.is_some() => Err(Error::Disconnected { why }),
            Err(_elapsed) => Err(Error::NoAnswer {
                after: start.elapsed(),
            }),
        }
    }

    /// Asks the server for a sign of life and gives the time until the answer.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// No answer came.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// println!("{:?}", client.ping().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ping(&self) -> Result<Duration, Error> {
        let start = Instant::now();
        match self.ask_any(Ask::Ping).await? {
            Answer::Done => Ok(start.elapsed()),
            _ => Err(Error::Unexpected { request: "a ping" }),
        }
    }

    /// Asks on any lane: for what is about no key.
    pub(crate) async fn ask_any(&self, ask: Ask) -> Result<Answer, Error> {
        let pool = self.pool();
        pool.call_soon(pool.open_lane_near(0), ask, None).await
    }
}

impl Builder {
    /// Connects: tries each address once, and gives up if none leads to a server that lets the
    /// client in. While nodes of a cluster answer that none of them leads, it goes on asking for as
    /// long as a [`request_timeout`](Self::request_timeout). From then on the client reconnects by
    /// itself. Its tasks run on the current runtime.
    ///
    /// Cancel safe: dropping it closes what was opened.
    ///
    /// # Errors
    /// A setting is out of range, or no server let the client in. Where there are several
    /// addresses, [`ConnectError::NoneOf`] says why of each, unless one of them gave a reason that
    /// will not go away by itself, such as a wrong token.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), fencepost::ConnectError> {
    /// let client = fencepost::Client::builder().address("127.0.0.1:7400").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let handle = connect(self.checked()?).await?;
        Ok(Client { handle })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}
