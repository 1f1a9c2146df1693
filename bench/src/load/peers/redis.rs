//! Redis and Valkey: `SET key owner NX PX ttl`, compare-and-delete by script; with a fence, one
//! script for the acquire too.
//!
//! There is no queue: a refused contender tries again later, or listens for a message that a
//! release publishes. Scripts are loaded once per connection and called by their hash.

use super::Started;
use super::child::{Process, free_address};
use super::resp::{self, Value};
use crate::load::speaker::{Answer, Ask, KEY_BYTES, Speaker};
use crate::load::stream::Stream;
use bytes::{BufMut, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

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

/// How long a replica may take until it has what its master has.
const REPLICA_TIMEOUT: Duration = Duration::from_secs(15);

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
    /// Whether every write is followed by a WAIT, and an answer is one only when the replica has
    /// what was written.
    waits: bool,
    /// The answer whose WAIT is still under way. At most one: the next reply is the WAIT's.
    unreplicated: Option<Answer>,
}

impl Redis {
    pub(crate) fn new(is_fenced: bool, listens: bool) -> Self {
        Redis {
            is_fenced,
            listens,
            waits: false,
            unreplicated: None,
            release_hash: String::new(),
            acquire_hash: String::new(),
            renew_hash: String::new(),
            under_way: VecDeque::new(),
        }
    }

    /// Every write waits for one replica.
    pub(crate) fn waiting(listens: bool) -> Self {
        Redis {
            waits: true,
            ..Self::new(false, listens)
        }
    }

    /// Ends a request: what the replies to it will be about, and the WAIT.
    #[inline]
    fn sent(&mut self, lane: u32, op: Op, out: &mut BytesMut) {
        self.under_way.push_back((lane, op));
        if self.waits {
            out.put_slice(WAIT);
        }
    }
}

/// `WAIT 1 0`: answers when one replica has everything that this connection wrote.
const WAIT: &[u8] = b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n";

/// Starts Redis or Valkey, keeping nothing on disk: the fastest it can be.
/// `appendfsync`: whether, and how, every change goes to disk.
pub(super) fn start(
    program: &str,
    directory: &Path,
    count: usize,
    appendfsync: Option<&str>,
) -> io::Result<Started> {
    let (mut addresses, mut processes) = (Vec::new(), Vec::new());
    for number in 0..count {
        let log = format!("{program}-{number}.log");
        let (address, process) = start_one(program, directory, &log, appendfsync, &[])?;
        addresses.push(address);
        processes.push(process);
    }
    Ok((addresses, processes))
}

/// Starts a server with one replica, both keeping nothing on disk. The address is the server's.
pub(super) fn start_with_replica(program: &str, directory: &Path) -> io::Result<Started> {
    // Both are held still while others are measured, and must not take each other for dead then.
    let patient = ["--repl-timeout", "3600"];
    // Without this a master waits for more replicas before it sends them anything.
    let at_once = [&patient[..], &["--repl-diskless-sync-delay", "0"]].concat();
    let (address, master) = start_one(program, directory, "master.log", None, &at_once)?;
    let port = address.port().to_string();
    let replicates = [&patient[..], &["--replicaof", "127.0.0.1", &port]].concat();
    let (_, replica) = start_one(program, directory, "replica.log", None, &replicates)?;
    // Until its first acknowledgement, which takes a second, a replica is sent nothing. So there
    // must be something to wait for.
    let mut stream = TcpStream::connect(address)?;
    resp::call(&mut stream, &[b"SET", b"ready", b"1"], 1)?;
    let patience_ms = REPLICA_TIMEOUT.as_millis().to_string();
    if resp::call(&mut stream, &[b"WAIT", b"1", patience_ms.as_bytes()], 1)? != "1" {
        return Err(io::Error::other("the replica does not replicate"));
    }
    Ok((vec![address], vec![master, replica]))
}

pub(super) fn start_one(
    program: &str,
    directory: &Path,
    log: &str,
    appendfsync: Option<&str>,
    others: &[&str],
) -> io::Result<(SocketAddr, Process)> {
    let address = free_address()?;
    let is_kept = if appendfsync.is_some() { "yes" } else { "no" };
    let (port, path) = (address.port().to_string(), directory.to_string_lossy());
    let arguments = [
        ("--port", port.as_str()),
        ("--bind", "127.0.0.1"),
        ("--save", ""),
        ("--appendonly", is_kept),
        ("--appendfsync", appendfsync.unwrap_or("no")),
        ("--dir", &path),
    ];
    let arguments = arguments
        .into_iter()
        .flat_map(|(name, value)| [name, value]);
    let arguments = arguments.chain(others.iter().copied());
    let arguments: Vec<String> = arguments.map(str::to_owned).collect();
    let mut process = Process::start(Path::new(program), &arguments, &directory.join(log))?;
    process.wait_for(address)?;
    Ok((address, process))
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
fn load(stream: &mut Stream, script: &str) -> io::Result<String> {
    let hash = resp::call(stream, &[b"SCRIPT", b"LOAD", script.as_bytes()], 1)?;
    if hash.len() != 40 {
        return Err(io::Error::other(format!("{hash:?} is no hash of a script")));
    }
    Ok(hash)
}

/// Loads the compare-and-delete.
pub(super) fn load_release(stream: &mut Stream) -> io::Result<String> {
    load(stream, RELEASE)
}

/// Loads the compare-and-prolong.
pub(super) fn load_renew(stream: &mut Stream) -> io::Result<String> {
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
    fn open(&mut self, streams: &mut [Stream], _: &[u32]) -> io::Result<()> {
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
        self.sent(lane, Op::Acquire, &mut outs[0]);
    }

    #[inline]
    fn release(&mut self, lane: u32, key: &[u8; KEY_BYTES], _: u64, outs: &mut [BytesMut]) {
        append_release(&mut outs[0], &self.release_hash, lane, key);
        self.sent(lane, Op::Release, &mut outs[0]);
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
        self.sent(lane, Op::Renew, &mut outs[0]);
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
            if let Some(answer) = self.unreplicated.take() {
                return match value {
                    Value::Integer(1..) => Ok(Some(answer)),
                    other => Err(format!("{other:?} answers a WAIT")),
                };
            }
            let Some((lane, op)) = self.under_way.pop_front() else {
                return Err(format!("{value:?} answers nothing"));
            };
            let answer = match (op, value) {
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
            };
            if !self.waits {
                return Ok(Some(answer));
            }
            self.unreplicated = Some(answer);
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

    #[test]
    fn an_answer_counts_when_the_replica_has_it() {
        let mut speaker = Redis::waiting(false);
        let ask = Ask {
            key: *b"0123456789abcdef",
            ttl_ms: 1_000,
            wait_ms: 0,
        };
        let mut outs = [BytesMut::new()];
        speaker.acquire(7, &ask, &mut outs);
        let mut wait = BytesMut::new();
        resp::append(&mut wait, &[b"WAIT", b"1", b"0"]);
        assert!(outs[0].ends_with(&wait));
        let mut read = |bytes: &[u8]| speaker.read(0, &mut &bytes[..], &mut []);
        assert_eq!(read(b"+OK\r\n"), Ok(None));
        let granted = Answer::Granted { lane: 7, fence: 0 };
        assert_eq!(read(b":1\r\n"), Ok(Some(granted)));

        speaker.release(7, &ask.key, 0, &mut outs);
        let mut read = |bytes: &[u8]| speaker.read(0, &mut &bytes[..], &mut []);
        assert!(read(b":1\r\n:0\r\n").is_err(), "no replica has it");
    }
}
