//! A client of a life: one connection, one session, one request at a time.

use bytes::{Buf, BytesMut};
use protocol::{
    ClientName, Direction, Frame, Hello, Opening, Reply, Request, RequestId, SessionKey, limits,
};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a reply may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was answered, as far as this test asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Told {
    Granted {
        fence: u64,
        ttl_ms: u32,
    },
    Renewed {
        ttl_ms: u32,
    },
    KeptAlive {
        ttl_ms: u32,
    },
    Released,
    /// The session is over, and the server has closed the connection.
    Gone,
    Welcome {
        session: SessionKey,
        is_resumed: bool,
    },
    Other,
}

/// A connection with a session of its own.
pub(super) struct Client {
    /// Of the story, for messages.
    seed: u64,
    stream: TcpStream,
    unread: BytesMut,
    next_id: u64,
    pub(super) session: SessionKey,
    pub(super) is_resumed: bool,
    /// The session lives until then, as the client was told.
    pub(super) kept_until: Instant,
    is_gone: bool,
}

impl Client {
    pub(super) fn open(
        seed: u64,
        address: SocketAddr,
        opening: Opening,
        session_ttl_ms: u32,
    ) -> Client {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let none = SessionKey {
            session_id: protocol::SessionId::new(0),
            secret: protocol::SessionSecret::new([0; protocol::SessionSecret::BYTES]),
        };
        let mut client = Client {
            seed,
            stream,
            unread: BytesMut::new(),
            next_id: 1,
            session: none,
            is_resumed: false,
            kept_until: Instant::now(),
            is_gone: false,
        };
        let hello = Hello {
            opening,
            session_ttl_ms,
            ..Hello::new(ClientName::new("lives").expect("a name"))
        };
        let Told::Welcome {
            session,
            is_resumed,
        } = client.ask(&Request::Hello(hello))
        else {
            panic!("seed {seed}: no welcome");
        };
        (client.session, client.is_resumed) = (session, is_resumed);
        client.keep_alive();
        client
    }

    pub(super) fn keep_alive(&mut self) {
        let sent = Instant::now();
        if let Told::KeptAlive { ttl_ms } = self.ask(&Request::KeepAlive) {
            self.kept_until = sent + Duration::from_millis(ttl_ms.into());
        }
    }

    /// Sends a request and does not wait for its answer. Returns its id.
    pub(super) fn send(&mut self, request: &Request<'_>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let mut out = BytesMut::new();
        request.append(RequestId::new(id), &mut out);
        if let Err(error) = self.stream.write_all(&out) {
            self.lose(error);
        }
        id
    }

    /// The server has closed the connection. It may do so once the session is over, and not before:
    /// on a busy machine a client may come too late to keep a short session alive.
    fn lose(&mut self, error: io::Error) {
        let (seed, now) = (self.seed, Instant::now());
        let is_silence = matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        );
        assert!(!is_silence, "seed {seed}: no answer within {PATIENCE:?}");
        assert!(
            now >= self.kept_until,
            "seed {seed}: {error}, {:?} before the session ends",
            self.kept_until - now
        );
        self.is_gone = true;
    }

    /// Sends a request and waits for its answer.
    pub(super) fn ask(&mut self, request: &Request<'_>) -> Told {
        let id = self.send(request);
        while !self.is_gone {
            let mut unread = &self.unread[..];
            let frame = Frame::split(&mut unread, limits::FRAME_BYTES_MAX);
            if let Some(frame) = frame.expect("the server's frames are frames") {
                let is_push = frame.direction() == Direction::Push;
                let is_it = frame.request_id.get() == id && !is_push;
                let told = is_it.then(|| told(&Reply::decode(&frame).expect("a reply")));
                let frame_bytes = frame.frame_bytes();
                self.unread.advance(frame_bytes);
                match told {
                    Some(told) => return told,
                    // A push, or an answer that was not waited for.
                    None => continue,
                }
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => self.lose(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.unread.extend_from_slice(&chunk[..bytes]),
                Err(error) => self.lose(error),
            }
        }
        Told::Gone
    }
}

fn told(reply: &Reply<'_>) -> Told {
    match reply {
        Reply::Granted { fence, ttl_ms, .. } => Told::Granted {
            fence: fence.get(),
            ttl_ms: *ttl_ms,
        },
        Reply::Renewed { ttl_ms } => Told::Renewed { ttl_ms: *ttl_ms },
        Reply::KeptAlive { ttl_ms } => Told::KeptAlive { ttl_ms: *ttl_ms },
        Reply::Released { .. } => Told::Released,
        Reply::Welcome(welcome) => Told::Welcome {
            session: welcome.session,
            is_resumed: welcome.is_resumed,
        },
        _ => Told::Other,
    }
}
