//! The HTTP side, spoken by hand: probes, the view of the locks, tokens, and requests that make no
//! sense.

use crate::common::{PATIENCE, Peer, acquire, start_with, wire_key};
use protocol::{Acquire, Lease, Metadata, Mode, Reply, Request};
use serde_json::{Value, json};
use server::{Server, StartError};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// What came back for a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert!(
            self.head.contains("content-type: application/json"),
            "{self:?}"
        );
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The sentence of a refusal.
    #[track_caller]
    pub(crate) fn error(&self) -> String {
        self.json()["error"]
            .as_str()
            .expect("a refusal has a sentence")
            .to_owned()
    }
}

pub(crate) fn free_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub(crate) fn start_with_http() -> Server {
    start_with(|builder| builder.http(free_port()))
}

#[track_caller]
pub(crate) fn http_addr(server: &Server) -> SocketAddr {
    server.http_addr().expect("HTTP is served")
}

pub(crate) fn get(server: &Server, path: &str) -> Answer {
    get_at(http_addr(server), path)
}

pub(crate) fn get_at(address: SocketAddr, path: &str) -> Answer {
    ask(address, "GET", path, "").expect("the server answers")
}

/// With a header that says what the client can read.
pub(crate) fn get_as(server: &Server, path: &str, accept: &str) -> Answer {
    let header = format!("Accept: {accept}\r\n");
    ask(http_addr(server), "GET", path, &header).expect("the server answers")
}

/// Sends one request and reads to the end of the connection. `None`: no server is there any more.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> Option<Answer> {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
    );
    speak(address, &request)
}

/// Sends a request as it stands.
pub(crate) fn speak(address: SocketAddr, request: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    })
}

/// 300 requests that never ended once kept a health check waiting for ten seconds: more than that
/// could not be connected, and each had five seconds to end.
#[test]
fn requests_that_never_end_do_not_keep_a_health_check_waiting() {
    let server = start_with(|builder| {
        let builder = builder.http(free_port());
        // None of them ends by itself.
        builder.with(|config| config.frame_timeout = std::time::Duration::from_secs(3_600))
    });
    let half_open: Vec<TcpStream> = (0..150)
        .map(|_| {
            let mut stream = TcpStream::connect(http_addr(&server)).expect("it listens");
            let half = b"GET /healthz HTTP/1.1\r\nHost: x\r\n";
            // The oldest may have had to go by now.
            let _ = stream.write_all(half);
            stream
        })
        .collect();
    let health = get(&server, "/healthz");
    assert_eq!((health.status, &*health.body), (200, "ok\n"));
    let mut oldest = &half_open[0];
    oldest.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = oldest.read(&mut [0; 64]);
    let is_closed = match end {
        Ok(read_bytes) => read_bytes == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    assert!(is_closed, "it gave way");
    // A newer one did not, and is answered once it is whole.
    let mut newest = &half_open[149];
    newest.set_read_timeout(Some(PATIENCE)).unwrap();
    newest.write_all(b"\r\n").expect("it is open");
    let mut answer = [0; 15];
    newest.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
}

#[test]
fn the_index_lists_the_paths_and_the_probes_say_yes() {
    let server = start_with_http();
    let index = get(&server, "/");
    assert_eq!(index.status, 200);
    for path in ["/metrics", "/healthz", "/readyz", "/locks"] {
        assert!(index.body.contains(path), "{path} is missing");
    }
    let health = get(&server, "/healthz");
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    let ready = get(&server, "/readyz");
    let yes = json!({"ready": true, "granting": true});
    assert_eq!((ready.status, ready.json()), (200, yes.clone()));
    let granting = get(&server, "/readyz?granting");
    assert_eq!((granting.status, granting.json()), (200, yes));
    assert_eq!(get(&server, "/readyz?else").status, 400);
}

#[test]
fn a_server_that_stops_is_healthy_but_not_ready() {
    let server = start_with_http();
    let address = http_addr(&server);
    // While one of its connections has not closed, the server is still there.
    let peer = Peer::connect(server.local_addr(), "slow to close");
    let stopping = std::thread::spawn(move || server.shutdown());
    let not_ready = loop {
        let ready = ask(address, "GET", "/readyz", "").expect("it is served until the end");
        if ready.status != 200 {
            break ready;
        }
    };
    assert_eq!(not_ready.status, 503);
    let reason = json!({"ready": false, "granting": false, "reason": "stopping"});
    assert_eq!(not_ready.json(), reason);
    drop(peer);
    stopping.join().expect("the server stops");
    assert!(
        ask(address, "GET", "/healthz", "").is_none(),
        "no connection is left"
    );
}

#[test]
fn one_lock_shows_its_holder_and_its_queue() {
    let server = start_with_http();
    let mut a = Peer::connect(server.local_addr(), "worker-7");
    let mut b = Peer::connect(server.local_addr(), "worker-8");
    let request = Request::Acquire(Acquire {
        metadata: Metadata::new(b"host=a pid=7").expect("short"),
        is_reentrant: true,
        ..Acquire::exclusive(wire_key("orders/42"), Lease::Session)
    });
    let fence = a.ask(&request, crate::common::granted);
    assert_eq!(a.ask(&request, crate::common::granted), fence);
    b.send(&acquire("orders/42", 10_000, 60_000));
    // Answered behind the acquire, which waits by then.
    b.ask(&Request::Ping, |reply| assert_eq!(reply, Reply::Pong));

    for path in ["/locks/orders/42", "/locks/orders%2F42"] {
        let answer = get(&server, path);
        assert_eq!(answer.status, 200, "{answer:?}");
        let mut lock = answer.json();
        let holder = &mut lock["holders"][0];
        let session_id = a.session.expect("it has one").session_id.get();
        assert!(holder["held_ms"].is_u64() && holder["remaining_ms"].is_u64());
        holder["held_ms"].take();
        holder["remaining_ms"].take();
        let expected = json!({
            "key": "orders/42", "last_fence": fence, "holder_count": 1, "queue_length": 1,
            "holders": [{
                "fence": fence, "session_id": session_id, "client_name": "worker-7",
                "is_shared": false, "is_session_bound": true, "hold_count": 2,
                "held_ms": null, "remaining_ms": null, "ends_with_session": true,
                "metadata": "host=a pid=7",
            }],
        });
        assert_eq!(lock, expected);
    }
}

#[test]
fn a_key_nobody_locked_is_not_found_and_one_given_back_is_free() {
    let server = start_with_http();
    let unknown = get(&server, "/locks/nobody");
    assert_eq!(unknown.status, 404);
    assert!(unknown.error().contains("not locked"));
    let mut a = Peer::connect(server.local_addr(), "a");
    let fence = a.acquire("k", 10_000);
    assert!(a.release("k", fence));
    let free = get(&server, "/locks/k").json();
    let expected = json!({"key": "k", "last_fence": fence, "holder_count": 0, "queue_length": 0, "holders": []});
    assert_eq!(free, expected);
}

#[test]
fn keys_of_any_bytes_are_found_and_shown() {
    let server = start_with_http();
    let mut a = Peer::connect(server.local_addr(), "a");
    let lease = Lease::Ttl { ttl_ms: 60_000 };
    for (bytes, path, shown) in [
        (&b"\xff\0k"[..], "/locks/%ff%00k", "\\xff\0k"),
        (
            "größe 1".as_bytes(),
            "/locks/gr%C3%B6%C3%9Fe%201",
            "größe 1",
        ),
        (b"a+b?c#d%", "/locks/a+b%3fc%23d%25", "a+b?c#d%"),
    ] {
        let key = protocol::Key::new(bytes).expect("a key");
        a.ask(
            &Request::Acquire(Acquire::exclusive(key, lease)),
            crate::common::granted,
        );
        let answer = get(&server, path);
        assert_eq!(answer.status, 200, "{answer:?}");
        let lock = answer.json();
        assert_eq!(lock["key"], shown);
        let hex = (std::str::from_utf8(bytes).is_err()).then_some("ff006b");
        assert_eq!(lock["key_hex"].as_str(), hex);
    }
    let listed = get(&server, "/locks?prefix=%ff").json();
    assert_eq!(listed["locks"][0]["key_hex"], "ff006b");
    assert_eq!(listed["locks"].as_array().map(Vec::len), Some(1));
}

#[test]
fn pages_together_list_every_lock_of_the_prefix_once() {
    let server = start_with_http();
    let mut a = Peer::connect(server.local_addr(), "a");
    let mut expected = Vec::new();
    for number in 0..250 {
        let key = format!("orders/{number}");
        a.acquire(&key, 60_000);
        expected.push(key);
    }
    a.acquire("other", 60_000);
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/locks?prefix=orders/&limit=40&cursor={cursor}");
        let page = get(&server, &path).json();
        let locks = page["locks"].as_array().expect("a page has locks");
        assert!(locks.len() <= 40);
        found.extend(
            locks
                .iter()
                .map(|lock| lock["key"].as_str().expect("text").to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let all = get(&server, "/locks?limit=1000").json();
    assert_eq!(all["locks"].as_array().map(Vec::len), Some(251));
    assert_eq!(all["next"], Value::Null);
}

#[test]
fn shared_locks_show_all_their_holders_alone_and_some_on_a_page() {
    let server = start_with_http();
    let mut peers: Vec<Peer> = (0..20)
        .map(|number| Peer::connect(server.local_addr(), &format!("reader-{number}")))
        .collect();
    for peer in &mut peers {
        let lease = Lease::Ttl { ttl_ms: 60_000 };
        let request = Acquire {
            mode: Mode::Shared,
            ..Acquire::exclusive(wire_key("k"), lease)
        };
        peer.ask(&Request::Acquire(request), crate::common::granted);
    }
    let one = get(&server, "/locks/k").json();
    assert_eq!(one["holder_count"], 20);
    let names: Vec<&str> = one["holders"]
        .as_array()
        .expect("holders")
        .iter()
        .map(|holder| holder["client_name"].as_str().expect("a name"))
        .collect();
    let expected: Vec<String> = (0..20).map(|number| format!("reader-{number}")).collect();
    assert_eq!(names, expected);
    let page = get(&server, "/locks").json();
    assert_eq!(page["locks"][0]["holder_count"], 20);
    assert_eq!(
        page["locks"][0]["holders"].as_array().map(Vec::len),
        Some(16)
    );
}

#[test]
fn requests_that_make_no_sense_get_a_sentence() {
    let server = start_with_http();
    let long = "k".repeat(257);
    for (path, status, word) in [
        ("/locks?limit=0", 400, "1 to 1000"),
        ("/locks?limit=many", 400, "1 to 1000"),
        ("/locks?cursor=here", 400, "cursor"),
        ("/locks?prefxi=a", 400, "prefxi"),
        ("/locks/", 400, "256 bytes"),
        (&format!("/locks/{long}"), 400, "256 bytes"),
        ("/nothing", 404, "/nothing"),
        ("/locks/k/", 404, "not locked"),
    ] {
        let answer = get(&server, path);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(answer.error().contains(word), "{path}: {answer:?}");
    }
    for method in ["POST", "DELETE", "PUT"] {
        let answer = ask(
            http_addr(&server),
            method,
            "/locks/k",
            "Content-Length: 0\r\n",
        );
        let answer = answer.expect("the server answers");
        assert_eq!(answer.status, 405);
        assert!(answer.error().contains("read only"));
    }
}

/// What a bad peer sends costs it its connection, and no other peer anything.
#[test]
fn garbage_and_oversized_heads_cost_only_their_sender() {
    let server = start_with_http();
    let oversized = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(64 * 1024));
    let headers = "A: b\r\n".repeat(1000);
    let too_many = format!("GET / HTTP/1.1\r\n{headers}\r\n");
    for bytes in [
        &b"\x00\x01\x02\x03 nonsense\r\n\r\n"[..],
        b"GET / SPDY/9\r\n\r\n",
        oversized.as_bytes(),
        too_many.as_bytes(),
        b"POST /locks HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000000\r\n\r\nthe rest never comes",
    ] {
        let mut stream = TcpStream::connect(http_addr(&server)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may close before all is sent.
        let _ = stream.write_all(bytes);
        let mut heard = Vec::new();
        if let Err(error) = stream.read_to_end(&mut heard) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it does not hang");
        }
        let heard = String::from_utf8_lossy(&heard);
        assert!(
            heard.is_empty() || heard.starts_with("HTTP/1.1 4"),
            "{heard}"
        );
        assert_eq!(get(&server, "/healthz").status, 200);
    }
}

#[test]
fn half_a_head_is_not_waited_for_for_ever() {
    let server = start_with_http();
    let mut stream = TcpStream::connect(http_addr(&server)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
    let mut heard = Vec::new();
    stream
        .read_to_end(&mut heard)
        .expect("the server closes before our patience ends");
}

#[test]
fn other_machines_need_a_token_except_for_the_probes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").unwrap();
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let server = start_with(|builder| {
        builder
            .http(everywhere)
            .with(|config| config.auth_token_file = Some(file.clone()))
    });
    let address = SocketAddr::from(([127, 0, 0, 1], http_addr(&server).port()));
    let status = |path, headers| {
        let answer = ask(address, "GET", path, headers).expect("the server answers");
        if answer.status == 401 {
            assert!(answer.head.contains("www-authenticate: bearer"));
            assert!(answer.error().contains("token"));
        }
        answer.status
    };
    let right = "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n";
    let lower = "authorization: bearer 0123456789abcdef0123456789abcdef\r\n";
    let wrong = "Authorization: Bearer 0123456789abcdef0123456789abcdee\r\n";
    let basic = "Authorization: Basic 0123456789abcdef0123456789abcdef\r\n";
    for path in ["/", "/metrics", "/locks", "/locks/k", "/nothing"] {
        for headers in ["", wrong, basic, "Authorization:\r\n"] {
            assert_eq!(status(path, headers), 401, "{path} {headers}");
        }
        assert_ne!(status(path, right), 401, "{path}");
        assert_ne!(status(path, lower), 401, "{path}");
    }
    assert_eq!(status("/healthz", ""), 200);
    assert_eq!(status("/readyz", ""), 200);

    let near = start_with(|builder| {
        builder
            .http(free_port())
            .with(|config| config.auth_token_file = Some(file))
    });
    assert_eq!(get(&near, "/metrics").status, 200, "the own machine may");
}

#[test]
fn a_port_that_is_taken_is_said_at_the_start() {
    let taken = TcpListener::bind(free_port()).unwrap();
    let address = taken.local_addr().unwrap();
    let result = Server::builder().threads(1).http(address).start();
    match result.err() {
        Some(error @ StartError::Listen { .. }) => {
            assert!(error.to_string().contains(&address.to_string()), "{error}");
        }
        other => panic!("not a listen error but {other:?}"),
    }
    let without = Server::builder().threads(1).start().expect("it starts");
    assert_eq!(without.http_addr(), None, "off unless asked for");
}
