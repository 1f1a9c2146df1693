//! etcd: its lock service, under a lease, through its JSON gateway. A client that finds the lock
//! taken queues at the server. The fence is the revision at which the lock became ours.

use super::{Lock, Wish};
use crate::http;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the server may take to answer, besides the wait in line.
const PATIENCE: Duration = Duration::from_secs(10);

/// A lease is prolonged when this fraction of it has passed, as Fencepost's client does.
const RENEW_FRACTION: u32 = 3;

pub(crate) struct Etcd {
    address: SocketAddr,
    held: Option<Held>,
}

struct Held {
    /// What etcd calls the lock that we hold: the key with the lease's number behind it.
    key: String,
    is_over: Arc<AtomicBool>,
}

impl Etcd {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Etcd {
            address,
            held: None,
        }
    }
}

/// Why there is no answer.
enum Failure {
    TimedOut,
    Other(String),
}

impl From<Failure> for String {
    fn from(failure: Failure) -> String {
        match failure {
            Failure::TimedOut => "etcd: no answer".to_owned(),
            Failure::Other(why) => why,
        }
    }
}

fn call(
    address: SocketAddr,
    path: &str,
    question: &Value,
    patience: Duration,
) -> Result<Value, Failure> {
    let answer = http::ask(address, "POST", path, &[], &question.to_string(), patience);
    let answer = answer.map_err(|error| match error.kind() {
        // What a socket says whose time for reading is over.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::TimedOut,
        _ => Failure::Other(format!("etcd: {error}")),
    })?;
    let other = |why: String| Failure::Other(format!("etcd: {why}: {}", answer.body));
    let value = serde_json::from_str(&answer.body).map_err(|error| other(error.to_string()))?;
    match answer.status {
        200 => Ok(value),
        status => Err(other(status.to_string())),
    }
}

impl Etcd {
    /// Waits for the lock for as long as `patience`; what is asked after that is withdrawn with the
    /// connection.
    pub(crate) fn acquire_within(
        &mut self,
        wish: &Wish,
        patience: Duration,
    ) -> Result<Option<u64>, String> {
        let lease = grant(self.address, wish.ttl, PATIENCE)?;
        let is_over = Arc::new(AtomicBool::new(false));
        if wish.wait > wish.ttl || wish.is_renewed {
            // A waiter must keep its lease alive; a holder, only if it was asked to.
            keep_alive(self.address, &lease, wish.ttl, Arc::clone(&is_over));
        }
        let question = json!({ "name": base64(wish.key.as_bytes()), "lease": lease });
        let locked = match call(self.address, "/v3/lock/lock", &question, patience) {
            Ok(locked) => locked,
            Err(Failure::TimedOut) => return Ok(None),
            Err(Failure::Other(why)) => return Err(why),
        };
        if !wish.is_renewed {
            is_over.store(true, Ordering::Relaxed);
        }
        self.held = Some(Held {
            key: locked["key"]
                .as_str()
                .ok_or("etcd: a lock has a key")?
                .to_owned(),
            is_over,
        });
        revision(&locked).map(Some)
    }
}

/// etcd without a queue: a key under a lease, put if it is not there. One transaction decides.
pub(crate) struct Keys {
    address: SocketAddr,
    patience: Duration,
}

impl Keys {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Keys::within(address, PATIENCE)
    }

    /// The same, with another patience for answers.
    pub(crate) fn within(address: SocketAddr, patience: Duration) -> Self {
        Keys { address, patience }
    }

    /// Asks once. The fence; `None`: the lock is held.
    pub(crate) fn try_acquire(&mut self, key: &str, ttl: Duration) -> Result<Option<u64>, String> {
        let key = base64(key.as_bytes());
        // A look costs no lease.
        if self.call("/v3/kv/range", &json!({ "key": key }))?["count"] == "1" {
            return Ok(None);
        }
        let lease = grant(self.address, ttl, self.patience)?;
        let put = json!({
            "compare": [{ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0" }],
            "success": [{ "request_put": { "key": key, "lease": lease } }],
        });
        let answer = self.call("/v3/kv/txn", &put)?;
        match answer["succeeded"].as_bool() {
            Some(true) => revision(&answer).map(Some),
            _ => Ok(None),
        }
    }

    /// Deletes the key if it is still the one that was put under this fence. Whether it was.
    pub(crate) fn release(&mut self, key: &str, fence: u64) -> Result<bool, String> {
        let key = base64(key.as_bytes());
        let delete = json!({
            "compare": [{ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": fence.to_string() }],
            "success": [{ "request_delete_range": { "key": key } }],
        });
        let answer = self.call("/v3/kv/txn", &delete)?;
        Ok(answer["succeeded"] == true)
    }

    /// Puts a key that lives as long as its lease.
    pub(crate) fn put(&mut self, key: &str, ttl: Duration) -> Result<(), String> {
        let lease = grant(self.address, ttl, self.patience)?;
        let put = json!({ "key": base64(key.as_bytes()), "lease": lease });
        self.call("/v3/kv/put", &put).map(|_| ())
    }

    /// How many keys there are that begin with `prefix`, whose last byte must not be the highest
    /// there is.
    pub(crate) fn count(&mut self, prefix: &str) -> Result<u64, String> {
        let mut end = prefix.as_bytes().to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let range = json!({
            "key": base64(prefix.as_bytes()), "range_end": base64(&end), "count_only": true,
        });
        let answer = self.call("/v3/kv/range", &range)?;
        // A count of zero is left out.
        let count = answer["count"].as_str().unwrap_or("0");
        count
            .parse()
            .map_err(|_| "etcd: a count is a number".to_owned())
    }

    fn call(&self, path: &str, question: &Value) -> Result<Value, String> {
        Ok(call(self.address, path, question, self.patience)?)
    }
}

/// A new lease. Its number.
fn grant(address: SocketAddr, ttl: Duration, patience: Duration) -> Result<String, String> {
    // Leases are whole seconds.
    let seconds = ttl.as_secs_f64().ceil().max(1.0) as u64;
    let question = json!({ "TTL": seconds });
    let granted = call(address, "/v3/lease/grant", &question, patience)?;
    let lease = granted["ID"].as_str();
    Ok(lease.ok_or("etcd: a lease has a number")?.to_owned())
}

/// What an answer says the revision is: the fence of what it granted.
fn revision(answer: &Value) -> Result<u64, String> {
    let revision = answer["header"]["revision"].as_str();
    let revision = revision.and_then(|revision| revision.parse().ok());
    revision.ok_or("etcd: a revision is a number".to_owned())
}

impl Lock for Etcd {
    fn acquire(&mut self, wish: &Wish) -> Result<Option<u64>, String> {
        self.acquire_within(wish, wish.wait + PATIENCE)
    }

    fn believes(&self) -> Option<bool> {
        None
    }

    /// etcd answers the same whether or not there was anything to release, so the key is looked at
    /// first; no other client has it.
    fn release(&mut self) -> Result<bool, String> {
        let Some(held) = self.held.take() else {
            return Ok(false);
        };
        held.is_over.store(true, Ordering::Relaxed);
        let key = json!({ "key": held.key });
        let found = call(self.address, "/v3/kv/range", &key, PATIENCE)?;
        call(self.address, "/v3/lock/unlock", &key, PATIENCE)?;
        Ok(found["count"] == "1")
    }
}

/// Prolongs a lease from a thread of its own, until it is over or lost.
fn keep_alive(address: SocketAddr, lease: &str, ttl: Duration, is_over: Arc<AtomicBool>) {
    let question = json!({ "ID": lease });
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(ttl / RENEW_FRACTION);
            if is_over.load(Ordering::Relaxed)
                || call(address, "/v3/lease/keepalive", &question, PATIENCE).is_err()
            {
                return;
            }
        }
    });
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// As the gateway wants bytes.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for digit in 0..4 {
            let index = bits >> (18 - 6 * digit) & 63;
            text.push(match digit <= chunk.len() {
                true => DIGITS[index as usize] as char,
                false => '=',
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_base64() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
