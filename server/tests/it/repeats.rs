//! A request whose answer was lost is sent again, and takes effect once.

use crate::common::{
    LONG_MS, Peer, acquire, error_code, granted, hello_for, plain, reentrant, release, renew,
    session_bound, shared, start, until,
};
use protocol::{ErrorCode, Reply, Request};
use std::time::{Duration, Instant};

fn grant(reply: Reply<'_>) -> (u64, u32) {
    match reply {
        Reply::Granted {
            fence, hold_count, ..
        } => (fence.get(), hold_count),
        other => panic!("not granted but {other:?}"),
    }
}

/// Sends a request again under the same id.
fn again<T>(
    peer: &mut Peer,
    id: u64,
    request: &protocol::Request<'_>,
    look: impl FnOnce(Reply<'_>) -> T,
) -> T {
    peer.send_as(id, request, true);
    peer.reply(id, look)
}

#[test]
fn a_repeated_acquire_gets_the_same_grant() {
    let server = start();
    let mut peer = Peer::connect(server.local_addr(), "a");
    let request = acquire("k", LONG_MS, 0);
    let id = peer.send(&request);
    let fence = peer.reply(id, granted);
    let mut back = peer.come_back("a");
    assert_eq!(again(&mut back, id, &request, granted), fence);
    assert_eq!(again(&mut back, id, &request, granted), fence, "and again");
    assert_eq!(back.stat("acquire_grants_total"), 1);
    assert_eq!(back.stat("repeats_answered_total"), 2);
    assert!(back.release("k", fence));
}

#[test]
fn an_acquire_whose_connection_was_cut_before_the_answer_takes_effect_once() {
    let server = start();
    let mut peer = Peer::connect(server.local_addr(), "a");
    for round in 0..100 {
        let key = format!("k/{round}");
        let request = reentrant(&key, LONG_MS);
        let id = peer.send(&request);
        // Whether the server has read it by now, or ever will, is not known.
        peer = peer.come_back("a");
        let (fence, count) = again(&mut peer, id, &request, grant);
        assert_eq!(count, 1, "not counted twice");
        assert!(peer.is_held_under(&key, fence));
        peer.ask(&release(&key, fence), |reply| {
            assert_eq!(reply, Reply::Released { remaining_count: 0 })
        });
    }
    assert_eq!(peer.stat("acquire_grants_total"), 100);
}

#[test]
fn a_release_whose_connection_was_cut_before_the_answer_says_released() {
    let server = start();
    let mut peer = Peer::connect(server.local_addr(), "a");
    for round in 0..100 {
        let key = format!("k/{round}");
        let fence = peer.acquire(&key, LONG_MS);
        let request = release(&key, fence);
        let id = peer.send(&request);
        peer = peer.come_back("a");
        again(&mut peer, id, &request, |reply| {
            assert_eq!(reply, Reply::Released { remaining_count: 0 })
        });
        assert!(!peer.is_held_under(&key, fence));
    }
    assert_eq!(peer.stat("release_by_non_owner_total"), 0);
    assert_eq!(peer.stat("releases_total"), 100);
}

#[test]
fn a_repeated_release_leaves_the_next_holder_alone() {
    let server = start();
    let mut peer = Peer::connect(server.local_addr(), "a");
    let mut next = Peer::connect(server.local_addr(), "next");
    let fence = peer.acquire("k", LONG_MS);
    let request = release("k", fence);
    let id = peer.send(&request);
    peer.reply(id, |reply| assert!(matches!(reply, Reply::Released { .. })));
    let taken = next.acquire("k", LONG_MS);
    again(&mut peer, id, &request, |reply| {
        assert_eq!(reply, Reply::Released { remaining_count: 0 })
    });
    assert!(next.is_held_under("k", taken));
}

#[test]
fn a_reentrant_acquire_and_its_release_count_once_however_often_they_are_sent() {
    let server = start();
    let mut peer = Peer::connect(server.local_addr(), "a");
    let mut sibling = peer.join("a");
    let fence = peer.acquire("k", LONG_MS);
    let request = reentrant("k", LONG_MS);
    let id = peer.send(&request);
    assert_eq!(peer.reply(id, grant), (fence, 2));
    // On another connection while the first one lives, too.
    assert_eq!(again(&mut sibling, id, &request, grant), (fence, 2));
    let mut back = peer.come_back("a");
    assert_eq!(again(&mut back, id, &request, grant), (fence, 2));
    let request = release("k", fence);
    let id = back.send(&request);
    for _ in 0..3 {
        back.reply(id, |reply| {
            assert_eq!(reply, Reply::Released { remaining_count: 1 })
        });
        back = back.come_back("a");
        back.send_as(id, &request, true);
    }
    assert!(back.is_held_under("k", fence), "given back once");
}

#[test]
fn a_repeated_acquire_that_was_still_waiting_is_asked_anew() {
    let server = start();
    let address = server.local_addr();
    let mut holder = Peer::connect(address, "holder");
    let mut observer = Peer::connect(address, "observer");
    let mut waiter = Peer::connect(address, "waiter");
    let held = holder.acquire("k", LONG_MS);
    let mut id = waiter.stand_in_line("k", 0, &mut observer);
    for _ in 0..10 {
        waiter = waiter.come_back("waiter");
        waiter.send_as(id, &acquire("k", LONG_MS, LONG_MS), true);
        until("it stands in line again", || {
            observer.queue_length("k") == 1
        });
        assert_eq!(observer.stat("waiters"), 1, "once");
    }
    assert!(holder.release("k", held));
    let fence = waiter.reply(id, granted);
    assert_eq!(fence, held + 1);
    // Granted now, and the answer lost: the same grant.
    waiter = waiter.come_back("waiter");
    let request = acquire("k", LONG_MS, LONG_MS);
    assert_eq!(again(&mut waiter, id, &request, granted), fence);
    id = waiter.next_id();
    assert!(waiter.release("k", fence));
    assert!(waiter.next_id() > id);
}

#[test]
fn waiters_that_come_back_after_a_start_stand_in_line_by_age() {
    /// For so long after its start a server puts those that come back in by age.
    const LINE_BY_AGE: Duration = Duration::from_secs(2);
    const ATTEMPTS_MAX: u32 = 20;
    for _ in 0..ATTEMPTS_MAX {
        let begin = Instant::now();
        let server = start();
        let address = server.local_addr();
        let mut holder = Peer::connect(address, "holder");
        let mut observer = Peer::connect(address, "observer");
        let held = holder.acquire("k", LONG_MS);
        let mut waiters: Vec<_> = [100, 300, 200]
            .map(|waited_ms| {
                let mut waiter = Peer::connect(address, "waiter");
                let id = waiter.stand_in_line("k", 0, &mut observer);
                waiter = waiter.come_back("waiter");
                (waited_ms, id, waiter)
            })
            .into();
        until("all have left the line", || observer.queue_length("k") == 0);
        for (stand, (waited_ms, id, waiter)) in (1..).zip(&mut waiters) {
            let request = protocol::Acquire {
                waited_ms: *waited_ms,
                ..plain("k", LONG_MS, LONG_MS)
            };
            waiter.send_as(*id, &Request::Acquire(request), true);
            until("it stands in line again", || {
                observer.queue_length("k") == stand
            });
        }
        if begin.elapsed() > LINE_BY_AGE {
            continue;
        }
        let mut fence = held;
        assert!(holder.release("k", fence));
        for oldest in [300, 200, 100] {
            let (_, id, waiter) = waiters
                .iter_mut()
                .find(|(waited_ms, ..)| *waited_ms == oldest)
                .expect("it is one of the three");
            let next = waiter.reply(*id, granted);
            assert_eq!(next, fence + 1, "after {oldest} ms in line");
            fence = next;
            assert!(waiter.release("k", fence));
        }
        return;
    }
    panic!("this machine is too slow for this test: {ATTEMPTS_MAX} times over {LINE_BY_AGE:?}");
}

#[test]
fn a_wait_that_was_granted_while_its_connection_broke_is_granted_once() {
    let server = start();
    let address = server.local_addr();
    let mut holder = Peer::connect(address, "holder");
    let mut observer = Peer::connect(address, "observer");
    let mut waiter = Peer::connect(address, "waiter");
    for round in 0..50 {
        let key = format!("k/{round}");
        let held = holder.acquire(&key, LONG_MS);
        let id = waiter.stand_in_line(&key, 0, &mut observer);
        // The release, the break and the return all at the same time.
        let releasing = holder.send(&release(&key, held));
        waiter = waiter.come_back("waiter");
        let request = acquire(&key, LONG_MS, LONG_MS);
        let fence = again(&mut waiter, id, &request, granted);
        assert!(
            fence == held + 1 || fence == held + 2,
            "the grant that was on its way, or the next if that came back"
        );
        holder.reply(releasing, |reply| {
            assert!(matches!(reply, Reply::Released { .. }))
        });
        assert!(waiter.release(&key, fence));
        assert_eq!(observer.query(&key), (vec![], 0));
    }
}

#[test]
fn a_repeated_acquire_tells_what_is_left_of_its_lease() {
    let server = start();
    let address = server.local_addr();
    let mut observer = Peer::connect(address, "observer");
    let mut peer = Peer::open(address, hello_for("a", LONG_MS));
    let ttl = |reply: Reply<'_>| match reply {
        Reply::Granted { ttl_ms, .. } => ttl_ms,
        other => panic!("not granted but {other:?}"),
    };
    // Renewed since.
    let request = acquire("renewed", 5_000, 0);
    let id = peer.send(&request);
    let fence = peer.reply(id, granted);
    peer.ask(&renew("renewed", fence, LONG_MS), |reply| {
        assert!(matches!(reply, Reply::Renewed { .. }))
    });
    assert!(again(&mut peer, id, &request, ttl) > 5_000);
    // Bound to its session, which has lived on since.
    let request = session_bound("bound", 0);
    let id = peer.send(&request);
    assert!(peer.reply(id, ttl) > 5_000);
    assert!(again(&mut peer, id, &request, ttl) > 5_000);
    // Over.
    let request = acquire("over", 20, 0);
    let id = peer.send(&request);
    let fence = peer.reply(id, granted);
    until("the lease is over", || {
        !observer.is_held_under("over", fence)
    });
    assert_eq!(again(&mut peer, id, &request, ttl), 0);
}

#[test]
fn what_the_server_has_forgotten_takes_no_effect_twice() {
    let server = start();
    let mut peer = Peer::connect(server.local_addr(), "a");
    let remembered = 256;
    let exclusive = acquire("exclusive", LONG_MS, 0);
    let exclusive_id = peer.send(&exclusive);
    let fence = peer.reply(exclusive_id, granted);
    let twice = reentrant("twice", LONG_MS);
    let twice_id = peer.send(&twice);
    let twice_fence = peer.reply(twice_id, granted);
    peer.ask(&twice, granted);
    let give_back = release("twice", twice_fence);
    let give_back_id = peer.send(&give_back);
    peer.reply(give_back_id, |reply| {
        assert_eq!(reply, Reply::Released { remaining_count: 1 })
    });
    peer.ask(&twice, granted);
    let together = shared("together", LONG_MS, 0);
    let together_id = peer.send(&together);
    let together_fence = peer.reply(together_id, granted);
    for number in 0..remembered {
        peer.acquire(&format!("k/{number}"), LONG_MS);
    }
    let mut peer = peer.come_back("a");
    let patient = acquire("exclusive", LONG_MS, LONG_MS);
    for (id, request) in [
        (exclusive_id, &patient),
        (twice_id, &twice),
        (together_id, &together),
        (give_back_id, &give_back),
    ] {
        let code = again(&mut peer, id, request, error_code);
        assert_eq!(code, ErrorCode::FORGOTTEN);
    }
    assert_eq!(peer.query("together").0, [together_fence], "shared once");
    for left in [1, 0] {
        peer.ask(&give_back, |reply| {
            assert_eq!(
                reply,
                Reply::Released {
                    remaining_count: left
                }
            )
        });
    }
    // Asked for again without a wait, an exclusive lock cannot be had twice: the client learns that
    // it has it.
    again(&mut peer, exclusive_id, &exclusive, |reply| match reply {
        Reply::Refused(contention) => {
            let holder = contention.holder.expect("long settled");
            assert!(holder.is_you);
            assert_eq!(holder.fence.get(), fence);
        }
        other => panic!("not refused but {other:?}"),
    });
}

#[test]
fn outcomes_are_remembered_across_many_reconnects() {
    let server = start();
    let mut peer = Peer::connect(server.local_addr(), "a");
    let mut asked = Vec::new();
    for number in 0..60 {
        let key = format!("k/{number}");
        let id = peer.send(&reentrant(&key, LONG_MS));
        let fence = peer.reply(id, granted);
        asked.push((id, key, fence));
        peer = peer.come_back("a");
    }
    for (id, key, fence) in asked {
        let request = reentrant(&key, LONG_MS);
        assert_eq!(again(&mut peer, id, &request, grant), (fence, 1), "{key}");
    }
}

/// The old connection broke for the client, and the server has not read all of it yet.
#[test]
fn a_first_sending_that_is_read_after_the_second_has_no_effect() {
    let server = start();
    let mut old = Peer::connect(server.local_addr(), "a");
    let mut new = old.join("a");
    let mut other = Peer::connect(server.local_addr(), "other");
    let request = session_bound("k", 0);
    let id = old.next_id();
    let fence = again(&mut new, id, &request, granted);
    let give_back = release("k", fence);
    let give_back_id = id + 1;
    again(&mut new, give_back_id, &give_back, |reply| {
        assert_eq!(reply, Reply::Released { remaining_count: 0 })
    });
    old.send_as(id, &request, false);
    assert_eq!(old.reply(id, error_code), ErrorCode::OUT_OF_TURN);
    old.send_as(give_back_id, &give_back, false);
    assert_eq!(old.reply(give_back_id, error_code), ErrorCode::OUT_OF_TURN);
    assert!(other.acquire("k", LONG_MS) > fence, "it is free");
    // What comes for the first time is not concerned, on either of them.
    old.acquire("old", LONG_MS);
    new.acquire("new", LONG_MS);
}

#[test]
fn a_wait_that_is_asked_again_while_its_connection_seems_to_live_is_granted_there() {
    let server = start();
    let address = server.local_addr();
    let mut holder = Peer::connect(address, "holder");
    let mut observer = Peer::connect(address, "observer");
    let held = holder.acquire("k", LONG_MS);
    let mut old = Peer::connect(address, "a");
    let mut new = old.join("a");
    let id = old.stand_in_line("k", 0, &mut observer);
    new.send_as(id, &acquire("k", LONG_MS, LONG_MS), true);
    until("both stand in line", || observer.queue_length("k") == 2);
    assert!(holder.release("k", held));
    let fence = new.reply(id, granted);
    assert_eq!(fence, held + 2, "the first one's turn was given back");
    old.reply(id, |reply| assert_eq!(reply, Reply::Cancelled));
    assert!(new.release("k", fence));
    assert_eq!(observer.query("k"), (vec![], 0));
}
