//! `docs/protocol.md` says what the code does: its byte vectors, its numbers and its limits are
//! checked here.

use bytes::BytesMut;
use protocol::limits::*;
use protocol::*;
use std::collections::BTreeMap;
use std::fmt::Write;

const DOCUMENT: &str = include_str!("../../../docs/protocol.md");

/// The vectors of the document by name. In a block marked `vectors`, a line that is not indented
/// names one, indented lines have its bytes, and `;` begins a remark.
fn vectors() -> BTreeMap<&'static str, Vec<u8>> {
    let mut vectors = BTreeMap::new();
    let mut name = None;
    for line in DOCUMENT.lines() {
        if line.starts_with("```") {
            name = (line == "```vectors").then_some("");
        } else if name.is_some() && !line.starts_with(' ') {
            name = line.split_whitespace().next();
            let known = vectors.insert(name.expect("a name"), Vec::new());
            assert_eq!(known, None, "{name:?} is there twice");
        } else if let Some(name) = name {
            let bytes = line.split(';').next().unwrap_or_default();
            let bytes = bytes
                .split_whitespace()
                .map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits"));
            vectors.get_mut(name).expect("a named vector").extend(bytes);
        }
    }
    vectors
}

/// Compares one message with its vector, and removes it.
fn check(vectors: &mut BTreeMap<&str, Vec<u8>>, name: &str, append: impl FnOnce(&mut BytesMut)) {
    let mut out = BytesMut::new();
    append(&mut out);
    let documented = vectors.remove(name).unwrap_or_default();
    assert_eq!(
        hex(&documented),
        hex(&out),
        "{name}: left is the document, right the code"
    );
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x} ").unwrap();
    }
    text
}

fn key() -> Key<'static> {
    Key::new(b"orders/000000042").unwrap()
}

fn fence() -> Fence {
    Fence::new(1_048_577).unwrap()
}

fn session() -> SessionKey {
    SessionKey {
        session_id: SessionId::new(42),
        secret: SessionSecret::new(*b"0123456789abcdef"),
    }
}

fn leader() -> NodeAddress<'static> {
    NodeAddress::new("10.0.0.1:7400").unwrap()
}

fn holder() -> Holder<'static> {
    Holder {
        fence: fence(),
        session_id: SessionId::new(42),
        held_ms: 1_500,
        remaining_ms: 28_500,
        ends_with_session: false,
        mode: Mode::Exclusive,
        is_session_bound: false,
        is_you: false,
        hold_count: 1,
        client_name: ClientName::new("billing").unwrap(),
        metadata: Metadata::new(b"job 7").unwrap(),
    }
}

fn contention() -> Contention<'static> {
    Contention {
        holder_count: 1,
        queue_length: 3,
        holder: Some(holder()),
        recovering_ms: None,
    }
}

#[test]
fn documented_requests_are_the_bytes_we_send() {
    let hello = Hello {
        session_ttl_ms: 10_000,
        token: Token::new(b"sesame").unwrap(),
        ..Hello::new(ClientName::new("billing").unwrap())
    };
    let acquire = Acquire {
        wait_ms: 5_000,
        ..Acquire::exclusive(key(), Lease::Ttl { ttl_ms: 30_000 })
    };
    let acquire_full = Acquire {
        mode: Mode::Shared,
        lease: Lease::Session,
        is_reentrant: true,
        metadata: Metadata::new(b"job 7").unwrap(),
        trace_id: TraceId::new("4bf92f3577b34da6").unwrap(),
        ..acquire
    };
    let acquire_detached = Acquire {
        is_detached: true,
        ..acquire
    };
    let claim = Claim {
        key: key(),
        fence: fence(),
        mode: Mode::Exclusive,
        lease: Lease::Ttl { ttl_ms: 30_000 },
        hold_count: 2,
        metadata: Metadata::new(b"job 7").unwrap(),
        trace_id: TraceId::default(),
    };
    let (key, fence) = (key(), fence());
    let requests = [
        ("hello", 1, Request::Hello(hello)),
        (
            "hello-join",
            3,
            Request::Hello(Hello {
                opening: Opening::Join(session()),
                ..hello
            }),
        ),
        ("ping", 12, Request::Ping),
        ("keep-alive", 13, Request::KeepAlive),
        ("goodbye", 14, Request::Goodbye),
        ("acquire", 2, Request::Acquire(acquire)),
        ("acquire-detached", 2, Request::Acquire(acquire_detached)),
        (
            "renew",
            4,
            Request::Renew {
                key,
                fence,
                lease: Lease::Ttl { ttl_ms: 30_000 },
            },
        ),
        ("release", 5, Request::Release { key, fence }),
        ("downgrade", 6, Request::Downgrade { key, fence }),
        (
            "cancel",
            7,
            Request::Cancel {
                acquire_id: RequestId::new(2),
            },
        ),
        ("claim", 8, Request::Claim(claim)),
        ("query", 9, Request::Query { key }),
        (
            "list",
            10,
            Request::List {
                prefix: Prefix::new(b"orders/").unwrap(),
                cursor: Cursor::default(),
                limit: 100,
            },
        ),
        (
            "sessions",
            11,
            Request::Sessions {
                cursor: Cursor::new(&[7]).unwrap(),
                limit: 0,
            },
        ),
        ("stats-request", 15, Request::Stats),
        (
            "force-release",
            16,
            Request::ForceRelease {
                key,
                fence,
                trace_id: TraceId::new("4bf92f3577b34da6").unwrap(),
            },
        ),
        (
            "end-session",
            18,
            Request::EndSession {
                session_id: SessionId::new(9_007_199_254_740_881),
            },
        ),
    ];
    let mut vectors = vectors();
    for (name, id, request) in requests {
        check(&mut vectors, name, |out| {
            request.append(RequestId::new(id), out)
        });
    }
    check(&mut vectors, "acquire-waited", |out| {
        let waited = Acquire {
            wait_ms: 4_000,
            waited_ms: 1_000,
            ..acquire
        };
        Request::Acquire(waited).append_repeat(RequestId::new(2), out)
    });
    check(&mut vectors, "acquire-full", |out| {
        Request::Acquire(acquire_full).append_repeat(RequestId::new(2), out)
    });
    vectors.retain(|_, bytes| bytes[4] < frame::KIND_REPLY_MIN);
    assert!(vectors.is_empty(), "no test checks {vectors:x?}");
}

#[test]
fn documented_answers_are_the_bytes_we_send() {
    let welcome = Welcome {
        version: 1,
        is_resumed: false,
        session: session(),
        session_ttl_ms: 10_000,
        frame_bytes_max: REQUEST_FRAME_BYTES_MAX,
        in_flight_max: 1_024,
        remembered_max: 4_096,
        server_name: ServerName::new("fencepost 0.1.0").unwrap(),
        grace_ms: None,
        addresses: NodeAddresses::default(),
    };
    let welcome_back = Welcome {
        is_resumed: true,
        grace_ms: Some(30_000),
        ..welcome
    };
    let welcome_cluster = Welcome {
        addresses: NodeAddresses::new("10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400").unwrap(),
        ..welcome
    };
    let holders = [holder()];
    let locks = [LockEntry {
        key: key(),
        contention: contention(),
        last_fence: Some(fence()),
    }];
    let sessions = [SessionEntry {
        session_id: SessionId::new(42),
        age_ms: 60_000,
        ttl_ms: 10_000,
        remaining_ms: 9_000,
        connection_count: 2,
        lock_count: 1,
        waiter_count: 0,
        client_name: ClientName::new("billing").unwrap(),
        address: Address::new("127.0.0.1:50000").unwrap(),
    }];
    let stats = [StatEntry {
        name: StatName::new("grants_total").unwrap(),
        value: 7,
    }];
    let granted = |hold_count| Reply::Granted {
        fence: fence(),
        ttl_ms: 30_000,
        hold_count,
    };
    let replies = [
        (
            "error",
            17,
            Reply::Error {
                code: ErrorCode::UNKNOWN_OP,
                message: Message::new("unknown operation 0x22").unwrap(),
                leader: NodeAddress::default(),
            },
        ),
        ("welcome", 1, Reply::Welcome(welcome)),
        ("welcome-back", 1, Reply::Welcome(welcome_back)),
        (
            "hello-refused",
            1,
            Reply::HelloRefused {
                code: ErrorCode::UNSUPPORTED_VERSION,
                version_min: 1,
                version_max: 1,
                message: Message::new("version 1 only").unwrap(),
                leader: NodeAddress::default(),
            },
        ),
        (
            "hello-refused-not-leader",
            1,
            Reply::HelloRefused {
                code: ErrorCode::NOT_LEADER,
                version_min: 1,
                version_max: 1,
                message: Message::new("node 1 leads").unwrap(),
                leader: leader(),
            },
        ),
        (
            "error-not-leader",
            0,
            Reply::Error {
                code: ErrorCode::NOT_LEADER,
                message: Message::new("this node leads no more").unwrap(),
                leader: NodeAddress::default(),
            },
        ),
        ("welcome-cluster", 1, Reply::Welcome(welcome_cluster)),
        ("pong", 12, Reply::Pong),
        ("kept-alive", 13, Reply::KeptAlive { ttl_ms: 10_000 }),
        ("bye", 14, Reply::Bye),
        ("granted", 2, granted(1)),
        ("granted-twice", 2, granted(2)),
        ("refused", 2, Reply::Refused(contention())),
        (
            "timed-out",
            2,
            Reply::TimedOut(Contention {
                holder_count: 0,
                queue_length: 0,
                holder: None,
                recovering_ms: None,
            }),
        ),
        (
            "timed-out-recovering",
            2,
            Reply::TimedOut(Contention {
                holder_count: 0,
                queue_length: 0,
                holder: None,
                recovering_ms: Some(2_500),
            }),
        ),
        ("cancelled", 2, Reply::Cancelled),
        ("not-waiting", 7, Reply::NotWaiting),
        (
            "busy",
            2,
            Reply::Busy {
                bound: BusyBound::WAITERS_PER_KEY,
                retry_after_ms: 100,
            },
        ),
        (
            "unavailable",
            2,
            Reply::Unavailable {
                reason: UnavailableReason::RECOVERING,
                retry_after_ms: 2_500,
            },
        ),
        (
            "unavailable-no-quorum",
            2,
            Reply::Unavailable {
                reason: UnavailableReason::NO_QUORUM,
                retry_after_ms: 250,
            },
        ),
        ("renewed", 4, Reply::Renewed { ttl_ms: 30_000 }),
        ("released", 5, Reply::Released { remaining_count: 0 }),
        (
            "not-held",
            5,
            Reply::NotHeld {
                reason: NotHeldReason::EXPIRED,
            },
        ),
        (
            "query-result",
            9,
            Reply::QueryResult {
                last_fence: Some(fence()),
                holder_count: 1,
                queue_length: 3,
                holders: Records::new(&holders).unwrap(),
                recovering_ms: None,
            },
        ),
        (
            "query-result-recovering",
            9,
            Reply::QueryResult {
                last_fence: None,
                holder_count: 0,
                queue_length: 0,
                holders: Records::new(&[]).unwrap(),
                recovering_ms: Some(2_500),
            },
        ),
        (
            "list-page",
            10,
            Reply::ListPage {
                next: Cursor::default(),
                entries: Records::new(&locks).unwrap(),
                recovering_ms: None,
            },
        ),
        (
            "sessions-page",
            11,
            Reply::SessionsPage {
                next: Cursor::new(&[8]).unwrap(),
                entries: Records::new(&sessions).unwrap(),
            },
        ),
        (
            "stats",
            15,
            Reply::Stats {
                entries: Records::new(&stats).unwrap(),
            },
        ),
    ];
    let lost = Push::Lost {
        key: key(),
        fence: fence(),
        reason: LostReason::EXPIRED,
    };
    let mut vectors = vectors();
    for (name, id, reply) in replies {
        check(&mut vectors, name, |out| {
            reply.append(RequestId::new(id), out)
        });
    }
    check(&mut vectors, "lost", |out| lost.append(out));
    check(&mut vectors, "shutdown", |out| {
        let leader = NodeAddress::default();
        Push::Shutdown {
            grace_ms: 5_000,
            leader,
        }
        .append(out)
    });
    check(&mut vectors, "shutdown-handed-over", |out| {
        Push::Shutdown {
            grace_ms: 5_000,
            leader: leader(),
        }
        .append(out)
    });
    vectors.retain(|_, bytes| bytes[4] >= frame::KIND_REPLY_MIN);
    assert!(vectors.is_empty(), "no test checks {vectors:x?}");
}

#[test]
fn documented_vectors_decode_to_what_they_say() {
    for (name, bytes) in vectors() {
        let frame = Frame::split(&mut &bytes[..], FRAME_BYTES_MAX)
            .unwrap()
            .unwrap();
        assert_eq!(frame.frame_bytes(), bytes.len(), "{name}");
        match frame.direction() {
            Direction::Request => assert_ne!(
                Request::decode(&frame).unwrap(),
                Request::Unknown { op: frame.kind }
            ),
            Direction::Reply => assert_ne!(
                Reply::decode(&frame).unwrap(),
                Reply::Unknown { kind: frame.kind }
            ),
            Direction::Push => assert_ne!(
                Push::decode(&frame).unwrap(),
                Push::Unknown { kind: frame.kind }
            ),
        }
    }
}

/// Optional fields that came with clusters: a peer from before does not know their tags. To it they
/// are what a tag without a meaning is to us, so we give each field such a tag and read the bytes.
#[test]
fn a_peer_from_before_clusters_reads_the_same_without_the_new_fields() {
    /// Has no meaning, and is larger than all that have one.
    const TAG_UNKNOWN: u8 = 200;
    let vectors = vectors();
    let before = |name: &str, tag: u8, value: &[u8]| {
        let mut bytes = vectors[name].clone();
        let tag_at = bytes.len() - value.len() - 3;
        assert_eq!(bytes[tag_at], tag, "{name}");
        assert_eq!(&bytes[tag_at + 3..], value, "{name}");
        bytes[tag_at] = TAG_UNKNOWN;
        bytes
    };
    let leader = b"10.0.0.1:7400";

    let bytes = before("hello-refused-not-leader", 7, leader);
    assert_eq!(
        Reply::decode(&frame_of(&bytes)),
        Ok(Reply::HelloRefused {
            code: ErrorCode(14),
            version_min: 1,
            version_max: 1,
            message: Message::new("node 1 leads").unwrap(),
            leader: NodeAddress::default(),
        })
    );
    let bytes = before("shutdown-handed-over", 7, leader);
    let known = &vectors["shutdown"];
    assert_eq!(
        Push::decode(&frame_of(&bytes)),
        Push::decode(&frame_of(known))
    );
    let addresses = b"10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400";
    let bytes = before("welcome-cluster", 8, addresses);
    let known = &vectors["welcome"];
    assert_eq!(
        Reply::decode(&frame_of(&bytes)),
        Reply::decode(&frame_of(known))
    );
    let bytes = before("acquire-waited", 9, &1_000_u32.to_le_bytes());
    let frame = frame_of(&bytes);
    let Ok(Request::Acquire(waited)) = Request::decode(&frame) else {
        panic!("an acquire");
    };
    let known = &vectors["acquire"];
    assert!(frame.is_repeated());
    assert_eq!(
        Request::decode(&frame_of(known)),
        Ok(Request::Acquire(Acquire {
            wait_ms: 5_000,
            ..waited
        }))
    );
}

fn frame_of(bytes: &[u8]) -> Frame<'_> {
    let frame = Frame::split(&mut &bytes[..], FRAME_BYTES_MAX).unwrap();
    frame.expect("a whole frame")
}

/// A row of some table of the document.
fn assert_row(row: &str) {
    assert!(
        DOCUMENT.lines().any(|line| line.starts_with(row)),
        "the document has no row {row:?}"
    );
}

#[test]
fn documented_codes_are_ours() {
    let mut rows = Vec::new();
    rows.extend(ErrorCode::ALL.iter().map(|c| (c.0, c.name())));
    rows.extend(LostReason::ALL.iter().map(|c| (u16::from(c.0), c.name())));
    rows.extend(
        NotHeldReason::ALL
            .iter()
            .map(|c| (u16::from(c.0), c.name())),
    );
    rows.extend(BusyBound::ALL.iter().map(|c| (u16::from(c.0), c.name())));
    rows.extend(
        UnavailableReason::ALL
            .iter()
            .map(|c| (u16::from(c.0), c.name())),
    );
    for (number, name) in rows {
        assert_row(&format!("| {number} | `{name}` |"));
    }
}

#[test]
fn documented_limits_are_ours() {
    let limits = [
        ("key", KEY_BYTES_MAX),
        ("metadata", METADATA_BYTES_MAX),
        ("client name", CLIENT_NAME_BYTES_MAX),
        ("server name", SERVER_NAME_BYTES_MAX),
        ("token", TOKEN_BYTES_MAX),
        ("trace id", TRACE_ID_BYTES_MAX),
        ("cursor", CURSOR_BYTES_MAX),
        ("message", MESSAGE_BYTES_MAX),
        ("address", ADDRESS_BYTES_MAX),
        ("statistic name", STAT_NAME_BYTES_MAX),
        ("leader", NODE_ADDRESS_BYTES_MAX),
        ("addresses", NODE_ADDRESSES_BYTES_MAX),
        ("`ttl_ms`", TTL_MS_MAX as usize),
        ("`wait_ms`", WAIT_MS_MAX as usize),
        ("`waited_ms`", WAIT_MS_MAX as usize),
        ("`session_ttl_ms`", SESSION_TTL_MS_MAX as usize),
        ("locks in a page", LIST_PAGE_MAX.into()),
        ("sessions in a page", SESSIONS_PAGE_MAX.into()),
        ("holders in a `QueryResult`", HOLDERS_MAX.into()),
        ("statistics in `Stats`", STATS_MAX.into()),
        (
            "frame before `Welcome`, either way",
            HELLO_FRAME_BYTES_MAX as usize,
        ),
        ("request frame", REQUEST_FRAME_BYTES_MAX as usize),
        ("any frame", FRAME_BYTES_MAX as usize),
    ];
    for (what, limit) in limits {
        assert_row(&format!("| {what} | {limit} |"));
    }
}

#[test]
fn documented_kinds_are_ours() {
    use protocol::{push, reply, request::op};
    let kinds = [
        (op::HELLO, "Hello"),
        (op::PING, "Ping"),
        (op::KEEP_ALIVE, "KeepAlive"),
        (op::GOODBYE, "Goodbye"),
        (op::ACQUIRE, "Acquire"),
        (op::RENEW, "Renew"),
        (op::RELEASE, "Release"),
        (op::DOWNGRADE, "Downgrade"),
        (op::CANCEL, "Cancel"),
        (op::CLAIM, "Claim"),
        (op::ACQUIRE_MANY, "AcquireMany"),
        (op::QUERY, "Query"),
        (op::LIST, "List"),
        (op::WATCH, "Watch"),
        (op::SESSIONS, "Sessions"),
        (op::STATS, "Stats"),
        (op::FORCE_RELEASE, "ForceRelease"),
        (op::END_SESSION, "EndSession"),
        (reply::kind::ERROR, "Error"),
        (reply::kind::WELCOME, "Welcome"),
        (reply::kind::HELLO_REFUSED, "HelloRefused"),
        (reply::kind::PONG, "Pong"),
        (reply::kind::KEPT_ALIVE, "KeptAlive"),
        (reply::kind::BYE, "Bye"),
        (reply::kind::GRANTED, "Granted"),
        (reply::kind::REFUSED, "Refused"),
        (reply::kind::TIMED_OUT, "TimedOut"),
        (reply::kind::CANCELLED, "Cancelled"),
        (reply::kind::NOT_WAITING, "NotWaiting"),
        (reply::kind::BUSY, "Busy"),
        (reply::kind::UNAVAILABLE, "Unavailable"),
        (reply::kind::RENEWED, "Renewed"),
        (reply::kind::RELEASED, "Released"),
        (reply::kind::NOT_HELD, "NotHeld"),
        (reply::kind::QUERY_RESULT, "QueryResult"),
        (reply::kind::LIST_PAGE, "ListPage"),
        (reply::kind::SESSIONS_PAGE, "SessionsPage"),
        (reply::kind::STATS, "Stats"),
        (push::kind::LOST, "Lost"),
        (push::kind::SHUTDOWN, "Shutdown"),
        (push::kind::EVENT, "Event"),
    ];
    for (kind, name) in kinds {
        assert_row(&format!("| {kind:#04x} | `{name}` |"));
    }
}
