//! Every bound, at its edge: a clear answer for the client that meets it, and what is held can
//! still be renewed and released.

use crate::common::{
    LONG_MS, Peer, acquire, busy, cancel, granted, hello, release, renew, shared, start_with,
    until, with_metadata,
};
use crate::healthy::beside_a_healthy_client;
use protocol::{BusyBound, ErrorCode, Reply, Request};

#[test]
fn beyond_the_connections_it_takes_the_server_refuses_more_until_one_goes() {
    // The healthy client has four.
    let config = |config: &mut server::Config| config.connections_max = 6;
    beside_a_healthy_client(config, |address| {
        let mut first = Peer::connect(address, "first");
        let mut second = Peer::connect(address, "second");
        let fence = first.acquire("k", LONG_MS);
        for _ in 0..20 {
            let refused = Peer::knock(address, hello("too many")).err();
            let refused = refused.expect("not let in");
            assert_eq!(refused.code, ErrorCode::AT_CAPACITY);
            assert!(refused.message.contains('6'), "{}", refused.message);
        }
        first.ask(&renew("k", fence, LONG_MS), |reply| {
            assert!(matches!(reply, Reply::Renewed { .. }))
        });
        assert!(first.release("k", fence));
        assert!(second.stat("busy_connections_total") >= 20);
        drop(first);
        until("there is room again", || {
            Peer::knock(address, hello("next")).is_ok()
        });
    });
}

#[test]
fn beyond_its_sessions_the_server_refuses_more_until_one_ends() {
    let config = |config: &mut server::Config| config.sessions_max = 6;
    beside_a_healthy_client(config, |address| {
        let mut first = Peer::connect(address, "first");
        let mut second = Peer::connect(address, "second");
        let fence = first.acquire("k", LONG_MS);
        let refused = Peer::knock(address, hello("too many")).err();
        let refused = refused.expect("not let in");
        assert_eq!(refused.code, ErrorCode::AT_CAPACITY);
        assert_eq!(second.stat("busy_sessions_total"), 1);
        // More connections of the sessions there are can be had.
        let mut joined = first.join("first");
        assert!(joined.release("k", fence));
        first.ask(&Request::Goodbye, |reply| assert_eq!(reply, Reply::Bye));
        until("there is room again", || {
            Peer::knock(address, hello("next")).is_ok()
        });
    });
}

#[test]
fn a_connection_has_so_many_acquires_waiting_and_no_more() {
    let config = |config: &mut server::Config| config.in_flight_max = 4;
    beside_a_healthy_client(config, |address| {
        let mut holder = Peer::connect(address, "holder");
        let mut observer = Peer::connect(address, "observer");
        let held = holder.acquire("k", LONG_MS);
        let mut peer = Peer::connect(address, "eager");
        let waiting: Vec<u64> = (0..4)
            .map(|ahead| peer.stand_in_line("k", ahead, &mut observer))
            .collect();
        let one_more = acquire("k", LONG_MS, LONG_MS);
        assert_eq!(peer.ask(&one_more, busy), BusyBound::IN_FLIGHT);
        peer.ping();
        peer.acquire("free", LONG_MS);
        assert_eq!(peer.stat("busy_in_flight_total"), 1);
        // Others are not concerned.
        let mut other = Peer::connect(address, "other");
        other.stand_in_line("k", 4, &mut observer);
        peer.ask(&cancel(waiting[3]), |reply| {
            assert_eq!(reply, Reply::Cancelled)
        });
        until("it is out of line", || observer.queue_length("k") == 4);
        peer.stand_in_line("k", 4, &mut observer);
        assert!(holder.release("k", held));
        peer.reply(waiting[0], granted);
    });
}

#[test]
fn a_key_has_so_many_waiters_and_so_has_the_server() {
    let config = |config: &mut server::Config| {
        config.waiters_per_key_max = 3;
        config.waiters_max = 5;
    };
    beside_a_healthy_client(config, |address| {
        let mut holder = Peer::connect(address, "holder");
        let mut observer = Peer::connect(address, "observer");
        let mut peer = Peer::connect(address, "eager");
        let a = holder.acquire("a", LONG_MS);
        let b = holder.acquire("b", LONG_MS);
        let first = peer.stand_in_line("a", 0, &mut observer);
        peer.stand_in_line("a", 1, &mut observer);
        peer.stand_in_line("a", 2, &mut observer);
        let bound = peer.ask(&acquire("a", LONG_MS, LONG_MS), busy);
        assert_eq!(bound, BusyBound::WAITERS_PER_KEY);
        peer.stand_in_line("b", 0, &mut observer);
        peer.stand_in_line("b", 1, &mut observer);
        let bound = peer.ask(&acquire("b", LONG_MS, LONG_MS), busy);
        assert_eq!(bound, BusyBound::WAITERS_TOTAL);
        assert_eq!(observer.stat("busy_waiters_per_key_total"), 1);
        assert_eq!(observer.stat("busy_waiters_total"), 1);
        // A holder can keep its lock and give it back.
        holder.ask(&renew("b", b, LONG_MS), |reply| {
            assert!(matches!(reply, Reply::Renewed { .. }))
        });
        assert!(holder.release("a", a));
        let fence = peer.reply(first, granted);
        assert!(peer.release("a", fence));
        assert!(holder.release("b", b));
    });
}

#[test]
fn a_key_has_so_many_readers() {
    let config = |config: &mut server::Config| config.shared_holders_max = 3;
    beside_a_healthy_client(config, |address| {
        let mut readers: Vec<Peer> = (0..4).map(|_| Peer::connect(address, "reader")).collect();
        let mut fences = Vec::new();
        for reader in &mut readers[..3] {
            fences.push(reader.ask(&shared("k", LONG_MS, 0), granted));
        }
        let bound = readers[3].ask(&shared("k", LONG_MS, 0), busy);
        assert_eq!(bound, BusyBound::SHARED_HOLDERS);
        assert!(readers[0].release("k", fences[0]));
        readers[3].ask(&shared("k", LONG_MS, 0), granted);
    });
}

#[test]
fn at_the_limit_of_keys_those_that_are_held_can_be_renewed_released_and_waited_for() {
    let server = start_with(|builder| {
        builder.with(|config| {
            config.shards = 1;
            config.keys_max = 16;
        })
    });
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let mut other = Peer::connect(server.local_addr(), "other");
    let mut held = Vec::new();
    loop {
        let key = format!("k/{}", held.len());
        let fence = holder.ask(&acquire(&key, LONG_MS, 0), |reply| match reply {
            Reply::Granted { fence, .. } => Some(fence.get()),
            Reply::Busy { bound, .. } => {
                assert_eq!(bound, BusyBound::KEYS);
                None
            }
            other => panic!("neither granted nor busy: {other:?}"),
        });
        let Some(fence) = fence else { break };
        held.push((key, fence));
        assert!(held.len() <= 32, "a limit of 16 is one");
    }
    assert!(held.len() >= 16);
    assert_eq!(holder.stat("busy_keys_total"), 1);
    for (key, fence) in &held {
        holder.ask(&renew(key, *fence, LONG_MS), |reply| {
            assert!(matches!(reply, Reply::Renewed { .. }))
        });
    }
    // One that waits for a key that is there takes no place.
    let (key, fence) = &held[0];
    let waiting = other.stand_in_line(key, 0, &mut holder);
    for id in [acquire("new", LONG_MS, LONG_MS), shared("new", LONG_MS, 0)] {
        assert_eq!(holder.ask(&id, busy), BusyBound::KEYS);
    }
    assert!(holder.release(key, *fence));
    let taken = other.reply(waiting, granted);
    assert!(other.release(key, taken));
    for (key, fence) in &held[1..] {
        assert!(holder.release(key, *fence));
        assert!(
            holder.acquire(key, LONG_MS) > *fence,
            "known, so it has room"
        );
    }
}

#[test]
fn leases_end_at_the_limit_of_keys_too() {
    let server = start_with(|builder| {
        builder.with(|config| {
            config.shards = 1;
            config.keys_max = 4;
            config.idle = std::time::Duration::ZERO;
        })
    });
    let mut peer = Peer::connect(server.local_addr(), "a");
    let mut number = 0;
    let is_full = |reply: Reply<'_>| matches!(reply, Reply::Busy { .. });
    while !peer.ask(&acquire(&format!("k/{number}"), 200, 0), is_full) {
        number += 1;
    }
    until("what expired made room", || {
        peer.ask(&acquire("new", LONG_MS, 0), |reply| {
            matches!(reply, Reply::Granted { .. })
        })
    });
}

#[test]
fn at_the_limit_of_bytes_there_is_no_room_for_more_metadata_and_all_else_goes_on() {
    let server = start_with(|builder| {
        builder.with(|config| {
            config.shards = 1;
            config.bytes_max = 1 << 20;
        })
    });
    let mut peer = Peer::connect(server.local_addr(), "a");
    let note = "n".repeat(256);
    let mut held = Vec::new();
    let bound = loop {
        let key = format!("k/{}", held.len());
        let outcome = peer.ask(&with_metadata(&key, LONG_MS, &note), |reply| match reply {
            Reply::Granted { fence, .. } => Ok(fence.get()),
            Reply::Busy { bound, .. } => Err(bound),
            other => panic!("neither granted nor busy: {other:?}"),
        });
        match outcome {
            Ok(fence) => held.push((key, fence)),
            Err(bound) => break bound,
        }
        assert!(held.len() < 8_192, "a megabyte is a megabyte");
    };
    assert_eq!(bound, BusyBound::MEMORY);
    assert_eq!(peer.stat("busy_bytes_total"), 1);
    let (key, fence) = &held[0];
    peer.ask(&renew(key, *fence, LONG_MS), |reply| {
        assert!(matches!(reply, Reply::Renewed { .. }))
    });
    peer.acquire("short and without a note", LONG_MS);
    for (key, fence) in &held {
        peer.ask(&release(key, *fence), |reply| {
            assert_eq!(reply, Reply::Released { remaining_count: 0 })
        });
    }
    peer.ask(&with_metadata("again", LONG_MS, &note), granted);
}

#[test]
fn the_welcome_tells_the_bounds_of_the_connection() {
    let server = start_with(|builder| builder.with(|config| config.in_flight_max = 77));
    let mut peer = Peer::silent(server.local_addr());
    let id = peer.send(&Request::Hello(hello("a")));
    peer.reply(id, |reply| match reply {
        Reply::Welcome(welcome) => {
            assert_eq!(welcome.in_flight_max, 77);
            assert_eq!(
                welcome.frame_bytes_max,
                protocol::limits::REQUEST_FRAME_BYTES_MAX
            );
            assert_eq!(welcome.remembered_max, 256);
            assert_eq!(welcome.grace_ms, None);
            assert!(welcome.server_name.as_str().starts_with("fencepost"));
        }
        other => panic!("no welcome but {other:?}"),
    });
}

/// Acquires that wait keep their keys. A million of them could take hundreds of megabytes beyond
/// `bytes_max`.
#[test]
fn what_waits_counts_in_the_bytes_that_there_may_be() {
    let config = |config: &mut server::Config| config.bytes_max = 1 << 20;
    beside_a_healthy_client(config, |address| {
        let key = "k".repeat(256);
        let mut holder = Peer::connect(address, "holder");
        let mut waiter = Peer::connect(address, "waiter");
        let fence = holder.acquire(&key, LONG_MS);
        let wait = acquire(&key, LONG_MS, LONG_MS);
        let sent: Vec<u64> = (0..4_000).map(|_| waiter.send(&wait)).collect();
        let last = *sent.last().unwrap();
        assert_eq!(waiter.reply(last, busy), BusyBound::MEMORY);
        assert!(holder.stat("busy_bytes_total") > 0);
        // As many wait as there is room for. When one of them is served, one more may wait.
        let length = holder.queue_length(&key);
        assert!(length > 100, "{length}");
        assert!(holder.release(&key, fence));
        waiter.reply(sent[0], granted);
        assert_eq!(holder.queue_length(&key), length - 1);
        waiter.send(&wait);
        assert_eq!(waiter.ask(&wait, busy), BusyBound::MEMORY);
        assert_eq!(holder.queue_length(&key), length);
    });
}
