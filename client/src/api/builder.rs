//! What can be set before connecting.

use crate::error::{ConnectError, Error};
use crate::limits::{
    CONNECT_TIMEOUT_DEFAULT, CONNECTIONS_DEFAULT, CONNECTIONS_MAX, REQUEST_TIMEOUT_DEFAULT,
    TTL_DEFAULT, WAIT_DEFAULT,
};
use crate::settings::{Settings, millis};
use protocol::{ClientName, Token, limits};
use std::fmt;
use std::time::Duration;

/// Everything that can be set about a client, from [`Client::builder`](crate::Client::builder).
/// Only an address is needed.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example() -> Result<(), fencepost::ConnectError> {
/// let client = fencepost::Client::builder()
///     .address("127.0.0.1:7400")
///     .name("billing")
///     .session_ttl(Duration::from_secs(10))
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "connects to nothing until connect() is awaited"]
pub struct Builder {
    addresses: Vec<String>,
    name: Option<String>,
    token: Vec<u8>,
    connection_count: usize,
    session_ttl: Option<Duration>,
    connect_timeout: Duration,
    request_timeout: Duration,
    ttl: Duration,
    wait: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            name: None,
            token: Vec::new(),
            connection_count: CONNECTIONS_DEFAULT,
            session_ttl: None,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            request_timeout: REQUEST_TIMEOUT_DEFAULT,
            ttl: TTL_DEFAULT,
            wait: WAIT_DEFAULT,
        }
    }
}

impl Builder {
    /// Where the server is, as `host:port`. May be given several times: the addresses are tried in
    /// this order at every attempt to connect, and names are looked up afresh.
    ///
    /// All of them must lead to **one server**: two names of the same host, IPv4 and IPv6, or a
    /// standby that takes over the data directory of the first. Independent servers know nothing of
    /// each other's locks. If another server answers after a reconnect, it does not know the
    /// session, and all locks are lost at once.
    ///
    /// ```
    /// let builder = fencepost::Client::builder()
    ///     .address("locks-a.internal:7400")
    ///     .address("locks-b.internal:7400");
    /// ```
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// The name that operators and waiters see; up to 64 bytes. Without this, the name of the
    /// program and its process id.
    ///
    /// ```
    /// let builder = fencepost::Client::builder().name("billing");
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The token that proves the client's rights, where the server asks for one; up to 256 bytes.
    ///
    /// ```
    /// let builder = fencepost::Client::builder().token("sesame");
    /// ```
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.token = token.into();
        self
    }

    /// How many connections all tasks share, 1 to 64; without this, 2. Requests are pipelined, so a
    /// few are plenty; requests for one key always take the same one and keep their order.
    ///
    /// ```
    /// let builder = fencepost::Client::builder().connections(4);
    /// ```
    pub fn connections(mut self, connection_count: usize) -> Self {
        self.connection_count = connection_count;
        self
    }

    /// How long the session, and with it every lock, outlives the last keep-alive that reached the
    /// server; up to a day. Without this, the server decides.
    ///
    /// ```
    /// let builder = fencepost::Client::builder().session_ttl(std::time::Duration::from_secs(20));
    /// ```
    pub fn session_ttl(mut self, session_ttl: Duration) -> Self {
        self.session_ttl = Some(session_ttl);
        self
    }

    /// How long one attempt to open a connection may take, the server's welcome included; without
    /// this, 2 s.
    ///
    /// ```
    /// let half_a_second = std::time::Duration::from_millis(500);
    /// let builder = fencepost::Client::builder().connect_timeout(half_a_second);
    /// ```
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// How long a request may take, from the call to the answer, reconnecting included; without
    /// this, 5 s. Time in the server's queue comes on top. A connection on which nothing comes for
    /// half of this while answers are due is replaced.
    ///
    /// ```
    /// let one_second = std::time::Duration::from_secs(1);
    /// let builder = fencepost::Client::builder().request_timeout(one_second);
    /// ```
    pub fn request_timeout(mut self, request_timeout: Duration) -> Self {
        self.request_timeout = request_timeout;
        self
    }

    /// The lease of locks that do not say otherwise; without this, 30 s. Worth taking from your
    /// configuration: see [`LockRequest::ttl`](crate::LockRequest::ttl).
    ///
    /// ```
    /// let builder = fencepost::Client::builder().default_ttl(std::time::Duration::from_secs(5));
    /// ```
    pub fn default_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long an acquire waits that does not say otherwise; without this, 10 s.
    ///
    /// ```
    /// let builder = fencepost::Client::builder().default_wait(std::time::Duration::from_secs(1));
    /// ```
    pub fn default_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    pub(crate) fn checked(self) -> Result<Settings, ConnectError> {
        if self.addresses.is_empty() {
            return Err(ConnectError::NoAddress);
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connection_count) {
            return Err(ConnectError::OutOfRange {
                field: "connections",
                allowed: "1 to 64",
            });
        }
        for (field, time) in [
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
        ] {
            if time.is_zero() || time > TIMEOUT_MAX {
                return Err(ConnectError::OutOfRange {
                    field,
                    allowed: "more than zero and at most an hour",
                });
            }
        }
        check_day("default_ttl", self.ttl, 1)?;
        check_day("default_wait", self.wait, 0)?;
        let session_ttl_ms = match self.session_ttl {
            Some(session_ttl) => check_day("session_ttl", session_ttl, 1)?,
            None => 0,
        };
        let name = self.name.unwrap_or_else(name_of_process);
        ClientName::new(&name)?;
        Token::new(&self.token)?;
        Ok(Settings {
            addresses: self.addresses,
            name,
            token: self.token,
            connection_count: self.connection_count,
            session_ttl_ms,
            connect_timeout: self.connect_timeout,
            request_timeout: self.request_timeout,
            ttl: self.ttl,
            wait: self.wait,
        })
    }
}

/// Nothing that takes longer is a timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

const _: () = assert!(limits::SESSION_TTL_MS_MAX == limits::TTL_MS_MAX);
const _: () = assert!(limits::WAIT_MS_MAX == limits::TTL_MS_MAX);

fn check_day(field: &'static str, time: Duration, ms_min: u32) -> Result<u32, ConnectError> {
    millis(field, time, ms_min, limits::TTL_MS_MAX).map_err(|_: Error| ConnectError::OutOfRange {
        field,
        allowed: match ms_min {
            0 => "at most a day",
            _ => "at least 1 ms and at most a day",
        },
    })
}

/// Good enough to find the process by.
fn name_of_process() -> String {
    let program = std::env::current_exe().ok();
    let stem = program
        .as_deref()
        .and_then(|path| path.file_stem())
        .map_or("unknown".into(), |stem| stem.to_string_lossy());
    let pid = std::process::id();
    // The process id is the part that must not be cut off.
    let mut stem = stem.into_owned();
    while format!("{stem}:{pid}").len() > limits::CLIENT_NAME_BYTES_MAX {
        stem.pop();
    }
    format!("{stem}:{pid}")
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("addresses", &self.addresses)
            .field("name", &self.name)
            .field(
                "token",
                &if self.token.is_empty() {
                    "none"
                } else {
                    "hidden"
                },
            )
            .field("connections", &self.connection_count)
            .finish_non_exhaustive()
    }
}
