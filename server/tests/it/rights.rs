//! Who may do what: each role on the native port, the Redis port and HTTP, and attempts to get
//! around them.

use crate::common::{LONG_MS, Peer, acquire, force_release, release, until, wire_key};
use crate::guarded::{Guarded, entry, hash, hello_of, listed, token};
use crate::http::{ask, http_addr};
use protocol::{Cursor, ErrorCode, Hello, Opening, Prefix, Reply, Request};
use server::config::Durability;

/// One of each kind.
fn usual() -> String {
    entry("orders", "roles = [\"lock\"]\nprefixes = [\"orders/\"]")
        + &entry("viewer", "roles = [\"read\"]\nprefixes = [\"orders/\"]")
        + &entry(
            "worker",
            "roles = [\"lock\", \"read\"]\nprefixes = [\"orders/\"]",
        )
        + &entry("watcher", "roles = [\"read\"]")
        + &entry("ops", "roles = [\"operate\"]")
        + &entry(
            "ops-orders",
            "roles = [\"operate\"]\nprefixes = [\"orders/\"]",
        )
        + &entry("all", "roles = [\"lock\", \"read\", \"operate\"]")
}

/// Whether a request is refused for want of a right, with a sentence that names the sender.
fn is_forbidden(peer: &mut Peer, name: &str, request: &Request<'_>) -> bool {
    peer.ask(request, |reply| match reply {
        Reply::Error { code, message, .. } => {
            assert_eq!(code, ErrorCode::FORBIDDEN, "{message}");
            assert!(message.as_str().contains(&format!("{name:?}")), "{message}");
            true
        }
        _ => false,
    })
}

fn list(prefix: &str) -> Request<'_> {
    Request::List {
        prefix: Prefix::new(prefix.as_bytes()).expect("a short prefix"),
        cursor: Cursor::default(),
        limit: 0,
    }
}

#[test]
fn native_requests_need_their_role_for_their_key() {
    let guarded = Guarded::start(&usual());
    let mut all = guarded.native("all");
    let other = all.acquire("billing/1", LONG_MS);
    let session_page = Request::Sessions {
        cursor: Cursor::default(),
        limit: 0,
    };
    let query = |key| Request::Query { key: wire_key(key) };

    let mut orders = guarded.native("orders");
    let fence = orders.acquire("orders/1", LONG_MS);
    for key in ["billing/2", "orders", "order", "{orders/1}", "ORDERS/1"] {
        assert!(
            is_forbidden(&mut orders, "orders", &acquire(key, LONG_MS, 0)),
            "{key}"
        );
        assert!(
            is_forbidden(&mut orders, "orders", &acquire(key, LONG_MS, LONG_MS)),
            "{key}"
        );
    }
    for request in [
        release("billing/1", other),
        query("orders/1"),
        list("orders/"),
        session_page,
        Request::Stats,
        force_release("orders/1", fence),
    ] {
        assert!(is_forbidden(&mut orders, "orders", &request), "{request:?}");
    }
    orders.ping();
    assert!(!is_forbidden(&mut orders, "orders", &Request::KeepAlive));

    let mut viewer = guarded.native("viewer");
    assert_eq!(viewer.query("orders/1").0, [fence]);
    assert_eq!(listed(&mut viewer, ""), ["orders/1"]);
    assert_eq!(listed(&mut viewer, "orders/"), ["orders/1"]);
    for request in [
        query("billing/1"),
        list("billing/"),
        session_page,
        acquire("orders/2", LONG_MS, 0),
        release("orders/1", fence),
        force_release("orders/1", fence),
    ] {
        assert!(is_forbidden(&mut viewer, "viewer", &request), "{request:?}");
    }

    let mut watcher = guarded.native("watcher");
    assert_eq!(listed(&mut watcher, ""), ["billing/1", "orders/1"]);
    assert!(!is_forbidden(&mut watcher, "watcher", &session_page));
    watcher.stats();
    assert!(is_forbidden(
        &mut watcher,
        "watcher",
        &force_release("orders/1", fence)
    ));

    let mut ops = guarded.native("ops-orders");
    for request in [
        acquire("orders/2", LONG_MS, 0),
        query("orders/1"),
        force_release("billing/1", other),
    ] {
        assert!(
            is_forbidden(&mut ops, "ops-orders", &request),
            "{request:?}"
        );
    }
    let freed = ops.ask(&force_release("orders/1", fence), |reply| {
        matches!(reply, Reply::Released { .. })
    });
    assert!(freed, "an operator takes it away");
    assert!(all.release("billing/1", other), "and touched nothing else");
}

#[test]
fn redis_commands_need_their_role_for_their_keys() {
    let guarded = Guarded::start(&usual());
    let mut all = guarded.redis("all");
    assert_eq!(all.say("SET billing/1 t NX PX 60000"), "OK");

    let mut orders = guarded.redis("orders");
    assert_eq!(orders.say("SET orders/1 mine NX PX 60000"), "OK");
    for refused in [
        "SET billing/2 t NX PX 60000",
        "SET {orders/1} t NX PX 60000",
        "DELEX billing/1 IFEQ t",
        "GET orders/1",
        "EXISTS orders/1",
        "MGET orders/1 billing/1",
        "DEL orders/1 billing/1",
        "LOCK.ACQUIRE billing/2 me 60000",
        "LOCK.FORCE orders/1",
        "LOCK.INFO orders/1",
        "LOCK.LS",
        "KEYS *",
        "SCAN 0",
        "DBSIZE",
        "FLUSHDB",
        "FLUSHALL",
        "CLIENT LIST",
        "SCRIPT FLUSH",
        "SUBSCRIBE billing/1",
        "PSUBSCRIBE *",
        "PSUBSCRIBE ord*",
        "PUBLISH billing/1 x",
        "BLPOP orders/l billing/l 1",
    ] {
        let answer = orders.say(refused);
        assert!(
            answer.starts_with("NOPERM User orders "),
            "{refused}: {answer}"
        );
    }
    // A lock that is not shown to be the caller's is an operator's to take.
    for forced in ["DEL orders/1", "SET orders/1 other PX 60000"] {
        let answer = orders.say(forced);
        assert!(
            answer.starts_with("NOPERM User orders "),
            "{forced}: {answer}"
        );
    }
    for free in [
        "PING",
        "ECHO x",
        "SELECT 0",
        "CLIENT ID",
        "COMMAND COUNT",
        "INFO server",
    ] {
        let answer = orders.say(free);
        assert!(!answer.starts_with("NOPERM"), "{free}: {answer}");
    }
    // Each of the sixteen databases has its own keys, and the same prefixes.
    assert_eq!(orders.say("SELECT 3"), "OK");
    assert_eq!(orders.say("SET orders/1 mine NX PX 60000"), "OK");
    assert!(
        orders
            .say("SET billing/1 t NX PX 60000")
            .starts_with("NOPERM")
    );
    assert_eq!(orders.say("SELECT 0"), "OK");
    assert_eq!(orders.say("DELEX orders/1 IFEQ mine"), "1");

    let mut viewer = guarded.redis("viewer");
    assert_eq!(all.say("SET orders/5 t NX PX 60000"), "OK");
    assert_eq!(viewer.say("KEYS *"), "[orders/5]");
    assert_eq!(viewer.say("SCAN 0 COUNT 1000"), "[0 [orders/5]]");
    assert_eq!(viewer.say("DBSIZE"), "1");
    assert!(!viewer.say("LOCK.LS").contains("billing"));
    assert_eq!(viewer.say("GET orders/5"), "t");
    for refused in [
        "GET billing/1",
        "SET orders/6 t NX PX 60000",
        "PUBLISH orders/x y",
    ] {
        assert!(viewer.say(refused).starts_with("NOPERM"), "{refused}");
    }

    let mut ops = guarded.redis("ops-orders");
    assert!(ops.say("LOCK.FORCE billing/1").starts_with("NOPERM"));
    assert!(ops.say("FLUSHDB").starts_with("NOPERM"), "it has prefixes");
    assert_eq!(ops.say("LOCK.FORCE orders/5"), "1");
    assert_eq!(all.say("GET billing/1"), "t", "untouched by all of it");
    assert_eq!(guarded.redis("ops").say("FLUSHDB"), "OK");
}

#[test]
fn http_needs_a_token_that_may_read() {
    let guarded = Guarded::start(&usual());
    let mut all = guarded.native("all");
    all.acquire("billing/1", LONG_MS);
    all.acquire("orders/1", LONG_MS);
    let without = ask(http_addr(&guarded.server), "GET", "/locks", "").expect("an answer");
    assert_eq!(without.status, 401, "also on the own machine");
    for (name, path, status) in [
        ("nobody", "/locks", 401),
        ("orders", "/locks", 403),
        ("ops", "/metrics", 403),
        ("viewer", "/metrics", 200),
        ("viewer", "/locks/orders%2F1", 200),
        ("viewer", "/locks/billing%2F1", 403),
        ("viewer", "/locks?prefix=billing", 403),
        ("watcher", "/locks/billing%2F1", 200),
    ] {
        assert_eq!(guarded.http(name, path), status, "{name} {path}");
    }
    let header = format!("Authorization: Bearer {}\r\n", token("viewer"));
    let page = ask(http_addr(&guarded.server), "GET", "/locks", &header).expect("an answer");
    let keys: Vec<_> = (page.json()["locks"].as_array().expect("a list").iter())
        .map(|lock| lock["key"].as_str().expect("text").to_owned())
        .collect();
    assert_eq!(keys, ["orders/1"]);
    let health = ask(http_addr(&guarded.server), "GET", "/healthz", "").expect("an answer");
    assert_eq!(health.status, 200);
}

fn opening_of<'a>(name: &'a str, token: &'a str, opening: Opening) -> Hello<'a> {
    Hello {
        opening,
        ..hello_of(name, token)
    }
}

#[test]
fn a_session_is_used_with_tokens_of_its_own_name_only() {
    let rotated = entry("orders", "roles = [\"lock\"]\nprefixes = [\"orders/\"]");
    let old = rotated.replace(&hash("orders"), &hash("orders-old"));
    let text = rotated + &old + &entry("billing", "roles = [\"lock\"]");
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().to_owned();
    let keep = |config: &mut server::Config| {
        config.data_dir = data.clone();
        config.durability = Durability::Lease;
    };
    let guarded = Guarded::start_with(&text, keep);
    let address = guarded.server.local_addr();
    let mut orders = guarded.native("orders");
    let fence = orders.acquire("orders/1", LONG_MS);
    let session = orders.session.expect("it was let in");
    for opening in [Opening::Join(session), Opening::Resume(session)] {
        let token = token("billing");
        let refused = Peer::knock(address, opening_of("b", &token, opening)).err();
        assert_eq!(refused.expect("not let in").code, ErrorCode::FORBIDDEN);
    }
    orders.ping();
    let joined = token("orders-old");
    let mut joined = Peer::open(address, opening_of("o", &joined, Opening::Join(session)));
    joined.start_ids_at(1_000);
    assert!(!is_forbidden(
        &mut joined,
        "orders",
        &release("orders/1", fence)
    ));
    let fence = joined.acquire("orders/1", LONG_MS);
    drop((joined, orders));

    // A restarted server has no record of names, and knows them by the sessions' secrets.
    guarded.server.shutdown();
    let again = Guarded::start_with(&text, keep);
    let address = again.server.local_addr();
    let other = token("billing");
    let other = Peer::open(address, opening_of("b", &other, Opening::Resume(session)));
    assert!(!other.is_resumed, "it got a session of its own");
    let own = token("orders");
    let mut own = Peer::open(address, opening_of("o", &own, Opening::Resume(session)));
    assert!(own.is_resumed);
    own.start_ids_at(2_000);
    assert!(own.release("orders/1", fence), "its lock is still its own");
}

#[test]
fn an_operator_ends_a_session() {
    let guarded = Guarded::start(&usual());
    let mut orders = guarded.native("orders");
    orders.acquire("orders/1", LONG_MS);
    let session_id = orders.session.expect("it was let in").session_id;
    let end = Request::EndSession { session_id };
    assert!(is_forbidden(
        &mut guarded.native("ops-orders"),
        "ops-orders",
        &end
    ));
    assert!(is_forbidden(
        &mut guarded.native("watcher"),
        "watcher",
        &end
    ));
    let mut ops = guarded.native("ops");
    ops.ask(&end, |reply| assert_eq!(reply, Reply::Bye));
    orders.is_closed_with(ErrorCode::SESSION_ENDED);
    guarded.native("orders").acquire("orders/1", LONG_MS);
    until("the session is forgotten", || {
        ops.ask(&end, |reply| {
            matches!(
                reply,
                Reply::Error {
                    code: ErrorCode::SESSION_UNKNOWN,
                    ..
                }
            )
        })
    });
    let mut all = guarded.native("all");
    assert_eq!(all.stat("refused_rights_total"), 2);
}

const UNLOCK: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

#[test]
fn nothing_gets_around_the_prefixes_of_a_redis_client() {
    let guarded = Guarded::start(&usual());
    let mut all = guarded.redis("all");
    assert_eq!(all.say("SET billing/1 t NX PX 60000"), "OK");
    let mut orders = guarded.redis("orders");
    let is_refused = |answer: String| assert!(answer.starts_with("NOPERM"), "{answer}");
    let mut eval = |keys: &[&str]| {
        let count = keys.len().to_string();
        let mut command = vec!["EVAL", UNLOCK, &count];
        command.extend(keys);
        command.push("t");
        orders.send(&command);
        orders.read()
    };
    is_refused(eval(&["billing/1"]));
    is_refused(eval(&["orders/1", "billing/1"]));
    assert_eq!(eval(&["orders/1"]), "0");

    // A transaction is checked when a command is queued and when it is carried out.
    assert_eq!(orders.say("MULTI"), "OK");
    is_refused(orders.say("LOCK.FORCE orders/1"));
    assert!(orders.say("EXEC").starts_with("EXECABORT"));
    assert_eq!(orders.say("MULTI"), "OK");
    assert_eq!(orders.say("SET orders/7 t NX PX 60000"), "QUEUED");
    assert_eq!(orders.say("SET billing/7 t NX PX 60000"), "QUEUED");
    let answers = orders.say("EXEC");
    assert!(answers.starts_with("[OK NOPERM"), "{answers}");
    // What was queued under one token is not carried out under another.
    let mut turncoat = guarded.redis("all");
    assert_eq!(turncoat.say("MULTI"), "OK");
    assert_eq!(turncoat.say("SET billing/8 t NX PX 60000"), "QUEUED");
    assert_eq!(turncoat.say(&format!("AUTH {}", token("orders"))), "OK");
    assert!(turncoat.say("EXEC").starts_with("ERR EXEC without MULTI"));
    is_refused(turncoat.say("SET billing/8 t NX PX 60000"));
    // A wrong password changes nothing.
    assert!(
        turncoat
            .say("AUTH wrong-and-long-enough")
            .starts_with("WRONGPASS")
    );
    is_refused(turncoat.say("LOCK.FORCE billing/1"));
    assert_eq!(
        turncoat.say("SUBSCRIBE orders/channel"),
        "[subscribe orders/channel 1]"
    );
    assert_eq!(all.say("KEYS billing/*"), "[billing/1]");
}

#[test]
fn rights_follow_the_file_on_open_connections() {
    let guarded = Guarded::start(&usual());
    let mut native = guarded.native("orders");
    let mut redis = guarded.redis("orders");
    let mut idle = guarded.native("orders");
    let fence = native.acquire("orders/1", LONG_MS);
    let fewer = entry("orders", "roles = [\"lock\"]\nprefixes = [\"orders/eu/\"]");
    guarded.write(&fewer);
    assert!(is_forbidden(
        &mut native,
        "orders",
        &release("orders/1", fence)
    ));
    assert!(
        redis
            .say("SET orders/2 t NX PX 60000")
            .starts_with("NOPERM")
    );
    assert_eq!(redis.say("SET orders/eu/2 t NX PX 60000"), "OK");
    // A file that cannot be used changes nothing.
    guarded.write("[[token]]\n");
    native.acquire("orders/eu/1", LONG_MS);
    // The name is gone: so are its connections, those that are silent as well.
    guarded.write(&entry("other", "roles = [\"lock\"]"));
    for peer in [&mut native, &mut idle] {
        peer.is_closed_with(ErrorCode::UNAUTHENTICATED);
    }
    until("the connection of the Redis port is closed", || {
        redis
            .try_say("PING")
            .is_none_or(|answer| answer.starts_with("ERR"))
    });
    let refused = Peer::knock(guarded.server.local_addr(), hello_of("a", &token("orders"))).err();
    assert_eq!(
        refused.expect("not let in").code,
        ErrorCode::UNAUTHENTICATED
    );
}

#[test]
fn refusals_are_in_the_audit_log_with_the_name_of_the_token() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("audit.log");
    let log = path.clone();
    let guarded = Guarded::start_with(&usual(), |config| config.audit_log = Some(log));
    let mut orders = guarded.native("orders");
    assert!(is_forbidden(
        &mut orders,
        "orders",
        &acquire("billing/1", LONG_MS, 0)
    ));
    assert!(
        guarded
            .redis("viewer")
            .say("SET orders/1 t NX PX 60000")
            .starts_with("NOPERM")
    );
    assert_eq!(guarded.http("ops", "/locks"), 403);
    let address = guarded.server.local_addr();
    assert!(Peer::knock(address, hello_of("x", "a-token-of-nobody")).is_err());
    let lines = || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let whole = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let refused = whole.filter(|line: &serde_json::Value| line["event"] == "refuse");
        refused.collect::<Vec<_>>()
    };
    until("four refusals are written", || lines().len() == 4);
    let lines = lines();
    let line = |what: &str| {
        let found = lines.iter().find(|line| line["what"] == what);
        found.unwrap_or_else(|| panic!("no {what} among {lines:?}"))
    };
    assert_eq!(line("acquire")["token_name"], "orders");
    assert_eq!(line("acquire")["key"], "billing/1");
    assert_eq!(line("acquire")["client_name"], "orders");
    assert_eq!(line("set")["token_name"], "viewer");
    assert_eq!(line("set")["key"], "orders/1");
    assert_eq!(line("http")["token_name"], "ops");
    assert!(
        line("hello")["address"]
            .as_str()
            .expect("text")
            .starts_with("127.0.0.1:")
    );
    let mut all = guarded.native("all");
    assert_eq!(all.stat("refused_rights_total"), 4);
}
