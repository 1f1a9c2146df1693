//! A server to talk to, and a peer that speaks the protocol by hand, so that it can also speak it badly.

use bytes::{Buf, BytesMut};
use protocol::{
    ClientName, Frame, Hello, Key, Lease, Push, Reply, Request, RequestId, SessionKey, limits,
};
use server::{Builder, Server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// No answer within this is a failure; nothing is asserted about how much sooner it comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn start() -> Server {
    start_with(|builder| builder)
}

pub(crate) fn start_with(change: impl FnOnce(Builder) -> Builder) -> Server {
    change(Server::builder().threads(2))
        .start()
        .expect("the server starts")
}

/// One connection, spoken by hand.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    unread: BytesMut,
    next_id: u64,
    pub(crate) session: Option<SessionKey>,
    pub(crate) pushes: Vec<OwnedPush>,
    /// Replies that came while another one was awaited.
    early: Vec<(u64, Vec<u8>)>,
}

/// A push, kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnedPush {
    Lost {
        key: Vec<u8>,
        fence: u64,
        reason: protocol::LostReason,
    },
    Shutdown,
    Other,
}

impl Peer {
    /// A connection that has not said anything.
    pub(crate) fn silent(address: SocketAddr) -> Peer {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout can be set");
        stream
            .set_nodelay(true)
            .expect("a socket option can be set");
        Peer {
            stream,
            unread: BytesMut::new(),
            next_id: 1,
            session: None,
            pushes: Vec::new(),
            early: Vec::new(),
        }
    }

    /// A connection with a session of its own.
    pub(crate) fn connect(address: SocketAddr, name: &str) -> Peer {
        Peer::open(
            address,
            Hello::new(ClientName::new(name).expect("a short name")),
        )
    }

    pub(crate) fn open(address: SocketAddr, hello: Hello<'_>) -> Peer {
        let mut peer = Peer::silent(address);
        let id = peer.send(&Request::Hello(hello));
        let session = peer.reply(id, |reply| match reply {
            Reply::Welcome(welcome) => welcome.session,
            other => panic!("no welcome but {other:?}"),
        });
        peer.session = Some(session);
        peer
    }

    /// Sends a request under the next id.
    pub(crate) fn send(&mut self, request: &Request<'_>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send_as(id, request, false);
        id
    }

    pub(crate) fn send_as(&mut self, id: u64, request: &Request<'_>, repeated: bool) {
        let mut out = BytesMut::new();
        if repeated {
            request.append_repeat(RequestId::new(id), &mut out);
        } else {
            request.append(RequestId::new(id), &mut out);
        }
        self.next_id = self.next_id.max(id + 1);
        self.stream
            .write_all(&out)
            .expect("the server takes requests");
    }

    /// Waits for the reply to `id` and hands it to `look`. Pushes and other replies are kept.
    pub(crate) fn reply<T>(&mut self, id: u64, look: impl FnOnce(Reply<'_>) -> T) -> T {
        if let Some(position) = self.early.iter().position(|(early, _)| *early == id) {
            let (_, bytes) = self.early.remove(position);
            return look(decode(&bytes));
        }
        loop {
            let (frame_id, bytes) = self
                .next_frame()
                .expect("the server answers before it closes");
            if frame_id == id {
                return look(decode(&bytes));
            }
            self.early.push((frame_id, bytes));
        }
    }

    /// The next reply whatever its id, or `None` when the server closes.
    pub(crate) fn next_reply<T>(&mut self, look: impl FnOnce(u64, Reply<'_>) -> T) -> Option<T> {
        let (id, bytes) = if self.early.is_empty() {
            self.next_frame()?
        } else {
            self.early.remove(0)
        };
        Some(look(id, decode(&bytes)))
    }

    pub(crate) fn ask<T>(&mut self, request: &Request<'_>, look: impl FnOnce(Reply<'_>) -> T) -> T {
        let id = self.send(request);
        self.reply(id, look)
    }

    /// Waits for a push.
    pub(crate) fn push(&mut self) -> OwnedPush {
        while self.pushes.is_empty() {
            let (id, bytes) = self
                .next_frame_or_push()
                .expect("the server pushes before it closes");
            if id != 0 {
                self.early.push((id, bytes));
            }
        }
        self.pushes.remove(0)
    }

    fn next_frame(&mut self) -> Option<(u64, Vec<u8>)> {
        loop {
            let pushes = self.pushes.len();
            let frame = self.next_frame_or_push()?;
            if self.pushes.len() == pushes {
                return Some(frame);
            }
        }
    }

    /// The next frame; one that is a push is also added to the list.
    fn next_frame_or_push(&mut self) -> Option<(u64, Vec<u8>)> {
        loop {
            let mut rest = &self.unread[..];
            if let Some(frame) =
                Frame::split(&mut rest, limits::FRAME_BYTES_MAX).expect("the server frames well")
            {
                let frame_bytes = frame.frame_bytes();
                let id = frame.request_id.get();
                if frame.direction() == protocol::Direction::Push {
                    self.pushes.push(
                        match Push::decode(&frame).expect("a push that can be read") {
                            Push::Lost { key, fence, reason } => OwnedPush::Lost {
                                key: key.as_bytes().to_vec(),
                                fence: fence.get(),
                                reason,
                            },
                            Push::Shutdown { .. } => OwnedPush::Shutdown,
                            Push::Unknown { .. } => OwnedPush::Other,
                        },
                    );
                }
                let bytes = self.unread[..frame_bytes].to_vec();
                self.unread.advance(frame_bytes);
                return Some((id, bytes));
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(read) => self.unread.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    // ---- shorthands

    pub(crate) fn acquire(&mut self, key: &str, ttl_ms: u32) -> u64 {
        self.ask(&acquire(key, ttl_ms, 0), granted)
    }

    pub(crate) fn release(&mut self, key: &str, fence: u64) -> bool {
        let request = Request::Release {
            key: wire_key(key),
            fence: wire_fence(fence),
        };
        self.ask(&request, |reply| matches!(reply, Reply::Released { .. }))
    }
}

fn decode(bytes: &[u8]) -> Reply<'_> {
    let mut rest = bytes;
    let frame = Frame::split(&mut rest, limits::FRAME_BYTES_MAX)
        .expect("whole")
        .expect("whole");
    Reply::decode(&frame).expect("a reply that can be read")
}

pub(crate) fn wire_key(key: &str) -> Key<'_> {
    Key::new(key.as_bytes()).expect("a key of the right length")
}

pub(crate) fn wire_fence(fence: u64) -> protocol::Fence {
    protocol::Fence::new(fence).expect("not zero")
}

pub(crate) fn acquire(key: &str, ttl_ms: u32, wait_ms: u32) -> Request<'_> {
    let lease = Lease::Ttl { ttl_ms };
    Request::Acquire(protocol::Acquire {
        wait_ms,
        ..protocol::Acquire::exclusive(wire_key(key), lease)
    })
}

pub(crate) fn granted(reply: Reply<'_>) -> u64 {
    match reply {
        Reply::Granted { fence, .. } => fence.get(),
        other => panic!("not granted but {other:?}"),
    }
}
