//! Redis and Valkey: `SET key owner NX PX ttl`, compare-and-delete by script; with a fence, one
//! script for the acquire too.
//!
//! There is no queue: a refused contender tries again later, or listens for a message that a
//! release publishes. Scripts are loaded once per connection and called by their hash.

use super::resp::{self, Value};
use crate::load::speaker::{Answer, Ask, KEY_BYTES, Speaker};
use bytes::{BufMut, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;

/// Gives the lock back if it is still ours.
const RELEASE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

/// The same, and tells the listeners.
const RELEASE_AND_TELL: &str = "if redis.call('GET',KEYS[1])==ARGV[1] then redis.call('DEL',KEYS[1]) \
     redis.call('PUBLISH','freed','') return 1 end return 0";

/// Takes the lock and the next fence, or neither.
const ACQUIRE_FENCED: &str = "if redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then \
     return redis.call('INCR',KEYS[2]) end return false";

/// Prolongs the lock if it is still ours.
const RENEW: &str = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0";

/// What is told apart when replies come, which they do in the order of the requests.
#[derive(Clone, Copy)]
enum Op {
    Acquire,
    Release,
    Renew,
}

pub(crate) struct Redis {
    is_fenced: bool,
    /// Whether a second connection listens for releases.
    listens: bool,
    release_hash: String,
    acquire_hash: String,
    renew_hash: String,
    under_way: VecDeque<(u32, Op)>,
}

impl Redis {
    pub(crate) fn new(is_fenced: bool, listens: bool) -> Self {
        Redis {
            is_fenced,
            listens,
            release_hash: String::new(),
            acquire_hash: String::new(),
            renew_hash: String::new(),
            under_way: VecDeque::new(),
        }
    }
}

/// The owner of a lock: the lane, in as many digits as a random token of a real client would have.
fn owner(lane: u32) -> [u8; 16] {
    let mut owner = *b"bench-0000000000";
    let mut rest = lane;
    for digit in owner[6..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    owner
}

/// Appends `SET key owner NX PX ttl`.
#[inline]
pub(super) fn append_set(out: &mut BytesMut, lane: u32, ask: &Ask) {
    out.put_slice(b"*6\r\n$3\r\nSET\r\n$16\r\n");
    out.put_slice(&ask.key);
    out.put_slice(b"\r\n$16\r\n");
    out.put_slice(&owner(lane));
    out.put_slice(b"\r\n$2\r\nNX\r\n$2\r\nPX\r\n");
    append_number(out, ask.ttl_ms);
}

/// Appends the call of a compare-and-delete.
#[inline]
pub(super) fn append_release(out: &mut BytesMut, hash: &str, lane: u32, key: &[u8; KEY_BYTES]) {
    out.put_slice(b"*5\r\n$7\r\nEVALSHA\r\n$40\r\n");
    out.put_slice(hash.as_bytes());
    out.put_slice(b"\r\n$1\r\n1\r\n$16\r\n");
    out.put_slice(key);
    out.put_slice(b"\r\n$16\r\n");
    out.put_slice(&owner(lane));
    out.put_slice(b"\r\n");
}

/// Appends the call of a compare-and-prolong.
#[inline]
pub(super) fn append_renew(
    out: &mut BytesMut,
    hash: &str,
    lane: u32,
    key: &[u8; KEY_BYTES],
    ttl_ms: u32,
) {
    out.put_slice(b"*6\r\n$7\r\nEVALSHA\r\n$40\r\n");
    out.put_slice(hash.as_bytes());
    out.put_slice(b"\r\n$1\r\n1\r\n$16\r\n");
    out.put_slice(key);
    out.put_slice(b"\r\n$16\r\n");
    out.put_slice(&owner(lane));
    out.put_slice(b"\r\n");
    append_number(out, ttl_ms);
}

/// Loads a script. Returns the hash it is called by.
fn load(stream: &mut TcpStream, script: &str) -> io::Result<String> {
    let hash = resp::call(stream, &[b"SCRIPT", b"LOAD", script.as_bytes()], 1)?;
    if hash.len() != 40 {
        return Err(io::Error::other(format!("{hash:?} is no hash of a script")));
    }
    Ok(hash)
}

/// Loads the compare-and-delete.
pub(super) fn load_release(stream: &mut TcpStream) -> io::Result<String> {
    load(stream, RELEASE)
}

/// Loads the compare-and-prolong.
pub(super) fn load_renew(stream: &mut TcpStream) -> io::Result<String> {
    load(stream, RENEW)
}

/// Appends a number as one word of a command.
#[inline]
fn append_number(out: &mut BytesMut, number: u32) {
    let mut digits = [0; 10];
    let (mut rest, mut start) = (number, digits.len());
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let digits = &digits[start..];
    if digits.len() < 10 {
        out.put_slice(&[b'$', b'0' + digits.len() as u8]);
    } else {
        out.put_slice(b"$10");
    }
    out.put_slice(b"\r\n");
    out.put_slice(digits);
    out.put_slice(b"\r\n");
}

impl Speaker for Redis {
    fn open(&mut self, streams: &mut [TcpStream], _: &[u32]) -> io::Result<()> {
        let release = match self.listens {
            true => RELEASE_AND_TELL,
            false => RELEASE,
        };
        self.release_hash = load(&mut streams[0], release)?;
        self.acquire_hash = load(&mut streams[0], ACQUIRE_FENCED)?;
        self.renew_hash = load_renew(&mut streams[0])?;
        if self.listens {
            resp::call(&mut streams[1], &[b"SUBSCRIBE", b"freed"], 4)?;
        }
        Ok(())
    }

    #[inline]
    fn acquire(&mut self, lane: u32, ask: &Ask, outs: &mut [BytesMut]) {
        let out = &mut outs[0];
        if self.is_fenced {
            out.put_slice(b"*7\r\n$7\r\nEVALSHA\r\n$40\r\n");
            out.put_slice(self.acquire_hash.as_bytes());
            out.put_slice(b"\r\n$1\r\n2\r\n$16\r\n");
            out.put_slice(&ask.key);
            out.put_slice(b"\r\n$22\r\nfence:");
            out.put_slice(&ask.key);
            out.put_slice(b"\r\n$16\r\n");
            out.put_slice(&owner(lane));
            out.put_slice(b"\r\n");
            append_number(out, ask.ttl_ms);
        } else {
            append_set(out, lane, ask);
        }
        self.under_way.push_back((lane, Op::Acquire));
    }

    #[inline]
    fn release(&mut self, lane: u32, key: &[u8; KEY_BYTES], _: u64, outs: &mut [BytesMut]) {
        append_release(&mut outs[0], &self.release_hash, lane, key);
        self.under_way.push_back((lane, Op::Release));
    }

    fn renew(
        &mut self,
        lane: u32,
        key: &[u8; KEY_BYTES],
        _: u64,
        ttl_ms: u32,
        outs: &mut [BytesMut],
    ) {
        append_renew(&mut outs[0], &self.renew_hash, lane, key, ttl_ms);
        self.under_way.push_back((lane, Op::Renew));
    }

    const RENEWS_ALL: bool = false;

    #[inline]
    fn read(
        &mut self,
        connection: usize,
        unread: &mut &[u8],
        _: &mut [BytesMut],
    ) -> Result<Option<Answer>, String> {
        while let Some(value) = resp::split(unread)? {
            if connection == 1 {
                // A message is an array of three; what is in it we know.
                if let Value::Array(_) = value {
                    return Ok(Some(Answer::Freed));
                }
                continue;
            }
            let Some((lane, op)) = self.under_way.pop_front() else {
                return Err(format!("{value:?} answers nothing"));
            };
            return Ok(Some(match (op, value) {
                (Op::Acquire, Value::Simple(_)) => Answer::Granted { lane, fence: 0 },
                (Op::Acquire, Value::Integer(fence)) => Answer::Granted {
                    lane,
                    fence: fence as u64,
                },
                (Op::Acquire, Value::Nil) => Answer::Held { lane },
                (Op::Release, Value::Integer(1)) => Answer::Released { lane },
                (Op::Renew, Value::Integer(1)) => Answer::Renewed { lane },
                (Op::Release | Op::Renew, Value::Integer(0)) => Answer::NotHeld { lane },
                _ => Answer::Failed { lane },
            }));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_written_by_hand_are_what_the_encoder_writes() {
        let ask = Ask {
            key: *b"0123456789abcdef",
            ttl_ms: 30_000,
            wait_ms: 0,
        };
        let (mut ours, mut plain) = (BytesMut::new(), BytesMut::new());
        append_set(&mut ours, 42, &ask);
        let words: [&[u8]; 6] = [
            b"SET",
            &ask.key,
            b"bench-0000000042",
            b"NX",
            b"PX",
            b"30000",
        ];
        resp::append(&mut plain, &words);
        assert_eq!(ours, plain);

        for number in [0, 7, 4_294_967_295] {
            let (mut ours, mut plain) = (BytesMut::new(), BytesMut::new());
            append_number(&mut ours, number);
            resp::append(&mut plain, &[number.to_string().as_bytes()]);
            assert_eq!(&ours[..], &plain[4..]);
        }
    }

    #[test]
    fn replies_answer_requests_in_their_order() {
        let mut speaker = Redis::new(true, false);
        speaker.under_way.extend([
            (1, Op::Acquire),
            (2, Op::Acquire),
            (1, Op::Release),
            (3, Op::Release),
        ]);
        let mut unread = &b":17\r\n$-1\r\n:1\r\n:0\r\n"[..];
        let mut next = || speaker.read(0, &mut unread, &mut []).unwrap();
        assert_eq!(next(), Some(Answer::Granted { lane: 1, fence: 17 }));
        assert_eq!(next(), Some(Answer::Held { lane: 2 }));
        assert_eq!(next(), Some(Answer::Released { lane: 1 }));
        assert_eq!(next(), Some(Answer::NotHeld { lane: 3 }));
        assert_eq!(next(), None);
    }
}
