//! Sessions: several connections, comes and goes, time that runs out, and which connection is told.

use crate::common::{
    LONG_MS, OwnedPush, Peer, acquire, granted, hello, hello_for, lost, session_bound, start,
    start_with, until,
};
use protocol::{ErrorCode, Hello, LostReason, Opening, Reply, Request, SessionKey, SessionSecret};
use server::Pause;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A session that ends soon after its last sign of life.
const SHORT_MS: u32 = 300;

#[test]
fn a_session_bound_lock_lives_as_long_as_its_session_is_kept_alive() {
    let server = start();
    let address = server.local_addr();
    let mut holder = Peer::open(address, hello_for("holder", SHORT_MS));
    let mut waiter = Peer::connect(address, "waiter");
    let fence = holder.ask(&session_bound("k", 0), |reply| match reply {
        Reply::Granted { fence, ttl_ms, .. } => {
            assert!(ttl_ms <= SHORT_MS, "what is left of the session's time");
            fence.get()
        }
        other => panic!("not granted but {other:?}"),
    });
    waiter.ask(&acquire("k", LONG_MS, 0), |reply| match reply {
        Reply::Refused(contention) => {
            assert!(contention.holder.is_some_and(|h| h.is_session_bound))
        }
        other => panic!("not refused but {other:?}"),
    });
    // A wait three times as long as the session's TTL, while that is kept alive, is in vain.
    let waiting = waiter.send(&acquire("k", LONG_MS, 3 * SHORT_MS));
    let timed_out = std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| waiter.reply(waiting, |reply| matches!(reply, Reply::TimedOut(_))));
        until("the wait is over", || {
            holder.ask(&Request::KeepAlive, |reply| match reply {
                Reply::KeptAlive { ttl_ms } => assert!(ttl_ms <= SHORT_MS),
                other => panic!("not kept alive but {other:?}"),
            });
            waiting.is_finished()
        });
        waiting.join().unwrap()
    });
    assert!(timed_out, "the lock was lost although its session lives");
    // Without a sign of life it ends.
    let next = waiter.ask(&acquire("k", LONG_MS, LONG_MS), granted);
    assert!(next > fence);
    assert_eq!(
        holder.push(),
        lost("k", fence, LostReason::SESSION_ENDED),
        "the holder is told, should it listen after all"
    );
    holder.is_closed_with(ErrorCode::SESSION_ENDED);
}

#[test]
fn the_end_of_a_session_frees_all_its_locks_and_tells_the_connection_that_is_left() {
    let server = start();
    let address = server.local_addr();
    let mut observer = Peer::connect(address, "observer");
    let mut first = Peer::open(address, hello_for("a", SHORT_MS));
    let mut second = first.join("a");
    let mut held = Vec::new();
    for number in 0..10 {
        // Through both connections, so through both cores if they lie so.
        let peer = if number % 2 == 0 {
            &mut first
        } else {
            &mut second
        };
        let key = format!("k/{number}");
        let fence = peer.acquire(&key, LONG_MS);
        held.push((key, fence));
    }
    let mut waiters: Vec<(Peer, u64)> = held
        .iter()
        .map(|(key, _)| {
            let mut waiter = Peer::connect(address, "next");
            let id = waiter.send(&acquire(key, LONG_MS, LONG_MS));
            (waiter, id)
        })
        .collect();
    drop(first);
    for ((key, fence), (waiter, id)) in held.iter().zip(&mut waiters) {
        let next = waiter.reply(*id, granted);
        assert!(next > *fence, "{key} goes to its waiter");
    }
    second.is_closed_with(ErrorCode::SESSION_ENDED);
    let mut told: Vec<OwnedPush> = std::mem::take(&mut second.pushes);
    let mut expected: Vec<OwnedPush> = held
        .iter()
        .map(|(key, fence)| lost(key, *fence, LostReason::SESSION_ENDED))
        .collect();
    let order = |push: &OwnedPush| format!("{push:?}");
    told.sort_by_key(order);
    expected.sort_by_key(order);
    assert_eq!(told, expected, "every loss, before the end");
    until("the session is forgotten", || {
        // The observer's own and those of the waiters.
        observer.stat("sessions") == 11
    });
}

#[test]
fn goodbye_frees_everything_at_once() {
    let server = start();
    let address = server.local_addr();
    let mut leaving = Peer::connect(address, "leaving");
    let mut other = leaving.join("leaving");
    let mut next = Peer::connect(address, "next");
    let mut observer = Peer::connect(address, "observer");
    let timed = leaving.acquire("timed", LONG_MS);
    let bound = other.ask(&session_bound("bound", 0), granted);
    let first = next.stand_in_line("timed", 0, &mut observer);
    let second = next.stand_in_line("bound", 0, &mut observer);
    leaving.ask(&Request::Goodbye, |reply| assert_eq!(reply, Reply::Bye));
    assert!(next.reply(first, granted) > timed);
    assert!(next.reply(second, granted) > bound);
    assert_eq!(leaving.farewell(), None, "it closes without another word");
    other.is_closed_with(ErrorCode::SESSION_ENDED);
    let told = std::mem::take(&mut other.pushes);
    assert!(told.contains(&lost("timed", timed, LostReason::SESSION_ENDED)));
    assert!(told.contains(&lost("bound", bound, LostReason::SESSION_ENDED)));
}

#[test]
fn a_client_that_comes_back_in_time_finds_its_locks() {
    let server = start();
    let mut peer = Peer::connect(server.local_addr(), "a");
    let timed = peer.acquire("timed", LONG_MS);
    let bound = peer.ask(&session_bound("bound", 0), granted);
    let session = peer.session;
    let mut back = peer.come_back("a");
    assert!(back.is_resumed);
    assert_eq!(back.session, session, "the same session, the same secret");
    assert!(back.is_held_under("timed", timed));
    assert!(back.is_held_under("bound", bound));
    assert!(back.release("timed", timed));
    assert!(back.release("bound", bound));
}

#[test]
fn a_client_that_comes_back_too_late_gets_a_new_session_and_finds_nothing() {
    let server = start();
    let address = server.local_addr();
    let mut observer = Peer::connect(address, "observer");
    let mut peer = Peer::open(address, hello_for("a", SHORT_MS));
    let fence = peer.acquire("k", LONG_MS);
    let session = peer.session.expect("a session");
    drop(peer);
    until("the session is over", || {
        !observer.is_held_under("k", fence)
    });
    let mut back = Peer::resume(address, "a", session, 100);
    assert!(!back.is_resumed);
    assert_ne!(back.session, Some(session));
    assert!(!back.release("k", fence));
}

/// The session ended between the look for it and the keep-alive, and the client was told all the
/// same that it had been resumed.
#[test]
fn a_session_that_ends_while_it_is_resumed_is_not_resumed() {
    let is_armed = Arc::new(AtomicBool::new(false));
    let server = start_with(|builder| {
        let is_armed = is_armed.clone();
        builder.on_pause(move |at| {
            if at == Pause::BeforeKeepAlive && is_armed.swap(false, Ordering::SeqCst) {
                let found = Instant::now();
                until("the session's time has passed", || {
                    found.elapsed() > Duration::from_millis(u64::from(SHORT_MS) + 5)
                });
            }
        })
    });
    let address = server.local_addr();
    until("a session was found and then ended", || {
        is_armed.store(false, Ordering::SeqCst);
        let peer = Peer::open(address, hello_for("a", SHORT_MS));
        let session = peer.session.expect("a session");
        is_armed.store(true, Ordering::SeqCst);
        let back = Peer::resume(address, "a", session, 100);
        // On a busy machine the session may have ended before it was looked for.
        let was_found = !is_armed.load(Ordering::SeqCst);
        assert!(!was_found || !back.is_resumed);
        was_found
    });
}

#[test]
fn a_joined_connection_shares_the_locks_of_its_session() {
    let server = start();
    let mut first = Peer::connect(server.local_addr(), "a");
    let mut second = first.join("a");
    assert!(second.is_resumed);
    assert_eq!(first.session, second.session);
    let fence = first.acquire("k", LONG_MS);
    assert!(second.release("k", fence));
    let fence = second.acquire("k", LONG_MS);
    drop(second);
    assert!(first.release("k", fence));
}

#[test]
fn a_wrong_secret_opens_no_session_of_others() {
    let server = start();
    let address = server.local_addr();
    let mut owner = Peer::connect(address, "owner");
    let fence = owner.acquire("k", LONG_MS);
    let session = owner.session.expect("a session");
    let mut secret = *session.secret.as_bytes();
    secret[15] ^= 1;
    let forged = SessionKey {
        secret: SessionSecret::new(secret),
        ..session
    };
    let unheard_of = SessionKey {
        session_id: protocol::SessionId::new(u64::MAX),
        ..session
    };
    for key in [forged, unheard_of] {
        let joining = Hello {
            opening: Opening::Join(key),
            ..hello("thief")
        };
        let refused = Peer::knock(address, joining).err().expect("not let in");
        assert_eq!(refused.code, ErrorCode::SESSION_UNKNOWN);
        let mut thief = Peer::resume(address, "thief", key, 1);
        assert!(!thief.is_resumed);
        assert_ne!(
            thief.session.map(|session| session.session_id),
            Some(session.session_id)
        );
        assert!(!thief.release("k", fence));
    }
    owner.ping();
    assert!(owner.release("k", fence), "the owner noticed nothing");
}

#[test]
fn who_resumes_a_session_takes_it_over_from_the_connections_it_still_has() {
    let server = start();
    let address = server.local_addr();
    let mut holder = Peer::connect(address, "holder");
    let mut observer = Peer::connect(address, "observer");
    let held = holder.acquire("k", LONG_MS);
    let mut old = Peer::connect(address, "a");
    let mut old_sibling = old.join("a");
    old.stand_in_line("k", 0, &mut observer);
    old_sibling.stand_in_line("k", 1, &mut observer);
    let session = old.session.expect("a session");
    let back = Peer::resume(address, "a", session, 10_000_000);
    assert!(back.is_resumed);
    assert_eq!(
        observer.queue_length("k"),
        0,
        "by the time of the welcome the old waits are out of line"
    );
    old.is_closed_with(ErrorCode::OUT_OF_TURN);
    old_sibling.is_closed_with(ErrorCode::OUT_OF_TURN);
    assert!(holder.release("k", held));
}

#[test]
fn losses_go_to_the_newest_connection_of_a_session() {
    let server = start();
    let mut first = Peer::connect(server.local_addr(), "a");
    let fence = first.acquire("k", 100);
    let mut second = first.join("a");
    assert_eq!(second.push(), lost("k", fence, LostReason::EXPIRED));
    first.ping();
    assert_eq!(first.pushes, [], "once, on one of them");
}

#[test]
fn a_session_asks_for_a_time_of_its_own_or_gets_the_servers() {
    let server = start();
    let address = server.local_addr();
    let ttl_of = |asked| {
        let mut peer = Peer::silent(address);
        let id = peer.send(&Request::Hello(hello_for("a", asked)));
        peer.reply(id, |reply| match reply {
            Reply::Welcome(welcome) => welcome.session_ttl_ms,
            other => panic!("no welcome but {other:?}"),
        })
    };
    assert_eq!(ttl_of(0), 10_000);
    assert_eq!(ttl_of(45_678), 45_678);
    assert_eq!(ttl_of(1), 100, "no shorter than any network can keep up");
}
