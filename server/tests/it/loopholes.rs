//! Ways around rights and quotas that were found by trying, each closed and kept closed.

use crate::common::{LONG_MS, Peer, start_with, until};
use crate::guarded::{Guarded, entry, hello_of};
use crate::http::{ask, free_port, http_addr};
use crate::redis::{self, Redis};
use protocol::{ErrorCode, Hello, Opening};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const OWNER: &str = "roles = [\"lock\", \"read\"]\nprefixes = [\"k/\"]";
const LOCKER: &str = "roles = [\"lock\"]\nprefixes = [\"k/\"]";
const ALL: &str = "roles = [\"lock\", \"read\", \"operate\"]";

fn owner_and_locker() -> String {
    entry("owner", OWNER) + &entry("locker", LOCKER) + &entry("all", ALL)
}

#[track_caller]
fn is_refused(redis: &mut Redis<TcpStream>, command: &str) {
    let answer = redis.say(command);
    assert!(answer.starts_with("NOPERM"), "{command}: {answer}");
}

#[test]
fn what_a_browser_posts_to_the_redis_port_is_not_carried_out() {
    let server = redis::start(|_| {});
    let mut client = Redis::connect(&server);
    assert_eq!(client.say("SET victim mine NX PX 60000"), "OK");
    let body = "\r\nDEL victim\r\n";
    for request in [
        format!(
            "POST / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\nContent-Type: text/plain\r\n\r\n{body}"
        ),
        format!("post / HTTP/1.1\r\n{body}"),
        format!("PUT / HTTP/1.1\r\nHost: evil.example\r\n\r\n{body}"),
        format!("GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n{body}"),
    ] {
        let address = server.redis_addr().expect("it is served");
        let mut browser = TcpStream::connect(address).unwrap();
        browser
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        browser.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        browser
            .read_to_string(&mut answer)
            .expect("the server closes");
        assert!(answer.contains("not HTTP"), "{request}: {answer}");
        assert_eq!(client.say("GET victim"), "mine", "{request}");
    }
}

#[test]
fn a_token_proves_nothing_where_none_is_asked_for() {
    let server = start_with(|builder| builder.http(free_port()));
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let fence = holder.acquire("k", LONG_MS);
    let sends = |method: &str, path: &str, authorization: &str| {
        let address = http_addr(&server);
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: evil.example:7401\r\nOrigin: http://evil.example:7401\r\n\
             Sec-Fetch-Site: same-origin\r\nX-Fencepost-Operator: 1\r\nAuthorization: {authorization}\r\n\
             Content-Length: 0\r\nConnection: close\r\n\r\n"
        );
        crate::http::speak(address, &request)
            .expect("an answer")
            .status
    };
    let force = format!("/force-release?key=k&fence={fence}");
    for authorization in ["Bearer x", "Basic x", "Bearer the-token-of-a-rebound-page"] {
        assert_eq!(sends("POST", &force, authorization), 403, "{authorization}");
        assert_eq!(
            sends("GET", "/locks", authorization),
            403,
            "{authorization}"
        );
    }
    assert!(Peer::connect(server.local_addr(), "observer").is_held_under("k", fence));
}

#[test]
fn a_lock_of_another_ends_no_earlier_and_no_later_than_its_owner_says() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit");
    let guarded = Guarded::start_with(&owner_and_locker(), |config| {
        config.audit_log = Some(log.clone());
    });
    let (mut owner, mut locker) = (guarded.redis("owner"), guarded.redis("locker"));
    assert_eq!(owner.say("SET k/1 mine NX PX 60000"), "OK");
    assert_eq!(owner.say("SET k/2 mine NX"), "OK");
    for command in [
        "DEL k/1",
        "PEXPIRE k/1 1",
        "EXPIRE k/1 1",
        "PEXPIREAT k/1 1",
        "PERSIST k/1",
        "PEXPIRE k/2 1",
        "PEXPIRE k/2 60000000",
    ] {
        is_refused(&mut locker, command);
    }
    // As libraries renew: the same command for every holder, and no less time than there is.
    assert_eq!(locker.say("PEXPIRE k/1 90000"), "1");
    assert_eq!(owner.say("GET k/1"), "mine");
    // As old ones take a lock: on one connection, first the lock, then its end.
    assert_eq!(locker.say("SETNX k/3 t"), "1");
    assert_eq!(locker.say("PEXPIRE k/3 60000"), "1");
    assert_eq!(locker.say("SET k/4 t NX"), "OK");
    assert_eq!(locker.say("EXPIRE k/4 60"), "1");
    is_refused(&mut locker, "PEXPIRE k/4 1");
    // An operator may, and the audit log says who did.
    let mut all = guarded.redis("all");
    assert_eq!(all.say("PEXPIRE k/1 1"), "1");
    until("the lock is gone", || owner.say("EXISTS k/1") == "0");
    let forced = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut lines = lines.filter(|line: &serde_json::Value| line["event"] == "force");
        lines.any(|line| line["key"] == "k/1" && line["token_name"] == "all")
    };
    until("the audit log says who did", forced);
}

#[test]
fn strict_ends_no_lock_early_whatever_the_command() {
    let server = redis::start(|config| config.redis_strict = true);
    let (mut owner, mut other) = (Redis::connect(&server), Redis::connect(&server));
    assert_eq!(owner.say("SET k mine NX PX 60000"), "OK");
    for command in ["DEL k", "PEXPIRE k 1", "EXPIREAT k 1", "PERSIST k"] {
        let answer = other.say(command);
        assert!(
            answer.contains("redis_strict") || answer.contains("strict"),
            "{command}: {answer}"
        );
    }
    assert_eq!(other.say("GET k"), "mine");
    assert_eq!(owner.say("SETNX old t"), "1");
    assert_eq!(owner.say("EXPIRE old 60"), "1");
}

#[test]
fn an_owner_token_is_shown_only_to_readers() {
    let guarded = Guarded::start(&owner_and_locker());
    let (mut owner, mut locker) = (guarded.redis("owner"), guarded.redis("locker"));
    assert_eq!(owner.say("SET k/1 mine NX PX 60000"), "OK");
    for command in [
        "GET k/1",
        "SET k/1 t NX GET",
        "SET k/1 t IFEQ other GET",
        "SET k/1 t GET PX 5 NX",
    ] {
        is_refused(&mut locker, command);
    }
    assert_eq!(locker.say("MULTI"), "OK");
    is_refused(&mut locker, "SET k/1 t NX GET");
    assert!(locker.say("EXEC").starts_with("EXECABORT"));
    // A value that reads like the option is none.
    assert_eq!(locker.say("SET k/2 t IFEQ GET"), "nil");
    assert_eq!(owner.say("SET k/1 t NX GET"), "mine");
}

#[test]
fn what_was_asked_for_with_rights_that_are_gone_does_not_come() {
    let both = "roles = [\"lock\", \"read\"]\nprefixes = [\"a/\", \"b/\"]";
    let guarded = Guarded::start(&(entry("one", both) + &entry("all", ALL)));
    let mut all = guarded.redis("all");
    let mut holder = guarded.native("all");
    let fence = holder.acquire("b/1", LONG_MS);
    let mut waiter = guarded.native("one");
    waiter.stand_in_line("b/1", 0, &mut holder);
    let mut listeners: Vec<Redis<TcpStream>> = Vec::new();
    for command in ["SUBSCRIBE b/ch", "PSUBSCRIBE b/*", "BLPOP b/list 60"] {
        let mut redis = guarded.redis("one");
        redis.send(&command.split(' ').collect::<Vec<_>>());
        listeners.push(redis);
    }
    let mut quiet = guarded.redis("one");
    until("all are in place", || {
        let blocked = all.say("INFO clients").contains("blocked_clients:1");
        blocked && all.say("PUBLISH b/ch x") == "2"
    });
    // More rights, or other quotas, end nothing.
    let more =
        "roles = [\"lock\", \"read\", \"operate\"]\nprefixes = [\"a/\", \"b/\"]\nheld_max = 9";
    guarded.write(&(entry("one", more) + &entry("all", ALL)));
    assert_eq!(all.say("PUBLISH b/ch x"), "2");
    let fewer = "roles = [\"lock\", \"read\"]\nprefixes = [\"a/\"]";
    guarded.write(&(entry("one", fewer) + &entry("all", ALL)));
    waiter.is_closed_with(ErrorCode::UNAUTHENTICATED);
    until("no listener is left", || all.say("PUBLISH b/ch x") == "0");
    until("none is blocked", || {
        all.say("INFO clients").contains("blocked_clients:0")
    });
    assert_eq!(all.say("LPUSH b/list secret"), "1");
    assert!(holder.release("b/1", fence));
    let (fences, _) = holder.query("b/1");
    assert!(fences.is_empty(), "no waiter was granted it: {fences:?}");
    for mut redis in listeners {
        let mut heard = Vec::new();
        let _ = redis.stream.read_to_end(&mut heard);
        let heard = String::from_utf8_lossy(&heard);
        assert!(!heard.contains("secret"), "{heard}");
    }
    assert_eq!(quiet.say("PING"), "PONG", "it waited for nothing");
    is_refused(&mut quiet, "GET b/1");
}

#[test]
fn a_quota_is_not_passed_by_taking_locks_over() {
    let text = entry("owner", OWNER)
        + &entry("small", &format!("{LOCKER}\nheld_max = 2"))
        + &entry("all", ALL);
    let guarded = Guarded::start(&text);
    let (mut owner, mut small) = (guarded.redis("owner"), guarded.redis("small"));
    for number in 0..4 {
        assert_eq!(owner.say(&format!("SET k/{number} v NX PX 60000")), "OK");
    }
    assert_eq!(small.say("SET k/0 m IFEQ v PX 60000"), "OK");
    assert_eq!(small.say("SET k/1 m IFEQ v PX 60000"), "OK");
    let refused = small.say("SET k/2 m IFEQ v PX 60000");
    assert!(
        refused.starts_with("OOM the quota held_max = 2"),
        "{refused}"
    );
    // One that it has may take its own place.
    assert_eq!(small.say("SET k/1 n IFEQ m PX 60000"), "OK");
    assert_eq!(small.say("DELEX k/1 IFEQ n"), "1");
    assert_eq!(small.say("SET k/2 m IFEQ v PX 60000"), "OK");
}

#[test]
fn to_show_nothing_is_no_token() {
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let text = format!("[[token]]\nname = \"empty\"\nsha256 = \"{nothing}\"\nroles = [\"lock\"]\n");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rights.toml");
    std::fs::write(&path, text).unwrap();
    let checked = server::check_auth_file(&path).expect_err("it is refused");
    assert!(
        checked.to_string().contains("SHA-256 of nothing"),
        "{checked}"
    );
}

#[test]
fn the_servers_own_channels_carry_the_servers_own_news() {
    let other = "roles = [\"lock\", \"read\"]\nprefixes = [\"x/\"]";
    let guarded = Guarded::start(&(entry("other", other) + &entry("all", ALL)));
    let (mut other, mut all) = (guarded.redis("other"), guarded.redis("all"));
    for channel in ["+switch-master", "+private", "-x"] {
        let answer = all.say(&format!("PUBLISH {channel} news"));
        assert!(
            answer.starts_with("ERR channels that begin with"),
            "{answer}"
        );
    }
    assert!(other.say("SUBSCRIBE +switch-master").contains("subscribe"));
    assert!(other.say("PSUBSCRIBE [-+]sdown").contains("psubscribe"));
    // A range from `+` to `]`, which has the digits and the capital letters in it.
    assert!(other.say("PSUBSCRIBE [+-]sdown").starts_with("NOPERM"));
}

#[test]
fn commands_with_long_answers_count_as_operations() {
    let slow = "roles = [\"lock\"]\noperations_per_second = 1";
    let guarded = Guarded::start(&entry("slow", slow));
    let mut redis = guarded.redis("slow");
    let refused = (0..20).filter(|_| redis.say("INFO").starts_with("TRYAGAIN"));
    assert!(refused.count() > 0);
    assert_eq!(redis.say("PING"), "PONG");
}

#[test]
fn clients_that_wait_for_lists_are_waiters() {
    let text = entry("one", &format!("{LOCKER}\nwaiters_max = 1")) + &entry("all", ALL);
    let guarded = Guarded::start(&text);
    let mut all = guarded.redis("all");
    let mut first = guarded.redis("one");
    first.send(&["BLPOP", "k/list", "60"]);
    until("it waits", || {
        all.say("INFO clients").contains("blocked_clients:1")
    });
    let refused = guarded.redis("one").say("BLPOP k/list 60");
    assert!(
        refused.starts_with("OOM the quota waiters_max = 1"),
        "{refused}"
    );
    assert_eq!(all.say("LPUSH k/list x"), "1");
    until("it waits no more", || {
        all.say("INFO clients").contains("blocked_clients:0")
    });
    assert_eq!(guarded.redis("one").say("BLPOP k/list 0.001"), "nil");
}

#[test]
fn a_pipe_in_the_place_of_the_rights_changes_nothing() {
    let guarded = Guarded::start(&owner_and_locker());
    guarded.put_pipe();
    guarded.server.reload();
    assert_eq!(guarded.redis("owner").say("SET k/1 t NX PX 60000"), "OK");
}

#[test]
fn a_refusal_names_its_sender_and_what_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit");
    let guarded = Guarded::start_with(&owner_and_locker(), |config| {
        config.audit_log = Some(log.clone());
    });
    assert_eq!(guarded.http("locker", "/locks/k%2F1"), 403);
    let key = guarded.native("owner").session.expect("it was let in");
    let token = crate::guarded::token("locker");
    let thief = Hello {
        opening: Opening::Resume(key),
        ..hello_of("thief", &token)
    };
    assert!(Peer::knock(guarded.server.local_addr(), thief).is_err());
    let address = http_addr(&guarded.server);
    ask(
        address,
        "GET",
        "/stats",
        "Authorization: Bearer wrong-wrong-wrong\r\n",
    )
    .unwrap();
    let lines = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let lines = lines.filter(|line: &serde_json::Value| line["event"] == "refuse");
        lines.collect::<Vec<_>>()
    };
    until("three refusals are written", || lines().len() == 3);
    for line in lines() {
        let why = line["why"].as_str().unwrap();
        assert!(
            line["address"].as_str().unwrap().starts_with("127.0.0.1:"),
            "{line}"
        );
        match line["what"].as_str().unwrap() {
            "hello" => assert_eq!(line["token_name"], "locker"),
            _ if why.contains("GET /stats") => assert!(line["token_name"].is_null(), "{line}"),
            _ => {
                assert!(why.contains("GET /locks/k%2F1"), "{line}");
                assert_eq!(line["token_name"], "locker");
            }
        }
    }
}
