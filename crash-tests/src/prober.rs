//! A client that speaks the wire by hand and does what no good client does: after each kill it
//! comes back to its session and tries to use the locks again that it had given back in an earlier
//! life.

use crate::history::{End, Grant, Probe, Recorder};
use crate::worker::Shared;
use bytes::{Buf, BytesMut};
use protocol::{
    Acquire, Claim, ClientName, Direction, Fence, Frame, Hello, Key, Lease, Metadata, Mode,
    Opening, Reply, Request, RequestId, SessionKey, TraceId, limits,
};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// No other client uses these keys, so every acquire is granted.
const KEY_COUNT: usize = 3;
const TTL_MS: u32 = 1_000;
/// A session that outlives every pause between two lives of one server.
pub const SESSION_TTL_MS: u32 = 2_500;
/// So many locks are taken on one connection. The next one tries them again, whether the server was
/// killed meanwhile or not.
const ROUNDS_MAX: usize = 100;
/// How many of the locks that were given back are tried again.
const REMEMBERED: usize = 6;
/// No answer within this: connect again.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// The connection is of no use any more. Which life comes next, it will see.
struct Broken;

/// Runs until the run stops. Of the nodes of a cluster, whose addresses these are, the one is found
/// that lets it in.
pub fn run(shared: &Shared, addresses: &[SocketAddr], releases_survive: bool, session_ttl_ms: u32) {
    let mut prober = Prober {
        recorder: shared.recorder.clone(),
        releases_survive,
        session_ttl_ms,
        session: None,
        next_id: 1,
        released: VecDeque::new(),
        keys: (0..KEY_COUNT)
            .map(|number| format!("probe/{number}").into())
            .collect(),
    };
    for address in addresses.iter().cycle() {
        if shared.is_stopping() {
            return;
        }
        // Every error is the end of a connection, and the next one is opened here.
        if let Ok(mut connection) = prober.connect(*address) {
            let _ = prober.work(&mut connection, shared);
        }
        std::thread::sleep(PAUSE);
    }
}

struct Prober {
    recorder: Arc<Recorder>,
    /// Every server knows what was given back to the one before.
    releases_survive: bool,
    session_ttl_ms: u32,
    session: Option<SessionKey>,
    /// Rises over all connections of the session.
    next_id: u64,
    /// What this session had and gave back.
    released: VecDeque<(Arc<str>, Fence)>,
    keys: Vec<Arc<str>>,
}

impl Prober {
    fn connect(&mut self, address: SocketAddr) -> Result<Connection, Broken> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|_| Broken)?;
        for set in [
            stream.set_read_timeout(Some(PATIENCE)),
            stream.set_write_timeout(Some(PATIENCE)),
            stream.set_nodelay(true),
        ] {
            set.map_err(|_| Broken)?;
        }
        let mut connection = Connection {
            stream,
            unread: BytesMut::new(),
        };
        let hello = Request::Hello(Hello {
            session_ttl_ms: self.session_ttl_ms,
            opening: self.session.map_or(Opening::New, Opening::Resume),
            ..Hello::new(ClientName::clipped("prober"))
        });
        let (session, is_resumed) = self.ask(&mut connection, &hello, |reply| match reply {
            Reply::Welcome(welcome) => Some((welcome.session, welcome.is_resumed)),
            _ => None,
        })?;
        if !is_resumed {
            // Another session never had those locks, and to be refused would prove nothing.
            self.released.clear();
        }
        self.session = Some(session);
        Ok(connection)
    }

    fn work(&mut self, connection: &mut Connection, shared: &Shared) -> Result<(), Broken> {
        let mut from_before = self.released.clone();
        let mut life_count = self.recorder.life_count();
        let mut round = 0;
        while !shared.is_stopping() && round < ROUNDS_MAX {
            // What befell another node of a cluster does not end this connection.
            let lives = self.recorder.life_count();
            if std::mem::replace(&mut life_count, lives) != lives {
                from_before = self.released.clone();
            }
            // In a grace period the server does not decide: then again in the next round.
            for (key, fence) in std::mem::take(&mut from_before) {
                if !self.probe(connection, &key, fence)? {
                    from_before.push_back((key, fence));
                }
            }
            let key = self.keys[round % KEY_COUNT].clone();
            self.acquire_and_release(connection, &key)?;
            std::thread::sleep(PAUSE);
            round += 1;
        }
        Ok(())
    }

    /// Tries to use what was given back. `false`: the server did not decide.
    fn probe(
        &mut self,
        connection: &mut Connection,
        key: &Arc<str>,
        fence: Fence,
    ) -> Result<bool, Broken> {
        let lease = Lease::Ttl { ttl_ms: TTL_MS };
        let renew = Request::Renew {
            key: wire(key),
            fence,
            lease,
        };
        let is_decided = self.try_again(connection, "a renewal", key, fence, &renew)?;
        // A server that writes down fences only, or whose log was repaired, cannot know what was
        // given back, and has to believe every claim.
        if self.releases_survive {
            let claim = Request::Claim(Claim {
                key: wire(key),
                fence,
                mode: Mode::Exclusive,
                lease,
                hold_count: 1,
                metadata: Metadata::default(),
                trace_id: TraceId::default(),
            });
            self.try_again(connection, "a claim", key, fence, &claim)?;
        }
        Ok(is_decided)
    }

    fn try_again(
        &mut self,
        connection: &mut Connection,
        ask: &'static str,
        key: &Arc<str>,
        fence: Fence,
        request: &Request<'_>,
    ) -> Result<bool, Broken> {
        let begun = self.recorder.now();
        let is_accepted = self.ask(connection, request, |reply| {
            Some(match reply {
                Reply::Renewed { .. } | Reply::Granted { .. } => Some(true),
                Reply::NotHeld { .. } => Some(false),
                // It did not decide.
                _ => None,
            })
        })?;
        if let Some(is_accepted) = is_accepted {
            self.recorder.probed(Probe {
                key: key.clone(),
                fence: fence.get(),
                ask,
                begun,
                is_accepted,
            });
        }
        Ok(is_accepted.is_some())
    }

    fn acquire_and_release(
        &mut self,
        connection: &mut Connection,
        key: &Arc<str>,
    ) -> Result<(), Broken> {
        let recorder = self.recorder.clone();
        let lease = Lease::Ttl { ttl_ms: TTL_MS };
        let acquire = Request::Acquire(Acquire::exclusive(wire(key), lease));
        let begun = recorder.now();
        let granted = self.ask(connection, &acquire, |reply| {
            Some(match reply {
                Reply::Granted { fence, .. } => Some(fence),
                // It is there from before, or the server grants nothing at the moment.
                _ => None,
            })
        })?;
        let Some(fence) = granted else {
            std::thread::sleep(PAUSE);
            return Ok(());
        };
        let ttl_us = u64::from(TTL_MS) * 1_000;
        let grant = recorder.granted(Grant {
            key: key.clone(),
            fence: fence.get(),
            is_shared: false,
            holder: "prober".into(),
            ttl_us,
            begun,
            answered: recorder.now(),
            // As the client's guards reckon: two milliseconds and a hundredth less.
            promises: vec![begun + ttl_us - 2_000 - ttl_us / 100],
            end: End::Open,
        });
        let begun = recorder.now();
        let release = Request::Release {
            key: wire(key),
            fence,
        };
        recorder.ended(grant, End::Abandoned { begun });
        let is_released = self.ask(connection, &release, |reply| {
            Some(matches!(reply, Reply::Released { .. }))
        })?;
        if is_released {
            let answered = recorder.now();
            recorder.ended(grant, End::Released { begun, answered });
            if self.released.len() == REMEMBERED {
                self.released.pop_front();
            }
            self.released.push_back((key.clone(), fence));
        }
        Ok(())
    }

    /// Sends a request and waits for its answer, of which `look` takes what it needs.
    fn ask<T>(
        &mut self,
        connection: &mut Connection,
        request: &Request<'_>,
        look: impl FnOnce(Reply<'_>) -> Option<T>,
    ) -> Result<T, Broken> {
        let id = self.next_id;
        self.next_id += 1;
        let mut out = BytesMut::new();
        request.append(RequestId::new(id), &mut out);
        connection.stream.write_all(&out).map_err(|_| Broken)?;
        connection.answer(id, look)
    }
}

struct Connection {
    stream: TcpStream,
    unread: BytesMut,
}

impl Connection {
    /// Waits for the answer to `id` and ignores everything else.
    fn answer<T>(
        &mut self,
        id: u64,
        look: impl FnOnce(Reply<'_>) -> Option<T>,
    ) -> Result<T, Broken> {
        loop {
            let mut rest = &self.unread[..];
            let frame = Frame::split(&mut rest, limits::FRAME_BYTES_MAX).map_err(|_| Broken)?;
            let Some(frame) = frame else {
                let mut chunk = [0; 4096];
                match self.stream.read(&mut chunk) {
                    Ok(0) | Err(_) => return Err(Broken),
                    Ok(read) => self.unread.extend_from_slice(&chunk[..read]),
                }
                continue;
            };
            let frame_bytes = frame.frame_bytes();
            if frame.direction() != Direction::Push && frame.request_id.get() == id {
                let answer = Reply::decode(&frame).ok().and_then(look);
                self.unread.advance(frame_bytes);
                return answer.ok_or(Broken);
            }
            self.unread.advance(frame_bytes);
        }
    }
}

fn wire(key: &str) -> Key<'_> {
    Key::new(key.as_bytes()).expect("neither empty nor too long")
}
