//! Fencepost's protocol, from the client's side. The echo server is spoken to in the same frames,
//! without the hello.
//!
//! Frames are encoded once, by the protocol crate, and then copied with another id, fence and key:
//! what a client library does besides would be measured as if it were the server's.

use crate::load::speaker::{Answer, Ask, KEY_BYTES, Speaker};
use crate::load::stream::Stream;
use bytes::BytesMut;
use protocol::frame::{Direction, HEADER_BYTES, LENGTH_BYTES};
use protocol::reply::kind;
use protocol::{
    Acquire, ClientName, Fence, Frame, Hello, Key, Lease, Reply, Request, RequestId, Token, limits,
};
use std::io::{self, Read, Write};

/// A request id is a count and, in its low bits, the lane.
const LANE_BITS: u32 = 24;

/// A frame's place of the request id.
const ID_START: usize = LENGTH_BYTES + 2;

/// What a client of a server with a file of rights shows.
pub(super) const TOKEN: &[u8] = b"the-token-of-the-bench";

/// How long the session of a link outlives its last request: longer than any workload is silent.
const SESSION_TTL_MS: u32 = 600_000;

pub(crate) struct Fencepost {
    /// Whether to say hello: every server but echo wants it.
    has_hello: bool,
    /// Whether to show a token.
    is_entitled: bool,
    /// Whether locks live by the session instead of by their own lease.
    is_session_bound: bool,
    count: u64,
    acquire: Template,
    release: Template,
}

/// A frame that lacks its id, and perhaps more.
#[derive(Default)]
struct Template {
    bytes: Vec<u8>,
    ttl_ms: u32,
    wait_ms: u32,
}

impl Fencepost {
    pub(crate) fn new() -> Self {
        Fencepost {
            has_hello: true,
            is_entitled: false,
            is_session_bound: false,
            count: 1,
            acquire: Template::default(),
            release: Template::of(&Request::Release {
                key: Key::new(&[0; KEY_BYTES]).expect("a key's length is checked here"),
                fence: Fence::new(1).expect("not zero"),
            }),
        }
    }

    /// For the echo server.
    pub(crate) fn echo() -> Self {
        Fencepost {
            has_hello: false,
            ..Self::new()
        }
    }

    /// For a server with a file of rights.
    pub(crate) fn entitled() -> Self {
        Fencepost {
            is_entitled: true,
            ..Self::new()
        }
    }

    /// Locks live as long as the session does.
    pub(crate) fn session_bound() -> Self {
        Fencepost {
            is_session_bound: true,
            ..Self::new()
        }
    }

    fn next_id(&mut self, lane: u32) -> RequestId {
        self.count += 1;
        RequestId::new(self.count << LANE_BITS | u64::from(lane))
    }

    fn acquire_template(&self, ask: &Ask) -> Template {
        let key = Key::new(&ask.key).expect("16 bytes");
        let lease = match self.is_session_bound {
            true => Lease::Session,
            false => Lease::Ttl { ttl_ms: ask.ttl_ms },
        };
        Template {
            ttl_ms: ask.ttl_ms,
            wait_ms: ask.wait_ms,
            ..Template::of(&Request::Acquire(Acquire {
                wait_ms: ask.wait_ms,
                ..Acquire::exclusive(key, lease)
            }))
        }
    }
}

impl Template {
    fn of(request: &Request<'_>) -> Self {
        let mut bytes = BytesMut::new();
        request.append(RequestId::new(1), &mut bytes);
        Template {
            bytes: bytes.to_vec(),
            ..Template::default()
        }
    }

    /// Appends the frame under another id and with another key, which is the last field of both
    /// kinds.
    #[inline]
    fn append(&self, id: RequestId, key: &[u8; KEY_BYTES], out: &mut BytesMut) -> usize {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let frame = &mut out[start..];
        frame[ID_START..HEADER_BYTES].copy_from_slice(&id.get().to_le_bytes());
        let key_start = frame.len() - KEY_BYTES;
        frame[key_start..].copy_from_slice(key);
        start
    }
}

impl Speaker for Fencepost {
    fn open(&mut self, streams: &mut [Stream], _: &[u32]) -> io::Result<()> {
        if !self.has_hello {
            return Ok(());
        }
        let name = ClientName::new("bench").expect("short");
        let mut out = BytesMut::new();
        let token = match self.is_entitled {
            true => Token::new(TOKEN).expect("short"),
            false => Token::default(),
        };
        let hello = Hello {
            token,
            session_ttl_ms: SESSION_TTL_MS,
            ..Hello::new(name)
        };
        Request::Hello(hello).append(RequestId::new(1), &mut out);
        streams[0].write_all(&out)?;

        let mut length = [0; LENGTH_BYTES];
        streams[0].read_exact(&mut length)?;
        let rest_bytes = u32::from_le_bytes(length).min(limits::HELLO_FRAME_BYTES_MAX);
        let mut bytes = length.to_vec();
        bytes.resize(LENGTH_BYTES + rest_bytes as usize, 0);
        streams[0].read_exact(&mut bytes[LENGTH_BYTES..])?;
        let frame = Frame::split(&mut &bytes[..], limits::FRAME_BYTES_MAX);
        let frame = frame.map_err(io::Error::other)?;
        let reply = frame.ok_or_else(|| io::Error::other("an unfinished frame"))?;
        match Reply::decode(&reply).map_err(io::Error::other)? {
            Reply::Welcome(_) => Ok(()),
            other => Err(io::Error::other(format!(
                "the hello was answered by {other:?}"
            ))),
        }
    }

    #[inline]
    fn acquire(&mut self, lane: u32, ask: &Ask, outs: &mut [BytesMut]) {
        if self.acquire.bytes.is_empty()
            || self.acquire.ttl_ms != ask.ttl_ms
            || self.acquire.wait_ms != ask.wait_ms
        {
            self.acquire = self.acquire_template(ask);
        }
        let id = self.next_id(lane);
        self.acquire.append(id, &ask.key, &mut outs[0]);
    }

    #[inline]
    fn release(&mut self, lane: u32, key: &[u8; KEY_BYTES], fence: u64, outs: &mut [BytesMut]) {
        let id = self.next_id(lane);
        let start = self.release.append(id, key, &mut outs[0]);
        let fence_start = start + HEADER_BYTES;
        outs[0][fence_start..fence_start + 8].copy_from_slice(&fence.to_le_bytes());
    }

    fn renew(
        &mut self,
        lane: u32,
        key: &[u8; KEY_BYTES],
        fence: u64,
        ttl_ms: u32,
        outs: &mut [BytesMut],
    ) {
        let id = self.next_id(lane);
        if self.is_session_bound {
            Request::KeepAlive.append(id, &mut outs[0]);
        } else if let (Ok(key), Some(fence)) = (Key::new(key), Fence::new(fence)) {
            let lease = Lease::Ttl { ttl_ms };
            Request::Renew { key, fence, lease }.append(id, &mut outs[0]);
        }
    }

    const RENEWS_ALL: bool = true;

    #[inline]
    fn read(
        &mut self,
        _: usize,
        unread: &mut &[u8],
        _: &mut [BytesMut],
    ) -> Result<Option<Answer>, String> {
        loop {
            let frame = Frame::split(unread, limits::FRAME_BYTES_MAX);
            let Some(frame) = frame.map_err(|error| error.to_string())? else {
                return Ok(None);
            };
            if frame.direction() == Direction::Push {
                // A lock was lost. The lane finds out when it gives it back.
                continue;
            }
            let lane = (frame.request_id.get() & ((1 << LANE_BITS) - 1)) as u32;
            return Ok(Some(match (frame.kind, frame.body.first_chunk()) {
                (kind::GRANTED, Some(fence)) => {
                    let fence = u64::from_le_bytes(*fence);
                    Answer::Granted { lane, fence }
                }
                (kind::RELEASED, _) => Answer::Released { lane },
                (kind::RENEWED | kind::KEPT_ALIVE, _) => Answer::Renewed { lane },
                (kind::REFUSED, _) => Answer::Held { lane },
                (kind::TIMED_OUT, _) => Answer::TimedOut { lane },
                (kind::NOT_HELD, _) => Answer::NotHeld { lane },
                (kind::ERROR, _) if frame.request_id == RequestId::NONE => {
                    return Err(format!("the server said {:?}", Reply::decode(&frame)));
                }
                _ => Answer::Failed { lane },
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a real client would have sent, byte by byte.
    fn encoded(request: &Request<'_>, id: RequestId) -> BytesMut {
        let mut out = BytesMut::new();
        request.append(id, &mut out);
        out
    }

    #[test]
    fn frames_from_templates_are_what_the_protocol_writes() {
        let mut speaker = Fencepost::new();
        let ask = Ask {
            key: *b"0123456789abcdef",
            ttl_ms: 30_000,
            wait_ms: 5_000,
        };
        let key = Key::new(&ask.key).unwrap();
        let id = |count: u64, lane: u64| RequestId::new(count << LANE_BITS | lane);
        let mut outs = [BytesMut::new()];
        speaker.acquire(7, &ask, &mut outs);
        let acquire = Acquire {
            wait_ms: 5_000,
            ..Acquire::exclusive(key, Lease::Ttl { ttl_ms: 30_000 })
        };
        assert_eq!(outs[0], encoded(&Request::Acquire(acquire), id(2, 7)));

        outs[0].clear();
        speaker.release(9, &ask.key, 77, &mut outs);
        let fence = Fence::new(77).unwrap();
        let release = Request::Release { key, fence };
        assert_eq!(outs[0], encoded(&release, id(3, 9)));
    }

    #[test]
    fn answers_name_their_lane() {
        let mut speaker = Fencepost::new();
        let mut bytes = BytesMut::new();
        let granted = Reply::Granted {
            fence: Fence::new(12).unwrap(),
            ttl_ms: 1,
            hold_count: 1,
        };
        granted.append(RequestId::new(5 << LANE_BITS | 3), &mut bytes);
        let mut unread = &bytes[..];
        let answer = speaker.read(0, &mut unread, &mut []).unwrap();
        assert_eq!(answer, Some(Answer::Granted { lane: 3, fence: 12 }));
        assert_eq!(speaker.read(0, &mut unread, &mut []).unwrap(), None);
    }
}
