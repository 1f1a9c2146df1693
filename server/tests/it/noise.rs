//! Bytes without a meaning: random ones, and honest ones with a few of them wrong.

use crate::common::{
    Peer, acquire, cancel, encode, force_release, hello, raw_frame, reentrant, release, renew,
    session_bound, shared, until, wire_key, with_metadata,
};
use crate::healthy::beside_a_healthy_client;
use crate::random::Random;
use protocol::{Cursor, Prefix, Request};
use std::io::Write;
use std::net::SocketAddr;

/// Some of everything, as an honest client sends it.
fn honest_requests(random: &mut Random) -> Vec<Vec<u8>> {
    let key = format!("fuzz/{}", random.below(5));
    let fence = 1 + random.next() % (1 << 53);
    let requests = [
        acquire(&key, 50, 0),
        acquire(&key, 50, 20),
        shared(&key, 50, 10),
        reentrant(&key, 50),
        session_bound(&key, 0),
        with_metadata(&key, 50, "noted"),
        renew(&key, fence, 50),
        release(&key, fence),
        force_release(&key, fence),
        cancel(random.next() % 8),
        Request::Downgrade {
            key: wire_key(&key),
            fence: protocol::Fence::new(fence).expect("not zero"),
        },
        Request::Query {
            key: wire_key(&key),
        },
        Request::List {
            prefix: Prefix::new(b"fuzz/").expect("short"),
            cursor: Cursor::new(&[1, 2, 3, 4]).expect("short"),
            limit: 10,
        },
        Request::Sessions {
            cursor: Cursor::new(&[1, 2, 3, 4, 5, 6, 7, 8]).expect("short"),
            limit: 10,
        },
        Request::Stats,
        Request::KeepAlive,
        Request::Ping,
    ];
    let mut frames: Vec<Vec<u8>> = (2..).zip(&requests).map(|(id, r)| encode(id, r)).collect();
    if random.below(8) == 0 {
        frames.push(encode(1_000, &Request::Goodbye));
    }
    frames
}

/// Sends all of it and reads to the end. Whatever comes back must be whole frames that can be read.
fn send_and_hear_out(address: SocketAddr, bytes: &[u8]) {
    let mut peer = Peer::silent(address);
    // The server may have heard enough before all of it is sent.
    let _ = peer.stream.write_all(bytes);
    peer.finish_sending();
    while peer.next_reply(|_, _| ()).is_some() {}
}

#[test]
fn random_bytes_do_no_harm() {
    let mut random = Random::seeded("random_bytes_do_no_harm");
    beside_a_healthy_client(
        |_| {},
        |address| {
            for _ in 0..300 {
                let count = random.below(3_000);
                let mut bytes = random.bytes(count);
                match random.below(4) {
                    // From the first byte; behind a length that is in order; behind a hello; and
                    // behind both.
                    0 => {}
                    1 => bytes.splice(..0, 200u32.to_le_bytes()).for_each(drop),
                    2 => bytes
                        .splice(..0, encode(1, &Request::Hello(hello("noise"))))
                        .for_each(drop),
                    _ => {
                        let mut frames = encode(1, &Request::Hello(hello("noise")));
                        for chunk in bytes.chunks(40) {
                            let (kind, flags) = (chunk[0] % 0x34, random.next() as u8);
                            frames.extend(raw_frame(kind, flags, random.next() % 9, chunk));
                        }
                        bytes = frames;
                    }
                }
                send_and_hear_out(address, &bytes);
            }
        },
    );
}

#[test]
fn honest_requests_with_a_few_wrong_bytes_do_no_harm() {
    let mut random = Random::seeded("honest_requests_with_a_few_wrong_bytes_do_no_harm");
    beside_a_healthy_client(
        |_| {},
        |address| {
            for _ in 0..300 {
                let mut frames = honest_requests(&mut random);
                let hello_frame = encode(1, &Request::Hello(hello("mutant")));
                if random.below(5) == 0 {
                    frames.insert(0, hello_frame);
                } else {
                    // Its hello is in order, so that more of the rest is looked at.
                    frames[0].splice(..0, hello_frame).for_each(drop);
                }
                for _ in 0..1 + random.below(4) {
                    let which = random.below(frames.len());
                    let frame = &mut frames[which];
                    let at = random.below(frame.len());
                    match random.below(6) {
                        0 => frame[at] ^= 1 << random.below(8),
                        1 => frame[at] = random.next() as u8,
                        2 => frame[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
                        3 => frame.truncate(at.max(1)),
                        4 => frame.insert(at, random.next() as u8),
                        _ => {
                            let again = frame.clone();
                            frames.push(again);
                        }
                    }
                }
                send_and_hear_out(address, &frames.concat());
            }
            let mut observer = Peer::connect(address, "observer");
            until("no wait is left behind", || observer.stat("waiters") == 0);
        },
    );
}
