//! Fills a cluster with long leases, in batches over the Redis port.

use parking_lot::Mutex;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Connections that fill it.
const FILLER_COUNT: usize = 4;

/// Requests on their way on one connection.
const BATCH_LOCKS: usize = 500;

/// Longer than any run.
const TTL_MS: &str = "86400000";

/// How long a lock is held that should have been refused.
const PROBE_TTL_MS: &str = "1000";

/// No answer within this: connect again, perhaps to another node.
const PATIENCE: Duration = Duration::from_secs(5);

/// No batch was answered for so long: the cluster does not take them.
const BATCH_MAX: Duration = Duration::from_secs(60);

const AGAIN: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_secs(1);

/// Has so many locks held. `progress` hears how many are.
pub(crate) fn fill(
    addresses: &[SocketAddr],
    count: usize,
    progress: &mut dyn FnMut(usize),
) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let work = || {
        let mut filler = Filler::new(addresses);
        loop {
            let from = next.fetch_add(BATCH_LOCKS, Ordering::Relaxed);
            if from >= count || failure.lock().is_some() {
                return;
            }
            let keys: Vec<usize> = (from..count.min(from + BATCH_LOCKS)).collect();
            match filler.set(&keys, "filled", TTL_MS) {
                Ok(_) => drop(done.fetch_add(keys.len(), Ordering::Relaxed)),
                Err(why) => *failure.lock() = Some(why),
            }
        }
    };
    std::thread::scope(|scope| {
        let fillers: Vec<_> = (0..FILLER_COUNT).map(|_| scope.spawn(work)).collect();
        let mut told = Instant::now();
        while !fillers.iter().all(|filler| filler.is_finished()) {
            if told.elapsed() >= LOOK {
                told = Instant::now();
                progress(done.load(Ordering::Relaxed));
            }
            std::thread::sleep(AGAIN);
        }
    });
    match failure.into_inner() {
        Some(why) => Err(why),
        None => Ok(()),
    }
}

/// Of these locks, those that another client gets.
pub(crate) fn lost(addresses: &[SocketAddr], locks: &[usize]) -> Result<usize, String> {
    let mut filler = Filler::new(addresses);
    let mut lost = 0;
    for batch in locks.chunks(BATCH_LOCKS) {
        lost += filler.set(batch, "probe", PROBE_TTL_MS)?;
    }
    Ok(lost)
}

/// A connection to the node that leads.
struct Filler<'a> {
    addresses: &'a [SocketAddr],
    /// Which of them it is.
    at: usize,
    stream: Option<BufReader<TcpStream>>,
}

impl<'a> Filler<'a> {
    fn new(addresses: &'a [SocketAddr]) -> Filler<'a> {
        Filler {
            addresses,
            at: 0,
            stream: None,
        }
    }

    /// Asks for these locks until a leader has answered for all of them, and returns how many it
    /// granted. A batch that is repeated finds those that it has got.
    fn set(&mut self, locks: &[usize], value: &str, ttl_ms: &str) -> Result<usize, String> {
        let mut bytes = Vec::new();
        for lock in locks {
            let key = format!("filled/{lock:08}");
            let words = ["SET", &key, value, "NX", "PX", ttl_ms];
            bytes.extend(format!("*{}\r\n", words.len()).bytes());
            for word in words {
                bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
            }
        }
        let begin = Instant::now();
        loop {
            match self.try_set(&bytes, locks.len()) {
                Ok(granted) => return Ok(granted),
                Err(why) if begin.elapsed() > BATCH_MAX => {
                    return Err(format!("locks are not taken for {BATCH_MAX:?}: {why}"));
                }
                Err(_) => {
                    self.stream = None;
                    self.at = (self.at + 1) % self.addresses.len();
                    std::thread::sleep(AGAIN);
                }
            }
        }
    }

    fn try_set(&mut self, bytes: &[u8], count: usize) -> Result<usize, String> {
        let failed = |error: std::io::Error| error.to_string();
        if self.stream.is_none() {
            let address = self.addresses[self.at];
            let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
            stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
            stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
            self.stream = Some(BufReader::new(stream));
        }
        let stream = self.stream.as_mut().expect("it was opened above");
        stream.get_mut().write_all(bytes).map_err(failed)?;
        let mut granted = 0;
        let mut line = String::new();
        for _ in 0..count {
            line.clear();
            stream.read_line(&mut line).map_err(failed)?;
            match line.trim_end() {
                "+OK" => granted += 1,
                "$-1" => {}
                other => return Err(format!("answered {other:?}")),
            }
        }
        Ok(granted)
    }
}
