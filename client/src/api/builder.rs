//! What can be set before connecting.

use crate::error::{ConnectError, Error};
use crate::limits::{
    ADDRESS_DEFAULT, ADDRESSES_MAX, CONNECT_TIMEOUT_DEFAULT, CONNECTIONS_DEFAULT, CONNECTIONS_MAX,
    REQUEST_TIMEOUT_DEFAULT, TIMEOUT_MAX, TTL_DEFAULT, WAIT_DEFAULT,
};
use crate::settings::{Security, Settings, TraceContext, millis};
#[cfg(feature = "tls")]
use crate::tls::{Connector, Tls};
use protocol::{ClientName, Token, limits};
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
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
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    connection_count: usize,
    session_ttl: Option<Duration>,
    connect_timeout: Duration,
    request_timeout: Duration,
    ttl: Duration,
    wait: Duration,
    trace_context: Option<TraceContext>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            name: None,
            token: Vec::new(),
            #[cfg(feature = "tls")]
            tls: None,
            connection_count: CONNECTIONS_DEFAULT,
            session_ttl: None,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            request_timeout: REQUEST_TIMEOUT_DEFAULT,
            ttl: TTL_DEFAULT,
            wait: WAIT_DEFAULT,
            trace_context: None,
        }
    }
}

impl Builder {
    /// What the environment says: the address in `FENCEPOST_SERVER` (without it,
    /// `127.0.0.1:7400`), and the token in the file that `FENCEPOST_TOKEN_FILE` names. The program
    /// `fencepost` takes the same variables. An empty variable counts as not set.
    ///
    /// # Errors
    /// A variable is not text, or [`token_file`](Self::token_file) fails.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), fencepost::ConnectError> {
    /// let client = fencepost::Builder::from_env()?.name("billing").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_env() -> Result<Self, ConnectError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let server = match variable("FENCEPOST_SERVER").map(OsString::into_string) {
            Some(Ok(server)) => server,
            Some(Err(_)) => {
                return Err(ConnectError::OutOfRange {
                    field: "FENCEPOST_SERVER",
                    allowed: "text, as HOST:PORT",
                });
            }
            None => ADDRESS_DEFAULT.to_owned(),
        };
        let builder = Self::default().address(server);
        match variable("FENCEPOST_TOKEN_FILE") {
            Some(path) => builder.token_file(path),
            None => Ok(builder),
        }
    }

    /// Where the server is, as `host:port`, or where the nodes of a cluster are, with commas
    /// between them. May be given several times, up to 64 addresses in all. They are tried in this
    /// order at every attempt to connect, each 100 ms after the last or as soon as that fails, and
    /// names are looked up afresh.
    ///
    /// All of them must lead to **one server or one cluster**: the nodes of a cluster, two names of
    /// the same host, IPv4 and IPv6, or a standby that takes over the data directory of the first.
    /// Independent servers know nothing of each other's locks. If another server answers after a
    /// reconnect, it does not know the session, and all locks are lost at once.
    ///
    /// Of a cluster some of the nodes are enough: each names the leader, and the leader all nodes.
    /// Where there are several addresses, a server whose answer is overdue for a second is taken
    /// for gone, and the others are asked.
    ///
    /// ```
    /// let builder = fencepost::Client::builder()
    ///     .address("locks-a.internal:7400,locks-b.internal:7400")
    ///     .address("locks-c.internal:7400");
    /// ```
    pub fn address(mut self, address: impl Into<String>) -> Self {
        let addresses: String = address.into();
        let addresses = addresses.split(',').map(str::trim);
        let addresses = addresses.filter(|address| !address.is_empty());
        self.addresses.extend(addresses.map(str::to_owned));
        self
    }

    /// Several addresses at once: short for calling [`address`](Self::address) with each.
    ///
    /// ```
    /// let nodes = ["locks-a.internal:7400", "locks-b.internal:7400", "locks-c.internal:7400"];
    /// let builder = fencepost::Client::builder().addresses(nodes);
    /// ```
    pub fn addresses<A: Into<String>>(self, addresses: impl IntoIterator<Item = A>) -> Self {
        addresses.into_iter().fold(self, Self::address)
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

    /// Takes the [`token`](Self::token) from a file: its first line that is neither empty nor a
    /// comment (`#`). The file is read now, once.
    ///
    /// # Errors
    /// [`ConnectError::TokenFile`]: it cannot be read, or has no such line.
    ///
    /// ```no_run
    /// # fn example() -> Result<(), fencepost::ConnectError> {
    /// let builder = fencepost::Client::builder().token_file("/etc/billing/fencepost.token")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn token_file(self, path: impl AsRef<Path>) -> Result<Self, ConnectError> {
        let path = path.as_ref();
        let failure = |message: String| ConnectError::TokenFile {
            path: path.to_owned(),
            message,
        };
        let bytes = std::fs::read(path).map_err(|error| failure(error.to_string()))?;
        let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        match lines.find(|line| !line.is_empty() && !line.starts_with(b"#")) {
            Some(token) => Ok(self.token(token)),
            None => Err(failure("there is no token in it".to_owned())),
        }
    }

    /// Speaks TLS with the server, and nothing else.
    ///
    /// ```
    /// let tls = fencepost::Tls::with_ca("/etc/fencepost/ca.pem");
    /// let builder = fencepost::Client::builder().address("locks.internal:7400").tls(tls);
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
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
    /// this, 2 s. Where there are several addresses, the connection and the welcome have this long
    /// each, the latter a second at first.
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

    /// Has each acquire and each forced release carry the trace that it is part of, so that the
    /// server's audit log names it: what this returns is sent unless the request has a
    /// [`trace_id`](crate::LockRequest::trace_id) of its own. The text of a W3C `traceparent`
    /// header fits. A text longer than 64 bytes is not sent: a lock must not fail for its trace.
    ///
    /// The audit log names the trace of the acquire again where the lock ends, whether it was
    /// released or lost.
    ///
    /// It is called once for each request, by the task that asks. With OpenTelemetry, return
    /// `Span::current().context().span().span_context()` in the form below.
    ///
    /// ```
    /// # fn current_trace() -> Option<(u128, u64)> { Some((1, 2)) }
    /// let builder = fencepost::Client::builder().trace_context(|| {
    ///     let (trace, span) = current_trace()?;
    ///     Some(format!("00-{trace:032x}-{span:016x}-01"))
    /// });
    /// ```
    pub fn trace_context(
        mut self,
        context: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.trace_context = Some(Arc::new(context));
        self
    }

    pub(crate) fn checked(self) -> Result<Settings, ConnectError> {
        if self.addresses.is_empty() {
            return Err(ConnectError::NoAddress);
        }
        if self.addresses.len() > ADDRESSES_MAX {
            return Err(ConnectError::OutOfRange {
                field: "addresses",
                allowed: "1 to 64",
            });
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
        #[cfg(feature = "tls")]
        let security: Security = match self.tls {
            Some(tls) => Some(std::sync::Arc::new(Connector::new(tls)?)),
            None => None,
        };
        #[cfg(not(feature = "tls"))]
        let security: Security = None;
        Ok(Settings {
            security,
            addresses: self.addresses,
            name,
            token: self.token,
            connection_count: self.connection_count,
            session_ttl_ms,
            connect_timeout: self.connect_timeout,
            request_timeout: self.request_timeout,
            ttl: self.ttl,
            wait: self.wait,
            trace_context: self.trace_context,
        })
    }
}

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
