//! Clients of the Redis port. They take locks with `SET NX PX` and with `LOCK.ACQUIRE`, renew them,
//! give them back, and once in a while delete a lock through a second connection while the server
//! is still busy with the request that took it.
//!
//! They hold exclusive locks only, so that every fence that the server names is one.

use crate::history::{End, Grant, GrantIndex, Recorder, Sighting};
use crate::worker::Shared;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Few enough that clients meet all the time.
const KEY_COUNT: usize = 3;
/// What the names of all keys begin with.
pub(crate) const KEYS: &str = "redis/";
/// And of those that are deleted at once.
pub(crate) const DELETED_KEYS: &str = "redis/deleted/";
const TTL_MS: std::ops::Range<u64> = 200..1_500;
const WAIT_MS_MAX: u64 = 300;
/// No answer within this: connect again.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);
/// Keeps the server busy behind a request.
const PINGS: usize = 300;
/// How often a key is deleted that is not there yet.
const DELETIONS_MAX: usize = 2_000;

/// The connection is of no use any more.
struct Broken;

/// One client of the Redis port.
pub struct RedisWorker {
    /// Where the server is, or the nodes of a cluster are.
    pub addresses: Vec<SocketAddr>,
    /// What it is called.
    pub name: Arc<str>,
    /// A lease outlives a kill for its holder as well. Otherwise the next server may only keep
    /// others from it: clients of this port claim nothing.
    pub leases_survive: bool,
    /// Choices come from this.
    pub random: fastrand::Rng,
}

/// What was granted, and by which words it is given back.
struct Held {
    grant: GrantIndex,
    fence: u64,
    key: Arc<str>,
    owner: String,
    is_set: bool,
}

impl RedisWorker {
    /// Runs until the run stops.
    pub fn run(mut self, shared: &Shared) {
        let addresses = self.addresses.clone();
        for &address in addresses.iter().cycle() {
            if shared.is_stopping() {
                return;
            }
            // Every error is the end of a connection, and the next one is opened here.
            if let (Ok(mut one), Ok(mut other)) = (connect(address), connect(address)) {
                while !shared.is_stopping() {
                    if self.act(&mut one, &mut other, &shared.recorder).is_err() {
                        break;
                    }
                    std::thread::sleep(PAUSE);
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn act(
        &mut self,
        one: &mut Connection,
        other: &mut Connection,
        recorder: &Recorder,
    ) -> Result<(), Broken> {
        let key: Arc<str> = format!("{KEYS}{}", self.random.usize(..KEY_COUNT)).into();
        let taken = match self.random.u8(..10) {
            0 => return look(one, recorder, &key).map(|_| ()),
            1..3 => return self.delete_what_is_just_taken(one, other, recorder),
            3..6 => self.set(one, recorder, key)?,
            _ => self.acquire(one, recorder, key)?,
        };
        match taken {
            Some(held) => self.hold(one, recorder, held),
            None => Ok(()),
        }
    }

    /// `SET NX PX`, and the fence of what is there afterwards.
    fn set(
        &mut self,
        connection: &mut Connection,
        recorder: &Recorder,
        key: Arc<str>,
    ) -> Result<Option<Held>, Broken> {
        let (owner, ttl_ms) = (self.owner(), self.random.u64(TTL_MS));
        let begun = recorder.now();
        connection.send(&set_and_fence(&key, &owner, ttl_ms))?;
        let (is_set, fence) = connection.set_and_fence()?;
        Ok(self.taken(recorder, key, owner, ttl_ms, begun, is_set, fence))
    }

    /// `LOCK.ACQUIRE`, with a wait or without.
    fn acquire(
        &mut self,
        connection: &mut Connection,
        recorder: &Recorder,
        key: Arc<str>,
    ) -> Result<Option<Held>, Broken> {
        let (owner, ttl_ms) = (self.owner(), self.random.u64(TTL_MS));
        let wait_ms = self.random.u64(1..WAIT_MS_MAX).to_string();
        let ttl = ttl_ms.to_string();
        let mut words = vec!["LOCK.ACQUIRE", &key, &owner, &ttl];
        if self.random.bool() {
            words.extend(["WAIT", &wait_ms]);
        }
        let begun = recorder.now();
        let Some(fence) = connection.ask(&words)?.first_number() else {
            return Ok(None);
        };
        let taken = self.taken(recorder, key, owner, ttl_ms, begun, true, Some(fence));
        Ok(taken.map(|held| Held {
            is_set: false,
            ..held
        }))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what was asked, and what was answered"
    )]
    fn taken(
        &self,
        recorder: &Recorder,
        key: Arc<str>,
        owner: String,
        ttl_ms: u64,
        begun: u64,
        is_taken: bool,
        fence: Option<u64>,
    ) -> Option<Held> {
        let fence = fence?;
        let answered = recorder.now();
        if !is_taken {
            saw(recorder, &key, fence, begun);
            return None;
        }
        let grant = recorder.granted(Grant {
            key: key.clone(),
            fence,
            is_shared: false,
            holder: self.name.clone(),
            ttl_us: ttl_ms * 1_000,
            begun,
            answered,
            promises: vec![promise(begun, ttl_ms)],
            end: End::Open,
        });
        Some(Held {
            grant,
            fence,
            key,
            owner,
            is_set: true,
        })
    }

    /// Keeps a lock for a while, renews it perhaps, and gives it back.
    fn hold(
        &mut self,
        connection: &mut Connection,
        recorder: &Recorder,
        held: Held,
    ) -> Result<(), Broken> {
        let grant = held.grant;
        let renewals = if held.is_set { 0 } else { self.random.u8(..4) };
        for _ in 0..renewals {
            std::thread::sleep(Duration::from_millis(self.random.u64(..150)));
            let ttl_ms = self.random.u64(TTL_MS);
            let begun = recorder.now();
            let ttl = ttl_ms.to_string();
            // Without an answer it is not known whether the promise was shortened.
            recorder.ended(grant, End::Abandoned { begun });
            let answer = connection.ask(&["LOCK.RENEW", &held.key, &held.owner, &ttl])?;
            match answer.first_number() {
                Some(fence) if fence == held.fence => {
                    recorder.ended(grant, End::Open);
                    recorder.promised_anew(grant, promise(begun, ttl_ms));
                }
                _ => {
                    recorder.ended(grant, self.lost(recorder, begun));
                    return Ok(());
                }
            }
        }
        std::thread::sleep(Duration::from_millis(self.random.u64(..60)));
        let begun = recorder.now();
        recorder.ended(grant, End::Abandoned { begun });
        let answer = match held.is_set {
            true => connection.ask(&["DELEX", &held.key, "IFEQ", &held.owner])?,
            false => {
                let fence = held.fence.to_string();
                connection.ask(&["LOCK.RELEASE", &held.key, &held.owner, "FENCE", &fence])?
            }
        };
        if matches!(answer, Answer::Number(1)) {
            let answered = recorder.now();
            recorder.ended(grant, End::Released { begun, answered });
        }
        Ok(())
    }

    /// A renewal was refused. Whether that may be depends on what the server promises.
    fn lost(&self, recorder: &Recorder, begun: u64) -> End {
        match self.leases_survive {
            true => End::Lost {
                at: recorder.now(),
                by_server: true,
                why: "its renewal was refused".to_owned(),
            },
            false => End::Abandoned { begun },
        }
    }

    /// Takes a key of its own in front of many requests on one connection, and deletes it meanwhile
    /// on another: the server may have carried out both before it has written down the first.
    fn delete_what_is_just_taken(
        &mut self,
        one: &mut Connection,
        other: &mut Connection,
        recorder: &Recorder,
    ) -> Result<(), Broken> {
        let key: Arc<str> = format!("{DELETED_KEYS}{}", self.name).into();
        if look(other, recorder, &key)? {
            // Left over from a life whose answer got lost.
            other.ask(&["DEL", &key])?;
        }
        let (owner, ttl_ms) = (self.owner(), TTL_MS.end);
        let mut bytes = set_and_fence(&key, &owner, ttl_ms);
        (0..PINGS).for_each(|_| append(&["PING"], &mut bytes));
        let begun = recorder.now();
        one.send(&bytes)?;
        let mut deleted = None;
        for _ in 0..DELETIONS_MAX {
            let asked = recorder.now();
            if matches!(other.ask(&["DEL", &key])?, Answer::Number(1)) {
                deleted = Some((asked, recorder.now()));
                break;
            }
        }
        let (is_set, fence) = one.set_and_fence()?;
        for _ in 0..PINGS {
            one.read()?;
        }
        let held = self.taken(recorder, key, owner, ttl_ms, begun, is_set, fence);
        if let (Some(held), Some((begun, answered))) = (held, deleted) {
            recorder.ended(held.grant, End::Released { begun, answered });
        }
        Ok(())
    }

    /// A value that no other lock has.
    fn owner(&mut self) -> String {
        format!("{}/{:016x}", self.name, self.random.u64(..))
    }
}

fn connect(address: SocketAddr) -> Result<Connection, Broken> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|_| Broken)?;
    for set in [
        stream.set_read_timeout(Some(PATIENCE)),
        stream.set_write_timeout(Some(PATIENCE)),
        stream.set_nodelay(true),
    ] {
        set.map_err(|_| Broken)?;
    }
    Ok(Connection {
        stream: BufReader::new(stream),
    })
}

/// Until when a lock is certainly held that was asked for then: two milliseconds and a hundredth
/// less than it was asked for, as the guards of the native client reckon.
fn promise(begun: u64, ttl_ms: u64) -> u64 {
    let ttl_us = ttl_ms * 1_000;
    begun + ttl_us - 2_000 - ttl_us / 100
}

/// Asks under which fence a key is held. `true`: it is.
fn look(connection: &mut Connection, recorder: &Recorder, key: &Arc<str>) -> Result<bool, Broken> {
    let begun = recorder.now();
    let Answer::Number(fence) = connection.ask(&["LOCK.FENCE", key])? else {
        return Ok(false);
    };
    saw(recorder, key, fence, begun);
    Ok(true)
}

fn saw(recorder: &Recorder, key: &Arc<str>, fence: u64, begun: u64) {
    recorder.saw(Sighting {
        key: key.clone(),
        fence,
        is_shared: false,
        begun,
        answered: recorder.now(),
    });
}

/// One transaction, so that the fence is that of what was set, or of what was in its way.
fn set_and_fence(key: &str, owner: &str, ttl_ms: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(&["MULTI"], &mut bytes);
    append(
        &["SET", key, owner, "NX", "PX", &ttl_ms.to_string()],
        &mut bytes,
    );
    append(&["LOCK.FENCE", key], &mut bytes);
    append(&["EXEC"], &mut bytes);
    bytes
}

fn append(words: &[&str], bytes: &mut Vec<u8>) {
    bytes.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
}

/// What the server says.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Nil,
    Number(u64),
    Text(String),
    Array(Vec<Answer>),
    /// Recovering, shutting down, or too much at once.
    Refusal,
}

impl Answer {
    fn first_number(&self) -> Option<u64> {
        match self {
            Answer::Array(answers) => answers.first()?.first_number(),
            Answer::Number(number) => Some(*number),
            _ => None,
        }
    }
}

struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn ask(&mut self, words: &[&str]) -> Result<Answer, Broken> {
        let mut bytes = Vec::new();
        append(words, &mut bytes);
        self.send(&bytes)?;
        self.read()
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let sent = self.stream.get_mut().write_all(bytes);
        sent.map_err(|_| Broken)
    }

    /// The answers to [`set_and_fence`]: whether it was set, and the fence of what is there.
    fn set_and_fence(&mut self) -> Result<(bool, Option<u64>), Broken> {
        for _ in ["MULTI", "SET", "LOCK.FENCE"] {
            self.read()?;
        }
        match self.read()? {
            Answer::Array(answers) => match &answers[..] {
                [set, fence] => Ok((matches!(set, Answer::Text(_)), fence.first_number())),
                _ => Err(Broken),
            },
            _ => Ok((false, None)),
        }
    }

    fn read(&mut self) -> Result<Answer, Broken> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).map_err(|_| Broken)?;
        if read == 0 || !line.is_ascii() {
            return Err(Broken);
        }
        let (kind, rest) = line.trim_end().split_at_checked(1).ok_or(Broken)?;
        match kind {
            "$" | "*" if rest == "-1" => Ok(Answer::Nil),
            "$" => {
                let bytes: usize = rest.parse().map_err(|_| Broken)?;
                let mut text = vec![0; bytes + 2];
                self.stream.read_exact(&mut text).map_err(|_| Broken)?;
                let text = String::from_utf8_lossy(&text[..bytes]);
                Ok(Answer::Text(text.into_owned()))
            }
            "*" => {
                let count: usize = rest.parse().map_err(|_| Broken)?;
                let answers: Result<Vec<Answer>, Broken> =
                    (0..count).map(|_| self.read()).collect();
                Ok(Answer::Array(answers?))
            }
            ":" => Ok(Answer::Number(rest.parse().map_err(|_| Broken)?)),
            "+" => Ok(Answer::Text(rest.to_owned())),
            // Another node leads.
            "-" if rest.starts_with("READONLY") => Err(Broken),
            "-" => Ok(Answer::Refusal),
            _ => Err(Broken),
        }
    }
}
