//! Peers that are slow: to say hello, to finish a frame, to read. And some that only look it.

use crate::common::{
    LONG_MS, Peer, acquire, encode, force_release, granted, hello, until, wire_key, with_metadata,
};
use crate::healthy::beside_a_healthy_client;
use protocol::{Cursor, ErrorCode, Prefix, Reply, Request, limits};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Long enough for an honest peer on a busy machine, short enough to be waited for.
const SHORT: Duration = Duration::from_millis(500);

#[test]
fn a_peer_that_does_not_say_hello_in_time_is_sent_away() {
    let config = |config: &mut server::Config| config.hello_timeout = SHORT;
    beside_a_healthy_client(config, |address| {
        let mut silent = Peer::silent(address);
        let mut slow = Peer::silent(address);
        let whole = encode(1, &Request::Hello(hello("slow")));
        slow.send_bytes(&whole[..whole.len() - 1]);
        for peer in [&mut silent, &mut slow] {
            peer.is_closed_with(ErrorCode::TOO_SLOW);
        }
    });
}

#[test]
fn a_frame_that_does_not_complete_in_time_ends_its_connection() {
    let config = |config: &mut server::Config| config.frame_timeout = SHORT;
    beside_a_healthy_client(config, |address| {
        let whole = encode(2, &acquire("k", LONG_MS, 0));
        for sent in [1, 4, 14, whole.len() - 1] {
            let mut peer = Peer::connect(address, "half");
            peer.send_bytes(&whole[..sent]);
            let why = peer.is_closed_with(ErrorCode::TOO_SLOW);
            assert!(why.contains("frame"), "{why}");
        }
    });
}

/// A client that reads at the wrong moment finds the beginning of a frame behind the end of
/// another, every time. Each of them completes in time, so the connection lives.
#[test]
fn frames_that_arrive_in_pieces_are_in_time_if_each_of_them_is() {
    let config = |config: &mut server::Config| config.frame_timeout = SHORT;
    beside_a_healthy_client(config, |address| {
        let mut peer = Peer::connect(address, "in pieces");
        let begin = Instant::now();
        let mut id = peer.next_id();
        let mut frame = encode(id, &Request::Ping);
        peer.send_bytes(&frame[..7]);
        while begin.elapsed() < 3 * SHORT {
            let next = encode(id + 1, &Request::Ping);
            peer.send_bytes(&[&frame[7..], &next[..7]].concat());
            peer.reply(id, |reply| assert_eq!(reply, Reply::Pong));
            (id, frame) = (id + 1, next);
        }
    });
}

#[test]
fn a_client_that_sends_byte_by_byte_is_served() {
    beside_a_healthy_client(
        |_| {},
        |address| {
            let mut peer = Peer::silent(address);
            let requests = [
                encode(1, &Request::Hello(hello("drip"))),
                encode(2, &acquire("k", LONG_MS, 0)),
            ];
            for byte in requests.concat() {
                peer.send_bytes(&[byte]);
            }
            peer.reply(1, |reply| assert!(matches!(reply, Reply::Welcome(_))));
            peer.reply(2, granted);
        },
    );
}

/// A peer with so little room for answers that it soon has none.
fn short_of_breath(address: SocketAddr) -> Peer {
    let socket = socket2::Socket::new(
        socket2::Domain::IPV4,
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )
    .expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("a socket option");
    socket.connect(&address.into()).expect("the server listens");
    let mut peer = Peer::on(TcpStream::from(socket), address);
    peer.introduce(hello("does not read")).expect("let in");
    peer
}

/// More answers than any socket buffer takes, for little.
fn ask_and_do_not_read(peer: &mut Peer) {
    let mut requests = Vec::new();
    let first = peer.next_id();
    for id in first..first + 4_000 {
        requests.extend(encode(id, &Request::Stats));
    }
    peer.send_bytes(&requests);
}

#[test]
fn a_peer_that_never_reads_is_cut_off() {
    let config = |config: &mut server::Config| config.write_stall_timeout = SHORT;
    beside_a_healthy_client(config, |address| {
        let mut observer = Peer::connect(address, "observer");
        let mut slow = short_of_breath(address);
        let mut next = slow.next_id();
        ask_and_do_not_read(&mut slow);
        until("it is cut off", || {
            observer.stat("connections_too_slow_total") == 1
        });
        // Should it read after all: whole answers in their order, as far as they came, and nothing
        // that looks like one.
        while let Some(id) = slow.next_reply(|id, reply| {
            assert!(matches!(reply, Reply::Stats { .. }), "{reply:?}");
            id
        }) {
            assert_eq!(id, next);
            next += 1;
        }
    });
}

#[test]
fn a_peer_that_is_told_more_than_it_reads_is_cut_off_before_it_fills_the_memory() {
    let config = |config: &mut server::Config| {
        config.write_stall_timeout = Duration::from_secs(3_600);
        config.out_buffer_bytes_max = 64 * 1024;
    };
    beside_a_healthy_client(config, |address| {
        let mut operator = Peer::connect(address, "operator");
        let mut slow = short_of_breath(address);
        let keys: Vec<String> = (0..2_000).map(|number| format!("{number:0>100}")).collect();
        let fences: Vec<u64> = keys.iter().map(|key| slow.acquire(key, LONG_MS)).collect();
        ask_and_do_not_read(&mut slow);
        let opened = operator.stat("connections_too_slow_total");
        assert_eq!(opened, 0);
        // 2,000 losses to be told of, 127 bytes each.
        for (key, fence) in keys.iter().zip(&fences) {
            operator.ask(&force_release(key, *fence), |reply| {
                assert_eq!(reply, Reply::Released { remaining_count: 0 })
            });
        }
        until("it is cut off", || {
            operator.stat("connections_too_slow_total") == 1
        });
        while slow.next_reply(|_, _| ()).is_some() {}
    });
}

/// Small requests with large answers, all at once: the server takes as many at a time as it has
/// room for.
#[test]
fn a_client_that_asks_for_much_and_reads_it_gets_it_all() {
    beside_a_healthy_client(
        // A page is of one shard.
        |config| config.shards = 1,
        |address| {
            let mut peer = Peer::connect(address, "curious");
            let note = "n".repeat(limits::METADATA_BYTES_MAX);
            for number in 0..100 {
                let key = format!("listed/{number:0>200}");
                peer.ask(&with_metadata(&key, LONG_MS, &note), granted);
            }
            let page = Request::List {
                prefix: Prefix::new(b"listed/").expect("short"),
                cursor: Cursor::new(b"").expect("the first page"),
                limit: 0,
            };
            let query = Request::Query { key: wire_key("k") };
            let first = peer.next_id();
            let mut requests = Vec::new();
            for id in (first..first + 1_200).step_by(3) {
                requests.extend(encode(id, &page));
                requests.extend(encode(id + 1, &Request::Stats));
                requests.extend(encode(id + 2, &query));
            }
            peer.send_bytes(&requests);
            for expected in first..first + 1_200 {
                let id = peer.next_reply(|id, reply| {
                    match reply {
                        Reply::ListPage { entries, .. } => assert_eq!(entries.len(), 100),
                        Reply::Stats { .. } | Reply::QueryResult { .. } => {}
                        other => panic!("something else was asked for: {other:?}"),
                    }
                    id
                });
                assert_eq!(id, Some(expected));
            }
        },
    );
}
