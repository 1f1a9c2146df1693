//! Peers that break the rules, by accident or on purpose. Each is told what is wrong, and no other
//! client notices: a healthy client works beside every one of these tests.

use crate::common::{
    LONG_MS, PATIENCE, Peer, acquire, encode, error_code, granted, hello, raw_frame, start_with,
    until,
};
use crate::healthy::{Healthy, beside_a_healthy_client};
use protocol::request::op;
use protocol::{ErrorCode, Hello, Reply, Request, Token, limits};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn a_length_outside_the_limits_ends_the_connection_with_a_reason() {
    beside_a_healthy_client(
        |_| {},
        |address| {
            let beyond_hello = limits::HELLO_FRAME_BYTES_MAX - 3;
            let beyond_request = limits::REQUEST_FRAME_BYTES_MAX - 3;
            let below_header = 0..10;
            let bad = [beyond_request, u32::MAX, i32::MAX as u32];
            for length in below_header.clone().chain(bad).chain([beyond_hello]) {
                let mut stranger = Peer::silent(address);
                stranger.send_bytes(&length.to_le_bytes());
                stranger.is_closed_with(ErrorCode::MALFORMED);
            }
            for length in below_header.chain(bad) {
                let mut peer = Peer::connect(address, "long");
                let before = peer.send(&Request::Ping);
                peer.send_bytes(&length.to_le_bytes());
                let why = peer.is_closed_with(ErrorCode::MALFORMED);
                assert!(why.contains("bytes"), "{why}");
                peer.reply(before, |reply| {
                    assert_eq!(reply, Reply::Pong, "what came before is answered")
                });
            }
            // The longest request there may be: nothing in it, but of the right length.
            let mut peer = Peer::connect(address, "just right");
            let filler = vec![0; limits::REQUEST_FRAME_BYTES_MAX as usize - 14];
            peer.send_bytes(&raw_frame(0x7f, 0, 9, &filler));
            let code = peer.reply(9, error_code);
            assert_eq!(code, ErrorCode::UNKNOWN_OP);
        },
    );
}

#[test]
fn other_protocols_on_the_port_are_told_so() {
    beside_a_healthy_client(
        |_| {},
        |address| {
            let http = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
            let redis = b"*1\r\n$4\r\nPING\r\n".to_vec();
            let mut client_hello = vec![
                0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03,
            ];
            client_hello.extend([0x5a; 500]);
            let wrong_magic = raw_frame(op::HELLO, 0, 1, b"FCNP\x01\0\x01\0\0\0\0\0\0\0");
            for (bytes, answer) in [(http, "HTTP/1.1 400 "), (redis, "-ERR ")] {
                let mut peer = Peer::silent(address);
                peer.send_bytes(&bytes);
                let mut heard = String::new();
                peer.stream
                    .read_to_string(&mut heard)
                    .expect("text, and it closes");
                assert!(heard.starts_with(answer), "{heard:?}");
                assert!(
                    heard.contains("this port speaks Fencepost's own protocol"),
                    "{heard:?}"
                );
            }
            let mut peer = Peer::silent(address);
            peer.send_bytes(&client_hello);
            let mut alert = Vec::new();
            let closed = peer.stream.read_to_end(&mut alert);
            closed.expect("an alert, and it closes");
            assert_eq!(alert, tls::ALERT_REFUSED);
            let mut peer = Peer::silent(address);
            peer.send_bytes(&wrong_magic);
            let refused = peer.next_reply(|_, reply| match reply {
                Reply::HelloRefused { code, .. } => code,
                other => panic!("not refused but {other:?}"),
            });
            assert_eq!(refused, Some(ErrorCode::MALFORMED));
            assert_eq!(peer.farewell(), None, "and it closes");
        },
    );
}

#[test]
fn a_client_without_a_version_in_common_is_told_which_there_are() {
    beside_a_healthy_client(
        |_| {},
        |address| {
            for (version_min, version_max, is_known) in [
                (2, 9, false),
                (0, 0, false),
                (9, 2, false),
                (u16::MAX, u16::MAX, false),
                (0, u16::MAX, true),
                (1, 1, true),
            ] {
                let mut peer = Peer::silent(address);
                let id = peer.send(&Request::Hello(Hello {
                    version_min,
                    version_max,
                    ..hello("from elsewhere")
                }));
                peer.reply(id, |reply| match reply {
                    Reply::Welcome(welcome) => {
                        assert!(is_known);
                        assert_eq!(welcome.version, 1);
                    }
                    Reply::HelloRefused {
                        code,
                        version_min,
                        version_max,
                        ..
                    } => {
                        assert!(!is_known);
                        assert_eq!(code, ErrorCode::UNSUPPORTED_VERSION);
                        assert_eq!((version_min, version_max), (1, 1));
                    }
                    other => panic!("neither let in nor refused but {other:?}"),
                });
            }
        },
    );
}

#[test]
fn only_a_right_token_opens_the_door() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tokens");
    let (old, new) = ("the old token of 2024", "the new token of 2025");
    std::fs::write(&path, format!("# rotated\n{old}\n{new}\n")).expect("a file");
    let server = start_with(|builder| builder.with(|config| config.auth_token_file = Some(path)));
    let address = server.local_addr();
    let with_token = |token: &'static str| Hello {
        token: Token::new(token.as_bytes()).expect("a short token"),
        ..hello("a")
    };
    let healthy = Healthy::start_with(address, with_token(new));
    let longest: &'static str = "x".repeat(limits::TOKEN_BYTES_MAX).leak();
    for wrong in [
        "",
        "x",
        "the old token of 2023",
        "the old token of 2024 ",
        "THE OLD TOKEN OF 2024",
        "# rotated",
        longest,
    ] {
        let refused = Peer::knock(address, with_token(wrong)).err();
        let refused = refused.expect("not let in");
        assert_eq!(refused.code, ErrorCode::UNAUTHENTICATED, "{wrong}");
        assert!(!refused.message.contains("old token"), "nothing given away");
    }
    for right in [old, new] {
        Peer::open(address, with_token(right)).ping();
    }
    let mut observer = Peer::open(address, with_token(old));
    assert_eq!(observer.stat("hellos_refused_total"), 7);
    healthy.finish();
}

#[test]
fn the_first_request_is_hello_and_no_other_is() {
    beside_a_healthy_client(
        |_| {},
        |address| {
            for first in [acquire("k", LONG_MS, 0), Request::Ping, Request::Goodbye] {
                let mut peer = Peer::silent(address);
                let id = peer.send(&first);
                peer.reply(id, |reply| match reply {
                    Reply::HelloRefused { code, .. } => assert_eq!(code, ErrorCode::OUT_OF_TURN),
                    other => panic!("not refused but {other:?}"),
                });
                assert_eq!(peer.farewell(), None);
            }
            let mut peer = Peer::connect(address, "polite");
            let session = peer.session;
            let code = peer.ask(&Request::Hello(hello("polite")), error_code);
            assert_eq!(code, ErrorCode::OUT_OF_TURN);
            assert_eq!(peer.session, session);
            peer.ping();
        },
    );
}

#[test]
fn a_request_without_an_id_ends_its_connection() {
    beside_a_healthy_client(
        |_| {},
        |address| {
            let mut peer = Peer::connect(address, "nameless");
            let before = peer.send(&Request::Ping);
            peer.send_bytes(&raw_frame(op::PING, 0, 0, &[]));
            let why = peer.is_closed_with(ErrorCode::MALFORMED);
            assert!(why.contains("request id"), "{why}");
            peer.reply(before, |reply| assert_eq!(reply, Reply::Pong));
            let mut peer = Peer::silent(address);
            let hello = encode(1, &Request::Hello(hello("nameless")));
            peer.send_bytes(&raw_frame(op::HELLO, 0, 0, &hello[14..]));
            peer.is_closed_with(ErrorCode::MALFORMED);
        },
    );
}

#[test]
fn an_id_that_waits_cannot_be_used_again() {
    beside_a_healthy_client(
        |_| {},
        |address| {
            let mut holder = Peer::connect(address, "holder");
            let mut observer = Peer::connect(address, "observer");
            let held = holder.acquire("k", LONG_MS);
            let mut peer = Peer::connect(address, "confused");
            let id = peer.stand_in_line("k", 0, &mut observer);
            for is_repeated in [false, true] {
                peer.send_as(id, &acquire("k", LONG_MS, LONG_MS), is_repeated);
                assert_eq!(peer.reply(id, error_code), ErrorCode::MALFORMED);
            }
            assert_eq!(observer.queue_length("k"), 1);
            drop(peer);
            until("nothing is left behind", || observer.queue_length("k") == 0);
            assert_eq!(observer.stat("waiters"), 0);
            assert!(holder.release("k", held));
        },
    );
}

/// What stands in a body, piece by piece.
fn body(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}

fn option(tag: u8, bytes: &[u8]) -> Vec<u8> {
    [&[tag][..], &string(bytes)].concat()
}

#[test]
fn a_request_that_breaks_a_rule_is_an_error_of_its_own_and_nothing_else() {
    let ttl = 1_000u32.to_le_bytes();
    let day = 86_400_001u32.to_le_bytes();
    let zero = 0u32.to_le_bytes();
    let fence = 7u64.to_le_bytes();
    let key = string(b"k");
    let long = string(&[b'k'; limits::KEY_BYTES_MAX + 1]);
    let cases: Vec<(&str, u8, u8, Vec<u8>)> = vec![
        ("no body", op::ACQUIRE, 0, vec![]),
        ("half a ttl", op::ACQUIRE, 0, vec![1, 2]),
        ("no key", op::ACQUIRE, 0, body(&[&ttl, &zero])),
        (
            "an empty key",
            op::ACQUIRE,
            0,
            body(&[&ttl, &zero, &string(b"")]),
        ),
        ("a long key", op::ACQUIRE, 0, body(&[&ttl, &zero, &long])),
        (
            "a key longer than the frame",
            op::ACQUIRE,
            0,
            body(&[&ttl, &zero, &[255, 0], b"k"]),
        ),
        ("no ttl", op::ACQUIRE, 0, body(&[&zero, &zero, &key])),
        ("a long ttl", op::ACQUIRE, 0, body(&[&day, &zero, &key])),
        ("a long wait", op::ACQUIRE, 0, body(&[&ttl, &day, &key])),
        (
            "bound to its session and to a ttl",
            op::ACQUIRE,
            0x02,
            body(&[&ttl, &zero, &key]),
        ),
        (
            "an unknown flag",
            op::ACQUIRE,
            0x10,
            body(&[&ttl, &zero, &key]),
        ),
        (
            "long metadata",
            op::ACQUIRE,
            0,
            body(&[&ttl, &zero, &key, &option(3, &[0; 257])]),
        ),
        (
            "a trace id that is no text",
            op::ACQUIRE,
            0,
            body(&[&ttl, &zero, &key, &option(4, &[0xff, 0xfe])]),
        ),
        (
            "options out of order",
            op::ACQUIRE,
            0,
            body(&[&ttl, &zero, &key, &option(4, b"t"), &option(3, b"m")]),
        ),
        (
            "an option twice",
            op::ACQUIRE,
            0,
            body(&[&ttl, &zero, &key, &option(3, b"m"), &option(3, b"m")]),
        ),
        (
            "an option cut short",
            op::ACQUIRE,
            0,
            body(&[&ttl, &zero, &key, &[9, 200, 0, 1]]),
        ),
        ("fence zero", op::RELEASE, 0, body(&[&[0; 8], &key])),
        ("no fence", op::RELEASE, 0, key.clone()),
        (
            "a flag on a release",
            op::RELEASE,
            0x01,
            body(&[&fence, &key]),
        ),
        ("a renewal for no time", op::RENEW, 0, {
            body(&[&fence, &zero, &key])
        }),
        ("a downgrade of nothing", op::DOWNGRADE, 0, vec![]),
        ("half an id", op::CANCEL, 0, vec![1, 0, 0]),
        ("a query for nothing", op::QUERY, 0, string(b"")),
        (
            "a page too long",
            op::LIST,
            0,
            body(&[&101u16.to_le_bytes(), &string(b""), &string(b"")]),
        ),
        (
            "a prefix too long",
            op::LIST,
            0,
            body(&[&[1, 0], &long, &string(b"")]),
        ),
        ("a flag on a ping", op::PING, 0x40, vec![]),
        ("a flag on goodbye", op::GOODBYE, 0x20, vec![]),
        (
            "a claim held zero times",
            op::CLAIM,
            0,
            body(&[&fence, &ttl, &key, &option(5, &[0; 4])]),
        ),
    ];
    beside_a_healthy_client(
        |_| {},
        |address| {
            let mut peer = Peer::connect(address, "careless");
            let kept = peer.acquire("kept", LONG_MS);
            let before = peer.stat("malformed_total");
            // Pipelined: the errors concern one request each, whatever stands around it.
            let mut sent = Vec::new();
            let mut id = peer.next_id();
            for (what, kind, flags, body) in &cases {
                sent.extend(raw_frame(*kind, *flags, id, body));
                sent.extend(encode(id + 1, &Request::Ping));
                peer.send_bytes(&sent);
                sent.clear();
                assert_eq!(peer.reply(id, error_code), ErrorCode::MALFORMED, "{what}");
                peer.reply(id + 1, |reply| assert_eq!(reply, Reply::Pong, "{what}"));
                id += 2;
            }
            // Kinds of replies and pushes are no requests either.
            for kind in [0x80, 0x90, 0xc0, 0xff] {
                peer.send_bytes(&raw_frame(kind, 0xff, id, b"whatever"));
                assert_eq!(peer.reply(id, error_code), ErrorCode::UNKNOWN_OP);
                id += 1;
            }
            // What later versions may add is skipped.
            let more = body(&[&ttl, &zero, &key, &option(200, b"from the future")]);
            peer.send_bytes(&raw_frame(op::ACQUIRE, 0, id, &more));
            peer.reply(id, granted);
            peer.send_as(id + 1, &Request::Ping, false);
            peer.reply(id + 1, |reply| assert_eq!(reply, Reply::Pong));
            assert!(peer.is_held_under("kept", kept), "nothing happened");
            assert_eq!(
                peer.stat("malformed_total") - before,
                cases.len() as u64 + 4
            );
        },
    );
}

#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
    beside_a_healthy_client(
        |_| {},
        |address| {
            let mut observer = Peer::connect(address, "observer");
            let sessions = observer.stat("sessions");
            let connections = observer.stat("connections");
            for round in 0..200 {
                let mut peer = Peer::silent(address);
                match round % 4 {
                    // Without a word, in the middle of one, after one, and after one with something
                    // to come.
                    0 => {}
                    1 => peer.send_bytes(&encode(1, &Request::Hello(hello("a")))[..20]),
                    2 => {
                        peer.introduce(hello("a")).expect("let in");
                        peer.send(&Request::Goodbye);
                    }
                    _ => {
                        peer.introduce(hello("a")).expect("let in");
                        peer.send(&acquire("k", LONG_MS, LONG_MS));
                        peer.send(&Request::Goodbye);
                    }
                }
            }
            until("all are gone", || {
                let stats = observer.stats();
                stats["connections"] == connections
                    && stats["sessions"] == sessions
                    && stats["waiters"] == 0
            });
        },
    );
}

#[test]
fn a_connection_that_is_reset_in_the_middle_takes_nothing_with_it() {
    beside_a_healthy_client(
        |_| {},
        |address| {
            for round in 0..50 {
                let mut peer = Peer::connect(address, "reset");
                for number in 0..20 {
                    peer.send(&acquire(&format!("reset/{round}/{number}"), 50, 0));
                }
                let socket = socket2::SockRef::from(&peer.stream);
                // Closing now resets the connection instead of ending it.
                socket
                    .set_linger(Some(Duration::ZERO))
                    .expect("a socket option");
            }
            let mut observer = Peer::connect(address, "observer");
            until("its leases end as any others", || {
                let healthy_at_most = 1;
                observer.stat("held") <= healthy_at_most
            });
        },
    );
}

#[test]
fn a_half_closed_connection_still_hears_what_was_decided() {
    beside_a_healthy_client(
        |_| {},
        |address| {
            let mut stream = TcpStream::connect(address).expect("the server listens");
            stream
                .set_read_timeout(Some(PATIENCE))
                .expect("a socket option");
            let mut sent = encode(1, &Request::Hello(hello("in one go")));
            sent.extend(encode(2, &acquire("k", LONG_MS, 0)));
            stream.write_all(&sent).expect("the server takes requests");
            stream
                .shutdown(std::net::Shutdown::Write)
                .expect("still open");
            let mut answers = Vec::new();
            stream
                .read_to_end(&mut answers)
                .expect("the server closes in order");
            // A welcome and a grant.
            let welcome = u32::from_le_bytes(answers[..4].try_into().expect("four bytes"));
            assert_eq!(answers[4], 0x81);
            assert_eq!(answers[welcome as usize + 4 + 4], 0x90);
        },
    );
}
