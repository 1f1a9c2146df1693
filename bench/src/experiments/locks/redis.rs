//! Redis, as its documentation has it: `SET NX PX` with a random owner, compare-and-delete and
//! compare-and-prolong by script. The fence is a counter that the acquire increments in the same
//! script. A client that finds the lock taken tries again.

use super::{Lock, Wish};
use crate::load::peers::resp;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Takes the lock and the next fence, or neither.
const ACQUIRE: &str = "if redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then \
     return redis.call('INCR',KEYS[2]) end return 0";

/// Gives the lock back if it is still ours.
const RELEASE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

/// Prolongs the lock if it is still ours.
const RENEW: &str = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0";

/// Between two attempts.
const RETRY: Duration = Duration::from_millis(20);

/// A lease is prolonged when this fraction of it has passed, as Fencepost's client does.
const RENEW_FRACTION: u32 = 3;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Redis {
    address: SocketAddr,
    stream: TcpStream,
    owner: String,
    held: Option<Held>,
}

struct Held {
    key: String,
    /// Set when it is not to be prolonged any more.
    is_over: Arc<AtomicBool>,
}

impl Redis {
    /// `owner` must be unique.
    pub(crate) fn connect(address: SocketAddr, owner: &str) -> Result<Self, String> {
        Self::connect_within(address, owner, PATIENCE)
    }

    /// The same, with another patience for answers.
    pub(crate) fn connect_within(
        address: SocketAddr,
        owner: &str,
        patience: Duration,
    ) -> Result<Self, String> {
        Ok(Redis {
            address,
            stream: open(address, patience)?,
            owner: owner.to_owned(),
            held: None,
        })
    }

    /// Asks once. The fence; `None`: the lock is held.
    pub(crate) fn try_acquire(&mut self, key: &str, ttl: Duration) -> Result<Option<u64>, String> {
        let counter = format!("fence:{key}");
        let ttl_ms = ttl.as_millis().to_string();
        let words = ["EVAL", ACQUIRE, "2", key, &counter, &self.owner, &ttl_ms];
        match call(&mut self.stream, &words)?.parse() {
            Ok(0) => Ok(None),
            Ok(fence) => Ok(Some(fence)),
            Err(_) => Err("redis: a fence is a number".to_owned()),
        }
    }

    /// Compares and deletes. Whether the lock was still ours.
    pub(crate) fn release_key(&mut self, key: &str) -> Result<bool, String> {
        let words = ["EVAL", RELEASE, "1", key, &self.owner];
        Ok(call(&mut self.stream, &words)? == "1")
    }

    /// Any command of one reply, as text.
    pub(crate) fn command(&mut self, words: &[&str]) -> Result<String, String> {
        call(&mut self.stream, words)
    }

    /// Prolongs the lock from a thread of its own, until it is over or lost.
    fn renew_in_background(&self, wish: &Wish, is_over: Arc<AtomicBool>) -> Result<(), String> {
        let mut stream = open(self.address, PATIENCE)?;
        let (key, owner, ttl) = (wish.key.clone(), self.owner.clone(), wish.ttl);
        std::thread::spawn(move || {
            let ttl_ms = ttl.as_millis().to_string();
            loop {
                std::thread::sleep(ttl / RENEW_FRACTION);
                let words = ["EVAL", RENEW, "1", &key, &owner, &ttl_ms];
                if is_over.load(Ordering::Relaxed)
                    || call(&mut stream, &words) != Ok("1".to_owned())
                {
                    return;
                }
            }
        });
        Ok(())
    }
}

fn open(address: SocketAddr, patience: Duration) -> Result<TcpStream, String> {
    let opened = TcpStream::connect_timeout(&address, patience).and_then(|stream| {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(stream)
    });
    opened.map_err(|error| format!("redis: {error}"))
}

fn call(stream: &mut TcpStream, words: &[&str]) -> Result<String, String> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    resp::call(stream, &words, 1).map_err(|error| format!("redis: {error}"))
}

impl Lock for Redis {
    fn acquire(&mut self, wish: &Wish) -> Result<Option<u64>, String> {
        let until = Instant::now() + wish.wait;
        loop {
            if let Some(fence) = self.try_acquire(&wish.key, wish.ttl)? {
                let is_over = Arc::new(AtomicBool::new(false));
                if wish.is_renewed {
                    self.renew_in_background(wish, Arc::clone(&is_over))?;
                }
                self.held = Some(Held {
                    key: wish.key.clone(),
                    is_over,
                });
                return Ok(Some(fence));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(RETRY);
        }
    }

    fn believes(&self) -> Option<bool> {
        None
    }

    fn release(&mut self) -> Result<bool, String> {
        let Some(held) = self.held.take() else {
            return Ok(false);
        };
        held.is_over.store(true, Ordering::Relaxed);
        self.release_key(&held.key)
    }
}
