//! Reaching the first of several addresses that is there, without waiting for those that are not.
//!
//! A host that is down does not refuse a connection: it says nothing, for as long as the caller has
//! patience. So the next address is dialled [`DIAL_STAGGER`] after the last one, or at once when
//! one fails, and the streams come out in the order in which they are open ("happy eyeballs"). With
//! one address this is one connect with a timeout.

use crate::error::ConnectError;
use crate::limits::{DIAL_STAGGER, NODES_MAX};
use crate::settings::Security;
use crate::stream::Stream;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout_at};

/// One round over all addresses.
pub(crate) struct Dialer {
    /// Not dialled yet.
    queue: VecDeque<Arc<str>>,
    dialling: Vec<Dialling>,
    /// All that were ever in the queue.
    addresses: Vec<Arc<str>>,
    /// When to dial the next one, if nothing fails before.
    next_at: Instant,
    connect_timeout: Duration,
    security: Security,
    failures: Vec<ConnectError>,
}

type Connecting = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>> + Send>>;

struct Dialling {
    address: Arc<str>,
    deadline: Instant,
    stream: Connecting,
}

/// An open stream, on which nothing has been said yet.
pub(crate) struct Dialled {
    pub(crate) address: Arc<str>,
    pub(crate) stream: Stream,
    /// When the time is up that was meant for the connection and the welcome.
    pub(crate) deadline: Instant,
}

impl Dialer {
    pub(crate) fn new(
        addresses: VecDeque<Arc<str>>,
        connect_timeout: Duration,
        security: Security,
    ) -> Self {
        Self {
            addresses: addresses.iter().cloned().collect(),
            queue: addresses,
            dialling: Vec::new(),
            next_at: Instant::now(),
            connect_timeout,
            security,
            failures: Vec::new(),
        }
    }

    /// Whether there is only one address to ask.
    pub(crate) fn has_one(&self) -> bool {
        self.addresses.len() == 1
    }

    /// The next stream that is open; `None` when all addresses have been tried. May be dropped at
    /// any time.
    pub(crate) async fn next(&mut self) -> Option<Dialled> {
        loop {
            if self.dialling.is_empty() || Instant::now() >= self.next_at {
                self.dial_next();
            }
            if self.dialling.is_empty() {
                return None;
            }
            let (address, deadline, result) = tokio::select! {
                finished = first_finished(&mut self.dialling) => finished,
                () = sleep_until(self.next_at), if !self.queue.is_empty() => continue,
            };
            match result {
                Ok(stream) => {
                    return Some(Dialled {
                        address,
                        stream,
                        deadline,
                    });
                }
                Err(error) => self.note_failure(error),
            }
        }
    }

    fn dial_next(&mut self) {
        let Some(address) = self.queue.pop_front() else {
            return;
        };
        let now = Instant::now();
        let deadline = now + self.connect_timeout;
        self.next_at = now + DIAL_STAGGER;
        let (to, after) = (Arc::clone(&address), self.connect_timeout);
        let security = self.security.clone();
        let stream = Box::pin(async move {
            let connected = timeout_at(deadline, connect(&to, &security)).await;
            connected.unwrap_or_else(|_elapsed| Err(timed_out(&to, after)))
        });
        self.dialling.push(Dialling {
            address,
            deadline,
            stream,
        });
    }

    /// Nothing came of an address: the next one need not wait.
    pub(crate) fn note_failure(&mut self, error: ConnectError) {
        self.failures.push(error);
        self.next_at = Instant::now();
    }

    /// A node says that the leader is there: that address is next, unless it has been tried.
    pub(crate) fn follow(&mut self, leader: &str) {
        let leader: Arc<str> = Arc::from(leader);
        if let Some(index) = self.queue.iter().position(|address| *address == leader) {
            self.queue.remove(index);
        } else if self.addresses.contains(&leader) || self.addresses.len() >= NODES_MAX {
            return;
        } else {
            self.addresses.push(Arc::clone(&leader));
        }
        self.queue.push_front(leader);
    }

    /// Why no address was of use. A refusal that only the user can do something about says more
    /// than the others.
    pub(crate) fn into_error(mut self) -> ConnectError {
        if let Some(index) = self.failures.iter().position(ConnectError::is_permanent) {
            return self.failures.swap_remove(index);
        }
        match self.failures.len() {
            0 => ConnectError::NoAddress,
            1 => self.failures.remove(0),
            _ => ConnectError::NoneOf {
                failures: self.failures,
            },
        }
    }
}

/// The first connect to end, well or not.
async fn first_finished(
    dialling: &mut Vec<Dialling>,
) -> (Arc<str>, Instant, Result<Stream, ConnectError>) {
    poll_fn(|context| {
        for index in 0..dialling.len() {
            if let Poll::Ready(result) = dialling[index].stream.as_mut().poll(context) {
                let finished = dialling.remove(index);
                return Poll::Ready((finished.address, finished.deadline, result));
            }
        }
        Poll::Pending
    })
    .await
}

/// Opens a stream, and shakes hands on it if the client speaks TLS.
pub(crate) async fn connect(address: &str, security: &Security) -> Result<Stream, ConnectError> {
    let connected = TcpStream::connect(address).await;
    let stream = connected.map_err(|error| unreachable(address, &error))?;
    // Requests are written in batches already; the kernel must not wait for more.
    let set = stream.set_nodelay(true);
    set.map_err(|error| unreachable(address, &error))?;
    match security {
        None => Ok(Stream::Plain(stream)),
        #[cfg(feature = "tls")]
        Some(connector) => connector.secure(address, stream).await,
        #[cfg(not(feature = "tls"))]
        Some(never) => match *never {},
    }
}

/// Why nothing came of a stream. If one side refused the other's certificate, that is why.
#[cfg(feature = "tls")]
pub(crate) fn unreachable(address: &str, error: &io::Error) -> ConnectError {
    crate::tls::failure(address, error)
}

#[cfg(not(feature = "tls"))]
pub(crate) fn unreachable(address: &str, error: &io::Error) -> ConnectError {
    ConnectError::Unreachable {
        address: address.to_owned(),
        kind: error.kind(),
        message: error.to_string(),
    }
}

pub(crate) fn timed_out(address: &str, after: Duration) -> ConnectError {
    ConnectError::TimedOut {
        address: address.to_owned(),
        after,
    }
}

#[cfg(test)]
mod tests;
