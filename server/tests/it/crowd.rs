//! Many at once.

use crate::common::{
    LONG_MS, Peer, acquire, granted, hello, hello_for, release, session_bound, start, until,
    wire_key,
};
use protocol::{Reply, Request, SessionId};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;

const CONNECTIONS: usize = 2_000;

/// Files that are open for other reasons: other tests run beside this one.
const OTHER_FILES: u64 = 1_000;

/// As many connections as the system lets one process have both ends of, `CONNECTIONS` at most.
fn connections_to_open() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let hard = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let room = hard.map_or(u64::MAX, |files| files.saturating_sub(OTHER_FILES) / 2);
    if room < CONNECTIONS as u64 {
        eprintln!(
            "ATTENTION: only {room} of {CONNECTIONS} connections are tried, the hard limit of open files is {hard:?}"
        );
    }
    room.min(CONNECTIONS as u64) as usize
}

#[test]
fn two_thousand_connections_at_once_are_served_by_all_cores() {
    let server = start();
    let address = server.local_addr();
    let count = connections_to_open();
    let mut peers: Vec<Peer> = (0..count).map(|_| Peer::silent(address)).collect();
    // Every step for all of them before the next one: they are all there at the same time.
    let hellos: Vec<u64> = peers
        .iter_mut()
        .map(|peer| peer.send(&Request::Hello(hello("one of many"))))
        .collect();
    for (peer, id) in peers.iter_mut().zip(hellos) {
        peer.reply(id, |reply| {
            assert!(matches!(reply, Reply::Welcome(_)), "{reply:?}")
        });
    }
    let keys: Vec<String> = (0..count).map(|number| format!("k/{number}")).collect();
    let acquires: Vec<u64> = peers
        .iter_mut()
        .zip(&keys)
        .map(|(peer, key)| peer.send(&acquire(key, LONG_MS, 0)))
        .collect();
    let fences: Vec<u64> = peers
        .iter_mut()
        .zip(acquires)
        .map(|(peer, id)| peer.reply(id, granted))
        .collect();
    let stats = peers[0].stats();
    assert_eq!(stats["connections"], count as u64);
    assert_eq!(stats["sessions"], count as u64);
    assert_eq!(stats["held"], count as u64);
    let per_core = server.connections_per_core();
    assert_eq!(per_core.iter().sum::<u64>(), count as u64);
    assert!(
        per_core.iter().all(|accepted| *accepted > 0),
        "every core's listener has its share: {per_core:?}"
    );
    let releases: Vec<u64> = peers
        .iter_mut()
        .zip(keys.iter().zip(&fences))
        .map(|(peer, (key, fence))| peer.send(&release(key, *fence)))
        .collect();
    for (peer, id) in peers.iter_mut().zip(releases) {
        peer.reply(id, |reply| {
            assert_eq!(reply, Reply::Released { remaining_count: 0 })
        });
    }
    assert_eq!(peers[0].stat("held"), 0);
    server.shutdown();
    for peer in &mut peers {
        peer.is_closed_with(protocol::ErrorCode::SHUTTING_DOWN);
    }
}

#[test]
fn sessions_that_end_by_the_hundred_leave_nothing_behind() {
    let server = start();
    let address = server.local_addr();
    let mut observer = Peer::connect(address, "observer");
    for round in 0..3 {
        for number in 0..150 {
            // The shortest there are: some of them end while they open, on a busy machine.
            let mut peer = Peer::open(address, hello_for("short-lived", 1));
            let mut second = match number % 3 {
                // The session may be over by now.
                0 => peer.try_join("short-lived"),
                _ => None,
            };
            for key in 0..3 {
                let key = format!("k/{round}/{number}/{key}");
                peer.try_send(&session_bound(&key, 0));
                if let Some(second) = &mut second {
                    second.try_send(&acquire(&key, LONG_MS, LONG_MS));
                }
            }
        }
        until("all are over", || {
            let stats = observer.stats();
            stats["sessions"] == 1
                && stats["held"] == 0
                && stats["waiters"] == 0
                && stats["connections"] == 1
        });
    }
}

#[test]
fn a_thousand_waiters_for_one_key_on_as_many_connections_all_get_it() {
    let server = start();
    let address = server.local_addr();
    let count = connections_to_open() / 2;
    let mut holder = Peer::connect(address, "holder");
    let held = holder.acquire("hot", LONG_MS);
    let mut peers: Vec<Peer> = (0..count).map(|_| Peer::connect(address, "one")).collect();
    let ids: Vec<u64> = peers
        .iter_mut()
        .map(|peer| peer.send(&acquire("hot", LONG_MS, LONG_MS)))
        .collect();
    until("all stand in line", || {
        holder.queue_length("hot") == count as u32
    });
    assert!(holder.release("hot", held));
    // In whatever order they came: the server says whose turn it is.
    let mut left: HashMap<SessionId, (Peer, u64)> = peers
        .into_iter()
        .zip(ids)
        .map(|(peer, id)| (peer.session.expect("let in").session_id, (peer, id)))
        .collect();
    let mut last = held;
    while !left.is_empty() {
        let request = Request::Query {
            key: wire_key("hot"),
        };
        let turn = holder.ask(&request, |reply| match reply {
            Reply::QueryResult { holders, .. } => holders.iter().next().map(|one| one.session_id),
            other => panic!("no query result but {other:?}"),
        });
        let turn = turn.expect("handed on, never free while a client waits");
        let (mut peer, id) = left.remove(&turn).expect("each client's turn comes once");
        let fence = peer.reply(id, granted);
        assert_eq!(fence, last + 1, "no grant between");
        last = fence;
        assert!(peer.release("hot", fence));
    }
    assert_eq!(holder.query("hot"), (vec![], 0));
}
