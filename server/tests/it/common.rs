//! A server to talk to, and a peer that speaks the protocol by hand, so that it can also speak it
//! badly.

use bytes::{Buf, BytesMut};
use protocol::{
    ClientName, ErrorCode, Frame, Hello, Key, Lease, LostReason, Metadata, Mode, Opening, Push,
    Reply, Request, RequestId, SessionKey, TraceId, limits,
};
use server::{Builder, Server};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Once;
use std::time::{Duration, Instant};

/// No answer within this is a failure; nothing is asserted about how much sooner it comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A lease or a wait that no test outlives.
pub(crate) const LONG_MS: u32 = 60_000;

pub(crate) fn start() -> Server {
    start_with(|builder| builder)
}

pub(crate) fn start_with(change: impl FnOnce(Builder) -> Builder) -> Server {
    no_core_may_panic();
    change(Server::builder().threads(2))
        .start()
        .expect("the server starts")
}

/// What a panic says that a test has asked for.
pub(crate) const ASKED_FOR: &str = "a panic that a test asked for";

/// A core that panics stops its server, and the test fails somewhere else, later. Better here, with
/// the reason.
pub(crate) fn no_core_may_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            usual(panic);
            let thread = std::thread::current();
            let is_asked_for = panic.to_string().contains(ASKED_FOR);
            if thread.name().is_some_and(|name| name.starts_with("core-")) && !is_asked_for {
                eprintln!("a core of the server panicked: all tests end here");
                std::process::exit(101);
            }
        }));
    });
}

/// Asks until the answer is yes. For what is not announced; the pause only spares the machine.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "in vain waited for this: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One connection, spoken by hand.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    unread: BytesMut,
    next_id: u64,
    pub(crate) session: Option<SessionKey>,
    pub(crate) is_resumed: bool,
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
        reason: LostReason,
    },
    Shutdown,
    Other,
}

pub(crate) fn lost(key: &str, fence: u64, reason: LostReason) -> OwnedPush {
    OwnedPush::Lost {
        key: key.into(),
        fence,
        reason,
    }
}

/// Why a connection was refused or closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Farewell {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl Peer {
    /// A connection that has not said anything.
    pub(crate) fn silent(address: SocketAddr) -> Peer {
        let stream = TcpStream::connect(address).expect("the server listens");
        Peer::on(stream, address)
    }

    pub(crate) fn on(stream: TcpStream, address: SocketAddr) -> Peer {
        let timeout = Some(PATIENCE);
        stream.set_read_timeout(timeout).expect("a socket option");
        stream.set_write_timeout(timeout).expect("a socket option");
        stream.set_nodelay(true).expect("a socket option");
        Peer {
            stream,
            address,
            unread: BytesMut::new(),
            next_id: 1,
            session: None,
            is_resumed: false,
            pushes: Vec::new(),
            early: Vec::new(),
        }
    }

    /// A connection with a session of its own.
    pub(crate) fn connect(address: SocketAddr, name: &str) -> Peer {
        Peer::open(address, hello(name))
    }

    pub(crate) fn open(address: SocketAddr, hello: Hello<'_>) -> Peer {
        Peer::knock(address, hello).unwrap_or_else(|farewell| panic!("no welcome: {farewell:?}"))
    }

    /// Says hello and hears whether it is let in.
    pub(crate) fn knock(address: SocketAddr, hello: Hello<'_>) -> Result<Peer, Farewell> {
        let mut peer = Peer::silent(address);
        peer.introduce(hello).map(|()| peer)
    }

    pub(crate) fn introduce(&mut self, hello: Hello<'_>) -> Result<(), Farewell> {
        let id = self.send(&Request::Hello(hello));
        let first = self.next_reply(|of, reply| match reply {
            Reply::Welcome(welcome) => {
                assert_eq!(of, id, "a welcome answers its hello");
                Ok((welcome.session, welcome.is_resumed))
            }
            Reply::HelloRefused { code, message, .. } => Err(Farewell {
                code,
                message: message.as_str().to_owned(),
            }),
            other => panic!("neither let in nor refused but {other:?}"),
        });
        let (session, is_resumed) = first.expect("the server answers a hello")?;
        self.session = Some(session);
        self.is_resumed = is_resumed;
        Ok(())
    }

    /// Another connection of the same session, with ids of its own.
    pub(crate) fn join(&self, name: &str) -> Peer {
        self.try_join(name)
            .expect("the session is there to be joined")
    }

    /// As `join`; `None` if the session is over.
    pub(crate) fn try_join(&self, name: &str) -> Option<Peer> {
        let session = self
            .session
            .expect("only a peer that was let in can be joined");
        let opening = Opening::Join(session);
        let mut peer = Peer::silent(self.address);
        peer.next_id = self.next_id + 1_000_000;
        let welcome = peer.introduce(Hello {
            opening,
            ..hello(name)
        });
        match welcome {
            Ok(()) => Some(peer),
            Err(refused) => {
                assert_eq!(refused.code, ErrorCode::SESSION_UNKNOWN);
                None
            }
        }
    }

    /// Leaves without a word, and comes back to the session on a new connection.
    pub(crate) fn come_back(self, name: &str) -> Peer {
        let (session, address, next_id) = (self.session, self.address, self.next_id);
        drop(self);
        Peer::resume(address, name, session.expect("a session"), next_id)
    }

    pub(crate) fn resume(
        address: SocketAddr,
        name: &str,
        session: SessionKey,
        next_id: u64,
    ) -> Peer {
        let mut peer = Peer::silent(address);
        peer.next_id = next_id;
        let welcome = peer.introduce(Hello {
            opening: Opening::Resume(session),
            ..hello(name)
        });
        welcome.expect("a session that is resumed is let in");
        peer
    }

    /// The id of the next request.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id
    }

    pub(crate) fn start_ids_at(&mut self, next_id: u64) {
        self.next_id = next_id;
    }

    /// Sends a request under the next id.
    pub(crate) fn send(&mut self, request: &Request<'_>) -> u64 {
        let id = self.next_id;
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
        self.send_bytes(&out);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream
            .write_all(bytes)
            .expect("the server takes requests");
    }

    /// As `send`, where the server may be gone already.
    pub(crate) fn try_send(&mut self, request: &Request<'_>) -> Option<u64> {
        let id = self.next_id;
        let mut out = BytesMut::new();
        request.append(RequestId::new(id), &mut out);
        self.next_id += 1;
        self.stream.write_all(&out).ok().map(|()| id)
    }

    /// Waits for the reply to `id` and hands it to `look`. Pushes and other replies are kept.
    pub(crate) fn reply<T>(&mut self, id: u64, look: impl FnOnce(Reply<'_>) -> T) -> T {
        self.try_reply(id, look)
            .unwrap_or_else(|| panic!("the server closed before it answered request {id}"))
    }

    /// As `reply`; `None` when the server closes first.
    pub(crate) fn try_reply<T>(&mut self, id: u64, look: impl FnOnce(Reply<'_>) -> T) -> Option<T> {
        if let Some(position) = self.early.iter().position(|(early, _)| *early == id) {
            let (_, bytes) = self.early.remove(position);
            return Some(look(decode(&bytes)));
        }
        loop {
            let (frame_id, bytes) = self.next_frame()?;
            if frame_id == id {
                return Some(look(decode(&bytes)));
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

    /// Reads until the server closes. Returns why, if it said so. Replies that came before are
    /// kept.
    pub(crate) fn farewell(&mut self) -> Option<Farewell> {
        let mut farewell = None;
        while let Some((id, bytes)) = self.next_frame() {
            assert_eq!(farewell, None, "nothing comes behind the last words");
            match decode(&bytes) {
                Reply::Error { code, message, .. } | Reply::HelloRefused { code, message, .. }
                    if id == 0 =>
                {
                    let message = message.as_str().to_owned();
                    farewell = Some(Farewell { code, message });
                }
                _ => self.early.push((id, bytes)),
            }
        }
        farewell
    }

    /// Reads until the server closes, and asserts why.
    pub(crate) fn is_closed_with(&mut self, code: ErrorCode) -> String {
        let farewell = self.farewell().expect("the server says why it closes");
        assert_eq!(farewell.code, code, "{}", farewell.message);
        farewell.message
    }

    /// Sends nothing more.
    pub(crate) fn finish_sending(&self) {
        // Fails only if the server has closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
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
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    // ---- shorthands

    pub(crate) fn acquire(&mut self, key: &str, ttl_ms: u32) -> u64 {
        self.ask(&acquire(key, ttl_ms, 0), granted)
    }

    pub(crate) fn release(&mut self, key: &str, fence: u64) -> bool {
        self.ask(&release(key, fence), |reply| {
            matches!(reply, Reply::Released { .. })
        })
    }

    /// Asks for a lock that is held, and returns once the request stands in line, behind `ahead`
    /// others.
    pub(crate) fn stand_in_line(&mut self, key: &str, ahead: u32, observer: &mut Peer) -> u64 {
        let id = self.send(&acquire(key, LONG_MS, LONG_MS));
        until("the acquire stands in line", || {
            observer.queue_length(key) > ahead
        });
        id
    }

    pub(crate) fn ping(&mut self) {
        self.ask(&Request::Ping, |reply| assert_eq!(reply, Reply::Pong));
    }

    pub(crate) fn queue_length(&mut self, key: &str) -> u32 {
        self.query(key).1
    }

    /// Whether the key is held under this fence.
    pub(crate) fn is_held_under(&mut self, key: &str, fence: u64) -> bool {
        self.query(key).0.contains(&fence)
    }

    /// The fences under which a key is held, and how many wait for it.
    pub(crate) fn query(&mut self, key: &str) -> (Vec<u64>, u32) {
        let request = Request::Query { key: wire_key(key) };
        self.ask(&request, |reply| match reply {
            Reply::QueryResult {
                queue_length,
                holders,
                ..
            } => {
                let fences = holders.iter().map(|holder| holder.fence.get());
                (fences.collect(), queue_length)
            }
            other => panic!("no query result but {other:?}"),
        })
    }

    pub(crate) fn stats(&mut self) -> HashMap<String, u64> {
        self.ask(&Request::Stats, |reply| match reply {
            Reply::Stats { entries } => entries
                .iter()
                .map(|entry| (entry.name.as_str().to_owned(), entry.value))
                .collect(),
            other => panic!("no statistics but {other:?}"),
        })
    }

    pub(crate) fn stat(&mut self, name: &str) -> u64 {
        let stats = self.stats();
        *stats
            .get(name)
            .unwrap_or_else(|| panic!("no statistic {name} among {stats:?}"))
    }
}

fn decode(bytes: &[u8]) -> Reply<'_> {
    let mut rest = bytes;
    let frame = Frame::split(&mut rest, limits::FRAME_BYTES_MAX)
        .expect("whole")
        .expect("whole");
    Reply::decode(&frame).expect("a reply that can be read")
}

/// A frame of any kind with any body, as no client should send it.
pub(crate) fn raw_frame(kind: u8, flags: u8, id: u64, body: &[u8]) -> Vec<u8> {
    let mut frame = (10 + body.len() as u32).to_le_bytes().to_vec();
    frame.extend([kind, flags]);
    frame.extend(id.to_le_bytes());
    frame.extend(body);
    frame
}

pub(crate) fn encode(id: u64, request: &Request<'_>) -> Vec<u8> {
    let mut out = BytesMut::new();
    request.append(RequestId::new(id), &mut out);
    out.to_vec()
}

pub(crate) fn hello(name: &str) -> Hello<'_> {
    Hello::new(ClientName::new(name).expect("a short name"))
}

/// A hello for a session that ends so soon after its last sign of life.
pub(crate) fn hello_for(name: &str, session_ttl_ms: u32) -> Hello<'_> {
    Hello {
        session_ttl_ms,
        ..hello(name)
    }
}

pub(crate) fn wire_key(key: &str) -> Key<'_> {
    Key::new(key.as_bytes()).expect("a key of the right length")
}

pub(crate) fn wire_fence(fence: u64) -> protocol::Fence {
    protocol::Fence::new(fence).expect("not zero")
}

pub(crate) fn acquire(key: &str, ttl_ms: u32, wait_ms: u32) -> Request<'_> {
    Request::Acquire(plain(key, ttl_ms, wait_ms))
}

pub(crate) fn plain(key: &str, ttl_ms: u32, wait_ms: u32) -> protocol::Acquire<'_> {
    let lease = Lease::Ttl { ttl_ms };
    protocol::Acquire {
        wait_ms,
        ..protocol::Acquire::exclusive(wire_key(key), lease)
    }
}

pub(crate) fn shared(key: &str, ttl_ms: u32, wait_ms: u32) -> Request<'_> {
    Request::Acquire(protocol::Acquire {
        mode: Mode::Shared,
        ..plain(key, ttl_ms, wait_ms)
    })
}

pub(crate) fn reentrant(key: &str, ttl_ms: u32) -> Request<'_> {
    Request::Acquire(protocol::Acquire {
        is_reentrant: true,
        ..plain(key, ttl_ms, 0)
    })
}

pub(crate) fn session_bound(key: &str, wait_ms: u32) -> Request<'_> {
    Request::Acquire(protocol::Acquire {
        wait_ms,
        ..protocol::Acquire::exclusive(wire_key(key), Lease::Session)
    })
}

pub(crate) fn with_metadata<'a>(key: &'a str, ttl_ms: u32, metadata: &'a str) -> Request<'a> {
    Request::Acquire(protocol::Acquire {
        metadata: Metadata::new(metadata.as_bytes()).expect("short metadata"),
        ..plain(key, ttl_ms, 0)
    })
}

pub(crate) fn release(key: &str, fence: u64) -> Request<'_> {
    Request::Release {
        key: wire_key(key),
        fence: wire_fence(fence),
    }
}

pub(crate) fn renew(key: &str, fence: u64, ttl_ms: u32) -> Request<'_> {
    Request::Renew {
        key: wire_key(key),
        fence: wire_fence(fence),
        lease: Lease::Ttl { ttl_ms },
    }
}

pub(crate) fn force_release(key: &str, fence: u64) -> Request<'_> {
    Request::ForceRelease {
        key: wire_key(key),
        fence: wire_fence(fence),
        trace_id: TraceId::default(),
    }
}

pub(crate) fn cancel(acquire_id: u64) -> Request<'static> {
    Request::Cancel {
        acquire_id: RequestId::new(acquire_id),
    }
}

pub(crate) fn granted(reply: Reply<'_>) -> u64 {
    match reply {
        Reply::Granted { fence, .. } => fence.get(),
        other => panic!("not granted but {other:?}"),
    }
}

pub(crate) fn error_code(reply: Reply<'_>) -> ErrorCode {
    match reply {
        Reply::Error { code, message, .. } => {
            assert!(!message.as_str().is_empty(), "an error has a sentence");
            code
        }
        other => panic!("no error but {other:?}"),
    }
}

pub(crate) fn not_held(reply: Reply<'_>) -> protocol::NotHeldReason {
    match reply {
        Reply::NotHeld { reason } => reason,
        other => panic!("held after all: {other:?}"),
    }
}

pub(crate) fn busy(reply: Reply<'_>) -> protocol::BusyBound {
    match reply {
        Reply::Busy { bound, .. } => bound,
        other => panic!("not busy but {other:?}"),
    }
}
