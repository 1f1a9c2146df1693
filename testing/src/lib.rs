//! A Fencepost server inside a test, for tests of code that takes locks.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = fencepost_testing::TestServer::start();
//!
//! let client = locks.client().await; // hand it to the code under test
//! let guard = client.lock("orders/42").acquire().await?;
//!
//! assert!(locks.take_away("orders/42").await); // what an operator may do at any time
//! println!("the code under test must stop now: {}", guard.lost().await);
//! # Ok(())
//! # }
//! ```
//!
//! It is the real server, in this process: real sockets on a free port of 127.0.0.1, real leases,
//! fences and queues. It writes nothing to disk and needs no program to be installed. Each test has
//! one of its own, so tests can run side by side and use the same keys. Starting one takes some
//! milliseconds.
//!
//! Put it into `[dev-dependencies]`. What fails in here fails the test: these functions panic.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

use fencepost::{Builder, Client, ForceRelease};
use server::Server;
use std::net::SocketAddr;
use std::time::Duration;

/// A server that lives as long as this value.
pub struct TestServer {
    server: Server,
}

impl TestServer {
    /// Starts a server on a free port.
    ///
    /// # Panics
    /// The system gives no port or no thread.
    ///
    /// ```
    /// let locks = fencepost_testing::TestServer::start();
    /// println!("FENCEPOST_SERVER={}", locks.address());
    /// ```
    #[must_use = "the server stops when this is dropped"]
    pub fn start() -> Self {
        Self::start_with(|server| server)
    }

    /// Starts a server with other settings. Everything that `fencepost serve` takes can be set.
    ///
    /// # Panics
    /// As [`start`](Self::start), and if a setting cannot be used.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let locks = fencepost_testing::TestServer::start_with(|server| {
    ///     server.with(|config| config.lease_max = Duration::from_secs(20))
    /// });
    /// ```
    #[must_use = "the server stops when this is dropped"]
    pub fn start_with(change: impl FnOnce(server::Builder) -> server::Builder) -> Self {
        // One thread is plenty, and a test need not wait for clients to hear the last word.
        let builder = Server::builder()
            .threads(1)
            .with(|config| config.shutdown_grace = Duration::ZERO);
        match change(builder).start() {
            Ok(server) => Self { server },
            Err(error) => panic!("the server for this test does not start: {error}"),
        }
    }

    /// Where it listens. Code that reads its settings from the environment takes it from
    /// `FENCEPOST_SERVER`.
    pub fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// A client with settings of its own, still to be connected.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::ConnectError> {
    /// let locks = fencepost_testing::TestServer::start();
    /// let client = locks.builder().name("billing").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(&self) -> Builder {
        Client::builder().address(self.address().to_string())
    }

    /// A client of its own session: two of them keep each other out.
    ///
    /// # Panics
    /// The server does not answer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::LockError> {
    /// let locks = fencepost_testing::TestServer::start();
    /// let (ours, theirs) = (locks.client().await, locks.client().await);
    /// let guard = ours.lock("orders/42").acquire().await?;
    /// assert!(theirs.lock("orders/42").try_acquire().await?.acquired().is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn client(&self) -> Client {
        match self.builder().connect().await {
            Ok(client) => client,
            Err(error) => panic!("no client for this test: {error}"),
        }
    }

    /// The same for code that is not async.
    ///
    /// # Panics
    /// The server does not answer.
    ///
    /// ```
    /// let locks = fencepost_testing::TestServer::start();
    /// let client = locks.blocking_client();
    /// let guard = client.acquire(client.lock("orders/42")).unwrap();
    /// ```
    pub fn blocking_client(&self) -> fencepost::blocking::Client {
        match self.builder().connect_blocking() {
            Ok(client) => client,
            Err(error) => panic!("no client for this test: {error}"),
        }
    }

    /// Takes a key away from its holders, as an operator may: each hears of it through
    /// [`Guard::lost`](fencepost::Guard::lost). Says whether it was held.
    ///
    /// # Panics
    /// The server does not answer.
    pub async fn take_away(&self, key: impl AsRef<[u8]>) -> bool {
        let key = key.as_ref();
        let client = self.client().await;
        let mut is_held = false;
        let state = client.query(key).await.expect("the server answers a query");
        for holder in state.holders {
            let released = client.force_release(key, holder.fence).await;
            is_held |= released.expect("the server answers") == ForceRelease::Released;
        }
        is_held
    }

    /// Stops it in order. Locks of clients that are still there are lost when their leases end.
    /// Dropping it does the same.
    pub fn stop(self) {
        self.server.shutdown();
    }
}

impl std::fmt::Debug for TestServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestServer")
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}
