//! Locks over the wire: the scenarios that people draw on whiteboards, and the kinds of locks.

use crate::common::{
    LONG_MS, Peer, acquire, error_code, force_release, granted, hello_for, lost, not_held,
    reentrant, release, renew, session_bound, shared, start, until, wire_fence, wire_key,
    with_metadata,
};
use protocol::{Claim, Cursor, ErrorCode, LostReason, Mode, NotHeldReason, Prefix, Reply, Request};
use std::collections::BTreeSet;
use std::sync::Barrier;

#[test]
fn a_lock_is_taken_refused_released_and_taken_again() {
    let server = start();
    let mut a = Peer::connect(server.local_addr(), "a");
    let mut b = Peer::connect(server.local_addr(), "b");
    let first = a.acquire("orders/42", LONG_MS);
    b.ask(&acquire("orders/42", LONG_MS, 0), |reply| match reply {
        Reply::Refused(contention) => {
            let holder = contention.holder.expect("a holder that is long settled");
            assert_eq!(holder.client_name.as_str(), "a");
            assert_eq!(holder.fence.get(), first);
        }
        other => panic!("not refused but {other:?}"),
    });
    assert!(a.release("orders/42", first));
    let second = b.acquire("orders/42", LONG_MS);
    assert!(second > first);
    assert!(
        !a.release("orders/42", first),
        "a stale release changes nothing"
    );
    assert!(b.release("orders/42", second));
}

#[test]
fn workers_one_after_the_other_all_get_the_lock_with_rising_fences() {
    let server = start();
    let mut last = 0;
    for worker in 0..20 {
        let mut peer = Peer::connect(server.local_addr(), &format!("worker {worker}"));
        let fence = peer.acquire("job", LONG_MS);
        assert!(fence > last);
        assert!(peer.release("job", fence));
        last = fence;
    }
}

#[test]
fn of_two_who_race_one_wins_and_the_other_is_told_who_did() {
    let server = start();
    let address = server.local_addr();
    for round in 0..50 {
        let key = format!("race/{round}");
        let barrier = Barrier::new(2);
        // The session id of the winner, the fence it won or the one it saw, and its peer, so that
        // no client leaves early.
        let race = |name: &'static str| {
            let mut peer = Peer::connect(address, name);
            let request = with_metadata(&key, LONG_MS, name);
            barrier.wait();
            let (is_winner, winner, fence) = peer.ask(&request, |reply| match reply {
                Reply::Granted { fence, .. } => (true, name.to_owned(), fence.get()),
                Reply::Refused(contention) => {
                    assert_eq!(contention.holder_count, 1);
                    assert_eq!(contention.queue_length, 0);
                    let holder = contention.holder.expect("grants with metadata are settled");
                    assert_eq!(
                        holder.metadata.as_bytes(),
                        holder.client_name.as_str().as_bytes()
                    );
                    assert!(holder.remaining_ms <= LONG_MS && holder.remaining_ms > 0);
                    assert!(!holder.is_you);
                    let name = holder.client_name.as_str().to_owned();
                    (false, name, holder.fence.get())
                }
                other => panic!("neither won nor lost: {other:?}"),
            });
            (is_winner, winner, fence, peer)
        };
        let (left, right) = std::thread::scope(|scope| {
            let left = scope.spawn(|| race("left"));
            let right = scope.spawn(|| race("right"));
            (left.join().unwrap(), right.join().unwrap())
        });
        assert!(left.0 != right.0, "one winner, one refusal");
        assert_eq!(left.1, right.1, "both know the winner");
        assert_eq!(left.2, right.2, "and under which fence");
    }
}

#[test]
fn a_refusal_names_holder_fence_metadata_times_and_queue() {
    let server = start();
    let address = server.local_addr();
    let mut holder = Peer::connect(address, "billing");
    let mut waiting = Peer::connect(address, "in line");
    let mut refused = Peer::connect(address, "refused");
    let request = with_metadata("orders/42", LONG_MS, "job 7");
    let fence = holder.ask(&request, granted);
    waiting.stand_in_line("orders/42", 0, &mut refused);
    let look = |reply: Reply<'_>| match reply {
        Reply::Refused(contention) => {
            assert_eq!(contention.holder_count, 1);
            assert_eq!(contention.queue_length, 1);
            let seen = contention.holder.expect("long settled");
            assert_eq!(seen.client_name.as_str(), "billing");
            assert_eq!(seen.metadata.as_bytes(), b"job 7");
            assert_eq!(seen.fence.get(), fence);
            assert_eq!(
                Some(seen.session_id),
                holder.session.map(|session| session.session_id)
            );
            assert_eq!(seen.mode, Mode::Exclusive);
            assert!(!seen.is_session_bound && !seen.is_you);
            assert!(seen.remaining_ms > 0 && seen.remaining_ms <= LONG_MS);
            seen.held_ms
        }
        other => panic!("not refused but {other:?}"),
    };
    let early = refused.ask(&acquire("orders/42", LONG_MS, 0), look);
    until("the holder is seen to hold it longer", || {
        refused.ask(&acquire("orders/42", LONG_MS, 0), look) > early
    });
}

#[test]
fn the_lock_of_a_holder_that_crashed_is_free_after_its_lease() {
    let server = start();
    let mut other = Peer::connect(server.local_addr(), "other");
    let mut crashed = Peer::connect(server.local_addr(), "crashed");
    let first = crashed.acquire("orders/42", 1_500);
    drop(crashed);
    let second = other.ask(&acquire("orders/42", LONG_MS, LONG_MS), granted);
    assert!(second > first);
    assert_eq!(other.stat("lost_expired_total"), 1);
}

#[test]
fn a_late_release_leaves_the_next_holder_alone_and_is_counted() {
    let server = start();
    let mut a = Peer::connect(server.local_addr(), "a");
    let mut b = Peer::connect(server.local_addr(), "b");
    let stale = a.acquire("orders/42", 50);
    let fence = b.ask(&acquire("orders/42", LONG_MS, LONG_MS), granted);
    assert_eq!(a.stat("release_by_non_owner_total"), 0);
    let reason = a.ask(&release("orders/42", stale), not_held);
    assert_eq!(reason, NotHeldReason::OTHER_OWNER);
    assert_eq!(a.stat("release_by_non_owner_total"), 1);
    // Nor does the right fence help a session that is not the owner.
    let reason = a.ask(&release("orders/42", fence), not_held);
    assert_eq!(reason, NotHeldReason::OTHER_OWNER);
    assert_eq!(a.stat("release_by_non_owner_total"), 2);
    assert!(a.is_held_under("orders/42", fence));
    assert!(b.release("orders/42", fence));
}

#[test]
fn a_lease_that_is_over_cannot_be_renewed_even_if_nobody_took_it() {
    let server = start();
    let mut zombie = Peer::connect(server.local_addr(), "zombie");
    let fence = zombie.acquire("orders/42", 30);
    assert_eq!(
        zombie.push(),
        lost("orders/42", fence, LostReason::EXPIRED),
        "the holder is told"
    );
    for request in [
        renew("orders/42", fence, LONG_MS),
        release("orders/42", fence),
    ] {
        assert_eq!(zombie.ask(&request, not_held), NotHeldReason::EXPIRED);
    }
    let next = zombie.acquire("orders/42", LONG_MS);
    let reason = zombie.ask(&renew("orders/42", fence, LONG_MS), not_held);
    assert_eq!(
        reason,
        NotHeldReason::OTHER_FENCE,
        "its own, and yet not this grant"
    );
    assert!(zombie.release("orders/42", next));
    let reason = zombie.ask(&release("orders/42", next), not_held);
    assert_eq!(reason, NotHeldReason::RELEASED);
    let reason = zombie.ask(&release("orders/42", fence), not_held);
    assert_eq!(
        reason,
        NotHeldReason::UNSPECIFIED,
        "the server does not claim to know what it does not"
    );
    let reason = zombie.ask(&release("orders/42", next + 1), not_held);
    assert_eq!(reason, NotHeldReason::NEVER);
}

#[test]
fn whoever_lost_a_lock_to_an_operator_hears_that_also_afterwards() {
    let server = start();
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let mut operator = Peer::connect(server.local_addr(), "operator");
    let fence = holder.acquire("k", LONG_MS);
    operator.ask(&force_release("k", fence), |reply| {
        assert_eq!(reply, Reply::Released { remaining_count: 0 });
    });
    for request in [
        release("k", fence),
        renew("k", fence, LONG_MS),
        force_release("k", fence),
    ] {
        assert_eq!(holder.ask(&request, not_held), NotHeldReason::FORCED);
    }
}

#[test]
fn the_end_of_a_lock_is_that_of_its_session_if_that_is_earlier() {
    let server = start();
    let mut holder = Peer::open(server.local_addr(), hello_for("holder", 20_000));
    let mut other = Peer::connect(server.local_addr(), "other");
    holder.acquire("long", 3_600_000);
    holder.acquire("short", 10_000);
    for (key, ends_with_session, longest_ms) in [("long", true, 20_000), ("short", false, 10_000)] {
        other.ask(&acquire(key, LONG_MS, 0), |reply| match reply {
            Reply::Refused(contention) => {
                let seen = contention.holder.expect("long settled");
                assert_eq!(seen.ends_with_session, ends_with_session, "{key}");
                assert!(seen.remaining_ms <= longest_ms, "{key}: {seen:?}");
            }
            other => panic!("not refused but {other:?}"),
        });
    }
}

#[test]
fn a_renewed_lock_outlives_its_first_lease() {
    let server = start();
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let mut other = Peer::connect(server.local_addr(), "other");
    let fence = holder.acquire("k", 2_000);
    holder.ask(&renew("k", fence, LONG_MS), |reply| match reply {
        Reply::Renewed { ttl_ms } => assert!(ttl_ms > 2_000 && ttl_ms <= LONG_MS),
        other => panic!("not renewed but {other:?}"),
    });
    // Waits longer than the first lease lasted.
    other.ask(&acquire("k", LONG_MS, 2_500), |reply| match reply {
        Reply::TimedOut(contention) => {
            assert_eq!(contention.holder.map(|h| h.fence.get()), Some(fence));
        }
        other => panic!("the renewal did nothing: {other:?}"),
    });
    assert!(holder.release("k", fence));
}

#[test]
fn readers_share_a_lock_and_a_writer_waits_for_all_of_them() {
    let server = start();
    let address = server.local_addr();
    let mut readers: Vec<Peer> = (0..3).map(|_| Peer::connect(address, "reader")).collect();
    let mut writer = Peer::connect(address, "writer");
    let mut observer = Peer::connect(address, "observer");
    let fences: Vec<u64> = readers
        .iter_mut()
        .map(|reader| reader.ask(&shared("k", LONG_MS, 0), granted))
        .collect();
    assert!(
        fences.is_sorted_by(|a, b| a < b),
        "every reader has a fence of its own"
    );
    let waiting = writer.stand_in_line("k", 0, &mut observer);
    observer.ask(&shared("k", LONG_MS, 0), |reply| match reply {
        Reply::Refused(contention) => {
            assert_eq!(contention.holder_count, 3);
            let holder = contention.holder.expect("three of them");
            assert_eq!(holder.mode, Mode::Shared);
        }
        other => panic!("a reader overtook the writer: {other:?}"),
    });
    for (reader, fence) in readers.iter_mut().zip(&fences) {
        assert!(reader.release("k", *fence));
    }
    let fence = writer.reply(waiting, granted);
    assert!(fence > fences[2]);
    assert!(writer.release("k", fence));
}

#[test]
fn a_downgrade_lets_readers_in_under_the_same_fence() {
    let server = start();
    let address = server.local_addr();
    let mut writer = Peer::connect(address, "writer");
    let mut reader = Peer::connect(address, "reader");
    let mut observer = Peer::connect(address, "observer");
    let fence = writer.acquire("k", LONG_MS);
    let waiting = reader.send(&shared("k", LONG_MS, LONG_MS));
    until("the reader stands in line", || {
        observer.queue_length("k") == 1
    });
    let downgrade = Request::Downgrade {
        key: wire_key("k"),
        fence: wire_fence(fence),
    };
    assert_eq!(writer.ask(&downgrade, granted), fence);
    let second = reader.reply(waiting, granted);
    assert!(second > fence);
    assert_eq!(writer.ask(&downgrade, granted), fence, "again, no harm");
    let reason = observer.ask(&downgrade, not_held);
    assert_eq!(reason, NotHeldReason::OTHER_OWNER);
    assert!(writer.release("k", fence));
    assert!(reader.release("k", second));
}

#[test]
fn a_reentrant_lock_counts_and_keeps_its_fence() {
    let server = start();
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let mut second = holder.join("holder");
    let mut other = Peer::connect(server.local_addr(), "other");
    let fence = holder.acquire("k", LONG_MS);
    holder.ask(&acquire("k", LONG_MS, 0), |reply| match reply {
        Reply::Refused(contention) => assert!(contention.holder.is_some_and(|h| h.is_you)),
        other => panic!("not refused by itself but {other:?}"),
    });
    for depth in 2..=3 {
        let again = second.ask(&reentrant("k", LONG_MS), |reply| match reply {
            Reply::Granted {
                fence, hold_count, ..
            } => (fence.get(), hold_count),
            other => panic!("not counted but {other:?}"),
        });
        assert_eq!(again, (fence, depth));
    }
    for left in [2, 1, 0] {
        other.ask(&acquire("k", LONG_MS, 0), |reply| {
            assert!(matches!(reply, Reply::Refused(_)), "{reply:?}")
        });
        holder.ask(&release("k", fence), |reply| {
            assert_eq!(
                reply,
                Reply::Released {
                    remaining_count: left
                }
            )
        });
    }
    assert!(other.acquire("k", LONG_MS) > fence);
}

#[test]
fn an_operator_takes_a_lock_away_and_its_holder_and_the_next_in_line_are_told() {
    let server = start();
    let address = server.local_addr();
    let mut holder = Peer::connect(address, "holder");
    let mut waiting = Peer::connect(address, "in line");
    let mut operator = Peer::connect(address, "operator");
    let fence = holder.acquire("k", LONG_MS);
    let id = waiting.stand_in_line("k", 0, &mut operator);
    let reason = operator.ask(&force_release("k", fence + 1), not_held);
    assert_eq!(reason, NotHeldReason::OTHER_OWNER);
    operator.ask(&force_release("k", fence), |reply| {
        assert_eq!(reply, Reply::Released { remaining_count: 0 })
    });
    assert_eq!(holder.push(), lost("k", fence, LostReason::FORCED));
    let next = waiting.reply(id, granted);
    assert!(next > fence);
    let reason = operator.ask(&force_release("k", fence), not_held);
    assert_eq!(reason, NotHeldReason::OTHER_OWNER, "the next in line");
    assert!(operator.is_held_under("k", next));
    let reason = holder.ask(&renew("k", fence, LONG_MS), not_held);
    assert_eq!(reason, NotHeldReason::OTHER_OWNER);
    let reason = operator.ask(&force_release("free", fence), not_held);
    assert_eq!(reason, NotHeldReason::UNSPECIFIED);
}

#[test]
fn held_locks_are_listed_by_prefix_page_by_page() {
    let server = start();
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let mut observer = Peer::connect(server.local_addr(), "observer");
    let mut expected = BTreeSet::new();
    for number in 0..250 {
        let key = format!("orders/{number}");
        holder.acquire(&key, LONG_MS);
        holder.acquire(&format!("invoices/{number}"), LONG_MS);
        expected.insert(key.into_bytes());
    }
    let mut listed = BTreeSet::new();
    let mut cursor = Vec::new();
    loop {
        let page = Request::List {
            prefix: Prefix::new(b"orders/").expect("short"),
            cursor: Cursor::new(&cursor).expect("as it came"),
            limit: 7,
        };
        let next = observer.ask(&page, |reply| match reply {
            Reply::ListPage { next, entries, .. } => {
                assert!(entries.len() <= 7);
                for entry in entries.iter() {
                    let holder = entry.contention.holder.expect("long settled");
                    assert_eq!(holder.client_name.as_str(), "holder");
                    listed.insert(entry.key.as_bytes().to_vec());
                }
                next.as_bytes().to_vec()
            }
            other => panic!("no page but {other:?}"),
        });
        if next.is_empty() {
            break;
        }
        cursor = next;
    }
    assert_eq!(listed, expected);
}

#[test]
fn sessions_are_listed_with_names_connections_locks_and_waits() {
    let server = start();
    let mut holder = Peer::connect(server.local_addr(), "holder");
    let _second = holder.join("holder");
    let mut waiting = Peer::open(server.local_addr(), hello_for("in line", 30_000));
    let mut observer = Peer::connect(server.local_addr(), "observer");
    holder.acquire("a", LONG_MS);
    holder.ask(&session_bound("b", 0), granted);
    waiting.stand_in_line("a", 0, &mut observer);
    let mut seen = Vec::new();
    let mut cursor = Vec::new();
    loop {
        let page = Request::Sessions {
            cursor: Cursor::new(&cursor).expect("as it came"),
            limit: 2,
        };
        let next = observer.ask(&page, |reply| match reply {
            Reply::SessionsPage { next, entries } => {
                seen.extend(entries.iter().map(|entry| {
                    assert!(entry.address.as_str().starts_with("127.0.0.1:"));
                    assert!(entry.remaining_ms > 0 && entry.remaining_ms <= entry.ttl_ms);
                    (
                        entry.client_name.as_str().to_owned(),
                        entry.ttl_ms,
                        entry.connection_count,
                        entry.lock_count,
                        entry.waiter_count,
                    )
                }));
                next.as_bytes().to_vec()
            }
            other => panic!("no page but {other:?}"),
        });
        if next.is_empty() {
            break;
        }
        cursor = next;
    }
    seen.sort();
    assert_eq!(
        seen,
        [
            ("holder".to_owned(), 10_000, 2, 2, 0),
            ("in line".to_owned(), 30_000, 1, 0, 1),
            ("observer".to_owned(), 10_000, 1, 0, 0),
        ]
    );
}

#[test]
fn a_server_that_knows_who_holds_what_takes_no_claims() {
    let server = start();
    let mut peer = Peer::connect(server.local_addr(), "a");
    let fence = peer.acquire("k", LONG_MS);
    let claim = Request::Claim(Claim {
        key: wire_key("k"),
        fence: wire_fence(fence + 1),
        mode: Mode::Exclusive,
        lease: protocol::Lease::Ttl { ttl_ms: LONG_MS },
        hold_count: 1,
        metadata: protocol::Metadata::default(),
        trace_id: protocol::TraceId::default(),
    });
    peer.ask(&claim, not_held);
    assert!(peer.is_held_under("k", fence));
}

#[test]
fn what_a_later_version_may_know_is_an_error_and_not_the_end() {
    let server = start();
    let mut peer = Peer::connect(server.local_addr(), "a");
    for op in [0x00, 0x16, 0x22, 0x7f] {
        let code = peer.ask(&Request::Unknown { op }, error_code);
        assert_eq!(code, ErrorCode::UNKNOWN_OP);
    }
    peer.ping();
}
