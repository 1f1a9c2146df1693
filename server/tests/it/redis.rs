//! The Redis port beside the native one: the same locks, the same durability, the same limits. What
//! it says to Redis clients command by command is tested in `tests/redis`, against Redis itself.

use crate::common::{LONG_MS, PATIENCE, Peer, acquire, start_with, until};
use crate::durable::wreck;
use crate::http::{free_port, get};
use protocol::{NO_END_MS, Reply};
use server::Server;
use server::config::{Config, Durability};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A Redis client that knows nothing but how to say things and read answers, which it writes down
/// as Redis's own client does.
pub(crate) struct Redis<S: Read + Write> {
    pub(crate) stream: BufReader<S>,
}

impl Redis<TcpStream> {
    pub(crate) fn connect(server: &Server) -> Self {
        Redis::at(server.redis_addr().expect("it has a Redis port"))
    }

    pub(crate) fn at(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Redis::on(stream)
    }
}

impl<S: Read + Write> Redis<S> {
    pub(crate) fn on(stream: S) -> Self {
        Redis {
            stream: BufReader::new(stream),
        }
    }

    pub(crate) fn send(&mut self, command: &[&str]) {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for argument in command {
            bytes.extend(format!("${}\r\n{argument}\r\n", argument.len()).bytes());
        }
        self.stream.get_mut().write_all(&bytes).unwrap();
    }

    pub(crate) fn read(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "$" | "*" if rest == "-1" => "nil".to_owned(),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned()
            }
            "*" => {
                let elements = (0..rest.parse().unwrap()).map(|_| self.read());
                format!("[{}]", elements.collect::<Vec<_>>().join(" "))
            }
            "+" | ":" | "-" => rest.to_owned(),
            other => panic!("a reply that begins with {other:?}"),
        }
    }

    /// Says one thing, its words parted by spaces, and reads the answer.
    pub(crate) fn say(&mut self, command: &str) -> String {
        self.send(&command.split(' ').collect::<Vec<_>>());
        self.read()
    }

    /// As `say`; `None` if the connection ends before the answer.
    pub(crate) fn try_say(&mut self, command: &str) -> Option<String> {
        self.send(&command.split(' ').collect::<Vec<_>>());
        match self.stream.fill_buf() {
            Ok([_, ..]) => Some(self.read()),
            _ => None,
        }
    }

    pub(crate) fn number(&mut self, command: &str) -> i64 {
        let answer = self.say(command);
        answer
            .parse()
            .unwrap_or_else(|_| panic!("{command}: {answer}"))
    }
}

pub(crate) fn start(change: impl FnOnce(&mut Config)) -> Server {
    start_with(|builder| {
        builder.with(|config| {
            config.redis_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
            // Some peers connect long before they say anything.
            config.hello_timeout = std::time::Duration::from_secs(60);
            change(config);
        })
    })
}

#[test]
fn a_key_taken_through_one_port_is_held_for_the_other() {
    let server = start(|_| {});
    let mut redis = Redis::connect(&server);
    let mut native = Peer::connect(server.local_addr(), "native");

    assert_eq!(redis.say("SET a token NX PX 60000"), "OK");
    let fence = redis.number("LOCK.FENCE a") as u64;
    assert!(native.is_held_under("a", fence));
    assert_eq!(native.queue_length("a"), 0);

    let fence = native.acquire("b", LONG_MS);
    assert_eq!(redis.say("SET b token NX PX 60000"), "nil");
    assert_eq!(redis.number("LOCK.FENCE b") as u64, fence);
    assert!(redis.say("GET b").ends_with(&format!("fence={fence}")));
    assert_eq!(redis.say("TYPE b"), "string");
    assert_eq!(
        redis.say("EXPIRE b 5"),
        "0",
        "the lease of a native client is its own affair"
    );
    let value = redis.say("GET b");
    assert_eq!(
        redis.say(&format!("DELEX b IFEQ {value}")),
        "0",
        "no token equals it"
    );
    assert!(native.release("b", fence));
    assert_eq!(redis.say("SET b token NX PX 60000"), "OK");
    assert!(redis.number("LOCK.FENCE b") as u64 > fence);
}

#[test]
fn a_lock_released_through_one_port_is_handed_to_who_waits_at_the_other() {
    let server = start(|_| {});
    let mut redis = Redis::connect(&server);
    let mut waits = Redis::connect(&server);
    let mut native = Peer::connect(server.local_addr(), "native");
    let mut observer = Peer::connect(server.local_addr(), "observer");

    assert_eq!(redis.say("SET k token NX PX 60000"), "OK");
    let first = redis.number("LOCK.FENCE k") as u64;
    let request = native.stand_in_line("k", 0, &mut observer);
    waits.send(&["LOCK.ACQUIRE", "k", "patient", "60000", "WAIT", "60000"]);
    until("both stand in line", || observer.queue_length("k") == 2);
    assert_eq!(redis.say("DELEX k IFEQ token"), "1");
    let second = native.reply(request, crate::common::granted);
    assert!(second > first);
    assert!(native.release("k", second));
    let third = waits.read();
    let third: u64 = third
        .trim_matches(['[', ']'])
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(third > second);
    assert_eq!(waits.say("LOCK.RELEASE k patient"), "1");
}

#[test]
fn waiting_ends_with_its_time_or_its_connection_and_delays_nobody() {
    let server = start(|_| {});
    let mut redis = Redis::connect(&server);
    let mut observer = Peer::connect(server.local_addr(), "observer");
    assert_eq!(redis.say("SET k token NX PX 60000"), "OK");
    let mut short = Redis::connect(&server);
    assert_eq!(short.say("LOCK.ACQUIRE k short 1000 WAIT 20"), "nil");
    let mut goes = Redis::connect(&server);
    goes.send(&["LOCK.ACQUIRE", "k", "goes", "1000", "WAIT", "60000"]);
    until("it stands in line", || observer.queue_length("k") == 1);
    drop(goes);
    until("it is out of line", || observer.queue_length("k") == 0);
    assert_eq!(redis.say("DEL k"), "1");
    assert_eq!(short.say("SET k next NX PX 1000"), "OK");
}

#[test]
fn what_is_done_without_an_owner_raises_the_fence_and_is_counted() {
    let server = start(|config| config.http = Some(free_port()));
    let mut redis = Redis::connect(&server);
    assert_eq!(redis.say("SET k a NX PX 60000"), "OK");
    let first = redis.number("LOCK.FENCE k");
    assert_eq!(redis.say("SET k b"), "OK");
    let second = redis.number("LOCK.FENCE k");
    assert!(second > first);
    assert_eq!(
        redis.say("SET k b IFEQ b PX 60000"),
        "OK",
        "a renewal by the owner"
    );
    assert_eq!(redis.number("LOCK.FENCE k"), second);
    assert_eq!(
        redis.say("SET k c IFEQ b PX 60000"),
        "OK",
        "the owner hands it on"
    );
    assert!(redis.number("LOCK.FENCE k") > second);
    assert_eq!(redis.say("DEL k"), "1");
    assert!(
        redis
            .say("EVAL unknown 0")
            .starts_with("ERR unknown script")
    );
    let page = get(&server, "/metrics").body;
    assert!(page.contains("fencepost_redis_forced_total 2\n"), "{page}");
    assert!(page.contains("fencepost_redis_unknown_scripts_total 1\n"));
}

#[test]
fn a_strict_port_takes_no_lock_from_anybody_who_does_not_show_that_it_is_its_own() {
    let server = start(|config| config.redis_strict = true);
    let mut redis = Redis::connect(&server);
    assert_eq!(redis.say("SET k a NX PX 60000"), "OK");
    let fence = redis.number("LOCK.FENCE k");
    for command in [
        "DEL k",
        "UNLINK k",
        "DELEX k",
        "SET k b",
        "SET k b XX PX 5",
        "SETEX k 5 b",
        "PEXPIRE k 0",
        "FLUSHDB",
        "FLUSHALL",
        "LOCK.FORCE k",
    ] {
        let answer = redis.say(command);
        assert!(answer.starts_with("NOPERM"), "{command}: {answer}");
    }
    assert_eq!(redis.number("LOCK.FENCE k"), fence);
    assert_eq!(redis.say("SET k a IFEQ a PX 60000"), "OK");
    assert_eq!(redis.say("DELEX k IFEQ a"), "1");
    assert_eq!(redis.say("SET k b"), "OK", "it has no holder");
}

#[test]
fn locks_live_no_longer_than_the_settings_allow() {
    let server = start(|config| config.redis_max_ttl = std::time::Duration::from_secs(100));
    let mut redis = Redis::connect(&server);
    assert_eq!(redis.say("SET endless token NX"), "OK");
    assert_eq!(redis.say("SET long token NX EX 10000"), "OK");
    for key in ["endless", "long"] {
        let left_ms = redis.number(&format!("PTTL {key}"));
        assert!((1..=100_000).contains(&left_ms), "{key}: {left_ms}");
    }
    assert_eq!(redis.say("PERSIST long"), "1");
    assert!(redis.number("PTTL long") > 0);
}

/// It was shown with 49 days left, which is all that 32 bits can say, and with 8.7 years over HTTP.
#[test]
fn a_lock_without_an_end_is_shown_without_one() {
    let server = start(|config| config.http = Some(free_port()));
    let mut redis = Redis::connect(&server);
    assert_eq!(redis.say("SETNX endless token"), "1");
    assert_eq!(redis.say("SET for-long token NX PX 5000000000"), "OK");
    let holder = |key| get(&server, &format!("/locks/{key}")).json()["holders"][0].clone();
    let endless = holder("endless");
    assert!(endless["remaining_ms"].is_null(), "{endless}");
    assert_eq!(endless["ends_with_session"], false);
    let left_ms = holder("for-long")["remaining_ms"].as_u64().unwrap();
    assert!(
        (4_900_000_000..=5_000_000_000).contains(&left_ms),
        "{left_ms}"
    );

    let mut peer = Peer::connect(server.local_addr(), "peer");
    for (key, left_ms) in [("endless", NO_END_MS), ("for-long", NO_END_MS - 1)] {
        peer.ask(&acquire(key, LONG_MS, 0), |reply| match reply {
            Reply::Refused(contention) => {
                let seen = contention.holder.expect("long settled");
                assert_eq!(
                    (seen.remaining_ms, seen.ends_with_session),
                    (left_ms, false)
                );
            }
            other => panic!("not refused but {other:?}"),
        });
    }
}

#[test]
fn who_asks_for_more_than_the_bound_is_told_so() {
    let server = start(|config| config.lease_max = std::time::Duration::from_secs(100));
    let mut redis = Redis::connect(&server);
    assert_eq!(redis.say("SET k token NX PX 100000"), "OK");
    for (command, word) in [
        ("SET other token NX EX 101", "invalid expire time"),
        ("SET other token NX PX 100001", "invalid expire time"),
        ("SET k token PX 100001", "invalid expire time"),
        ("PEXPIRE k 100001", "invalid expire time"),
        ("EXPIRE k 101", "invalid expire time"),
        ("LOCK.ACQUIRE other token 100001", "invalid expire time"),
        ("SET other token NX", "a lock needs an expire time"),
        ("SETNX other token", "a lock needs an expire time"),
        ("PERSIST k", "a lock needs an expire time"),
    ] {
        let said = redis.say(command);
        assert!(
            said.starts_with(&format!("ERR {word}")),
            "{command}: {said}"
        );
        assert!(said.contains("at most 100000 ms"), "{command}: {said}");
    }
    assert_eq!(redis.say("EXISTS other"), "0");
    assert!(redis.number("PTTL k") <= 100_000);
    assert_eq!(redis.say("PEXPIRE k 100000"), "1");

    // What makes every lock end in time makes it fit the bound.
    let server = start(|config| {
        config.lease_max = std::time::Duration::from_secs(100);
        config.redis_max_ttl = std::time::Duration::from_secs(50);
    });
    let mut redis = Redis::connect(&server);
    assert_eq!(redis.say("SET k token NX"), "OK");
    assert_eq!(redis.say("PEXPIRE k 100001"), "1");
}

#[test]
fn a_unix_socket_serves_the_same_keys_and_is_removed_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("redis.sock");
    let server = start(|config| config.redis_unix = Some(path.clone()));
    let mut near = Redis::on(UnixStream::connect(&path).unwrap());
    let mut far = Redis::connect(&server);
    assert_eq!(near.say("SET k token NX PX 60000"), "OK");
    assert_eq!(far.say("GET k"), "token");
    server.shutdown();
    assert!(!path.exists());

    // What a server that was killed leaves behind is no obstacle; what another server listens at
    // is.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let again = start(|config| config.redis_unix = Some(path.clone()));
    let mut near = Redis::on(UnixStream::connect(&path).unwrap());
    assert_eq!(near.say("PING"), "PONG");
    let config = Config {
        redis_unix: Some(path.clone()),
        ..Config::default()
    };
    let refused = Server::builder()
        .with(|other| other.redis_unix = config.redis_unix)
        .start();
    assert!(
        refused
            .err()
            .unwrap()
            .to_string()
            .contains("another server")
    );
    drop(again);
}

#[test]
fn tokens_are_the_passwords() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, "a-token-of-some-length\n").unwrap();
    let server = start(|config| config.auth_token_file = Some(file));
    let mut redis = Redis::connect(&server);
    assert!(redis.say("GET k").starts_with("NOAUTH"));
    assert!(redis.say("AUTH wrong").starts_with("WRONGPASS"));
    assert!(redis.say("HELLO 2").starts_with("NOAUTH"));
    assert_eq!(redis.say("AUTH a-token-of-some-length"), "OK");
    assert_eq!(redis.say("GET k"), "nil");
    assert_eq!(redis.say("RESET"), "RESET");
    assert!(redis.say("GET k").starts_with("NOAUTH"));
    assert_eq!(redis.say("AUTH default a-token-of-some-length"), "OK");
    assert_eq!(redis.say("GET k"), "nil");
}

fn durable(directory: &Path, durability: Durability) -> Server {
    start(|config| {
        config.data_dir = directory.to_owned();
        config.durability = durability;
    })
}

/// Locks of every kind this port knows.
fn take_some(redis: &mut Redis<TcpStream>) {
    assert_eq!(redis.say("SET timed token NX PX 600000"), "OK");
    assert_eq!(redis.say("SET endless token NX"), "OK");
    assert_eq!(redis.say("SET given-an-end token NX"), "OK");
    assert_eq!(redis.say("EXPIRE given-an-end 600"), "1");
    assert_eq!(redis.say("SET taken first NX PX 600000"), "OK");
    assert_eq!(redis.say("SET taken second PX 600000"), "OK");
    assert_eq!(redis.say("SET gone token NX PX 600000"), "OK");
    assert_eq!(redis.say("DELEX gone IFEQ token"), "1");
    assert!(
        redis
            .say("LOCK.ACQUIRE described me 600000 META why")
            .starts_with('[')
    );
    assert!(
        redis
            .say("LOCK.ACQUIRE shared one 600000 SHARED")
            .starts_with('[')
    );
    assert!(
        redis
            .say("LOCK.ACQUIRE shared two 600000 SHARED")
            .starts_with('[')
    );
    assert_eq!(redis.say("SELECT 3"), "OK");
    assert_eq!(redis.say("SET timed other NX PX 600000"), "OK");
    assert_eq!(redis.say("SELECT 0"), "OK");
}

fn check_them(redis: &mut Redis<TcpStream>, fence_before: i64) {
    assert_eq!(
        redis.say("MGET timed endless given-an-end taken gone described"),
        "[token token token second nil me]"
    );
    assert_eq!(redis.number("PTTL endless"), -1);
    for key in ["timed", "given-an-end", "taken"] {
        let left_ms = redis.number(&format!("PTTL {key}"));
        assert!((1..=600_000).contains(&left_ms), "{key}: {left_ms}");
    }
    assert_eq!(
        redis.number("LOCK.FENCE timed"),
        fence_before,
        "the same grant"
    );
    assert_eq!(redis.say("LOCK.RELEASE shared one"), "1");
    assert_eq!(redis.say("LOCK.RELEASE shared two"), "1");
    assert_eq!(redis.say("SET timed x NX PX 1000"), "nil");
    assert_eq!(
        redis.say("DELEX timed IFEQ token"),
        "1",
        "by its owner, whichever client comes back"
    );
    assert_eq!(redis.say("SET timed x NX PX 1000"), "OK");
    assert!(redis.number("LOCK.FENCE timed") > fence_before);
    assert_eq!(redis.say("SELECT 3"), "OK");
    assert_eq!(redis.say("GET timed"), "other");
}

#[test]
fn a_clean_stop_keeps_the_locks_of_redis_clients() {
    for durability in [Durability::Fence, Durability::Lease] {
        let directory = tempfile::tempdir().unwrap();
        let server = durable(directory.path(), durability);
        let mut redis = Redis::connect(&server);
        take_some(&mut redis);
        let fence = redis.number("LOCK.FENCE timed");
        drop(redis);
        server.shutdown();
        let server = durable(directory.path(), durability);
        check_them(&mut Redis::connect(&server), fence);
    }
}

#[test]
fn a_kill_takes_nothing_that_was_acknowledged_with_durability_lease() {
    let directory = tempfile::tempdir().unwrap();
    let server = durable(directory.path(), Durability::Lease);
    let mut redis = Redis::connect(&server);
    take_some(&mut redis);
    let fence = redis.number("LOCK.FENCE timed");
    let left = wreck(directory.path());
    let after = durable(left.path(), Durability::Lease);
    check_them(&mut Redis::connect(&after), fence);
}

#[test]
fn after_a_kill_with_durability_fence_nothing_is_granted_until_short_leases_have_ended() {
    let directory = tempfile::tempdir().unwrap();
    let server = durable(directory.path(), Durability::Fence);
    let mut redis = Redis::connect(&server);
    assert_eq!(redis.say("SET k token NX PX 20000"), "OK");
    let left = wreck(directory.path());
    let after = durable(left.path(), Durability::Fence);
    let mut redis = Redis::connect(&after);
    assert!(redis.say("SET k other NX PX 1000").starts_with("LOADING"));
    assert!(redis.say("INFO persistence").contains("loading:1"));
    // No client is told that the key is free, nor its owner that it has lost it: neither is known.
    for question in [
        "GET k",
        "EXISTS k",
        "PTTL k",
        "TYPE k",
        "DEL k",
        "SET k other XX",
        "PEXPIRE k 1000",
        "MGET k other",
        "LOCK.FENCE k",
    ] {
        let answer = redis.say(question);
        assert!(answer.starts_with("LOADING"), "{question}: {answer}");
    }
    let compare_and_delete = "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"del\",KEYS[1]) else return 0 end";
    redis.send(&["EVAL", compare_and_delete, "1", "k", "token"]);
    assert!(redis.read().starts_with("LOADING"));
}

#[test]
fn with_durability_fence_long_locks_and_those_without_an_end_survive_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let server = durable(directory.path(), Durability::Fence);
    let mut redis = Redis::connect(&server);
    assert_eq!(redis.say("SET endless token NX"), "OK");
    assert_eq!(redis.say("SET long token NX PX 600000"), "OK");
    assert_eq!(redis.say("SET persisted token NX PX 1000"), "OK");
    assert_eq!(redis.say("PERSIST persisted"), "1");
    assert_eq!(redis.say("SET deleted token NX"), "OK");
    assert_eq!(redis.say("DEL deleted"), "1");
    assert_eq!(redis.say("SET changed token NX"), "OK");
    assert_eq!(redis.say("SET changed other PX 1"), "OK");
    let fence = redis.number("LOCK.FENCE endless");
    let left = wreck(directory.path());
    let after = start(|config| {
        config.data_dir = left.path().to_owned();
        config.durability = Durability::Fence;
        config.grace = false;
    });
    let mut redis = Redis::connect(&after);
    assert_eq!(redis.number("LOCK.FENCE endless"), fence);
    assert_eq!(redis.number("PTTL endless"), -1);
    assert_eq!(redis.number("PTTL persisted"), -1);
    for key in ["endless", "long", "persisted"] {
        assert_eq!(redis.say(&format!("GET {key}")), "token", "{key}");
    }
    for key in ["deleted", "changed"] {
        let taken = redis.say(&format!("SET {key} another NX PX 1000"));
        assert_eq!(taken, "OK", "{key}");
    }
}

#[test]
fn a_stop_answers_those_who_wait_and_closes_without_a_word_to_the_others() {
    let server = start(|_| {});
    let mut holder = Redis::connect(&server);
    assert_eq!(holder.say("SET k token NX PX 60000"), "OK");
    let mut waits = Redis::connect(&server);
    waits.send(&["LOCK.ACQUIRE", "k", "patient", "60000", "WAIT", "60000"]);
    let mut pops = Redis::connect(&server);
    // Two commands in one write, so that the answer to the first says that both have been read.
    // What a server has not read when it closes is answered by a reset.
    let both = b"PING\r\nBLPOP list 0\r\n";
    pops.stream.get_mut().write_all(both).unwrap();
    assert_eq!(pops.read(), "PONG");
    let mut observer = Peer::connect(server.local_addr(), "observer");
    until("it stands in line", || observer.queue_length("k") == 1);
    server.shutdown();
    assert!(waits.read().contains("shutting down"));
    for client in [&mut holder, &mut pops] {
        let mut rest = Vec::new();
        client.stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    }
}
