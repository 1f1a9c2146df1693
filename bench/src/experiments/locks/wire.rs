//! Fencepost without its client: one request, one reply. For what the client would not do: release
//! a lock that it knows is gone, or keep silent after a crash.

use bytes::BytesMut;
use protocol::{
    Acquire, ClientName, Fence, Frame, Hello, Key, Lease, Reply, Request, RequestId, limits,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a session outlives its connection: longer than any experiment, so that only leases
/// matter.
const SESSION_TTL_MS: u32 = 600_000;

/// One connection, one session.
pub(crate) struct Wire {
    stream: TcpStream,
    unread: Vec<u8>,
    next_id: u64,
}

/// What came of an acquire that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    Granted {
        fence: u64,
    },
    Held,
    /// The server grants nothing at the moment: it has just restarted, or waits for its disk.
    NotNow,
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self, String> {
        Self::connect_within(address, PATIENCE)
    }

    /// The same, with another patience for answers.
    pub(crate) fn connect_within(address: SocketAddr, patience: Duration) -> Result<Self, String> {
        let opened = TcpStream::connect_timeout(&address, patience).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(patience))?;
            Ok(stream)
        });
        let mut wire = Wire {
            stream: opened.map_err(complain)?,
            unread: Vec::new(),
            next_id: 1,
        };
        let hello = Hello {
            session_ttl_ms: SESSION_TTL_MS,
            ..Hello::new(ClientName::new("experiment").expect("short"))
        };
        let is_welcome = |reply: Reply<'_>| matches!(reply, Reply::Welcome(_));
        match wire.ask(&Request::Hello(hello), is_welcome)? {
            true => Ok(wire),
            false => Err("fencepost: no welcome".to_owned()),
        }
    }

    /// Asks once.
    pub(crate) fn try_acquire(&mut self, key: &str, ttl: Duration) -> Result<Tried, String> {
        let key = Key::new(key.as_bytes()).map_err(|error| error.to_string())?;
        let ttl_ms = ttl.as_millis() as u32;
        let acquire = Acquire::exclusive(key, Lease::Ttl { ttl_ms });
        self.ask(&Request::Acquire(acquire), |reply| match reply {
            Reply::Granted { fence, .. } => Ok(Tried::Granted { fence: fence.get() }),
            Reply::Refused(_) => Ok(Tried::Held),
            Reply::Unavailable { .. } | Reply::Busy { .. } => Ok(Tried::NotNow),
            other => Err(format!("fencepost: an acquire was answered by {other:?}")),
        })?
    }

    /// Releases by key and fence, also if the lock has another holder by now. Whether anything was
    /// released.
    pub(crate) fn release(&mut self, key: &str, fence: u64) -> Result<bool, String> {
        let key = Key::new(key.as_bytes()).map_err(|error| error.to_string())?;
        let fence = Fence::new(fence).ok_or("a fence is more than zero")?;
        self.ask(&Request::Release { key, fence }, |reply| match reply {
            Reply::Released { .. } => Ok(true),
            Reply::NotHeld { .. } => Ok(false),
            other => Err(format!("fencepost: a release was answered by {other:?}")),
        })?
    }

    /// One of the server's numbers.
    pub(crate) fn stat(&mut self, name: &str) -> Result<u64, String> {
        self.ask(&Request::Stats, |reply| match reply {
            Reply::Stats { entries } => {
                let entry = entries.iter().find(|entry| entry.name.as_str() == name);
                entry
                    .map(|entry| entry.value)
                    .ok_or(format!("fencepost: no number {name}"))
            }
            other => Err(format!("fencepost: stats were answered by {other:?}")),
        })?
    }

    fn ask<T>(
        &mut self,
        request: &Request<'_>,
        look: impl FnOnce(Reply<'_>) -> T,
    ) -> Result<T, String> {
        let id = RequestId::new(self.next_id);
        self.next_id += 1;
        let mut out = BytesMut::new();
        request.append(id, &mut out);
        self.stream.write_all(&out).map_err(complain)?;
        loop {
            let mut rest = &self.unread[..];
            let frame = Frame::split(&mut rest, limits::FRAME_BYTES_MAX).map_err(complain)?;
            if let Some(frame) = frame {
                let taken = self.unread.len() - rest.len();
                if frame.request_id == id {
                    let answer = Reply::decode(&frame).map(look).map_err(complain)?;
                    self.unread.drain(..taken);
                    return Ok(answer);
                }
                // A push, such as that a lock was lost.
                self.unread.drain(..taken);
                continue;
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk).map_err(complain)? {
                0 => return Err("fencepost: the connection has ended".to_owned()),
                read => self.unread.extend_from_slice(&chunk[..read]),
            }
        }
    }
}

fn complain(error: impl std::fmt::Display) -> String {
    format!("fencepost: {error}")
}
