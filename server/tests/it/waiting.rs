//! Standing in line: order, patience, giving up, and what becomes of a grant whose connection is
//! gone.

use crate::common::{LONG_MS, Peer, acquire, cancel, encode, granted, release, start, until};
use protocol::{Reply, Request};

#[test]
fn a_waiter_is_granted_when_the_holder_releases() {
    let server = start();
    let mut a = Peer::connect(server.local_addr(), "a");
    let mut b = Peer::connect(server.local_addr(), "b");
    let first = a.acquire("k", LONG_MS);
    let waiting = b.send(&acquire("k", LONG_MS, LONG_MS));
    assert!(a.release("k", first));
    let second = b.reply(waiting, granted);
    assert!(second > first);
}

#[test]
fn a_hundred_waiters_on_several_connections_and_both_cores_are_served_in_order() {
    let server = start();
    let address = server.local_addr();
    let mut holder = Peer::connect(address, "holder");
    let mut observer = Peer::connect(address, "observer");
    let mut peers = Vec::new();
    until("both cores have some of the waiters", || {
        peers.push(Peer::connect(address, "waiter"));
        peers.len() >= 8
            && server
                .connections_per_core()
                .iter()
                .all(|count| *count >= 3)
    });
    let held = holder.acquire("k", LONG_MS);
    let mut in_line = Vec::new();
    for place in 0..100 {
        let peer = place % peers.len();
        let id = peers[peer].stand_in_line("k", place as u32, &mut observer);
        in_line.push((peer, id));
    }
    assert_eq!(observer.stat("waiters"), 100);
    assert!(holder.release("k", held));
    let mut last = held;
    for (place, (peer, id)) in in_line.into_iter().enumerate() {
        let fence = peers[peer].reply(id, granted);
        assert_eq!(
            fence,
            last + 1,
            "place {place} had its turn, no grant between"
        );
        assert_eq!(observer.queue_length("k"), 99 - place as u32);
        assert!(peers[peer].release("k", fence));
        last = fence;
    }
    assert_eq!(observer.stat("waiters"), 0);
}

#[test]
fn a_cancelled_wait_is_answered_and_so_is_its_cancel() {
    let server = start();
    let address = server.local_addr();
    let mut holder = Peer::connect(address, "holder");
    let mut waiter = Peer::connect(address, "waiter");
    let mut next = Peer::connect(address, "next");
    let mut observer = Peer::connect(address, "observer");
    let held = holder.acquire("k", LONG_MS);
    let first = waiter.stand_in_line("k", 0, &mut observer);
    let second = next.stand_in_line("k", 1, &mut observer);
    let cancelling = waiter.send(&cancel(first));
    let mut order = Vec::new();
    for _ in 0..2 {
        let id = waiter.next_reply(|id, reply| {
            assert_eq!(reply, Reply::Cancelled);
            id
        });
        order.push(id.expect("both are answered"));
    }
    assert_eq!(order, [first, cancelling], "the acquire first");
    assert_eq!(observer.queue_length("k"), 1);
    for nothing_there in [first, 12_345] {
        waiter.ask(&cancel(nothing_there), |reply| {
            assert_eq!(reply, Reply::NotWaiting)
        });
    }
    // Waits belong to their connections: no other connection can cancel them, not even of the same
    // session.
    let mut sibling = next.join("next");
    sibling.ask(&cancel(second), |reply| {
        assert_eq!(reply, Reply::NotWaiting)
    });
    assert!(holder.release("k", held));
    next.reply(second, granted);
}

#[test]
fn a_wait_in_vain_ends_and_names_the_holder() {
    let server = start();
    let mut holder = Peer::connect(server.local_addr(), "the holder");
    let mut waiter = Peer::connect(server.local_addr(), "waiter");
    let held = holder.acquire("k", LONG_MS);
    waiter.ask(&acquire("k", LONG_MS, 30), |reply| match reply {
        Reply::TimedOut(contention) => {
            assert_eq!((contention.holder_count, contention.queue_length), (1, 0));
            let holder = contention.holder.expect("long settled");
            assert_eq!(holder.client_name.as_str(), "the holder");
            assert_eq!(holder.fence.get(), held);
        }
        other => panic!("did not time out but {other:?}"),
    });
    assert_eq!(waiter.stat("waiters"), 0);
    assert_eq!(waiter.stat("acquire_timeouts_total"), 1);
    assert!(holder.release("k", held));
}

#[test]
fn a_connection_that_drops_loses_its_waits_and_keeps_its_locks() {
    let server = start();
    let address = server.local_addr();
    let mut holder = Peer::connect(address, "holder");
    let mut dropped = Peer::connect(address, "dropped");
    let mut next = Peer::connect(address, "next");
    let mut observer = Peer::connect(address, "observer");
    let held = holder.acquire("k", LONG_MS);
    let kept = dropped.acquire("its own", LONG_MS);
    dropped.stand_in_line("k", 0, &mut observer);
    let id = next.stand_in_line("k", 1, &mut observer);
    drop(dropped);
    until("the wait is out of line", || {
        observer.queue_length("k") == 1
    });
    assert!(holder.release("k", held));
    assert_eq!(next.reply(id, granted), held + 1);
    assert!(observer.is_held_under("its own", kept));
}

#[test]
fn a_waiter_whose_session_ended_delays_nobody() {
    let server = start();
    let address = server.local_addr();
    let mut holder = Peer::connect(address, "holder");
    let mut gone = Peer::connect(address, "gone");
    let mut next = Peer::connect(address, "next");
    let mut observer = Peer::connect(address, "observer");
    let held = holder.acquire("k", LONG_MS);
    let never = gone.stand_in_line("k", 0, &mut observer);
    let id = next.stand_in_line("k", 1, &mut observer);
    gone.ask(&Request::Goodbye, |reply| assert_eq!(reply, Reply::Bye));
    gone.reply(never, |reply| {
        let code = crate::common::error_code(reply);
        assert_eq!(code, protocol::ErrorCode::SESSION_ENDED, "answered, too");
    });
    assert_eq!(gone.farewell(), None, "it knows why");
    assert!(holder.release("k", held));
    assert_eq!(next.reply(id, granted), held + 1);
}

/// As many as are read at once.
const PINGS_MAX: usize = 500;

/// A grant travels through a mailbox, and its connection may be gone when it is opened. Here a
/// connection waits for a lock of its session, and goes while another one, perhaps on the other
/// core, gives the lock back. Not every time is the grant on its way just then, but soon.
#[test]
fn a_grant_for_a_connection_that_is_gone_goes_to_the_next_in_line() {
    let server = start();
    let address = server.local_addr();
    let mut next = Peer::connect(address, "next");
    let mut observer = Peer::connect(address, "observer");
    let mut rounds = 0;
    until("a grant found no connection", || {
        rounds += 1;
        let key = format!("k/{rounds}");
        let mut gone = Peer::connect(address, "gone");
        let mut sibling = gone.join("gone");
        let held = gone.acquire(&key, LONG_MS);
        gone.stand_in_line(&key, 0, &mut observer);
        let waiting = next.stand_in_line(&key, 1, &mut observer);
        let before = observer.stats();

        // Its core is busy with these for a while, then finds the end of the stream. The lock must
        // be handed on in between, from another core: how long that takes is not known, so every
        // round has another number of them.
        let mut breath: Vec<u8> = Vec::new();
        for id in (gone.next_id()..).take(rounds * 37 % PINGS_MAX) {
            breath.extend(encode(id, &Request::Ping));
        }
        gone.send_bytes(&breath);
        gone.finish_sending();
        let released = sibling.send(&release(&key, held));
        gone.farewell();
        drop(gone);
        until("the connection is gone", || {
            observer.stat("connections_closed_total") > before["connections_closed_total"]
        });

        let was_released = sibling.reply(released, |reply| matches!(reply, Reply::Released { .. }));
        assert!(was_released);
        // If the grant was delivered in time after all, the session has the lock, on its other
        // connection too.
        let was_delivered = sibling.release(&key, held + 1);
        let fence = next.reply(waiting, granted);
        let returned = observer.stat("grants_returned_total") - before["grants_returned_total"];
        // Out of line before the lock was free, or granted it: then it is the one in between, and
        // no other.
        let was_granted = fence != held + 1;
        assert!(!was_granted || fence == held + 2, "{fence} after {held}");
        assert_eq!(returned > 0, was_granted && !was_delivered);
        assert!(next.release(&key, fence));
        returned > 0
    });
    assert_eq!(observer.stat("waiters"), 0);
}
